//! Who is at the other end of a connection, and which processes are that user's to trace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use sys::bpf::owner::SessionOwner;
use sys::{peer, pidfd};

/// The whole range of users, as only the initial user namespace maps it.
const EVERYBODY: [&str; 3] = ["0", "0", "4294967295"];
/// Where Yama says how far tracing is restricted.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// The most parents of a process that are looked at.
const ANCESTORS: usize = 256;

/// A caller, as the kernel knows him.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) user: u32,
    /// The effective group.
    group: u32,
    /// The other groups.
    groups: Vec<u32>,
    /// The number of the process that connected, which belongs to it as long as `held` cannot be read.
    pub(crate) process: u32,
    /// When that process began, as `/proc/PID/stat` says it.
    pub(crate) start_time: u64,
    held: OwnedFd,
    capabilities: u64,
}

/// Why somebody is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallerError {
    /// He has gone.
    #[error("cannot find out who called")]
    Gone(#[source] io::Error),
    /// He sees other processes or users than the service.
    #[error("callers in a container or a sandbox are not served")]
    Contained,
    /// His process has more rights than the user has.
    #[error("callers that run with other rights than their user's are not served")]
    OtherRights,
}

/// What `/proc/PID/status` says, of what is needed.
#[derive(Debug, Eq, PartialEq)]
struct ProcessStatus {
    /// The process that the thread belongs to.
    process: u32,
    /// How many PID namespaces it has a number in.
    namespaces: usize,
    /// The real, effective, saved and file system's user.
    users: Vec<u32>,
    /// The same of the group.
    groups: Vec<u32>,
    /// The capabilities that count.
    effective: u64,
    /// The capabilities that it can make count.
    permitted: u64,
}

impl ProcessStatus {
    fn read(process: u32) -> io::Result<ProcessStatus> {
        let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        ProcessStatus::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<ProcessStatus> {
        let line =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let bits = |name: &str| u64::from_str_radix(line(name)?.trim(), 16).ok();
        Some(ProcessStatus {
            process: *numbers("Tgid")?.first()?,
            // Without PID namespaces there is no such line.
            namespaces: numbers("NSpid").map_or(1, |numbers| numbers.len()),
            users: numbers("Uid").filter(|users| users.len() == 4)?,
            groups: numbers("Gid").filter(|groups| groups.len() == 4)?,
            effective: bits("CapEff")?,
            permitted: bits("CapPrm")?,
        })
    }

    /// Says whether all its users and groups are these.
    fn is_of(&self, user: u32, group: u32) -> bool {
        self.users.iter().all(|one| *one == user) && self.groups.iter().all(|one| *one == group)
    }
}

/// Returns a field of `/proc/PID/stat` by its number in proc(5), of those behind the name.
fn stat_field(process: u32, number: usize) -> io::Result<u64> {
    let text = std::fs::read(format!("/proc/{process}/stat"))?;
    // The name may hold anything, a parenthesis too; what follows the last one are numbers.
    let behind = text.iter().rposition(|byte| *byte == b')').map(|at| &text[at + 1..]);
    let words = behind.and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
    let field = number.checked_sub(3).and_then(|at| words.split_whitespace().nth(at));
    field.and_then(|field| field.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Says whether a user may look into a process of his: what `/proc` has of one that may not be dumped belongs to root.
fn is_open_to(user: u32, process: u32) -> io::Result<bool> {
    // Of the directory itself it always belongs to the user.
    Ok(std::fs::metadata(format!("/proc/{process}/stat"))?.uid() == user)
}

fn no_such_process() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error())
}

impl Caller {
    /// Finds out who connected `socket`.
    pub(crate) fn of(socket: impl AsFd) -> Result<Caller, CallerError> {
        let socket = socket.as_fd();
        let made = peer::credentials(socket).map_err(CallerError::Gone)?;
        let groups = peer::groups(socket).map_err(CallerError::Gone)?;
        if made.process == 0 {
            return Err(CallerError::Contained);
        }
        let (held, process) = peer::process(socket).map_err(CallerError::Gone)?;
        let status = ProcessStatus::read(process).map_err(CallerError::Gone)?;
        let map = std::fs::read_to_string(format!("/proc/{process}/uid_map"))
            .map_err(CallerError::Gone)?;
        let start_time = stat_field(process, 22).map_err(CallerError::Gone)?;
        let is_open = is_open_to(made.user, process).map_err(CallerError::Gone)?;
        // If it has not ended by now, all of this was said of it.
        if pidfd::has_ended(&held).map_err(CallerError::Gone)? {
            return Err(CallerError::Gone(no_such_process()));
        }
        if status.namespaces != 1 || !map.split_whitespace().eq(EVERYBODY) {
            return Err(CallerError::Contained);
        }
        // It may have executed a program with other rights since it connected, whose capabilities are not the user's.
        if !is_open || !status.is_of(made.user, made.group) {
            return Err(CallerError::OtherRights);
        }
        Ok(Caller {
            user: made.user,
            group: made.group,
            groups,
            process,
            start_time,
            held,
            capabilities: status.effective,
        })
    }

