//! Logs of strace (`-f -T -ttt -k -y`, or fewer of these) as recordings, so that an old log opens in our report.
//!
//! Begin with [`read`]. README.md has an example.

mod line;
mod names;
mod target;

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

pub use self::names::LogNames;

use self::line::{CallResult, Line, LineContent, LineTime};
use self::target::{Descriptors, leading_number};
use sys::syscall;
use trace::call::{CallEnd, StackId, TracedCall};
use trace::mark::{self, NOT_FOUND};
use trace::recorder::TraceRecorder;
use trace::recording::{Backend, CodeAddress, Exit, Module, Recording, Stack, StackEnd, Target};

/// The longest stack that is kept, in frames.
const FRAMES: usize = 512;
/// The most names of calls that the kernel's table does not have.
const STRANGERS: usize = 4096;
/// Calls whose names are not in the kernel's table are numbered from here.
const STRANGER: u32 = 0x4000_0000;
/// The most letters of arguments that are kept as text.
const ARGUMENTS: usize = 400;

/// The content of a log: the calls, and the names in it.
#[derive(Debug)]
pub struct Log {
    /// The calls.
    pub recording: Recording,
    /// Names of frames and calls from the log.
    pub names: LogNames,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// No line is a call.
    #[error("cannot find a system call in the log: not a log of strace")]
    NoCalls,
}

/// A call without an end so far.
struct Open {
    call: TracedCall,
    /// When its last part began; a call that the kernel restarts has several.
    part_ns: u64,
    name: String,
    arguments: Vec<u8>,
}

/// Reads a log.
///
/// Lines that are not understood are counted and left out.
///
/// # Errors
///
/// [`LogError::NoCalls`] if no line is a call.
pub fn read(log: &[u8], threshold_ns: u64) -> Result<Log, LogError> {
    let mut reader = Reader::new(log, threshold_ns);
    for line in log.split(|byte| *byte == b'\n') {
        match line::parse(line) {
            Some(line) => reader.line(line),
            None => reader.strange_lines += 1,
        }
    }
    reader.finish()
}

struct Reader {
    recorder: TraceRecorder,
    names: LogNames,
    numbers: HashMap<String, u32>,
    /// The open calls of a thread.
    open: HashMap<u32, Open>,
    /// Calls that a signal interrupted and that the kernel may go on with.
    interrupted: HashMap<u32, Open>,
    /// Which process a thread belongs to, where it is not its own.
    process: HashMap<u32, u32>,
    parents: HashMap<u32, u32>,
    descriptors: Descriptors,
    /// A call that is whole but for the frames that may follow.
    last: Option<(Open, Vec<CodeAddress>)>,
    /// The thread of lines that do not say one.
    unnamed: u32,
    began: Option<LineTime>,
    began_ns: u64,
    now_ns: u64,
    days: u64,
    calls: u64,
    strange_lines: u64,
    without_time: u64,
}

impl Reader {
    fn new(log: &[u8], threshold_ns: u64) -> Reader {
        let mut recorder = TraceRecorder::new(Backend::Import, Vec::new(), UNIX_EPOCH);
        recorder.recording().threshold_ns = threshold_ns;
        "all that the log has".clone_into(&mut recorder.recording().watched);
        Reader {
            recorder,
            names: LogNames::default(),
            numbers: HashMap::new(),
            open: HashMap::new(),
            interrupted: HashMap::new(),
            process: HashMap::new(),
            parents: HashMap::new(),
            descriptors: Descriptors::default(),
            last: None,
            unnamed: first_thread(log),
            began: None,
            began_ns: 0,
            now_ns: 0,
            days: 0,
            calls: 0,
            strange_lines: 0,
            without_time: 0,
        }
    }

