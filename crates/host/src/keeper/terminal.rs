//! The terminal of a command: the caller's if no session has it, otherwise a pseudo-terminal that is copied to and from it.
//!
//! A terminal controls one session, which in the usual case is that of the shell in which the caller runs. A program
//! outside of that session receives no signals from it, so the keeper creates another terminal, leads its session, and puts the command
//! into its foreground. The caller's terminal is in raw mode meanwhile, as long as the caller is in its foreground.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, fstat, open};
use rustix::io::{Errno, ioctl_fionread, read, write};
use rustix::process::{getpgrp, ioctl_tiocsctty};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize,
    tcsetattr, tcsetpgrp, tcsetwinsize,
};
use sys::launch::ProcessGroup;
use sys::terminal::{edit_lines, remove_repeated_returns, same_modes};

use super::reading::is_read_by;
use super::requester::{CallerTerminal, Requester};
use crate::identity::TerminalFile;
use crate::keys::{ECHO, SIGTSTP, UNTIL_ENDED, concerns_job, read_typed};
use crate::process::{ends_by, ignores, terminal_number};

const SIGSTOP: i32 = 19;
/// How often the size of the caller's terminal is read: only its own session receives a signal for changes.
const LOOK: Duration = Duration::from_millis(200);
/// How long a command takes at most to stop or end by a signal that it leaves to the kernel.
const UNTIL_DONE: Duration = Duration::from_secs(1);
/// How long what is typed waits for a command that handles the signal itself.
const UNTIL_HANDLED: Duration = Duration::from_millis(20);
/// The most bytes that are copied at a time.
const CHUNK: usize = 16 << 10;
/// The most pieces of output that are copied at a time: meanwhile nobody looks after keys and the end of the command.
const MOST_PIECES: usize = 16;
/// How long the end of a command waits for its last output to be taken, in tenths of a second.
const MOST_WAITS: usize = 20;

/// The terminal of a command.
#[derive(Debug)]
pub(super) struct Terminal {
    /// The requester of the command, until it has ended or the terminal was returned.
    requester: Option<Requester>,
    kind: DescriptorKind,
}

#[derive(Debug)]
enum DescriptorKind {
    /// The caller's terminal, which controls no session.
    Theirs(OwnedFd),
    /// A pseudo-terminal of the keeper.
    Ours(Box<Pair>),
}

/// When the command receives what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Always: its input and its output are the terminal, so it is interactive.
    Always,
    /// When it has changed the modes of its terminal, as for a password, or reads there: it is part of a pipe or has no input, or
    /// its standard input is the caller's terminal itself, and another program may read that.
    WhenAsked,
}

/// The owner of the caller's terminal when the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Caller,
    Others,
}

/// A pseudo-terminal and the caller's terminal.
#[derive(Debug)]
struct Pair {
    /// The caller's terminal, opened again, so that `O_NONBLOCK` does not affect the caller.
    outer: OwnedFd,
    /// The device of the caller's terminal, as in `/proc/PID/stat`.
    device: u64,
    /// The standard descriptors that are replaced by the pseudo-terminal.
    numbers: Vec<i32>,
    inner: OwnedFd,
    /// The command's end, held open until the command has ended, also if the command closes it.
    held: Option<OwnedFd>,
    input: Input,
    /// The name of the pseudo-terminal, and its device as in `/proc/PID/stat`.
    inner_name: PathBuf,
    inner_device: u64,
    /// Whether the command has read there.
    is_read: bool,
    /// When it is looked for that again.
    reading_due: Duration,
    /// The first modes of the pseudo-terminal.
    first: Termios,
    /// How many of the next bytes were typed before the caller's terminal was in raw mode. An end of input among them
    /// comes as a zero byte.
    typed_before: usize,
    /// The character that ends the input in the caller's terminal.
    end_of_input: u8,
    /// Whether the caller has been in the foreground.
    was_in_front: bool,
    /// The old modes and the new ones of the caller's terminal, while they are changed.
    changed: Option<(Termios, Termios)>,
    /// Until when the caller's terminal keeps its modes, because its job was sent the signal of a key.
    left_until: Duration,
    /// Until when nothing is read, because a key may stop or end the command: what is typed behind it is for the shell then.
    held_until: Duration,
    stopped: bool,
    finished: bool,
    /// Whether a process still has the command's end open.
    open: bool,
    to_inner: Vec<u8>,
    to_outer: Vec<u8>,
}

