//! The order of ASCII names by tables, which are computed from ICU's answers for single characters and pairs.

use std::cmp::Ordering;

use icu_collator::CollatorBorrowed;

use super::Digits;

/// Longer runs of digits are cut by ICU; it may do so alone.
const DIGITS_AT_MOST: usize = 200;
/// Ends a run of compressed letters before a lower one, as in ICU's sort keys.
const BELOW: u8 = 0x03;
/// Ends a run of compressed letters before a higher one.
const ABOVE: u8 = 0xff;

/// The order of those ASCII characters that stand for themselves in a language.
#[derive(Debug)]
pub(super) struct Plain {
    /// The weight of a character, its bytes from the left; 0 if it is not plain.
    weights: [u32; 256],
    /// Whether a character is the capital of another.
    capital: [bool; 256],
    /// What a small letter is to its capital.
    small_to_capital: Ordering,
    /// For a first character, the second ones with which it is more than the two, for example `ch` in Czech.
    pairs: [u128; 128],
    /// The weights' first bytes that are written once for several characters in a row.
    compressed: [bool; 256],
    /// The first byte of numbers, if runs of digits are numbers.
    number: Option<u8>,
}

/// A step through a name.
#[derive(Clone, Copy)]
enum Unit<'a> {
    End,
    /// Only ICU knows.
    Foreign,
    Letter(u8),
    /// The digits without leading zeros.
    Number(&'a [u8]),
}

impl Plain {
    /// Asks ICU for the order of single characters and of pairs.
    pub(super) fn new(
        letters: &CollatorBorrowed<'static>,
        full: &CollatorBorrowed<'static>,
        digits: Digits,
    ) -> Plain {
        let mut plain = Plain {
            weights: [0; 256],
            capital: [false; 256],
            small_to_capital: full.compare("a", "A"),
            pairs: [0; 128],
            compressed: [false; 256],
            number: None,
        };
        let capital_case = case_of(full, b"A");
        for character in b' '..=b'~' {
            let name = [character];
            let weight = key(letters, &name);
            let case = case_of(full, &name);
            let capital = character.is_ascii_uppercase();
            if !(1..=4).contains(&weight.len()) || case.is_none() {
                continue;
            }
            if if capital { case != capital_case } else { case.as_deref() != Some(&[0x05][..]) } {
                continue;
            }
            let mut bytes = [0; 4];
            bytes[..weight.len()].copy_from_slice(&weight);
            plain.weights[usize::from(character)] = u32::from_be_bytes(bytes);
            plain.capital[usize::from(character)] = capital;
            let is_number = digits == Digits::ByValue && character.is_ascii_digit();
            if !is_number && key(letters, &[character, character]).len() < 2 * weight.len() {
                plain.compressed[usize::from(bytes[0])] = true;
            }
        }
        if digits == Digits::ByValue {
            plain.number = key(letters, b"0").first().copied();
        }
        plain.find_pairs(letters, full);
        plain
    }

    /// Marks the pairs of letters of which ICU makes something else than of each alone.
    fn find_pairs(
        &mut self,
        letters: &CollatorBorrowed<'static>,
        full: &CollatorBorrowed<'static>,
    ) {
        let is_letter = |c: &u8| c.is_ascii_alphabetic();
        for first in (0..128).filter(is_letter) {
            for second in (0..128).filter(is_letter) {
                let name = [first, second];
                let mut code = [0; 16];
                let len = self.code(&name, &mut code);
                let same = len.is_some_and(|len| key(letters, &name) == code[..len])
                    && accents_of(full, &name).as_deref() == Some(&[0x06]);
                if !same {
                    self.pairs[usize::from(first)] |= 1 << second;
                    // In Hungarian `ccs` is `cs` twice, so `cc` may be the beginning of more too.
                    self.pairs[usize::from(first)] |= 1 << first;
                }
            }
        }
    }

