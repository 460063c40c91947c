//! The order of entries.

use std::cmp::Ordering;

use listing::EntryKind;
use listing::collation::{Collation, Digits};

use super::entry::{Entry, Group};
use super::environment::is_posix;
use super::options::{Options, Sort};
use super::version;

/// Puts the entries of groups in the order that was asked for.
#[derive(Debug)]
pub(super) struct Order {
    sort: Sort,
    reverse: bool,
    dirs_first: bool,
    collation: Collation,
    quoting: super::quote::Quoting,
}

impl Order {
    /// Prepares the order; names are compared by the locale.
    pub(super) fn new(options: &Options) -> Order {
        let digits = match options.sort {
            Sort::Natural => Digits::ByValue,
            _ => Digits::AsText,
        };
        // Bytes have no values: without a language, numbers are found in the order that most languages share.
        let locale = match options.sort {
            // Nothing is compared, and a language takes a millisecond to make.
            Sort::None => "C",
            Sort::Natural if is_posix(&options.collation) => "und",
            _ => &options.collation,
        };
        // Version order takes bytes for ties too, whatever the language.
        Order {
            sort: options.sort,
            reverse: options.reverse,
            dirs_first: options.dirs_first,
            collation: Collation::new(locale, digits),
            quoting: options.quoting.clone(),
        }
    }

    /// Sorts a group.
    pub(super) fn sort(&self, group: &mut Group) {
        if self.sort == Sort::None {
            return;
        }
        let mut entries = std::mem::take(&mut group.entries);
        if self.sort == Sort::Width {
            let mut out = Vec::new();
            let mut width = |entry: &Entry| {
                out.clear();
                self.quoting.write(group.name(entry), &mut out).width
            };
            let mut keyed: Vec<(usize, Entry)> =
                entries.iter().map(|entry| (width(entry), *entry)).collect();
            keyed.sort_by(|(a_width, a), (b_width, b)| {
                self.whole(group, a, b, || a_width.cmp(b_width))
            });
            entries = keyed.into_iter().map(|(_, entry)| entry).collect();
        } else {
            entries.sort_by(|a, b| self.compare(group, a, b));
        }
        group.entries = entries;
    }

    /// Compares two entries of a group.
    pub(super) fn compare(&self, group: &Group, a: &Entry, b: &Entry) -> Ordering {
        let extension = |entry: &Entry| {
            let name = group.name(entry);
            name.iter().rposition(|byte| *byte == b'.').map_or(&b""[..], |at| &name[at..])
        };
        self.whole(group, a, b, || match self.sort {
            Sort::Size => b.bytes().cmp(&a.bytes()),
            Sort::Time => b.time.cmp(&a.time),
            Sort::Extension => self.collation.compare(extension(a), extension(b)),
            Sort::Version => version::compare(group.name(a), group.name(b))
                .then_with(|| group.name(a).cmp(group.name(b))),
            Sort::Type => rank(a.kind).cmp(&rank(b.kind)),
            Sort::Name | Sort::Natural | Sort::None | Sort::Width => Ordering::Equal,
        })
    }

    /// Compares by `key`, then by name; directories first of all if that was asked.
    fn whole(
        &self,
        group: &Group,
        a: &Entry,
        b: &Entry,
        key: impl FnOnce() -> Ordering,
    ) -> Ordering {
        if self.dirs_first {
            let first = leads_to_directory(group, b).cmp(&leads_to_directory(group, a));
            if first.is_ne() {
                return first;
            }
        }
        let order = key().then_with(|| self.collation.compare(group.name(a), group.name(b)));
        if self.reverse { order.reverse() } else { order }
    }
}

/// Says whether an entry is a directory, or a link that is known to lead to one.
pub(super) fn leads_to_directory(group: &Group, entry: &Entry) -> bool {
    entry.kind == EntryKind::Directory
        || group
            .link(entry)
            .and_then(|link| link.mode)
            .is_some_and(|mode| EntryKind::from_mode(mode) == EntryKind::Directory)
}

/// The order of types: directories, links, files, the rest.
fn rank(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Directory => 0,
        EntryKind::Link => 1,
        EntryKind::File => 2,
        EntryKind::Pipe => 3,
        EntryKind::Socket => 4,
        EntryKind::BlockDevice => 5,
        EntryKind::CharacterDevice => 6,
        EntryKind::Unknown => 7,
    }
}