impl Terminal {
    /// Checks whether the standard descriptors, which are the command's, are a terminal, and makes it or a
    /// pseudo-terminal the controlling terminal of this session; `None` if there is none, or it cannot be opened.
    #[expect(clippy::disallowed_methods, reason = "descriptors, not output")]
    pub(super) fn of(client: u32, words: &[CString]) -> Option<Terminal> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let standard = [(0, stdin.as_fd()), (1, stdout.as_fd()), (2, stderr.as_fd())];
        let device = |fd: BorrowedFd<'_>| isatty(fd).then(|| fstat(fd).ok()).flatten();
        // Standard output first, because people see it.
        let order = [1, 0, 2].map(|number: usize| standard[number]);
        let (first, status) = order
            .iter()
            .find_map(|(number, fd)| device(*fd).map(|status| ((*number, *fd), status)))?;
        // One that may only be written has to be opened again to become that of this session.
        let outer = open_again(first.1);
        let takes = |outer: &OwnedFd| ioctl_tiocsctty(outer).is_ok();
        if ioctl_tiocsctty(first.1).is_ok() || outer.as_ref().is_ok_and(takes) {
            let theirs = sys::launch::above(first.1, 3).ok()?;
            return Some(Terminal {
                requester: Requester::process(client),
                kind: DescriptorKind::Theirs(theirs),
            });
        }
        let is_interactive = first.0 == 1;
        // What a shell without jobs starts in the background has nothing as its input.
        let same = |fd: BorrowedFd<'_>| device(fd).is_some_and(|s| s.st_rdev == status.st_rdev);
        // A prompt may come by standard error, and is to be shown once the modes are set.
        let is_ours = |number: i32| is_interactive || number == 2;
        let numbers = standard.iter().filter(|(number, fd)| is_ours(*number) && same(*fd));
        let numbers = numbers.map(|(number, _)| *number).collect();
        // In a pipeline another program may read the terminal, and what a shell without jobs starts in the background reads nothing.
        let input =
            if is_interactive && same(stdin.as_fd()) { Input::Always } else { Input::WhenAsked };
        let device = terminal_number(status.st_rdev);
        let terminal = CallerTerminal { device, file: TerminalFile::of(first.1)? };
        let requester = Requester::process(client)
            .or_else(|| Requester::with_words(terminal, words))
            .or_else(|| Requester::in_front(terminal));
        let is_front = requester.as_ref().is_some_and(|requester| requester.is_in_front(device));
        let front = if is_front { Front::Caller } else { Front::Others };
        let pair = Pair::new(outer.ok()?, device, numbers, input, front).ok()?;
        ioctl_tiocsctty(pair.held.as_ref()?).ok()?;
        Some(Terminal { requester, kind: DescriptorKind::Ours(Box::new(pair)) })
    }

    /// Returns the descriptors that replace the caller's terminal for the command; the keeper's numbers begin at `least`.
    pub(super) fn descriptors(&self, least: RawFd) -> io::Result<Vec<(OwnedFd, i32)>> {
        let DescriptorKind::Ours(pair) = &self.kind else { return Ok(Vec::new()) };
        let held = pair.held.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let numbers = pair.numbers.iter();
        numbers.map(|number| Ok((sys::launch::above(held.as_fd(), least)?, *number))).collect()
    }

    /// Returns where the command begins: in the foreground of its terminal. If its parent put it there, it could find itself in the background
    /// first.
    pub(super) fn place(&self) -> ProcessGroup<'_> {
        ProcessGroup::InFront(self.commands().as_fd())
    }

    /// Returns the command's end of its terminal.
    fn commands(&self) -> &OwnedFd {
        match &self.kind {
            DescriptorKind::Theirs(terminal) => terminal,
            DescriptorKind::Ours(pair) => pair.held.as_ref().unwrap_or(&pair.inner),
        }
    }

    /// Returns whether no more output can come from it.
    pub(super) fn is_over(&self) -> bool {
        match &self.kind {
            DescriptorKind::Theirs(_) => true,
            DescriptorKind::Ours(pair) => !pair.open && pair.to_outer.is_empty(),
        }
    }

    /// Returns after which time from now on it must be checked without an event.
    pub(super) fn looks_again(&self, now: Duration) -> Option<Duration> {
        match &self.kind {
            DescriptorKind::Ours(pair) if !pair.finished && self.requester.is_some() => {
                let held = pair.held_until.saturating_sub(now);
                Some(if held.is_zero() { LOOK } else { held.min(LOOK) })
            }
            _ => None,
        }
    }

    /// Adds the descriptors for which it waits from now on.
    pub(super) fn poll<'a>(&'a self, polled: &mut Vec<PollFd<'a>>, now: Duration) {
        let DescriptorKind::Ours(pair) = &self.kind else { return };
        if let Some(process) = self.requester.as_ref().and_then(Requester::pidfd) {
            polled.push(PollFd::new(process, PollFlags::IN));
        }
        let mut outer = PollFlags::empty();
        outer.set(PollFlags::IN, pair.takes_input(now));
        outer.set(PollFlags::OUT, !pair.to_outer.is_empty());
        polled.push(PollFd::new(&pair.outer, outer));
        let mut inner = PollFlags::empty();
        inner.set(PollFlags::IN, pair.to_outer.is_empty());
        inner.set(PollFlags::OUT, !pair.to_inner.is_empty());
        if pair.open && !inner.is_empty() {
            polled.push(PollFd::new(&pair.inner, inner));
        }
    }

    /// Copies in both directions at this time, for the command with this number.
    ///
    /// # Errors
    ///
    /// The caller's terminal is closed.
    pub(super) fn copy(&mut self, command: u32, now: Duration) -> io::Result<()> {
        if self.requester.as_ref().is_some_and(Requester::has_ended) {
            self.requester = None;
        }
        let DescriptorKind::Ours(pair) = &mut self.kind else { return Ok(()) };
        if pair.outer_is_gone()? {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let requester = self.requester.as_ref();
        pair.notice_reading(requester, command, now);
        pair.look(requester, now);
        // Once more before anything is shown: whoever sees a prompt may answer it at once, and that is not to be echoed.
        pair.copy_out(|pair| pair.look(requester, now))?;
        let signal = pair.copy_in(now)?.filter(|_| concerns_job(&pair.inner, command));
        if let Some(signal) = signal {
            pair.held_until = now + time_to_act(command, signal);
        }
        if let Some(signal) = signal.filter(|signal| *signal != SIGTSTP)
            && let Some(others) = requester.map(|requester| requester.others(pair.device))
            && !others.are_none()
        {
            if others.may_end_the_job(signal) {
                // The shell finds the terminal as it was.
                pair.copy_last_echo();
                pair.restore();
                pair.left_until = now + UNTIL_ENDED;
            }
            others.signal(signal);
        }
        Ok(())
    }

    /// Handles a possible change of the size of the caller's terminal.
    pub(super) fn resize(&mut self) {
        if let DescriptorKind::Ours(pair) = &self.kind {
            pair.resize();
        }
    }

    /// Handles a stop of the command: stops its caller, too, so that the caller's shell continues.
    pub(super) fn stopped(&mut self, signal: i32) {
        if let DescriptorKind::Ours(pair) = &mut self.kind {
            pair.stopped = true;
            pair.copy_last_echo();
            pair.restore();
        }
        // A caller that stops its command stops itself.
        if let Some(requester) = self.requester.as_ref().filter(|_| signal != SIGSTOP) {
            requester.stop();
        }
    }

    /// Handles the end of the caller's connection. A known process may continue without it.
    pub(super) fn caller_is_gone(&mut self) {
        if self.requester.as_ref().is_some_and(Requester::is_job) {
            self.give_back();
        }
    }

    /// Restores the caller's terminal for good; the command's output is still copied to it.
    pub(super) fn give_back(&mut self) {
        self.requester = None;
        if let DescriptorKind::Ours(pair) = &mut self.kind {
            pair.restore();
        }
    }

    /// Handles the continuation of the command.
    pub(super) fn continued(&mut self) {
        if let DescriptorKind::Ours(pair) = &mut self.kind {
            pair.stopped = false;
            pair.held_until = Duration::ZERO;
        }
    }

    /// Handles the end of the command: copies its last output, and restores the caller's terminal.
    pub(super) fn finish(&mut self) {
        // The keeper's group receives the hangup, so that daemons of the command continue.
        // It fails if the terminal is closed.
        let _ = tcsetpgrp(self.commands(), getpgrp());
        let DescriptorKind::Ours(pair) = &mut self.kind else { return };
        pair.finished = true;
        pair.held = None;
        for _ in 0..MOST_WAITS {
            if pair.copy_out(|_| ()).is_err() || pair.to_outer.is_empty() {
                break;
            }
            let mut polled = [PollFd::new(&pair.outer, PollFlags::OUT)];
            let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut polled, Some(&tenth));
        }
        pair.restore();
    }
}

