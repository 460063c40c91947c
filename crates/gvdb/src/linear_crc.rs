//! Arithmetic with checksums of CRC-32C: what zeros behind a text make of its checksum, and back, without reading them.
//!
//! The checksum of two texts one behind the other follows from those of both. `crc32c_combine` computes that, too, but squares
//! matrices for each call, which takes longer than reading some kilobytes.

/// Returns the checksum of a text with the sum `before` and, behind it, `len` bytes with the sum `sum`.
pub(crate) fn joined(before: u32, sum: u32, len: usize) -> u32 {
    with_zeros(before, len) ^ sum
}

/// Returns what `len` zeros behind a text make of its checksum, apart from what they make of that of no text.
pub(crate) fn with_zeros(sum: u32, len: usize) -> u32 {
    let bits = (len as u64 % ORDER) * 8 % ORDER;
    product(sum, power(bits))
}

/// Takes back what [`with_zeros`] makes of a checksum.
pub(crate) fn without_zeros(sum: u32, len: usize) -> u32 {
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
    use super::*;

    #[test]
    fn zeros_are_taken_back_however_many_there_are() {
        for len in [0, 1, 7, 4096, 326_496, usize::try_from(ORDER).unwrap(), usize::MAX] {
            for sum in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX] {
                assert_eq!(without_zeros(with_zeros(sum, len), len), sum, "{len} bytes, {sum:x}");
            }
        }
        let (one, other) = (&b"one text"[..], &b"and another one"[..]);
        let [of_one, of_other] = [one, other].map(crc32c::crc32c);
        let of_both = crc32c::crc32c(&[one, other].concat());
        assert_eq!(joined(of_one, of_other, other.len()), of_both);
        for len in [1, 63, 64, 100_000] {
            let expected = crc32c::crc32c_combine(0xdead_beef, 0, len);
            assert_eq!(with_zeros(0xdead_beef, len), expected, "{len} bytes");
        }
    }
}
