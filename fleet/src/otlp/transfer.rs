//! Sends what a receiver has not acknowledged yet, in batches of bounded size.

use std::collections::HashSet;
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

/// Returns whether a hang is told now: it has ended, or its recorder has.
#[must_use]
pub fn is_ready(hang: &Hang, now_ns: u64) -> bool {
    let awaited_ns = hang.ended_ns().saturating_add(hang.length_ns).saturating_add(GRACE_NS);
    !hang.goes_on || now_ns > awaited_ns
}

/// Returns the hangs that are to be sent, the oldest first.
pub fn pending<'a>(
    source: &RecordSource,
    stored: &'a StoredHistory,
    is_sent: impl Fn(u64) -> bool,
    now_ns: u64,
) -> Vec<&'a Hang> {
    let all = stored.hangs.values();
    all.filter(|hang| is_ready(hang, now_ns) && !is_sent(source.hang_id(hang))).collect()
}

/// Returns how many hangs are not told yet because they go on, as far as the store says.
#[must_use]
pub fn count_unfinished(stored: &StoredHistory, now_ns: u64) -> usize {
    stored.hangs.values().filter(|hang| !is_ready(hang, now_ns)).count()
}

/// Sends what was not acknowledged yet, and adds to `outcome` what was.
///
/// # Errors
///
/// [`TransferError`]: what was not acknowledged is sent by a later call.
pub fn send_pending(
    disk: &dyn Disk,
    client: &OtlpClient,
    source: &RecordSource,
    stored: &StoredHistory,
    sent: &mut SentHangs,
    now_ns: u64,
    outcome: &mut TransferOutcome,
) -> Result<(), TransferError> {
    let all: HashSet<u64> = stored.hangs.values().map(|hang| source.hang_id(hang)).collect();
    sent.keep_only(disk, &all)?;
    let waiting = pending(source, stored, |id| sent.contains(id), now_ns);
    let (mut rest, mut length) = (&waiting[..], BATCH);
    while !rest.is_empty() {
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
    Ok(())
}
