//! The end of a program that a backend started and does not trace.

use crate::recording::Exit;

/// Returns how our child ended, if it has.
pub(super) fn has_ended(process: u32) -> Option<Exit> {
    wait_with(process, rustix::process::WaitOptions::NOHANG)
}

/// Returns whether our child has ended and is still there: what the kernel counted of it can be read until [`has_ended`] takes it.
pub(super) fn is_over(process: u32) -> bool {
    status(process).is_some()
}

/// Returns how our child ended, if it has, and leaves it there; `None` too of a process that is no child of ours.
pub(super) fn end(process: u32) -> Option<Exit> {
    let status = status(process)?;
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

fn status(process: u32) -> Option<rustix::process::WaitIdStatus> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let process = i32::try_from(process).ok().and_then(Pid::from_raw)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), options).ok().flatten()
}

/// Waits for the end of our child.
pub(super) fn wait(process: u32) -> Option<Exit> {
    wait_with(process, rustix::process::WaitOptions::empty())
}

fn wait_with(process: u32, options: rustix::process::WaitOptions) -> Option<Exit> {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    let (_, status) =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(process), options))
            .ok()
            .flatten()?;
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}
