//! Sends what a receiver has not acknowledged yet, in batches of bounded size.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use hangs::model::Hang;
use hangs::store::StoredHistory;
use store::disk::Disk;

use super::client::{OtlpClient, SendOutcome};
use super::events::request;
use super::sent::{SentError, SentHangs};
use crate::identity::RecordSource;

/// The most hangs of a request: some hundred kilobytes.
pub const BATCH: usize = 256;
/// For how long after its double length a hang that goes on is awaited: the recorder writes it again at each doubling.
const GRACE_NS: u64 = 60_000_000_000;

/// Why not everything was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// What was not acknowledged waits in the store.
    #[error("cannot send to {url}: {why}")]
    Later {
        /// The address.
        url: String,
        /// Why.
        why: String,
        /// How long the receiver wants to be left alone.
        wait: Option<Duration>,
    },
    /// The receiver does not take a request, and would not later. What was not acknowledged waits in the store.
    #[error("{url} takes no hangs: {why}")]
    Refused {
        /// The address.
        url: String,
        /// Why.
        why: String,
    },
    /// What was acknowledged last may be sent again, with the same identifiers.
    #[error(transparent)]
    Sent(#[from] SentError),
}

/// What was sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TransferOutcome {
    /// Hangs that the receiver has acknowledged.
    pub sent: usize,
    /// Those of them that it does not want, for good.
    pub rejected: i64,
    /// Its reason.
    pub reason: String,
}

/// What was read of a store.
#[derive(Clone, Copy)]
pub struct StoreReading<'a> {
    /// All of it.
    pub stored: &'a StoredHistory,
    /// The moment, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Says whether the end of a hang may still be recorded: a recorder runs, and so does the process. On a machine that was suspended
    /// nothing was stored for longer than is awaited otherwise.
    pub may_end: &'a dyn Fn(&Hang) -> bool,
    /// Says whether the store still has the files that were read. If not, somebody may have erased records.
    pub is_current: &'a dyn Fn() -> bool,
}

impl fmt::Debug for StoreReading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreReading").field("now_ns", &self.now_ns).finish_non_exhaustive()
    }
}

impl<'a> StoreReading<'a> {
    /// Returns whether a hang is told now: it has ended, or its recorder or its process has.
    #[must_use]
    pub fn is_ready(&self, hang: &Hang) -> bool {
        let awaited_ns = hang.ended_ns().saturating_add(hang.length_ns).saturating_add(GRACE_NS);
        !hang.goes_on || (self.now_ns > awaited_ns && !(self.may_end)(hang))
    }

    /// Returns the hangs that are to be sent, the oldest first.
    pub fn pending(&self, source: &RecordSource, is_sent: impl Fn(u64) -> bool) -> Vec<&'a Hang> {
        let all = self.stored.hangs.values();
        all.filter(|hang| self.is_ready(hang) && !is_sent(source.hang_id(hang))).collect()
    }

    /// Returns how many hangs are not told yet because they go on, as far as the store says.
    #[must_use]
    pub fn count_unfinished(&self) -> usize {
        self.stored.hangs.values().filter(|hang| !self.is_ready(hang)).count()
    }
}

/// Sends what was not acknowledged yet, and adds to `outcome` what was. Returns whether all was sent: where records may have been
/// erased meanwhile, the rest is not sent from what was read.
///
/// # Errors
///
/// [`TransferError`]: what was not acknowledged is sent by a later call.
pub fn send_pending(
    disk: &dyn Disk,
    client: &OtlpClient,
    source: &RecordSource,
    reading: StoreReading<'_>,
    sent: &mut SentHangs,
    outcome: &mut TransferOutcome,
) -> Result<bool, TransferError> {
    let all: HashSet<u64> =
        reading.stored.hangs.values().map(|hang| source.hang_id(hang)).collect();
    sent.keep_only(disk, &all)?;
    let waiting = reading.pending(source, |id| sent.contains(id));
    let (mut rest, mut length) = (&waiting[..], BATCH);
    while !rest.is_empty() {
        if !(reading.is_current)() {
            return Ok(false);
        }
        let (batch, later) = rest.split_at(length.min(rest.len()));
        let refused = |why: String| TransferError::Refused { url: client.url().to_owned(), why };
        match client.send(&request(source, batch)) {
            SendOutcome::Accepted(rejected, reason) => {
                let ids: Vec<u64> = batch.iter().map(|hang| source.hang_id(hang)).collect();
                sent.note(&ids)?;
                outcome.sent += ids.len();
                if rejected > 0 {
                    outcome.rejected = outcome.rejected.saturating_add(rejected);
                    outcome.reason = reason;
                }
                rest = later;
            }
            SendOutcome::TooLarge if batch.len() > 1 => length = batch.len() / 2,
            SendOutcome::TooLarge => return Err(refused("a single hang is too large".to_owned())),
            SendOutcome::Later(why, wait) => {
                return Err(TransferError::Later { url: client.url().to_owned(), why, wait });
            }
            SendOutcome::Refused(why) => return Err(refused(why)),
        }
    }
    Ok(true)
}
