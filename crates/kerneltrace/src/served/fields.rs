//! The fields of which messages are made: written one after the other, and read with bounds.

/// The longest text in a message.
const TEXT: usize = 4096;

/// Bytes that are not a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot understand a message of the recorder's protocol")]
pub struct NotAMessage;

/// Writes the fields of a message.
pub(super) struct Fields(pub(super) Vec<u8>);

impl Fields {
    pub(super) fn new(kind: u8) -> Fields {
        Fields(vec![kind])
    }

    pub(super) fn byte(mut self, byte: u8) -> Fields {
        self.0.push(byte);
        self
    }

    pub(super) fn word(mut self, word: u32) -> Fields {
        self.0.extend(word.to_ne_bytes());
        self
    }

    pub(super) fn long(mut self, long: u64) -> Fields {
        self.0.extend(long.to_ne_bytes());
        self
    }

    pub(super) fn words(self, words: &[u32]) -> Fields {
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        words.iter().fold(self.word(count), |fields, word| fields.word(*word))
    }

    pub(super) fn text(mut self, text: &str) -> Fields {
        let mut end = text.len().min(TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let count = u32::try_from(end).unwrap_or(0);
        self = self.word(count);
        self.0.extend(&text.as_bytes()[..end]);
        self
    }
}

/// Reads the fields of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], NotAMessage> {
        let (part, rest) = self.0.split_at_checked(count).ok_or(NotAMessage)?;
        self.0 = rest;
        Ok(part)
    }

    pub(super) fn byte(&mut self) -> Result<u8, NotAMessage> {
        self.bytes(1)?.first().copied().ok_or(NotAMessage)
    }

    pub(super) fn word(&mut self) -> Result<u32, NotAMessage> {
        Ok(u32::from_ne_bytes(self.bytes(4)?.try_into().map_err(|_| NotAMessage)?))
    }

    pub(super) fn long(&mut self) -> Result<u64, NotAMessage> {
        Ok(u64::from_ne_bytes(self.bytes(8)?.try_into().map_err(|_| NotAMessage)?))
    }

    pub(super) fn count(&mut self, most: usize) -> Result<usize, NotAMessage> {
        let count = usize::try_from(self.word()?).map_err(|_| NotAMessage)?;
        if count <= most { Ok(count) } else { Err(NotAMessage) }
    }

    pub(super) fn words(&mut self, most: usize) -> Result<Vec<u32>, NotAMessage> {
        let count = self.count(most)?;
        (0..count).map(|_| self.word()).collect()
    }

    pub(super) fn text(&mut self) -> Result<String, NotAMessage> {
        let count = self.count(TEXT)?;
        String::from_utf8(self.bytes(count)?.to_vec()).map_err(|_| NotAMessage)
    }

    pub(super) fn flag(&mut self) -> Result<bool, NotAMessage> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NotAMessage),
        }
    }

    pub(super) fn end<T>(self, message: T) -> Result<T, NotAMessage> {
        if self.0.is_empty() { Ok(message) } else { Err(NotAMessage) }
    }
}
