//! The client's side of a terminal: a pseudo-terminal for the command, and the relay between it and the user's terminal.
//!
//! The pseudo-terminal is new and controls no session, so the service can make it the command's controlling terminal: job
//! control, `/dev/tty` and password prompts work. The user's terminal is in raw mode meanwhile, and the relay copies every byte.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::keys::{ECHO, SIGTSTP, TypedInput, UNTIL_ENDED, concerns_job, read_typed};
use crate::process::{ProcessStat, awaited_above, ends_by};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr, tcsetwinsize,
};
use sys::terminal::{RawTerminal, edit_lines, remove_repeated_returns, same_modes};

/// How often a client in the background checks whether it is in the foreground: the kernel sends no event for that.
const FOREGROUND_CHECK: Duration = Duration::from_millis(200);
/// The most bytes that are copied at once.
const BUFFER_BYTES: usize = 16 << 10;
/// The most bytes that are shown of a command that has ended: more than a terminal holds. What it has left may write without end.
const MOST_LAST_BYTES: usize = 256 << 10;

/// Which of the client's descriptors must be a terminal for the command to receive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayCondition {
    /// Standard input.
    Input,
    /// Standard input and output, and they are the same terminal.
    InputAndOutput,
}

/// Copies between the user's terminal and a pseudo-terminal of the command.
#[derive(Debug)]
pub struct TerminalRelay {
    master: OwnedFd,
    /// The command's end. It stays open as long as the master, so that reading never fails before the command has ended.
    inner: OwnedFd,
    /// Which of the first three descriptors are the user's terminal.
    stands_for: [bool; 3],
    /// Bytes that were typed and are not written to the command yet.
    typed: Vec<u8>,
    /// The user's terminal in raw mode; `None` while this process is in the background.
    raw: Option<RawTerminal>,
    state: State,
    /// The first modes of the command's terminal, until this process has been in the foreground: the modes of the user's
    /// terminal belonged to another program then.
    first: Option<Termios>,
    /// The command's process, once it runs.
    command: Option<u32>,
    /// Whether the command was seen here: in a sandbox processes of the host have other numbers or none.
    is_visible: bool,
    /// Until when the user's terminal keeps its modes.
    left_until: Duration,
}

/// What a key asks of the command and the job of the client, which have one terminal for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKey {
    /// That all stop. The command was not told.
    Stop,
    /// That all receive this signal. The command has it from its terminal.
    Signal(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This process receives what is typed.
    Foreground,
    /// Another process group receives it.
    Background,
    /// The user's terminal is closed.
    Gone,
}

impl TerminalRelay {
    /// Makes a pseudo-terminal for the command; `None` if the condition is not met.
    ///
    /// # Errors
    ///
    /// As `openpt(3)`, for example when there are too many. No terminal was changed.
    pub fn open(condition: RelayCondition) -> io::Result<Option<TerminalRelay>> {
        if !isatty(stdin()) {
            return Ok(None);
        }
        let stands_for = [stdin(), stdout(), stderr()].map(|it| is_same(it, stdin()));
        if condition == RelayCondition::InputAndOutput && !stands_for[1] {
            return Ok(None);
        }
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let inner = ioctl_tiocgptpeer(&master, flags)?;
        let mut mode = tcgetattr(stdin())?;
        let foreground = is_in_foreground();
        if !foreground {
            // The terminal has the modes of the program in the foreground, such as a shell that edits its line.
            edit_lines(&mut mode);
        }
        tcsetattr(&inner, OptionalActions::Now, &mode)?;
        let first = if foreground { None } else { Some(tcgetattr(&inner)?) };
        rustix::io::ioctl_fionbio(&master, true)?;
        let mut relay = TerminalRelay {
            master,
            inner,
            stands_for,
            typed: Vec::new(),
            raw: None,
            state: State::Background,
            first,
            command: None,
            is_visible: false,
            left_until: Duration::ZERO,
        };
        // Before the command can read the size.
        relay.resize();
        Ok(Some(relay))
    }

    /// Returns the command's end, and which of the command's first three descriptors it replaces.
    #[must_use]
    pub fn inner(&self) -> (&OwnedFd, [bool; 3]) {
        (&self.inner, self.stands_for)
    }

