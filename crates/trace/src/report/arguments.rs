//! A call as people read it: `fdatasync(4</home/ana/x>)`, made of its registers and its target.

use super::spelling::spell;
use crate::call::{CallEnd, TracedCall};
use crate::recording::Target;

/// Says what each argument of a call is, a letter each:
/// `d` directory descriptor, `f` descriptor, `p` path, `q` second path, `a` address, `n` number without sign, `i` with sign, `o` flags of open, `x` other flags.
fn signature(name: &str) -> Option<&'static str> {
    Some(match name {
        "fsync" | "fdatasync" | "syncfs" | "close" | "fchdir" => "f",
        "sync" | "pause" => "",
        "msync" => "anx",
        "sync_file_range" => "fnnx",
        "open" | "creat" => "pox",
        "openat" => "dpox",
        "openat2" => "dpan",
        "stat" | "lstat" | "statfs" => "pa",
        "fstat" | "fstatfs" => "fa",
        "newfstatat" => "dpax",
        "statx" => "dpxxa",
        "access" => "px",
        "faccessat" => "dpx",
        "faccessat2" => "dpxx",
        "readlink" => "pan",
        "readlinkat" => "dpan",
        "rename" | "link" | "symlink" => "pq",
        "renameat" => "dpdq",
        "renameat2" => "dpdqx",
        "linkat" => "dpdqx",
        "symlinkat" => "pdq",
        "unlink" | "rmdir" | "chdir" => "p",
        "unlinkat" => "dpx",
        "mkdir" => "px",
        "mkdirat" => "dpx",
        "truncate" => "pn",
        "ftruncate" => "fn",
        "fallocate" => "fxnn",
        "getdents" | "getdents64" | "read" | "write" => "fan",
        "chmod" => "px",
        "fchmod" => "fx",
        "fchmodat" => "dpx",
        "chown" | "lchown" => "pii",
        "fchown" => "fii",
        "fchownat" => "dpiix",
        "utimensat" => "dpax",
        "inotify_add_watch" => "fpx",
        "pread64" | "pwrite64" => "fann",
        "readv" | "writev" => "fan",
        "preadv" | "pwritev" => "fann",
        "sendfile" => "ffan",
        "copy_file_range" => "fafanx",
        "splice" => "fafanx",
        "ioctl" => "fxa",
        "fcntl" => "fia",
        "flock" => "fx",
        "poll" => "ani",
        "ppoll" => "anaa",
        "select" | "pselect6" => "naaaa",
        "epoll_wait" | "epoll_pwait" => "fani",
        "epoll_pwait2" => "fana",
        "futex" => "axnaan",
        "nanosleep" => "aa",
        "clock_nanosleep" => "ixaa",
        "wait4" => "iaxa",
        "waitid" => "iiaxa",
        "connect" | "accept" | "bind" => "fan",
        "accept4" => "fanx",
        "sendto" | "recvfrom" => "fanxan",
        "sendmsg" | "recvmsg" => "fax",
        "sendmmsg" | "recvmmsg" => "fanxa",
        "execve" => "paa",
        "execveat" => "dpaax",
        "io_uring_enter" => "fnnx",
        "vfork" | "fork" => "",
        _ => return None,
    })
}

/// `AT_FDCWD` of `<fcntl.h>`.
const HERE: i32 = -100;

