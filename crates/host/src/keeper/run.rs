//! The main loop of a keeper.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getpid, set_child_subreaper};
use sys::launch::{self, Child, Launch, OtherDescriptors, ProcessGroup, launch};
use sys::pidfd::{self, ChildEvent, ProcessEnd, SignalScope, next_change};
use sys::sched::{CpuClass, IoClass};
use sys::signals::Signals;

use super::group::Group;
use super::message::{KeeperReport, KeeperRequest};
use super::terminal::Terminal;
use super::{Start, tree};
use crate::command::{AfterCaller, Scheduling};
use crate::log::EndedBy;
use crate::start::or_shell;
use sys::clock::Clock;

/// How long processes may take to end after each signal.
const GRACE: Duration = Duration::from_secs(2);
/// How often the remaining processes are killed.
const AGAIN: Duration = Duration::from_millis(20);
/// The interval between two attempts.
const MOST_KILLS: u32 = 250;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGTSTP: i32 = 20;
const SIGTTIN: i32 = 21;
const SIGTTOU: i32 = 22;
const SIGWINCH: i32 = 28;

/// Keeps the command of these arguments until it and, if they are to be ended, all its descendants have ended.
#[must_use]
pub fn run(arguments: Vec<OsString>, clock: &dyn Clock) -> ExitCode {
    let kept = Start::read(arguments).and_then(|start| Keeper::start(start, clock));
    match kept.and_then(|keeper| keeper.map_or(Ok(()), Keeper::keep)) {
        Ok(()) => ExitCode::SUCCESS,
        // The service notices the end of this process and reports it.
        Err(_) => ExitCode::FAILURE,
    }
}

/// The progress of ending all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The processes are not to be ended.
    No,
    /// All processes received a signal; the next one is due then.
    Asked(i32, Duration),
    /// The remaining processes are killed; the attempt, and when the next one is due.
    Killing(u32, Duration),
}

struct Keeper<'a> {
    clock: &'a dyn Clock,
    control: Option<OwnedFd>,
    signals: Signals,
    command: Child,
    ended: Option<ProcessEnd>,
    after: AfterCaller,
    by: EndedBy,
    ending: Ending,
    timeout: Option<Duration>,
    group: Option<Group>,
    terminal: Option<Terminal>,
}

