//! `bench bus`: what calls on a private bus lose while somebody watches, what the watcher needs, and how long a record takes to read, beside others.

mod reading;
mod watcher;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub use reading::{NoReader, RecordReader};
pub use watcher::{NoPeer, WatcherPeer};
use watcher::{Paper, Watcher};

use super::lab::{BenchError, Effort, Measuring};
use super::names::{BUS, BenchNames, Needs};
use super::row::{FigureRow, FigureTarget};
use super::run;
use lab::session::{BenchSession, ServiceProgram};
use report::figure::Quantity;
use report::samples::Samples;
use sys::clock::Clock;
use sys::scratch;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// This program.
    pub unjank: PathBuf,
    /// What is compared with.
    pub peers: Vec<WatcherPeer>,
    /// What reads a record beside us.
    pub readers: Vec<RecordReader>,
    /// Where records are written, in a directory of their own.
    pub dir: PathBuf,
    /// How much is measured.
    pub effort: Effort,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
    /// The time.
    pub clock: &'a dyn Clock,
}

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = BUS;

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

/// What is measured at once.
pub type Figure = run::Figure<BenchWork>;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum BenchWork {
    /// Calls while somebody watches.
    Calls(CallLoad),
    /// The figures of a record with so many messages.
    Reading(u32),
}

/// What is called, and how often.
#[derive(Clone, Copy, Debug)]
pub struct CallLoad {
    window: u32,
    size: u32,
    calls: usize,
}

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "one-64",
        about: "calls of 64 B, one at a time",
        seconds: 20,
        needs: Needs::Nothing,
        run: BenchWork::Calls(CallLoad { window: 1, size: 64, calls: 8000 }),
    },
    Figure {
        id: "many-64",
        about: "calls of 64 B, 32 at a time",
        seconds: 20,
        needs: Needs::Nothing,
        run: BenchWork::Calls(CallLoad { window: 32, size: 64, calls: 20_000 }),
    },
    Figure {
        id: "many-4k",
        about: "calls of 4 KiB, 32 at a time",
        seconds: 20,
        needs: Needs::Nothing,
        run: BenchWork::Calls(CallLoad { window: 32, size: 4096, calls: 8000 }),
    },
    Figure {
        id: "many-64k",
        about: "calls of 64 KiB, 32 at a time",
        seconds: 20,
        needs: Needs::Nothing,
        run: BenchWork::Calls(CallLoad { window: 32, size: 65_536, calls: 1500 }),
    },
    Figure {
        id: "stats-million",
        about: "figures of 1,000,000 messages",
        seconds: 60,
        needs: Needs::Nothing,
        run: BenchWork::Reading(1_000_000),
    },
];

/// What one program lets through, and needs.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// Calls in a second.
    rate: Samples,
    /// Processor time for a message, in nanoseconds.
    cpu: Samples,
    /// Messages that are not in its record.
    lost: Samples,
}

/// Measures one figure.
///
/// # Errors
///
/// There is no session, or a program cannot be run.
pub fn rows(lab: &Lab<'_>, figure: &Figure) -> Result<Vec<FigureRow>, BenchError> {
    match figure.run {
        BenchWork::Calls(calls) => calls_rows(lab, figure, calls),
        BenchWork::Reading(messages) => reading::rows(lab, figure.id, figure.about, messages),
    }
}

fn calls_rows(
    lab: &Lab<'_>,
    figure: &Figure,
    calls: CallLoad,
) -> Result<Vec<FigureRow>, BenchError> {
    let scratch = scratch::within(&lab.dir).map_err(|source| BenchError::Peer {
        program: lab.dir.display().to_string(),
        cause: source.to_string(),
    })?;
    // Nothing is ever activated on it.
    let session = BenchSession::start(
        &ServiceProgram::plain("/bin/false".as_ref()),
        scratch.path(),
        scratch.path(),
    )?;
    let traffic = Traffic { lab, address: session.address() };
    let answer = traffic.answer()?;
    let ours = Watcher::ours(&lab.unjank);
    let theirs = lab.peers.iter().map(Watcher::peer);
    let watchers: Vec<Option<Watcher>> =
        [None, Some(ours)].into_iter().chain(theirs.map(Some)).collect();
    let mut measured = vec![Measured::default(); watchers.len()];
    // What stands around a message is less than a KiB.
    let length = 2 * calls.calls * (usize::try_from(calls.size).unwrap_or(0) + 1024);
    let paper = Paper::new(&scratch.path().join("record"), length).map_err(|source| {
        BenchError::Peer { program: lab.dir.display().to_string(), cause: source.to_string() }
    })?;
    // Everything runs once before it counts.
    traffic.calls(CallLoad { calls: calls.calls / 8, ..calls })?;
    for round in 0..lab.effort.of(11, 1) {
        for step in 0..watchers.len() {
            if lab.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            // Each round begins with another one.
            let place = (round + step) % watchers.len();
            let into = &mut measured[place];
            match &watchers[place] {
                None => into.rate.push(traffic.calls(calls)?),
                Some(watcher) => {
                    let watching = watcher.start(session.address(), &paper)?;
                    let rate = traffic.calls(calls)?;
                    let found = watching.end(u64::try_from(2 * calls.calls).unwrap_or(0))?;
                    into.rate.push(rate);
                    into.cpu.push(found.cpu_ns);
                    into.lost.push(found.lost);
                }
            }
        }
    }
    drop(answer);
    Ok(described(lab, figure, &measured))
}

