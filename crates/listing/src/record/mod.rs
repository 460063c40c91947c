//! The records that cross between whoever lists and whoever asked. `docs/listing.md` has the bytes.

mod attributes;
mod bytes;
mod names;
mod request;
mod small;
mod strings;

pub use attributes::AttributeRows;
pub(super) use attributes::AttributeView;
pub(super) use bytes::{put_u32, put_u64};
pub use names::{NameRows, renamed};
pub(super) use names::{NameView, RenamedView};
pub use request::request_of;
pub(super) use request::{request, wanted_of};
pub(super) use small::{
    Owner, OwnerKind, details, details_of, done_of, failure_of, owners, owners_of, question_of,
    removed_of,
};
pub use small::{checked, done, failure, removed};
pub(super) use strings::{StringRows, StringView};

use store::stream::StreamFormat;

/// The format of chunks and messages.
pub const FORMAT: StreamFormat = StreamFormat { kind: *b"list", version: 1 };

/// What a record is.
pub(super) mod tag {
    /// Names and types, in the order of their ids.
    pub(crate) const NAMES: u32 = 1;
    /// Attributes, a column for each field.
    pub(crate) const ATTRIBUTES: u32 = 2;
    /// Strings that attributes speak of.
    pub(crate) const STRINGS: u32 = 3;
    /// Names of users and groups.
    pub(crate) const OWNERS: u32 = 4;
    /// What went wrong with the directory.
    pub(crate) const FAILURE: u32 = 5;
    /// Entries that are gone.
    pub(crate) const REMOVED: u32 = 6;
    /// Entries that have another name now.
    pub(crate) const RENAMED: u32 = 7;
    /// Everything was read once.
    pub(crate) const DONE: u32 = 8;
    /// What is known of a single entry.
    pub(crate) const DETAILS: u32 = 9;
    /// What had changed when it was asked for has been told; for those who pass listings on.
    pub(crate) const CHECKED: u32 = 10;
    /// What to list; from the one who asks.
    pub(crate) const REQUEST: u32 = 32;
    /// Whose attributes are wanted first; from the one who asks.
    pub(crate) const WANT: u32 = 33;
    /// Whose details are wanted; from the one who asks.
    pub(crate) const ASK_DETAILS: u32 = 34;
    /// Whether anything has changed; from those who pass listings on.
    pub(crate) const CHECK: u32 = 35;
}