impl<'a> Keeper<'a> {
    /// Starts the command; `None` if that fails, which is reported.
    fn start(start: Start, clock: &'a dyn Clock) -> io::Result<Option<Keeper<'a>>> {
        set_child_subreaper(Some(getpid()))?;
        // Signals of terminals and of shutdown are received, and do not end the keeper.
        let signals = Signals::collect(&[
            SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU,
        ])?;
        let terms = start.terms;
        if terms.nice != 0 {
            // As nice(1): without permission the command runs unchanged.
            let _ = rustix::process::nice(terms.nice);
        }
        if terms.scheduling == Scheduling::Idle {
            // The same as above.
            let _ = CpuClass::Idle.set(0);
            let _ = IoClass::Idle.set(0);
        }
        let mut terminal = Terminal::of(terms.client, &start.arguments);
        let descriptors = match &mut terminal {
            Some(terminal) => terminal.descriptors(start.highest + 2)?,
            None => Vec::new(),
        };
        let group = Group::enter(&format!("command-{}", std::process::id()));
        let place = terminal.as_ref().map_or(ProcessGroup::OwnSession, Terminal::place);
        let begin = |program: launch::LaunchedFile<'_>,
                     arguments: &[CString],
                     script: Option<(BorrowedFd<'_>, RawFd)>| {
            let given = descriptors.iter().map(|(ours, target)| (ours.as_fd(), *target));
            let descriptors: Vec<_> = given.chain(script).collect();
            launch(&Launch {
                program,
                arguments,
                environment: &start.environment,
                directory: None,
                descriptors: &descriptors,
                others: OtherDescriptors::GoAlong,
                place,
                open_files: None,
            })
        };
        let command = or_shell(&start.executable, &start.arguments, start.highest, begin);
        drop(start.executable);
        drop(descriptors);
        if let Some(group) = &group {
            group.leave()?;
        }
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                KeeperReport::NotStarted(error).send(&start.control)?;
                return Ok(None);
            }
        };
        sys::launch::close_given()?;
        let pidfd = command.pidfd.as_fd().try_clone_to_owned()?;
        KeeperReport::Began { pid: command.pid, pidfd }.send(&start.control)?;
        Ok(Some(Keeper {
            clock,
            control: Some(start.control),
            signals,
            command,
            ended: None,
            after: terms.after,
            by: EndedBy::Itself,
            ending: Ending::No,
            timeout: terms.timeout.map(|time| clock.monotonic() + time),
            group,
            terminal,
        }))
    }

    fn keep(mut self) -> io::Result<()> {
        loop {
            self.children()?;
            self.advance()?;
            if let Some(terminal) = &mut self.terminal
                && terminal.copy(self.command.pid, self.clock.monotonic()).is_err()
            {
                // The caller's terminal is closed; the command receives a hangup.
                self.terminal = None;
            }
            if self.is_done() {
                return Ok(());
            }
            self.wait()?;
            while let Some(signal) = self.signals.take()? {
                if matches!(signal, SIGTERM | SIGINT | SIGQUIT) {
                    self.end(EndedBy::CallerGone);
                }
            }
            self.obey();
        }
    }

    /// Returns whether the keeper may end: the command has ended, its descendants have ended if they had to, and
    /// no process writes to its terminal any more.
    fn is_done(&self) -> bool {
        self.ended.is_some()
            && self.ending == Ending::No
            && self.terminal.as_ref().is_none_or(Terminal::is_over)
    }

    /// Handles changes of children, and reaps orphans.
    fn children(&mut self) -> io::Result<()> {
        loop {
            let (pid, change) = match next_change() {
                Ok(Some(changed)) => changed,
                Ok(None) => return Ok(()),
                // No child is left.
                Err(error) if error.raw_os_error() == Some(10) => return Ok(()),
                Err(error) => return Err(error),
            };
            if pid != self.command.pid || self.ended.is_some() {
                continue;
            }
            match change {
                ChildEvent::Ended(ended) => self.command_ended(ended),
                ChildEvent::Stopped(signal) => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.stopped(signal);
                    }
                }
                ChildEvent::Continued => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.continued();
                    }
                }
            }
        }
    }

    fn command_ended(&mut self, ended: ProcessEnd) {
        self.ended = Some(ended);
        if let Some(terminal) = &mut self.terminal {
            // The terminal's modes are restored before the end is reported.
            terminal.finish();
        }
        if let Some(control) = &self.control {
            // It fails if the service has ended.
            let _ = KeeperReport::Ended(ended, self.by).send(control);
        }
        self.timeout = None;
        if self.after == AfterCaller::GoesOn && self.ending == Ending::No {
            self.control = None;
        }
    }

    /// Begins to end all processes.
    fn end(&mut self, by: EndedBy) {
        // The descendants of a command that has ended by itself continue on purpose.
        if self.ending != Ending::No || self.ended.is_some() {
            return;
        }
        self.by = by;
        self.signal_all(SIGINT);
        self.ending = Ending::Asked(SIGTERM, self.clock.monotonic() + GRACE);
    }

    /// Executes what is due.
    fn advance(&mut self) -> io::Result<()> {
        let now = self.clock.monotonic();
        if self.timeout.is_some_and(|due| now >= due) {
            self.timeout = None;
            self.end(EndedBy::Timeout);
        }
        if self.ending != Ending::No && self.ended.is_some() && self.left()?.is_empty() {
            self.ending = Ending::No;
            self.terminal = None;
        }
        match self.ending {
            Ending::Asked(SIGTERM, due) if now >= due => {
                self.signal_all(SIGTERM);
                self.ending = Ending::Asked(SIGKILL, now + GRACE);
            }
            Ending::Asked(_, due) if now >= due => self.kill(0, now),
            Ending::Killing(times, due) if now >= due => {
                if times < MOST_KILLS {
                    self.kill(times + 1, now);
                } else {
                    // The remaining processes belong to another user, or hang in the kernel.
                    self.ending = Ending::No;
                    self.terminal = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kill(&mut self, times: u32, now: Duration) {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.signal_all(SIGKILL);
        self.ending = Ending::Killing(times, now + AGAIN);
    }

    fn left(&self) -> io::Result<Vec<tree::TreeProcess>> {
        let mut left = tree::below(std::process::id())?;
        if let Some(group) = &self.group {
            for pid in group.members() {
                left.extend(tree::member(pid).filter(|member| !left.contains(member)));
            }
        }
        Ok(left)
    }

    fn signal_all(&self, signal: i32) {
        for member in self.left().unwrap_or_default() {
            tree::signal(member, signal);
            if signal != SIGKILL {
                // A stopped process could not handle the signal.
                tree::signal(member, SIGCONT);
            }
        }
    }

    fn caller_is_gone(&mut self) {
        if self.after == AfterCaller::Ends {
            self.end(EndedBy::CallerGone);
        }
    }

    fn signal_command(&self, signal: i32) {
        let command = &self.command;
        // It fails if the process has ended.
        let _ = pidfd::signal(command.pidfd.as_fd(), command.pid, signal, SignalScope::Process);
    }

    fn obey(&mut self) {
        while let Some(control) = &self.control {
            match KeeperRequest::receive(control) {
                Ok(Some(KeeperRequest::Gone)) => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.caller_is_gone();
                    }
                    self.caller_is_gone();
                }
                Ok(Some(KeeperRequest::Size)) => match &mut self.terminal {
                    Some(terminal) => terminal.resize(),
                    None => self.signal_command(SIGWINCH),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The service has ended: the end of the caller will not be reported.
                Ok(None) | Err(_) => {
                    self.control = None;
                    if let Some(terminal) = &mut self.terminal {
                        // The caller ends, too, and its shell needs the terminal with its old modes.
                        terminal.give_back();
                    }
                    self.caller_is_gone();
                }
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let due = match self.ending {
            Ending::No => self.timeout,
            Ending::Asked(_, due) | Ending::Killing(_, due) => Some(due),
        };
        let now = self.clock.monotonic();
        let until = due.map(|due| due.saturating_sub(now));
        let look = self.terminal.as_ref().and_then(|terminal| terminal.looks_again(now));
        let until = match (until, look) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let timeout = until.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(control) = &self.control {
            polled.push(PollFd::new(control, PollFlags::IN));
        }
        if let Some(terminal) = &self.terminal {
            terminal.poll(&mut polled, now);
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