    /// Sets the user's terminal to raw mode if this process is in the foreground, and passes its size on; with a command,
    /// what that writes is shown from now on.
    pub fn settle(&mut self, command: Option<u32>) {
        self.command = command;
        self.is_visible |= command.is_some_and(|command| ProcessStat::of(command).is_some());
        self.resize();
        if self.state == State::Gone {
            return;
        }
        if !is_in_foreground() {
            self.pause();
            return;
        }
        self.state = State::Foreground;
        if self.raw.as_ref().is_some_and(RawTerminal::is_in_effect) {
            return;
        }
        // Another program has set modes since: those are restored at the end.
        self.raw = None;
        self.copy_first_modes();
        match RawTerminal::enter(stdin()) {
            Ok(raw) => self.raw = Some(raw),
            Err(_) => self.state = State::Gone,
        }
    }

    /// Gives the command's terminal the modes of the user's terminal when this process comes to the foreground for the first
    /// time, unless the command has set others by then.
    fn copy_first_modes(&mut self) {
        let Some(first) = self.first.take() else { return };
        if let Ok(mode) = tcgetattr(stdin())
            && tcgetattr(&self.inner).is_ok_and(|now| same_modes(&now, &first))
        {
            // It fails only for a closed terminal, whose modes do not matter.
            let _ = tcsetattr(&self.inner, OptionalActions::Now, &mode);
        }
    }

    /// Restores the modes of the user's terminal until [`settle`](Self::settle) is called again.
    pub fn pause(&mut self) {
        self.raw = None;
        self.state = State::Background;
    }

    /// Restores the modes of the user's terminal for as long as what a key has ended needs to give it back to its shell.
    pub fn leave(&mut self, now: Duration) {
        if is_ready_within(self.master.as_fd(), ECHO) {
            self.drain();
        }
        self.pause();
        self.left_until = now + UNTIL_ENDED;
    }

    /// Returns after which time [`pump`](Self::pump) must be called although no descriptor is ready.
    #[must_use]
    pub fn poll_interval(&self) -> Option<Duration> {
        (self.state == State::Background && self.command.is_some()).then_some(FOREGROUND_CHECK)
    }

