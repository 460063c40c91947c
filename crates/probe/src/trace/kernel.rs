//! The kernel's names: of calls, by their number on this architecture, and of errors.

use serde::{Deserialize, Serialize};
use syscalls::{Errno, Sysno};

/// Returns the name of a call; none for a number that is not in the table that we were built with.
#[must_use]
pub fn call_name(number: u32) -> Option<&'static str> {
    Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
}

/// Says whether a call runs another program: after it the memory that it was made from is gone, with the stack.
#[must_use]
pub fn runs_program(number: u32) -> bool {
    matches!(call_name(number), Some("execve" | "execveat"))
}

/// Returns the number of the call with this name, none where this architecture has no such call.
#[must_use]
pub fn call_number(name: &str) -> Option<u32> {
    name.parse::<Sysno>().ok().and_then(|call| u32::try_from(call.id()).ok())
}

/// Returns the name of an error, as `ENOENT`; a number that has none is written as `errno 4095`.
#[must_use]
pub fn error_name(errno: i32) -> String {
    // What the kernel says to a tracer about a call that it will restart; no program sees these.
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

/// What a call is about; the colour of a chart and a pattern of advice go by it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Waits until bytes are on the disk.
    Sync,
    /// Looks files up, or changes names and attributes.
    Names,
    /// Moves bytes of files, pipes and sockets that are open.
    Data,
    /// Waits for a descriptor, a lock, a child or the time.
    Wait,
    /// Talks over a socket.
    Network,
    /// Starts a program or a thread.
    Process,
    /// Anything else.
    Other,
}

impl Class {
    /// All of them, in the order in which charts name them.
    pub const ALL: [Class; 7] = [
        Class::Sync,
        Class::Names,
        Class::Data,
        Class::Wait,
        Class::Network,
        Class::Process,
        Class::Other,
    ];

    /// Returns the class of the call with this name.
    #[must_use]
    pub fn of(name: &str) -> Class {
        match name {
            "fsync" | "fdatasync" | "sync" | "syncfs" | "sync_file_range" | "msync" => Class::Sync,
            "open" | "openat" | "openat2" | "creat" | "close" | "stat" | "lstat" | "fstat"
            | "newfstatat" | "statx" | "statfs" | "fstatfs" | "access" | "faccessat"
            | "faccessat2" | "readlink" | "readlinkat" | "rename" | "renameat" | "renameat2"
            | "unlink" | "unlinkat" | "link" | "linkat" | "symlink" | "symlinkat" | "mkdir"
            | "mkdirat" | "rmdir" | "truncate" | "ftruncate" | "fallocate" | "getdents"
            | "getdents64" | "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown"
            | "lchown" | "fchownat" | "utimensat" | "utime" | "utimes" | "inotify_add_watch"
            | "mount" | "umount2" | "getxattr" | "lgetxattr" | "fgetxattr" | "setxattr"
            | "lsetxattr" | "fsetxattr" | "listxattr" | "chdir" | "fchdir" | "getcwd" => {
                Class::Names
            }
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "write" | "pwrite64"
            | "writev" | "pwritev" | "pwritev2" | "sendfile" | "copy_file_range" | "splice"
            | "tee" | "ioctl" | "lseek" | "readahead" | "fadvise64" => Class::Data,
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
            | "epoll_pwait2" | "futex" | "futex_wait" | "futex_waitv" | "nanosleep"
            | "clock_nanosleep" | "pause" | "wait4" | "waitid" | "flock" | "fcntl" | "semop"
            | "semtimedop" | "io_uring_enter" | "io_getevents" | "rt_sigtimedwait"
            | "rt_sigsuspend" | "restart_syscall" => Class::Wait,
            "socket" | "connect" | "accept" | "accept4" | "bind" | "listen" | "sendto"
            | "sendmsg" | "sendmmsg" | "recvfrom" | "recvmsg" | "recvmmsg" | "shutdown"
            | "getsockopt" | "setsockopt" => Class::Network,
            "execve" | "execveat" | "fork" | "vfork" | "clone" | "clone3" | "exit"
            | "exit_group" => Class::Process,
            _ => Class::Other,
        }
    }

    /// Returns the word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Class::Sync => "sync",
            Class::Names => "names",
            Class::Data => "data",
            Class::Wait => "wait",
            Class::Network => "network",
            Class::Process => "process",
            Class::Other => "other",
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
}
