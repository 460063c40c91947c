//! Whether a command waits for a line of its terminal without having changed the terminal's modes.

use std::fs;
use std::path::Path;

use sys::process_file;

use crate::process::ProcessStat;

/// `read` and `readv`.
#[cfg(target_arch = "x86_64")]
const READS: [u64; 2] = [0, 19];
#[cfg(any(
    target_arch = "x86",
    target_arch = "arm",
    target_arch = "s390x",
    target_arch = "powerpc64"
))]
const READS: [u64; 2] = [3, 145];
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "x86",
    target_arch = "arm",
    target_arch = "s390x",
    target_arch = "powerpc64"
)))]
const READS: [u64; 2] = [63, 65];

/// The most threads that are looked at.
const MOST: usize = 256;

/// The longest line about the call that a process waits in.
const MOST_LINE: u64 = 512;

/// Returns whether the process `command`, or one that descends from it, waits in a read of the terminal with this name and this device.
pub(super) fn is_read_by(command: u32, name: &Path, terminal: u64) -> bool {
    let mut left = vec![command];
    let mut looked_at = 0;
    while let Some(process) = left.pop() {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads.map(|thread| thread.path()) {
            looked_at += 1;
            if looked_at > MOST {
                return false;
            }
            if waits(process, &thread, name, terminal) {
                return true;
            }
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    false
}

/// Returns whether a thread of `process`, with this directory in `/proc`, waits in such a read.
fn waits(process: u32, thread: &Path, name: &Path, terminal: u64) -> bool {
    // A number, and its arguments in hexadecimal; `running` if it waits for nothing.
    let Ok(text) = process_file::read_at(&thread.join("syscall"), MOST_LINE) else { return false };
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<u64>().ok());
    let descriptor =
        words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (Some(number), Some(descriptor)) = (number, descriptor) else { return false };
    // Its name alone: who looks at the file itself would wait with the process where a file system hangs.
    let read = fs::read_link(format!("/proc/{process}/fd/{descriptor}")).unwrap_or_default();
    // `/dev/tty` is that of the process.
    let is_own = || ProcessStat::of(process).is_some_and(|own| own.terminal == terminal);
    READS.contains(&number) && (read == name || read == Path::new("/dev/tty") && is_own())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use rustix::fs::fstat;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    /// Waits until something is as it is to be; `what` says what is not.
    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let mut looks = 0;
        while !is_so() {
            looks += 1;
            assert!(looks < 2_000, "{what}");
            rustix::event::poll(&mut [], Some(&crate::keys::ECHO)).unwrap();
        }
    }

    #[test]
    fn a_read_of_any_thread_and_of_what_it_started_is_seen() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).unwrap();
        unlockpt(&screen).unwrap();
        let terminal = ioctl_tiocgptpeer(&screen, flags).unwrap();
        let name = fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd())).unwrap();
        let is_read = || is_read_by(std::process::id(), &name, 0);
        // This is no main thread, as that waits for it.
        let stdin = || Stdio::from(terminal.try_clone().unwrap());
        let mut child = Command::new("cat").stdin(stdin()).stdout(Stdio::null()).spawn().unwrap();
        wait_until("a child of a thread reads", is_read);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_read());
        std::thread::scope(|threads| {
            let reads = || rustix::io::read(&terminal, &mut [0; 8]).unwrap();
            let reader = sys::thread::spawn_scoped(threads, "reader", reads).unwrap();
            wait_until("a thread reads", is_read);
            rustix::io::write(&screen, b"\n").unwrap();
            assert_eq!(reader.join().unwrap(), 1);
        });
    }

    #[test]
    fn who_reads_its_terminal_is_told_from_who_reads_something_else() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).unwrap();
        unlockpt(&screen).unwrap();
        let terminal = ioctl_tiocgptpeer(&screen, flags).unwrap();
        let device = crate::process::terminal_number(fstat(&terminal).unwrap().st_rdev);
        let name = fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd())).unwrap();
        for (script, reads) in [
            ("read word", true),
            ("exec 3</dev/tty; read word <&3", true),
            ("sh -c 'read word </dev/tty; true'; true", true),
            ("sleep 100 | (read word)", false),
            ("sleep 100", false),
        ] {
            let mut command = Command::new("setsid");
            command.args(["--ctty", "sh", "-c", script]).stdin(terminal.try_clone().unwrap());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // What does not read is seen not to do so for a while.
            let mut looks = 0;
            while is_read_by(child.id(), &name, device) != reads || !reads && looks < 50 {
                looks += 1;
                assert!(looks < 20_000, "{script}");
                rustix::event::poll(&mut [], Some(&crate::keys::ECHO)).unwrap();
            }
            assert!(!is_read_by(child.id(), Path::new("/dev/pts/none"), device + 1), "{script}");
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