/// Takes the lower half of a register, as the kernel does for an `int`.
fn int(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Writes a call's name and arguments.
#[must_use]
pub(super) fn text(name: &str, call: &TracedCall, target: Option<&Target>) -> String {
    // Of a wait that nobody looked at, the wake-ups tell the call alone.
    if call.outcome == CallEnd::Unknown && call.arguments == [0; 6] && target.is_none() {
        return format!("{name}(…)");
    }
    let shape = signature(name).unwrap_or_else(|| {
        let used = call.arguments.iter().rposition(|argument| *argument != 0);
        &"xxxxxx"[..used.map_or(0, |last| last + 1)]
    });
    // A path belongs to the path argument if there is one, else to the first descriptor.
    let has_path = shape.contains('p');
    let mut is_told = false;
    let words: Vec<String> = shape
        .chars()
        .zip(call.arguments)
        .map(|(letter, value)| match letter {
            'd' | 'f' if int(value) == HERE => "AT_FDCWD".to_owned(),
            'd' => int(value).to_string(),
            'f' => {
                let of = described(target).filter(|_| !has_path && !is_told);
                is_told = true;
                of.map_or_else(|| int(value).to_string(), |of| format!("{}<{of}>", int(value)))
            }
            'p' => path(target, 0).unwrap_or_else(|| address(value)),
            'q' => path(target, 1).unwrap_or_else(|| address(value)),
            'a' => address(value),
            'n' => value.to_string(),
            'i' => int(value).to_string(),
            'o' => open_flags(value),
            _ => format!("{value:#x}"),
        })
        .collect();
    format!("{name}({})", words.join(", "))
}

fn address(value: u64) -> String {
    if value == 0 { "NULL".to_owned() } else { format!("{value:#x}") }
}

fn path(target: Option<&Target>, which: usize) -> Option<String> {
    let bytes = match (target?, which) {
        (Target::File { path, .. }, 0) => path,
        (Target::Files { from, .. }, 0) => from,
        (Target::Files { to, .. }, 1) => to,
        _ => return None,
    };
    Some(format!("\"{}\"", spell(bytes)))
}

/// Says in a word what a descriptor stands for.
fn described(target: Option<&Target>) -> Option<String> {
    match target? {
        Target::File { path, .. } => Some(spell(path)),
        Target::Socket { peer, .. } | Target::Display { peer, .. } => Some(spell(peer.as_bytes())),
        Target::Other(what) => Some(spell(what.as_bytes())),
        _ => None,
    }
}

/// Writes the flags of open that matter to somebody who looks for waits.
fn open_flags(value: u64) -> String {
    use rustix::fs::OFlags;
    let mut words = vec![match value & 3 {
        0 => "O_RDONLY",
        1 => "O_WRONLY",
        _ => "O_RDWR",
    }];
    let known = [
        (OFlags::CREATE, "O_CREAT"),
        (OFlags::EXCL, "O_EXCL"),
        (OFlags::TRUNC, "O_TRUNC"),
        (OFlags::APPEND, "O_APPEND"),
        (OFlags::DIRECTORY, "O_DIRECTORY"),
        (OFlags::SYNC, "O_SYNC"),
        (OFlags::DIRECT, "O_DIRECT"),
    ];
    for (flag, word) in known {
        if value & u64::from(flag.bits()) == u64::from(flag.bits()) {
            words.push(word);
        }
    }
    // O_SYNC has the bit of O_DSYNC in it.
    if value & u64::from((OFlags::DSYNC | OFlags::SYNC).bits()) == u64::from(OFlags::DSYNC.bits()) {
        words.push("O_DSYNC");
    }
    words.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallEnd;

    fn call(arguments: [u64; 6]) -> TracedCall {
        TracedCall {
            process: 1,
            thread: 1,
            number: 0,
            arguments,
            outcome: CallEnd::Unknown,
            start_ns: 0,
            wall_ns: 0,
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        }
    }

    #[test]
    fn a_call_reads_as_it_was_written() {
        let file = Target::File { path: b"/a\xff".to_vec(), mount: None };
        let two = Target::Files { from: b"/a".to_vec(), to: b"/b".to_vec(), mount: None };
        let here = u64::from(HERE.cast_unsigned());
        assert_eq!(text("fdatasync", &call([4; 6]), Some(&file)), r"fdatasync(4</a\xff>)");
        assert_eq!(
            text("openat", &call([here, 0x7f00, 0o2101, 0o644, 9, 9]), Some(&file)),
            r#"openat(AT_FDCWD, "/a\xff", O_WRONLY|O_CREAT|O_APPEND, 0x1a4)"#
        );
        assert_eq!(
            text("renameat2", &call([here, 1, here, 2, 0, 0]), Some(&two)),
            r#"renameat2(AT_FDCWD, "/a", AT_FDCWD, "/b", 0x0)"#
        );
        assert_eq!(text("poll", &call([0, 3, u64::MAX, 0, 0, 0]), None), "poll(NULL, 3, -1)");
        assert_eq!(text("strange", &call([1, 0, 16, 0, 0, 0]), None), "strange(0x1, 0x0, 0x10)");
        assert_eq!(text("openat2", &call([u64::MAX; 6]), None).matches(',').count(), 3);
    }
}
