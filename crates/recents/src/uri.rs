//! Names of documents, escaped as GLib and Qt escape them.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The URI of a document, as it stands in the files that others read. Two that differ in a byte are two documents, as
/// they are to those programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri(Box<str>);

/// Why something names no document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// A path that does not start at the root names a document only where somebody stands.
    #[error("cannot use a relative path as a document")]
    Relative,
    /// There is no `scheme:` in front, or it has characters that are not allowed.
    #[error("cannot find the scheme of the URI")]
    NoScheme,
    /// It is longer than [`Uri::MAX_BYTES`].
    #[error("cannot remember a URI of {0} bytes")]
    TooLong(usize),
    /// It has a control character.
    #[error("cannot remember a URI with control characters")]
    Control,
}

impl Uri {
    /// The longest URI: every byte of the longest path escaped, and a scheme.
    pub const MAX_BYTES: usize = 3 * 4096 + 64;

    /// Names the file at an absolute path: `.` and `..` are taken out as text, every byte that is not allowed in the
    /// path of a URI is escaped.
    ///
    /// # Errors
    ///
    /// [`UriError::Relative`] and [`UriError::TooLong`].
    pub fn of_path(path: &Path) -> Result<Uri, UriError> {
        if !path.is_absolute() {
            return Err(UriError::Relative);
        }
        let mut clean = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => {
                    clean.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let bytes = clean.as_os_str().as_bytes();
        let mut text = String::with_capacity(bytes.len() + 7);
        text.push_str("file://");
        for &byte in bytes {
            if is_allowed_in_path(byte) {
                text.push(char::from(byte));
            } else {
                push_escaped(&mut text, byte);
            }
        }
        Uri::exact(text)
    }

    /// Takes a URI that somebody typed or passed: the scheme in lower case, local files as [`Uri::of_path`] names
    /// them, elsewhere as Qt does: the machine in lower case, escaped what may not stand in a URI, and nothing else.
    ///
    /// # Errors
    ///
    /// [`UriError::NoScheme`], [`UriError::TooLong`] and [`UriError::Control`].
    pub fn parse(text: &[u8]) -> Result<Uri, UriError> {
        let colon = text.iter().position(|&byte| byte == b':').ok_or(UriError::NoScheme)?;
        let (scheme, rest) = (&text[..colon], &text[colon..]);
        let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
        if !is_scheme {
            return Err(UriError::NoScheme);
        }
        let scheme = String::from_utf8_lossy(scheme).to_ascii_lowercase();
        if scheme == "file"
            && let Some(path) = local_path(&rest[1..])
        {
            return Uri::of_path(&path);
        }
        let mut clean = scheme;
        clean.push(':');
        let mut rest = &rest[1..];
        if let Some(after) = rest.strip_prefix(b"//") {
            // Names of machines are the same in small and capital letters; what is before the @ is not.
            let end = after.iter().position(|b| b"/?#".contains(b)).unwrap_or(after.len());
            let host = after[..end].iter().rposition(|&b| b == b'@').map_or(0, |at| at + 1);
            clean.push_str("//");
            push_clean(&mut clean, &after[..host])?;
            push_clean(&mut clean, &after[host..end].to_ascii_lowercase())?;
            rest = &after[end..];
        }
        push_clean(&mut clean, rest)?;
        Uri::exact(clean)
    }

    /// Takes a URI as it stands in a file of another program: it is kept as it is, so that the program finds it again.
    ///
    /// # Errors
    ///
    /// [`UriError::TooLong`].
    pub fn exact(text: impl Into<Box<str>>) -> Result<Uri, UriError> {
        let text = text.into();
        if text.len() > Uri::MAX_BYTES { Err(UriError::TooLong(text.len())) } else { Ok(Uri(text)) }
    }

    /// Returns the other way in which this file is written, if there is one: of GLib, which escapes `;[]`, and of Qt.
    #[must_use]
    pub fn other_spelling(&self) -> Option<Uri> {
        const SPELLINGS: [(&str, &str); 3] = [(";", "%3B"), ("[", "%5B"), ("]", "%5D")];
        let text = self.0.strip_prefix("file:///")?;
        if SPELLINGS.iter().any(|(plain, _)| text.contains(plain)) {
            return Uri::of_path(&self.to_path()?).ok().filter(|other| other != self);
        }
        let mut other = text.to_owned();
        for (plain, escaped) in SPELLINGS {
            other = other.replace(escaped, plain);
        }
        (other != text).then(|| Uri(format!("file:///{other}").into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of a file on this machine, with the bytes that its name has.
    #[must_use]
    pub fn to_path(&self) -> Option<PathBuf> {
        let rest = self.0.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"))?.len();
        local_path(&self.0.as_bytes()[rest..])
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether GLib leaves a byte of a path as it is (`g_filename_to_uri`).
fn is_allowed_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,/:=@".contains(&byte)
}

/// Adds what is not a local path, as Qt writes it: letters that need no escape have none, others one of capital letters.
fn push_clean(clean: &mut String, text: &[u8]) -> Result<(), UriError> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, escaped(text, at)) {
            (_, Some(value)) => {
                if value.is_ascii_alphanumeric() || b"-._~".contains(&value) {
                    clean.push(char::from(value));
                } else {
                    push_escaped(clean, value);
                }
                at += 2;
            }
            (0..0x20 | 0x7f, None) => return Err(UriError::Control),
            (
                b'"' | b' ' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..,
                None,
            ) => {
                push_escaped(clean, byte);
            }
            (_, None) => clean.push(char::from(byte)),
        }
        at += 1;
    }
    Ok(())
}

/// Reads the byte that is escaped at a place, if one is.
fn escaped(text: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    if *text.get(at)? != b'%' {
        return None;
    }
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

fn push_escaped(text: &mut String, byte: u8) {
    // Writing into a String does not fail.
    let _ = write!(text, "%{byte:02X}");
}

/// Reads what follows `file:`, if it names a file on this machine.
fn local_path(rest: &[u8]) -> Option<PathBuf> {
    let path = match rest.strip_prefix(b"//") {
        None => rest,
        Some(rest) => {
            let slash = rest.iter().position(|&byte| byte == b'/')?;
            let host = &rest[..slash];
            (host.is_empty() || host.eq_ignore_ascii_case(b"localhost"))
                .then_some(&rest[slash..])?
        }
    };
    if !path.starts_with(b"/") {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        let value = escaped(path, at);
        bytes.push(value.unwrap_or(byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    // No file has such a name, and a program in C would take it for another's.
    (!bytes.contains(&0)).then(|| PathBuf::from(OsStr::from_bytes(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_path(path: &[u8]) -> String {
        Uri::of_path(Path::new(OsStr::from_bytes(path))).unwrap().to_string()
    }

    #[test]
    fn a_path_is_escaped_as_glib_does_and_comes_back() {
        assert_eq!(of_path(b"/a b/%#?;[x]"), "file:///a%20b/%25%23%3F%3B%5Bx%5D");
        assert_eq!(of_path(b"/!$&'()*+,:=@~"), "file:///!$&'()*+,:=@~");
        assert_eq!(of_path("/ä".as_bytes()), "file:///%C3%A4");
        assert_eq!(of_path(b"/x/./y/../z//"), "file:///x/z");
        for name in [&b"/a b\xff\xfe"[..], b"/%41", b"/\n", b"/"] {
            let path = Path::new(OsStr::from_bytes(name));
            assert_eq!(Uri::of_path(path).unwrap().to_path().as_deref(), Some(path));
        }
        assert_eq!(Uri::of_path(Path::new("x")), Err(UriError::Relative));
    }

    #[test]
    fn glibs_and_qts_spellings_are_found_from_each_other() {
        let uri = |text: &str| Uri::exact(text).unwrap();
        let (glib, qt) = (uri("file:///a%3B%5Bb%5D%20"), uri("file:///a;[b]%20"));
        assert_eq!(glib.other_spelling().as_ref(), Some(&qt));
        assert_eq!(qt.other_spelling().as_ref(), Some(&glib));
        assert_eq!(uri("file:///plain%20").other_spelling(), None);
        assert_eq!(uri("sftp://h/a;b").other_spelling(), None);
    }

    #[test]
    fn a_uri_is_taken_as_it_is_meant() {
        let parse = |text: &str| Uri::parse(text.as_bytes()).map(|uri| uri.to_string());
        assert_eq!(parse("FILE:///a%2Fb c%41").unwrap(), "file:///a/b%20cA");
        assert_eq!(parse("file://localhost/x").unwrap(), "file:///x");
        assert_eq!(parse("file:/x").unwrap(), "file:///x");
        assert_eq!(parse("file://host/x y").unwrap(), "file://host/x%20y");
        assert_eq!(parse("SFTP://Host/a b%2f?q#f").unwrap(), "sftp://host/a%20b%2F?q#f");
        assert_eq!(parse("smb://Me@HOST/%7e%").unwrap(), "smb://Me@host/~%");
        assert_eq!(parse("no scheme"), Err(UriError::NoScheme));
        assert_eq!(parse("/a:b"), Err(UriError::NoScheme));
        assert_eq!(parse("http://a\n"), Err(UriError::Control));
        assert_eq!(Uri::exact("file:///a%00b").unwrap().to_path(), None);
        assert_eq!(Uri::exact("file://host/b").unwrap().to_path(), None);
        assert!(matches!(Uri::exact("x".repeat(1 << 20)), Err(UriError::TooLong(_))));
    }
}
