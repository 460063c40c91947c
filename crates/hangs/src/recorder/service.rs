//! The recorder service: when it is asked for a session, and what is said of it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use report::error::chain;
use sys::clock::{Clock, SystemClock};
use trace::backend::bpf::served::ServedError;

use super::KernelReports;

/// It is asked again after this time at first, then each time after twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest time between two questions, which cost next to nothing while it is not there.
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The time after it has refused: it asks others, and notes each refusal.
const RETRY_REFUSED: Duration = Duration::from_secs(600);
/// A session that has lasted for so long counts as one that works.
const SETTLED: Duration = Duration::from_secs(60);

/// The service that loads programs into the kernel for users.
#[derive(Clone, Debug)]
pub struct RecorderService {
    /// Where it listens.
    pub socket: PathBuf,
    /// Is called when the way in which programs are observed changes, and at the beginning; not again for the same reason.
    pub told: fn(&SourceChange),
}

/// How programs are observed from now on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SourceChange {
    /// By the service's programs in the kernel.
    Exact,
    /// From outside: there is no such service.
    Absent,
    /// From outside: the service does it not, for this reason.
    Refused(String),
    /// From outside until the service is back: it ended the session.
    Lost,
}

/// Asks the service for sessions, not too often.
#[derive(Debug)]
pub(super) struct ServiceConnector {
    service: RecorderService,
    clock: SystemClock,
    /// When it may be asked again.
    next: Duration,
    retry: Duration,
    /// When the last session began.
    began: Duration,
    said: Option<SourceChange>,
}

impl ServiceConnector {
    pub(super) fn new(service: RecorderService) -> ServiceConnector {
        let clock = SystemClock::start();
        ServiceConnector {
            service,
            clock,
            next: Duration::ZERO,
            retry: FIRST_RETRY,
            began: Duration::ZERO,
            said: None,
        }
    }

    /// Returns a session, if it is time to ask for one and the service has one for us.
    pub(super) fn connect(&mut self) -> Option<Box<KernelReports>> {
        let now = self.clock.monotonic();
        if now < self.next {
            return None;
        }
        let change = match KernelReports::of_service(&self.service.socket) {
            Ok(reports) => {
                self.began = now;
                self.say(SourceChange::Exact);
                return Some(Box::new(reports));
            }
            Err(ServedError::Absent(error)) if is_not_there(&error) => SourceChange::Absent,
            Err(error) => {
                if matches!(error, ServedError::Refused(_)) {
                    self.retry = RETRY_REFUSED;
                }
                SourceChange::Refused(chain(&error))
            }
        };
        self.next = now + self.retry;
        self.retry = (self.retry * 2).min(LAST_RETRY);
        // Of a service that starts again that is all there is to say.
        if change != SourceChange::Absent || self.said != Some(SourceChange::Lost) {
            self.say(change);
        }
        None
    }

    /// Notes that a session was ended.
    pub(super) fn lost(&mut self) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.began) >= SETTLED {
            self.retry = FIRST_RETRY;
        }
        self.next = now + self.retry;
        self.retry = (self.retry * 2).min(LAST_RETRY);
        self.say(SourceChange::Lost);
    }

    fn say(&mut self, change: SourceChange) {
        if self.said.as_ref() != Some(&change) {
            (self.service.told)(&change);
        }
        self.said = Some(change);
    }
}

/// Whether nobody has put the service in place, as opposed to one that does not take calls at the moment.
fn is_not_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
