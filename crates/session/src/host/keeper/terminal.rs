//! The terminal of a command: the caller's own where nobody else has it, else one of ours that is copied to and from it.
//!
//! A terminal controls one session, which in the usual case is that of the shell in which the caller runs. A program
//! outside of that session gets no signals from it, so we make another terminal, lead its session, and put the command
//! in front. The caller's terminal passes every byte on meanwhile, as long as the caller is in front itself.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, fstat, major, minor, open};
use rustix::io::{Errno, ioctl_fionread, read, write};
use rustix::process::{Pid, Signal, getpgrp, ioctl_tiocsctty, kill_process_group};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, isatty,
    tcgetattr, tcgetwinsize, tcsetattr, tcsetpgrp, tcsetwinsize,
};
use sys::pidfd::{self, Scope};

use crate::host::identity::is_proxy_process;
use crate::host::process::Stat;

const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;
/// How often the size of the caller's terminal is looked at, which nobody outside of its session is told of.
const LOOK: Duration = Duration::from_millis(200);
/// How much is copied at a time.
const CHUNK: usize = 16 << 10;
/// How long the end of a command waits for its last output to be taken, in tenths of a second.
const MOST_WAITS: usize = 20;

/// The terminal of a command.
#[derive(Debug)]
pub(super) struct Terminal {
    client: Option<Client>,
    kind: Kind,
}

/// The process that asked for the command.
#[derive(Debug)]
struct Client {
    pid: u32,
    process: OwnedFd,
}

impl Client {
    /// Stops the client and, if it is in front of its terminal, the job of its shell that it is a part of, as the terminal
    /// would have done.
    fn stop(&self) {
        // What has ended is not stopped.
        let _ = pidfd::signal(self.process.as_fd(), self.pid, SIGTSTP, Scope::Process);
        let Some(own) = Stat::of(self.pid).filter(|own| own.group == own.foreground) else {
            return;
        };
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let of_job = |pid| {
                Stat::of(pid).is_some_and(|it| it.group == own.group && it.session == own.session)
            };
            // The proxy of a sandbox may be in the job. The client needs it to tell that it stops.
            if pid == self.pid || !of_job(pid) || is_proxy_process(pid) {
                continue;
            }
            if let Ok(process) = pidfd::open(pid)
                && of_job(pid)
            {
                let _ = pidfd::signal(process.as_fd(), pid, SIGTSTP, Scope::Process);
            }
        }
    }
}

#[derive(Debug)]
enum Kind {
    /// The caller's terminal, which is nobody else's.
    Theirs(OwnedFd),
    /// One of ours.
    Ours(Box<Pair>),
}

/// When what is typed goes to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Always: its output is the terminal, so that it is the one that people talk to.
    Always,
    /// When it has changed the modes of its terminal, as who asks for a password does: it is one of several in a pipe,
    /// its standard input is the caller's terminal itself, and another one may be reading there.
    WhenAsked,
}

/// Whose the caller's terminal is when the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Caller,
    Others,
}

/// A terminal of ours, and the caller's.
#[derive(Debug)]
struct Pair {
    /// The caller's, opened once more, so that not waiting for it is our own affair.
    outer: OwnedFd,
    /// The device of the caller's, as `/proc/PID/stat` has it.
    device: u64,
    /// The standard descriptors that are to be ours.
    numbers: Vec<i32>,
    inner: OwnedFd,
    /// The command's side; held so that it stays while a command has closed it, until that has ended.
    held: Option<OwnedFd>,
    input: Input,
    /// The modes that ours began with.
    first: Termios,
    /// How much of what is read next was typed before the caller's terminal passed every byte on. An end of input among it
    /// comes as a zero byte.
    typed_before: usize,
    /// The character that ends the input in the caller's terminal.
    end_of_input: u8,
    /// Whether the caller has been in front.
    was_in_front: bool,
    /// The modes that theirs had and that we gave it, while we have changed it.
    changed: Option<(Termios, Termios)>,
    stopped: bool,
    finished: bool,
    /// Whether anybody still has the command's side.
    open: bool,
    to_inner: Vec<u8>,
    to_outer: Vec<u8>,
}

