//! The process between the shell and the command: it passes signals, stops and the exit status on in both directions.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sys::clock::Clock;
use sys::mounts::Mounts;
use sys::pidfd::{ChildEvent, ProcessEnd, next_change};
use sys::signals::{Caught, Signals};
use sys::supervise::{self, ForkSide};

use super::cgroup::{Cgroup, Freezer};
use super::controller::ControllerLimits;
use super::held_command::HeldCommand;
use super::keeper::{
    self, HoldPolicy, JobProcesses, KeeperCommand, KeeperEvent, KeeperOptions, PrivateSocket,
};
use super::report::{JobDisk, Watched};
use super::runtime::{self, JobsFolder};
use super::stat::ProcessStat;
use super::tree::StoppedProcesses;

/// How long the keeper may take to become ready, and to send its summary at the end.
const KEEPER_LIMIT: Duration = Duration::from_secs(2);

/// Returns the signals that the command receives: all that a program can be sent, apart from those that a fault of the supervisor itself raises.
#[must_use]
pub fn forwarded_signals() -> Vec<i32> {
    const KEPT: [Signal; 7] = [
        Signal::KILL,
        Signal::STOP,
        Signal::SEGV,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::ABORT,
    ];
    let is_kept = |number: i32| KEPT.iter().any(|signal| signal.as_raw() == number);
    // 32 and 33 belong to the C library.
    (1..=64).filter(|&number| !is_kept(number) && !(32..=33).contains(&number)).collect()
}

/// Keeps this process, a keeper, from ending with the processes around it: it ends when its job is released.
#[must_use]
pub fn ignore_requests_to_end() -> Option<Signals> {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    Signals::collect(&signals.map(Signal::as_raw)).ok()
}

/// A job that is about to start.
pub struct SupervisedJob<'j> {
    /// The command line, for `unjank jobs`.
    pub command: &'j [String],
    /// When the job is held.
    pub limits: ControllerLimits,
    /// Whether it is.
    pub pauses: HoldPolicy,
    /// Where a program works that does not load our library, if that is known before.
    pub outside: Option<PathBuf>,
    /// The disks that it works on.
    pub disks: &'j [JobDisk],
    /// The folder of all jobs; without one `unjank jobs` does not find it.
    pub folder: Option<&'j JobsFolder>,
    /// Makes, in the keeper, the socket on which each launch of a program is a message.
    pub launches: &'j dyn Fn() -> Option<OwnedFd>,
}

/// The cgroup of the command, for the keeper.
#[derive(Serialize, Deserialize)]
struct Placed {
    cgroup: Option<Cgroup>,
}

/// The keeper, from the supervisor's side.
#[derive(Debug)]
pub struct KeeperProcess {
    process: u32,
    channel: OwnedFd,
}

impl KeeperProcess {
    /// Starts the keeper of a job.
    ///
    /// # Errors
    ///
    /// As `socketpair(2)` and `fork(2)`; nothing was started.
    pub fn start(job: &SupervisedJob<'_>, clock: &dyn Clock) -> io::Result<KeeperProcess> {
        let supervisor = std::process::id();
        let (ours, theirs) = sys::socket::pair()?;
        match supervise::fork()? {
            ForkSide::Parent(process) => Ok(KeeperProcess { process, channel: ours }),
            ForkSide::Child => {
                drop(ours);
                if supervise::detach(&[theirs.as_fd()]).is_err() {
                    supervise::exit_now(1);
                }
                let _ignored = ignore_requests_to_end();
                // This process makes them, so they have an owner from their first moment.
                let control_socket = job.folder.and_then(|folder| folder.listen(supervisor));
                let mailbox = job.folder.map(|folder| folder.mailbox(supervisor));
                let mailbox = mailbox.and_then(|path| PrivateSocket::listen_at(path).ok());
                let issued = runtime::trace_requests(job.disks, supervisor);
                // The command does not run yet. If it never does, the keeper removes at once what it made.
                let _ = sys::socket::wait_readable(&theirs, None);
                let placed = sys::message::receive::<Placed>(&theirs).ok().flatten();
                let left = || {
                    let mounts = Mounts::read().ok()?;
                    runtime::left_cgroup(&mounts, supervisor)
                };
                let cgroup = placed.map_or_else(left, |placed| placed.cgroup);
                let options = KeeperOptions {
                    command: job.command.to_vec(),
                    subject: cgroup
                        .map_or(JobProcesses::Supervised(supervisor), JobProcesses::Made),
                    limits: job.limits,
                    pauses: job.pauses,
                    disks: job.disks.iter().map(|disk| disk.name.clone()).collect(),
                    issued,
                    outside: job.outside.clone(),
                    mailbox,
                    launches: (job.launches)(),
                    control_socket,
                };
                keeper::keep(options, &theirs, clock);
                supervise::exit_now(0);
            }
        }
    }

    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }
}

