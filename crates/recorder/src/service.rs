//! The service: callers are taken, and each has a thread of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use sys::{peer, socket};
use trace::backend::bpf::served::protocol::RefusalKind;

use crate::access::AccessPolicy;
use crate::caller::Caller;
use crate::connection::{quota, serve as serve_caller, turn_away};
use crate::quota::Quota;

/// How long a caller waits to be taken when there are no descriptors or threads.
const PAUSE: Duration = Duration::from_millis(200);

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Who may use it.
    pub access: AccessPolicy,
    /// It ends when nobody was connected for so long.
    pub idle: Duration,
}

impl Default for ServiceOptions {
    /// polkit decides; the end after a minute.
    fn default() -> ServiceOptions {
        ServiceOptions { access: AccessPolicy::default(), idle: Duration::from_secs(60) }
    }
}

/// Writes a line to the log.
pub type Log<'a> = &'a (dyn Fn(&str) + Sync);

/// What all connections share.
pub(crate) struct Shared<'a> {
    pub(crate) options: &'a ServiceOptions,
    pub(crate) quota: Arc<Quota>,
    pub(crate) clock: SystemClock,
    pub(crate) log: Log<'a>,
}

/// Serves callers of `listener`, a `SOCK_SEQPACKET` socket, until nobody has been connected for a while.
///
/// # Errors
///
/// As `poll(2)`; all sessions are over.
pub fn serve(listener: &OwnedFd, options: &ServiceOptions, log: Log<'_>) -> io::Result<()> {
    let shared = Shared { options, quota: quota(), clock: SystemClock::start(), log };
    std::thread::scope(|scope| {
        let mut quiet_since = shared.clock.monotonic();
        loop {
            let is_called = socket::wait_readable(listener, Some(options.idle))?;
            let now = shared.clock.monotonic();
            if !is_called {
                let is_over = now.saturating_sub(quiet_since) >= options.idle;
                if shared.quota.is_idle() && is_over {
                    return Ok(());
                }
                continue;
            }
            quiet_since = now;
            let taken = socket::accept_at(listener);
            let Ok(caller) = taken else {
                // Without descriptors nobody can be taken until somebody has gone.
                std::thread::park_timeout(PAUSE);
                continue;
            };
            let shared = &shared;
            let begun = take(caller, shared);
            if let Some((caller, socket, share)) = begun {
                let started = sys::thread::spawn_scoped(scope, "caller", move || {
                    serve_caller(socket, caller, shared, share);
                });
                if let Err(error) = started {
                    log(&format!("cannot serve a caller: {error}"));
                    std::thread::park_timeout(PAUSE);
                }
            }
        }
    })
}

/// Looks who calls, and whether there is room.
fn take(socket: OwnedFd, shared: &Shared<'_>) -> Option<(Caller, OwnedFd, crate::quota::Share)> {
    let user = peer::credentials(&socket).ok()?.user;
    let share = match Quota::connection(&shared.quota, user) {
        Ok(share) => share,
        Err(used_up) => {
            turn_away(&socket, RefusalKind::TooMany, used_up.to_string());
            return None;
        }
    };
    match Caller::of(&socket) {
        Ok(caller) => Some((caller, socket, share)),
        Err(error) => {
            turn_away(&socket, RefusalKind::NotAllowed, report::error::chain(&error));
            None
        }
    }
}
