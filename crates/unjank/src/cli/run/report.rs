//! What became of a job, for a person or a program.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probe::report::figure::{self, Quantity};
use report::guard::{Content, Guard};
use report::text::{Charset, visible};
use serde::Serialize;
use session::jobs::Class;
use session::jobs::keeper::Pauses;
use session::jobs::report::{Disk, Watched};
use sys::pidfd::Ended;

use crate::cli::screen;
use crate::error::{Error, Kind};

/// A job that is shorter says nothing by itself.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// Where a report goes.
#[derive(Debug)]
pub(super) enum Where {
    /// To a terminal on stderr, if there is one and the job was long.
    Terminal,
    /// To stderr.
    Stderr,
    /// To a file.
    File(PathBuf),
}

/// A place for a report that was made sure of before the command ran.
#[derive(Debug)]
pub(super) enum Opened {
    /// None.
    Nowhere,
    /// Our stderr, for people.
    Stream(File, Length),
    /// A file, and our stderr to say that it could not be written.
    File { file: File, path: PathBuf, stderr: Option<File> },
}

/// Which jobs are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// All.
    Any,
    /// Long ones.
    Long,
}

impl Where {
    pub(super) fn new(option: Option<PathBuf>) -> Where {
        match option {
            None => Where::Terminal,
            Some(path) if path.as_os_str() == "-" => Where::Stderr,
            Some(path) => Where::File(path),
        }
    }

    /// Opens the place; one that cannot be opened is said on stderr, and the command goes on.
    #[expect(clippy::disallowed_methods, reason = "a descriptor, which a guard writes to")]
    pub(super) fn open(&self) -> Opened {
        let stderr = || io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let stream = |length| stderr().map_or(Opened::Nowhere, |file| Opened::Stream(file, length));
        match self {
            Where::Terminal if !screen::is_error_terminal() => Opened::Nowhere,
            Where::Terminal => stream(Length::Long),
            Where::Stderr => stream(Length::Any),
            Where::File(path) => {
                let mut options = OpenOptions::new();
                // It holds the command line. A file that is there keeps its permissions.
                options.write(true).create(true).truncate(true).mode(0o600);
                match options.open(path) {
                    Ok(file) => Opened::File { file, path: path.clone(), stderr: stderr().ok() },
                    Err(error) => {
                        refuse(&mut screen::stderr(), path, error);
                        Opened::Nowhere
                    }
                }
            }
        }
    }
}

/// Says on `stderr` that the report at `path` could not be written.
fn refuse(stderr: &mut dyn Write, path: &Path, error: io::Error) {
    let told = Error::new(Kind::User, format!("write the report {}", path.display()));
    // Nobody is left to be told when stderr is gone.
    let _ = write!(stderr, "{}", told.because(error));
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) command: Vec<String>,
    pub(super) class: Class,
    pub(super) end: Ended,
    pub(super) took: Duration,
    /// Bytes that were read from and written to disks.
    pub(super) used: (u64, u64),
    pub(super) preload: bool,
    pub(super) cgroup: bool,
    pub(super) pauses: Pauses,
    pub(super) disks: Vec<Disk>,
    pub(super) watched: Option<Watched>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Json<'r> {
    schema: &'static str,
    command: &'r [String],
    class: Class,
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
    disks: &'r [Disk],
    watched: Option<&'r Watched>,
}

impl Opened {
    /// Writes the report. The command's end stands even where it cannot be written.
    pub(super) fn write(self, report: &Report) {
        match self {
            Opened::Stream(_, Length::Long) if report.took < WORTH_TELLING => (),
            Opened::Nowhere => (),
            Opened::Stream(mut stream, _) => {
                let mut stream = Guard::new(&mut stream, screen::error_paint(), Content::Text);
                // Nobody reads it any more.
                let _ = stream.write_all(report.text().as_bytes());
            }
            Opened::File { mut file, path, stderr } => {
                let is_json = path.extension().is_some_and(|end| end == "json");
                let text = if is_json {
                    let mut text = serde_json::to_vec_pretty(&report.json()).unwrap_or_default();
                    text.push(b'\n');
                    text
                } else {
                    report.text().into_bytes()
                };
                if let (Err(error), Some(mut stderr)) = (file.write_all(&text), stderr) {
                    refuse(&mut stderr, &path, error);
                }
            }
        }
    }
}

impl Report {
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

    fn json(&self) -> Json<'_> {
        Json {
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

    fn text(&self) -> String {
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
                (false, Pauses::WhileOthersWait) => "has no classes: only holding acts",
                (false, Pauses::WhenAsked) => "has no classes: nothing acts",
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

fn cause(cause: session::jobs::pressure::Cause) -> &'static str {
    use session::jobs::pressure::Cause;
    match cause {
        Cause::Io => "the disk",
        Cause::Memory => "memory",
        Cause::Cpu => "the processor",
        Cause::Launch => "a launch",
        Cause::Asked => "you",
    }
}