impl Terminal {
    /// Looks whether standard descriptors of this process, which are the command's, are a terminal, and makes it or one
    /// of ours the terminal of our session; `None` if there is none, or it cannot be opened.
    #[expect(clippy::disallowed_methods, reason = "descriptors, not output")]
    pub(super) fn of(client: u32) -> Option<Terminal> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let standard = [(0, stdin.as_fd()), (1, stdout.as_fd()), (2, stderr.as_fd())];
        let device = |fd: BorrowedFd<'_>| isatty(fd).then(|| fstat(fd).ok()).flatten();
        // Standard output first: it says what people look at.
        let order = [1, 0, 2].map(|number: usize| standard[number]);
        let (first, status) = order
            .iter()
            .find_map(|(number, fd)| device(*fd).map(|status| ((*number, *fd), status)))?;
        let client = pidfd::open(client).ok().map(|process| Client { pid: client, process });
        if ioctl_tiocsctty(first.1).is_ok() {
            let theirs = sys::launch::above(first.1, 3).ok()?;
            return Some(Terminal { client, kind: Kind::Theirs(theirs) });
        }
        let input = if first.0 == 1 { Input::Always } else { Input::WhenAsked };
        let same = |fd: BorrowedFd<'_>| device(fd).is_some_and(|s| s.st_rdev == status.st_rdev);
        let numbers = standard.iter().filter(|(_, fd)| input == Input::Always && same(*fd));
        let numbers = numbers.map(|(number, _)| *number).collect();
        let device = number_of(status.st_rdev);
        let is_front = client.as_ref().is_some_and(|client| is_in_front(client.pid, device));
        let front = if is_front { Front::Caller } else { Front::Others };
        let pair = Pair::new(first.1, device, numbers, input, front).ok()?;
        Some(Terminal { client, kind: Kind::Ours(Box::new(pair)) })
    }

    /// Returns the descriptors that the command gets instead of the caller's terminal; ours have numbers from `least` on.
    pub(super) fn descriptors(&self, least: RawFd) -> io::Result<Vec<(OwnedFd, i32)>> {
        let Kind::Ours(pair) = &self.kind else { return Ok(Vec::new()) };
        let held = pair.held.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let numbers = pair.numbers.iter();
        numbers.map(|number| Ok((sys::launch::above(held.as_fd(), least)?, *number))).collect()
    }

    /// Puts the command in front of its terminal.
    pub(super) fn hand_over(&mut self, pid: u32) {
        let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        self.put_in_front(group);
        // It may have been stopped for reading before it was in front.
        let _ = kill_process_group(group, Signal::CONT);
    }

    fn put_in_front(&self, group: Pid) {
        let terminal = match &self.kind {
            Kind::Theirs(terminal) => terminal,
            Kind::Ours(pair) => pair.held.as_ref().unwrap_or(&pair.inner),
        };
        // A terminal that is gone has no front.
        let _ = tcsetpgrp(terminal, group);
    }

    /// Says whether nothing can come from it any more.
    pub(super) fn is_over(&self) -> bool {
        match &self.kind {
            Kind::Theirs(_) => true,
            Kind::Ours(pair) => !pair.open && pair.to_outer.is_empty(),
        }
    }

    /// Returns after which time it should be looked at although nothing has happened.
    pub(super) fn looks_again(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Ours(pair) if !pair.finished && self.client.is_some() => Some(LOOK),
            _ => None,
        }
    }

    /// Adds what has to be waited for.
    pub(super) fn poll<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) {
        let Kind::Ours(pair) = &self.kind else { return };
        if let Some(client) = &self.client {
            polled.push(PollFd::new(&client.process, PollFlags::IN));
        }
        let mut outer = PollFlags::empty();
        outer.set(PollFlags::IN, pair.reads() && pair.to_inner.is_empty());
        outer.set(PollFlags::OUT, !pair.to_outer.is_empty());
        polled.push(PollFd::new(&pair.outer, outer));
        let mut inner = PollFlags::empty();
        inner.set(PollFlags::IN, pair.to_outer.is_empty());
        inner.set(PollFlags::OUT, !pair.to_inner.is_empty());
        if pair.open && !inner.is_empty() {
            polled.push(PollFd::new(&pair.inner, inner));
        }
    }

    /// Copies what there is, both ways.
    ///
    /// # Errors
    ///
    /// The caller's terminal is gone.
    pub(super) fn copy(&mut self) -> io::Result<()> {
        if self
            .client
            .as_ref()
            .is_some_and(|client| pidfd::has_ended(&client.process).unwrap_or(true))
        {
            self.client = None;
        }
        let client = self.client.as_ref().map(|client| client.pid);
        let Kind::Ours(pair) = &mut self.kind else { return Ok(()) };
        if pair.outer_is_gone()? {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        pair.copy_out()?;
        pair.look(client);
        pair.copy_in()?;
        Ok(())
    }

    /// Takes it that the terminal of the caller may have another size.
    pub(super) fn resize(&mut self) {
        if let Kind::Ours(pair) = &self.kind {
            pair.resize();
        }
    }

    /// Takes it that the command was stopped; so is its caller, so that its shell goes on.
    pub(super) fn stopped(&mut self, signal: i32) {
        if let Kind::Ours(pair) = &mut self.kind {
            pair.stopped = true;
            pair.restore();
        }
        // A caller that stops its command stops itself.
        if let Some(client) = self.client.as_ref().filter(|_| signal != SIGSTOP) {
            client.stop();
        }
    }

    /// Gives the caller's terminal back for good; what the command writes still comes there.
    pub(super) fn give_back(&mut self) {
        self.client = None;
        if let Kind::Ours(pair) = &mut self.kind {
            pair.restore();
        }
    }

    /// Takes it that the command goes on.
    pub(super) fn continued(&mut self) {
        if let Kind::Ours(pair) = &mut self.kind {
            pair.stopped = false;
        }
    }

    /// Takes it that the command has ended: its last output is copied, and the caller's terminal is as it was.
    pub(super) fn finish(&mut self) {
        // Ours is the group that a hangup reaches: what the command left behind goes on.
        self.put_in_front(getpgrp());
        let Kind::Ours(pair) = &mut self.kind else { return };
        pair.finished = true;
        pair.held = None;
        for _ in 0..MOST_WAITS {
            if pair.copy_out().is_err() || pair.to_outer.is_empty() {
                break;
            }
            let mut polled = [PollFd::new(&pair.outer, PollFlags::OUT)];
            let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut polled, Some(&tenth));
        }
        pair.restore();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.restore();
    }
}

