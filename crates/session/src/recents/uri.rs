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
    #[error("cannot name a document by a relative path")]
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
    /// them, elsewhere what may not stand in a URI escaped and what is escaped left so.
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
        for &byte in rest {
            match byte {
                0..0x20 | 0x7f => return Err(UriError::Control),
                b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => {
                    push_escaped(&mut clean, byte);
                }
                _ => clean.push(char::from(byte)),
            }
        }
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

/// Tells whether GLib leaves a byte of a path as it is (`g_filename_to_uri`).
fn is_allowed_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,/:=@".contains(&byte)
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
        let escaped = (byte == b'%').then(|| path.get(at + 1..at + 3)).flatten();
        let value = escaped.and_then(|two| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(two[0])? * 16 + digit(two[1])?).ok()
        });
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
    fn a_uri_is_taken_as_it_is_meant() {
        let parse = |text: &str| Uri::parse(text.as_bytes()).map(|uri| uri.to_string());
        assert_eq!(parse("FILE:///a%2Fb c%41").unwrap(), "file:///a/b%20cA");
        assert_eq!(parse("file://localhost/x").unwrap(), "file:///x");
        assert_eq!(parse("file:/x").unwrap(), "file:///x");
        assert_eq!(parse("file://host/x y").unwrap(), "file://host/x%20y");
        assert_eq!(parse("SFTP://Host/a b%2f?q#f").unwrap(), "sftp://Host/a%20b%2f?q#f");
        assert_eq!(parse("no scheme"), Err(UriError::NoScheme));
        assert_eq!(parse("/a:b"), Err(UriError::NoScheme));
        assert_eq!(parse("http://a\n"), Err(UriError::Control));
        assert_eq!(Uri::exact("file:///a%00b").unwrap().to_path(), None);
        assert_eq!(Uri::exact("file://host/b").unwrap().to_path(), None);
        assert!(matches!(Uri::exact("x".repeat(1 << 20)), Err(UriError::TooLong(_))));
    }
}
