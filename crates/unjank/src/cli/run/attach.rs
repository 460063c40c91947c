//! `unjank run --attach`: a program or a unit that runs already is treated as if it had been started by us, until it ends or we do.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jobs::attached::ChangedClasses;
use jobs::cgroup::Cgroup;
use jobs::keeper::{self, HoldPolicy, JobProcesses, KeeperCommand, KeeperEvent, KeeperOptions};
use jobs::supervisor::ignore_requests_to_end;
use jobs::tree::{Counted, Processes, StoppedProcesses};
use rustix::process::Signal;
use sys::clock::SystemClock;
use sys::mounts::Mounts;
use sys::pidfd::{ChildEvent, next_change};
use sys::supervise::{self, ForkSide};

use super::supervisor::JobOptions;
use super::{launches, place};
use crate::cli::interrupt;
use crate::error::{Error, FailureCategory, Verdict};

/// How often it is looked whether it has ended.
const ROUND: Duration = Duration::from_millis(200);

/// Holds what `target` names, a process or a unit, while others wait; until it ends, or Ctrl-C.
pub(super) fn run(how: &JobOptions, target: &str) -> Result<Verdict, Error> {
    let mounts = Mounts::read().unwrap_or_else(|_| Mounts::parse(b""));
    let processes = find(&mounts, target)?;
    if how.pauses == HoldPolicy::WhileOthersWait && processes.is_in_foreground() {
        return Err(Error::new(FailureCategory::User, format!("attach to {target}"))
            .because("it has its terminal, which its shell would take back at the first hold")
            .hint(
                "continue it in the background (Ctrl-Z, then bg), or do without holds: --no-pause",
            ));
    }
    let disks = place::disks(&mounts, None);
    let (ours, theirs) = sys::socket::pair()?;
    let clock = SystemClock::start();
    let supervisor = std::process::id();
    let keeper = match supervise::fork()? {
        ForkSide::Parent(keeper) => keeper,
        ForkSide::Child => {
            drop(ours);
            if supervise::detach(&[theirs.as_fd()]).is_ok() {
                let _ignored = ignore_requests_to_end();
                let control_socket = place::jobs().and_then(|folder| folder.listen(supervisor));
                let options = KeeperOptions {
                    command: vec![target.to_owned()],
                    subject: JobProcesses::Found(processes),
                    limits: how.limits,
                    pauses: how.pauses,
                    disks: disks.into_iter().map(|disk| disk.name).collect(),
                    issued: None,
                    outside: None,
                    // Its programs run already and load nothing.
                    mailbox: None,
                    launches: launches::watch(),
                    control_socket,
                };
                keeper::keep(options, &theirs, &clock);
            }
            supervise::exit_now(0);
        }
    };
    drop(theirs);
    // Before anything is changed that would have to be put back.
    let stop = interrupt::flag();
    let mut changed = ChangedClasses::set(how.class, &processes);
    let first = processes.list().first().copied().unwrap_or(0);
    // It is gone: the job then runs without holds.
    let _ = sys::message::send(&ours, &KeeperCommand::Started(first));
    let mut attached =
        Attached { channel: ours, keeper: Some(keeper), stopped: StoppedProcesses::default() };
    attached.watch(&processes, &mut changed, &stop);
    attached.end_keeper();
    // If it was killed, nobody else lets the job run.
    let _ = processes.release(&mut attached.stopped);
    changed.restore(&processes);
    Ok(Verdict::Yes)
}

/// The keeper of a job that ran before.
struct Attached {
    channel: OwnedFd,
    /// The process, until its end was taken.
    keeper: Option<u32>,
    /// What it has stopped by signals.
    stopped: StoppedProcesses,
}

impl Attached {
    /// Waits until `processes` or the keeper have ended, or we are to.
    fn watch(&mut self, processes: &Processes, changed: &mut ChangedClasses, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let list = processes.list();
            if list.is_empty() {
                return;
            }
            changed.follow(&list);
            // A signal ends the wait early, which does no harm.
            let _ = sys::socket::wait_readable(&self.channel, Some(ROUND));
            if !self.take_events() {
                return;
            }
            // A shell may have left us other children by exec.
            while let Ok(Some((process, change))) = next_change() {
                match change {
                    _ if Some(process) != self.keeper => (),
                    ChildEvent::Ended(_) => {
                        self.keeper = None;
                        return;
                    }
                    ChildEvent::Stopped(_) => {
                        // It lets nothing run until it is continued.
                        self.take_events();
                        let _ = processes.release(&mut self.stopped);
                    }
                    ChildEvent::Continued => (),
                }
            }
        }
    }

    /// Takes note of what the keeper has stopped; returns whether it still runs.
    fn take_events(&mut self) -> bool {
        loop {
            match sys::message::receive::<KeeperEvent>(&self.channel) {
                Ok(Some(KeeperEvent::Stopping(some))) => self.stopped.add(&some),
                Ok(Some(KeeperEvent::Released)) => self.stopped.clear(),
                Ok(Some(KeeperEvent::Ready | KeeperEvent::Watched(_))) => (),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                Ok(None) => return false,
            }
        }
    }

    /// Has the keeper let the job run and end.
    fn end_keeper(&mut self) {
        // What it has said can still be read.
        let _ = sys::socket::hang_up(&self.channel);
        if let Some(keeper) = self.keeper.take() {
            // Its stop may have been taken note of already, and is not reported again.
            let _ = supervise::send(keeper, Signal::CONT.as_raw());
            let _ = supervise::keep_running(keeper);
        }
        self.take_events();
    }
}

fn find(mounts: &Mounts, target: &str) -> Result<Processes, Error> {
    let missing = |what: String| {
        Error::new(FailureCategory::User, what)
            .hint("give a process ID, or the name of a unit as systemctl shows it")
    };
    let processes = if let Ok(process) = target.parse::<u32>() {
        if process == 0 || !fs::exists(format!("/proc/{process}")).unwrap_or(false) {
            return Err(missing(format!("find process {target}")));
        }
        Processes::Below { top: process, counted: Counted::Yes, except: 0 }
    } else {
        Cgroup::of_unit(mounts, target)
            .map(Processes::Cgroup)
            .ok_or_else(|| missing(format!("find the unit {target:?}")))?
    };
    // A hold would stop the keeper, too: nobody would be left to end it.
    if processes.contains(std::process::id()) {
        return Err(Error::new(FailureCategory::User, format!("attach to {target}"))
            .because("this command runs in it")
            .hint("give a process or a unit that this command is no part of"));
    }
    match processes.check_control() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::new(FailureCategory::User, format!("attach to {target}"))
                .because(error)
                .hint("attach as the user whom it belongs to, or as root"))
        }
        // Without a freezer it gets another class, and is not held. It may also have ended.
        _ => Ok(processes),
    }
}