impl Pair {
    fn new(
        theirs: BorrowedFd<'_>,
        device: u64,
        numbers: Vec<i32>,
        input: Input,
        front: Front,
    ) -> io::Result<Pair> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        let outer = sys::launch::above(open(path, flags, Mode::empty())?.as_fd(), 3)?;
        let inner = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        let inner = sys::launch::above(inner.as_fd(), 3)?;
        fcntl_setfl(&inner, OFlags::RDWR | OFlags::NONBLOCK)?;
        unlockpt(&inner)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let held = sys::launch::above(ioctl_tiocgptpeer(&inner, flags)?.as_fd(), 3)?;
        let mut first = tcgetattr(&outer)?;
        let end_of_input = first.special_codes[SpecialCodeIndex::VEOF];
        if front == Front::Others {
            // What the terminal is set to is for those who are in front, as a shell that edits its line.
            edit_lines(&mut first);
        }
        tcsetattr(&held, OptionalActions::Now, &first)?;
        tcsetwinsize(&held, tcgetwinsize(&outer)?)?;
        ioctl_tiocsctty(&held)?;
        let first = tcgetattr(&held)?;
        Ok(Pair {
            outer,
            device,
            numbers,
            inner,
            held: Some(held),
            input,
            first,
            typed_before: 0,
            end_of_input,
            was_in_front: false,
            changed: None,
            stopped: false,
            finished: false,
            open: true,
            to_inner: Vec::new(),
            to_outer: Vec::new(),
        })
    }

    /// Says whether what is typed is ours now.
    fn reads(&self) -> bool {
        self.changed.is_some()
    }

    /// Takes the caller's terminal while its caller is in front and the command wants it, and gives it back else.
    fn look(&mut self, client: Option<u32>) {
        let asked = self.input == Input::Always
            || tcgetattr(&self.inner).is_ok_and(|now| !same(&now, &self.first));
        let in_front = client.is_some_and(|pid| is_in_front(pid, self.device));
        let wanted = asked && in_front && !self.stopped && !self.finished;
        match (&self.changed, wanted) {
            (None, true) => self.take(),
            (Some(_), false) => self.restore(),
            _ => {}
        }
        if wanted {
            self.resize();
        }
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

    /// Gives our terminal the modes that the caller's has when its caller comes to the front, unless the command has set
    /// others by then.
    fn begin_with(&mut self, modes: &Termios) {
        if !tcgetattr(&self.inner).is_ok_and(|now| same(&now, &self.first)) {
            return;
        }
        // A terminal that is gone has no modes.
        let _ = tcsetattr(&self.inner, OptionalActions::Now, modes);
        if let Ok(now) = tcgetattr(&self.inner) {
            self.first = now;
        }
    }

    /// Gives the caller's terminal its modes back, unless somebody else has set others by now.
    fn restore(&mut self) {
        if let Some((before, raw)) = self.changed.take()
            && tcgetattr(&self.outer).is_ok_and(|now| same(&now, &raw))
        {
            // A terminal that is gone has no modes.
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

    /// Copies what is typed.
    fn copy_in(&mut self) -> io::Result<()> {
        if self.reads() && self.to_inner.is_empty() {
            let mut buffer = [0; CHUNK];
            match read(&self.outer, &mut buffer) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(len) => {
                    let typed = buffer.get_mut(..len).unwrap_or_default();
                    let before = self.typed_before.min(len);
                    self.typed_before -= before;
                    for zero in typed.iter_mut().take(before).filter(|byte| **byte == 0) {
                        *zero = self.end_of_input;
                    }
                    self.to_inner.extend_from_slice(typed);
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
        Ok(())
    }

    /// Copies what is written, as much as the caller's terminal takes.
    fn copy_out(&mut self) -> io::Result<()> {
        loop {
            if self.to_outer.is_empty() && self.open {
                let mut buffer = [0; CHUNK];
                match read(&self.inner, &mut buffer) {
                    // The last one who had it has closed it.
                    Ok(0) | Err(Errno::IO) => self.open = false,
                    Ok(len) => {
                        self.to_outer.extend_from_slice(buffer.get(..len).unwrap_or_default());
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
    }
}

/// Returns a device as `/proc/PID/stat` has it.
fn number_of(device: u64) -> u64 {
    u64::from(minor(device) & 0xff)
        | u64::from(major(device)) << 8
        | u64::from(minor(device) & !0xff) << 12
}

/// Says whether the process is in front of the terminal `device`, or has another or none, so that its shell does not
/// say who is.
fn is_in_front(pid: u32, device: u64) -> bool {
    let is_front = |own: Stat| own.terminal != device || own.group == own.foreground;
    Stat::of(pid).is_some_and(is_front)
}

/// Makes modes those of a terminal in which lines are typed, as `stty sane` does.
fn edit_lines(modes: &mut Termios) {
    modes.input_modes.insert(InputModes::ICRNL | InputModes::IXON | InputModes::BRKINT);
    modes.input_modes.remove(InputModes::INLCR | InputModes::IGNCR);
    modes.output_modes.insert(OutputModes::OPOST | OutputModes::ONLCR);
    let edited = LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
    let echoed = LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK;
    modes.local_modes.insert(edited | echoed);
}

fn same(one: &Termios, other: &Termios) -> bool {
    one.input_modes == other.input_modes
        && one.output_modes == other.output_modes
        && one.control_modes == other.control_modes
        && one.local_modes == other.local_modes
}
