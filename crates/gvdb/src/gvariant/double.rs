//! Double-precision numbers as text: printed as C's `%.17g` does, read as C's `strtod` does.

/// Appends `number` with 17 significant digits, without trailing zeros, and a point or an exponent.
pub(super) fn print(number: f64, out: &mut String) {
    if number.is_sign_negative() {
        out.push('-');
    }
    let number = number.abs();
    if number.is_nan() {
        return out.push_str("nan");
    }
    if number.is_infinite() {
        return out.push_str("inf");
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let (first, rest) = digits.split_at(digits.len().min(1));
    match usize::try_from(exponent) {
        Ok(exponent) if exponent < 17 => {
            // So many digits stand before the point; those that were trimmed are zeros.
            let before = exponent + 1;
            let (whole, fraction) = digits.split_at(digits.len().min(before));
            out.push_str(whole);
            out.extend(std::iter::repeat_n('0', before - whole.len()));
            out.push('.');
            out.push_str(if fraction.is_empty() { "0" } else { fraction });
        }
        Err(_) if exponent >= -4 => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize - 1));
            out.push_str(digits);
        }
        _ => {
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            out.push_str(&format!("e{sign}{:02}", exponent.unsigned_abs()));
        }
    }
}

/// What a text starts with, read as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Read {
    pub(super) number: f64,
    /// How many bytes belong to the number; 0 if there is none.
    pub(super) len: usize,
    /// The number is too large, or so small that digits are lost (C's `ERANGE`).
    pub(super) out_of_range: bool,
}

/// Reads the longest number at the start of `text`: decimal, hexadecimal, `inf`, `infinity` or `nan` in any case.
pub(super) fn read(text: &[u8]) -> Read {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let starts =
        |word: &[u8]| body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let exact = |number, len| Read { number, len, out_of_range: false };
    let mut read = if starts(b"infinity") {
        exact(f64::INFINITY, 8)
    } else if starts(b"inf") {
        exact(f64::INFINITY, 3)
    } else if starts(b"nan") {
        exact(f64::NAN, 3)
    } else if starts(b"0x") {
        read_hexadecimal(&body[2..])
            .map_or(exact(0.0, 1), |read| Read { len: read.len + 2, ..read })
    } else {
        read_decimal(body)
    };
    if read.len == 0 {
        return read;
    }
    read.len += sign;
    // The sign is set, not multiplied, so that a NaN has it as well.
    read.number = read.number.abs().copysign(if negative { -1.0 } else { 1.0 });
    read
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|c| c.is_ascii_digit()).count()
}

/// Returns the length of an exponent, its letter and sign included, or 0 if there is none.
fn exponent_len(text: &[u8], letter: u8) -> usize {
    if !text.first().is_some_and(|c| c.eq_ignore_ascii_case(&letter)) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    match digits(&text[1 + sign..]) {
        0 => 0,
        count => 1 + sign + count,
    }
}

fn read_decimal(text: &[u8]) -> Read {
    let whole = digits(text);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = digits(&text[len + 1..]);
        if whole + fraction == 0 {
            return Read { number: 0.0, len: 0, out_of_range: false };
        }
        len += 1 + fraction;
    }
    if len > 0 {
        len += exponent_len(&text[len..], b'e');
    }
    let literal = std::str::from_utf8(&text[..len]).unwrap_or("");
    let Ok(number) = literal.parse::<f64>() else {
        return Read { number: 0.0, len: 0, out_of_range: false };
    };
    let subnormal = number != 0.0 && number < f64::MIN_POSITIVE;
    let out_of_range = number.is_infinite() || (subnormal && !is_exact(literal, number));
    Read { number, len, out_of_range }
}

/// Says whether the decimal `literal` is exactly `number`.
fn is_exact(literal: &str, number: f64) -> bool {
    // No subnormal number has more than 767 significant digits.
    significant(literal) == significant(&format!("{number:.800e}"))
}

/// Returns the significant digits of a decimal literal and the power of ten of the first.
fn significant(literal: &str) -> (String, i64) {
    let lower = literal.to_ascii_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let trimmed = all.trim_start_matches('0');
    let leading = i64::try_from(whole.len()).unwrap_or(i64::MAX)
        - i64::try_from(all.len() - trimmed.len()).unwrap_or(i64::MAX);
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MIN / 2);
    (trimmed.trim_end_matches('0').to_owned(), leading.saturating_add(exponent))
}

