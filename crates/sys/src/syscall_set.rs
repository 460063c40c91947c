//! The sets of system calls to record, and the roles of their arguments.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::syscall::{call_name, call_number};

/// No known architecture has calls with this number or above.
pub const NUMBERS: u32 = 1024;

/// Waits until bytes are on the disk.
const SYNC: &[&str] = &["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"];

/// Looks up or changes names: may read directories and inodes from the disk, and may wait for its journal.
const NAMES: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "mknod",
    "mknodat",
    "truncate",
    "ftruncate",
    "fallocate",
    "getdents",
    "getdents64",
    "statfs",
    "fstatfs",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "chdir",
    "inotify_add_watch",
    "fanotify_mark",
    "mount",
    "umount2",
    "quotactl",
];

/// Transfers bytes of open descriptors.
const DATA: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "sendfile",
    "copy_file_range",
    "splice",
    "tee",
    "vmsplice",
    "ioctl",
    "readahead",
];

/// Waits for time, a descriptor, a lock on a file, a child or a message.
const WAIT: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "wait4",
    "waitid",
    "flock",
    "fcntl",
    "semop",
    "semtimedop",
    "msgrcv",
    "msgsnd",
    "mq_timedsend",
    "mq_timedreceive",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "io_uring_enter",
    "io_getevents",
    "io_pgetevents",
];

/// Waits in memory. A set of its own, because idle threads sleep in it and busy ones call it often.
const LOCK: &[&str] = &["futex", "futex_wait", "futex_waitv"];

/// Works on a socket.
const NETWORK: &[&str] = &[
    "connect", "accept", "accept4", "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg",
    "recvmmsg",
];

/// Starts programs and threads.
const PROCESS: &[&str] = &["execve", "execveat", "fork", "vfork", "clone", "clone3"];

/// The named sets and their calls.
const SETS: &[(&str, &[&[&str]])] = &[
    ("sync", &[SYNC]),
    ("disk", &[SYNC, NAMES]),
    ("blocking", &[SYNC, NAMES, DATA, WAIT, NETWORK, PROCESS]),
    ("waits", &[WAIT, LOCK]),
    ("names", &[NAMES]),
    ("data", &[DATA]),
    ("network", &[NETWORK]),
    ("process", &[PROCESS]),
];

/// Why a list of calls cannot be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// Neither a set nor a call of this architecture has this name.
    #[error(
        "cannot record {0:?}, which is neither a system call nor one of sync, disk, blocking, waits, names, data, network, process, all"
    )]
    Unknown(String),
    /// The list selects no call.
    #[error("cannot record: the list selects no call")]
    Empty,
}

/// The calls to record, as the user chose them and as numbers of this architecture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set {
    text: String,
    /// `None` stands for all calls, including those without a known name.
    numbers: Option<BTreeSet<u32>>,
}

impl Set {
    /// Returns the set of all calls.
    #[must_use]
    pub fn all() -> Set {
        Set { text: "all".to_owned(), numbers: None }
    }

    /// Returns the set of the calls with these numbers.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Set {
        Set { text: "chosen by number".to_owned(), numbers: Some(numbers.into_iter().collect()) }
    }

    /// Returns whether it is the set of all calls.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.numbers.is_none()
    }

    /// Returns whether the set contains the call with this number.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.numbers.as_ref().is_none_or(|numbers| numbers.contains(&number))
    }

    /// Returns whether the usual waits are in the set. Then waits in other calls are told, too: whoever chose a few calls wants only
    /// these.
    #[must_use]
    pub fn has_waits(&self) -> bool {
        let is_wide = |name: &&str| call_number(name).is_none_or(|at| self.contains(at));
        ["read", "poll", "wait4"].iter().all(is_wide)
    }

    /// Returns the numbers in the set, in order; of all calls, those with names.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        match &self.numbers {
            Some(numbers) => numbers.iter().copied().collect(),
            None => (0..NUMBERS).filter(|number| call_name(*number).is_some()).collect(),
        }
    }
}

impl FromStr for Set {
    type Err = SetError;

    /// Parses a list separated by commas: names of sets and of calls, with `!` before those to exclude.
    fn from_str(text: &str) -> Result<Set, SetError> {
        let mut numbers = Some(BTreeSet::new());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, leave_out) =
                word.strip_prefix('!').map_or((word, false), |name| (name, true));
            let Some(named) = named(name)? else {
                numbers = if leave_out { Some(BTreeSet::new()) } else { None };
                continue;
            };
            if leave_out {
                // Excluding calls from all calls yields a list, which cannot contain calls without a known name.
                let numbers =
                    numbers.get_or_insert_with(|| Set::all().numbers().into_iter().collect());
                numbers.retain(|number| !named.contains(number));
            } else if let Some(numbers) = &mut numbers {
                numbers.extend(named);
            }
        }
        if numbers.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(SetError::Empty);
        }
        Ok(Set { text: text.to_owned(), numbers })
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the numbers that a word stands for, `None` for all calls.
fn named(name: &str) -> Result<Option<BTreeSet<u32>>, SetError> {
    if name == "all" {
        return Ok(None);
    }
    if let Some((_, lists)) = SETS.iter().find(|(set, _)| *set == name) {
        // Newer architectures lack the older calls (`open`, `rename`): a set contains those that exist.
        return Ok(Some(
            lists.iter().copied().flatten().filter_map(|name| call_number(name)).collect(),
        ));
    }
    let number = call_number(name).ok_or_else(|| SetError::Unknown(name.to_owned()))?;
    Ok(Some(BTreeSet::from([number])))
}