/// Returns how long a command may take to stop or end by the signal of a key.
fn time_to_act(command: u32, signal: i32) -> Duration {
    match (ignores(command, signal), ends_by(command, signal)) {
        (true, _) => Duration::ZERO,
        (_, true) => UNTIL_DONE,
        // What it does is its own affair.
        _ => UNTIL_HANDLED,
    }
}

/// Opens the caller's terminal again, for reading and writing.
fn open_again(theirs: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
    sys::launch::above(open(path, flags, Mode::empty())?.as_fd(), 3)
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.restore();
    }
}

impl Pair {
    fn new(
        outer: OwnedFd,
        device: u64,
        numbers: Vec<i32>,
        input: Input,
        front: Front,
    ) -> io::Result<Pair> {
        let inner = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        let inner = sys::launch::above(inner.as_fd(), 3)?;
        fcntl_setfl(&inner, OFlags::RDWR | OFlags::NONBLOCK)?;
        unlockpt(&inner)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let held = sys::launch::above(ioctl_tiocgptpeer(&inner, flags)?.as_fd(), 3)?;
        let mut first = tcgetattr(&outer)?;
        let end_of_input = first.special_codes[SpecialCodeIndex::VEOF];
        if front == Front::Others {
            // The terminal has the modes of the foreground program, such as a shell that edits its line.
            edit_lines(&mut first);
        }
        tcsetattr(&held, OptionalActions::Now, &first)?;
        tcsetwinsize(&held, tcgetwinsize(&outer)?)?;
        let first = tcgetattr(&held)?;
        let inner_name = std::fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
        let inner_device = terminal_number(fstat(&held)?.st_rdev);
        Ok(Pair {
            outer,
            device,
            numbers,
            inner,
            held: Some(held),
            input,
            inner_name,
            inner_device,
            is_read: false,
            reading_due: Duration::ZERO,
            first,
            typed_before: 0,
            end_of_input,
            was_in_front: false,
            changed: None,
            left_until: Duration::ZERO,
            held_until: Duration::ZERO,
            stopped: false,
            finished: false,
            open: true,
            to_inner: Vec::new(),
            to_outer: Vec::new(),
        })
    }

