//! One look at a directory, from another process and not for longer than the patience.

use std::path::Path;
use std::time::Duration;

use session::clock::Clock;
use session::listing::{Fields, Listing, Request, Update, WorkerProgram};

/// How directories are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub(super) worker: &'a WorkerProgram,
    pub(super) fields: Fields,
    pub(super) patience: Duration,
    pub(super) clock: &'a dyn Clock,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It was read.
    Answered(Seen),
    /// There is none.
    Missing,
    /// It cannot be read, and why.
    Failed(String),
    /// It did not answer in time.
    Silent,
}

/// What was read, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first screenful.
    pub(super) first: Duration,
    /// Everything.
    pub(super) done: Duration,
    pub(super) entries: u32,
}

impl Look<'_> {
    /// Looks at a directory; a listing that is given up is cancelled.
    pub(super) fn at(&self, path: &Path) -> Looked {
        let start = self.clock.monotonic();
        let since = || self.clock.monotonic().saturating_sub(start);
        let request = Request::of(path).with_fields(self.fields);
        let mut listing = match Listing::in_worker(self.worker, &request) {
            Ok(listing) => listing,
            Err(error) => return Looked::Failed(crate::bench::run::chain(&error)),
        };
        let mut seen = Seen::default();
        let mut failed = None;
        loop {
            let left = self.patience.saturating_sub(since());
            if left.is_zero() {
                return Looked::Silent;
            }
            match listing.next(Some(left)) {
                Ok(None) => (),
                Ok(Some(Update::Names(_))) if seen.first.is_zero() => seen.first = since(),
                Ok(Some(Update::Failed(failure))) => failed = Some(failure),
                Ok(Some(Update::Done(entries))) => {
                    seen.done = since();
                    seen.entries = entries;
                    if seen.first.is_zero() {
                        seen.first = seen.done;
                    }
                    return match failed.map(|failure| failure.error()) {
                        None => Looked::Answered(seen),
                        Some(error) if error.kind() == std::io::ErrorKind::NotFound => {
                            Looked::Missing
                        }
                        Some(error) => Looked::Failed(error.to_string()),
                    };
                }
                Ok(Some(_)) => (),
                Err(error) => return Looked::Failed(crate::bench::run::chain(&error)),
            }
        }
    }
}
