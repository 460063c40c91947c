//! Arguments of a call in a few words: what its target does not say already.

use crate::trace::kernel::call_name;

/// Flags of `open` by bit, besides the way of access.
const OPEN: [(u64, &str); 11] = [
    (0o100, "CREAT"),
    (0o200, "EXCL"),
    (0o1000, "TRUNC"),
    (0o2000, "APPEND"),
    (0o4000, "NONBLOCK"),
    (0o10000, "DSYNC"),
    (0o4_000_000, "SYNC"),
    (0o40000, "DIRECT"),
    (0o200_000, "DIRECTORY"),
    (0o400_000, "NOFOLLOW"),
    (0o20_000_000, "TMPFILE"),
];

/// Returns the arguments that matter: `WRONLY|CREAT|TRUNC`, `4096 bytes`, `1000 ms`; empty where none does.
#[must_use]
pub fn text(number: u32, arguments: &[u64; 6]) -> String {
    let [first, second, third, fourth, ..] = *arguments;
    match call_name(number).unwrap_or_default() {
        "open" => open(second),
        "openat" => open(third),
        "read" | "write" | "pread64" | "pwrite64" | "sendto" | "recvfrom" => {
            format!("descriptor {}, {third} bytes", descriptor(first))
        }
        "readv" | "writev" | "preadv" | "pwritev" => {
            format!("descriptor {}, {third} parts", descriptor(first))
        }
        "sendfile" | "copy_file_range" => {
            format!("descriptors {} and {}", descriptor(first), descriptor(second))
        }
        "fsync" | "fdatasync" | "syncfs" | "close" | "fstat" | "getdents64" | "sendmsg"
        | "recvmsg" | "connect" | "accept" | "accept4" | "sync_file_range" | "epoll_wait"
        | "epoll_pwait" => {
            format!("descriptor {}", descriptor(first))
        }
        "ftruncate" => format!("descriptor {}, to {second} bytes", descriptor(first)),
        "truncate" => format!("to {second} bytes"),
        "fallocate" => format!("descriptor {}, {fourth} bytes", descriptor(first)),
        "poll" => format!("{second} descriptors, {}", timeout(third)),
        "ppoll" => format!("{second} descriptors"),
        "flock" => flock(first, second),
        "fcntl" => fcntl(first, second),
        "futex" => futex(second),
        "ioctl" => {
            format!("descriptor {}, request 0x{:x}", descriptor(first), second & 0xffff_ffff)
        }
        "mkdir" | "mkdirat" => String::new(),
        "access" => mode(second),
        "faccessat" | "faccessat2" => mode(third),
        "kill" | "tgkill" => format!("{first}, {second}"),
        _ => String::new(),
    }
}

fn descriptor(argument: u64) -> String {
    i32::from_le_bytes([
        argument.to_le_bytes()[0],
        argument.to_le_bytes()[1],
        argument.to_le_bytes()[2],
        argument.to_le_bytes()[3],
    ])
    .to_string()
}

fn open(flags: u64) -> String {
    let access = match flags & 3 {
        0 => "RDONLY",
        1 => "WRONLY",
        _ => "RDWR",
    };
    let mut words = vec![access];
    // Close-on-exec says nothing about time; SYNC includes DSYNC, TMPFILE includes DIRECTORY.
    words.extend(OPEN.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word));
    if words.contains(&"SYNC") {
        words.retain(|word| *word != "DSYNC");
    }
    words.join("|")
}

fn timeout(milliseconds: u64) -> String {
    match milliseconds & 0xffff_ffff {
        ms if ms >= 1 << 31 => "no limit".to_owned(),
        ms => format!("{ms} ms"),
    }
}

fn flock(first: u64, operation: u64) -> String {
    let kind = match operation & 3 {
        1 => "shared",
        2 => "exclusive",
        _ => "unlock",
    };
    format!("descriptor {}, {kind}", descriptor(first))
}

fn fcntl(first: u64, command: u64) -> String {
    let command = match command & 0xffff_ffff {
        3 => "GETFL",
        4 => "SETFL",
        5 => "GETLK",
        6 => "SETLK",
        7 => "SETLKW",
        37 => "OFD_SETLK",
        38 => "OFD_SETLKW",
        1030 => "DUPFD_CLOEXEC",
        _ => "",
    };
    [&*format!("descriptor {}", descriptor(first)), command].join(" ").trim_end().to_owned()
}

fn futex(operation: u64) -> String {
    let word = match operation & 0x7f {
        0 => "WAIT",
        1 => "WAKE",
        3 => "REQUEUE",
        4 => "CMP_REQUEUE",
        6 => "LOCK_PI",
        9 => "WAIT_BITSET",
        11 => "WAIT_REQUEUE_PI",
        13 => "LOCK_PI2",
        _ => "",
    };
    word.to_owned()
}

fn mode(mode: u64) -> String {
    let bits = [(4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
    let words: Vec<&str> =
        bits.iter().filter(|(bit, _)| mode & bit != 0).map(|(_, word)| *word).collect();
    if words.is_empty() { "F_OK".to_owned() } else { words.join("|") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::kernel::call_number;

    fn of(name: &str, arguments: [u64; 6]) -> String {
        text(call_number(name).unwrap(), &arguments)
    }

    #[test]
    fn flags_and_sizes_read_as_words() {
        assert_eq!(of("openat", [0, 0, 0o2_001_101, 0o644, 0, 0]), "WRONLY|CREAT|TRUNC");
        assert_eq!(of("openat", [0, 0, 0o4_010_002, 0, 0, 0]), "RDWR|SYNC");
        assert_eq!(of("read", [3, 0, 4096, 0, 0, 0]), "descriptor 3, 4096 bytes");
        assert_eq!(of("poll", [0, 2, 0xffff_ffff, 0, 0, 0]), "2 descriptors, no limit");
        assert_eq!(of("futex", [0, 128 | 9, 0, 0, 0, 0]), "WAIT_BITSET");
        assert_eq!(of("fcntl", [4, 7, 0, 0, 0, 0]), "descriptor 4 SETLKW");
        assert_eq!(of("access", [0, 0, 0, 0, 0, 0]), "F_OK");
    }
}
