//! Numbers and sizes as text: digits without a formatter's machinery, block sizes, and sizes for people.

/// How a number of bytes is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeStyle {
    /// As `1.5K`, in powers of this base (1000 or 1024), rounded up.
    Human(u64),
    /// As a number of blocks of so many bytes, rounded up.
    Blocks(u64, Suffix),
}

/// What follows a number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// Nothing.
    None,
    /// The power's letter: `K`.
    Letter,
    /// `KiB`.
    Binary,
    /// `kB`.
    Decimal,
}

const LETTERS: &[u8] = b"\0KMGTPEZY";

impl SizeStyle {
    /// Bytes, one by one.
    pub(super) const BYTES: SizeStyle = SizeStyle::Blocks(1, Suffix::None);

    /// Reads what `--block-size` and `BLOCK_SIZE` say: `human-readable`, `si`, `512`, `K`, `2MB`, `1KiB`.
    pub(super) fn parse(text: &str) -> Option<SizeStyle> {
        // A quote asks for the locale's grouping of digits, which C and POSIX have not.
        let text = text.strip_prefix('\'').unwrap_or(text);
        match text {
            "human-readable" => return Some(SizeStyle::Human(1024)),
            "si" => return Some(SizeStyle::Human(1000)),
            _ => (),
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let (letter, rest) = match unit.chars().next() {
            Some(letter) => (Some(letter), &unit[letter.len_utf8()..]),
            None => (None, ""),
        };
        let power = match letter {
            None => 0,
            Some(letter) => {
                let letter = u8::try_from(letter.to_ascii_uppercase()).ok()?;
                LETTERS.iter().skip(1).position(|known| *known == letter)? + 1
            }
        };
        let (base, named) = match rest {
            "" => (1024_u64, Suffix::Letter),
            "iB" => (1024, Suffix::Binary),
            "B" => (1000, Suffix::Decimal),
            _ => return None,
        };
        let suffix = if number.is_empty() { named } else { Suffix::None };
        let count = if number.is_empty() { 1 } else { number.parse::<u64>().ok()? };
        let block = count.checked_mul(base.checked_pow(u32::try_from(power).ok()?)?)?;
        let is_something = block > 0 && !(number.is_empty() && power == 0);
        is_something.then_some(SizeStyle::Blocks(block, suffix))
    }

    /// Appends `bytes`.
    pub(super) fn write(self, bytes: u128, out: &mut Vec<u8>) {
        match self {
            SizeStyle::Blocks(block, suffix) => {
                digits(bytes.div_ceil(u128::from(block)), out);
                suffix.write(block, out);
            }
            SizeStyle::Human(base) => human(bytes, u128::from(base), out),
        }
    }
}

impl Suffix {
    fn write(self, block: u64, out: &mut Vec<u8>) {
        let base: u64 = if self == Suffix::Decimal { 1000 } else { 1024 };
        let mut power = 1_u64;
        let mut exponent = 0;
        while power < block && exponent < LETTERS.len() - 1 {
            power = power.saturating_mul(base);
            exponent += 1;
        }
        if self == Suffix::None {
            return;
        }
        if exponent > 0 {
            let small = self == Suffix::Decimal && exponent == 1;
            out.push(if small { b'k' } else { LETTERS[exponent] });
        }
        match self {
            Suffix::Binary if exponent > 0 => out.extend_from_slice(b"iB"),
            Suffix::Binary | Suffix::Decimal => out.push(b'B'),
            _ => (),
        }
    }
}

/// Appends `bytes` with the largest unit that leaves a number of one, rounded up; a tenth below ten.
fn human(bytes: u128, base: u128, out: &mut Vec<u8>) {
    let mut unit = 1_u128;
    let mut exponent = 0;
    while exponent < LETTERS.len() - 1 && bytes >= unit * base {
        unit *= base;
        exponent += 1;
    }
    if exponent == 0 {
        return digits(bytes, out);
    }
    let mut tenths = (bytes * 10).div_ceil(unit);
    let mut whole = None;
    if tenths >= 100 {
        let mut rounded = bytes.div_ceil(unit);
        if rounded == base && exponent < LETTERS.len() - 1 {
            (rounded, exponent, tenths) = (1, exponent + 1, 10);
        }
        whole = (rounded != 1).then_some(rounded);
    }
    match whole {
        Some(whole) => digits(whole, out),
        None => {
            digits(tenths / 10, out);
            out.push(b'.');
            digits(tenths % 10, out);
        }
    }
    out.push(if base == 1000 && exponent == 1 { b'k' } else { LETTERS[exponent] });
}

/// Appends a number in decimal digits.
pub(super) fn digits(number: impl Into<u128>, out: &mut Vec<u8>) {
    let number = number.into();
    match u64::try_from(number) {
        Ok(number) => short_digits(number, out),
        Err(_) => {
            // 10^19 is the largest power of ten in 64 bits.
            const SPLIT: u128 = 10_000_000_000_000_000_000;
            digits(number / SPLIT, out);
            let low = u64::try_from(number % SPLIT).unwrap_or(0);
            zero_padded(low, 19, out);
        }
    }
}

/// Appends a number of at least `width` digits.
pub(super) fn zero_padded(number: u64, width: usize, out: &mut Vec<u8>) {
    let length = count_digits(number);
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(length)));
    short_digits(number, out);
}

