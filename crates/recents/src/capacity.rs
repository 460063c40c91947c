//! How much the list holds: a number of documents and bytes for the user, and a small share for each sandbox, so that
//! none takes the place of others.

use std::collections::HashMap;

use super::xbel::escaped_len;
use super::{RecentEntry, RecentList, RecentTime};

/// The most documents of one sandbox.
pub const MOST_OF_A_SANDBOX: usize = 100;
/// The most bytes in the shared file that the texts of one sandbox's entries may take.
const SANDBOX_BYTES: usize = 256 << 10;
/// The same for the user's: with what others wrote the file stays shorter than what is read ([`super::xbel::MAX_BYTES`]).
const USER_BYTES: usize = 44 << 20;
/// What an entry takes in the shared file beside its texts, about.
const FRAME_BYTES: usize = 480;
/// A pool with less room than this may have dropped an entry for its length: the longest entry is no longer.
const LONGEST_ENTRY: usize = 512 << 10;

/// What each pool lets in: documents that were used before its time are dropped as soon as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    user: Option<RecentTime>,
    sandboxes: HashMap<String, RecentTime>,
    since: Option<RecentTime>,
}

impl Floors {
    /// Returns whether an entry is beyond the limits of its pool.
    #[must_use]
    pub fn exclude(&self, entry: &RecentEntry) -> bool {
        let floor = match entry.sandbox() {
            Some(sandbox) => self.since.max(self.sandboxes.get(sandbox).copied()),
            None => self.user,
        };
        floor.is_some_and(|floor| entry.last_used() < floor)
    }
}

/// The entries of one owner: when each was used, and how much it takes in the shared file.
#[derive(Debug, Default)]
struct Pool {
    entries: Vec<(RecentTime, usize)>,
    most: usize,
    most_bytes: usize,
}

impl Pool {
    /// Returns the time before which entries are too many.
    fn threshold(&mut self) -> Option<RecentTime> {
        let bytes: usize = self.entries.iter().map(|(_, bytes)| bytes).sum();
        if self.entries.len() <= self.most && bytes <= self.most_bytes {
            return None;
        }
        self.entries.sort_unstable_by(|a, b| b.cmp(a));
        // Of those that were used in the same microsecond all go or stay.
        let by_count = (self.entries.len() > self.most).then(|| {
            let last = self.most.checked_sub(1).and_then(|last| self.entries.get(last));
            last.map_or(RecentTime(i64::MAX), |(used, _)| *used)
        });
        let mut left = self.most_bytes;
        let by_bytes =
            self.entries.iter().find_map(|(used, bytes)| match left.checked_sub(*bytes) {
                Some(rest) => {
                    left = rest;
                    None
                }
                None => Some(RecentTime(used.0.saturating_add(1))),
            });
        by_count.max(by_bytes)
    }

    /// Returns the time before which an entry that comes would go at once.
    fn floor(&self) -> Option<RecentTime> {
        let bytes: usize = self.entries.iter().map(|(_, bytes)| bytes).sum();
        match self.most {
            0 => Some(RecentTime(i64::MAX)),
            most if self.entries.len() >= most
                || bytes + LONGEST_ENTRY.min(self.most_bytes / 2) > self.most_bytes =>
            {
                self.entries.iter().map(|(used, _)| *used).min()
            }
            _ => None,
        }
    }
}

/// The entries of a list by their owners.
#[derive(Debug)]
struct Pools<'a> {
    user: Pool,
    sandboxes: HashMap<&'a str, Pool>,
}

impl<'a> Pools<'a> {
    fn of(list: &'a RecentList, most: usize) -> Pools<'a> {
        let user = Pool { entries: Vec::new(), most, most_bytes: USER_BYTES };
        let mut pools = Pools { user, sandboxes: HashMap::new() };
        for entry in list.iter() {
            let size = (entry.last_used(), written_bytes(entry));
            let Some(sandbox) = entry.sandbox() else {
                pools.user.entries.push(size);
                continue;
            };
            let (most, most_bytes) = (most.min(MOST_OF_A_SANDBOX), SANDBOX_BYTES);
            let new = || Pool { entries: Vec::new(), most, most_bytes };
            pools.sandboxes.entry(sandbox).or_insert_with(new).entries.push(size);
        }
        pools
    }

    /// Makes floors, of each pool what `floor` says.
    fn floors(
        mut self,
        since: Option<RecentTime>,
        floor: impl Fn(&mut Pool) -> Option<RecentTime>,
    ) -> Floors {
        let sandboxes = self.sandboxes.iter_mut();
        let sandboxes =
            sandboxes.filter_map(|(name, pool)| Some(((*name).to_owned(), floor(pool)?)));
        Floors { sandboxes: sandboxes.collect(), user: since.max(floor(&mut self.user)), since }
    }
}

/// Returns how much an entry takes in the shared file.
fn written_bytes(entry: &RecentEntry) -> usize {
    let RecentEntry { uri, mime, groups, title, description, applications, .. } = entry;
    let texts = [mime, title, description].into_iter().flatten().chain(groups);
    let names = applications.iter().flat_map(|one| [&one.name, &one.exec]);
    let texts = texts.chain(names).map(String::as_str).chain([uri.as_str()]);
    FRAME_BYTES + texts.map(escaped_len).sum::<usize>()
}

impl RecentList {
    /// Drops the entries that were last used before `since`, and the oldest of more than `most`; of each sandbox the
    /// oldest of more than [`MOST_OF_A_SANDBOX`]; and what is longer than the shared file may be.
    pub fn limit(&mut self, most: usize, since: Option<RecentTime>) {
        let floors = Pools::of(self, most).floors(since, Pool::threshold);
        if floors != Floors::default() {
            self.retain(|entry| !floors.exclude(entry));
        }
    }

    /// Returns which documents [`RecentList::limit`] would drop at once if they came.
    #[must_use]
    pub fn floors(&self, most: usize, since: Option<RecentTime>) -> Floors {
        Pools::of(self, most).floors(since, |pool| pool.floor())
    }
}
