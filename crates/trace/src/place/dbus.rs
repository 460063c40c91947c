//! The header of a D-Bus message: destination, object and method.

/// The longest header that is read: destinations, paths and members are short.
pub(super) const HEADER: usize = 1024;

/// The most fields that are looked at.
const FIELDS: usize = 16;

/// The request of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusCall {
    /// The name that is asked; none on a connection without a bus.
    pub destination: Option<String>,
    /// The object.
    pub path: String,
    /// The interface.
    pub interface: Option<String>,
    /// The method.
    pub member: String,
    /// Whether an answer will come.
    pub wants_reply: bool,
}

impl BusCall {
    /// Parses the beginning of a message; `None` if it is not a method call.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<BusCall> {
        let is_big = match bytes.first()? {
            b'l' => false,
            b'B' => true,
            _ => return None,
        };
        // Type 1 is a method call; the protocol's version is 1.
        if *bytes.get(1)? != 1 || *bytes.get(3)? != 1 {
            return None;
        }
        let wants_reply = bytes.get(2)? & 1 == 0;
        let read = Cursor { bytes, is_big };
        let end = 16_usize.checked_add(read.word(12)?)?;
        let mut at = 16_usize;
        let mut request = BusCall { wants_reply, ..BusCall::default() };
        for _ in 0..FIELDS {
            at = at.checked_next_multiple_of(8)?;
            // The copy may end within the header; what was read by then is enough or is not.
            if at >= end || at + 4 > bytes.len() {
                break;
            }
            let code = *bytes.get(at)?;
            let signature = bytes.get(at + 1..at + 4)?;
            let (text, behind) = match signature {
                [1, b's' | b'o', 0] => read.text((at + 4).checked_next_multiple_of(4)?)?,
                [1, b'g', 0] => {
                    let len = usize::from(*bytes.get(at + 4)?);
                    (String::new(), at.checked_add(4 + 1 + len + 1)?)
                }
                [1, b'u', 0] => (String::new(), (at + 4).checked_next_multiple_of(4)? + 4),
                _ => break,
            };
            at = behind;
            match code {
                1 => request.path = text,
                2 => request.interface = Some(text),
                3 => request.member = text,
                6 => request.destination = Some(text),
                _ => {}
            }
        }
        (!request.member.is_empty() && !request.path.is_empty()).then_some(request)
    }

    /// Formats it for people: `org.kde.kded5 /kded loadModule`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(destination) = &self.destination {
            text.push_str(destination);
            text.push(' ');
        }
        text.push_str(&self.path);
        text.push(' ');
        text.push_str(&self.member);
        text
    }
}

#[derive(Clone, Copy)]
struct Cursor<'bytes> {
    bytes: &'bytes [u8],
    is_big: bool,
}

impl Cursor<'_> {
    fn word(self, at: usize) -> Option<usize> {
        let word: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let word = if self.is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        usize::try_from(word).ok()
    }

    /// Reads a string and where the next thing may begin.
    fn text(self, at: usize) -> Option<(String, usize)> {
        let len = self.word(at)?;
        let start = at.checked_add(4)?;
        let end = start.checked_add(len)?;
        let text = std::str::from_utf8(self.bytes.get(start..end)?).ok()?;
        // Names and paths of D-Bus hold nothing else; anything else would be a trick on a terminal.
        let is_name = |byte: u8| byte.is_ascii_graphic();
        text.bytes().all(is_name).then(|| (text.to_owned(), end.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Vec<u8> {
        let mut bytes = vec![b'l', 1, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0];
        let mut fields: Vec<u8> = Vec::new();
        for (code, kind, text) in [
            (1_u8, b'o', "/kded"),
            (6, b's', "org.kde.kded5"),
            (2, b's', "org.kde.kded5"),
            (3, b's', "loadModule"),
        ] {
            fields.resize(fields.len().next_multiple_of(8), 0);
            fields.extend([code, 1, kind, 0]);
            fields.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            fields.extend(text.bytes());
            fields.push(0);
        }
        fields.resize(fields.len().next_multiple_of(8), 0);
        fields.extend([8, 1, b'g', 0, 1, b's', 0]);
        bytes.extend(u32::try_from(fields.len()).unwrap().to_le_bytes());
        bytes.extend(fields);
        bytes
    }

    #[test]
    fn a_call_says_whom_it_asks_for_what() {
        let request = BusCall::parse(&message()).unwrap();
        assert_eq!(request.text(), "org.kde.kded5 /kded loadModule");
        assert!(request.wants_reply);
    }

    #[test]
    fn what_is_cut_off_or_is_no_call_is_not_a_request() {
        let whole = message();
        for len in 0..whole.len() {
            let request = BusCall::parse(&whole[..len]);
            assert!(request.is_none_or(|request| request.member == "loadModule"));
        }
        let mut signal = whole;
        signal[1] = 4;
        assert_eq!(BusCall::parse(&signal), None);
        assert_eq!(BusCall::parse(b"GET / HTTP/1.1\r\n"), None);
    }
}
