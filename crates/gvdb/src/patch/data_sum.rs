//! The checksum of the names and values of an image, carried from one patch to the next.
//!
//! They are half of an image, and a change moves nearly all of them without changing any. CRC-32C is linear: from the
//! checksum of all of them, of what is replaced and of what is on one side of it, that of the other side follows, which need
//! not be read. The shorter side is read, so that a change reads a quarter of them on average.

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

/// Returns the checksum of a text with the sum `before` and, behind it, `len` bytes with the sum `sum`.
pub(in super::super) fn joined(before: u32, sum: u32, len: usize) -> u32 {
    with_zeros(before, len) ^ sum
}

/// Returns what `len` zeros behind a text make of its checksum, apart from what they make of that of no text.
fn with_zeros(sum: u32, len: usize) -> u32 {
    let bits = (len as u64 % ORDER) * 8 % ORDER;
    product(sum, power(bits))
}

/// Takes back what [`with_zeros`] makes of a checksum.
fn without_zeros(sum: u32, len: usize) -> u32 {
    let bits = (len as u64 % ORDER) * 8 % ORDER;
    product(sum, power(ORDER - bits))
}

/// The polynomial of CRC-32C without its highest term; as in checksums, the highest bit is the term 1.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial is x + 1 times a primitive one of degree 31: so many times x is 1.
const ORDER: u64 = (1 << 31) - 1;

/// x to the power of 1, 2, 4 and so on.
const POWERS: [u32; 32] = {
    let mut powers = [1 << 30; 32];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = product(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
};

/// Returns x to the power of `bits`, modulo the polynomial.
fn power(bits: u64) -> u32 {
    let is_set = |bit: &usize| bits >> bit & 1 == 1;
    (0..POWERS.len())
        .filter(is_set)
        .fold(1 << 31, |product_so_far, bit| product(product_so_far, POWERS[bit]))
}

/// Returns the product of two polynomials, modulo the polynomial.
const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut term = 1 << 31;
    while term != 0 {
        if a & term != 0 {
            sum ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
        term >>= 1;
    }
    sum
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
            let of_after = crc32c::crc32c(&after);
            prop_assert_eq!(joined(crc32c::crc32c(&before), of_after, after.len()), all(&[]));
        }
    }

    #[test]
    fn zeros_are_taken_back_however_many_there_are() {
        for len in [0, 1, 7, 4096, 326_496, usize::try_from(ORDER).unwrap(), usize::MAX] {
            for sum in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX] {
                assert_eq!(without_zeros(with_zeros(sum, len), len), sum, "{len} bytes, {sum:x}");
            }
        }
        for len in [1, 63, 64, 100_000] {
            let expected = crc32c::crc32c_combine(0xdead_beef, 0, len);
            assert_eq!(with_zeros(0xdead_beef, len), expected, "{len} bytes");
        }
    }
}
