//! The argument of a call that identifies its target.

/// The kind of a call's target, with the positions of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallObject {
    /// The descriptor in this argument.
    Descriptor(usize),
    /// The path in this argument.
    Path(usize),
    /// The path in the second, relative to the directory in the first.
    PathAt(usize, usize),
    /// A path that is opened, and then a descriptor that the call returns.
    Opened(Option<usize>, usize),
    /// Two paths.
    Paths(usize, usize),
    /// Two paths, each relative to a directory.
    PathsAt([usize; 4]),
    /// A socket that is being connected, and the address.
    Connect,
    /// A word in memory that threads wait on.
    Futex,
    /// A child, by its number.
    Child,
    /// Descriptors in an array of `struct pollfd`, and how many.
    Poll,
    /// Descriptors in the sets of a `select`.
    Select,
}

/// Returns the kind of target of the call `name`; `None` if no argument identifies one.
pub(super) fn subject(name: &str) -> Option<CallObject> {
    Some(match name {
        "read" | "write" | "pread64" | "pwrite64" | "readv" | "writev" | "preadv" | "pwritev"
        | "preadv2" | "pwritev2" | "fsync" | "fdatasync" | "syncfs" | "sync_file_range"
        | "ftruncate" | "fallocate" | "fstat" | "fstatfs" | "getdents" | "getdents64" | "flock"
        | "fcntl" | "ioctl" | "lseek" | "sendto" | "recvfrom" | "sendmsg" | "recvmsg"
        | "sendmmsg" | "recvmmsg" | "accept" | "accept4" | "shutdown" | "bind" | "listen"
        | "getsockopt" | "setsockopt" | "getsockname" | "getpeername" | "fchmod" | "fchown"
        | "fchdir" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "copy_file_range"
        | "splice" | "tee" | "vmsplice" | "fadvise64" | "readahead" | "fgetxattr" | "fsetxattr"
        | "flistxattr" | "fremovexattr" | "io_uring_enter" | "timerfd_settime" => {
            CallObject::Descriptor(0)
        }
        "sendfile" => CallObject::Descriptor(1),
        "epoll_ctl" => CallObject::Descriptor(2),
        "mmap" => CallObject::Descriptor(4),
        "open" => CallObject::Opened(None, 0),
        "creat" => CallObject::Opened(None, 0),
        "openat" | "openat2" => CallObject::Opened(Some(0), 1),
        "stat" | "lstat" | "access" | "readlink" | "mkdir" | "rmdir" | "unlink" | "truncate"
        | "chmod" | "chown" | "lchown" | "utime" | "utimes" | "statfs" | "chdir" | "chroot"
        | "execve" | "mknod" | "umount2" | "getxattr" | "lgetxattr" | "setxattr" | "lsetxattr"
        | "listxattr" | "llistxattr" | "removexattr" | "lremovexattr" => CallObject::Path(0),
        "inotify_add_watch" => CallObject::Path(1),
        "newfstatat" | "statx" | "mkdirat" | "mknodat" | "unlinkat" | "faccessat"
        | "faccessat2" | "readlinkat" | "fchmodat" | "fchmodat2" | "fchownat" | "utimensat"
        | "futimesat" | "execveat" | "name_to_handle_at" => CallObject::PathAt(0, 1),
        "rename" | "link" | "symlink" | "mount" => CallObject::Paths(0, 1),
        "renameat" | "renameat2" | "linkat" => CallObject::PathsAt([0, 1, 2, 3]),
        "symlinkat" => CallObject::PathAt(1, 2),
        "connect" => CallObject::Connect,
        "futex" => CallObject::Futex,
        "wait4" | "waitid" => CallObject::Child,
        "poll" | "ppoll" => CallObject::Poll,
        "select" | "pselect6" => CallObject::Select,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_names_its_descriptor_and_an_open_its_path() {
        assert_eq!(subject("fdatasync"), Some(CallObject::Descriptor(0)));
        assert_eq!(subject("openat"), Some(CallObject::Opened(Some(0), 1)));
        assert_eq!(subject("sync"), None);
    }
}