    fn line(&mut self, line: Line<'_>) {
        if let LineContent::Frame(frame) = &line.says {
            if let Some((_, frames)) = &mut self.last
                && frames.len() < FRAMES
            {
                let path = frame.module.to_vec();
                let module = Module { path, build_id: None, file: None, reached_by: None };
                let module = Some(self.recorder.module(module));
                let address = CodeAddress { module, address: frame.address };
                self.names.learn(address, frame);
                frames.push(address);
            }
            return;
        }
        self.flush();
        if line.says == LineContent::Nothing {
            return;
        }
        if let Some(stamp) = line.stamp {
            self.clock(stamp);
        }
        let thread = line.thread.unwrap_or(self.unnamed);
        let process = self.process.get(&thread).copied().unwrap_or(thread);
        let at = self.now_ns;
        self.recorder.process(process).parent = self.parents.get(&process).copied();
        self.recorder.thread(thread, process, at);
        match line.says {
            LineContent::Call { name, arguments, ending } => {
                let open = self.begin(thread, process, name, arguments.to_vec());
                self.end(open, &ending);
            }
            LineContent::Unfinished { name, arguments } => {
                let open = self.begin(thread, process, name, arguments.to_vec());
                self.open.insert(thread, open);
            }
            LineContent::Resumed { name, arguments, ending } => match self.open.remove(&thread) {
                Some(mut open) => {
                    open.arguments.extend_from_slice(arguments);
                    self.end(open, &ending);
                }
                // The log begins in the middle of it.
                None => {
                    let open = self.begin(thread, process, name, arguments.to_vec());
                    self.end(open, &ending);
                }
            },
            LineContent::Exited(status) => self.ended(thread, process, Exit::Code(status)),
            LineContent::Killed(signal) => {
                self.ended(thread, process, Exit::Signal(signal_number(signal)));
            }
            LineContent::Signal | LineContent::Nothing | LineContent::Frame(_) => (),
        }
    }

    /// Sets the clock to a line's time.
    fn clock(&mut self, stamp: LineTime) {
        let absolute = match stamp {
            LineTime::Epoch(ns) => ns,
            LineTime::OfDay(ns) => {
                const DAY: u64 = 86_400_000_000_000;
                let mut ns_of_days = ns.saturating_add(self.days.saturating_mul(DAY));
                let now = self.began_ns.saturating_add(self.now_ns);
                // Past midnight; lines of threads may also be a little out of order.
                if self.began.is_some() && ns_of_days.saturating_add(DAY / 2) < now {
                    self.days += 1;
                    ns_of_days = ns_of_days.saturating_add(DAY);
                }
                ns_of_days
            }
            LineTime::Since(ns) => self.began_ns.saturating_add(self.now_ns).saturating_add(ns),
        };
        if self.began.is_none() {
            self.began = Some(stamp);
            self.began_ns = absolute;
            if let (LineTime::Epoch(_), Some(began)) =
                (stamp, UNIX_EPOCH.checked_add(Duration::from_nanos(absolute)))
            {
                self.recorder.recording().began = began;
            }
        }
        self.now_ns = absolute.saturating_sub(self.began_ns);
    }

    /// Begins a call, or goes on with one that was interrupted.
    fn begin(&mut self, thread: u32, process: u32, name: &[u8], arguments: Vec<u8>) -> Open {
        let name = String::from_utf8_lossy(name).into_owned();
        if name != "rt_sigreturn"
            && let Some(mut before) = self.interrupted.remove(&thread)
        {
            if name == "restart_syscall" || before.name == name {
                before.part_ns = self.now_ns;
                return before;
            }
            // Its handler did something else: the program was told EINTR.
            self.add(before, CallEnd::Failed(4));
        }
        let known = self.numbers.get(&name).copied();
        let number = known.or_else(|| syscall::call_number(&name)).unwrap_or_else(|| {
            let strangers = self.names.calls.len().min(STRANGERS);
            STRANGER + u32::try_from(strangers).unwrap_or(0)
        });
        if known.is_none() && self.numbers.len() < STRANGERS {
            self.numbers.insert(name.clone(), number);
            if number >= STRANGER {
                self.names.calls.push(name.clone());
            }
        }
        let call = TracedCall {
            process,
            thread,
            number,
            arguments: [0; 6],
            outcome: CallEnd::Unknown,
            start_ns: self.now_ns,
            wall_ns: 0,
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        };
        Open { call, part_ns: self.now_ns, name, arguments }
    }

