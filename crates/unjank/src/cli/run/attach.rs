//! `unjank run --attach`: a program or a unit that runs already is treated as if it had been started by us, until it ends or we do.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use session::clock::SystemClock;
use session::jobs::Class;
use session::jobs::cgroup::Cgroup;
use session::jobs::keeper::{self, KeeperCommand, Options, Subject};
use session::jobs::tree::{Counted, Processes};
use sys::mounts::Mounts;
use sys::sched::{CpuClass, IoClass};
use sys::supervise::{self, Side};

use super::supervisor::How;
use super::{launches, place};
use crate::cli::interrupt;
use crate::error::{Error, Kind, Verdict};

/// How often it is looked whether it has ended.
const ROUND: Duration = Duration::from_millis(200);

/// Holds what `target` names, a process or a unit, while others wait; until it ends, or Ctrl-C.
pub(super) fn run(how: &How, target: &str) -> Result<Verdict, Error> {
    let mounts = Mounts::read().unwrap_or_else(|_| Mounts::parse(b""));
    let processes = find(&mounts, target)?;
    let disks = place::disks(&mounts, None);
    let (ours, theirs) = sys::socket::pair()?;
    let clock = SystemClock::start();
    let supervisor = std::process::id();
    let keeper = match supervise::fork()? {
        Side::Parent(keeper) => keeper,
        Side::Child => {
            drop(ours);
            if supervise::detach(&[theirs.as_fd()]).is_ok() {
                let _ignored = place::ignore_requests_to_end();
                let control_socket = place::control_socket(supervisor);
                let options = Options {
                    command: vec![target.to_owned()],
                    subject: Subject::Found(processes),
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
    let changed = Changed::to(how.class, &processes);
    let first = processes.list().first().copied().unwrap_or(0);
    // It is gone: the job then runs without holds.
    let _ = keeper::send(&ours, &KeeperCommand::Started(first));
    watch(&ours, &processes, &stop);
    drop(ours);
    // It releases the job when we are gone; if it was killed, nobody else does.
    let _ = rustix::process::waitpid(
        i32::try_from(keeper).ok().and_then(rustix::process::Pid::from_raw),
        rustix::process::WaitOptions::empty(),
    );
    let _ = processes.release();
    changed.back();
    Ok(Verdict::Yes)
}

/// Waits until the processes or the keeper have ended, or we are to.
fn watch(channel: &OwnedFd, processes: &Processes, stop: &std::sync::atomic::AtomicBool) {
    while !stop.load(Ordering::Relaxed) && !processes.list().is_empty() {
        if sys::socket::wait_readable(channel, Some(ROUND)).unwrap_or(false) {
            match keeper::receive::<keeper::KeeperEvent>(channel) {
                Ok(Some(_)) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

fn find(mounts: &Mounts, target: &str) -> Result<Processes, Error> {
    let missing = |what: String| {
        Error::new(Kind::User, what)
            .hint("give the number of a process or the name of a unit, as systemctl shows it")
    };
    if let Ok(process) = target.parse::<u32>() {
        if process == 0 || !fs::exists(format!("/proc/{process}")).unwrap_or(false) {
            return Err(missing(format!("find process {target}")));
        }
        return Ok(Processes::Below { top: process, counted: Counted::Yes, except: 0 });
    }
    Cgroup::of_unit(mounts, target)
        .map(Processes::Cgroup)
        .ok_or_else(|| missing(format!("find the unit {target:?}")))
}

/// The threads whose classes were changed, and what they were.
struct Changed(Vec<(u32, IoClass, CpuClass)>);

impl Changed {
    /// Changes the classes of all threads; those of strangers stay as they are.
    fn to(class: Class, processes: &Processes) -> Changed {
        let mut changed = Vec::new();
        for process in processes.list() {
            for thread in threads(process) {
                let (Ok(io), Ok(cpu)) = (IoClass::of(thread), CpuClass::of(thread)) else {
                    continue;
                };
                if class.io().set(thread).is_ok() {
                    // Refused for a real-time thread of a stranger: its reads and writes yield all the same.
                    let _ = class.cpu().set(thread);
                    changed.push((thread, io, cpu));
                }
            }
        }
        Changed(changed)
    }

    /// Gives them back, also to what they have started since.
    fn back(self) {
        for (thread, io, cpu) in self.0 {
            // It has ended.
            let _ = io.set(thread);
            let _ = cpu.set(thread);
        }
    }
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
