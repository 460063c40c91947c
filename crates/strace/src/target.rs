//! The target of a logged call: paths in quotes, paths of descriptors, addresses of peers.

use std::collections::HashMap;

use super::line::{find, split, string, unescape};
use trace::recording::Target;

/// The known targets of descriptors, by process and number.
#[derive(Debug, Default)]
pub(super) struct Descriptors(HashMap<(u32, i64), Target>);

/// The most descriptors that are remembered.
const DESCRIPTORS: usize = 100_000;

impl Descriptors {
    /// Learns from a call that succeeded.
    pub(super) fn learn(&mut self, process: u32, name: &str, arguments: &[&[u8]], result: i64) {
        let first = arguments.first().and_then(|first| leading_number(first));
        match name {
            "close" => {
                first.map(|fd| self.0.remove(&(process, fd)));
            }
            "open" | "creat" | "openat" | "openat2" if self.0.len() < DESCRIPTORS => {
                if let Some(target) = path(name, arguments) {
                    self.0.insert((process, result), target);
                }
            }
            "dup" | "dup2" | "dup3" if self.0.len() < DESCRIPTORS => {
                let known = first.and_then(|fd| self.0.get(&(process, fd))).cloned();
                known.map(|target| self.0.insert((process, result), target));
            }
            _ => (),
        }
    }

    /// Returns what a call worked on; `connect` is remembered even where it only begins to connect.
    pub(super) fn target(
        &mut self,
        process: u32,
        name: &str,
        arguments: &[&[u8]],
    ) -> Option<Target> {
        if let Some(target) = path(name, arguments) {
            return Some(target);
        }
        let first = *arguments.first()?;
        if matches!(name, "connect" | "sendto" | "sendmsg" | "sendmmsg") {
            let address = arguments.iter().skip(1).find_map(|argument| address(argument));
            if let (Some(target), Some(fd)) = (address, leading_number(first)) {
                if self.0.len() < DESCRIPTORS {
                    self.0.insert((process, fd), target.clone());
                }
                return Some(target);
            }
        }
        let descriptor = if matches!(name, "poll" | "ppoll") {
            // Only a wait for one descriptor waits for somebody in particular.
            let inner = first.strip_prefix(b"[{fd=")?;
            if find(inner, b"{fd=").is_some() {
                return None;
            }
            inner
        } else if has_descriptor(name) {
            first
        } else {
            return None;
        };
        let fd = leading_number(descriptor)?;
        self.0.get(&(process, fd)).cloned().or_else(|| annotated(descriptor))
    }
}

/// Whether a call's first argument is a descriptor.
fn has_descriptor(name: &str) -> bool {
    matches!(
        name,
        "fsync"
            | "fdatasync"
            | "syncfs"
            | "sync_file_range"
            | "close"
            | "fstat"
            | "fstatfs"
            | "ftruncate"
            | "fallocate"
            | "getdents"
            | "getdents64"
            | "fchmod"
            | "fchown"
            | "read"
            | "write"
            | "pread64"
            | "pwrite64"
            | "readv"
            | "writev"
            | "preadv"
            | "pwritev"
            | "preadv2"
            | "pwritev2"
            | "sendfile"
            | "copy_file_range"
            | "splice"
            | "ioctl"
            | "lseek"
            | "fcntl"
            | "flock"
            | "recvfrom"
            | "recvmsg"
            | "recvmmsg"
            | "sendto"
            | "sendmsg"
            | "sendmmsg"
            | "connect"
            | "accept"
            | "accept4"
            | "newfstatat"
            | "statx"
    )
}