/// Returns whether a thread waits in this call for what another one does in memory, most often for a lock.
#[must_use]
pub fn waits_in_memory(number: u32) -> bool {
    call_name(number).is_some_and(|name| LOCK.contains(&name))
}

/// Returns whether programs make this call very often, and it nearly always returns at once.
#[must_use]
pub fn is_mostly_fast(number: u32) -> bool {
    let name = call_name(number).unwrap_or_default();
    matches!(
        name,
        "read"
            | "write"
            | "pread64"
            | "pwrite64"
            | "readv"
            | "writev"
            | "close"
            | "open"
            | "openat"
            | "stat"
            | "lstat"
            | "fstat"
            | "newfstatat"
            | "statx"
            | "access"
            | "faccessat"
            | "faccessat2"
            | "readlink"
            | "readlinkat"
            | "ioctl"
            | "fcntl"
            | "lseek"
            | "brk"
            | "getxattr"
            | "lgetxattr"
            | "futex"
    )
}

/// The role of an argument of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ArgumentRole {
    /// An open descriptor that is worked on.
    Descriptor,
    /// The directory to which the following path is relative, or `AT_FDCWD`.
    Directory,
    /// The address of a path that ends with a zero byte.
    Path,
    /// The address of something else: a buffer, a structure.
    Address,
    /// The address of a lock.
    Lock,
    /// An array of `struct pollfd`; the next argument is its length.
    PollList,
    /// A process or thread ID, in the program's PID namespace.
    Process,
    /// A number of bytes or an offset.
    Length,
    /// Bits with names.
    Flags,
    /// Permission bits.
    Mode,
    /// A plain number.
    Number,
}

use ArgumentRole::{
    Address, Descriptor, Directory, Flags, Length, Lock, Mode, Number, Path, PollList, Process,
};

/// Returns the roles of the arguments of the call with this number; nothing for an unknown call.
#[must_use]
pub fn roles(number: u32) -> &'static [ArgumentRole] {
    call_name(number).map_or(&[], roles_of)
}