    /// Ends a call.
    fn end(&mut self, mut open: Open, ending: &CallResult<'_>) {
        self.calls += 1;
        // A restarted call began before its last part did; `-T` measures that part.
        let before = open.part_ns.saturating_sub(open.call.start_ns);
        open.call.wall_ns = match ending.wall_ns {
            Some(wall) => before.saturating_add(wall),
            None => self.now_ns.saturating_sub(open.call.start_ns),
        };
        self.without_time += u64::from(ending.wall_ns.is_none());
        if self.began.is_none() {
            // Without stamps, calls are put one behind the other.
            self.now_ns = self.now_ns.saturating_add(open.call.wall_ns).saturating_add(1000);
        }
        let restarts =
            [&b"ERESTARTSYS"[..], b"ERESTARTNOINTR", b"ERESTARTNOHAND", b"ERESTART_RESTARTBLOCK"];
        if ending.error.is_some_and(|error| restarts.contains(&error)) {
            self.interrupted.insert(open.call.thread, open);
            return;
        }
        let error = ending.error.and_then(|error| std::str::from_utf8(error).ok());
        open.call.outcome = match (error.and_then(syscall::error_number), number(ending.result)) {
            (Some(errno), Some(-1)) => CallEnd::Failed(errno),
            (_, Some(value)) => CallEnd::Returned(value),
            _ => CallEnd::Unknown,
        };
        self.last = Some((open, Vec::new()));
    }

    /// Adds the last call, now that no frame follows.
    fn flush(&mut self) {
        let Some((mut open, frames)) = self.last.take() else { return };
        if !frames.is_empty() {
            let stack = Stack { frames, end: StackEnd::Whole };
            open.call.stack = Some(self.recorder.stack(stack));
        }
        let outcome = open.call.outcome;
        self.add(open, outcome);
    }

    fn add(&mut self, open: Open, outcome: CallEnd) {
        let Open { mut call, name, arguments, .. } = open;
        call.outcome = outcome;
        let words = line::split(&arguments, 8);
        let target = match (&*name, outcome) {
            ("wait4" | "waitid", CallEnd::Returned(child)) if child > 0 => {
                self.child(child, &words)
            }
            _ => self.descriptors.target(call.process, &name, &words),
        };
        if let (CallEnd::Failed(NOT_FOUND), Some(Target::File { path, .. })) = (outcome, &target)
            && let Some(name) = mark::name_of(path)
        {
            let end_ns = call.start_ns.saturating_add(call.wall_ns);
            self.recorder.mark(name, call.process, end_ns);
        }
        call.target = target.and_then(|target| self.recorder.target(target));
        if let CallEnd::Returned(result) = outcome {
            self.descriptors.learn(call.process, &name, &words, result);
            self.follow(&call, &name, &words, result);
        }
        if self.recorder.is_slow(call.wall_ns) || outcome == CallEnd::Running {
            self.names.keep_arguments(&call, &name, &arguments);
        }
        self.recorder.call(call);
    }

    /// Names the child that a wait returned.
    fn child(&mut self, id: i64, words: &[&[u8]]) -> Option<Target> {
        // `waitid` says it in its structure.
        let id = u32::try_from(id)
            .ok()
            .or_else(|| u32::try_from(leading_number(words.get(1)?)?).ok())?;
        let processes = &self.recorder.recording().processes;
        let program = processes.get(&id).map(|child| child.executable.clone());
        Some(Target::Child(id, program.unwrap_or_default()))
    }

    /// Records parents of processes and their programs.
    fn follow(&mut self, call: &TracedCall, name: &str, words: &[&[u8]], result: i64) {
        let at = call.start_ns;
        match (name, u32::try_from(result)) {
            ("clone" | "clone3" | "fork" | "vfork", Ok(child)) if child > 0 => {
                let is_thread =
                    words.iter().any(|word| line::find(word, b"CLONE_THREAD").is_some());
                let begun = self.process.contains_key(&child) || self.parents.contains_key(&child);
                if begun || child == call.process {
                    return;
                }
                if is_thread {
                    self.process.insert(child, call.process);
                    self.adopt(child, call.process);
                } else {
                    self.parents.insert(child, call.process);
                    self.recorder.thread(child, child, at);
                }
                let process = if is_thread { call.process } else { child };
                let recording = self.recorder.recording();
                let program = recording.processes.get(&call.process).cloned().unwrap_or_default();
                let thread = recording.threads.get(&call.thread).map(|thread| thread.name.clone());
                let child_thread = self.recorder.thread(child, process, at);
                if child_thread.name.is_empty() {
                    child_thread.name = thread.unwrap_or_default();
                }
                if !is_thread {
                    let parent = Some(call.process);
                    let process = self.recorder.process(child);
                    process.parent = parent;
                    if process.executable.is_empty() {
                        process.executable = program.executable;
                        process.command = program.command;
                    }
                }
            }
            ("execve" | "execveat", Ok(0)) => {
                let at = if name == "execve" { 0 } else { 1 };
                let program = words.get(at).and_then(|word| line::string(word)).unwrap_or_default();
                let command = words.get(at + 1).map(|word| target::words(word)).unwrap_or_default();
                let base = trace::report::names::last_component(&program).to_vec();
                self.recorder.thread(call.thread, call.process, call.start_ns).name =
                    base.get(..15).unwrap_or(&base).to_vec();
                if self.recorder.recording().command.is_empty() {
                    self.recorder.recording().command.clone_from(&command);
                }
                let process = self.recorder.process(call.process);
                (process.executable, process.command) = (program, command);
            }
            _ => (),
        }
    }

