//! A terminal of the command's own, and what goes between it and ours.
//!
//! The command's terminal is new and nobody's, so the service can make it the command's controlling terminal: job control,
//! `/dev/tty` and passwords work, whatever the service is. Ours is in raw mode meanwhile, and every byte goes through.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, isatty, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, tcsetwinsize,
};
use sys::terminal::Raw;

use super::Tty;

/// How often a terminal in the background is looked at: nothing tells when it comes to the foreground.
const LOOK: Duration = Duration::from_millis(200);
/// So much goes through at once.
const PIECE: usize = 16 << 10;
/// SIGTSTP, as a bit of the masks in `/proc/…/status`.
const TSTP_BIT: u64 = 1 << 19;

/// The command's terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    master: OwnedFd,
    /// Held for as long as the master is, so that the terminal has no end before the command has.
    inner: OwnedFd,
    /// Which of the first three descriptors are our terminal.
    stands_for: [bool; 3],
    /// What was typed and is not taken yet.
    typed: Vec<u8>,
    /// Ours in raw mode; none while we are in the background.
    raw: Option<Raw>,
    state: State,
    /// The key that stops programs.
    stop_key: u8,
    /// The command's number, once it runs.
    command: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What is typed is for us.
    Foreground,
    /// It is for somebody else.
    Background,
    /// Ours is gone.
    Gone,
}

impl Terminal {
    /// Makes a terminal, if one is wanted.
    ///
    /// # Errors
    ///
    /// As `openpt(3)`: there are too many.
    pub(super) fn open(when: Tty) -> io::Result<Option<Terminal>> {
        if when == Tty::Never || !isatty(stdin()) {
            return Ok(None);
        }
        let stands_for = [stdin(), stdout(), stderr()].map(|it| is_same(it, stdin()));
        if when == Tty::Auto && !stands_for[1] {
            return Ok(None);
        }
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let inner = ioctl_tiocgptpeer(&master, flags)?;
        let mode = tcgetattr(stdin())?;
        tcsetattr(&inner, OptionalActions::Now, &mode)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let stop_key = mode.special_codes[SpecialCodeIndex::VSUSP];
        let mut terminal = Terminal {
            master,
            inner,
            stands_for,
            typed: Vec::new(),
            raw: None,
            state: State::Background,
            stop_key,
            command: None,
        };
        // Before the command can look at it.
        terminal.resize();
        Ok(Some(terminal))
    }

    /// Returns the command's end, and which of its descriptors it is.
    pub(super) fn inner(&self) -> (&OwnedFd, [bool; 3]) {
        (&self.inner, self.stands_for)
    }

    /// Takes over our terminal if it is ours to take, and passes its size on.
    pub(super) fn settle(&mut self, command: Option<u32>) {
        self.command = command;
        self.resize();
        if self.state == State::Gone {
            return;
        }
        let foreground = tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
        self.state = if foreground { State::Foreground } else { State::Background };
        if !foreground {
            return;
        }
        let set = match &self.raw {
            Some(raw) => raw.again(),
            None => Raw::enter(stdin()).map(|raw| self.raw = Some(raw)),
        };
        if set.is_err() {
            self.state = State::Gone;
        }
    }

    /// Gives our terminal back for a while.
    pub(super) fn pause(&mut self) {
        self.raw = None;
        self.state = State::Background;
    }

