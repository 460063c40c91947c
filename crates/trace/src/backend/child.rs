//! The end of a program that a backend started and does not trace.

use crate::recording::Exit;

/// Returns how our child ended, if it has.
pub(super) fn has_ended(process: u32) -> Option<Exit> {
    wait_with(process, rustix::process::WaitOptions::NOHANG)
}

/// Returns whether our child has ended and is still there: what the kernel counted of it can be read until [`has_ended`] takes it.
pub(super) fn is_over(process: u32) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), options).is_ok_and(|ended| ended.is_some())
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
