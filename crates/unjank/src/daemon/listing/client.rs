//! One client: what it asked for, and how far it has got it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use session::listing::{Asked, Connection, Following, Request, Step, refusal};
use sys::peer::Peer;
use sys::socket::Full;

use super::source::Source;

/// A client that does not ask, or takes nothing that is there for it, for this long is dropped.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// So many wishes in a second are passed on.
const WISHES: u32 = 64;
/// So many entries in one wish.
const WISHED: usize = 4096;

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    stage: Stage,
    /// Since when it keeps us waiting.
    waits_since: Option<Duration>,
    wishes: (Duration, u32),
}

/// What a client is doing.
#[derive(Debug)]
enum Stage {
    /// It has not asked yet, and may not get what it asks for.
    Asks(Option<Step>),
    /// It gets what this source has.
    Takes { source: u64, next: usize, following: Following },
}

/// What a client wants now.
#[derive(Debug)]
pub(super) enum Wish {
    /// Nothing.
    Nothing,
    /// This directory.
    List(Request),
    /// These entries of its source before others.
    Entries(u64, Vec<u32>),
    /// Details of these entries of its source.
    Details(u64, Vec<u32>),
}

/// Why a client is dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Dropped {
    /// It has left.
    #[error("it has left")]
    Left,
    /// It sent what it must not.
    #[error("it sent what is no request")]
    Wrong,
    /// It was refused.
    #[error("it was refused")]
    Refused,
    /// The connection failed.
    #[error("the connection failed")]
    Failed(#[from] io::Error),
}

impl Client {
    /// Takes a caller, and finds out who it is.
    pub(super) fn new(socket: OwnedFd, now: Duration) -> Client {
        let refused = match sys::peer::of(&socket) {
            Ok(Peer::Same) => None,
            Ok(Peer::OtherUser | Peer::OtherMounts) => Some(Step::Refused),
            Err(error) => {
                tracing::debug!(%error, "cannot find out who calls");
                Some(Step::Refused)
            }
        };
        let connection = Connection::new(socket);
        let (stage, wishes) = (Stage::Asks(refused), (now, 0));
        Client { connection, stage, waits_since: Some(now), wishes }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Which source it takes from.
    pub(super) fn source(&self) -> Option<u64> {
        match self.stage {
            Stage::Asks(_) => None,
            Stage::Takes { source, .. } => Some(source),
        }
    }

    /// The message that it gets next.
    pub(super) fn next(&self) -> Option<usize> {
        match self.stage {
            Stage::Asks(_) => None,
            Stage::Takes { next, .. } => Some(next),
        }
    }

    /// Whether there is no room for what it is to get.
    pub(super) fn is_blocked(&self) -> bool {
        self.source().is_some() && self.waits_since.is_some()
    }

    /// When it is dropped, if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.waits_since.map(|since| since + PATIENCE)
    }

    /// Hears one message.
    pub(super) fn hear(&mut self, now: Duration) -> Result<Wish, Dropped> {
        let message = match self.connection.receive_short() {
            Ok(None) => return Ok(Wish::Nothing),
            Ok(Some(message)) => message.map_err(|_| Dropped::Wrong)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Dropped::Left);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Dropped::Wrong),
            Err(error) => return Err(error.into()),
        };
        match (message.asked().map_err(|_| Dropped::Wrong)?, &self.stage) {
            (Asked::List(request), Stage::Asks(Some(step))) => {
                self.refuse(&request, *step);
                Err(Dropped::Refused)
            }
            (Asked::List(request), Stage::Asks(None)) => Ok(Wish::List(request)),
            (asked @ (Asked::Entries(_) | Asked::Details(_)), Stage::Takes { source, .. }) => {
                let source = *source;
                if now.saturating_sub(self.wishes.0) >= Duration::from_secs(1) {
                    self.wishes = (now, 0);
                }
                self.wishes.1 += 1;
                if self.wishes.1 > WISHES {
                    return Ok(Wish::Nothing);
                }
                Ok(match asked {
                    Asked::Details(mut ids) => {
                        ids.truncate(WISHED);
                        Wish::Details(source, ids)
                    }
                    Asked::Entries(mut ids) => {
                        ids.truncate(WISHED);
                        Wish::Entries(source, ids)
                    }
                    Asked::List(_) => Wish::Nothing,
                })
            }
            _ => Err(Dropped::Wrong),
        }
    }

    /// Tells it that it does not get what it asked for.
    pub(super) fn refuse(&self, request: &Request, step: Step) {
        if let Ok(message) = refusal(&request.path, step) {
            // Who does not take it sees the end of the connection.
            let _ = self.connection.pass(&message, Full::Fail);
        }
    }

    /// Lets it take from a source, from the beginning.
    pub(super) fn take_from(&mut self, source: u64, request: &Request) {
        self.stage = Stage::Takes { source, next: 0, following: request.following };
        self.waits_since = None;
    }

    /// Sends what there is, as far as there is room.
    pub(super) fn send(&mut self, source: &Source, now: Duration) -> Result<(), Dropped> {
        let Stage::Takes { next, following, .. } = &mut self.stage else { return Ok(()) };
        let end = match following {
            Following::Never => source.done().unwrap_or(source.end()),
            Following::Changes => source.end(),
        };
        while *next < end {
            let Some(message) = source.message(*next) else { return Err(Dropped::Refused) };
            match self.connection.pass(message, Full::Fail) {
                Ok(()) => {
                    *next += 1;
                    self.waits_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waits_since.get_or_insert(now);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.waits_since = None;
        Ok(())
    }
}
