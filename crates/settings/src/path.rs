//! What a settings path may be: `/a/b` is a key, `/a/` a directory.

/// Returns whether `text` is an absolute path without empty elements: `/`, `/a`, `/a/`.
#[must_use]
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains("//")
}

/// Returns whether `text` names a key: an absolute path that does not end in `/`.
#[must_use]
pub fn is_key(text: &str) -> bool {
    is_path(text) && !text.ends_with('/')
}

/// Returns whether `text` names a directory: an absolute path that ends in `/`.
#[must_use]
pub fn is_dir(text: &str) -> bool {
    is_path(text) && text.ends_with('/')
}

/// Returns whether `text` is relative and without empty elements; the empty text is.
#[must_use]
pub fn is_relative(text: &str) -> bool {
    !text.starts_with('/') && !text.contains("//")
}

/// What a path is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A key or a directory.
    Path,
    /// A key.
    Key,
    /// A directory.
    Dir,
}

/// Why a text is not what it is meant to be, in the words of `dconf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dconf {shape} must {rule}")]
pub struct PathError {
    shape: PathKind,
    rule: &'static str,
}

impl PathKind {
    /// Checks a text.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks.
    pub fn check(self, text: &str) -> Result<(), PathError> {
        let broken = if !text.starts_with('/') {
            Some("begin with a slash")
        } else if text.contains("//") {
            Some("not contain two consecutive slashes")
        } else {
            match (self, text.ends_with('/')) {
                (PathKind::Key, true) => Some("not end with a slash"),
                (PathKind::Dir, false) => Some("end with a slash"),
                _ => None,
            }
        };
        broken.map_or(Ok(()), |rule| Err(PathError { shape: self, rule }))
    }
}

impl std::fmt::Display for PathKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PathKind::Path => "path",
            PathKind::Key => "key",
            PathKind::Dir => "dir",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_breaks_a_rule_is_told_which() {
        let said = |shape: PathKind, text| shape.check(text).map_err(|error| error.to_string());
        assert_eq!(said(PathKind::Key, "/a/b"), Ok(()));
        assert_eq!(said(PathKind::Dir, "/"), Ok(()));
        assert_eq!(said(PathKind::Key, ""), Err("dconf key must begin with a slash".into()));
        assert_eq!(
            said(PathKind::Path, "/a//"),
            Err("dconf path must not contain two consecutive slashes".into())
        );
        assert_eq!(said(PathKind::Key, "/a/"), Err("dconf key must not end with a slash".into()));
        assert_eq!(said(PathKind::Dir, "/a"), Err("dconf dir must end with a slash".into()));
    }

    #[test]
    fn a_shape_is_checked_as_the_plain_questions_answer() {
        for text in ["", "/", "a", "/a", "/a/", "//", "/a//b", "/a/b/", "/ /"] {
            assert_eq!(PathKind::Path.check(text).is_ok(), is_path(text), "{text:?}");
            assert_eq!(PathKind::Key.check(text).is_ok(), is_key(text), "{text:?}");
            assert_eq!(PathKind::Dir.check(text).is_ok(), is_dir(text), "{text:?}");
        }
    }
}