    /// Returns whether the command receives what is typed now: the caller's terminal still has the modes that were set for that.
    fn reads(&self) -> bool {
        let raw = self.changed.as_ref().map(|(_, raw)| raw);
        raw.is_some_and(|raw| tcgetattr(&self.outer).is_ok_and(|now| same_modes(&now, raw)))
    }

    /// Returns whether what is typed is read now.
    fn takes_input(&self, now: Duration) -> bool {
        self.to_inner.is_empty() && now >= self.held_until && self.reads()
    }

    /// Notices a command that reads its terminal as it is, as for the answer to a question. In the background its job is stopped for
    /// that, as by a terminal of its own.
    fn notice_reading(&mut self, requester: Option<&Requester>, command: u32, now: Duration) {
        if now < self.reading_due || self.stopped || self.finished {
            return;
        }
        self.reading_due = now + LOOK;
        let Some(requester) = requester else { return };
        let is_asked = self.input == Input::Always || self.is_read;
        if is_asked && requester.is_in_front(self.device) {
            return;
        }
        if is_read_by(command, &self.inner_name, self.inner_device) {
            self.is_read = true;
            requester.stop_for_input(self.device);
        }
    }

    /// Sets the caller's terminal to raw mode while the caller is in its foreground and the command needs it, and restores it otherwise.
    fn look(&mut self, requester: Option<&Requester>, now: Duration) {
        let asked = self.input == Input::Always
            || self.is_read
            || tcgetattr(&self.inner).is_ok_and(|now| !same_modes(&now, &self.first));
        let in_front = requester.is_some_and(|requester| requester.is_in_front(self.device));
        let is_left = now < self.left_until;
        let wanted = asked && in_front && !is_left && !self.stopped && !self.finished;
        if !wanted {
            return self.restore();
        }
        // Modes that another program of the job has set meanwhile are the ones to restore.
        if !self.reads() {
            self.take();
        }
        self.resize();
    }

    fn take(&mut self) {
        let Ok(before) = tcgetattr(&self.outer) else { return };
        if !std::mem::replace(&mut self.was_in_front, true) {
            self.begin_with(&before);
        }
        let mut raw = before.clone();
        raw.make_raw();
        let set = tcsetattr(&self.outer, OptionalActions::Now, &raw);
        self.end_of_input = before.special_codes[SpecialCodeIndex::VEOF];
        let waiting = ioctl_fionread(&self.outer).unwrap_or(0);
        self.typed_before = usize::try_from(waiting).unwrap_or(0);
        if let Ok(now) = set.and_then(|()| tcgetattr(&self.outer)) {
            self.changed = Some((before, now));
        }
    }