/// Reads what stands behind `0x`; `None` if no digit does.
fn read_hexadecimal(text: &[u8]) -> Option<Read> {
    let mut mantissa = 0_u64;
    // Bits that did not fit were not all zero.
    let mut sticky = false;
    let mut exponent = 0_i64;
    let (mut len, mut any, mut after_point) = (0, false, false);
    for &c in text {
        let Some(digit) = char::from(c).to_digit(16) else {
            if c == b'.' && !after_point {
                after_point = true;
                len += 1;
                continue;
            }
            break;
        };
        any = true;
        len += 1;
        if mantissa >> 59 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            exponent -= if after_point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            exponent += if after_point { 0 } else { 4 };
        }
    }
    if !any {
        return None;
    }
    let exponent_len = exponent_len(&text[len..], b'p');
    if exponent_len > 0 {
        let written = std::str::from_utf8(&text[len + 1..len + exponent_len]).unwrap_or("0");
        let huge = if written.starts_with('-') { -1_000_000_000 } else { 1_000_000_000 };
        exponent = exponent.saturating_add(written.parse::<i32>().map_or(huge, i64::from));
    }
    let (number, out_of_range) = scale(mantissa, sticky, exponent);
    Some(Read { number, len: len + exponent_len, out_of_range })
}

/// Returns `mantissa` times two to the `exponent`, rounded to the nearest number, ties to even.
fn scale(mantissa: u64, sticky: bool, exponent: i64) -> (f64, bool) {
    if mantissa == 0 {
        return (0.0, false);
    }
    let shift = mantissa.leading_zeros();
    let mantissa = mantissa << shift;
    // The value is 0.1… times two to this power, so 1.… has one less.
    let power = exponent - i64::from(shift) + 64;
    if power > 1024 {
        return (f64::INFINITY, true);
    }
    // A subnormal number keeps fewer than 53 bits.
    let kept = (power + 1074).clamp(-1, 53);
    let Ok(kept @ 0..) = u32::try_from(kept) else { return (0.0, true) };
    let (head, tail) = match kept {
        0 => (0, mantissa),
        kept => (mantissa >> (64 - kept), mantissa << kept),
    };
    let half = 1_u64 << 63;
    let up = tail > half || (tail == half && (sticky || head & 1 == 1));
    let inexact = tail != 0 || sticky;
    let head = head + u64::from(up);
    // The bits of a number count up through all magnitudes, so a carry moves into the exponent by itself.
    let bits = if kept == 53 {
        let biased = u64::try_from(power + 1022).unwrap_or(0);
        (biased << 52) + (head - (1 << 52))
    } else {
        head
    };
    let number = f64::from_bits(bits);
    let out_of_range = number.is_infinite() || (inexact && number < f64::MIN_POSITIVE);
    (number, out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_with_17_digits() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.5, "0.5"),
            (0.1, "0.10000000000000001"),
            (100.0, "100.0"),
            (1e16, "10000000000000000.0"),
            (1e17, "1e+17"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.000_012_345, "1.2345e-05"),
            (2_f64.powi(50) + 0.25, "1125899906842624.2"),
            (2_f64.powi(50) + 0.75, "1125899906842624.8"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN.abs(), "-nan"),
        ] {
            let mut out = String::new();
            print(number, &mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn numbers_read_up_to_where_they_end() {
        for (text, number, len) in [
            ("1", 1.0, 1),
            ("-1.5e3x", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            (".", 0.0, 0),
            ("-", 0.0, 0),
            ("0x", 0.0, 1),
            ("0x1p4", 16.0, 5),
            ("0x.8", 0.5, 4),
            ("-0x1.8p1", -3.0, 8),
            ("0x10p", 16.0, 4),
            ("infinit", f64::INFINITY, 3),
            ("-INFINITY", f64::NEG_INFINITY, 9),
            ("0x1.fffffffffffff8p0", 2.0, 20),
        ] {
            let read = read(text.as_bytes());
            assert_eq!((read.number, read.len), (number, len), "{text}");
            assert!(!read.out_of_range, "{text}");
        }
    }

    #[test]
    fn too_large_and_too_small_are_out_of_range() {
        for text in
            ["1e309", "0x1p1024", "4e-324", "1e-310", "0x1.8p-1074", "1e99999999999999999999"]
        {
            assert!(read(text.as_bytes()).out_of_range, "{text}");
        }
        for text in ["0x1p-1074", "1e-5000", "0x1p-1022", "2.3e-308"] {
            let read = read(text.as_bytes());
            assert!(!read.out_of_range || read.number == 0.0, "{text}");
        }
        let smallest = format!("{:.800e}", f64::from_bits(1));
        assert!(!read(smallest.as_bytes()).out_of_range);
    }
}
