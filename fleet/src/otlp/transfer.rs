//! Sends what a receiver has not acknowledged yet, in batches of bounded size.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use hangs::model::Hang;
use hangs::store::StoredHistory;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use store::disk::Disk;

use super::client::{OtlpClient, OtlpRequest, SendOutcome};
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
    #[error("{url} takes no {what}: {why}")]
    Refused {
        /// What was sent: hangs or metrics.
        what: &'static str,
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

impl TransferError {
    fn refused<Request: OtlpRequest>(client: &OtlpClient, why: String) -> TransferError {
        TransferError::Refused { what: Request::WHAT, url: client.url().to_owned(), why }
    }
}

/// What was read of a store.
#[derive(Clone, Copy)]
pub struct StoreReading<'a> {
    /// What is so on the machine, by names; later ones are true where a name stands twice.
    pub facts: &'a [(String, String)],
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
        let refused = TransferError::refused::<ExportLogsServiceRequest>;
        match client.send(&request(source, reading.facts, batch)) {
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
            SendOutcome::TooLarge => {
                return Err(refused(client, "a single hang is too large".to_owned()));
            }
            SendOutcome::Later(why, wait) => {
                return Err(TransferError::Later { url: client.url().to_owned(), why, wait });
            }
            SendOutcome::Refused(why) => return Err(refused(client, why)),
        }
    }
    Ok(true)
}

/// Sends metrics once, and returns how many points the receiver does not want, and why. What is lost on the way is made good by the
/// next request: the sums are cumulative.
///
/// # Errors
///
/// [`TransferError::Later`] and [`TransferError::Refused`].
pub fn send_metrics(
    client: &OtlpClient,
    request: &ExportMetricsServiceRequest,
) -> Result<(i64, String), TransferError> {
    let refused = TransferError::refused::<ExportMetricsServiceRequest>;
    match client.send(request) {
        SendOutcome::Accepted(rejected, reason) => Ok((rejected, reason)),
        SendOutcome::Later(why, wait) => {
            Err(TransferError::Later { url: client.url().to_owned(), why, wait })
        }
        SendOutcome::TooLarge => Err(refused(client, "they are too large".to_owned())),
        SendOutcome::Refused(why) => Err(refused(client, why)),
    }
}
