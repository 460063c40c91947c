//! The checksum of the names and values of an image, carried from one patch to the next.
//!
//! They are half of an image, and a change moves nearly all of them without changing any. CRC-32C is linear: from the
//! checksum of all of them, of what is replaced and of what is on one side of it, that of the other side follows, which need
//! not be read. The shorter side is read, so that a change reads a quarter of them on average.

use crate::linear_crc::{with_zeros, without_zeros};

/// CRC-32C of the names and values of an image, the bytes from the end of the stamp to the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataSum(pub(super) u32);

/// Part of the names and values before it is replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    sum: u32,
    len: usize,
}

impl Replaced {
    pub(super) fn new(bytes: &[u8]) -> Replaced {
        Replaced { sum: crc32c::crc32c(bytes), len: bytes.len() }
    }
}

impl DataSum {
    /// Reads all of them.
    pub(super) fn of(data: &[u8]) -> DataSum {
        DataSum(crc32c::crc32c(data))
    }

    /// Returns the sum after `new` has come in the place of `old`, between bytes that stay.
    pub(super) fn replace(self, before: &[u8], old: Replaced, new: &[u8], after: &[u8]) -> DataSum {
        let of_before = if before.len() <= after.len() {
            crc32c::crc32c(before)
        } else {
            let of_after = crc32c::crc32c(after);
            let with_old = without_zeros(self.0 ^ of_after, after.len());
            without_zeros(with_old ^ old.sum, old.len)
        };
        let with_old = with_zeros(of_before, old.len) ^ old.sum;
        let with_new = crc32c::crc32c_append(of_before, new);
        DataSum(self.0 ^ with_zeros(with_old ^ with_new, after.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_that_is_replaced_changes_the_sum_as_reading_all_of_it_does(
            before in proptest::collection::vec(any::<u8>(), 0..300),
            old in proptest::collection::vec(any::<u8>(), 0..60),
            new in proptest::collection::vec(any::<u8>(), 0..60),
            after in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let all = |middle: &[u8]| crc32c::crc32c(&[&before, middle, &after].concat());
            let sum = DataSum(all(&old)).replace(&before, Replaced::new(&old), &new, &after);
            prop_assert_eq!(sum, DataSum(all(&new)));
        }
    }
}
