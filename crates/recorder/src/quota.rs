//! What one user may have at a time, so that nobody uses the service up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections of one user at a time, with or without a session.
const CONNECTIONS_OF_USER: usize = 8;
/// Connections of all.
const CONNECTIONS: usize = 64;
/// Sessions of one user at a time: each lengthens every system call of the machine.
const SESSIONS_OF_USER: usize = 4;
/// Sessions of all.
const SESSIONS: usize = 16;
/// Sessions that record hangs, of one user at a time.
const RECORDERS_OF_USER: usize = 2;
/// The same of all: each looks up every switch of the machine.
const RECORDERS: usize = 16;
/// So many sessions may one user begin in `BEGIN_PERIOD`: the kernel checks all programs for each.
const BEGINS: usize = 40;
/// See `BEGINS`.
const BEGIN_PERIOD: Duration = Duration::from_secs(10);

/// Counts what users have.
#[derive(Debug, Default)]
pub(crate) struct Quota(Mutex<HashMap<u32, UserShare>>);

/// What one user has.
#[derive(Debug, Default)]
struct UserShare {
    connections: usize,
    sessions: usize,
    recorders: usize,
    /// Sessions that began since `since`.
    begun: usize,
    since: Duration,
}

/// What is used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum UsedUp {
    /// Connections of this user.
    #[error("this user has {CONNECTIONS_OF_USER} connections already")]
    Connections,
    /// Connections of all.
    #[error("all {CONNECTIONS} connections are in use")]
    AllConnections,
    /// Sessions of this user.
    #[error("this user has {SESSIONS_OF_USER} sessions already")]
    Sessions,
    /// Sessions of all.
    #[error("all {SESSIONS} sessions are in use")]
    AllSessions,
    /// Sessions of this user that record hangs.
    #[error("this user has {RECORDERS_OF_USER} sessions that record hangs already")]
    Recorders,
    /// The same of all.
    #[error("all {RECORDERS} sessions that record hangs are in use")]
    AllRecorders,
    /// Sessions that this user began.
    #[error("this user began {BEGINS} sessions within {} s", BEGIN_PERIOD.as_secs())]
    Begins,
}

/// What a session is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SessionKind {
    /// It records system calls.
    Trace,
    /// It records hangs.
    Hangs,
}

/// What a share is part of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Connection,
    Session(SessionKind),
}

impl UserShare {
    fn of_kind(&mut self, kind: SessionKind) -> &mut usize {
        match kind {
            SessionKind::Trace => &mut self.sessions,
            SessionKind::Hangs => &mut self.recorders,
        }
    }
}

/// A part of what there is; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    user: u32,
    kind: Kind,
}

impl Quota {
    fn users(&self) -> MutexGuard<'_, HashMap<u32, UserShare>> {
        // Numbers that a panic leaves behind are still numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection of a user.
    pub(crate) fn connection(quota: &Arc<Quota>, user: u32) -> Result<Share, UsedUp> {
        let mut users = quota.users();
        if users.values().map(|share| share.connections).sum::<usize>() >= CONNECTIONS {
            return Err(UsedUp::AllConnections);
        }
        let share = users.entry(user).or_default();
        if share.connections >= CONNECTIONS_OF_USER {
            return Err(UsedUp::Connections);
        }
        share.connections += 1;
        Ok(Share { quota: Arc::clone(quota), user, kind: Kind::Connection })
    }

    /// Takes a session of a user, `now` on any clock that does not go back.
    pub(crate) fn session(
        quota: &Arc<Quota>,
        user: u32,
        kind: SessionKind,
        now: Duration,
    ) -> Result<Share, UsedUp> {
        let (most_of_user, most, of_user, of_all) = match kind {
            SessionKind::Trace => {
                (SESSIONS_OF_USER, SESSIONS, UsedUp::Sessions, UsedUp::AllSessions)
            }
            SessionKind::Hangs => {
                (RECORDERS_OF_USER, RECORDERS, UsedUp::Recorders, UsedUp::AllRecorders)
            }
        };
        let mut users = quota.users();
        if users.values_mut().map(|share| *share.of_kind(kind)).sum::<usize>() >= most {
            return Err(of_all);
        }
        let share = users.entry(user).or_default();
        if *share.of_kind(kind) >= most_of_user {
            return Err(of_user);
        }
        if now.saturating_sub(share.since) >= BEGIN_PERIOD {
            (share.begun, share.since) = (0, now);
        }
        if share.begun >= BEGINS {
            return Err(UsedUp::Begins);
        }
        share.begun += 1;
        *share.of_kind(kind) += 1;
        Ok(Share { quota: Arc::clone(quota), user, kind: Kind::Session(kind) })
    }

    /// Says whether nobody is connected.
    pub(crate) fn is_idle(&self) -> bool {
        self.users().values().all(|share| share.connections == 0)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.quota.users();
        if let Some(share) = users.get_mut(&self.user) {
            match self.kind {
                Kind::Connection => share.connections = share.connections.saturating_sub(1),
                Kind::Session(kind) => {
                    let of_kind = share.of_kind(kind);
                    *of_kind = of_kind.saturating_sub(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn one_user_leaves_something_for_others_and_gets_back_what_was_given_back() {
        let quota = Arc::new(Quota::default());
        let mut held: Vec<Share> = (0..SESSIONS_OF_USER)
            .map(|_| Quota::session(&quota, 1, SessionKind::Trace, NOW).unwrap())
            .collect();
        assert_eq!(
            Quota::session(&quota, 1, SessionKind::Trace, NOW).unwrap_err(),
            UsedUp::Sessions
        );
        Quota::session(&quota, 2, SessionKind::Trace, NOW).unwrap();
        held.pop();
        Quota::session(&quota, 1, SessionKind::Trace, NOW).unwrap();
        // What records hangs is counted apart.
        let recorder = || Quota::session(&quota, 1, SessionKind::Hangs, NOW);
        let recorders: Vec<Share> = (0..RECORDERS_OF_USER).map(|_| recorder().unwrap()).collect();
        assert_eq!(recorder().unwrap_err(), UsedUp::Recorders);
        drop(recorders);
        recorder().unwrap();
        let connections: Vec<Share> =
            (0..CONNECTIONS_OF_USER).map(|_| Quota::connection(&quota, 1).unwrap()).collect();
        assert_eq!(Quota::connection(&quota, 1).unwrap_err(), UsedUp::Connections);
        assert!(!quota.is_idle());
        drop(connections);
        assert!(quota.is_idle());
    }

    #[test]
    fn all_together_have_a_limit_and_so_has_the_pace_of_one() {
        let quota = Arc::new(Quota::default());
        let held: Vec<Share> = (0..u32::try_from(SESSIONS).unwrap())
            .map(|user| Quota::session(&quota, user, SessionKind::Trace, NOW).unwrap())
            .collect();
        assert_eq!(
            Quota::session(&quota, 99, SessionKind::Trace, NOW).unwrap_err(),
            UsedUp::AllSessions
        );
        drop(held);
        let mut begun = 0;
        while Quota::session(&quota, 98, SessionKind::Trace, NOW).is_ok() {
            begun += 1;
        }
        assert_eq!(begun, BEGINS);
        assert_eq!(
            Quota::session(&quota, 98, SessionKind::Trace, NOW).unwrap_err(),
            UsedUp::Begins
        );
        Quota::session(&quota, 98, SessionKind::Trace, NOW + BEGIN_PERIOD).unwrap();
    }
}
