//! The target of an operation of `io_uring`.

use kernelwork::RingOperation;

use super::{ContextLookup, CopiedCall, SyscallContext, link};
use crate::call::TargetId;
use crate::recorder::TraceRecorder;
use crate::syscall::call_number;

/// `AT_FDCWD`.
const WORKING_DIRECTORY: i32 = -100;

impl ContextLookup {
    /// Returns what an operation worked on: the file of `known`, which is what `readlink /proc/PID/fd/N` said of it and the
    /// number of its mount; else the path that it was given, or what its descriptor is now.
    pub fn of_operation(
        &mut self,
        operation: &RingOperation,
        known: Option<(&[u8], u32)>,
        recorder: &mut TraceRecorder,
    ) -> Option<TargetId> {
        let mut arguments = [0; 6];
        arguments[0] = u64::from(operation.descriptor.cast_unsigned());
        let made = SyscallContext {
            process: operation.process,
            thread: operation.thread,
            // As of that call, the first argument is a descriptor.
            number: call_number("fsync")?,
            arguments,
            returned: None,
        };
        let directory = match operation.path.as_deref() {
            Some(path) if !path.starts_with(b"/") => {
                let of = format!("/proc/{}", operation.process);
                match operation.descriptor {
                    WORKING_DIRECTORY => link(&format!("{of}/cwd")),
                    descriptor => link(&format!("{of}/fd/{descriptor}")),
                }
            }
            _ => None,
        };
        if known.is_none() && operation.path.is_none() {
            let has_own = !operation.is_registered && operation.descriptor >= 0;
            return has_own.then(|| self.target(&made, recorder)).flatten();
        }
        let copied = CopiedCall {
            made,
            first_path: operation.path.as_deref(),
            second_path: None,
            // The index of a registered file is no descriptor.
            polled: operation.is_registered.then_some(-1),
            memory: &[],
            sets: None,
            root_mount: 0,
            link: known.map(|(link, _)| link).or(directory.as_deref()),
            is_opened: false,
            socket: None,
            mount: known.map(|(_, mount)| u64::from(mount)),
        };
        self.recorded(&copied, recorder)
    }
}