    /// Whether `second` after `first` is what it is alone.
    fn is_apart(&self, first: u8, second: u8) -> bool {
        self.weights[usize::from(second)] != 0
            && self.pairs.get(usize::from(first)).is_some_and(|pairs| pairs >> second & 1 == 0)
    }

    /// Takes the next step through a name. What follows the step must be plain too, because it could change it.
    fn step<'a>(&self, name: &'a [u8], at: &mut usize) -> Unit<'a> {
        let start = *at;
        let Some(&character) = name.get(start) else { return Unit::End };
        if self.weights[usize::from(character)] == 0 {
            return Unit::Foreign;
        }
        let mut end = start + 1;
        let unit = if self.number.is_some() && character.is_ascii_digit() {
            end += name[end..].iter().take_while(|c| c.is_ascii_digit()).count();
            if end - start > DIGITS_AT_MOST {
                return Unit::Foreign;
            }
            let digits = &name[start..end];
            let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
            Unit::Number(&digits[zeros.min(digits.len() - 1)..])
        } else {
            Unit::Letter(character)
        };
        if name.get(end).is_some_and(|next| !self.is_apart(name[end - 1], *next)) {
            return Unit::Foreign;
        }
        *at = end;
        unit
    }

    /// Compares two names up to their case; `None` if only ICU can.
    pub(super) fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        let mut at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        // What differs may be the end of a number that begins before.
        while at > 0 && self.number.is_some() && a[at - 1].is_ascii_digit() {
            at -= 1;
        }
        if let Some(before) = at.checked_sub(1) {
            let apart =
                |name: &[u8]| name.get(at).is_none_or(|next| self.is_apart(a[before], *next));
            if self.weights[usize::from(a[before])] == 0 || !apart(a) || !apart(b) {
                return None;
            }
        }
        let (mut in_a, mut in_b) = (at, at);
        let mut by_case = Ordering::Equal;
        loop {
            match (self.step(a, &mut in_a), self.step(b, &mut in_b)) {
                (Unit::Foreign, _) | (_, Unit::Foreign) => return None,
                (Unit::End, Unit::End) => return Some(by_case),
                (Unit::End, _) => return Some(Ordering::Less),
                (_, Unit::End) => return Some(Ordering::Greater),
                (Unit::Letter(a), Unit::Letter(b)) => {
                    let order = self.weights[usize::from(a)].cmp(&self.weights[usize::from(b)]);
                    if order.is_ne() {
                        return Some(order);
                    }
                    by_case = by_case.then_with(|| self.compare_case(a, b));
                }
                (Unit::Number(a), Unit::Number(b)) => {
                    let order = a.len().cmp(&b.len()).then_with(|| a.cmp(b));
                    if order.is_ne() {
                        return Some(order);
                    }
                }
                (Unit::Letter(a), Unit::Number(_)) => {
                    return Some(self.weights[usize::from(a)].cmp(&self.number_weight()));
                }
                (Unit::Number(_), Unit::Letter(b)) => {
                    return Some(self.number_weight().cmp(&self.weights[usize::from(b)]));
                }
            }
        }
    }

    fn compare_case(&self, a: u8, b: u8) -> Ordering {
        match (self.capital[usize::from(a)], self.capital[usize::from(b)]) {
            (false, true) => self.small_to_capital,
            (true, false) => self.small_to_capital.reverse(),
            _ => Ordering::Equal,
        }
    }

    /// The least weight of a number; no letter shares its first byte.
    fn number_weight(&self) -> u32 {
        u32::from(self.number.unwrap_or_default()) << 24
    }

    /// Writes the start of the bytes that ICU's sort key of a name begins with, its letters; `None` if only ICU can.
    pub(super) fn code(&self, name: &[u8], code: &mut [u8]) -> Option<usize> {
        let mut writer = Writer { code, len: 0, run: 0 };
        let mut at = 0;
        while writer.len < writer.code.len() {
            match self.step(name, &mut at) {
                Unit::End => break,
                Unit::Foreign => return None,
                Unit::Letter(letter) => self.weight(&mut writer, self.weights[usize::from(letter)]),
                Unit::Number(digits) => self.number(&mut writer, digits),
            }
        }
        Some(writer.len)
    }

    /// Writes one weight.
    fn weight(&self, writer: &mut Writer<'_>, weight: u32) {
        let bytes = weight.to_be_bytes();
        let compressed = self.compressed[usize::from(bytes[0])];
        if !compressed || bytes[0] != writer.run.to_be_bytes()[0] {
            if writer.run != 0 {
                writer.push(if weight < writer.run { BELOW } else { ABOVE });
            }
            writer.push(bytes[0]);
            writer.run = if compressed { weight } else { 0 };
        }
        for byte in &bytes[1..] {
            if *byte == 0 {
                break;
            }
            writer.push(*byte);
        }
    }

    /// Writes a number so that more digits come after fewer and equally many are in order.
    fn number(&self, writer: &mut Writer<'_>, digits: &[u8]) {
        let lead = self.number_weight();
        if digits.len() <= 7 {
            let value = value_of(digits);
            if let Some(weight) = small_number(value) {
                return self.weight(writer, lead | weight);
            }
        }
        let mut len = digits.len();
        let pairs = u32::try_from(len.div_ceil(2)).unwrap_or(u32::MAX);
        while len > 2 && digits[len - 2..len] == *b"00" {
            len -= 2;
        }
        let mut weight = lead | ((128 + pairs) << 16);
        let mut shift = 8;
        let first = len % 2;
        let mut rest = digits[first..len].chunks_exact(2).map(value_of);
        let mut pair = if first == 1 { value_of(&digits[..1]) } else { rest.next().unwrap_or(0) };
        for next in rest {
            weight |= (11 + 2 * pair) << shift;
            if shift == 0 {
                self.weight(writer, weight);
                (weight, shift) = (lead, 16);
            } else {
                shift -= 8;
            }
            pair = next;
        }
        self.weight(writer, weight | (10 + 2 * pair) << shift);
    }
}

