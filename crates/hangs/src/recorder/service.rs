//! The recorder service: when it is asked for a session, and what is said of it.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use report::error::chain;
use sys::bpf::LoadError;
use sys::clock::{Clock, SystemClock};
use trace::backend::bpf::served::ServedError;

use super::{KernelReports, ThreadSource};

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

/// How programs are observed from now on; written as sentences for a person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SourceChange {
    /// By the service's programs in the kernel.
    Exact,
    /// From outside: there is no such service.
    Absent,
    /// From outside, for this reason: the service or the kernel refuses.
    Refused(String),
    /// From outside until the service is back: it ended the session.
    Lost,
}

/// What sampling from outside misses.
const MISSED: &str =
    "Lengths are right within about 30 ms, and of steps shorter than 50 ms only a part is counted.";

impl fmt::Display for SourceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceChange::Exact => f.write_str(
                "The recorder service has programs in the kernel for this user's own programs. Waits are followed to other users' programs without telling which.",
            ),
            SourceChange::Absent => write!(
                f,
                "Sampling from outside: only root may load programs into the kernel, and the recorder service, which does it for others, is not there. {MISSED} To switch it on: sudo unjank setup --system trace"
            ),
            SourceChange::Refused(why) => write!(f, "Sampling from outside: {why}. {MISSED}"),
            SourceChange::Lost => write!(
                f,
                "The recorder service has ended. Sampling from outside until it is back. {MISSED}"
            ),
        }
    }
}

impl ThreadSource {
    /// Loads programs into the kernel, where this process may; else has the service that listens at `socket` do it, and programs are
    /// observed from outside where there is none. `told` is called where it is not the first.
    #[must_use]
    pub fn find(socket: PathBuf, told: fn(&SourceChange)) -> ThreadSource {
        match KernelReports::load(rustix::process::geteuid().as_raw()) {
            Ok(reports) => ThreadSource::Kernel(Box::new(reports)),
            Err(LoadError::NotAllowed(_)) => {
                ThreadSource::Service(RecorderService { socket, told })
            }
            Err(error) => {
                told(&SourceChange::Refused(chain(&error)));
                ThreadSource::Sampling
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_service_that_is_not_there_is_said_once_and_asked_seldom() {
        static SAID: AtomicU32 = AtomicU32::new(0);
        let told = |change: &SourceChange| {
            assert_eq!(*change, SourceChange::Absent);
            SAID.fetch_add(1, Ordering::Relaxed);
        };
        let socket = PathBuf::from("/nowhere/at/all");
        let mut connector = ServiceConnector::new(RecorderService { socket, told });
        for _ in 0..9 {
            // As if the time had come.
            connector.next = Duration::ZERO;
            assert!(connector.connect().is_none());
        }
        assert_eq!((SAID.load(Ordering::Relaxed), connector.retry), (1, LAST_RETRY));
        assert!(connector.connect().is_none() && connector.next >= LAST_RETRY);
        assert!(SourceChange::Absent.to_string().ends_with("sudo unjank setup --system trace"));
        // After a session that worked it is asked at once again.
        let mut connector = ServiceConnector { retry: LAST_RETRY, said: None, ..connector };
        connector.service.told = |change| assert_eq!(*change, SourceChange::Lost);
        connector.lost();
        assert_eq!(connector.retry, LAST_RETRY, "the session did not last");
    }
}
