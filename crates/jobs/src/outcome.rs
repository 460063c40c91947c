//! The report of a job that has ended, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use report::figure::{self, Quantity};
use report::text::{Charset, visible};
use serde::Serialize;
use sys::pidfd::ProcessEnd;

use super::SchedulingClass;
use super::keeper::HoldPolicy;
use super::pressure::PressureCause;
use super::report::{JobDisk, Watched};

/// How a job ended and what was measured meanwhile.
#[derive(Debug)]
pub struct JobOutcome {
    /// The command line.
    pub command: Vec<String>,
    /// The scheduling class.
    pub class: SchedulingClass,
    /// How the command ended.
    pub end: ProcessEnd,
    /// How long it ran.
    pub took: Duration,
    /// Bytes that were read from and written to disks.
    pub used: (u64, u64),
    /// Whether it loaded the library that starts write-back.
    pub preload: bool,
    /// Whether it had a cgroup of its own.
    pub cgroup: bool,
    /// When it could be held.
    pub pauses: HoldPolicy,
    /// The disks that it worked on.
    pub disks: Vec<JobDisk>,
    /// The keeper's summary, unless it was killed.
    pub watched: Option<Watched>,
}

/// The report as a JSON document; docs/json.md has the fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct JobOutcomeJson<'r> {
    schema: &'static str,
    command: &'r [String],
    class: SchedulingClass,
    exit_status: Option<i32>,
    signal: Option<i32>,
    took_ms: f64,
    read_bytes: u64,
    written_bytes: u64,
    /// Measured: of all that was written to the first disk meanwhile.
    share_idle_on_disk: Option<f64>,
    /// An estimate: what was started in the job's class of what was written.
    share_in_class: Option<f64>,
    held_ms: f64,
    own_cgroup: bool,
    preload: bool,
    disks: &'r [JobDisk],
    watched: Option<&'r Watched>,
}

impl JobOutcome {
    /// Returns which share of what was written to the job's disk meanwhile went out in the idle class, as the kernel's trace says.
    fn issued(&self) -> Option<f64> {
        self.watched.as_ref()?.issued?.share()
    }

    /// Returns which share of the written bytes was started in the job's class, as an estimate.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    fn share(&self) -> Option<f64> {
        let started = self.watched.as_ref()?.started_bytes;
        let written = self.used.1;
        (written > 0).then(|| (started as f64 / written as f64).min(1.0))
    }

    /// Returns the report for programs.
    #[must_use]
    pub fn json(&self) -> impl Serialize {
        JobOutcomeJson {
            schema: "unjank.run/1",
            command: &self.command,
            class: self.class,
            exit_status: self.end.exit_status(),
            signal: self.end.signal(),
            took_ms: self.took.as_secs_f64() * 1e3,
            read_bytes: self.used.0,
            written_bytes: self.used.1,
            share_idle_on_disk: self.issued(),
            share_in_class: self.share(),
            held_ms: self.watched.as_ref().map_or(0.0, Watched::held_ms),
            own_cgroup: self.cgroup,
            preload: self.preload,
            disks: &self.disks,
            watched: self.watched.as_ref(),
        }
    }

    /// Returns the report for people, each line with the prefix of the program.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let name = self.command.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let bytes = |bytes: u64| Quantity::Size.show(bytes as f64);
        // Writing into a text does not fail.
        let _ = write!(
            text,
            "unjank: {} in {}, {} read, {} written",
            visible(name, Charset::Unicode),
            figure::duration(self.took),
            bytes(self.used.0),
            bytes(self.used.1),
        );
        match (self.issued(), self.share()) {
            (Some(share), _) => {
                let disk = self.disks.first().map_or("", |disk| &*disk.name);
                let percent = share * 100.0;
                let _ = write!(text, "; {percent:.0} % of all writes to {disk} in the idle class");
            }
            (None, Some(share)) => {
                let _ = write!(text, "; about {:.0} % in its class, by estimate", share * 100.0);
            }
            (None, None) => (),
        }
        if let Some(watched) = &self.watched {
            for holds in &watched.holds {
                let _ = write!(
                    text,
                    "\nunjank: held {} for {}, {} together",
                    if holds.count == 1 {
                        "once".to_owned()
                    } else {
                        format!("{} times", holds.count)
                    },
                    cause(holds.cause),
                    figure::duration(Duration::from_secs_f64(holds.total_ms.max(0.0) / 1e3)),
                );
            }
        }
        for disk in &self.disks {
            let scheduler = disk.scheduler.as_deref().unwrap_or("unknown");
            let acts = match (disk.knows_classes(), self.pauses) {
                (true, _) => "knows the idle class",
                (false, HoldPolicy::WhileOthersWait) => "has no classes: only holding acts",
                (false, HoldPolicy::WhenAsked) => "has no classes: nothing acts",
            };
            let throttling = match disk.wbt_lat_usec {
                Some(0) => ", write-back throttling off".to_owned(),
                Some(usec) => {
                    let target = figure::duration(Duration::from_micros(usec));
                    format!(", write-back throttling at {target}")
                }
                None => String::new(),
            };
            let name = visible(&disk.name, Charset::Unicode);
            let _ = write!(text, "\nunjank: {name}: scheduler {scheduler} {acts}{throttling}");
        }
        text.push('\n');
        text
    }
}

fn cause(cause: PressureCause) -> &'static str {
    match cause {
        PressureCause::Io => "the disk",
        PressureCause::Memory => "memory",
        PressureCause::Cpu => "the processor",
        PressureCause::Launch => "a launch",
        PressureCause::Asked => "you",
    }
}
