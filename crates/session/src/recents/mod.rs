//! Recent documents: a journal that is the truth, and the files that other programs read made of it.
//!
//! An addition is one append of one record (`record`), whatever the length of the list. Folded, the records are a
//! [`List`]. `recently-used.xbel` and `RecentDocuments` are written of that, off everybody's path.

mod alarm;
mod bounds;
mod damage;
mod existence;
pub mod forget;
mod journal;
pub mod links;
mod list;
mod mark;
mod places;
pub mod policy;
mod pools;
pub mod projection;
pub mod query;
mod record;
pub mod sandbox;
mod time;
mod uri;
pub mod volatile;
pub mod writer;
pub mod xbel;

pub use alarm::{Alarm, Watcher, WriterProgram};
pub use bounds::FieldError;
pub use damage::Damage;
pub use existence::{Existence, existence};
pub use journal::{Added, Compacted, Program, REMEMBERED_AS_FORGOTTEN, Recents, RecentsError};
pub use list::List;
pub use mark::{Mark, Salt};
pub use places::Places;
pub use pools::{Floors, MOST_OF_A_SANDBOX};
pub use record::{Addition, Everything, Forgetting, Record, VersionReceipts};
pub use time::Timestamp;
pub use uri::{Uri, UriError};

/// A recent document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which document; the key of the list.
    pub uri: Uri,
    /// Its MIME type.
    pub mime: Option<String>,
    /// What kinds of documents it belongs to, in the order in which they were given, each once.
    pub groups: Vec<String>,
    /// The title that somebody gave it.
    pub title: Option<String>,
    /// The description that somebody gave it.
    pub description: Option<String>,
    /// Whether only the programs that named it shall show it.
    pub privacy: Privacy,
    /// When it came into the list.
    pub added: Timestamp,
    /// When the entry changed last.
    pub modified: Timestamp,
    /// When the document was visited last.
    pub visited: Timestamp,
    /// Who opened it, in the order in which they first did, each name once.
    pub applications: Vec<Application>,
}

impl Entry {
    /// Returns the time that readers sort by: the last of all that the entry has.
    #[must_use]
    pub fn last_used(&self) -> Timestamp {
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
pub struct Application {
    /// Its name: KDE's programs write their desktop id, GTK's what people call them.
    pub name: String,
    /// The command line that opens the document again, with `%u` or `%f` in its place.
    pub exec: String,
    /// How often it opened the document.
    pub count: u32,
    /// When it did last.
    pub modified: Timestamp,
}
