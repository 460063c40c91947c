//! A plain socket to a bus: found by its address, and greeted until messages begin, without a runtime.
//!
//! D-Bus specification, "Authentication Protocol". Who we are, the bus asks the kernel: our own number may be another one
//! where it runs (user namespaces).

mod address;
mod messages;

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::Clock;
use sys::stream::{self, Empty};

pub use address::connect;
pub use messages::MessageBuffer;

/// How a bus is greeted, but for the last line. It agrees to descriptors: messages that carry some may otherwise not come.
pub const LINES: &[u8] = b"\0AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\n";
/// The last line of the greeting; messages follow.
pub const LAST_LINE: &[u8] = b"BEGIN\r\n";

/// So much is taken from the socket at once.
const CHUNK: usize = 4096;
/// What the bus says before the first message is shorter.
const LONGEST: usize = 4096;

/// Whether the bus must pass descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// It must.
    Needed,
    /// It need not.
    Welcome,
}

/// Why messages do not begin.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The connection broke, or nobody answered in its time.
    #[error("cannot greet the bus")]
    Lost(#[source] io::Error),
    /// It does not want us, or is no bus.
    #[error("the bus said {0:?}")]
    Rejected(String),
}

/// Until when a bus must have answered.
#[derive(Clone, Copy, Debug)]
pub struct Deadline<'c> {
    clock: &'c dyn Clock,
    /// When it is over, on the clock.
    at: Duration,
    limit: Duration,
}

impl<'c> Deadline<'c> {
    /// Returns the deadline that is over `limit` from now.
    #[must_use]
    pub fn after(clock: &'c dyn Clock, limit: Duration) -> Deadline<'c> {
        Deadline { clock, at: clock.monotonic().saturating_add(limit), limit }
    }

    /// Returns the whole time that there was.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the time that is left.
    ///
    /// # Errors
    ///
    /// `TimedOut`: there is none.
    pub fn remaining(&self) -> io::Result<Duration> {
        match self.at.saturating_sub(self.clock.monotonic()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Waits until the bus has agreed to all [`LINES`], and returns what came behind its answers.
///
/// Without a `deadline` the socket itself says how long each read may take.
///
/// # Errors
///
/// [`GreetError`]; nothing can be done with the socket any more.
pub fn answered(
    socket: impl AsFd,
    descriptors: Descriptors,
    deadline: Option<&Deadline<'_>>,
) -> Result<Vec<u8>, GreetError> {
    let mut heard = Vec::new();
    loop {
        if let Some(after) = answers(&heard, descriptors)? {
            return Ok(heard.split_off(after));
        }
        if heard.len() > LONGEST {
            return Err(GreetError::Lost(io::ErrorKind::InvalidData.into()));
        }
        if let Some(deadline) = deadline {
            let left = deadline.remaining().map_err(GreetError::Lost)?;
            if !sys::socket::wait_readable(&socket, Some(left)).map_err(GreetError::Lost)? {
                continue;
            }
        }
        let held = heard.len();
        heard.resize(held + CHUNK, 0);
        let came = stream::receive(&socket, &mut heard[held..], Empty::Wait);
        let came = came.map_err(GreetError::Lost)?;
        heard.truncate(held + came);
        if came == 0 {
            return Err(GreetError::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Returns where the messages begin, once the bus has agreed to everything.
fn answers(heard: &[u8], descriptors: Descriptors) -> Result<Option<usize>, GreetError> {
    let mut at = 0;
    for expected in [&b"DATA"[..], b"OK", b"AGREE_UNIX_FD"] {
        let rest = heard.get(at..).unwrap_or_default();
        let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = &rest[..length];
        // A bus that passes no descriptors says an error to that alone.
        let may_refuse = expected == b"AGREE_UNIX_FD" && descriptors == Descriptors::Welcome;
        if !(line.starts_with(expected) || may_refuse && line.starts_with(b"ERROR")) {
            return Err(GreetError::Rejected(String::from_utf8_lossy(line).into_owned()));
        }
        at += length + 2;
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_told_from_what_follows() {
        let needed = |heard: &[u8]| answers(heard, Descriptors::Needed);
        let heard = b"DATA\r\nOK 12ab\r\nAGREE_UNIX_FD\r\nl\x02";
        assert!(matches!(needed(heard), Ok(Some(at)) if &heard[at..] == b"l\x02"));
        for cut in 0..heard.len() - 2 {
            assert!(matches!(needed(&heard[..cut]), Ok(None)));
        }
        let rejected = needed(b"DATA\r\nREJECTED EXTERNAL\r\n").unwrap_err();
        assert!(matches!(rejected, GreetError::Rejected(text) if text == "REJECTED EXTERNAL"));
    }

    #[test]
    fn a_bus_without_descriptors_is_none_only_where_they_are_needed() {
        let heard = b"DATA\r\nOK 1\r\nERROR \"no\"\r\n";
        assert!(matches!(answers(heard, Descriptors::Needed), Err(GreetError::Rejected(_))));
        assert!(matches!(answers(heard, Descriptors::Welcome), Ok(Some(at)) if at == heard.len()));
    }
}
