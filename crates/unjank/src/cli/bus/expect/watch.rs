//! Runs a command and takes in what happens on the buses meanwhile.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capture::capture::CaptureEvent;
use capture::expect::{CheckProblem, CommandEnd, ExpectReport, ExpectRules};
use capture::model::Model;
use capture::record::{BusRecorder, LaneEnd, NextRecord, RecordOptions, is_bus_at};
use capture::stats::time;
use host::keeper::tree;
use rustix::process::Signal;
use sys::clock::{Clock, SystemClock};

use crate::cli::bus::buses::{Asks, Buses, told};
use crate::cli::interrupt;
use crate::error::{Error, FailureCategory};

/// How often it is looked whether the command has ended.
const PACE: Duration = Duration::from_millis(20);
/// A bus that is quiet for so long has told everything; it is not waited for longer than the second.
const QUIET: Duration = Duration::from_millis(150);
const PATIENCE: u32 = 30;
/// How long a command that is ended may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long it is tried to end what does not end.
const LAST: Duration = Duration::from_secs(5);

/// Where the standard output of the command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printing {
    /// To ours.
    Beside,
    /// To our standard error: ours holds a document.
    Apart,
}

/// Runs `command` for at most `limit`, zero being no limit, and holds what it did on the buses against the rules.
///
/// Whatever becomes of the command, what was seen by then is in the report.
#[expect(clippy::disallowed_methods, reason = "a descriptor for another program")]
pub(super) fn run(
    rules: &ExpectRules,
    buses: &Buses,
    command: &[OsString],
    limit: Duration,
    printing: Printing,
) -> Result<ExpectReport, Error> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        Error::new(FailureCategory::User, "check nothing")
            .hint("give a recording, or a command after --")
    })?;
    let sources = buses.watch(Asks::First)?;
    let addresses: Vec<(u16, String)> =
        sources.iter().map(|source| (source.bus.bus, source.bus.address.clone())).collect();
    let mut command = Command::new(program);
    command.args(arguments);
    // Who watches one bus by its address wants the command to be on it.
    if let [source] = &sources[..]
        && source.bus.name.is_empty()
    {
        command.env("DBUS_SESSION_BUS_ADDRESS", &source.bus.address);
    }
    if printing == Printing::Apart {
        command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
    }
    // What the command leaves behind stays ours, so that all of it can be ended.
    sys::supervise::adopt_orphans()?;
    let clock = Arc::new(SystemClock::start());
    // It forks, so it comes before everything that needs threads or catches signals.
    let recorder = BusRecorder::start_in_child(
        sources,
        &RecordOptions::default(),
        Arc::<SystemClock>::clone(&clock),
    );
    let mut watch = Watch {
        recorder: recorder.map_err(told)?,
        model: Model::default(),
        clock,
        interrupted: interrupt::flag(),
        addresses,
        ended: Vec::new(),
        went_on: false,
    };
    let name = program.display();
    let mut child = command
        .spawn()
        .map_err(|error| Error::new(FailureCategory::User, format!("run {name}")).because(error))?;
    let start = watch.clock.monotonic();
    let limit = Some(limit).filter(|limit| !limit.is_zero());
    let ended = watch.until_end(&mut child, limit);
    let took = watch.clock.monotonic().saturating_sub(start);
    watch.until_quiet();
    watch.model.complete();
    // The model has them from the record's description of the bus, which a recorder that ended early may not have told.
    watch.model.matched = buses.matched().to_vec();
    let mut report = ExpectReport::of(rules, &watch.model, buses.matched());
    let (_, ends) = watch.recorder.finish();
    let unseen = ends.iter().find(|(bus, end)| match end {
        // Of a bus that has ended all was seen, also if the command ended it. One that goes on, or is there again, said more.
        LaneEnd::Closed => watch.went_on || is_there(&watch.addresses, *bus),
        _ => true,
    });
    if let Some((_, end)) = unseen {
        report.add_fault(CheckProblem::Recorder { text: end.to_string() });
    }
    let (status, faults) = match ended {
        Ok((status, fault)) => (Some(status), fault),
        Err(error) => {
            let text = format!("the end of the command is not known: {error}");
            (None, Some(CheckProblem::Command { text }))
        }
    };
    let end = CommandEnd::of(status, took);
    // A command that was ended did not fail by itself.
    if let Some(fault) = faults.or_else(|| end.failure()) {
        report.add_fault(fault);
    }
    report.command = Some(end);
    Ok(report)
}

