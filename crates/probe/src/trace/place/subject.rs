//! Which argument of a call says what it works on.

/// What a call works on, by the positions of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
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
}

/// Returns what the call `name` works on; none where no argument says it.
pub(super) fn subject(name: &str) -> Option<Subject> {
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
            Subject::Descriptor(0)
        }
        "sendfile" => Subject::Descriptor(1),
        "epoll_ctl" => Subject::Descriptor(2),
        "mmap" => Subject::Descriptor(4),
        "open" => Subject::Opened(None, 0),
        "creat" => Subject::Opened(None, 0),
        "openat" | "openat2" => Subject::Opened(Some(0), 1),
        "stat" | "lstat" | "access" | "readlink" | "mkdir" | "rmdir" | "unlink" | "truncate"
        | "chmod" | "chown" | "lchown" | "utime" | "utimes" | "statfs" | "chdir" | "chroot"
        | "execve" | "mknod" | "umount2" | "getxattr" | "lgetxattr" | "setxattr" | "lsetxattr"
        | "listxattr" | "llistxattr" | "removexattr" | "lremovexattr" => Subject::Path(0),
        "inotify_add_watch" => Subject::Path(1),
        "newfstatat" | "statx" | "mkdirat" | "mknodat" | "unlinkat" | "faccessat"
        | "faccessat2" | "readlinkat" | "fchmodat" | "fchmodat2" | "fchownat" | "utimensat"
        | "futimesat" | "execveat" | "name_to_handle_at" => Subject::PathAt(0, 1),
        "rename" | "link" | "symlink" | "mount" => Subject::Paths(0, 1),
        "renameat" | "renameat2" | "linkat" => Subject::PathsAt([0, 1, 2, 3]),
        "symlinkat" => Subject::PathAt(1, 2),
        "connect" => Subject::Connect,
        "futex" => Subject::Futex,
        "wait4" | "waitid" => Subject::Child,
        "poll" | "ppoll" => Subject::Poll,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_names_its_descriptor_and_an_open_its_path() {
        assert_eq!(subject("fdatasync"), Some(Subject::Descriptor(0)));
        assert_eq!(subject("openat"), Some(Subject::Opened(Some(0), 1)));
        assert_eq!(subject("sync"), None);
    }
}
