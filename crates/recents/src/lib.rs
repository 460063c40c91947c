//! Recent documents: a journal that is the truth, and the files that other programs read made of it.
//!
//! Begin with [`Recents`], which adds, lists and forgets, [`Addition`], a document that a program opened, and
//! [`project`](projection::project), which writes the files of other programs. [`Query`](query::Query) filters a list.
//! README.md has an example.
//!
//! An addition is one append of one record (`record`), whatever the length of the list. Folded, the records are a
//! [`RecentList`]. `recently-used.xbel` and `RecentDocuments` are written of that, off everybody's path.

mod alarm;
mod bounds;
mod capacity;
mod damage;
mod existence;
mod journal;
pub mod links;
mod list;
pub mod login;
mod places;
pub mod policy;
pub mod projection;
pub mod query;
mod record;
pub mod sandbox;
mod time;
mod tombstone;
mod uri;
pub mod volatile;
pub mod writer;
pub mod xbel;

pub use alarm::{Watcher, WriterNotifier, WriterProgram};
pub use bounds::FieldError;
pub use capacity::{Floors, MOST_OF_A_SANDBOX};
pub use damage::JournalDamage;
pub use existence::{Existence, existence};
pub use journal::{AdditionOutcome, Compacted, Recents, RecentsError, RememberingProgram};
pub use list::RecentList;
pub use places::RecentsFiles;
pub use record::{Addition, ForgetExtent, Forgetting, JournalRecord, VersionReceipts};
pub use time::RecentTime;
pub use tombstone::{REMEMBERED_AS_FORGOTTEN, Salt, Tombstone, UriHash};
pub use uri::{Uri, UriError};

/// A recent document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentEntry {
    /// Which document; the key of the list.
    pub uri: Uri,
    /// Its MIME type.
    pub mime: Option<String>,
    /// Its groups, in the order in which they were added, each once.
    pub groups: Vec<String>,
    /// Its title, if it has one.
    pub title: Option<String>,
    /// Its description, if it has one.
    pub description: Option<String>,
    /// Whether only the programs that named it shall show it.
    pub privacy: Privacy,
    /// When it came into the list.
    pub added: RecentTime,
    /// When the entry changed last.
    pub modified: RecentTime,
    /// When the document was visited last.
    pub visited: RecentTime,
    /// The programs that opened it, in the order of their first use, each name once.
    pub applications: Vec<OpeningApplication>,
}

impl RecentEntry {
    /// Returns the time that readers sort by: the last of all that the entry has.
    #[must_use]
    pub fn last_used(&self) -> RecentTime {
        self.modified.max(self.visited).max(self.added)
    }
}

/// Whether only the programs that named a document shall show it (`bookmark:private`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privacy {
    /// Every program may.
    #[default]
    Public,
    /// Only they.
    Private,
}

/// A program that opened a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningApplication {
    /// Its name: KDE's programs write their desktop id, GTK's what people call them.
    pub name: String,
    /// The command line that opens the document again, with `%u` or `%f` in its place.
    pub exec: String,
    /// How often it opened the document.
    pub count: u32,
    /// When it did last.
    pub modified: RecentTime,
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
