//! The keys of a terminal that send signals.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios, tcgetpgrp};

use crate::process::ignores;

const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
pub(crate) const SIGTSTP: i32 = 20;
/// The time limit for the echo of a key.
pub(crate) const ECHO: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long what a key has ended may take to give the terminal back to its shell.
pub(crate) const UNTIL_ENDED: Duration = Duration::from_millis(200);

/// Returns the signal that a terminal with these modes sends for a key among those typed.
pub(crate) fn signal_of(typed: &[u8], modes: &Termios) -> Option<i32> {
    let signals = modes.local_modes.contains(LocalModes::ISIG);
    let key = |code| Some(modes.special_codes[code]).filter(|key| *key != 0 && signals);
    let (interrupt, quit) = (key(SpecialCodeIndex::VINTR), key(SpecialCodeIndex::VQUIT));
    typed.iter().find_map(|typed| match Some(*typed) {
        byte if byte == interrupt => Some(SIGINT),
        byte if byte == quit => Some(SIGQUIT),
        _ => None,
    })
}

/// Returns whether a signal of a key in the terminal behind `inner` is for the command with this number itself and concerns the job of
/// its caller, too, as it would if both had one terminal.
///
/// It does not if a job that the command has started receives it, nor if the command is a shell that controls jobs: such a shell is a job
/// of its own wherever it runs. It ignores SIGTSTP.
pub(crate) fn concerns_job(inner: impl AsFd, command: u32) -> bool {
    let group = tcgetpgrp(&inner).map(|group| group.as_raw_nonzero().get());
    let is_command = group.is_ok_and(|group| u32::try_from(group) == Ok(command));
    is_command && !ignores(command, SIGTSTP)
}
