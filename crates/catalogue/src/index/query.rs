//! Asking an index: an answer is given when all that it rests on is as the files are, else the index is made anew first.

use std::path::Path;

use store::disk::Disk;

use super::build::CheckDepth;
use super::refresh::{Location, RefreshError, RefreshOutcome};
use super::sections::RecordList;
use super::{Index, IndexError};

/// How often an index is made again whose files change while they are read.
const TRIES: usize = 3;

/// What a question found.
#[derive(Clone, Copy, Debug)]
pub struct QuestionAnswer<T> {
    /// What was found.
    pub value: T,
    /// What has to be as it was for this to be true.
    pub basis: Basis,
}

/// On which files an answer rests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Basis {
    /// On those whose records were read for it, and on those that have no record: something that is found by the names of files, as an application by its identifier.
    FilesRead,
    /// On all plugins: a list, a search by what is in them, or that there is none.
    Plugins,
    /// On all applications.
    Applications,
}

/// An answer that holds.
#[derive(Clone, Copy, Debug)]
pub struct IndexAnswer<T> {
    /// What was found.
    pub value: T,
    /// Whether the stored index was damaged; the answer is from a new one.
    pub was_damaged: bool,
}

impl Location {
    /// Asks the index, which is made anew where `changed` finds a change that matters for the question, where a file that the answer rests on was overwritten, and where the index is damaged.
    ///
    /// `question` may be asked several times; the last answer counts. Where no index can be stored it is asked of one in memory.
    ///
    /// # Errors
    ///
    /// No index can be made.
    pub fn ask<T>(
        &self,
        disk: &dyn Disk,
        changed: impl Fn(&Index) -> Option<&Path>,
        mut question: impl FnMut(&Index) -> QuestionAnswer<T>,
    ) -> Result<IndexAnswer<T>, RefreshError> {
        let mut was_damaged = false;
        let mut index = match self.open() {
            Ok(index) if changed(&index).is_none() && !index.is_damaged() => index,
            found => {
                was_damaged |= match found {
                    Ok(index) => index.is_damaged(),
                    Err(error) => matches!(error, IndexError::Damaged),
                };
                self.made(disk, CheckDepth::Directories, &mut was_damaged)?
            }
        };
        for _ in 0..TRIES {
            let answer = question(&index);
            let is_current = answer.overwritten(&index).is_none();
            was_damaged |= index.is_damaged();
            if !index.is_damaged() && is_current {
                return Ok(IndexAnswer { value: answer.value, was_damaged });
            }
            index = self.made(disk, CheckDepth::Files, &mut was_damaged)?;
        }
        // A file that is written all the time: what it was a moment ago.
        Ok(IndexAnswer { value: question(&index).value, was_damaged })
    }

    /// Makes the index current; in memory where it cannot be stored.
    fn made(
        &self,
        disk: &dyn Disk,
        look: CheckDepth,
        was_damaged: &mut bool,
    ) -> Result<Index, RefreshError> {
        let Ok((index, done)) = self.refresh(disk, look) else { return self.make_unstored(look) };
        *was_damaged |= matches!(done, RefreshOutcome::Made { was_damaged: true, .. });
        Ok(index)
    }
}

impl<T> QuestionAnswer<T> {
    /// Returns a file that this rests on and that was overwritten since.
    #[must_use]
    pub fn overwritten<'a>(&self, index: &'a Index) -> Option<&'a Path> {
        match self.basis {
            Basis::FilesRead => index.overwritten(),
            Basis::Plugins => index.overwritten_any(RecordList::Plugins),
            Basis::Applications => index.overwritten_any(RecordList::Apps),
        }
    }
}
