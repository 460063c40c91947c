//! Reads what programs in the kernel have written: numbers in the machine's order.

/// Returns the four bytes at an offset; none where the bytes end before.
pub fn word(bytes: &[u8], offset: impl TryInto<usize>) -> Option<u32> {
    field(bytes, offset).map(u32::from_ne_bytes)
}

/// Returns the eight bytes at an offset; none where the bytes end before.
pub fn long(bytes: &[u8], offset: impl TryInto<usize>) -> Option<u64> {
    field(bytes, offset).map(u64::from_ne_bytes)
}

/// Returns as many bytes at an offset as the field has; none where the bytes end before.
pub fn field<const N: usize>(bytes: &[u8], offset: impl TryInto<usize>) -> Option<[u8; N]> {
    let rest = bytes.get(offset.try_into().ok()?..)?;
    rest.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_where_they_are_whole() {
        let bytes: Vec<u8> = (1..=9).collect();
        assert_eq!(word(&bytes, 5_i16), Some(u32::from_ne_bytes([6, 7, 8, 9])));
        assert_eq!(long(&bytes, 1_usize), Some(u64::from_ne_bytes([2, 3, 4, 5, 6, 7, 8, 9])));
        assert_eq!((word(&bytes, 6_i16), long(&bytes, 2_usize)), (None, None));
        assert_eq!((word(&bytes, -1_i16), long(&bytes, usize::MAX)), (None, None));
    }
}
