//! The process between the shell and the command: signals, stops and the end go through it as if it were not there.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use session::clock::{Clock, SystemClock};
use session::jobs::cgroup::{Cgroup, Freezer};
use session::jobs::controller::Limits;
use session::jobs::keeper::{
    self, KeeperCommand, KeeperEvent, Options, Pauses, PrivateSocket, Subject,
};
use session::jobs::report::Watched;
use session::jobs::tree::{Counted, Processes};
use session::jobs::{Class, MAILBOX};
use sys::mounts::Mounts;
use sys::pidfd::{Change, Ended, next_change};
use sys::sched::{Manners, Orphaned, before_exec};
use sys::signals::{Caught, Mask, Signals};
use sys::supervise::{self, Side};

use super::report::{Report, Where};
use super::start::Waiting;
use super::{launches, place};
use crate::cli::screen;

/// How long the keeper may take for its last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What is done for the command.
pub(super) struct How {
    pub(super) class: Class,
    pub(super) limits: Limits,
    pub(super) pauses: Pauses,
    pub(super) preload: Option<PathBuf>,
    pub(super) report: Where,
}

/// Runs `command` and ends as it does.
pub(super) fn run(mut how: How, command: Vec<OsString>) -> ExitCode {
    let clock = SystemClock::start();
    let start = clock.monotonic();
    let mounts = Mounts::read().unwrap_or_else(|_| Mounts::parse(b""));
    #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
    let home = env::var_os("HOME").map(PathBuf::from);
    let disks = place::disks(&mounts, home.as_deref());
    place::sweep(&mounts);
    let texts: Vec<String> =
        command.iter().map(|word| word.to_string_lossy().into_owned()).collect();

    // The loader of another kind of program would say that it cannot load ours.
    if !command.first().is_some_and(|program| place::preloads(program)) {
        how.preload = None;
    }
    // Files are looked for from the first one on where the command works.
    let outside = how.preload.is_none().then(|| env::current_dir().ok()).flatten();
    // Orphans of the command stay below us, so that a hold and its end reach them.
    let _ = supervise::adopt_orphans();
    let mailbox = place::mailbox(std::process::id());
    let keeper = match Beside::start(&how, &texts, outside, mailbox.clone(), &disks, &clock) {
        Ok(started) => started,
        Err(error) => return failed(&texts[0], &error),
    };
    let mut signals = match Signals::collect(&forwarded()) {
        Ok(signals) => signals,
        Err(error) => return failed(&texts[0], &error),
    };
    let waiting = prepare(&how, &command, mailbox, signals.before()).and_then(Waiting::new);
    let waiting = match waiting {
        Ok(waiting) => waiting,
        Err(error) => return failed(&texts[0], &error),
    };
    let found = place::find(&mounts, waiting.process(), keeper.process, &texts[0]);
    let (cgroup, _claim) = found.map_or((None, None), |(cgroup, claim)| (Some(cgroup), claim));
    // It is gone: the job then runs without holds.
    let _ = keeper::send(&keeper.channel, &Placed { cgroup: cgroup.clone() });
    // What the command does first is seen, too; one that is not ready by then sees the rest.
    let _ = sys::socket::wait_readable(&keeper.channel, Some(LAST_WORDS));
    let process = match waiting.go() {
        Ok(process) => process,
        Err(error) => return failed(&texts[0], &error),
    };
    let opened = how.report.open();
    // A pipe that the command closes is closed, and a terminal that it leaves is free.
    let _ = supervise::let_go_of_standard_streams();
    let mut supervisor = Supervisor { process, keeper, cgroup, holding: false, watched: None };
    let end = supervisor.wait(&mut signals);
    let watched = supervisor.last_words();
    signals.before().set();
    let report = Report {
        command: texts,
        class: how.class,
        end,
        took: clock.monotonic().saturating_sub(start),
        used: sys::usage::of_ended_children(),
        preload: how.preload.is_some(),
        cgroup: supervisor.cgroup.is_some(),
        pauses: how.pauses,
        disks,
        watched,
    };
    opened.write(&report);
    if let Some(signal) = end.signal() {
        supervise::die_by(signal);
    }
    let status = end.exit_status().unwrap_or_else(|| 128 + end.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
}

/// Says why the command could not be run, and returns what a shell would.
fn failed(command: &str, error: &io::Error) -> ExitCode {
    let told = crate::error::Error::new(crate::error::Kind::User, format!("run {command:?}"));
    // Its own exit code is of our table; a shell's stands for a command that is not there.
    let _ = write!(
        screen::stderr(),
        "{}",
        told.because(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(2)))
    );
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Returns the signals that are for the command: all that a program can be sent, but those that a fault of our own raises.
fn forwarded() -> Vec<i32> {
    const OURS: [Signal; 7] = [
        Signal::KILL,
        Signal::STOP,
        Signal::SEGV,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::ABORT,
    ];
    let is_ours = |number: i32| OURS.iter().any(|signal| signal.as_raw() == number);
    // 32 and 33 belong to the C library.
    (1..=64).filter(|&number| !is_ours(number) && !(32..=33).contains(&number)).collect()
}

/// Prepares the command in its class and with its preload.
fn prepare(
    how: &How,
    words: &[OsString],
    mailbox: Option<PathBuf>,
    mask: Mask,
) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments);
    // That of a job around this one is not for it.
    command.env_remove(MAILBOX);
    if let Some(preload) = &how.preload {
        #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
        let before = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
        let mut libraries = preload.clone().into_os_string();
        if let Some(before) = before {
            libraries.push(":");
            libraries.push(before);
        }
        command.env("LD_PRELOAD", libraries);
        if let Some(mailbox) = mailbox {
            command.env(MAILBOX, mailbox);
        }
    }
    let manners = Manners {
        io: how.class.io(),
        cpu: how.class.cpu(),
        // It is put there from outside.
        cgroup: None,
        mask: Some(mask),
        orphaned: Orphaned::Killed,
    };
    before_exec(&mut command, manners);
    Ok(command)
}

