//! What a settings path may be: `/a/b` is a key, `/a/` a directory.

/// Says whether `text` is an absolute path without empty elements: `/`, `/a`, `/a/`.
#[must_use]
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains("//")
}

/// Says whether `text` names a key: an absolute path that does not end in `/`.
#[must_use]
pub fn is_key(text: &str) -> bool {
    is_path(text) && !text.ends_with('/')
}

/// Says whether `text` names a directory: an absolute path that ends in `/`.
#[must_use]
pub fn is_dir(text: &str) -> bool {
    is_path(text) && text.ends_with('/')
}

/// Says whether `text` is relative and without empty elements; the empty text is.
#[must_use]
pub fn is_relative(text: &str) -> bool {
    !text.starts_with('/') && !text.contains("//")
}
