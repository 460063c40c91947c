//! One client: the directory that it requested, and how much of it has been sent.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use listing::{ClientRequest, Connection, Following, ListingRequest, ListingStep, refusal};
use sys::peer::PeerView;
use sys::socket::Full;

use super::source::Source;

/// A client is dropped if it requests nothing, or receives nothing of what is ready for it, for this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a worker may take to say whether anything has changed: as long as a client of its own reading would wait for the program to start, some times over.
const CHECK_PATIENCE: Duration = Duration::from_millis(50);
/// The most requests per second that are passed on to the worker.
const WISHES: u32 = 64;
/// The most entries of one request.
const WISHED: usize = 4096;

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    stage: Stage,
    /// Since when the service waits for it.
    waits_since: Option<Duration>,
    wishes: (Duration, u32),
}

/// The state of a client.
#[derive(Debug)]
enum Stage {
    /// It has not requested a directory yet.
    Asks(Option<ListingStep>),
    /// It receives the messages of this source if nothing has changed, which the worker was asked with the question of this number.
    Awaits { source: u64, question: u32, request: ListingRequest, since: Duration },
    /// It receives the messages of this source.
    Takes { source: u64, next: usize, part: Part },
}

/// The messages of a source that a client receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All.
    Everything,
    /// Those up to the end of the reading.
    Reading,
    /// Then what it has asked for: more about the entries of the reading, and no changes.
    Answers,
}

/// The request in a client's message.
#[derive(Debug)]
pub(super) enum Wish {
    /// No request.
    Nothing,
    /// List this directory.
    List(ListingRequest),
    /// Read these entries of its source before others.
    Entries(u64, Vec<u32>),
    /// Read details of these entries of its source.
    Details(u64, Vec<u32>),
}

/// Why a client is dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Dropped {
    /// It closed the connection.
    #[error("the client has left")]
    Left,
    /// It sent an invalid message.
    #[error("the client sent an invalid request")]
    Wrong,
    /// It was refused, with a reason.
    #[error("the client was refused")]
    Refused,
    /// The connection failed.
    #[error("the connection failed")]
    Failed(#[from] io::Error),
}

impl Client {
    /// Accepts a connection and reads the credentials of its other end.
    pub(super) fn new(socket: OwnedFd, now: Duration) -> Client {
        let refused = match sys::peer::of(&socket) {
            Ok(PeerView::Same) => None,
            Ok(PeerView::OtherUser | PeerView::OtherMounts) => Some(ListingStep::Refused),
            Err(error) => {
                tracing::debug!(%error, "cannot find out who calls");
                Some(ListingStep::Refused)
            }
        };
        let connection = Connection::new(socket);
        let (stage, wishes) = (Stage::Asks(refused), (now, 0));
        Client { connection, stage, waits_since: Some(now), wishes }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the source that it receives.
    pub(super) fn source(&self) -> Option<u64> {
        match self.stage {
            Stage::Asks(_) => None,
            Stage::Awaits { source, .. } | Stage::Takes { source, .. } => Some(source),
        }
    }

    /// Returns the number of the message of `source` that it receives next; none if there will be nothing more for it.
    pub(super) fn next(&self, source: &Source) -> Option<usize> {
        match self.stage {
            Stage::Asks(_) => None,
            Stage::Awaits { .. } => Some(0),
            Stage::Takes { next, part: Part::Reading, .. } => {
                let is_at_end = source.done().is_some_and(|done| next >= done.number);
                (!is_at_end).then_some(next)
            }
            Stage::Takes { next, .. } => Some(next),
        }
    }

    /// Returns whether the worker has answered the question that it awaits.
    pub(super) fn is_answered(&self, source: &Source) -> bool {
        matches!(self.stage, Stage::Awaits { question, .. } if source.is_checked(question))
    }

    /// Returns its request if it awaits whether its source has changed, and no longer has to: the worker has answered, or takes too long, as one that hangs.
    pub(super) fn settled(&self, source: Option<&Source>, now: Duration) -> Option<ListingRequest> {
        let Stage::Awaits { question, request, since, .. } = &self.stage else { return None };
        let is_answered = source.is_none_or(|source| source.is_checked(*question));
        (is_answered || now.saturating_sub(*since) >= CHECK_PATIENCE).then(|| request.clone())
    }

    /// Returns whether its socket has no room for the next message.
    pub(super) fn is_blocked(&self) -> bool {
        self.source().is_some() && self.waits_since.is_some()
    }

    /// Returns when it is dropped if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.waits_since.map(|since| since + PATIENCE)
    }