/// Passes on what happens between the shell, the command and the keeper.
#[derive(Debug)]
pub struct Supervisor {
    process: u32,
    keeper: KeeperProcess,
    cgroup: Option<Cgroup>,
    folder: Option<JobsFolder>,
    /// What the keeper has stopped by signals.
    stopped: StoppedProcesses,
    /// A Ctrl-Z, or a signal like it, that came meanwhile.
    suspended_by: Option<Caught>,
    watched: Option<Watched>,
}

impl Supervisor {
    /// Starts the command under its keeper, in the cgroup in which it was put.
    ///
    /// # Errors
    ///
    /// As `execve(2)`; the command does not run.
    pub fn start(
        waiting: HeldCommand,
        keeper: KeeperProcess,
        cgroup: Option<Cgroup>,
        folder: Option<JobsFolder>,
    ) -> io::Result<Supervisor> {
        // It fails if the keeper was killed: the job then runs without holds.
        let _ = sys::message::send(&keeper.channel, &Placed { cgroup: cgroup.clone() });
        // A keeper that is ready sees also what the command does first; one that is late sees the rest.
        let _ = sys::socket::wait_readable(&keeper.channel, Some(KEEPER_LIMIT));
        let process = waiting.go()?;
        let stopped = StoppedProcesses::default();
        Ok(Supervisor {
            process,
            keeper,
            cgroup,
            folder,
            stopped,
            suspended_by: None,
            watched: None,
        })
    }

    /// Returns whether the command has a cgroup of its own.
    #[must_use]
    pub fn has_cgroup(&self) -> bool {
        self.cgroup.is_some()
    }

