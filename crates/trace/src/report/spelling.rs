//! Bytes as text that can be shown anywhere and turned back: what is not text, and what would disturb it, is spelt `\xNN`.

use std::fmt::Write;

use report::text::{Charset, is_shown};

/// Returns whether a letter would move the cursor, turn the line around or be invisible.
fn disturbs(letter: char) -> bool {
    !is_shown(letter, Charset::Unicode)
}

/// Spells `bytes`: ordinary text stays, a backslash is doubled, everything else is `\xNN` byte by byte.
#[must_use]
pub fn spell(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let hex = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                letter if disturbs(letter) => {
                    hex(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                letter => text.push(letter),
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

/// Spells only what would disturb a screen; backslashes stay as they are. None if nothing would.
#[must_use]
pub fn harmless(text: &str) -> Option<String> {
    if !text.chars().any(disturbs) {
        return None;
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if disturbs(letter) {
            safe.push_str(&spell(letter.encode_utf8(&mut [0; 4]).as_bytes()));
        } else {
            safe.push(letter);
        }
    }
    Some(safe)
}

/// Returns the bytes that [`spell`] made this text of; none if it did not.
#[must_use]
pub fn unspell(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        if let Some(after) = escape.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = escape.strip_prefix('x')?.get(..2)?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
            rest = &escape[3..];
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

/// Spells a command line so that a shell reads the same words, where they are text.
#[must_use]
pub fn command_line(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes one word for a shell where it needs that; bytes that are not text become `$'\xNN'`.
#[must_use]
pub fn quoted(word: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    let spelt = spell(word);
    if !word.is_empty() && word.iter().all(plain) {
        spelt
    } else if spelt.as_bytes() == word {
        format!("'{}'", spelt.replace('\'', "'\\''"))
    } else {
        format!("$'{}'", spelt.replace('\'', "\\'"))
    }
}

/// Quotes words of a report, which are spelt already, for a shell.
#[must_use]
pub fn shown_command(words: &[String]) -> String {
    words
        .iter()
        .map(|word| unspell(word).map_or_else(|| word.clone(), |bytes| quoted(&bytes)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes a path as its user says it: below `home` with a tilde.
#[must_use]
pub fn tilde(path: &str, home: Option<&str>) -> String {
    let home = home.filter(|home| home.len() > 1);
    match home.and_then(|home| path.strip_prefix(home)) {
        Some("") => "~".to_owned(),
        Some(below) if below.starts_with('/') => format!("~{below}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hostile_name_is_shown_and_harmless() {
        assert_eq!(spell(b"/tmp/a b"), "/tmp/a b");
        assert_eq!(spell(b"a\n\x1b[31m\xff\\x41"), r"a\x0a\x1b[31m\xff\\x41");
        assert_eq!(spell("\u{202e}gpj.exe".as_bytes()), r"\xe2\x80\xaegpj.exe");
        assert_eq!(spell("Übersicht 日本 😀".as_bytes()), "Übersicht 日本 😀");
        for wrong in ["\\", "\\x", "\\x1", "\\xg0", "\\x+1", "\\n", "\\xé"] {
            assert_eq!(unspell(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        let words: Vec<Vec<u8>> =
            ["ls", "", "it's", "a b"].iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(command_line(&words), r"ls '' 'it'\''s' 'a b'");
        assert_eq!(quoted(b"a\xff'"), r"$'a\xff\''");
    }

    #[test]
    fn a_path_at_home_has_a_tilde() {
        let home = Some("/home/ana");
        assert_eq!(tilde("/home/ana/.cache/x", home), "~/.cache/x");
        assert_eq!(tilde("/home/ana", home), "~");
        assert_eq!(tilde("/home/anabel/x", home), "/home/anabel/x");
        assert_eq!(tilde("/x", Some("/")), "/x");
        assert_eq!(tilde("/x", None), "/x");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            let text = spell(&bytes);
            prop_assert!(!text.chars().any(disturbs));
            prop_assert_eq!(unspell(&text), Some(bytes));
        }
    }
}