    /// Makes a thread that was taken for a process part of one: its first lines came before its `clone` returned.
    fn adopt(&mut self, thread: u32, process: u32) {
        let recording = self.recorder.recording();
        if let Some(known) = recording.threads.get_mut(&thread) {
            known.process = process;
        }
        recording.processes.remove(&thread);
        for call in recording.slow.iter_mut().filter(|call| call.thread == thread) {
            call.process = process;
        }
        for open in [&mut self.open, &mut self.interrupted] {
            if let Some(open) = open.get_mut(&thread) {
                open.call.process = process;
            }
        }
    }

    fn ended(&mut self, thread: u32, process: u32, exit: Exit) {
        let open = [self.open.remove(&thread), self.interrupted.remove(&thread)];
        for open in open.into_iter().flatten() {
            self.add(open, CallEnd::Unknown);
        }
        self.recorder.thread_ended(thread, self.now_ns);
        if thread == process {
            self.recorder.process_ended(process, Some(exit), self.now_ns);
        }
    }

    fn finish(mut self) -> Result<Log, LogError> {
        self.flush();
        let mut rest: Vec<Open> = self.open.drain().map(|(_, open)| open).collect();
        rest.extend(self.interrupted.drain().map(|(_, open)| open));
        rest.sort_by_key(|open| (open.call.start_ns, open.call.thread));
        self.calls += rest.len() as u64;
        for mut open in rest {
            open.call.wall_ns = self.now_ns.saturating_sub(open.call.start_ns);
            self.add(open, CallEnd::Running);
        }
        if self.calls == 0 {
            return Err(LogError::NoCalls);
        }
        let mut note = |text: String| self.recorder.recording().notes.push(text);
        note(
            "read from a log of strace, whose own share of each call's time is in the figures"
                .to_owned(),
        );
        if self.names.has_frames() {
            note("names of frames are strace's: the nearest exported symbol below, which in stripped programs is often another function".to_owned());
        }
        if self.without_time > self.calls / 2 {
            note("the log does not say how long calls took; strace -T writes that".to_owned());
        }
        if self.began.is_none() {
            note("the log does not say when calls were made; strace -ttt writes that".to_owned());
        }
        if self.strange_lines > 0 {
            note(format!("{} lines of the log were not understood", self.strange_lines));
        }
        let length = self.now_ns;
        Ok(Log { recording: self.recorder.finish(length), names: self.names })
    }
}

/// Finds the number of the first thread, whose lines say none until there is a second one.
fn first_thread(log: &[u8]) -> u32 {
    let mut started = Vec::new();
    for line in log.split(|byte| *byte == b'\n').take(100_000) {
        if let Some(rest) = line.strip_prefix(b"strace: Process ") {
            started.extend(leading_number(rest));
            continue;
        }
        if let Some(thread) = line::parse(line).and_then(|line| line.thread)
            && !started.contains(&i64::from(thread))
        {
            return thread;
        }
    }
    1
}

/// Reads a result: decimal, hexadecimal, with or without what stands behind it.
fn number(result: &[u8]) -> Option<i64> {
    if let Some(digits) = result.strip_prefix(b"0x") {
        let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
        let digits = std::str::from_utf8(&digits[..end]).ok()?;
        return u64::from_str_radix(digits, 16).ok().map(u64::cast_signed);
    }
    leading_number(result)
}

/// Returns the number of a signal by its name, 0 for one that we do not know.
fn signal_number(name: &[u8]) -> i32 {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    (1..).zip(NAMES).find(|(_, known)| known.as_bytes() == name).map_or(0, |(number, _)| number)
}

/// Returns the stack by its index.
fn stack_of(recording: &Recording, id: StackId) -> Option<&Stack> {
    recording.stacks.get(usize::try_from(id.0).ok()?)
}

#[cfg(test)]
mod tests;

/// The example of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
