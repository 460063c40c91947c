//! The life of a command on the host, as its client sees it: signals go to it, its end comes back.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use report::paragraph::without_error_numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sys::clock::{Clock, SystemClock};
use sys::disposition;
use sys::signals::Signals;
use wire::socket::Deadline;

use super::order::HostOrder;
use super::{
    ExtraOptions, Greeting, HostCommandSpec, HostConnection, HostError, HostEvent, INVALID_ARGS,
    NO_REPLY, To, UNKNOWN_METHOD, WithoutUs,
};
use crate::relay::{JobKey, TerminalRelay};

/// How long a command that took too long has after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The bus's limit of descriptors in a message (`max_message_unix_fds` of dbus-daemon).
const USUAL_DESCRIPTORS: usize = 16;

const HUP: i32 = 1;
const INT: i32 = 2;
const QUIT: i32 = 3;
const KILL: i32 = 9;
const USR1: i32 = 10;
const USR2: i32 = 12;
const ALRM: i32 = 14;
const TERM: i32 = 15;
const CONT: i32 = 18;
const STOP: i32 = 19;
const TSTP: i32 = 20;
const WINCH: i32 = 28;

/// What became of a command.
#[derive(Debug)]
pub enum HostOutcome {
    /// It ended, with this status of `waitpid(2)`.
    Ended(u32),
    /// It was ended because it took too long.
    TimedOut,
    /// Nobody answered, and this signal said that nobody waits for it any more.
    Interrupted(i32),
    /// The service did not start it.
    Refused {
        /// The name of the error.
        name: String,
        /// Its text.
        text: String,
    },
    /// There is no bus, and why.
    NoBus(String),
    /// Something went wrong; what became of the command is not known.
    Failed(RunError),
}

/// Why it is not known what became of a command, or that it was not asked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct RunError {
    /// What could not be done: `run NAME on the host`.
    pub what: String,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// What to do.
    pub hint: Option<&'static str>,
}

impl RunError {
    fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> RunError {
        RunError { what: what.into(), source: source.into(), hint: None }
    }
}

/// Runs a command by the service on the bus at `address`, and waits for its end. While it runs, the signals to this process are its own.
/// `tell` is told what a person should read meanwhile.
pub fn run(order: &HostOrder, address: &[u8], tell: &dyn Fn(&str)) -> HostOutcome {
    // The bus of a Flatpak sandbox is its proxy; others are tried the fast way first.
    // An empty file is what a sandbox leaves that was made over the host's own files.
    let sandbox = std::fs::metadata("/.flatpak-info").is_ok_and(|status| status.len() > 0);
    let greeting = if sandbox { Greeting::StepByStep } else { Greeting::AtOnce };
    let clock = SystemClock::start();
    let answer = Deadline::after(&clock, order.answer_within);
    let host =
        match HostConnection::connect(address, greeting, &answer).or_else(|error| match error {
            HostError::NotGreeted(cause) if is_confused(&cause) && !sandbox => {
                HostConnection::connect(address, Greeting::StepByStep, &answer)
            }
            error => Err(error),
        }) {
            Ok(host) => host,
            Err(HostError::NoBus(error)) => {
                return HostOutcome::NoBus(without_error_numbers(&error.to_string()));
            }
            Err(error) => return HostOutcome::Failed(not_asked(order, error)),
        };
    let taken = [HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, TSTP, WINCH]
        .into_iter()
        .chain(disposition::first_real_time()..=disposition::last())
        // What was ignored stays so, as whoever started us wanted it.
        .filter(|signal| !disposition::is_ignored(*signal));
    let signals = match Signals::collect(&taken.collect::<Vec<_>>()) {
        Ok(signals) => signals,
        Err(error) => return failed("watch signals", error),
    };
    let terminal = match order.terminal.map(TerminalRelay::open).transpose() {
        Ok(terminal) => terminal.flatten(),
        Err(error) => return failed("make a terminal for the command", error),
    };
    let mut life = Life {
        order,
        tell,
        host,
        signals,
        terminal,
        clock: &clock,
        number: None,
        answer,
        early: VecDeque::new(),
        had_by_key: None,
        deadline: None,
        ending: Ending::NotYet,
        without_us: order.without_us,
        extras: if order.has_extras() { Extras::ByService } else { Extras::None },
    };
    let outcome = life.run().unwrap_or_else(|error| HostOutcome::Failed(lost(order, error)));
    if let (Some(terminal), HostOutcome::Ended(_) | HostOutcome::TimedOut) =
        (&mut life.terminal, &outcome)
    {
        terminal.drain();
        let signal = terminal.last_signal();
        // The terminal has its modes back before anybody else knows.
        life.terminal = None;
        signal.into_iter().for_each(signal_job);
    }
    outcome
}

/// Says whether somebody listens who did not understand the greeting.
fn is_confused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn failed(what: &str, error: io::Error) -> HostOutcome {
    HostOutcome::Failed(RunError::new(what, error))
}

