//! Messages read fast: traffic says the same few texts again and again, and one that was checked once is valid again.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{Endian, FIXED, Flags, Header, MessageType, WireError, length, message, required};

/// So many texts are remembered; more are checked each time.
const MOST: u32 = 1 << 18;

/// The numbers of a message's texts; the same number is the same text, and 0 is a text without one, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// That of the object.
    pub path: u32,
    /// That of the interface.
    pub interface: u32,
    /// That of the method or signal.
    pub member: u32,
    /// That of the error's name.
    pub error_name: u32,
    /// That of who it is for.
    pub destination: u32,
    /// That of who sent it.
    pub sender: u32,
    /// That of the types of the body.
    pub signature: u32,
}

/// A message, and the numbers of its texts.
#[derive(Clone, Copy, Debug)]
pub struct Read<'c> {
    /// The message.
    pub header: Header<'c>,
    /// The numbers.
    pub numbers: Numbers,
}

impl Default for Read<'_> {
    /// A message that says nothing, to be read into.
    fn default() -> Self {
        Read { header: Header::EMPTY, numbers: Numbers::default() }
    }
}

/// What texts of one sort have to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Path,
    Interface,
    Member,
    BusName,
    Signature,
}

/// A text that was checked.
#[derive(Clone, Copy, Debug)]
struct Checked<'c> {
    text: &'c str,
    sort: Sort,
    number: u32,
}

/// The texts of the headers of one record that were checked by now.
#[derive(Debug, Default)]
pub struct CheckedHeaders<'c> {
    texts: HashTable<Checked<'c>>,
    last: u32,
    /// Keyed anew each time: who sends messages cannot choose texts that collide.
    hasher: RandomState,
}

impl<'c> CheckedHeaders<'c> {
    /// Reads a message as [`message`] does, and the numbers of its texts too. Each text is where it was seen first.
    ///
    /// # Errors
    ///
    /// As [`message`].
    pub fn message(&mut self, bytes: &'c [u8]) -> Result<Read<'c>, WireError> {
        let mut read = Read::default();
        self.read(bytes, &mut read)?;
        Ok(read)
    }

    /// Does the same into a place that is there already.
    pub fn read(&mut self, bytes: &'c [u8], into: &mut Read<'c>) -> Result<(), WireError> {
        if self.fast(bytes, into).is_some() {
            return Ok(());
        }
        let header = message(bytes)?;
        into.numbers = Numbers {
            path: self.number(header.path, Sort::Path),
            interface: self.number(header.interface, Sort::Interface),
            member: self.number(header.member, Sort::Member),
            error_name: self.number(header.error_name, Sort::Interface),
            destination: self.number(header.destination, Sort::BusName),
            sender: self.number(header.sender, Sort::BusName),
            signature: self.number(Some(header.signature), Sort::Signature),
        };
        into.header = header;
        Ok(())
    }

    /// Returns the number of a text that is valid, which may be new.
    fn number(&mut self, text: Option<&'c str>, sort: Sort) -> u32 {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return 0 };
        if let Some(known) = self.find(text.as_bytes(), sort) {
            return known.number;
        }
        if self.last >= MOST {
            return 0;
        }
        self.last += 1;
        let checked = Checked { text, sort, number: self.last };
        let hasher = &self.hasher;
        let hash = |checked: &Checked<'_>| hasher.hash_one(checked.text.as_bytes());
        self.texts.insert_unique(hash(&checked), checked, hash);
        self.last
    }

    fn find(&self, text: &[u8], sort: Sort) -> Option<Checked<'c>> {
        let is_same = |known: &Checked<'_>| known.text.as_bytes() == text && known.sort == sort;
        self.texts.find(self.hasher.hash_one(text), is_same).copied()
    }