/// The weight of a number up to 1,042,489 without its first byte: two, three or four bytes in all.
fn small_number(value: u32) -> Option<u32> {
    const TWO: u32 = 74;
    const THREE: u32 = 40 * 254;
    const FOUR: u32 = 16 * 254 * 254;
    if value < TWO {
        return Some((2 + value) << 16);
    }
    let value = value - TWO;
    if value < THREE {
        return Some((76 + value / 254) << 16 | (2 + value % 254) << 8);
    }
    let value = value - THREE;
    let (high, middle, low) = (value / 254 / 254, value / 254 % 254, value % 254);
    (value < FOUR).then_some((116 + high) << 16 | (2 + middle) << 8 | (2 + low))
}

fn value_of(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'))
}

/// Writes as much as there is room for.
struct Writer<'a> {
    code: &'a mut [u8],
    len: usize,
    /// The weight that began a run of compressed ones, or 0.
    run: u32,
}

impl Writer<'_> {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.code.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }
}

/// ICU's sort key of a name.
fn key(collator: &CollatorBorrowed<'static>, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    // A vector takes everything.
    let _ = collator.write_sort_key_utf8_to(name, &mut key);
    key
}

/// The part of a name's key that tells accents apart.
fn accents_of(full: &CollatorBorrowed<'static>, name: &[u8]) -> Option<Vec<u8>> {
    let key = key(full, name);
    key.split(|byte| *byte == 0x01).nth(1).map(<[u8]>::to_vec)
}

/// The part of a name's key that tells its case, if it has no accents.
fn case_of(full: &CollatorBorrowed<'static>, name: &[u8]) -> Option<Vec<u8>> {
    let key = key(full, name);
    let mut levels = key.split(|byte| *byte == 0x01).skip(1);
    let accents = levels.next()?;
    (accents == [0x05]).then(|| levels.next().map(<[u8]>::to_vec))?
}
