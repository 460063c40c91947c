//! The session's environment, from the service manager if there is one, cached for a short time.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::environment::SessionEnvironment;
use sys::peer::PeerView;

/// The greatest age of the manager's answer: callers in a burst share one.
const FRESH: Duration = Duration::from_secs(1);
/// The time limit for the manager.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nothing was requested yet.
    Unknown,
    /// The manager answered at this time, or there was no manager.
    Asked(Duration),
}

/// The environment for commands.
#[derive(Debug)]
pub(super) struct Variables {
    own: Arc<SessionEnvironment>,
    current: Arc<SessionEnvironment>,
    source: Source,
    /// The deadline of the answer.
    asked: Option<Duration>,
    /// Whether an answer is pending, perhaps past its deadline.
    is_out: bool,
}

impl Variables {
    pub(super) fn new(own: SessionEnvironment) -> Variables {
        let own = Arc::new(own);
        Variables {
            current: Arc::clone(&own),
            own,
            source: Source::Unknown,
            asked: None,
            is_out: false,
        }
    }

    /// Returns whether the manager must be asked now, and marks the request as pending.
    pub(super) fn wants_to_ask(&mut self, now: Duration) -> bool {
        let fresh = match self.source {
            Source::Asked(at) => now.saturating_sub(at) < FRESH,
            Source::Unknown => false,
        };
        if fresh || self.is_out {
            return false;
        }
        (self.asked, self.is_out) = (Some(now + PATIENCE), true);
        true
    }

    /// Returns the environment; `None` while an answer is waited for.
    pub(super) fn get(&mut self, now: Duration) -> Option<Arc<SessionEnvironment>> {
        if self.asked.is_some_and(|until| now >= until) {
            self.asked = None;
        }
        self.asked.is_none().then(|| Arc::clone(&self.current))
    }

    /// Returns the deadline of the answer.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.asked
    }

    /// Records the manager's answer, or that there is no manager.
    pub(super) fn learn(&mut self, block: Option<&[String]>, now: Duration) {
        self.fail();
        self.source = Source::Asked(now);
        self.current = match block {
            Some(block) => Arc::new(SessionEnvironment::of_block(block)),
            None => Arc::clone(&self.own),
        };
    }

    /// Records that the manager does not answer: its last answer stays valid, and the next command asks again.
    pub(super) fn fail(&mut self) {
        (self.asked, self.is_out) = (None, false);
    }
}

/// Requests the environment of the session from the user's service manager; `None` if there is none at `socket`.
///
/// It uses the manager's own socket instead of the bus, on which any process may own its name, so that all
/// commands would run with variables that this process chooses.
///
/// # Errors
///
/// The listener does not answer in time, or runs in another namespace or as another user.
pub(super) fn ask(socket: &Path) -> io::Result<Option<Vec<String>>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if is_away(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if sys::peer::of(&stream)? != PeerView::Same {
        return Err(io::Error::other("whoever listens there is no program of this session"));
    }
    bus::client::environment_of(&stream).map(Some).map_err(io::Error::other)
}

/// Returns whether an error means that no process listens.
fn is_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Returns the socket of the user's service manager.
pub(super) fn socket(runtime: &Path) -> PathBuf {
    runtime.join("systemd/private")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_manager_is_asked_again_when_its_answer_is_old() {
        let own = SessionEnvironment::of([(b"A".to_vec(), b"own".to_vec())]);
        let mut variables = Variables::new(own.clone());
        assert!(variables.wants_to_ask(AT(0)));
        assert!(!variables.wants_to_ask(AT(0)), "asked twice");
        assert_eq!(variables.get(AT(1)), None);
        variables.learn(Some(&["A=new".to_owned()]), AT(1));
        assert_eq!(variables.get(AT(2)).unwrap().get("A"), Some(b"new".as_slice()));
        assert!(!variables.wants_to_ask(AT(900)));
        assert!(variables.wants_to_ask(AT(1001)));
        variables.learn(None, AT(1002));
        assert_eq!(variables.get(AT(9000)), Some(Arc::new(own)));
        // It may have been created by now.
        assert!(variables.wants_to_ask(AT(9000)));
    }

    #[test]
    fn a_manager_that_hangs_is_not_waited_for() {
        let mut variables = Variables::new(SessionEnvironment::default());
        assert!(variables.wants_to_ask(AT(0)));
        assert_eq!(variables.get(AT(1999)), None);
        assert!(variables.get(AT(2000)).is_some());
        assert!(!variables.wants_to_ask(AT(9000)), "one question at a time");
        variables.fail();
        assert!(variables.wants_to_ask(AT(9001)));
    }
}
