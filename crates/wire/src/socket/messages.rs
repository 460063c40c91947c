//! What comes over a connection, as one message after the other.

use crate::{DecodeFault, WireError, length};

/// Bytes that have come, and where the messages in them begin.
#[derive(Debug)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    /// Where the next message begins.
    at: usize,
    /// Where what has come ends.
    filled: usize,
    /// How much of a message that is too long is still to come.
    skip: usize,
    longest: usize,
}

impl MessageBuffer {
    /// Begins with what has come already. Messages that are longer than `longest` bytes are skipped.
    #[must_use]
    pub fn new(begun: Vec<u8>, longest: usize) -> MessageBuffer {
        MessageBuffer { filled: begun.len(), bytes: begun, at: 0, skip: 0, longest }
    }

    /// Returns the length of the next message, if all of it has come.
    ///
    /// # Errors
    ///
    /// What has come is no message.
    pub fn whole(&mut self) -> Result<Option<usize>, WireError> {
        loop {
            let skipped = self.skip.min(self.filled - self.at);
            self.at += skipped;
            self.skip -= skipped;
            let waiting = &self.bytes[self.at..self.filled];
            match length(waiting).map(|length| usize::try_from(length).unwrap_or(usize::MAX)) {
                Ok(length) if length > self.longest => self.skip = length,
                Ok(length) => return Ok((length <= waiting.len()).then_some(length)),
                Err(error) if error.fault == DecodeFault::Cut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the next message, if all of it has come.
    ///
    /// # Errors
    ///
    /// What has come is no message.
    pub fn take(&mut self) -> Result<Option<&[u8]>, WireError> {
        let Some(length) = self.whole()? else { return Ok(None) };
        let begin = self.at;
        self.at += length;
        Ok(Some(&self.bytes[begin..self.at]))
    }

    /// Returns room for at least so many bytes behind what has come; [`MessageBuffer::fill`] says how many came.
    pub fn room(&mut self, least: usize) -> &mut [u8] {
        self.bytes.copy_within(self.at..self.filled, 0);
        (self.at, self.filled) = (0, self.filled - self.at);
        if self.bytes.len() - self.filled < least {
            self.bytes.resize((2 * self.bytes.len()).max(self.filled + least), 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// Takes it that so many bytes have come into the room.
    pub fn fill(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.bytes.len());
    }

    /// Returns how many bytes have come that were not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.filled - self.at
    }

    /// Returns what has come and was not taken.
    #[must_use]
    pub fn rest(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled);
        self.bytes.drain(..self.at);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Draft;

    #[test]
    fn messages_come_in_any_pieces_and_long_ones_are_skipped() {
        let message = |length: usize| {
            let member = "x".repeat(length);
            Draft { member: &member, ..Draft::to_bus(1, "") }.bytes()
        };
        let whole = [message(3), message(250), message(5), message(7)];
        let stream = whole.concat();
        for size in [1, 7, 100, 4096] {
            let mut buffer = MessageBuffer::new(Vec::new(), 300);
            let mut came = Vec::new();
            for piece in stream.chunks(size) {
                buffer.room(size)[..piece.len()].copy_from_slice(piece);
                buffer.fill(piece.len());
                while let Some(message) = buffer.take().unwrap() {
                    came.push(message.to_vec());
                }
            }
            assert_eq!(came, [&whole[0][..], &whole[2], &whole[3]], "pieces of {size}");
            assert!(buffer.rest().is_empty());
        }
        let mut wrong = MessageBuffer::new(vec![0xff; 64], 300);
        assert!(wrong.take().is_err());
    }
}