/// Reads the number that a text begins with.
pub(super) fn leading_number(text: &[u8]) -> Option<i64> {
    let end = (0..text.len())
        .find(|at| !(text[*at].is_ascii_digit() || *at == 0 && text[0] == b'-'))
        .unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

/// Returns what stands in the angle brackets behind a descriptor.
fn annotation(text: &[u8]) -> Option<&[u8]> {
    let open = text.iter().position(|byte| *byte == b'<')?;
    let inner = &text[open + 1..];
    let end = (0..inner.len()).find(|at| inner[*at] == b'>' && (*at == 0 || inner[at - 1] != b'-'));
    Some(&inner[..end?])
}

fn annotated(text: &[u8]) -> Option<Target> {
    let inner = annotation(text)?;
    if inner.starts_with(b"/") {
        // A device's numbers follow its path: `</dev/null<char 1:3>>`.
        let end = inner.iter().position(|byte| *byte == b'<').unwrap_or(inner.len());
        return Some(Target::File { path: unescape(&inner[..end]), mount: None });
    }
    let words = String::from_utf8_lossy(inner).into_owned();
    let is_socket =
        ["UNIX", "TCP", "UDP", "NETLINK", "RAW"].iter().any(|kind| words.starts_with(kind));
    // Without `-yy` a socket is a number that says nothing.
    match words.split_once(':') {
        _ if is_socket => Some(Target::Socket { peer: words, request: None }),
        Some((kind @ ("socket" | "pipe"), _)) => Some(Target::Other(format!("a {kind}"))),
        Some(("anon_inode", kind)) => Some(Target::Other(kind.trim_matches(['[', ']']).to_owned())),
        _ => Some(Target::Other(words)),
    }
}

/// Returns the path or the paths in the arguments of a call that takes some.
fn path(name: &str, arguments: &[&[u8]]) -> Option<Target> {
    let at = |at: usize| string(arguments.get(at)?).filter(|path| !path.is_empty());
    let below = |dir: usize, at_: usize| Some(join(arguments.get(dir)?, at(at_)?));
    match name {
        "rename" | "link" | "symlink" => {
            Some(Target::Files { from: at(0)?, to: at(1)?, mount: None })
        }
        "renameat" | "renameat2" | "linkat" => {
            Some(Target::Files { from: below(0, 1)?, to: below(2, 3)?, mount: None })
        }
        "symlinkat" => Some(Target::Files { from: at(0)?, to: below(1, 2)?, mount: None }),
        "open" | "creat" | "stat" | "lstat" | "statfs" | "access" | "readlink" | "unlink"
        | "rmdir" | "mkdir" | "chdir" | "truncate" | "chmod" | "chown" | "lchown" | "execve"
        | "getxattr" | "lgetxattr" => Some(Target::File { path: at(0)?, mount: None }),
        "openat" | "openat2" | "newfstatat" | "statx" | "faccessat" | "faccessat2"
        | "readlinkat" | "unlinkat" | "mkdirat" | "fchmodat" | "fchownat" | "utimensat"
        | "execveat" | "inotify_add_watch" => {
            Some(Target::File { path: below(0, 1)?, mount: None })
        }
        _ => None,
    }
}

/// Puts a path behind the directory that its descriptor is said to be.
fn join(dir: &[u8], path: Vec<u8>) -> Vec<u8> {
    match annotation(dir) {
        Some(dir) if !path.starts_with(b"/") && dir.starts_with(b"/") => {
            let dir = unescape(dir);
            [dir.strip_suffix(b"/").unwrap_or(&dir), b"/", &path].concat()
        }
        _ => path,
    }
}

/// Reads a socket's address: `{sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("1.2.3.4")}`.
fn address(text: &[u8]) -> Option<Target> {
    let family = find(text, b"sa_family=AF_")?;
    let text = &text[family..];
    let quoted = |after: &[u8]| string(&text[find(text, after)? + after.len()..]);
    let port = || {
        let at = find(text, b"_port=htons(")? + b"_port=htons(".len();
        leading_number(&text[at..])
    };
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let peer = if let Some(path) = quoted(b"sun_path=").or_else(|| quoted(b"sun_path=@")) {
        lossy(path)
    } else if let Some(host) = quoted(b"inet_addr(") {
        format!("{}:{}", lossy(host), port()?)
    } else if let Some(host) = quoted(b"inet_pton(AF_INET6, ") {
        format!("[{}]:{}", lossy(host), port()?)
    } else {
        let end = text.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap_or(text.len());
        lossy(text[b"sa_family=".len()..end].to_vec())
    };
    Some(Target::Socket { peer, request: None })
}

/// Reads an array of strings: `["ls", "-l"]`.
pub(super) fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let inner = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
    let items = split(inner.unwrap_or_default(), 1000).into_iter();
    // What strace cut says so, so that nobody takes it for the whole.
    let whole = |item: &[u8]| {
        let end: &[u8] = if item.ends_with(b"\"...") { b"..." } else { b"" };
        Some([string(item)?, end.to_vec()].concat())
    };
    items.filter_map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, arguments: &str) -> Option<Target> {
        Descriptors::default().target(1, name, &split(arguments.as_bytes(), 8))
    }

    fn file(path: &str) -> Option<Target> {
        Some(Target::File { path: path.as_bytes().to_vec(), mount: None })
    }

    #[test]
    fn a_call_names_what_it_works_on() {
        assert_eq!(target("fdatasync", "4</tmp/a\\76b>"), file("/tmp/a>b"));
        assert_eq!(target("openat", r#"AT_FDCWD</home>, "x/y", O_RDONLY"#), file("/home/x/y"));
        assert_eq!(target("access", r#""/usr/share", R_OK"#), file("/usr/share"));
        assert_eq!(target("newfstatat", r#"3</a>, "", {}, AT_EMPTY_PATH"#), file("/a"));
        assert_eq!(target("write", "1</dev/pts/0<char 136:0>>, \"x\", 1"), file("/dev/pts/0"));
        assert_eq!(target("brk", "NULL"), None);
        let socket = |peer: &str| Some(Target::Socket { peer: peer.to_owned(), request: None });
        assert_eq!(
            target(
                "connect",
                "3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr(\"9.9.9.9\")}, 16"
            ),
            socket("9.9.9.9:53")
        );
        assert_eq!(target("recvmsg", "3<UNIX-STREAM:[1->2]>, {}, 0"), socket("UNIX-STREAM:[1->2]"));
    }

    #[test]
    fn a_descriptor_is_remembered_from_open_and_connect_until_close() {
        let mut known = Descriptors::default();
        known.learn(1, "openat", &[b"AT_FDCWD", b"\"/x\"", b"O_RDONLY"], 5);
        assert_eq!(known.target(1, "fsync", &[b"5"]), file("/x"));
        assert_eq!(known.target(2, "fsync", &[b"5"]), None);
        known.learn(1, "close", &[b"5"], 0);
        assert_eq!(known.target(1, "fsync", &[b"5"]), None);
        known.target(1, "connect", &[b"6", b"{sa_family=AF_UNIX, sun_path=\"/run/bus\"}", b"16"]);
        let polled =
            known.target(1, "poll", &[b"[{fd=6<socket:[9]>, events=POLLIN}]", b"1", b"-1"]);
        assert!(matches!(polled, Some(Target::Socket { peer, .. }) if peer == "/run/bus"));
    }

    #[test]
    fn a_command_line_is_an_array_of_strings() {
        assert_eq!(words(br#"["ls", "a,b]", "\n"...]"#), [&b"ls"[..], b"a,b]", b"\n..."]);
        assert!(words(b"0x7ffc /* 3 vars */").is_empty());
    }
}