/// Returns the roles of the arguments of the call with this name.
#[must_use]
fn roles_of(name: &str) -> &'static [ArgumentRole] {
    match name {
        "fsync" | "fdatasync" | "syncfs" | "close" | "fchdir" => &[Descriptor],
        "sync_file_range" => &[Descriptor, Length, Length, Flags],
        "msync" => &[Address, Length, Flags],
        "read" | "write" => &[Descriptor, Address, Length],
        "pread64" | "pwrite64" => &[Descriptor, Address, Length, Length],
        "readv" | "writev" => &[Descriptor, Address, Number],
        "preadv" | "pwritev" => &[Descriptor, Address, Number, Length, Length],
        "preadv2" | "pwritev2" => &[Descriptor, Address, Number, Length, Length, Flags],
        "sendfile" => &[Descriptor, Descriptor, Address, Length],
        "copy_file_range" | "splice" => &[Descriptor, Address, Descriptor, Address, Length, Flags],
        "tee" => &[Descriptor, Descriptor, Length, Flags],
        "vmsplice" => &[Descriptor, Address, Number, Flags],
        "fanotify_mark" => &[Descriptor, Flags, Flags, Directory, Path],
        "quotactl" => &[Number, Path, Number, Address],
        "readahead" => &[Descriptor, Length, Length],
        "ioctl" | "fcntl" => &[Descriptor, Number, Number],
        "flock" => &[Descriptor, Flags],
        "lseek" => &[Descriptor, Length, Number],
        "fstat" | "fstatfs" => &[Descriptor, Address],
        "getdents" | "getdents64" => &[Descriptor, Address, Length],
        "ftruncate" => &[Descriptor, Length],
        "fallocate" => &[Descriptor, Flags, Length, Length],
        "fchmod" => &[Descriptor, Mode],
        "fchown" => &[Descriptor, Number, Number],
        "fgetxattr" | "flistxattr" => &[Descriptor, Address, Address, Length],
        "fsetxattr" => &[Descriptor, Address, Address, Length, Flags],
        "open" => &[Path, Flags, Mode],
        "creat" | "mkdir" | "chmod" => &[Path, Mode],
        "access" => &[Path, Flags],
        "stat" | "lstat" | "statfs" | "utime" | "utimes" => &[Path, Address],
        "readlink" => &[Path, Address, Length],
        "truncate" => &[Path, Length],
        "unlink" | "rmdir" | "chdir" | "chroot" => &[Path],
        "rename" | "link" | "symlink" => &[Path, Path],
        "chown" | "lchown" => &[Path, Number, Number],
        "mknod" => &[Path, Mode, Number],
        "getxattr" | "lgetxattr" | "listxattr" | "llistxattr" => &[Path, Address, Address, Length],
        "setxattr" | "lsetxattr" => &[Path, Address, Address, Length, Flags],
        "mount" => &[Path, Path, Address, Flags, Address],
        "umount2" => &[Path, Flags],
        "openat" => &[Directory, Path, Flags, Mode],
        "openat2" => &[Directory, Path, Address, Length],
        "newfstatat" | "fstatat" => &[Directory, Path, Address, Flags],
        "statx" => &[Directory, Path, Flags, Flags, Address],
        "faccessat" => &[Directory, Path, Flags],
        "faccessat2" | "fchmodat2" => &[Directory, Path, Mode, Flags],
        "readlinkat" => &[Directory, Path, Address, Length],
        "unlinkat" => &[Directory, Path, Flags],
        "mkdirat" | "fchmodat" => &[Directory, Path, Mode],
        "mknodat" => &[Directory, Path, Mode, Number],
        "renameat" => &[Directory, Path, Directory, Path],
        "renameat2" | "linkat" => &[Directory, Path, Directory, Path, Flags],
        "symlinkat" => &[Path, Directory, Path],
        "fchownat" => &[Directory, Path, Number, Number, Flags],
        "futimesat" | "utimensat" => &[Directory, Path, Address, Flags],
        "inotify_add_watch" => &[Descriptor, Path, Flags],
        "execve" => &[Path, Address, Address],
        "execveat" => &[Directory, Path, Address, Address, Flags],
        "connect" | "bind" => &[Descriptor, Address, Length],
        "accept" => &[Descriptor, Address, Address],
        "accept4" => &[Descriptor, Address, Address, Flags],
        "sendto" | "recvfrom" => &[Descriptor, Address, Length, Flags, Address, Length],
        "sendmsg" | "recvmsg" => &[Descriptor, Address, Flags],
        "sendmmsg" | "recvmmsg" => &[Descriptor, Address, Number, Flags, Address],
        "shutdown" | "listen" => &[Descriptor, Number],
        "poll" => &[PollList, Number, Number],
        "ppoll" => &[PollList, Number, Address, Address, Length],
        "select" => &[Number, Address, Address, Address, Address],
        "pselect6" => &[Number, Address, Address, Address, Address, Address],
        "epoll_wait" => &[Descriptor, Address, Number, Number],
        "epoll_pwait" | "epoll_pwait2" => &[Descriptor, Address, Number, Number, Address, Length],
        "futex" => &[Lock, Number, Number, Address, Lock, Number],
        "futex_wait" => &[Lock, Number, Number, Flags, Address, Number],
        "wait4" => &[Process, Address, Flags, Address],
        "waitid" => &[Number, Process, Address, Flags, Address],
        "kill" | "tkill" => &[Process, Number],
        "tgkill" => &[Process, Process, Number],
        "nanosleep" => &[Address, Address],
        "clock_nanosleep" => &[Number, Flags, Address, Address],
        "io_uring_enter" => &[Descriptor, Number, Number, Flags, Address, Length],
        "mmap" => &[Address, Length, Flags, Flags, Descriptor, Length],
        "dup" => &[Descriptor],
        "dup2" => &[Descriptor, Descriptor],
        "dup3" => &[Descriptor, Descriptor, Flags],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_sets_and_calls_and_leaves_some_out() {
        let set: Set = "disk,!close,poll".parse().unwrap();
        let holds = |name: &str| set.contains(call_number(name).unwrap());
        assert!(holds("fsync") && holds("openat") && holds("poll"));
        assert!(!holds("close") && !holds("read"));
        assert_eq!(set.to_string(), "disk,!close,poll");
        assert_eq!("frobnicate".parse::<Set>(), Err(SetError::Unknown("frobnicate".into())));
        assert_eq!("sync,!sync".parse::<Set>(), Err(SetError::Empty));
        assert_eq!(" ,".parse::<Set>(), Err(SetError::Empty));
    }

    #[test]
    fn all_is_every_number_until_something_is_left_out() {
        let all: Set = "all".parse().unwrap();
        assert!(all.is_all() && all.contains(5000));
        let rest: Set = "all,!futex".parse().unwrap();
        assert!(!rest.is_all() && !rest.contains(call_number("futex").unwrap()));
        assert!(rest.contains(call_number("getpid").unwrap()));
    }

    #[test]
    fn every_name_in_a_set_is_a_call_of_this_or_another_architecture() {
        // Calls that exist on older architectures only.
        let lacks = |name: &&&str| call_number(name).is_none();
        let unknown: Vec<_> =
            SETS.iter().flat_map(|(_, lists)| *lists).copied().flatten().filter(lacks).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(unknown, Vec::<&&str>::new());
        }
    }

    #[test]
    fn what_a_set_for_the_disk_holds_has_known_arguments() {
        let without: Vec<_> = "disk,data".parse::<Set>().unwrap().numbers();
        let without: Vec<_> =
            without.into_iter().filter(|n| roles(*n).is_empty()).filter_map(call_name).collect();
        assert_eq!(without, ["sync"], "which takes none");
    }
}
