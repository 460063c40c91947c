//! The salted hash that is kept of a forgotten document, by which it is recognised if a program adds it again.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::time::RecentTime;
use super::uri::Uri;

/// How long it is known what was forgotten: no program keeps an old list in memory for longer and then writes it.
pub const REMEMBERED_AS_FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Programs may store the time of a use without the fractions of its second.
const PRECISION: Duration = Duration::from_secs(1);

/// When a document was forgotten, and which of its uses with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tombstone {
    /// When it was forgotten. All uses until then are.
    pub at: RecentTime,
    /// Its last recorded use if that was later, because the clock was set back since; that use alone is forgotten, too.
    pub later_use: Option<RecentTime>,
}

impl Tombstone {
    /// Returns whether a use at this time is forgotten.
    #[must_use]
    pub fn covers(&self, used: RecentTime) -> bool {
        let is_same = |later: RecentTime| later.before(PRECISION) < used && used <= later;
        used <= self.at || self.later_use.is_some_and(is_same)
    }

    /// Returns the tombstone of a document that was forgotten twice.
    pub(crate) fn and(self, other: Tombstone) -> Tombstone {
        let (at, later_use) = (self.at.max(other.at), self.later_use.max(other.later_use));
        Tombstone { at, later_use: later_use.filter(|used| *used > at) }
    }

    /// Returns the tombstone as it is kept at `now`; `None` if no program remembers the document any more.
    pub(crate) fn kept(self, now: RecentTime) -> Option<Tombstone> {
        if self.is_of_a_wrong_clock(now) {
            return Some(Tombstone { at: now, later_use: Some(self.at).max(self.later_use) });
        }
        (self.at >= now.before(REMEMBERED_AS_FORGOTTEN)).then_some(self)
    }

    /// Returns whether it lies so far ahead that it would hide what is opened for longer than tombstones are kept.
    pub(crate) fn is_of_a_wrong_clock(&self, now: RecentTime) -> bool {
        self.at > now.after(REMEMBERED_AS_FORGOTTEN)
    }
}

/// The random bytes of one journal, so that marks of different people cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

/// The hash of a URI under a [`Salt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UriHash(pub [u8; 16]);

impl Salt {
    /// Returns the mark of a document.
    #[must_use]
    pub fn mark(&self, uri: &Uri) -> UriHash {
        let hash = Sha256::new().chain_update(self.0).chain_update(uri.as_str()).finalize();
        let mut mark = [0; 16];
        mark.copy_from_slice(&hash[..16]);
        UriHash(mark)
    }
}
