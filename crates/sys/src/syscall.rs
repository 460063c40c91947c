//! Names and classes of system calls by their number on this architecture, and names of errors.

use serde::{Deserialize, Serialize};
use syscalls::{Errno, Sysno};

/// The calls in which event loops wait.
pub const EVENT_WAITS: [&str; 8] = [
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
];

/// Returns the name of a call; `None` for a number that is not in the built-in table.
#[must_use]
pub fn call_name(number: u32) -> Option<&'static str> {
    Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
}

/// Returns whether a call looks for events and does not wait for any: its timeout is zero.
#[must_use]
pub fn polls_at_once(number: u32, arguments: &[u64; 6]) -> bool {
    // An `int`, of which the upper half of the register says nothing.
    let is_zero = |argument: u64| argument & 0xffff_ffff == 0;
    match call_name(number) {
        Some("poll") => is_zero(arguments[2]),
        Some("epoll_wait" | "epoll_pwait") => is_zero(arguments[3]),
        _ => false,
    }
}

/// A call that sleeps if it is given no descriptor, and a time.
#[derive(Clone, Copy, Debug)]
pub struct SleepCall {
    /// Its name.
    pub name: &'static str,
    /// Which argument, counted from 0, is the number of descriptors.
    pub count: usize,
    /// Which argument is the time.
    pub time: usize,
}

/// The calls of [`EVENT_WAITS`] with which programs sleep: `select(0, NULL, NULL, NULL, &time)`.
pub const SLEEPS: [SleepCall; 4] = [
    SleepCall { name: "poll", count: 1, time: 2 },
    SleepCall { name: "ppoll", count: 1, time: 2 },
    SleepCall { name: "select", count: 0, time: 4 },
    SleepCall { name: "pselect6", count: 0, time: 4 },
];

/// Returns whether a call is no wait for events but a sleep.
#[must_use]
pub fn sleeps(number: u32, arguments: &[u64; 6]) -> bool {
    // An `int`, of which the upper half of the register says nothing.
    let is_none = |argument: u64| argument & 0xffff_ffff == 0;
    let name = call_name(number);
    SLEEPS.iter().any(|call| {
        Some(call.name) == name && is_none(arguments[call.count]) && arguments[call.time] != 0
    })
}

/// Returns whether a call executes another program, after which the caller's memory and stack are gone.
#[must_use]
pub fn runs_program(number: u32) -> bool {
    matches!(call_name(number), Some("execve" | "execveat"))
}

/// Returns the number of the call with this name, `None` if this architecture has no such call.
#[must_use]
pub fn call_number(name: &str) -> Option<u32> {
    name.parse::<Sysno>().ok().and_then(|call| u32::try_from(call.id()).ok())
}

/// Returns the name of an error, such as `ENOENT`; a number without a name is written as `errno 4095`.
#[must_use]
pub fn error_name(errno: i32) -> String {
    // Results that the kernel reports to a tracer for a call that it will restart; programs never see them.
    match errno {
        512 => return "ERESTARTSYS".to_owned(),
        513 => return "ERESTARTNOINTR".to_owned(),
        514 => return "ERESTARTNOHAND".to_owned(),
        516 => return "ERESTART_RESTARTBLOCK".to_owned(),
        _ => (),
    }
    Errno::new(errno).name().map_or_else(|| format!("errno {errno}"), str::to_owned)
}

/// Returns the number of the error with this name.
#[must_use]
pub fn error_number(name: &str) -> Option<i32> {
    match name {
        "EAGAIN" => return Some(11),
        "ENOTSUP" => return error_number("EOPNOTSUPP"),
        _ => (),
    }
    (1..600).find(|errno| error_name(*errno) == name)
}

/// The class of a call, which determines its colour in charts and the advice about it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyscallClass {
    /// Waits until bytes are on the disk.
    Sync,
    /// Looks up files, or changes names and attributes.
    Names,
    /// Transfers bytes of open files, pipes and sockets.
    Data,
    /// Waits for a descriptor, a lock, a child or the time.
    Wait,
    /// Works on a socket.
    Network,
    /// Starts a program or a thread.
    Process,
    /// Anything else.
    Other,
}