    /// Returns after which time it wants to be looked at again.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.state == State::Background && self.command.is_some()).then_some(LOOK)
    }

    /// Adds what it waits for.
    pub(super) fn poll<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) {
        let mut wanted = PollFlags::IN;
        if !self.typed.is_empty() {
            wanted |= PollFlags::OUT;
        } else if self.state == State::Foreground {
            polled.push(PollFd::from_borrowed_fd(stdin(), PollFlags::IN));
        }
        polled.push(PollFd::from_borrowed_fd(self.master.as_fd(), wanted));
    }

    /// Passes on what there is, in both directions; says whether the user wants to stop the command.
    pub(super) fn pump(&mut self) -> bool {
        if self.state == State::Background && self.command.is_some() {
            self.settle(self.command);
        }
        self.show();
        let mut stop = false;
        if self.state == State::Foreground && self.typed.is_empty() && is_ready(stdin()) {
            let mut piece = [0; PIECE];
            match rustix::io::read(stdin(), &mut piece) {
                Ok(0) => self.state = State::Gone,
                Ok(read) => stop = self.take(&piece[..read]),
                Err(Errno::INTR | Errno::AGAIN) => (),
                // Somebody else has the terminal now, or nobody any more.
                Err(_) if tcgetpgrp(stdin()).is_ok() => self.state = State::Background,
                Err(_) => self.state = State::Gone,
            }
        }
        self.type_on();
        stop
    }

    /// Shows all that the command has written.
    pub(super) fn drain(&mut self) {
        while self.show() {}
    }

    /// Takes what was typed; says whether it is the key that stops the command, which is then taken away.
    fn take(&mut self, typed: &[u8]) -> bool {
        let key = typed.iter().position(|byte| *byte == self.stop_key);
        match key {
            Some(at) if self.stop_key != 0 && self.only_we_can_stop_it() => {
                self.typed.extend(&typed[..at]);
                self.typed.extend(&typed[at + 1..]);
                true
            }
            _ => {
                self.typed.extend(typed);
                false
            }
        }
    }

    /// Says whether the key that stops programs is meant for the command itself, and could not stop it.
    ///
    /// The command leads a session of its own, in which nobody could let it go on, so the kernel does not stop it. What it
    /// has started itself, as a shell does, is stopped by its terminal; and a program that catches the signal gets it.
    fn only_we_can_stop_it(&self) -> bool {
        let Some(command) = self.command else { return false };
        let stops =
            tcgetattr(&self.master).is_ok_and(|mode| mode.local_modes.contains(LocalModes::ISIG));
        // In a sandbox the numbers are not known; the key then goes to the command.
        let leads = tcgetpgrp(&self.master)
            .is_ok_and(|group| u32::try_from(group.as_raw_nonzero().get()) == Ok(command));
        stops && leads && !catches_stop(command)
    }

    /// Shows what the command has written; says whether there was any.
    fn show(&mut self) -> bool {
        if !is_ready(self.master.as_fd()) {
            return false;
        }
        let mut piece = [0; PIECE];
        let Ok(read @ 1..) = rustix::io::read(&self.master, &mut piece) else { return false };
        let mut rest = &piece[..read];
        while !rest.is_empty() {
            match rustix::io::write(stdout_or_in(self.stands_for), rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => wait_writable(stdout_or_in(self.stands_for)),
                Err(_) => {
                    self.state = State::Gone;
                    return false;
                }
            }
        }
        true
    }

    /// Passes on what was typed, as far as there is room.
    fn type_on(&mut self) {
        if self.typed.is_empty() {
            return;
        }
        match rustix::io::write(&self.master, &self.typed) {
            Ok(written) => drop(self.typed.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => (),
            // The command's end is open for as long as we are; there is no other error.
            Err(_) => self.typed.clear(),
        }
    }

    fn resize(&mut self) {
        // A terminal without a size has none to pass on.
        if let Ok(size) = tcgetwinsize(stdin()) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }
}

/// Our terminal, in the direction in which it shows.
fn stdout_or_in(stands_for: [bool; 3]) -> BorrowedFd<'static> {
    if stands_for[1] { stdout() } else { stdin() }
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let device = |descriptor| {
        let status = fstat(descriptor).ok()?;
        let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
        is_device.then_some(status.st_rdev)
    };
    isatty(one) && device(one).is_some_and(|own| device(other) == Some(own))
}

fn is_ready(descriptor: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
}

fn wait_writable(descriptor: BorrowedFd<'_>) {
    // Whatever happens, the write is tried again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)], None);
}

/// Says whether a process does something of its own at SIGTSTP, or nothing.
fn catches_stop(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let has = |field: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(field));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & TSTP_BIT != 0)
    };
    has("SigIgn:") || has("SigCgt:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_catches_the_stop_is_told_from_others() {
        let mut plain = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(!catches_stop(plain.id()));
        plain.kill().unwrap();
        plain.wait().unwrap();
        assert!(!catches_stop(plain.id()), "it is gone");
    }

    #[test]
    fn without_a_terminal_there_is_none() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_same(null.as_fd(), null.as_fd()));
        assert!(Terminal::open(Tty::Never).unwrap().is_none());
    }
}
