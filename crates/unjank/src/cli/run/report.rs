//! Where `unjank run` writes its report.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::outcome::JobOutcome;
use report::guard::{Content, Guard};

use crate::cli::screen;
use crate::error::{Error, FailureCategory};

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
    let told = Error::new(FailureCategory::User, format!("write the report {}", path.display()));
    // Nobody is left to be told when stderr is gone.
    let _ = write!(stderr, "{}", told.because(error));
}

impl Opened {
    /// Writes the report. The command's end stands even where it cannot be written.
    pub(super) fn write(self, report: &JobOutcome) {
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