    /// Copies the modes of the caller's terminal when the caller comes to the foreground, unless the command has set
    /// others by then.
    fn begin_with(&mut self, modes: &Termios) {
        if !tcgetattr(&self.inner).is_ok_and(|now| same_modes(&now, &self.first)) {
            return;
        }
        // It fails if the terminal is closed.
        let _ = tcsetattr(&self.inner, OptionalActions::Now, modes);
        if let Ok(now) = tcgetattr(&self.inner) {
            self.first = now;
        }
    }

    /// Copies the output of the command from before its stop, and the echo of the key that stopped it, which comes a moment
    /// later: behind the prompt of the shell it would look like input there.
    fn copy_last_echo(&mut self) {
        let echoes = |modes: Termios| modes.local_modes.contains(LocalModes::ECHO);
        if self.open && tcgetattr(&self.inner).is_ok_and(echoes) {
            let mut polled = [PollFd::new(&self.inner, PollFlags::IN)];
            // Without an echo no output comes.
            let _ = poll(&mut polled, Some(&ECHO));
        }
        // The next copy notices a closed terminal.
        let _ = self.copy_out(|_| ());
    }

    /// Restores the modes of the caller's terminal, unless another program has set others by now.
    fn restore(&mut self) {
        let is_raw = self.reads();
        if let Some((before, _)) = self.changed.take().filter(|_| is_raw) {
            // It fails if the terminal is closed.
            let _ = tcsetattr(&self.outer, OptionalActions::Now, &before);
        }
    }

    fn resize(&self) {
        let (Ok(outer), Ok(inner)) = (tcgetwinsize(&self.outer), tcgetwinsize(&self.inner)) else {
            return;
        };
        let size = |size: &rustix::termios::Winsize| {
            (size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel)
        };
        if size(&outer) != size(&inner) {
            // The command is sent SIGWINCH by this.
            let _ = tcsetwinsize(&self.inner, outer);
        }
    }

    fn outer_is_gone(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.outer, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Copies what is typed, up to a key that has a signal, and returns that.
    fn copy_in(&mut self, now: Duration) -> io::Result<Option<i32>> {
        let mut signal = None;
        if self.takes_input(now) {
            match read_typed(&self.outer, &self.inner) {
                Ok(typed) if typed.bytes.is_empty() => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(mut typed) => {
                    let before = self.typed_before.min(typed.bytes.len());
                    self.typed_before -= before;
                    for zero in typed.bytes.iter_mut().take(before).filter(|byte| **byte == 0) {
                        *zero = self.end_of_input;
                    }
                    signal = typed.signal;
                    self.to_inner.append(&mut typed.bytes);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Ok(len) = write(&self.inner, &self.to_inner) {
            self.to_inner.drain(..len);
        }
        if !self.open {
            self.to_inner.clear();
        }
        Ok(signal)
    }

    /// Copies what is written, as much as the caller's terminal takes; `prepare` is called between reading and showing it.
    fn copy_out(&mut self, mut prepare: impl FnMut(&mut Pair)) -> io::Result<()> {
        for _ in 0..MOST_PIECES {
            if self.to_outer.is_empty() && self.open {
                let mut buffer = [0; CHUNK];
                match read(&self.inner, &mut buffer) {
                    // The last process has closed it.
                    Ok(0) | Err(Errno::IO) => self.open = false,
                    Ok(len) => {
                        self.to_outer.extend_from_slice(buffer.get(..len).unwrap_or_default());
                        prepare(self);
                        remove_repeated_returns(&mut self.to_outer, &self.outer);
                    }
                    Err(_) => return Ok(()),
                }
            }
            if self.to_outer.is_empty() {
                return Ok(());
            }
            match write(&self.outer, &self.to_outer) {
                Ok(len) => drop(self.to_outer.drain(..len)),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_without_end_is_left_for_later() {
        let open = |path| {
            OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).unwrap())
        };
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let mut pair = Pair::new(outer, 0, Vec::new(), Input::Always, Front::Others).unwrap();
        (pair.inner, pair.outer) = (open("/dev/zero"), open("/dev/null"));
        let mut pieces = 0;
        pair.copy_out(|_| pieces += 1).unwrap();
        assert_eq!(pieces, MOST_PIECES);
        assert!(pair.open && pair.to_outer.is_empty());
    }
}