    /// Adds the descriptors for which it waits.
    pub fn poll<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) {
        let mut wanted = PollFlags::IN;
        if !self.typed.is_empty() {
            wanted |= PollFlags::OUT;
        } else if self.state == State::Foreground {
            polled.push(PollFd::from_borrowed_fd(stdin(), PollFlags::IN));
        }
        // What the command writes is shown from when the user's terminal is as it is to be.
        if self.command.is_some() {
            polled.push(PollFd::from_borrowed_fd(self.master.as_fd(), wanted));
        }
    }

    /// Copies what is there in both directions at this time of a monotonic clock; returns what a key asks of the command and the job of this process.
    pub fn pump(&mut self, now: Duration) -> Option<JobKey> {
        if self.state == State::Background && self.command.is_some() && now >= self.left_until {
            self.settle(self.command);
        }
        if self.command.is_some() {
            self.show();
        }
        let mut asked = None;
        if self.state == State::Foreground && self.typed.is_empty() && is_ready(stdin()) {
            match read_typed(stdin(), &self.master) {
                Ok(typed) if typed.bytes.is_empty() => self.state = State::Gone,
                Ok(typed) => asked = self.take(typed),
                Err(Errno::INTR | Errno::AGAIN) => (),
                // Another process group is in the foreground now, or the terminal is closed.
                Err(_) if tcgetpgrp(stdin()).is_ok() => self.pause(),
                Err(_) => self.state = State::Gone,
            }
        }
        self.write_typed();
        asked
    }

    /// Shows all that the command has written until now.
    pub fn drain(&mut self) {
        let mut shown = 0;
        while shown < MOST_LAST_BYTES {
            match self.show() {
                0 => return,
                bytes => shown += bytes,
            }
        }
    }

    /// Shows the key that stops the command, as the command's terminal would have done: it was not written there.
    pub fn echo_stop(&mut self) {
        self.drain();
        let Ok(modes) = tcgetattr(&self.master) else { return };
        let key = modes.special_codes[SpecialCodeIndex::VSUSP];
        let echoes = modes.local_modes.contains(LocalModes::ECHO | LocalModes::ECHOCTL);
        if echoes && key.is_ascii_control() {
            self.write_shown(&[b'^', key ^ 0x40]);
        }
    }

    /// Keeps what was typed for the command, without the key that stops it; returns what a key asks for.
    fn take(&mut self, typed: TypedInput) -> Option<JobKey> {
        self.typed.extend(&typed.bytes);
        if typed.signal == Some(SIGTSTP) && self.needs_stop_from_here() {
            self.typed.pop();
            return Some(JobKey::Stop);
        }
        self.signal_for_job(&typed).filter(|_| has_job_others()).map(JobKey::Signal)
    }

    /// Returns the signal of a key that is for the job of this process, too.
    fn signal_for_job(&self, typed: &TypedInput) -> Option<i32> {
        let signal = typed.signal.filter(|signal| *signal != SIGTSTP)?;
        // Of a command that has ended the terminal has no group: the key came a moment too late.
        let is_late = self.is_visible && tcgetpgrp(&self.master).is_err();
        let has_it = !is_late && concerns_job(&self.master, self.command?);
        (is_late || has_it).then_some(signal)
    }

    /// Takes what was typed as the command ended, if the job of this process has other members; returns the signal of a key among it that
    /// is for them.
    pub fn last_signal(&mut self) -> Option<i32> {
        if self.state != State::Foreground || !is_ready(stdin()) || !has_job_others() {
            return None;
        }
        self.signal_for_job(&read_typed(stdin(), &self.master).ok()?)
    }

    /// Returns whether the shell may take the user's terminal back because of a signal to the job of this process, although it goes on.
    #[must_use]
    pub fn may_end_job(signal: i32) -> bool {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        let is_of_job = |pid| ProcessStat::of(pid).is_some_and(|stat| stat.group == own);
        awaited_above(std::process::id(), is_of_job).is_some_and(|pid| ends_by(pid, signal))
    }

    /// Returns whether the stop key concerns the command itself and its own terminal would not stop it.
    ///
    /// The command leads a session of its own without a parent in it that could continue it, so the kernel does not stop it.
    /// A job that the command has started, as a shell does, is stopped by its terminal; a program that catches the signal
    /// receives it.
    fn needs_stop_from_here(&self) -> bool {
        let Some(command) = self.command else { return false };
        // In a sandbox with process numbers of its own the comparison fails; the command receives the key then.
        let leads = tcgetpgrp(&self.master)
            .is_ok_and(|group| u32::try_from(group.as_raw_nonzero().get()) == Ok(command));
        leads && !handles_stop(command)
    }

    /// Shows what the command has written; returns how many bytes that is.
    fn show(&mut self) -> usize {
        if !is_ready(self.master.as_fd()) {
            return 0;
        }
        let mut piece = [0; BUFFER_BYTES];
        let Ok(read @ 1..) = rustix::io::read(&self.master, &mut piece) else { return 0 };
        let mut shown = piece[..read].to_vec();
        remove_repeated_returns(&mut shown, stdout_or_in(self.stands_for));
        if self.write_shown(&shown) { read } else { 0 }
    }

    /// Writes to the user's terminal; returns whether it is there.
    fn write_shown(&mut self, mut rest: &[u8]) -> bool {
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

    /// Writes what was typed to the command, as far as there is room.
    fn write_typed(&mut self) {
        if self.typed.is_empty() {
            return;
        }
        match rustix::io::write(&self.master, &self.typed) {
            Ok(written) => drop(self.typed.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => (),
            // This process holds the command's end open, so no other error is expected.
            Err(_) => self.typed.clear(),
        }
    }

    fn resize(&mut self) {
        // A terminal without a size, such as a serial line, fails here.
        if let Ok(size) = tcgetwinsize(stdin()) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }
}

/// Returns whether this process group receives what is typed in the user's terminal.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns the descriptor through which the user's terminal is written.
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
    is_ready_within(descriptor, Timespec { tv_sec: 0, tv_nsec: 0 })
}

fn is_ready_within(descriptor: BorrowedFd<'_>, limit: Timespec) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&limit)).is_ok_and(|count| count > 0)
}

fn wait_writable(descriptor: BorrowedFd<'_>) {
    // The caller writes again in any case, and handles errors there.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)], None);
}

/// Returns whether the kernel does not stop a process by SIGTSTP.
fn handles_stop(process: u32) -> bool {
    ProcessStat::of(process).is_some() && !ends_by(process, SIGTSTP)
}

/// Returns whether the process group of this process has other members.
fn has_job_others() -> bool {
    let own = rustix::process::getpgrp().as_raw_nonzero().get();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let members = entries
        .filter_map(|entry| ProcessStat::of(entry.file_name().to_str()?.parse().ok()?))
        .filter(|stat| stat.group == own);
    members.count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_catches_the_stop_is_told_from_others() {
        let mut plain = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(!handles_stop(plain.id()));
        plain.kill().unwrap();
        plain.wait().unwrap();
        assert!(!handles_stop(plain.id()), "it is gone");
    }

    #[test]
    fn a_descriptor_that_is_no_terminal_stands_for_none() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_same(null.as_fd(), null.as_fd()));
    }
}
