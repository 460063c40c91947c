//! The callers of a stopped or blocked thread.

use sys::ptrace;

use crate::call::StackId;
use crate::recorder::TraceRecorder;
use crate::stack::{KnownRegisters, Unwinder};

/// Returns the stack of a thread that ptrace has stopped; `None` if it was killed meanwhile.
pub(super) fn of_stopped(
    unwinder: &mut Unwinder,
    recorder: &mut TraceRecorder,
    process: u32,
    tid: u32,
) -> Option<StackId> {
    let found = ptrace::registers(tid).ok()?;
    let registers = KnownRegisters::new(found.ip, found.sp);
    // Elsewhere the frame pointer chain is not what our unwinder goes by.
    let registers = if cfg!(target_arch = "x86_64") {
        registers.bp(found.fp).kept(found.kept)
    } else {
        registers
    };
    Some(unwinder.capture(process, &registers, recorder))
}

/// Returns the stack of a thread that is blocked in a call that it made at `ip` with the stack at `sp`.
pub(super) fn of_blocked(
    unwinder: &mut Unwinder,
    recorder: &mut TraceRecorder,
    process: u32,
    ip: u64,
    sp: u64,
) -> StackId {
    unwinder.capture(process, &KnownRegisters::new(ip, sp), recorder)
}
