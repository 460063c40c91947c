//! The session's environment, from the service manager where there is one, as new as it has to be.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use session::host::environment::Environment;
use sys::peer::Peer;

/// How old the manager's answer may be: callers that come in a burst share one.
const FRESH: Duration = Duration::from_secs(1);
/// The longest that the manager is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nobody was asked yet.
    Unknown,
    /// Somebody answered at this time, or there was nobody.
    Asked(Duration),
}

/// The environment for commands.
#[derive(Debug)]
pub(super) struct Variables {
    own: Arc<Environment>,
    current: Arc<Environment>,
    source: Source,
    /// Until when an answer is waited for.
    asked: Option<Duration>,
    /// Somebody was asked and has not answered, perhaps for longer than anybody waits.
    is_out: bool,
}

impl Variables {
    pub(super) fn new(own: Environment) -> Variables {
        let own = Arc::new(own);
        Variables {
            current: Arc::clone(&own),
            own,
            source: Source::Unknown,
            asked: None,
            is_out: false,
        }
    }

    /// Says whether the manager has to be asked now, and takes it that it is.
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
    pub(super) fn get(&mut self, now: Duration) -> Option<Arc<Environment>> {
        if self.asked.is_some_and(|until| now >= until) {
            self.asked = None;
        }
        self.asked.is_none().then(|| Arc::clone(&self.current))
    }

    /// Returns when waiting ends.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.asked
    }

    /// Takes the manager's answer, or that there is no manager.
    pub(super) fn learn(&mut self, block: Option<&[String]>, now: Duration) {
        self.fail();
        self.source = Source::Asked(now);
        self.current = match block {
            Some(block) => Arc::new(Environment::of_block(block)),
            None => Arc::clone(&self.own),
        };
    }

    /// Takes it that the manager does not answer: what it said last counts, and the next command asks again.
    pub(super) fn fail(&mut self) {
        (self.asked, self.is_out) = (None, false);
    }
}

/// Asks the user's service manager for the environment of the session; `None` if there is none at `socket`.
///
/// It is asked at its own socket and not on the bus: there anybody may take its name where it is not, and everybody's
/// commands would run with the variables that he chooses.
///
/// # Errors
///
/// Somebody listens who does not answer in time, or in another sandbox, or as another user.
pub(super) fn ask(socket: &Path) -> io::Result<Option<Vec<String>>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if is_away(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if sys::peer::of(&stream)? != Peer::Same {
        return Err(io::Error::other("whoever listens there is no program of this session"));
    }
    bus::client::environment_of(&stream).map(Some).map_err(io::Error::other)
}

/// Says whether an error means that nobody listens.
fn is_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Returns where the user's service manager listens.
pub(super) fn socket(runtime: &Path) -> PathBuf {
    runtime.join("systemd/private")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_manager_is_asked_again_when_its_answer_is_old() {
        let own = Environment::of([(b"A".to_vec(), b"own".to_vec())]);
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
        // It may be there by now.
        assert!(variables.wants_to_ask(AT(9000)));
    }

    #[test]
    fn a_manager_that_hangs_is_not_waited_for() {
        let mut variables = Variables::new(Environment::default());
        assert!(variables.wants_to_ask(AT(0)));
        assert_eq!(variables.get(AT(1999)), None);
        assert!(variables.get(AT(2000)).is_some());
        assert!(!variables.wants_to_ask(AT(9000)), "one question at a time");
        variables.fail();
        assert!(variables.wants_to_ask(AT(9001)));
    }
}