/// Returns whether a bus is at the address of the one with this number.
fn is_there(addresses: &[(u16, String)], bus: u16) -> bool {
    addresses.iter().any(|(number, address)| *number == bus && is_bus_at(address))
}

/// What is seen while a command runs.
struct Watch {
    recorder: BusRecorder,
    model: Model,
    clock: Arc<SystemClock>,
    interrupted: Arc<AtomicBool>,
    /// Of each bus its number and its address.
    addresses: Vec<(u16, String)>,
    /// The numbers of the buses whose recording has ended.
    ended: Vec<u16>,
    /// Whether one of these was there again while the command ran.
    went_on: bool,
}

impl Watch {
    /// Takes in what came; says whether something did, and nothing if the recording is over.
    fn take(&mut self, patience: Duration) -> Option<bool> {
        match self.recorder.next(patience) {
            NextRecord::Batch(batch) => {
                for event in batch.events() {
                    if let CaptureEvent::End(end) = &event {
                        self.ended.push(end.bus);
                    }
                    self.model.take(&event);
                }
                Some(true)
            }
            NextRecord::Quiet => Some(false),
            NextRecord::Over => None,
        }
    }

    /// Waits for the end of the command, and ends it when its time is up or somebody asks for it; says which of them.
    fn until_end(
        &mut self,
        child: &mut Child,
        limit: Option<Duration>,
    ) -> io::Result<(ExitStatus, Option<CheckProblem>)> {
        let start = self.clock.monotonic();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, self.interruption()));
            }
            let fault = match limit {
                Some(limit) if self.clock.monotonic().saturating_sub(start) >= limit => {
                    let limit = time(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
                    Some(CheckProblem::TimeLimit { limit })
                }
                _ => self.interruption(),
            };
            if fault.is_some() {
                return Ok((self.end(child)?, fault));
            }
            if self.take(PACE).is_none() {
                let _ = self.recorder.stopped_within(PACE);
            }
            // A bus may end because the command ends it; the command may go on, and begin it again.
            self.went_on =
                self.went_on || self.ended.iter().any(|bus| is_there(&self.addresses, *bus));
        }
    }

    fn interruption(&self) -> Option<CheckProblem> {
        self.interrupted.load(Ordering::Relaxed).then_some(CheckProblem::Interrupted)
    }

    /// Ends the command and all that it started, and goes on taking in what they do on the bus.
    fn end(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let start = self.clock.monotonic();
        let mut ended = None;
        let mut asked = false;
        loop {
            let spent = self.clock.monotonic().saturating_sub(start);
            let reader = self.recorder.child();
            let mut all = tree::below(std::process::id())?;
            all.retain(|member| Some(member.pid) != reader);
            if ended.is_none() {
                ended = child.try_wait()?;
            }
            match ended {
                Some(status) if all.is_empty() || spent > LAST => return Ok(status),
                // It can only be one that the kernel does not let end.
                None if spent > LAST => return Err(io::ErrorKind::TimedOut.into()),
                _ => (),
            }
            if !asked || spent > GRACE {
                let signal = if asked { Signal::KILL } else { Signal::TERM };
                all.iter().for_each(|member| {
                    tree::signal(*member, signal.as_raw());
                    // One that was stopped does nothing before it goes on.
                    tree::signal(*member, Signal::CONT.as_raw());
                });
                asked = true;
            }
            if self.take(PACE).is_none() {
                let _ = self.recorder.stopped_within(PACE);
            }
        }
    }

    /// Takes in what is still said on the bus, and ends the recording.
    fn until_quiet(&mut self) {
        let mut rounds = 0;
        while rounds < PATIENCE && self.take(QUIET) == Some(true) {
            rounds += 1;
        }
        self.recorder.stop();
        // The reader ends within a second of that, and says so.
        let mut quiet = 0;
        while quiet < PATIENCE {
            match self.take(QUIET) {
                Some(true) => (),
                Some(false) => quiet += 1,
                None => return,
            }
        }
    }
}