/// The command was not asked for.
fn not_asked(order: &HostOrder, error: HostError) -> RunError {
    RunError::new(format!("run {} on the host", order.name()), error)
}

fn lost(order: &HostOrder, error: HostError) -> RunError {
    let broke = matches!(error, HostError::Lost(_));
    let mut error = RunError::new(format!("get the result of {}", order.name()), error);
    if broke && order.forwarded.len() + 3 > USUAL_DESCRIPTORS {
        error.hint =
            Some("pass at most 13 descriptors besides the first three, the limit of the bus");
    }
    error
}

/// How far the end of a command that took too long has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    NotYet,
    Asked,
    Forced,
}

/// A command, from the call on.
struct Life<'a> {
    order: &'a HostOrder,
    tell: &'a dyn Fn(&str),
    host: HostConnection,
    signals: Signals,
    terminal: Option<TerminalRelay>,
    clock: &'a dyn Clock,
    /// The command's number on the host, once it runs.
    number: Option<u32>,
    /// Until when the service must have answered.
    answer: Deadline<'a>,
    /// Signals for a command that does not run yet.
    early: VecDeque<i32>,
    /// A signal that was sent to the whole job: the command has it from its terminal.
    had_by_key: Option<i32>,
    /// When the next step of its end is due, on the clock.
    deadline: Option<Duration>,
    ending: Ending,
    without_us: WithoutUs,
    extras: Extras,
}

/// Sends a signal to this process and all of its job.
fn signal_job(signal: i32) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        // Some member may belong to another user.
        let _ = rustix::process::kill_current_process_group(signal);
    }
}

/// Who does what the service's first version has no words for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extras {
    /// Nothing of that is wanted.
    None,
    /// The service, if it is ours.
    ByService,
    /// Programs that the command is run by.
    ByPrograms,
}

