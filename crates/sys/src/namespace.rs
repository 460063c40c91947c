//! Namespaces of processes, and which are inside of which.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::fstat;

/// `NS_GET_PARENT` of `linux/nsfs.h`.
const NS_GET_PARENT: libc::Ioctl = 0xb702;
/// Process namespaces are nested no deeper (`MAX_PID_NS_LEVEL`).
const MOST_LEVELS: usize = 32;

/// Returns the numbers of a process namespace and of those around it, from the inside, as far as we can see; `link` is
/// `ns/pid` of a process. A process cannot leave the namespaces that it is in.
///
/// # Errors
///
/// The process has ended, or hides.
pub fn around(link: &Path) -> io::Result<Vec<u64>> {
    let mut namespace = OwnedFd::from(File::open(link)?);
    let mut found = vec![fstat(&namespace)?.st_ino];
    while found.len() < MOST_LEVELS {
        // SAFETY: takes a descriptor and returns another one, or an error for one that is of no such namespace.
        let parent = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
        if parent < 0 {
            // The next one is our own's parent, which is not for us to see.
            break;
        }
        // SAFETY: the kernel made it for us just now; nobody else has it.
        namespace = unsafe { OwnedFd::from_raw_fd(parent) };
        found.push(fstat(&namespace)?.st_ino);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_namespace_in_a_namespace_shows_both() {
        let own = around(Path::new("/proc/self/ns/pid")).unwrap();
        let mut inner = Command::new("unshare");
        inner.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        inner.args(["sh", "-c", "echo began; read end"]);
        let inner =
            inner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut inner) = inner else { return };
        let mut line = String::new();
        BufReader::new(inner.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            // No namespaces here.
            inner.wait().unwrap();
            return;
        }
        let children = format!("/proc/{0}/task/{0}/children", inner.id());
        let child = std::fs::read_to_string(children).unwrap();
        let child = around(Path::new(&format!("/proc/{}/ns/pid", child.trim()))).unwrap();
        drop(inner.stdin.take());
        inner.wait().unwrap();
        assert_eq!(child.len(), own.len() + 1);
        assert_eq!(child[1..], own);
    }
}
