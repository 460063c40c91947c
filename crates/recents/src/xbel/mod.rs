//! `recently-used.xbel`: read as entries, edited in place; what is not understood stays as it is, byte for byte.
//!
//! The format is the desktop bookmark specification's, which is XBEL 1.0 with elements of two more namespaces.

mod bookmark;
mod document;
mod edit;
mod markup;
mod stamp;
#[cfg(test)]
mod tests;

pub(super) use document::MAX_SAID_BYTES;
pub use document::{Bookmark, BookmarkChange, Condition, MAX_BYTES, TooLarge, XbelDocument};
pub(super) use markup::{escaped_len, is_forbidden};
