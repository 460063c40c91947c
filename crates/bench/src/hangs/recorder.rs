//! The recorder that is measured: a process of its own with a store of its own, asked as a user would.

use std::io;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::judge::{Span, ToldHang};
use super::process::{OwnedProcess, ProcessUsage};
use super::scene::HangScene;
use super::served::ServedUser;
use crate::lab::{BenchError, cannot};

/// What is measured.
const RECORD: &str = "unjank hangs record";

/// A running recorder.
#[derive(Debug)]
pub(super) struct HangRecorder<'s> {
    process: OwnedProcess,
    /// The service through which it records, if it does.
    served: Option<&'s ServedUser>,
}

impl HangRecorder<'_> {
    /// Starts one; through the service, it has a session there when this returns.
    pub(super) fn start(scene: &HangScene) -> Result<HangRecorder<'_>, BenchError> {
        let mut command = scene.command(&scene.unjank);
        command.args(["hangs", "record"]).stdout(Stdio::null());
        let process = OwnedProcess::start(&mut command).map_err(|error| cannot(RECORD, error))?;
        let served = scene.served();
        if let Some(served) = served
            && !process.ends_or(|| served.sessions(process.id()) > 0)
        {
            return Err(cannot(RECORD, "it has no session in the recorder service"));
        }
        Ok(HangRecorder { process, served })
    }

    /// Returns what it has taken so far, with the service.
    pub(super) fn usage(&self) -> io::Result<ProcessUsage> {
        let own = ProcessUsage::of(self.id())?;
        let Some(served) = self.served else { return Ok(own) };
        Ok(own.with(ProcessUsage::of(served.service())?))
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it, so that everything is stored.
    pub(super) fn end(self) -> Result<(), BenchError> {
        let process = self.id();
        self.process.end().map_err(|error| cannot(RECORD, error))?;
        match self.served.map(|served| served.sessions(process)) {
            None | Some(1) => Ok(()),
            // Meanwhile it has recorded by sampling.
            Some(_) => Err(cannot(
                RECORD,
                "its session in the recorder service ended, and another one began",
            )),
        }
    }
}

#[derive(Deserialize)]
struct Document {
    hangs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    started_unix_ns: u64,
    length_ns: u64,
    process: u32,
    cause: String,
    calls: Vec<Call>,
    frames: Vec<CalledFunction>,
    blamed: Option<usize>,
    /// Only some recorders follow whom a wait was for.
    #[serde(default)]
    chain: Option<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    hops: Vec<Hop>,
}

#[derive(Deserialize)]
struct Hop {
    program: String,
}

#[derive(Deserialize)]
struct Call {
    object: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    name: String,
}

#[derive(Deserialize)]
struct CalledFunction {
    function: String,
}

/// Returns what was recorded so far; moments are made those of `CLOCK_MONOTONIC`.
pub(super) fn told(scene: &HangScene, unix_offset_ns: u64) -> Result<Vec<ToldHang>, BenchError> {
    let what = "unjank hangs --json";
    let mut command: Command = scene.command(&scene.unjank);
    command.args(["hangs", "--all", "--json", "--limit", "1000000"]).stdin(Stdio::null());
    let output = command.output().map_err(|error| cannot(what, error))?;
    if !output.status.success() {
        return Err(cannot(what, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let document: Document =
        serde_json::from_slice(&output.stdout).map_err(|error| cannot(what, error))?;
    Ok(document.hangs.into_iter().map(|entry| hang(entry, unix_offset_ns)).collect())
}

fn hang(entry: Entry, unix_offset_ns: u64) -> ToldHang {
    let from_ns = entry.started_unix_ns.saturating_sub(unix_offset_ns);
    let blamed = entry.blamed.and_then(|at| entry.frames.get(at));
    let objects = entry.calls.into_iter().filter_map(|call| Some(call.object?.name));
    let hops = entry.chain.into_iter().flat_map(|chain| chain.hops);
    ToldHang {
        process: entry.process,
        span: Span { from_ns, to_ns: from_ns.saturating_add(entry.length_ns) },
        cause: entry.cause,
        function: blamed.map(|frame| frame.function.clone()).unwrap_or_default(),
        objects: objects.collect(),
        // The first one is the program itself.
        chain: hops.skip(1).map(|hop| hop.program).collect(),
    }
}

/// Returns by how much the clock of the day is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
pub(super) fn unix_offset_ns(clock: &dyn sys::clock::Clock) -> u64 {
    let before = crate::trace::exercise::now_ns();
    let unix = clock.now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    let after = crate::trace::exercise::now_ns();
    let unix = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
    unix.saturating_sub(before.midpoint(after))
}