impl SyscallClass {
    /// All classes, in the order in which charts list them.
    pub const ALL: [SyscallClass; 7] = [
        SyscallClass::Sync,
        SyscallClass::Names,
        SyscallClass::Data,
        SyscallClass::Wait,
        SyscallClass::Network,
        SyscallClass::Process,
        SyscallClass::Other,
    ];

    /// Returns the class of the call with this name.
    #[must_use]
    pub fn of(name: &str) -> SyscallClass {
        match name {
            "fsync" | "fdatasync" | "sync" | "syncfs" | "sync_file_range" | "msync" => {
                SyscallClass::Sync
            }
            "open" | "openat" | "openat2" | "creat" | "close" | "stat" | "lstat" | "fstat"
            | "newfstatat" | "statx" | "statfs" | "fstatfs" | "access" | "faccessat"
            | "faccessat2" | "readlink" | "readlinkat" | "rename" | "renameat" | "renameat2"
            | "unlink" | "unlinkat" | "link" | "linkat" | "symlink" | "symlinkat" | "mkdir"
            | "mkdirat" | "rmdir" | "truncate" | "ftruncate" | "fallocate" | "getdents"
            | "getdents64" | "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown"
            | "lchown" | "fchownat" | "utimensat" | "utime" | "utimes" | "inotify_add_watch"
            | "mount" | "umount2" | "getxattr" | "lgetxattr" | "fgetxattr" | "setxattr"
            | "lsetxattr" | "fsetxattr" | "listxattr" | "chdir" | "fchdir" | "getcwd" => {
                SyscallClass::Names
            }
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "write" | "pwrite64"
            | "writev" | "pwritev" | "pwritev2" | "sendfile" | "copy_file_range" | "splice"
            | "tee" | "ioctl" | "lseek" | "readahead" | "fadvise64" => SyscallClass::Data,
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
            | "epoll_pwait2" | "futex" | "futex_wait" | "futex_waitv" | "nanosleep"
            | "clock_nanosleep" | "pause" | "wait4" | "waitid" | "flock" | "fcntl" | "semop"
            | "semtimedop" | "io_uring_enter" | "io_getevents" | "rt_sigtimedwait"
            | "rt_sigsuspend" | "restart_syscall" => SyscallClass::Wait,
            "socket" | "connect" | "accept" | "accept4" | "bind" | "listen" | "sendto"
            | "sendmsg" | "sendmmsg" | "recvfrom" | "recvmsg" | "recvmmsg" | "shutdown"
            | "getsockopt" | "setsockopt" => SyscallClass::Network,
            "execve" | "execveat" | "fork" | "vfork" | "clone" | "clone3" | "exit"
            | "exit_group" => SyscallClass::Process,
            _ => SyscallClass::Other,
        }
    }

    /// Returns the word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SyscallClass::Sync => "sync",
            SyscallClass::Names => "names",
            SyscallClass::Data => "data",
            SyscallClass::Wait => "wait",
            SyscallClass::Network => "network",
            SyscallClass::Process => "process",
            SyscallClass::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_two_ways_to_say_one_thing() {
        for name in ["fdatasync", "openat", "newfstatat", "ppoll", "clone3", "futex"] {
            let number = call_number(name);
            assert_eq!(number.and_then(call_name), Some(name));
        }
        assert_eq!(call_name(1_000_000), None);
        for name in ["ENOENT", "EAGAIN", "ERESTARTSYS", "EOPNOTSUPP"] {
            assert_eq!(error_number(name).map(error_name).as_deref(), Some(name));
        }
        assert_eq!(error_name(4095), "errno 4095");
        assert_eq!(error_number("EWHAT"), None);
    }

    #[test]
    fn a_look_for_events_without_a_timeout_is_told_from_a_wait() {
        let number = |name| call_number(name).unwrap();
        let with = |at: usize, value: u64| {
            let mut arguments = [7; 6];
            arguments[at] = value;
            arguments
        };
        assert!(polls_at_once(number("poll"), &with(2, 0xdead_beef_0000_0000)));
        assert!(polls_at_once(number("epoll_wait"), &with(3, 0)));
        for timeout in [1, 0xffff_ffff] {
            assert!(!polls_at_once(number("poll"), &with(2, timeout)), "{timeout}");
        }
        assert!(!polls_at_once(number("ppoll"), &[0; 6]), "its timeout is behind a pointer");
    }
}
