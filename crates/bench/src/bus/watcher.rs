//! A program that records a bus into a file: started, waited for until it sees traffic, and held against what was sent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host::keeper::tree;

use crate::lab::BenchError;
use capture::capture::{Capture, CaptureEvent};
use capture::load_generator::NAME;
use sys::process::MeasuredProcess;
use wire::{self, MessageType};

/// How often it is looked whether something has happened.
const STEP: Duration = Duration::from_millis(20);
/// So often, before it is taken not to happen.
const STEPS: u32 = 1000;
/// So much of the file is written at once when it is made.
const PIECE: usize = 1 << 20;
/// A record that has not grown in so many looks is taken to be whole.
const STILL: u32 = 8;

/// A program to compare with, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatcherPeer(Vec<String>);

/// Why a peer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a command, for example 'dbus-monitor --pcap'")]
pub struct NoPeer;

impl WatcherPeer {
    /// Reads a command that writes a record to its standard output; it is split at spaces, and no shell sees it.
    ///
    /// `dbus-monitor` and `busctl` are told which bus; others find it in `{address}`.
    ///
    /// # Errors
    ///
    /// There is no command.
    pub fn parse(text: &str) -> Result<WatcherPeer, NoPeer> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() { Err(NoPeer) } else { Ok(WatcherPeer(words)) }
    }

    /// Returns what it is called in the table.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.join(" ")
    }

    /// Returns its program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.0[0]
    }

    pub(super) fn is_dbus_monitor(&self) -> bool {
        self.program().rsplit('/').next() == Some("dbus-monitor")
    }

    fn command(&self, address: &str) -> Vec<String> {
        let mut words: Vec<String> =
            self.0.iter().map(|word| word.replace("{address}", address)).collect();
        match self.program().rsplit('/').next() {
            Some("dbus-monitor") => words.extend(["--address".to_owned(), address.to_owned()]),
            // All of a body, as the others record it.
            Some("busctl") => {
                words.insert(1, format!("--address={address}"));
                words.insert(1, "--size=134217728".to_owned());
            }
            _ => {}
        }
        words
    }
}

/// The file that all records are written into, one over the other, so that its pages are in memory before anybody writes.
///
/// A virtual machine may have given free memory back to its host: who writes into new pages then waits up to ten times as
/// long as for the copy alone, and the processor time of that is counted as his.
#[derive(Debug)]
pub(super) struct Paper(File);

impl Paper {
    /// Makes the file at `path`, which must not exist, with `length` bytes.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(super) fn new(path: &Path, length: usize) -> io::Result<Paper> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let piece = vec![0; PIECE];
        for _ in 0..length.div_ceil(PIECE) {
            file.write_all(&piece)?;
        }
        Ok(Paper(file))
    }

    /// Goes back to its begin, and returns it for somebody to write on.
    fn sheet(&self) -> io::Result<File> {
        (&self.0).rewind()?;
        self.0.try_clone()
    }

    /// Returns how much was written since then: whoever writes shares the place.
    fn length(&self) -> io::Result<u64> {
        (&self.0).stream_position()
    }

    /// Returns what was written since then, if it is a record.
    fn capture(&self) -> io::Result<Option<Capture>> {
        let mut bytes = vec![0; usize::try_from(self.length()?).unwrap_or(usize::MAX)];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(Capture::of(bytes))
    }
}

/// A program that can watch.
#[derive(Debug)]
pub(super) enum Watcher {
    Ours(PathBuf),
    Peer(WatcherPeer),
}

/// A program that watches.
#[derive(Debug)]
pub(super) struct Watching<'a> {
    child: Child,
    process: MeasuredProcess,
    paper: &'a Paper,
    /// What it had used when it was ready.
    used_ns: u64,
}

/// What a program did.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatcherFigures {
    /// Processor time for each message, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// Messages that are not in its record.
    pub(super) lost: f64,
}

impl Watcher {
    pub(super) fn ours(program: &Path) -> Watcher {
        Watcher::Ours(program.to_owned())
    }

    pub(super) fn peer(peer: &WatcherPeer) -> Watcher {
        Watcher::Peer(peer.clone())
    }

    fn words(&self, address: &str) -> Vec<String> {
        match self {
            Watcher::Ours(program) => {
                let program = program.display().to_string();
                let rest = ["bus", "record", "--address", address, "-o", "-"];
                std::iter::once(program).chain(rest.map(str::to_owned)).collect()
            }
            Watcher::Peer(peer) => peer.command(address),
        }
    }

