//! What a benchmark works with: the two programs, the places, the clock.

use std::sync::atomic::{AtomicBool, Ordering};

use bus::client::ClientError;
use session::clock::Clock;
use store::table::gvdb::WriteError;

use super::session::{Program, Session, SessionError};
use crate::place::Place;
use crate::report::figure::nanoseconds;

/// Why a figure could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is no session to measure in.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A call of a service failed.
    #[error("cannot call {side}")]
    Call {
        /// Whose call.
        side: &'static str,
        /// What the service or the bus said.
        source: ClientError,
    },
    /// The counters of a process could not be read.
    #[error("cannot measure {side}")]
    Counters {
        /// Whose process.
        side: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The database to begin with could not be made.
    #[error("cannot make the database to begin with")]
    Seed(#[from] WriteError),
    /// The program to compare with could not be run.
    #[error("cannot run {program}: {cause}")]
    Peer {
        /// The program.
        program: String,
        /// What went wrong.
        cause: String,
    },
    /// The figure needs a place that was not given.
    #[error("{0}")]
    NoPlace(&'static str),
    /// The user ended the run.
    #[error("interrupted")]
    Interrupted,
}

/// Whose program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Ours,
    /// The one that is compared with.
    Peer,
}

impl Side {
    /// Both, in the order of round `number`: the first place alternates, so that neither has the warmer caches.
    #[must_use]
    pub fn in_turn(number: usize) -> [Side; 2] {
        if number.is_multiple_of(2) { [Side::Ours, Side::Peer] } else { [Side::Peer, Side::Ours] }
    }

    /// Returns what the side is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Side::Ours => "ours",
            Side::Peer => "the peer",
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough for figures to be shown.
    Full,
    /// Enough to see that it works.
    Quick,
}

impl Effort {
    /// Returns `full`, or `quick` in a quick run.
    #[must_use]
    pub fn of(self, full: usize, quick: usize) -> usize {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }
}

/// What measures has a clock, and a user who may want to end.
pub(super) trait Measuring {
    /// Measures.
    fn clock(&self) -> &dyn Clock;

    /// Set when the user wants to end.
    fn stop(&self) -> &AtomicBool;

    /// Runs `work` and returns how long it took, in nanoseconds.
    fn time<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let start = self.clock().monotonic();
        let result = work();
        (nanoseconds(self.clock().monotonic().saturating_sub(start)), result)
    }

    /// Says whether to go on.
    ///
    /// # Errors
    ///
    /// The user wants to end.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.stop().load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// What a benchmark works with.
#[derive(Clone, Debug)]
pub struct Lab<'a> {
    /// Our service.
    pub ours: Program,
    /// The one that is compared with.
    pub peer: Program,
    /// A directory in memory.
    pub memory: Place,
    /// A directory on a disk, if one was given.
    pub disk: Option<Place>,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

impl Measuring for Lab<'_> {
    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

impl Lab<'_> {
    /// Starts a session of `side` with what survives in `place`, beginning with database `user` as in `image`.
    ///
    /// The runtime directory is in memory, as on any desktop.
    ///
    /// # Errors
    ///
    /// Nothing runs.
    pub fn session(
        &self,
        side: Side,
        place: &Place,
        image: Option<&[u8]>,
    ) -> Result<Session, BenchError> {
        self.go_on()?;
        let program = match side {
            Side::Ours => &self.ours,
            Side::Peer => &self.peer,
        };
        let session = Session::start(program, &place.dir, &self.memory.dir)?;
        if let Some(image) = image {
            session.seed("user", image)?;
        }
        Ok(session)
    }

    /// Starts a session of each side.
    ///
    /// # Errors
    ///
    /// Nothing runs.
    pub fn pair(&self, place: &Place, image: Option<&[u8]>) -> Result<Pair, BenchError> {
        let ours = self.session(Side::Ours, place, image)?;
        let peer = self.session(Side::Peer, place, image)?;
        Ok(Pair { ours, peer })
    }

    /// Returns the disk.
    ///
    /// # Errors
    ///
    /// None was given.
    pub fn disk(&self) -> Result<&Place, BenchError> {
        self.disk.as_ref().ok_or(BenchError::NoPlace("needs --dir with a directory on a disk"))
    }
}

/// A session of each side.
#[derive(Debug)]
pub struct Pair {
    /// Ours.
    pub ours: Session,
    /// The peer's.
    pub peer: Session,
}

impl Pair {
    /// Returns the session of `side`.
    #[must_use]
    pub fn of(&self, side: Side) -> &Session {
        match side {
            Side::Ours => &self.ours,
            Side::Peer => &self.peer,
        }
    }

    /// Returns the session of `side`.
    pub fn of_mut(&mut self, side: Side) -> &mut Session {
        match side {
            Side::Ours => &mut self.ours,
            Side::Peer => &mut self.peer,
        }
    }
}