/// Where the command will be, for the keeper.
#[derive(Serialize, Deserialize)]
struct Placed {
    cgroup: Option<Cgroup>,
}

/// The keeper, seen from here.
struct Beside {
    process: u32,
    channel: OwnedFd,
}

impl Beside {
    /// Starts the keeper, which listens at `mailbox`.
    fn start(
        how: &How,
        command: &[String],
        outside: Option<PathBuf>,
        mailbox: Option<PathBuf>,
        disks: &[session::jobs::report::Disk],
        clock: &SystemClock,
    ) -> io::Result<Beside> {
        let supervisor = std::process::id();
        let (ours, theirs) = sys::socket::pair()?;
        match supervise::fork()? {
            Side::Parent(process) => Ok(Beside { process, channel: ours }),
            Side::Child => {
                drop(ours);
                if supervise::detach(&[theirs.as_fd()]).is_err() {
                    supervise::exit_now(1);
                }
                let _ignored = place::ignore_requests_to_end();
                // Made here, they have an owner from their first moment.
                let control_socket = place::control_socket(supervisor);
                let mailbox = mailbox.and_then(|path| PrivateSocket::listen_at(path).ok());
                let issued = place::issued(disks, supervisor);
                // The command is not there yet. If it never comes, what was made is removed at once.
                let _ = sys::socket::wait_readable(&theirs, None);
                let placed = keeper::receive::<Placed>(&theirs).ok().flatten();
                let left = || Mounts::read().ok().and_then(|all| place::left(&all, supervisor));
                let cgroup = placed.map_or_else(left, |placed| placed.cgroup);
                let options = Options {
                    command: command.to_vec(),
                    subject: cgroup.map_or(Subject::Supervised(supervisor), Subject::Made),
                    limits: how.limits,
                    pauses: how.pauses,
                    disks: disks.iter().map(|disk| disk.name.clone()).collect(),
                    issued,
                    outside,
                    mailbox,
                    launches: launches::watch(),
                    control_socket,
                };
                keeper::keep(options, &theirs, clock);
                supervise::exit_now(0);
            }
        }
    }
}

struct Supervisor {
    process: u32,
    keeper: Beside,
    cgroup: Option<Cgroup>,
    /// Whether the keeper has stopped the job by signals.
    holding: bool,
    watched: Option<Watched>,
}

