//! The service: callers are taken, and each has a thread of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use sys::{peer, socket};
use trace::backend::bpf::served::protocol::RefusalKind;

use crate::caller::Caller;
use crate::connection::{serve as serve_caller, turn_away};
use crate::quota::Quota;
use crate::shared::Shared;

pub use crate::shared::{LogLine, ServiceOptions};

/// How long a caller waits to be taken when there are no descriptors or threads.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves callers of `listener`, a `SOCK_SEQPACKET` socket, until nobody has been connected for a while.
///
/// # Errors
///
/// As `poll(2)`; all sessions are over.
pub fn serve(listener: &OwnedFd, options: &ServiceOptions, log: LogLine<'_>) -> io::Result<()> {
    let shared =
        Shared { options, quota: Arc::new(Quota::default()), clock: SystemClock::start(), log };
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