    /// Returns when something is due for it: the end of its time, or of that of a worker.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.stage {
            Stage::Awaits { since, .. } => Some(since + CHECK_PATIENCE),
            _ => self.deadline(),
        }
    }

    /// Returns whether it waits for a worker's answer; what it says meanwhile is heard afterwards.
    pub(super) fn is_awaiting(&self) -> bool {
        matches!(self.stage, Stage::Awaits { .. })
    }

    /// Receives one message.
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
            (ClientRequest::List(request), Stage::Asks(Some(step))) => {
                self.refuse(&request, *step);
                Err(Dropped::Refused)
            }
            (ClientRequest::List(request), Stage::Asks(None)) => Ok(Wish::List(request)),
            (
                asked @ (ClientRequest::Entries(_) | ClientRequest::Details(_)),
                Stage::Takes { source, next, part },
            ) => {
                let (source, next, part) = (*source, *next, *part);
                if now.saturating_sub(self.wishes.0) >= Duration::from_secs(1) {
                    self.wishes = (now, 0);
                }
                self.wishes.1 += 1;
                if self.wishes.1 > WISHES {
                    return Ok(Wish::Nothing);
                }
                if part == Part::Reading {
                    self.stage = Stage::Takes { source, next, part: Part::Answers };
                }
                Ok(match asked {
                    ClientRequest::Details(mut ids) => {
                        ids.truncate(WISHED);
                        Wish::Details(source, ids)
                    }
                    ClientRequest::Entries(mut ids) => {
                        ids.truncate(WISHED);
                        Wish::Entries(source, ids)
                    }
                    ClientRequest::List(_) => Wish::Nothing,
                })
            }
            _ => Err(Dropped::Wrong),
        }
    }

    /// Sends a refusal.
    pub(super) fn refuse(&self, request: &ListingRequest, step: ListingStep) {
        if let Ok(message) = refusal(&request.path, step) {
            // A client that does not receive it sees the end of the connection.
            let _ = self.connection.pass(&message, Full::Fail);
        }
    }

    /// Assigns a source, which is sent from the beginning.
    pub(super) fn take_from(&mut self, number: u64, source: &Source, request: &ListingRequest) {
        let is_for_others = request.following == Following::Never && source.is_followed();
        let part = if is_for_others { Part::Reading } else { Part::Everything };
        self.stage = Stage::Takes { source: number, next: 0, part };
        self.waits_since = None;
    }

    /// Has it await the answer to a question to the worker of a source.
    pub(super) fn await_answer(
        &mut self,
        source: u64,
        question: u32,
        request: &ListingRequest,
        now: Duration,
    ) {
        let request = request.clone();
        self.stage = Stage::Awaits { source, question, request, since: now };
        self.waits_since = None;
    }

    /// Sends the pending messages, as far as the socket has room.
    pub(super) fn send(&mut self, source: &Source, now: Duration) -> Result<(), Dropped> {
        let Stage::Takes { next, part, .. } = &mut self.stage else { return Ok(()) };
        let done = source.done();
        let end = match part {
            Part::Reading => done.map_or(source.end(), |done| done.number),
            Part::Answers | Part::Everything => source.end(),
        };
        while *next < end {
            let Some(message) = source.message(*next) else { return Err(Dropped::Refused) };
            if let Some(done) = done.filter(|done| *part == Part::Answers && *next >= done.number)
                && !message.is_of_known(done.names).unwrap_or(false)
            {
                *next += 1;
                continue;
            }
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
