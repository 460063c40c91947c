//! Bodies as people read them: names beside arguments, dictionaries a line an entry, bytes that are text as text.

use wire::Header;
use wire::body::{self, BodyValue};

/// What fits into so many letters stands on one line.
const LINE: usize = 72;
/// So many bytes are shown of those that are no text.
const BYTES: usize = 24;
/// So deeply lines are indented; what is deeper stands on one line.
const DEEPEST: usize = 6;

/// Writes a body, a line an argument at least, in about `most` bytes at most; what is left out is `…`.
///
/// `names` are the arguments' names as far as they are known. What cannot be decoded is said at the end.
#[must_use]
pub(crate) fn body(header: &Header<'_>, names: &[String], most: usize) -> String {
    let mut text = String::new();
    let mut names = names.iter();
    for value in body::values(header) {
        let name = names.next().filter(|name| !name.is_empty());
        if text.len() >= most {
            text.push_str("…\n");
            return text;
        }
        if let Some(name) = name {
            text.push_str(name);
            text.push_str(": ");
        }
        match value {
            Ok(value) => block(&mut text, &value, 0, most),
            Err(error) => text.push_str(&format!("({error})")),
        }
        text.push('\n');
    }
    text
}

/// Writes a value on one line if it fits, else a line an element.
fn block(text: &mut String, value: &BodyValue<'_>, depth: usize, most: usize) {
    let begin = text.len();
    let room = most.min(begin.saturating_add(LINE));
    if inline(text, value, room) == Room::Left || depth >= DEEPEST {
        return;
    }
    let indent = |text: &mut String| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth + 1));
    };
    match value {
        BodyValue::Variant(_, inside) => {
            text.truncate(begin);
            block(text, inside, depth, most);
        }
        BodyValue::Array(array) => {
            text.truncate(begin);
            for item in array.items() {
                indent(text);
                if text.len() >= most {
                    text.push('…');
                    return;
                }
                match item {
                    Ok(BodyValue::Entry(entry)) => {
                        inline(text, &entry.0, most);
                        text.push_str(": ");
                        block(text, &entry.1, depth + 1, most);
                    }
                    Ok(item) => block(text, &item, depth + 1, most),
                    Err(error) => text.push_str(&format!("({error})")),
                }
            }
        }
        BodyValue::Structure(members) => {
            text.truncate(begin);
            for member in members {
                indent(text);
                if text.len() >= most {
                    text.push('…');
                    return;
                }
                block(text, member, depth + 1, most);
            }
        }
        _ => {
            text.truncate(begin);
            inline(text, value, most);
        }
    }
}

/// Whether there was room for all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Room {
    Left,
    None,
}

/// Writes a value on one line, up to `most` bytes of text in all.
fn inline(text: &mut String, value: &BodyValue<'_>, most: usize) -> Room {
    match value {
        BodyValue::Byte(number) => text.push_str(&number.to_string()),
        BodyValue::Boolean(truth) => text.push_str(if *truth { "true" } else { "false" }),
        BodyValue::Int16(number) => text.push_str(&number.to_string()),
        BodyValue::Uint16(number) => text.push_str(&number.to_string()),
        BodyValue::Int32(number) => text.push_str(&number.to_string()),
        BodyValue::Uint32(number) => text.push_str(&number.to_string()),
        BodyValue::Int64(number) => text.push_str(&number.to_string()),
        BodyValue::Uint64(number) => text.push_str(&number.to_string()),
        BodyValue::Double(number) => text.push_str(&number.to_string()),
        BodyValue::Text(said) => quote(text, said, most),
        BodyValue::Path(said) | BodyValue::Signature(said) => {
            text.push_str(cut(said, most.saturating_sub(text.len())))
        }
        BodyValue::Descriptor(number) => text.push_str(&format!("descriptor {number}")),
        BodyValue::Bytes(bytes) => self::bytes(text, bytes, most),
        BodyValue::Variant(_, inside) => return inline(text, inside, most),
        BodyValue::Entry(entry) => {
            inline(text, &entry.0, most);
            text.push_str(": ");
            return inline(text, &entry.1, most);
        }
        BodyValue::Structure(members) => {
            return list(text, ["(", ")"], members.iter().cloned().map(Ok), most);
        }
        BodyValue::Array(array) => {
            let ends = if array.is_dictionary() { ["{", "}"] } else { ["[", "]"] };
            return list(text, ends, array.items(), most);
        }
    }
    if text.len() > most { Room::None } else { Room::Left }
}