    /// Starts it, and waits until it has recorded something.
    pub(super) fn start<'a>(
        &self,
        address: &str,
        paper: &'a Paper,
    ) -> Result<Watching<'a>, BenchError> {
        let words = self.words(address);
        let failed = |cause: String| BenchError::Peer { program: words.join(" "), cause };
        let file = paper.sheet().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let process = match MeasuredProcess::open(child.id()) {
            Ok(process) => process,
            Err(error) => {
                // It is ours and has not been waited for, so it is there to be ended.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error.to_string()));
            }
        };
        let mut watching = Watching { child, process, paper, used_ns: 0 };
        for _ in 0..STEPS {
            // Somebody who connects and asks is a message or two.
            let asked = bus::client::blocking::BlockingClient::connect(Some(address));
            drop(asked.map_err(|source| BenchError::Call { side: "the bus", source })?);
            if watching.process.wait(STEP).map_err(|error| failed(error.to_string()))? {
                return Err(failed("it ended at once".to_owned()));
            }
            if watching.seen() > 0 {
                watching.settle()?;
                watching.used_ns = watching.used()?;
                return Ok(watching);
            }
        }
        Err(failed("it recorded nothing".to_owned()))
    }
}

impl Watching<'_> {
    /// Returns how many messages its record has by now.
    fn seen(&self) -> usize {
        let Ok(Some(capture)) = self.paper.capture() else { return 0 };
        capture.events().filter(|event| matches!(event, CaptureEvent::Message(_))).count()
    }

    fn counters(source: std::io::Error) -> BenchError {
        BenchError::Counters { side: "who watches", source }
    }

    /// Waits until its record does not grow any more.
    fn settle(&self) -> Result<(), BenchError> {
        let mut last = 0;
        let mut still = 0;
        for _ in 0..STEPS {
            let length = self.paper.length().map_err(Watching::counters)?;
            still = if length == last { still + 1 } else { 0 };
            last = length;
            if still >= STILL || self.process.wait(STEP).map_err(Watching::counters)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the processor time that its threads, and those of the processes that it started, have used, in nanoseconds.
    fn used(&self) -> Result<u64, BenchError> {
        let own = self.process.pid();
        let started = tree::below(own).map_err(Watching::counters)?;
        let mut used = 0;
        for pid in std::iter::once(own).chain(started.iter().map(|member| member.pid)) {
            let tasks = format!("/proc/{pid}/task");
            for task in fs::read_dir(tasks).map_err(Watching::counters)? {
                let path = task.map_err(Watching::counters)?.path().join("schedstat");
                let text = fs::read_to_string(path).unwrap_or_default();
                let first = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
                used += first.unwrap_or(0);
            }
        }
        Ok(used)
    }

    /// Ends it and holds its record against `expected` messages.
    pub(super) fn end(mut self, expected: u64) -> Result<WatcherFigures, BenchError> {
        self.settle()?;
        let used = self.used()?.saturating_sub(self.used_ns);
        // It has ended already if it cannot be ended.
        let _ = self.process.terminate();
        let _ = self.child.wait();
        let not_read = |cause: String| BenchError::Peer { program: "its record".to_owned(), cause };
        let capture = self.paper.capture().map_err(|error| not_read(error.to_string()))?;
        let capture = capture.ok_or_else(|| not_read("it is no record".to_owned()))?;
        let mut ours = 0;
        for event in capture.events() {
            let CaptureEvent::Message(message) = event else { continue };
            let Ok(header) = wire::message(message.bytes) else { continue };
            let is_call = header.kind == MessageType::Call && header.destination == Some(NAME);
            let is_answer = header.kind == MessageType::Return && header.signature == "ay";
            ours += u64::from(
                (is_call || is_answer)
                    && message.bytes.len() == usize::try_from(message.length).unwrap_or(0),
            );
        }
        let number = |number: u64| u32::try_from(number).map_or(f64::INFINITY, f64::from);
        Ok(WatcherFigures {
            cpu_ns: number(used / expected.max(1)),
            lost: number(expected.saturating_sub(ours)),
        })
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // It has ended already if it cannot be killed.
        let _ = self.process.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::capture::{Encoder, RecordFormat};

    #[test]
    fn a_file_holds_the_last_record_and_nothing_of_those_before() {
        let dir = tempfile::tempdir().unwrap();
        let paper = Paper::new(&dir.path().join("x"), PIECE + 1).unwrap();
        for record in ["a long record", "short"] {
            paper.sheet().unwrap().write_all(record.as_bytes()).unwrap();
            assert_eq!(paper.length().unwrap(), u64::try_from(record.len()).unwrap());
        }
        assert!(paper.capture().unwrap().is_none());
        let mut record = Vec::new();
        Encoder::new(RecordFormat::Pcapng).begin(&mut record);
        paper.sheet().unwrap().write_all(&record).unwrap();
        assert_eq!(paper.capture().unwrap().unwrap().events().count(), 0);
    }

    #[test]
    fn a_peer_is_told_which_bus_in_its_own_way() {
        let words =
            |text: &str| WatcherPeer::parse(text).unwrap().command("unix:path=/x").join(" ");
        assert_eq!(words("dbus-monitor --pcap"), "dbus-monitor --pcap --address unix:path=/x");
        assert_eq!(
            words("busctl capture"),
            "busctl --size=134217728 --address=unix:path=/x capture"
        );
        assert_eq!(words("other -b {address}"), "other -b unix:path=/x");
        assert_eq!(WatcherPeer::parse("  "), Err(NoPeer));
    }
}