fn described(lab: &Lab<'_>, figure: &Figure, measured: &[Measured]) -> Vec<FigureRow> {
    let [none, ours, peers @ ..] = measured else { return Vec::new() };
    let row =
        |title: String, quantity, ours: &Samples, peer: &Samples, target, note: &str| FigureRow {
            id: figure.id,
            title,
            quantity,
            ours: ours.clone(),
            peer: peer.clone(),
            target,
            note: note.to_owned(),
        };
    let about = figure.about;
    let mut rows = vec![
        row(
            format!("{about} (peer: nobody watches)"),
            Quantity::Rate,
            &ours.rate,
            &none.rate,
            None,
            "calls in a second while somebody watches",
        ),
        row(
            format!("messages lost, {about}"),
            Quantity::Count,
            &ours.lost,
            &Samples::default(),
            Some(FigureTarget::Within(0.0)),
            "messages that were sent and are not in the record",
        ),
    ];
    for (peer, theirs) in lab.peers.iter().zip(peers) {
        let name = peer.name();
        rows.push(row(
            format!("{about} (peer: {name})"),
            Quantity::Rate,
            &ours.rate,
            &theirs.rate,
            Some(FigureTarget::AtLeast(1.0)),
            "calls in a second while somebody watches",
        ));
        let half = peer.is_dbus_monitor().then_some(FigureTarget::AtMost(0.5));
        rows.push(row(
            format!("processor time for a message, {about} (peer: {name})"),
            Quantity::Time,
            &ours.cpu,
            &theirs.cpu,
            half,
            "of all threads of who watches, as the scheduler counts it; the record goes over one that is in memory",
        ));
        rows.push(row(
            format!("messages lost by {name}, {about}"),
            Quantity::Count,
            &Samples::default(),
            &theirs.lost,
            None,
            "messages that were sent and are not in the record",
        ));
    }
    rows
}

/// Programs of our own that talk to each other on the bus.
struct Traffic<'a> {
    lab: &'a Lab<'a>,
    address: &'a str,
}

/// Who answers; ends when it is dropped.
struct Answer(Child);

impl Drop for Answer {
    fn drop(&mut self) {
        // It has ended already if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Traffic<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.lab.unjank);
        command.args(["bus", "traffic", "--address", self.address]).stdin(Stdio::null());
        command
    }

    fn failed(cause: impl std::fmt::Display) -> BenchError {
        BenchError::Peer { program: "unjank bus traffic".to_owned(), cause: cause.to_string() }
    }

    /// Starts who answers, and waits until it does.
    fn answer(&self) -> Result<Answer, BenchError> {
        let child = self.command().arg("answer").stderr(Stdio::null()).spawn();
        let answer = Answer(child.map_err(Traffic::failed)?);
        let client = bus::client::blocking::BlockingClient::connect(Some(self.address));
        let waited = client.and_then(|client| client.wait_for_owner(capture::load_generator::NAME));
        waited.map_err(|source| BenchError::Call { side: "unjank bus traffic", source })?;
        Ok(answer)
    }

    /// Makes calls and returns how many were answered in a second.
    fn calls(&self, calls: CallLoad) -> Result<f64, BenchError> {
        let CallLoad { window, size, calls } = calls;
        let numbers = [calls.to_string(), window.to_string(), size.to_string()];
        let output = self.command().arg("call").args(numbers).output().map_err(Traffic::failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let whole: f64 = match text.lines().next().and_then(|line| line.parse().ok()) {
            Some(whole) if output.status.success() => whole,
            _ => return Err(Traffic::failed(String::from_utf8_lossy(&output.stderr).trim())),
        };
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        Ok(f64::from(calls) * 1e9 / whole)
    }
}
