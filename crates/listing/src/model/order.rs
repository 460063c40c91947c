//! By what rows are ordered, and the number of 64 bits that stands for an entry in that order.

use super::ModelSource;
use super::names::{self, NameKeys, SortDirection};
use crate::collation::Collation;
use crate::{EntryId, EntryKind, FileTime};

/// What rows are ordered by; entries that are equal in it are ordered by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The name, in the order of the collation.
    #[default]
    Name,
    /// The length of files. An entry whose attributes are not there (yet) comes last, here and in the orders by time.
    Size,
    /// When the contents changed last.
    Modified,
    /// When it was read last.
    Accessed,
    /// When contents or attributes changed last.
    Changed,
    /// When it was made.
    Born,
    /// Directories, then files, links and what is neither, each by extension.
    Type,
    /// What follows the last dot of the name, without regard to case; names without come first.
    Extension,
    /// The order in which the directory gave the names.
    Arrival,
}

/// Where directories are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectoryPlacement {
    /// Before everything else, in either direction.
    #[default]
    First,
    /// Among the others.
    Mixed,
}

/// An order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowOrder {
    /// By what.
    pub by: By,
    /// Which end is first.
    pub direction: SortDirection,
    /// Where directories are.
    pub directories: DirectoryPlacement,
}

/// Set for what comes after the directories.
const AFTER_DIRECTORIES: u64 = 1 << 63;
/// What is not known comes last in both directions.
const UNKNOWN: u64 = AFTER_DIRECTORIES - 1;

impl RowOrder {
    /// Whether the names of equal entries decide.
    pub(super) fn is_by_name_then(&self) -> bool {
        self.by != By::Arrival
    }

    /// Whether attributes other than the kind decide.
    pub(super) fn needs_attributes(&self) -> bool {
        matches!(self.by, By::Size | By::Modified | By::Accessed | By::Changed | By::Born)
    }

    /// Whether extensions are compared.
    pub(super) fn is_by_extension(&self) -> bool {
        matches!(self.by, By::Type | By::Extension)
    }

    /// Whether this entry comes with the directories.
    fn group(&self, kind: EntryKind) -> u64 {
        if self.directories == DirectoryPlacement::First && kind != EntryKind::Directory {
            AFTER_DIRECTORIES
        } else {
            0
        }
    }

    /// The same key with the kind of the entry as it is now, in an order that its attributes do not decide.
    pub(super) fn with_kind(&self, key: u64, kind: EntryKind) -> u64 {
        key & !AFTER_DIRECTORIES | self.group(kind)
    }

    /// The number of an entry: less is before, and of equal ones the names have to be compared.
    pub(super) fn key<S: ModelSource + ?Sized>(
        &self,
        source: &S,
        id: EntryId,
        names: &NameKeys,
        collation: &Collation,
    ) -> u64 {
        let kind = source.kind(id);
        let value = match self.by {
            By::Name => Some(names.key(collation, source.name(id))),
            By::Arrival => Some(u64::from(id)),
            By::Extension => Some(extension_key(collation, source.name(id))),
            By::Type => Some(rank(kind) << 56 | extension_key(collation, source.name(id))),
            By::Size => source.size(id),
            By::Modified | By::Accessed | By::Changed | By::Born => {
                source.time(id, self.by).map(time_key)
            }
        };
        let value = match (value.map(|value| value.min(UNKNOWN - 1)), self.direction) {
            (Some(value), SortDirection::Ascending) => value,
            (Some(value), SortDirection::Descending) => UNKNOWN - 1 - value,
            (None, _) => UNKNOWN,
        };
        self.group(kind) | value
    }
}

/// The order of kinds.
fn rank(kind: EntryKind) -> u64 {
    match kind {
        EntryKind::Directory => 0,
        EntryKind::File => 1,
        EntryKind::Link => 2,
        EntryKind::Pipe => 3,
        EntryKind::Socket => 4,
        EntryKind::CharacterDevice => 5,
        EntryKind::BlockDevice => 6,
        EntryKind::Unknown => 7,
    }
}

/// 33 bits of seconds around 1970 and 30 of nanoseconds: exact from 1834 to 2106, one moment each before and after.
fn time_key(time: FileTime) -> u64 {
    const HALF: i64 = 1 << 32;
    match u64::try_from(time.seconds.saturating_add(HALF)) {
        Err(_) => 0,
        Ok(seconds) if seconds >= 2 * HALF.unsigned_abs() => UNKNOWN - 1,
        Ok(seconds) => seconds << 30 | u64::from(time.nanoseconds.min((1 << 30) - 1)),
    }
}

/// The start of the letters of an extension.
fn extension_key(collation: &Collation, name: &[u8]) -> u64 {
    let mut code = [0; 8];
    names::extension_code(collation, name, &mut code[1..]);
    u64::from_be_bytes(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_in_order() {
        let at = |seconds, nanoseconds| time_key(FileTime { seconds, nanoseconds });
        let moments = [
            at(i64::MIN, 0),
            at(-1, 0),
            at(-1, 999_999_999),
            at(0, 0),
            at(0, 1),
            at(1 << 31, 5),
            at((1 << 32) - 1, 999_999_999),
            at(i64::MAX, 0),
        ];
        assert!(moments.is_sorted_by(|a, b| a < b), "{moments:?}");
        assert!(moments.iter().all(|moment| *moment < UNKNOWN));
    }
}