    /// Passes on what happens until the command has ended, and returns how it ended.
    pub fn wait(&mut self, signals: &mut Signals) -> ProcessEnd {
        // It fails if the keeper was killed: the job then runs without holds.
        let _ = sys::message::send(&self.keeper.channel, &KeeperCommand::Started(self.process));
        loop {
            let mut polled = [
                PollFd::new(&*signals, PollFlags::IN),
                PollFd::new(&self.keeper.channel, PollFlags::IN),
            ];
            let has_keeper = self.keeper.process != 0;
            let watched = if has_keeper { &mut polled[..] } else { &mut polled[..1] };
            // A signal that is not blocked ends the wait early, which does no harm.
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
                        ChildEvent::Ended(_) => self.keeper_gone(),
                        ChildEvent::Stopped(_) => self.keeper_stopped(),
                        ChildEvent::Continued => (),
                    }
                } else if process == self.process {
                    match change {
                        ChildEvent::Ended(ended) => {
                            // From here on its number may be another process's.
                            self.suspended_by = None;
                            return ended;
                        }
                        ChildEvent::Stopped(signal) if self.is_stopped_by_others() => {
                            supervise::stop_by(signal);
                        }
                        ChildEvent::Stopped(_) | ChildEvent::Continued => (),
                    }
                }
            }
        }
    }

    /// Returns whether the command is stopped, and not by the keeper.
    fn is_stopped_by_others(&mut self) -> bool {
        if !self.stopped.is_empty() {
            return false;
        }
        // The keeper may have continued it since the kernel reported the stop, or be stopping it now, which it has announced before.
        let is_stopped = ProcessStat::of(self.process).is_some_and(|stat| stat.is_stopped);
        self.take_events();
        is_stopped && self.stopped.is_empty()
    }

    /// Handles what the keeper has sent.
    fn take_events(&mut self) {
        while let Ok(Some(event)) = sys::message::receive::<KeeperEvent>(&self.keeper.channel) {
            self.take_event(event);
        }
    }

    fn take_event(&mut self, event: KeeperEvent) {
        match event {
            KeeperEvent::Stopping(some) => self.stopped.add(&some),
            KeeperEvent::Released => self.forget_stopped(),
            KeeperEvent::Watched(watched) => self.watched = Some(watched),
            KeeperEvent::Ready => (),
        }
    }

    /// Takes note that what was stopped by signals runs again, and suspends it if somebody asked for that meanwhile.
    fn forget_stopped(&mut self) {
        match self.suspended_by.take() {
            Some(Caught { signal, sender: Some(_) }) => {
                // It fails if the command has ended or gained privileges, as it would for the sender.
                let _ = supervise::send(self.process, signal);
            }
            // The terminal sends it to the whole job.
            Some(Caught { signal, sender: None }) => {
                let group = rustix::process::getpgrp().as_raw_nonzero().get();
                self.stopped.signal_group(group, signal);
            }
            None => (),
        }
        self.stopped.clear();
    }

    /// Sends the command a signal that this process alone received; those of the terminal reach the whole job, the command included.
    fn forward(&mut self, caught: Caught) {
        const WAKING: [Signal; 6] =
            [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP, Signal::TSTP, Signal::CONT];
        if WAKING.iter().any(|signal| signal.as_raw() == caught.signal) {
            // A held job handles the signal only when it runs.
            let _ = sys::message::send(&self.keeper.channel, &KeeperCommand::Wake);
        }
        if caught.signal == Signal::TSTP.as_raw() && !self.stopped.is_empty() {
            // The SIGCONT that ends the hold discards it (signal(7)): it is sent again afterwards.
            self.suspended_by = Some(caught);
        } else if caught.sender.is_some() {
            // It fails if the command has ended or gained privileges, as it would for the sender.
            let _ = supervise::send(self.process, caught.signal);
        }
    }

    /// Handles the end of a keeper that was killed: releases the job and removes what the keeper owned.
    fn keeper_gone(&mut self) {
        // What it announced last is what it may have stopped.
        self.take_events();
        self.keeper.process = 0;
        runtime::remove_trace(std::process::id());
        if let Some(folder) = &self.folder {
            folder.remove_sockets(std::process::id());
        }
        self.release();
    }

    /// Handles a keeper that was stopped: releases the job, and removes the mailbox, so that no program waits for its answers.
    fn keeper_stopped(&mut self) {
        if let Some(folder) = &self.folder {
            folder.remove_mailbox(std::process::id());
        }
        self.release();
    }

    /// Lets the job run.
    fn release(&mut self) {
        self.stopped.resume();
        self.forget_stopped();
        if let Some(cgroup) = &self.cgroup {
            // It fails if the cgroup is gone.
            let _ = cgroup.freeze(Freezer::Thawed);
        }
    }

    /// Tells the keeper that the command has ended, and returns its summary.
    pub fn summary(&mut self) -> Option<Watched> {
        if self.keeper.process != 0 && self.wait_for_summary().is_err() {
            // It was killed, and the kernel reports that after the command's end.
            self.keeper_gone();
        }
        if self.keeper.process == 0
            && let Some(cgroup) = &self.cgroup
        {
            // Processes that still run move to the parent cgroup: no supervisor is left to wait for them.
            let _ = cgroup.dissolve();
        }
        self.watched.take()
    }

    /// Receives the keeper's events until its summary comes or the time limit is over.
    fn wait_for_summary(&mut self) -> io::Result<()> {
        sys::message::send(&self.keeper.channel, &KeeperCommand::Ended)?;
        while self.watched.is_none()
            && sys::socket::wait_readable(&self.keeper.channel, Some(KEEPER_LIMIT))?
        {
            match sys::message::receive::<KeeperEvent>(&self.keeper.channel)? {
                Some(event) => self.take_event(event),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }
}