fn list<'m>(
    text: &mut String,
    [open, close]: [&str; 2],
    items: impl Iterator<Item = Result<BodyValue<'m>, wire::WireError>>,
    most: usize,
) -> Room {
    text.push_str(open);
    for (at, item) in items.enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        let room = match item {
            Ok(item) if text.len() < most => inline(text, &item, most),
            Ok(_) => Room::None,
            Err(error) => {
                text.push_str(&format!("({error})"));
                Room::Left
            }
        };
        if room == Room::None {
            text.push('…');
            text.push_str(close);
            return Room::None;
        }
    }
    text.push_str(close);
    if text.len() > most { Room::None } else { Room::Left }
}

fn quote(text: &mut String, said: &str, most: usize) {
    let room = most.saturating_sub(text.len());
    let part = cut(said, room);
    text.push_str(&format!("{part:?}"));
    if part.len() < said.len() {
        text.push('…');
    }
}

/// Returns as much of a text as `most` bytes hold.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes bytes: as text if they are, as programs send names of files.
fn bytes(text: &mut String, bytes: &[u8], most: usize) {
    let bare = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let is_shown = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    let said = std::str::from_utf8(bare).ok().filter(|said| !said.is_empty());
    if let Some(said) = said.filter(|said| said.chars().all(is_shown)) {
        quote(text, said, most);
        text.push_str(&format!(" ({} bytes)", bytes.len()));
        return;
    }
    text.push_str(&format!("{} bytes", bytes.len()));
    if !bytes.is_empty() {
        text.push(':');
    }
    for byte in bytes.iter().take(BYTES) {
        text.push_str(&format!(" {byte:02x}"));
    }
    if bytes.len() > BYTES {
        text.push_str(" …");
    }
}

#[cfg(test)]
mod tests {
    use wire::write::{Draft, Marshal};
    use wire::{self, Endian, MessageType};

    fn shown(
        signature: &str,
        most: usize,
        names: &[&str],
        write: impl FnOnce(&mut Marshal),
    ) -> String {
        let mut marshal = Marshal::new(Endian::Little);
        write(&mut marshal);
        let body = marshal.bytes();
        let draft = Draft {
            signature,
            body: &body,
            path: "/",
            member: "M",
            ..Draft::new(MessageType::Call, 1)
        };
        let bytes = draft.bytes();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        super::body(&wire::message(&bytes).unwrap(), &names, most)
    }

    fn entry(marshal: &mut Marshal, key: &str, value: &str) {
        marshal.pad(8);
        marshal.text(key);
        marshal.signature("s");
        marshal.text(value);
    }

    #[test]
    fn arguments_have_their_names_and_dictionaries_a_line_an_entry() {
        let text = shown("ua{sv}ay", 4000, &["count", "options"], |body| {
            body.u32(7);
            body.array(8, |entries| {
                entry(entries, "title", "a text that is rather long, so that all of it");
                entry(entries, "cwd", "does not fit into one line");
            });
            body.array(1, |bytes| bytes.raw(b"/home/ana\0"));
        });
        insta::assert_snapshot!(text, @r#"
        count: 7
        options: 
          "title": "a text that is rather long, so that all of it"
          "cwd": "does not fit into one line"
        "/home/ana" (10 bytes)
        "#);
        let short = shown("a{sv}as", 4000, &[], |body| {
            body.array(8, |entries| entry(entries, "a", "b"));
            body.array(4, |_| ());
        });
        assert_eq!(short, "{\"a\": \"b\"}\n[]\n");
    }

    #[test]
    fn bytes_that_are_no_text_are_numbers() {
        let text = shown("ay", 4000, &[], |body| body.array(1, |bytes| bytes.raw(&[0, 255, 16])));
        assert_eq!(text, "3 bytes: 00 ff 10\n");
    }

    #[test]
    fn a_long_body_ends_soon() {
        let long = "é".repeat(100_000);
        for signature in ["s", "as"] {
            let text = shown(signature, 500, &[], |body| {
                if signature == "s" {
                    body.text(&long);
                } else {
                    body.array(4, |texts| (0..1000).for_each(|_| texts.text(&long[..20])));
                }
            });
            assert!(text.len() < 700 && text.contains('…'), "{}", text.len());
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_said() {
        let text = shown("us", 100, &[], |body| body.u32(7));
        assert!(text.starts_with("7\n("), "{text}");
    }
}
