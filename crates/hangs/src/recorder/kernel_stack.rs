//! The functions of the kernel in which a thread is blocked: whether a sync waits for its own data, for the journal of the file system, or
//! because too much is written at once, no call and no file says.

use std::fs;
use std::io;

use crate::codec::MAX_KERNEL_FUNCTIONS;

/// Where each call enters the kernel, which is the same for all: what such a name begins with.
const ENTRIES: [&str; 5] = ["do_syscall", "entry_", "x64_sys_call", "el0", "invoke_syscall"];

/// Reads kernel stacks by the names of their functions. The kernel shows them to root alone (`CAP_SYS_ADMIN`), and no address with them.
#[derive(Debug, Default)]
pub(super) struct KernelStackReader {
    is_forbidden: bool,
}

impl KernelStackReader {
    /// Returns the functions of the first thread of a process, the innermost first; none if they may not be read.
    pub(super) fn functions(&mut self, process: u32) -> Vec<String> {
        if self.is_forbidden {
            return Vec::new();
        }
        match fs::read_to_string(format!("/proc/{process}/task/{process}/stack")) {
            Ok(text) => functions_in(&text),
            Err(error) => {
                self.is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
                Vec::new()
            }
        }
    }
}

/// Returns the functions in the text of `/proc/PID/stack`.
fn functions_in(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let name = line.split_once("] ")?.1.split(['+', ' ']).next()?;
        // A kernel without the names of its functions writes their addresses.
        let is_name = !name.is_empty() && !name.starts_with("0x");
        is_name.then_some(name)
    });
    let own = names.take_while(|name| !ENTRIES.iter().any(|entry| name.starts_with(entry)));
    own.take(MAX_KERNEL_FUNCTIONS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_without_addresses_and_without_where_each_call_begins() {
        let text = "[<0>] jbd2_log_wait_commit+0xd8/0x140 [jbd2]\n\
                    [<0>] ext4_sync_file+0x1b1/0x380 [ext4]\n\
                    [<0>] do_fsync+0x38/0x70\n\
                    [<0>] __x64_sys_fsync+0x10/0x20\n\
                    [<0>] do_syscall_64+0x71/0x290\n\
                    [<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n";
        let expected = ["jbd2_log_wait_commit", "ext4_sync_file", "do_fsync", "__x64_sys_fsync"];
        assert_eq!(functions_in(text), expected);
        assert_eq!(functions_in("[<0>] 0xffffffff81000000\n\n[<0>]\n"), [""; 0]);
        let deep: String = (0..99).map(|at| format!("[<0>] f{at}+0x1/0x2\n")).collect();
        assert_eq!(functions_in(&deep).len(), MAX_KERNEL_FUNCTIONS);
    }

    #[test]
    fn what_may_not_be_read_is_not_asked_for_again() {
        let mut reader = KernelStackReader::default();
        let own = reader.functions(std::process::id());
        assert!(own.is_empty() == reader.is_forbidden || own.is_empty(), "{own:?}");
        assert!(reader.functions(u32::MAX).is_empty());
        if rustix::process::geteuid().is_root() {
            assert!(!reader.is_forbidden, "a process that has ended is not a prohibition");
        }
    }
}
