//! What a benchmark works with: the two programs, the places, the clock.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bus::client::ClientError;
use gvdb::TableWriteError;
use sys::clock::Clock;

use lab::place::MeasuredDirectory;
use lab::session::{BenchSession, ServiceProgram, SessionError};
use report::figure::nanoseconds;
use report::samples::Samples;

use super::names::{BenchNames, Needs, SETTINGS};

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
    #[error("cannot create the initial database")]
    Seed(#[from] TableWriteError),
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
pub enum BenchSide {
    /// Ours.
    Ours,
    /// The one that is compared with.
    Peer,
}

/// Returns the error of a program that could not be run.
pub(super) fn cannot(program: impl AsRef<Path>, cause: impl ToString) -> BenchError {
    let program = program.as_ref().display().to_string();
    BenchError::Peer { program, cause: cause.to_string() }
}

impl BenchSide {
    /// Both, in the order of round `number`: the first place alternates, so that neither has the warmer caches.
    #[must_use]
    pub(crate) fn in_turn(number: usize) -> [BenchSide; 2] {
        if number.is_multiple_of(2) {
            [BenchSide::Ours, BenchSide::Peer]
        } else {
            [BenchSide::Peer, BenchSide::Ours]
        }
    }

    /// Returns what the side is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            BenchSide::Ours => "ours",
            BenchSide::Peer => "the peer",
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

/// What a benchmark works with has a clock, and a user who may want to end.
pub trait Measuring {
    /// What the benchmark and its sides are called.
    const NAMES: BenchNames;

    /// Returns what the benchmark and its sides are called where only the figures with these names are measured.
    #[must_use]
    fn names(_figures: &[&str]) -> BenchNames {
        Self::NAMES
    }

    /// Measures.
    fn clock(&self) -> &dyn Clock;

    /// Set when the user wants to end.
    fn stop(&self) -> &AtomicBool;

    /// Says whether there is what a figure needs.
    fn has(&self, needs: Needs) -> bool {
        needs == Needs::Nothing
    }

    /// Runs `work` and returns how long it took, in nanoseconds.
    fn time<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let start = self.clock().monotonic();
        let result = work();
        (nanoseconds(self.clock().monotonic().saturating_sub(start)), result)
    }

    /// Returns whether to go on.
    ///
    /// # Errors
    ///
    /// The user wants to end.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.stop().load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Measures both sides in turn, `rounds` times; each is told the round.
    ///
    /// # Errors
    ///
    /// A side cannot be measured, or the user wants to end.
    fn in_turn(
        &self,
        rounds: usize,
        mut ours: impl FnMut(usize) -> Result<f64, BenchError>,
        mut peer: impl FnMut(usize) -> Result<f64, BenchError>,
    ) -> Result<[Samples; 2], BenchError> {
        let mut samples = <[Samples; 2]>::default();
        for round in 0..rounds {
            for side in BenchSide::in_turn(round) {
                self.go_on()?;
                match side {
                    BenchSide::Ours => samples[0].push(ours(round)?),
                    BenchSide::Peer => samples[1].push(peer(round)?),
                }
            }
        }
        Ok(samples)
    }

    /// Measures both sides in turn after a round that does not count, which has everything in caches.
    ///
    /// # Errors
    ///
    /// A side cannot be measured, or the user wants to end.
    fn in_turn_warm(
        &self,
        rounds: usize,
        ours: impl Fn() -> Result<f64, BenchError>,
        peer: impl Fn() -> Result<f64, BenchError>,
    ) -> Result<[Samples; 2], BenchError> {
        ours()?;
        peer()?;
        self.in_turn(rounds, |_| ours(), |_| peer())
    }
}

/// What a benchmark works with.
#[derive(Clone, Debug)]
pub struct Lab<'a> {
    /// Our service.
    pub ours: ServiceProgram,
    /// The one that is compared with.
    pub peer: ServiceProgram,
    /// A directory in memory.
    pub memory: MeasuredDirectory,
    /// A directory on a disk, if one was given.
    pub disk: Option<MeasuredDirectory>,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = SETTINGS;

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
        side: BenchSide,
        place: &MeasuredDirectory,
        image: Option<&[u8]>,
    ) -> Result<BenchSession, BenchError> {
        self.go_on()?;
        let program = match side {
            BenchSide::Ours => &self.ours,
            BenchSide::Peer => &self.peer,
        };
        let session = BenchSession::start(program, &place.dir, &self.memory.dir)?;
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
    pub fn pair(
        &self,
        place: &MeasuredDirectory,
        image: Option<&[u8]>,
    ) -> Result<Pair, BenchError> {
        let ours = self.session(BenchSide::Ours, place, image)?;
        let peer = self.session(BenchSide::Peer, place, image)?;
        Ok(Pair { ours, peer })
    }

    /// Returns the disk.
    ///
    /// # Errors
    ///
    /// None was given.
    pub fn disk(&self) -> Result<&MeasuredDirectory, BenchError> {
        self.disk.as_ref().ok_or(BenchError::NoPlace("needs --dir with a directory on a disk"))
    }
}

/// A session of each side.
#[derive(Debug)]
pub struct Pair {
    /// Ours.
    pub ours: BenchSession,
    /// The peer's.
    pub peer: BenchSession,
}

impl Pair {
    /// Returns the session of `side`.
    #[must_use]
    pub fn of(&self, side: BenchSide) -> &BenchSession {
        match side {
            BenchSide::Ours => &self.ours,
            BenchSide::Peer => &self.peer,
        }
    }

    /// Returns the session of `side`.
    pub(crate) fn of_mut(&mut self, side: BenchSide) -> &mut BenchSession {
        match side {
            BenchSide::Ours => &mut self.ours,
            BenchSide::Peer => &mut self.peer,
        }
    }
}