    /// Returns whose processes his sessions record.
    pub(crate) fn owner(&self) -> SessionOwner {
        SessionOwner { user: self.user, group: self.group, capabilities: self.capabilities }
    }

    /// Says whether he is in a group.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }

    /// Returns a descriptor that can be read when his process has ended.
    pub(crate) fn held(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    /// Says whether he may trace a process: none of another user, none with other rights, and with Yama none but his
    /// descendants. The programs in the kernel ask again at each event.
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such process.
    pub(crate) fn may_trace(&self, process: u32) -> io::Result<bool> {
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => no_such_process(),
            _ => error,
        };
        let held = pidfd::open(process).map_err(|_| no_such_process())?;
        let status = ProcessStatus::read(process).map_err(gone)?;
        if status.process != process || !status.is_of(self.user, self.group) {
            return Ok(false);
        }
        let is_open = is_open_to(self.user, process).map_err(gone)?;
        let is_allowed = match yama() {
            0 => is_open,
            1 => is_open && self.is_ancestor_of(process),
            _ => false,
        };
        if pidfd::has_ended(&held)? {
            return Err(no_such_process());
        }
        Ok(is_allowed)
    }

    /// Says whether he may trace all his processes, and not his descendants alone, as Yama can have it.
    pub(crate) fn may_trace_all_his_own() -> bool {
        yama() == 0
    }

    fn is_ancestor_of(&self, process: u32) -> bool {
        let parent = |process: &u32| {
            let parent = stat_field(*process, 4).ok().and_then(|parent| u32::try_from(parent).ok());
            parent.filter(|parent| *parent > 1)
        };
        std::iter::successors(Some(process), parent).take(ANCESTORS).any(|one| one == self.process)
    }
}

/// Returns whether a process has begun to end, or has ended: `PF_EXITING` in the flags of its first thread, proc(5).
pub(crate) fn is_ending(process: u32) -> bool {
    const EXITING: u64 = 0x4;
    !stat_field(process, 9).is_ok_and(|flags| flags & EXITING == 0)
}

/// Returns Yama's restriction; what cannot be understood is the strictest.
fn yama() -> u32 {
    match std::fs::read_to_string(YAMA) {
        Ok(text) => text.trim().parse().unwrap_or(u32::MAX),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(_) => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ta) b\nTgid:\t17\nNSpid:\t17\t3\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapPrm:\t00000000000000ff\nCapEff:\t000001ffffffffff\n";

    #[test]
    fn the_state_of_a_process_is_read() {
        let status = ProcessStatus::parse(STATUS).unwrap();
        assert_eq!((status.process, status.namespaces), (17, 2));
        assert_eq!((&*status.users, &*status.groups), (&[1, 2, 3, 4][..], &[5, 6, 7, 8][..]));
        assert_eq!((status.permitted, status.effective), (0xff, 0x1ff_ffff_ffff));
        assert!(!status.is_of(1, 5));
        for missing in ["Tgid", "Uid", "Gid", "CapEff", "CapPrm"] {
            assert_eq!(ProcessStatus::parse(&STATUS.replace(missing, "x")), None, "{missing}");
        }
        assert_eq!(ProcessStatus::parse(&STATUS.replace("\t4\n", "\n")), None);
    }

    #[test]
    fn the_fields_behind_a_name_are_found() {
        let own = std::process::id();
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
        assert_eq!(stat_field(own, 4).unwrap(), u64::from(parent));
        assert!(stat_field(own, 22).unwrap() > 0);
        assert!(stat_field(own, 1000).is_err());
        assert!(stat_field(own, 0).is_err());
    }

    #[test]
    fn a_caller_is_who_the_kernel_says_and_traces_his_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = sys::socket::listen_at(&path).unwrap();
        let _here = sys::socket::connect_to(&path).unwrap();
        let there = sys::socket::accept_at(&listener).unwrap();
        let caller = Caller::of(&there);
        let status = ProcessStatus::read(std::process::id()).unwrap();
        if status.namespaces != 1 {
            assert!(matches!(caller, Err(CallerError::Contained)));
            return;
        }
        let caller = caller.unwrap();
        assert_eq!(caller.process, std::process::id());
        assert_eq!(caller.user, rustix::process::geteuid().as_raw());
        assert!(caller.is_in(rustix::process::getegid().as_raw()));
        // Beyond what any machine has as a number.
        assert!(caller.may_trace(u32::MAX).is_err());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let may = caller.may_trace(child.id());
        assert!(!is_ending(child.id()) && !is_ending(std::process::id()));
        child.kill().unwrap();
        // It is there until its parent takes its end.
        let held = pidfd::open(child.id()).unwrap();
        rustix::event::poll(
            &mut [rustix::event::PollFd::new(&held, rustix::event::PollFlags::IN)],
            None,
        )
        .unwrap();
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(may.unwrap() || yama() > 1);
        assert!(caller.may_trace(child.id()).is_err(), "it has ended");
    }
}