    /// Reads a message whose fields are written as everybody writes them and whose texts are all known; none if it is
    /// another one, or none at all.
    fn fast(&self, bytes: &'c [u8], into: &mut Read<'c>) -> Option<()> {
        let whole = usize::try_from(length(bytes).ok()?).ok()?;
        let endian = Endian::of(*bytes.first()?)?;
        let word = |at: usize| Some(endian.u32(*bytes.get(at..)?.first_chunk()?));
        let body_length = word(4)?;
        *into = Read::default();
        let Read { header, numbers } = into;
        header.kind = MessageType::of(*bytes.get(1)?)?;
        header.flags = Flags(*bytes.get(2)?);
        header.serial = NonZeroU32::new(word(8)?)?;
        header.endian = endian;
        header.body_length = body_length;
        let end = FIXED + usize::try_from(word(12)?).ok()?;
        let fields = bytes.get(..end)?;
        let mut at = FIXED;
        let mut seen = 0_u16;
        while at < end {
            let [code, 1, sort, 0] = *fields.get(at..)?.first_chunk()? else { return None };
            if code > 9 || seen & (1 << code) != 0 {
                return None;
            }
            seen |= 1 << code;
            at += 4;
            if let (5 | 9, b'u') = (code, sort) {
                let number = endian.u32(*fields.get(at..)?.first_chunk()?);
                if code == 5 {
                    header.reply_serial = Some(NonZeroU32::new(number)?);
                } else {
                    header.unix_fds = number;
                }
                at += 4;
                continue;
            }
            let (begin, length) = match (code, sort) {
                (1, b'o') | (2 | 3 | 4 | 6 | 7, b's') => {
                    let length = endian.u32(*fields.get(at..)?.first_chunk()?);
                    (at + 4, usize::try_from(length).ok()?)
                }
                (8, b'g') => (at + 1, usize::from(*fields.get(at)?)),
                _ => return None,
            };
            at = begin.checked_add(length)?;
            let text = fields.get(begin..at)?;
            if *fields.get(at)? != 0 {
                return None;
            }
            at += 1;
            if at < end {
                let next = at.next_multiple_of(8);
                // Padding is there for another field only.
                (next < end && is_zero(fields.get(at..next)?)).then_some(())?;
                at = next;
            }
            if length == 0 && code == 8 {
                continue;
            }
            let sort = match code {
                1 => Sort::Path,
                3 => Sort::Member,
                6 | 7 => Sort::BusName,
                8 => Sort::Signature,
                _ => Sort::Interface,
            };
            let known = self.find(text, sort)?;
            let text = Some(known.text);
            let (place, number) = match code {
                1 => (&mut header.path, &mut numbers.path),
                2 => (&mut header.interface, &mut numbers.interface),
                3 => (&mut header.member, &mut numbers.member),
                4 => (&mut header.error_name, &mut numbers.error_name),
                6 => (&mut header.destination, &mut numbers.destination),
                7 => (&mut header.sender, &mut numbers.sender),
                _ => {
                    (header.signature, numbers.signature) = (known.text, known.number);
                    continue;
                }
            };
            (*place, *number) = (text, known.number);
        }
        let begin = end.next_multiple_of(8);
        header.body = bytes.get(begin..)?;
        let is_whole = is_zero(bytes.get(end..begin)?)
            && bytes.len() <= whole
            && (!header.signature.is_empty() || body_length == 0)
            && required(header).is_ok();
        is_whole.then_some(())
    }
}

fn is_zero(padding: &[u8]) -> bool {
    padding.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::super::write::{Draft, Marshal};
    use super::*;

    fn drafts() -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for endian in [Endian::Little, Endian::Big] {
            let mut body = Marshal::new(endian);
            body.text("x");
            let body = body.bytes();
            for serial in 1..4 {
                let draft = |kind| Draft {
                    sender: ":1.1",
                    destination: ":1.2",
                    endian,
                    ..Draft::new(kind, serial)
                };
                let named =
                    Draft { path: "/a", interface: "a.b", member: "C", ..draft(MessageType::Call) };
                all.push(named.bytes());
                all.push(Draft { signature: "s", body: &body, ..named }.bytes());
                all.push(Draft { flags: 1, member: "D", ..named }.bytes());
                all.push(Draft { reply_serial: 7 * serial, ..draft(MessageType::Return) }.bytes());
                let error =
                    Draft { error_name: "a.E", reply_serial: serial, ..draft(MessageType::Error) };
                all.push(Draft { signature: "s", body: &body, ..error }.bytes());
                all.push(Draft { kind: MessageType::Signal, ..named }.bytes());
            }
        }
        all
    }

    #[test]
    fn a_message_is_read_the_same_whether_its_texts_are_known_or_not() {
        let whole = drafts();
        // Every byte of each with other values, every beginning, and more than there is.
        let mut all = whole.clone();
        for bytes in &whole {
            for at in 0..bytes.len() {
                for value in [0, 1, 5, b'u', b'g', bytes[at] ^ 0x20, bytes[at].wrapping_add(1)] {
                    let mut damaged = bytes.clone();
                    damaged[at] = value;
                    all.push(damaged);
                }
                all.push(bytes[..at].to_vec());
            }
            all.push([&bytes[..], &[0]].concat());
        }
        let mut known = CheckedHeaders::default();
        for bytes in whole.iter().chain(&all).chain(&all) {
            let read = known.message(bytes).map(|read| read.header);
            assert_eq!(read, message(bytes), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn texts_have_numbers_by_what_they_say_and_are() {
        let all = drafts();
        let mut known = CheckedHeaders::default();
        let numbers: Vec<Numbers> =
            all.iter().map(|bytes| known.message(bytes).unwrap().numbers).collect();
        assert!(all.iter().all(|bytes| known.fast(bytes, &mut Read::default()).is_some()));
        assert_eq!(numbers[0], numbers[6]);
        assert_ne!(numbers[0].member, numbers[2].member);
        assert_ne!(numbers[0].sender, numbers[0].destination);
        assert_eq!((numbers[0].signature, numbers[0].error_name), (0, 0));
        // :1.1 :1.2 /a a.b C D a.E s
        assert_eq!(known.last, 8);
    }
}
