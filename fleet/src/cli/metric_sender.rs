//! `otlp --metrics`: counts and the pressure, each minute.

use std::io;
use std::path::Path;
use std::time::Duration;

use hangs::store::StoredHistory;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use report::paragraph::counted;
use sys::clock::Clock;
use unjank_export::counters::HangCounters;
use unjank_export::otlp::client::{OtlpClient, metrics_url};
use unjank_export::otlp::metrics::{MetricTimes, boot_ns, metrics_request};
use unjank_export::otlp::transfer::{TransferError, send_metrics};

use super::{Failure, Session, StoreFiles, print, say};

/// How often they are sent: as often as programs with OpenTelemetry's own library send theirs.
const INTERVAL: Duration = Duration::from_secs(60);

/// What a receiver of metrics is told, and was told.
pub(super) struct MetricSender {
    client: OtlpClient,
    counters: HangCounters,
    boot_ns: Option<u64>,
    /// When the next request is due.
    next: Duration,
    /// What was said on stderr last.
    said: Option<String>,
    /// Whether it was said that they are taken, which is said once.
    is_told: bool,
}

/// Returns how many metrics a request has.
fn length(request: &ExportMetricsServiceRequest) -> usize {
    let scopes = request.resource_metrics.iter().flat_map(|of_machine| &of_machine.scope_metrics);
    scopes.map(|scope| scope.metrics.len()).sum()
}

impl MetricSender {
    /// Creates one for the receiver whose address of logs this is.
    pub(super) fn new(session: &Session, logs: &str) -> MetricSender {
        MetricSender {
            client: OtlpClient::new(&metrics_url(logs)),
            counters: HangCounters::default(),
            boot_ns: boot_ns(&*session.disk, Path::new("/proc")),
            next: Duration::ZERO,
            said: None,
            is_told: false,
        }
    }

    /// Counts what was read of these files.
    pub(super) fn count(&mut self, session: &Session, stored: &StoredHistory, files: &StoreFiles) {
        self.counters.add_from(stored, files, session.now_ns());
    }

    /// Notes that nothing was recorded since the last count.
    pub(super) fn note_unchanged(&mut self, session: &Session) {
        self.counters.note_unchanged(session.now_ns());
    }

    /// Returns the address.
    pub(super) fn url(&self) -> &str {
        self.client.url()
    }

    /// Returns the request of this moment.
    pub(super) fn request(
        &self,
        session: &Session,
        facts: &[(String, String)],
    ) -> ExportMetricsServiceRequest {
        let times = MetricTimes {
            // Not the present time: sums that begin anew must not begin before a point of the earlier ones.
            now_ns: self.counters.counted_ns(),
            first_record_ns: self.counters.since_ns(),
            boot_ns: self.boot_ns,
        };
        let families = self.counters.families(&*session.disk, Path::new("/proc"));
        metrics_request(&session.source, facts, &times, &families)
    }

    /// Returns whether a request is due.
    pub(super) fn is_due(&self, session: &Session) -> bool {
        session.clock.monotonic() >= self.next
    }

    /// Sends a request, and says what became of it.
    pub(super) fn send(
        &mut self,
        session: &Session,
        facts: &[(String, String)],
    ) -> Result<(), Failure> {
        let request = self.request(session, facts);
        let sent = send_metrics(&self.client, &request).map_err(|error| match error {
            TransferError::Later { .. } => {
                Failure::of(&error).hint("the sums are cumulative; run this again")
            }
            _ => Failure::of(&error),
        });
        self.tell_rejected(sent?);
        self.tell_sent(&request)
    }

    /// Sends a request, and tries again in a minute what cannot be sent now.
    pub(super) fn send_on(
        &mut self,
        session: &Session,
        facts: &[(String, String)],
    ) -> Result<(), Failure> {
        let request = self.request(session, facts);
        let mut pause = INTERVAL;
        match send_metrics(&self.client, &request) {
            Ok(rejected) => {
                self.tell_rejected(rejected);
                if !self.is_told {
                    self.tell_sent(&request)?;
                    self.is_told = true;
                }
            }
            Err(TransferError::Later { url, why, wait }) => {
                pause = pause.max(wait.unwrap_or_default().min(10 * INTERVAL));
                self.say_once(format!("cannot send metrics to {url} now: {why}"));
            }
            Err(error) => return Err(Failure::of(&error)),
        }
        self.next = session.clock.monotonic() + pause;
        Ok(())
    }

    /// Prints what would be sent.
    pub(super) fn show(
        &self,
        session: &Session,
        facts: &[(String, String)],
        print_lines: fn(&str) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let request = self.request(session, facts);
        print_lines(&serde_json::to_string_pretty(&request).map_err(io::Error::other)?)?;
        let count = counted(length(&request), "metric");
        say(&format!("{count} would be sent to {}; nothing was.", self.url()));
        Ok(())
    }

    fn tell_sent(&self, request: &ExportMetricsServiceRequest) -> Result<(), Failure> {
        print(&format!("Sent to {}: {}.", self.url(), counted(length(request), "metric")))?;
        Ok(())
    }

    fn tell_rejected(&mut self, (count, reason): (i64, String)) {
        match count {
            0 => self.said = None,
            _ => {
                let url = self.url();
                self.say_once(format!("{url} does not want {count} points of metrics: {reason}"));
            }
        }
    }

    fn say_once(&mut self, text: String) {
        if self.said.as_ref() != Some(&text) {
            say(&text);
            self.said = Some(text);
        }
    }
}