impl Life<'_> {
    fn run(&mut self) -> Result<HostOutcome, HostError> {
        self.start()?;
        loop {
            while let Some(event) = self.host.event()? {
                if let Some(outcome) = self.happened(event)? {
                    return Ok(outcome);
                }
            }
            while let Ok(Some(signal)) = self.signals.take() {
                if let Some(outcome) = self.signalled(signal)? {
                    return Ok(outcome);
                }
            }
            if self.number.is_none() && self.answer.remaining().is_err() {
                return Ok(HostOutcome::Failed(self.unanswered()));
            }
            self.end_in_time()?;
            self.wait()?;
        }
    }

    fn start(&mut self) -> Result<(), HostError> {
        let inner = self.terminal.as_ref().map(TerminalRelay::inner);
        let descriptors = self.order.descriptors(inner);
        let options =
            ExtraOptions { unset: &self.order.unset, nice: self.order.nice, idle: self.order.idle };
        let wrapped;
        let arguments = match self.extras {
            Extras::ByPrograms => {
                wrapped = self.order.wrapped(&self.order.unset);
                &wrapped
            }
            Extras::None | Extras::ByService => &self.order.command,
        };
        let command = HostCommandSpec {
            directory: &self.order.directory,
            arguments,
            descriptors: &descriptors,
            inherits: self.order.inherits,
            environment: &self.order.environment,
            without_us: self.without_us,
        };
        let by_service = self.extras == Extras::ByService;
        self.host.start(&command, by_service.then_some(&options))
    }

    fn happened(&mut self, event: HostEvent) -> Result<Option<HostOutcome>, HostError> {
        match event {
            HostEvent::Started(number) => {
                self.number = Some(number);
                if let Some(terminal) = &mut self.terminal {
                    terminal.settle(Some(number));
                }
                if let Some(status) = self.host.ended_early() {
                    return Ok(Some(HostOutcome::Ended(status)));
                }
                self.deadline = self.order.timeout.map(|time| self.clock.monotonic() + time);
                while let Some(signal) = self.early.pop_front() {
                    self.pass_on(signal)?;
                }
            }
            // Before there were flags for it, a service knew no such flag.
            HostEvent::Refused { name, .. }
                if name == INVALID_ARGS
                    && self.without_us == WithoutUs::Ends
                    && !self.order.command.first().is_none_or(Vec::is_empty) =>
            {
                self.without_us = WithoutUs::RunsOn;
                self.start()?;
            }
            HostEvent::Refused { name, .. }
                if name == UNKNOWN_METHOD && self.extras == Extras::ByService =>
            {
                self.extras = Extras::ByPrograms;
                self.start()?;
            }
            // It may have been started: nobody may take this for a refusal and run it once more.
            HostEvent::Refused { name, text } if name == NO_REPLY => {
                return Ok(Some(HostOutcome::Failed(self.unknown(text))));
            }
            HostEvent::Refused { name, text } => {
                return Ok(Some(HostOutcome::Refused { name, text }));
            }
            HostEvent::Exited(_) if self.ending != Ending::NotYet => {
                return Ok(Some(HostOutcome::TimedOut));
            }
            HostEvent::Exited(status) => return Ok(Some(HostOutcome::Ended(status))),
            HostEvent::NotSignalled(_) => (),
            HostEvent::ServiceGone => {
                let error = self.unknown("the service has ended".to_owned());
                return Ok(Some(HostOutcome::Failed(error)));
            }
        }
        Ok(None)
    }

    /// Nobody has answered in time. What was asked for may still be done.
    fn unanswered(&self) -> RunError {
        let who = if self.host.has_heard() { "the service" } else { "the bus" };
        let limit = self.answer.limit().as_secs_f32();
        self.unknown(format!("{who} has not answered within {limit} s"))
    }

    fn unknown(&self, why: String) -> RunError {
        RunError::new(format!("get the result of {}", self.order.name()), why)
    }

    /// Does what a signal to us asks for.
    fn signalled(&mut self, signal: i32) -> Result<Option<HostOutcome>, HostError> {
        if self.had_by_key.take_if(|had| *had == signal).is_some() {
            return Ok(None);
        }
        if self.number.is_some() {
            self.pass_on(signal)?;
        } else if matches!(signal, HUP | INT | QUIT | TERM) && self.early.contains(&signal) {
            // Asked twice while nobody answers: whoever asks does not want to wait.
            return Ok(Some(HostOutcome::Interrupted(signal)));
        } else if self.early.len() < 64 {
            self.early.push_back(signal);
        }
        Ok(None)
    }

    fn pass_on(&mut self, signal: i32) -> Result<(), HostError> {
        let number = signal.unsigned_abs();
        match signal {
            TSTP => {
                // A stop that a program could catch would have to reach it in its own session.
                self.host.signal(STOP.unsigned_abs(), To::Group)?;
                self.stop();
                Ok(())
            }
            WINCH => match &mut self.terminal {
                Some(terminal) => {
                    terminal.settle(self.number);
                    Ok(())
                }
                None => self.host.signal(number, To::Group),
            },
            CONT => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.settle(self.number);
                }
                self.host.signal(number, To::Group)
            }
            INT => self.host.signal(number, To::Group),
            _ => self.host.signal(number, To::Leader),
        }
    }

    /// Stops this process, as the command is; returns when it goes on.
    fn stop(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.pause();
        }
        // Our own stop cannot be caught either; CONT comes as a signal like others.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    }

    /// Ends a command that takes too long, first kindly.
    fn end_in_time(&mut self) -> Result<(), HostError> {
        let now = self.clock.monotonic();
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let (signal, next) = match self.ending {
            Ending::NotYet => (TERM, Ending::Asked),
            Ending::Asked | Ending::Forced => (KILL, Ending::Forced),
        };
        if self.ending == Ending::NotYet {
            (self.tell)(&format!("unjank: {} took too long\n", self.order.name()));
            // A command that is stopped would not hear of it.
            self.host.signal(CONT.unsigned_abs(), To::Group)?;
        }
        self.ending = next;
        self.deadline = Some(now + GRACE);
        self.host.signal(signal.unsigned_abs(), To::Group)
    }

    /// Waits until there is something to do, and lets the terminals talk.
    fn wait(&mut self) -> Result<(), HostError> {
        let now = self.clock.monotonic();
        let until_deadline = self.deadline.map(|deadline| deadline.saturating_sub(now));
        let patience = self.terminal.as_ref().and_then(TerminalRelay::poll_interval);
        let is_asked = self.number.is_none();
        let until_answer = is_asked.then(|| self.answer.remaining().unwrap_or_default());
        let limits = until_deadline.into_iter().chain(patience).chain(until_answer);
        let limit = limits.min().map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut polled = Vec::with_capacity(5);
        polled.push(PollFd::from_borrowed_fd(self.host.as_fd(), PollFlags::IN));
        polled.push(PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN));
        if let Some(terminal) = &self.terminal {
            terminal.poll(&mut polled);
        }
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(HostError::Lost(error.into())),
        }
        drop(polled);
        let now = self.clock.monotonic();
        match self.terminal.as_mut().and_then(|terminal| terminal.pump(now)) {
            None => Ok(()),
            Some(JobKey::Stop) => self.stop_job(),
            Some(JobKey::Signal(signal)) => {
                if let Some(terminal) = &mut self.terminal
                    && TerminalRelay::may_end_job(signal)
                {
                    terminal.leave(now);
                }
                self.had_by_key = Some(signal);
                signal_job(signal);
                Ok(())
            }
        }
    }

    /// Stops the command and the job of this process, as a key asks; returns when this process goes on.
    fn stop_job(&mut self) -> Result<(), HostError> {
        self.host.signal(STOP.unsigned_abs(), To::Group)?;
        if let Some(terminal) = &mut self.terminal {
            terminal.echo_stop();
            terminal.pause();
        }
        // What waits here of it for this process is gone once that goes on.
        signal_job(TSTP);
        self.stop();
        Ok(())
    }
}
