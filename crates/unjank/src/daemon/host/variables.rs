//! The session's environment, from the service manager where there is one, as new as it has to be.

use std::time::Duration;

use session::host::environment::Environment;

/// How old the manager's answer may be: callers that come in a burst share one.
const FRESH: Duration = Duration::from_secs(1);
/// The longest that the manager is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nobody was asked yet, or somebody else may answer now.
    Unknown,
    /// The manager, which answered at this time.
    Manager(Duration),
    /// There is no manager: it is ours.
    Own,
}

/// The environment for commands.
#[derive(Debug)]
pub(super) struct Variables {
    own: Environment,
    current: Environment,
    source: Source,
    /// Until when an answer is waited for.
    asked: Option<Duration>,
}

impl Variables {
    pub(super) fn new(own: Environment) -> Variables {
        Variables { current: own.clone(), own, source: Source::Unknown, asked: None }
    }

    /// Says whether the manager has to be asked now, and takes it that it is.
    pub(super) fn wants_to_ask(&mut self, now: Duration) -> bool {
        let fresh = match self.source {
            Source::Own => true,
            Source::Manager(at) => now.saturating_sub(at) < FRESH,
            Source::Unknown => false,
        };
        if fresh || self.asked.is_some() {
            return false;
        }
        self.asked = Some(now + PATIENCE);
        true
    }

    /// Returns the environment; `None` while an answer is waited for.
    pub(super) fn get(&mut self, now: Duration) -> Option<&Environment> {
        if self.asked.is_some_and(|until| now >= until) {
            tracing::warn!("the service manager does not tell the environment of the session");
            // The next command tries again.
            self.asked = None;
        }
        self.asked.is_none().then_some(&self.current)
    }

    /// Returns when waiting ends.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.asked
    }

    /// Takes the manager's answer, or that there is no manager.
    pub(super) fn learn(&mut self, block: Option<&[String]>, now: Duration) {
        self.asked = None;
        (self.current, self.source) = match block {
            Some(block) => (Environment::of_block(block), Source::Manager(now)),
            None => (self.own.clone(), Source::Own),
        };
    }

    /// Takes it that the manager came or went.
    pub(super) fn doubt(&mut self) {
        self.source = Source::Unknown;
    }
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
        assert_eq!(variables.get(AT(9000)), Some(&own));
        assert!(!variables.wants_to_ask(AT(9000)));
        variables.doubt();
        assert!(variables.wants_to_ask(AT(9001)));
    }

    #[test]
    fn a_manager_that_hangs_is_not_waited_for() {
        let mut variables = Variables::new(Environment::default());
        assert!(variables.wants_to_ask(AT(0)));
        assert_eq!(variables.get(AT(1999)), None);
        assert!(variables.get(AT(2000)).is_some());
        assert!(variables.wants_to_ask(AT(2001)));
    }
}
