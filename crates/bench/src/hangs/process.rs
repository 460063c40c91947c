//! A process that ends with whoever started it, and what it took.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// How long a process is waited for that was told to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a wait looks whether it is over.
const LOOK: Duration = Duration::from_millis(100);

/// A process of ours; it is killed and waited for when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedProcess {
    child: Child,
    /// What it reads; it may end when this is closed.
    input: Option<ChildStdin>,
}

impl OwnedProcess {
    /// Starts a process that says nothing.
    pub(super) fn start(command: &mut Command) -> io::Result<OwnedProcess> {
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        Ok(OwnedProcess { child, input })
    }

    /// Starts a process whose log goes into a file.
    pub(super) fn start_logging(command: &mut Command, log: fs::File) -> io::Result<OwnedProcess> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(OwnedProcess { child: command.spawn()?, input: None })
    }

    /// Starts a process, and waits for the first line that it prints.
    pub(super) fn start_saying(command: &mut Command) -> io::Result<(OwnedProcess, String)> {
        let mut process = OwnedProcess::start(command.stdout(Stdio::piped()))?;
        let output = process.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        match line.trim() {
            "" => Err(io::Error::other("it ended at once")),
            line => Ok((process, line.to_owned())),
        }
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes what it prints and what it reads.
    pub(super) fn streams(&mut self) -> (Option<std::process::ChildStdout>, Option<ChildStdin>) {
        (self.child.stdout.take(), self.input.take())
    }

    /// Tells it to end, and waits until it has.
    pub(super) fn end(self) -> io::Result<()> {
        self.end_within(PATIENCE)
    }

    /// Tells it to end, and waits until it has, for so long.
    pub(super) fn end_within(mut self, patience: Duration) -> io::Result<()> {
        sys::supervise::send(self.id(), 15)?;
        let handle = sys::pidfd::open(self.id())?;
        if !sys::socket::wait_readable(&handle, Some(patience))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.child.wait()?;
        Ok(())
    }

    /// Closes what it reads, and gives it time to end by itself.
    pub(super) fn let_end(mut self) {
        drop(self.input.take());
        // One that does not end is killed.
        if let Ok(handle) = sys::pidfd::open(self.id()) {
            let _ = sys::socket::wait_readable(&handle, Some(PATIENCE));
        }
    }

    /// Waits until something is there that it makes; returns false if it ends, or does not make it in time.
    pub(super) fn ends_or(&self, mut is_there: impl FnMut() -> bool) -> bool {
        let Ok(handle) = sys::pidfd::open(self.id()) else { return false };
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            match is_there() {
                true => return true,
                false if sys::socket::wait_readable(&handle, Some(LOOK)).unwrap_or(true) => break,
                false => {}
            }
        }
        is_there()
    }

    /// Returns whether it still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error says that it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessUsage {
    /// The time that its threads ran, in nanoseconds.
    pub(super) ran_ns: f64,
    /// How often its threads began to wait.
    pub(super) waits: f64,
}

impl ProcessUsage {
    /// Returns what two processes have taken together.
    pub(super) fn with(self, other: ProcessUsage) -> ProcessUsage {
        ProcessUsage { ran_ns: self.ran_ns + other.ran_ns, waits: self.waits + other.waits }
    }

    /// Reads it for all threads of a process.
    pub(super) fn of(process: u32) -> io::Result<ProcessUsage> {
        let mut usage = ProcessUsage::default();
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            let (Ok(times), Ok(status)) = (
                fs::read_to_string(thread.join("schedstat")),
                fs::read_to_string(thread.join("status")),
            ) else {
                continue;
            };
            usage.ran_ns += number(times.split_ascii_whitespace().next());
            usage.waits += field(&status, "voluntary_ctxt_switches:");
        }
        Ok(usage)
    }
}

/// Returns the resident memory of a process in bytes.
pub(super) fn memory(process: u32) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(field(&status, "VmRSS:") * 1024.0)
}

fn field(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    number(line.and_then(|line| line.split_ascii_whitespace().next()))
}

fn number(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}