/// Appends a number after as many spaces as bring it to `width` columns.
pub(super) fn right(number: u64, width: usize, out: &mut Vec<u8>) {
    spaces(width.saturating_sub(count_digits(number)), out);
    short_digits(number, out);
}

/// Appends spaces.
pub(super) fn spaces(count: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + count, b' ');
}

/// Returns how many digits a number has.
pub(super) fn count_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| 1 + usize::try_from(log).unwrap_or(0))
}

fn short_digits(mut number: u64, out: &mut Vec<u8>) {
    let mut buffer = [0_u8; 20];
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&buffer[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(style: SizeStyle, bytes: u128) -> String {
        let mut out = Vec::new();
        style.write(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sizes_for_people_are_rounded_up() {
        let binary = |bytes| shown(SizeStyle::Human(1024), bytes);
        for (bytes, wanted) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (9 * 1024 + 1023, "10K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024 + 1, "1.0M"),
            (1 << 60, "1.0E"),
            (u128::from(u64::MAX), "16E"),
        ] {
            assert_eq!(binary(bytes), wanted, "{bytes}");
        }
        assert_eq!(shown(SizeStyle::Human(1000), 1001), "1.1k");
        assert_eq!(shown(SizeStyle::Human(1000), 999_999), "1.0M");
    }

    #[test]
    fn block_sizes_are_read_as_gnu_reads_them() {
        let blocks = |block, suffix| Some(SizeStyle::Blocks(block, suffix));
        assert_eq!(SizeStyle::parse("512"), blocks(512, Suffix::None));
        assert_eq!(SizeStyle::parse("K"), blocks(1024, Suffix::Letter));
        assert_eq!(SizeStyle::parse("1K"), blocks(1024, Suffix::None));
        assert_eq!(SizeStyle::parse("KB"), blocks(1000, Suffix::Decimal));
        assert_eq!(SizeStyle::parse("MiB"), blocks(1 << 20, Suffix::Binary));
        assert_eq!(SizeStyle::parse("human-readable"), Some(SizeStyle::Human(1024)));
        for wrong in ["", "0", "x", "KX", "-1", "99999999999999999999", "B"] {
            assert_eq!(SizeStyle::parse(wrong), None, "{wrong}");
        }
        assert_eq!(shown(SizeStyle::Blocks(1024, Suffix::Letter), 1025), "2K");
        assert_eq!(shown(SizeStyle::Blocks(1000, Suffix::Decimal), 1), "1kB");
        assert_eq!(shown(SizeStyle::BYTES, u128::MAX), u128::MAX.to_string());
    }
}
