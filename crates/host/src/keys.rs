//! The keys of a terminal that send signals.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp};

use crate::process::ignores;

const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
pub(crate) const SIGTSTP: i32 = 20;
pub(crate) const SIGTTIN: i32 = 21;
/// The most bytes that are read at a time.
const MOST_TYPED: usize = 16 << 10;
/// The time limit for the echo of a key.
pub(crate) const ECHO: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long what a key has ended may take to give the terminal back to its shell.
pub(crate) const UNTIL_ENDED: Duration = Duration::from_millis(200);

/// What was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TypedInput {
    /// The keys; none at the end of the input.
    pub(crate) bytes: Vec<u8>,
    /// The signal of the last one.
    pub(crate) signal: Option<i32>,
}

/// Reads what is typed in the terminal `outer`, which is in raw mode, up to the first key for which the terminal behind `inner` sends a
/// signal: what is typed behind that is for the shell if the signal stops or ends the command.
pub(crate) fn read_typed(outer: impl AsFd, inner: impl AsFd) -> Result<TypedInput, Errno> {
    let modes = tcgetattr(inner).ok();
    let modes = modes.filter(|modes| modes.local_modes.contains(LocalModes::ISIG));
    let Some(modes) = modes else {
        let mut bytes = vec![0; MOST_TYPED];
        let len = read(outer, &mut bytes)?;
        bytes.truncate(len);
        return Ok(TypedInput { bytes, signal: None });
    };
    let waiting = usize::try_from(ioctl_fionread(&outer)?).unwrap_or(MOST_TYPED);
    let mut typed = TypedInput::default();
    // Nothing can be put back that was read.
    while typed.signal.is_none() && typed.bytes.len() < waiting.clamp(1, MOST_TYPED) {
        let mut byte = [0];
        match read(&outer, &mut byte) {
            Ok(0) => break,
            Ok(_) => typed.bytes.extend(byte),
            Err(error) if typed.bytes.is_empty() => return Err(error),
            // The next read returns it.
            Err(_) => break,
        }
        typed.signal = signal_of(byte[0], &modes);
    }
    Ok(typed)
}

/// Returns the signal that a terminal with these modes sends for a key.
fn signal_of(key: u8, modes: &Termios) -> Option<i32> {
    let keys = [
        (SpecialCodeIndex::VINTR, SIGINT),
        (SpecialCodeIndex::VQUIT, SIGQUIT),
        (SpecialCodeIndex::VSUSP, SIGTSTP),
    ];
    let of_key = keys.iter().find(|(code, _)| key != 0 && modes.special_codes[*code] == key);
    of_key.map(|(_, signal)| *signal)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    use rustix::io::write;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{OptionalActions, tcsetattr};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).unwrap();
        unlockpt(&screen).unwrap();
        let terminal = ioctl_tiocgptpeer(&screen, flags).unwrap();
        (screen, terminal)
    }

    fn set_raw(terminal: &OwnedFd) {
        let mut modes = tcgetattr(terminal).unwrap();
        modes.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &modes).unwrap();
    }

    #[test]
    fn what_is_typed_behind_a_key_with_a_signal_stays_in_the_terminal() {
        let ((keyboard, outer), (_screen, inner)) = (pair(), pair());
        set_raw(&outer);
        let all = b"one\x1atwo\x03\x1cfg\r";
        write(&keyboard, all).unwrap();
        while ioctl_fionread(&outer).unwrap() < all.len().try_into().unwrap() {
            std::thread::yield_now();
        }
        let input = |bytes: &[u8], signal| Ok(TypedInput { bytes: bytes.to_vec(), signal });
        assert_eq!(read_typed(&outer, &inner), input(b"one\x1a", Some(SIGTSTP)));
        assert_eq!(read_typed(&outer, &inner), input(b"two\x03", Some(SIGINT)));
        assert_eq!(read_typed(&outer, &inner), input(b"\x1c", Some(SIGQUIT)));
        assert_eq!(read_typed(&outer, &inner), input(b"fg\r", None));
        // An editor gets its keys as they are.
        set_raw(&inner);
        write(&keyboard, b"\x1a\x03q").unwrap();
        let mut left = 3;
        while left > 0 {
            let typed = read_typed(&outer, &inner).unwrap();
            assert_eq!(typed.signal, None);
            left -= typed.bytes.len();
        }
    }
}