impl Supervisor {
    /// Passes on what happens until the command has ended, and says how.
    fn wait(&mut self, signals: &mut Signals) -> Ended {
        // It is gone: the job then runs without holds.
        let _ = keeper::send(&self.keeper.channel, &KeeperCommand::Started(self.process));
        loop {
            let mut polled = [
                PollFd::new(&*signals, PollFlags::IN),
                PollFd::new(&self.keeper.channel, PollFlags::IN),
            ];
            let heard = self.keeper.process != 0;
            let watched = if heard { &mut polled[..] } else { &mut polled[..1] };
            // A signal that is not held ends the wait early, which does no harm.
            let _ = poll(watched, None);
            self.take_events();
            while let Ok(Some(caught)) = signals.catch() {
                if caught.signal != Signal::CHILD.as_raw() {
                    self.forward(caught);
                }
            }
            while let Ok(Some((process, change))) = next_change() {
                self.take_events();
                if process == self.keeper.process {
                    match change {
                        Change::Ended(_) => self.keeper_gone(),
                        Change::Stopped(_) => self.keeper_stopped(),
                        Change::Continued => (),
                    }
                } else if process == self.process {
                    match change {
                        Change::Ended(ended) => return ended,
                        Change::Stopped(signal) if !self.holding => supervise::stop_by(signal),
                        Change::Stopped(_) | Change::Continued => (),
                    }
                }
            }
        }
    }

    /// Takes note of what the keeper says.
    fn take_events(&mut self) {
        while let Ok(Some(heard)) = keeper::receive::<KeeperEvent>(&self.keeper.channel) {
            match heard {
                KeeperEvent::Holding => self.holding = true,
                KeeperEvent::Released => self.holding = false,
                KeeperEvent::Watched(watched) => self.watched = Some(watched),
                KeeperEvent::Ready => (),
            }
        }
    }

    /// Gives the command a signal that came to us alone; those of the terminal go to the whole job, the command included.
    fn forward(&mut self, caught: Caught) {
        const PRESSING: [Signal; 6] =
            [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP, Signal::TSTP, Signal::CONT];
        if PRESSING.iter().any(|signal| signal.as_raw() == caught.signal) {
            // It gets the signal when it runs.
            let _ = keeper::send(&self.keeper.channel, &KeeperCommand::Wake);
        }
        if caught.sender.is_some() {
            // It has ended, or gained privileges: as without us.
            let _ = supervise::send(self.process, caught.signal);
        }
    }

    /// The keeper was killed: nothing stays held, and nothing of it is left.
    fn keeper_gone(&mut self) {
        let except = self.keeper.process;
        self.keeper.process = 0;
        place::remove_trace();
        place::remove_sockets(std::process::id());
        self.let_go(except);
    }

    /// The keeper was stopped by somebody: nothing stays held, and no program waits for its answers. When it goes on, it goes on with the rest.
    fn keeper_stopped(&mut self) {
        place::remove_mailbox(std::process::id());
        self.let_go(self.keeper.process);
    }

    /// Lets the job run; `except` is the keeper.
    fn let_go(&mut self, except: u32) {
        self.holding = false;
        // The cgroup is gone, or was never frozen.
        let _ = match &self.cgroup {
            Some(cgroup) => cgroup.freeze(Freezer::Thawed),
            None => {
                Processes::Below { top: std::process::id(), counted: Counted::No, except }.release()
            }
        };
    }

    /// Tells the keeper that the command has ended, and returns what it saw.
    fn last_words(&mut self) -> Option<Watched> {
        if self.keeper.process != 0 && self.wait_for_summary().is_err() {
            // It was killed, and the news of that comes behind that of the command's end.
            self.keeper_gone();
        }
        if self.keeper.process == 0
            && let Some(cgroup) = &self.cgroup
        {
            // Processes that were left behind go on outside: nobody is here to wait for them.
            let _ = cgroup.dissolve();
        }
        self.watched.take()
    }

    /// Hears the keeper until it has said what it saw, or for too long.
    fn wait_for_summary(&mut self) -> io::Result<()> {
        keeper::send(&self.keeper.channel, &KeeperCommand::Ended)?;
        while self.watched.is_none()
            && sys::socket::wait_readable(&self.keeper.channel, Some(LAST_WORDS))?
        {
            match keeper::receive::<KeeperEvent>(&self.keeper.channel)? {
                Some(KeeperEvent::Watched(watched)) => self.watched = Some(watched),
                Some(_) => (),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }
}
