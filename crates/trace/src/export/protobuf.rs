//! Protocol buffers, written field by field.

/// A message that is being written. A method adds a field with its number.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    pub(super) fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub(super) fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn fixed(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u32, message: Message) -> Message {
        self.bytes(field, &message.0)
    }

    /// Adds numbers in the packed form.
    pub(super) fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Message {
        let mut inner = Message::default();
        values.into_iter().for_each(|value| inner.varint(value));
        self.bytes(field, &inner.0)
    }

    /// Adds the fields of another message of the same type.
    pub(super) fn append(mut self, other: Message) -> Message {
        self.0.extend(other.0);
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
