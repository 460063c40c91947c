//! The options that commands share: what to watch, and where the report goes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::report::provenance::Provenance;
use clap::Args;
use sys::clock::{Clock, SystemClock};
use trace::backend::{RECORDER_SOCKET, Stacks, TraceError, TraceOptions, TraceTarget};
use trace::export;
use trace::recording::{Backend, Recording};
use trace::report::{self, TraceReport, data, page, text};
use trace::stack::names::SymbolSources;
use trace::symbolizer::Symbolizer;
use trace::syscall_set::Set;

use crate::cli::{document, screen};
use crate::error::{Error, FailureCategory};

/// What is watched, and how closely.
#[derive(Clone, Debug, Args)]
pub(super) struct TraceArguments {
    /// sync, disk, blocking, waits, all, or names of calls; !NAME excludes.
    #[arg(long, value_name = "CALLS", default_value = "blocking", value_parser = calls)]
    calls: Set,
    /// Keep calls of at least this length individually.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = ::report::duration::parse)]
    threshold: Duration,
    /// Record the callers of which calls: slow, all or none.
    #[arg(long, value_name = "WHICH", default_value = "slow", value_parser = stacks)]
    stacks: Stacks,
    /// seccomp, bpf, peek or ptrace; by default the best one for this user.
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    backend: Option<Backend>,
    /// Whether each wait is kept: all syncs, and no sample of the slow calls.
    #[arg(skip)]
    pub(super) keeps_all: bool,
}

fn calls(text: &str) -> Result<Set, String> {
    text.parse::<Set>().map_err(|error| error.to_string())
}

fn stacks(text: &str) -> Result<Stacks, String> {
    match text {
        "slow" => Ok(Stacks::Slow),
        "all" => Ok(Stacks::All),
        "none" => Ok(Stacks::None),
        _ => Err("say slow, all or none".to_owned()),
    }
}

pub(super) fn backend(text: &str) -> Result<Backend, String> {
    [Backend::Seccomp, Backend::Bpf, Backend::Peek, Backend::Ptrace]
        .into_iter()
        .find(|backend| backend.name() == text)
        .ok_or_else(|| "say seccomp, bpf, peek or ptrace".to_owned())
}

impl TraceArguments {
    /// Returns the options for watching `subject`.
    pub(super) fn options(&self, subject: TraceTarget) -> TraceOptions {
        let mut options = TraceOptions::new(subject, self.calls.clone());
        options.threshold = self.threshold;
        options.stacks = self.stacks;
        options.backend = self.backend;
        options.recorder = Some(recorder());
        if self.keeps_all {
            options.kept = "sync".parse::<Set>().map_or_else(|_| Vec::new(), |set| set.numbers());
        }
        options
    }

    /// Makes a report of a recording, with names from this machine's files.
    pub(super) fn report_of(&self, recording: &Recording) -> TraceReport {
        let mut options = report_options();
        if self.keeps_all {
            options.slow_calls = 50_000;
        }
        let known = Symbolizer::new(recording, sources(), None);
        report::build(recording, &known, provenance(), &options)
    }
}

/// Where the report goes, beside the summary on stderr.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Output {
    /// Write the report as a page, which show, compare and check can read.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
    /// Print the report as JSON on stdout instead of the summary.
    #[arg(long)]
    json: bool,
    /// Also write another format: firefox, perfetto, pprof, sysprof, folded, jsonl or csv.
    #[arg(long, value_name = "KIND=FILE", value_parser = exported)]
    export: Vec<(Export, PathBuf)>,
}

/// What a report can be written as for other programs.
#[derive(Clone, Copy, Debug)]
enum Export {
    Firefox,
    Perfetto,
    Pprof,
    Sysprof,
    Folded,
    JsonLines,
    Csv,
}

fn exported(text: &str) -> Result<(Export, PathBuf), String> {
    let (kind, path) = text.split_once('=').ok_or("say a kind and a file: firefox=profile.json")?;
    let kind = match kind {
        "firefox" => Export::Firefox,
        "perfetto" => Export::Perfetto,
        "pprof" => Export::Pprof,
        "sysprof" => Export::Sysprof,
        "folded" => Export::Folded,
        "jsonl" => Export::JsonLines,
        "csv" => Export::Csv,
        _ => {
            return Err(
                "the kind is firefox, perfetto, pprof, sysprof, folded, jsonl or csv".to_owned()
            );
        }
    };
    Ok((kind, path.into()))
}

impl Export {
    fn render(self, report: &TraceReport) -> serde_json::Result<Vec<u8>> {
        Ok(match self {
            Export::Firefox => export::firefox(report)?.into_bytes(),
            Export::Perfetto => export::perfetto(report),
            Export::Pprof => export::pprof(report),
            Export::Sysprof => export::sysprof(report),
            Export::Folded => export::folded(report).into_bytes(),
            Export::JsonLines => export::json_lines(report)?.into_bytes(),
            Export::Csv => export::csv(report).into_bytes(),
        })
    }
}

/// A file that waits for its report; removed again if none comes.
#[derive(Debug)]
struct PendingReport {
    path: PathBuf,
    file: File,
    is_ours: bool,
}

/// Files that are open before the program runs, so that nothing is traced in vain.
#[derive(Debug)]
pub(super) struct Opened {
    page: Option<PendingReport>,
    json: bool,
    exports: Vec<(Export, PendingReport)>,
}

impl Output {
    /// Returns the output of a command that writes a page at most.
    pub(super) fn page(path: PathBuf, force: bool) -> Output {
        Output { output: Some(path), force, ..Output::default() }
    }

    /// Opens the files.
    pub(super) fn open(&self) -> Result<Opened, Error> {
        let page = self.output.as_deref().map(|path| self.create(path)).transpose()?;
        let export = |(kind, path): &(Export, PathBuf)| Ok((*kind, self.create(path)?));
        let exports = self.export.iter().map(export).collect::<Result<_, Error>>()?;
        Ok(Opened { page, json: self.json, exports })
    }

    fn create(&self, path: &Path) -> Result<PendingReport, Error> {
        let is_ours = std::fs::symlink_metadata(path).is_err();
        let mut options = OpenOptions::new();
        // It names files and command lines: its owner alone may read it, whatever the umask is.
        options.write(true).mode(0o600);
        if self.force {
            options.create(true);
        } else {
            options.create_new(true);
        }
        match options.open(path) {
            Ok(file) => Ok(PendingReport { path: path.to_owned(), file, is_ours }),
            Err(error) => {
                let exists = error.kind() == io::ErrorKind::AlreadyExists;
                let told = cannot_write(path).because(error);
                Err(if exists { told.hint("use --force to replace it") } else { told })
            }
        }
    }
}

fn cannot_write(path: &Path) -> Error {
    Error::new(FailureCategory::User, format!("write {}", path.display()))
}

impl PendingReport {
    /// Writes what was waited for.
    fn write(mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes).and_then(|()| {
            // A file that is replaced may have been longer; pipes have no length.
            if self.is_ours { Ok(()) } else { self.cut(bytes.len()) }
        });
        match written {
            Ok(()) => {
                self.is_ours = false;
                Ok(())
            }
            Err(error) => Err(cannot_write(&self.path).because(error)),
        }
    }

    fn cut(&self, len_bytes: usize) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(u64::try_from(len_bytes).unwrap_or(u64::MAX))?;
        }
        Ok(())
    }
}

impl Drop for PendingReport {
    fn drop(&mut self) {
        if self.is_ours {
            // Half a report is none; if it cannot be removed there is nobody left to tell.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Opened {
    /// Prints the summary, or the JSON, and writes the page.
    pub(super) fn write(self, report: &TraceReport) -> Result<(), Error> {
        let internal = |error: serde_json::Error| {
            Error::new(FailureCategory::Internal, "write the report").because(error)
        };
        if self.json {
            let json = data::to_json(report).map_err(internal)?;
            document::print_text(&json)?;
        } else {
            let text = text::render(report, screen::error_width(), screen::error_paint());
            // Nobody is left to be told when stderr is gone; the page is still written.
            let _ = screen::stderr().write_all(text.as_bytes());
        }
        for (kind, file) in self.exports {
            file.write(&kind.render(report).map_err(internal)?)?;
        }
        if let Some(page) = self.page {
            let html = page::render(report).map_err(internal)?;
            let path = page.path.clone();
            page.write(html.as_bytes())?;
            if !self.json {
                let _ = writeln!(screen::stderr(), "\nReport: {}", path.display());
            }
        }
        Ok(())
    }
}

impl Opened {
    /// Writes the page alone.
    pub(super) fn write_quietly(self, report: &TraceReport) -> Result<(), Error> {
        let html = page::render(report).map_err(|error| {
            Error::new(FailureCategory::Internal, "write the report").because(error)
        })?;
        self.page.map_or(Ok(()), |page| page.write(html.as_bytes()))
    }
}

/// Returns what a report is to hold.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(super) fn report_options() -> report::ReportOptions {
    let home = std::env::var_os("HOME").filter(|home| home.len() > 1);
    report::ReportOptions {
        home: home.map(std::ffi::OsString::into_encoded_bytes),
        ..Default::default()
    }
}

/// Returns where the recorder service listens.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(in crate::cli) fn recorder() -> PathBuf {
    std::env::var_os("UNJANK_RECORDER").map_or_else(|| RECORDER_SOCKET.into(), PathBuf::from)
}

pub(super) fn provenance() -> Provenance {
    Provenance::of_this_machine(crate::cli::command_line(), SystemClock::start().now())
}

/// Returns where names of functions are looked for.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(in crate::cli) fn sources() -> SymbolSources {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
    // debuginfod_find_debuginfo(3).
    let fetched = variable("DEBUGINFOD_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(|| Some(cache?.join("debuginfod_client")));
    SymbolSources {
        debuginfod_cache: fetched.filter(|path| path.is_dir()),
        ..SymbolSources::default()
    }
}

/// Turns what went wrong into what the user is told.
pub(super) fn told(error: &TraceError) -> Error {
    let kind = match error {
        TraceError::Start { .. } => FailureCategory::User,
        _ => FailureCategory::Config,
    };
    let text = error.to_string();
    let mut told = Error::new(kind, text.strip_prefix("cannot ").unwrap_or(&text));
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    if let Some(cause) = cause {
        told = told.because_of(cause);
    }
    let refused = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
    match error {
        TraceError::Attach { .. } if refused => told
            .hint("root is needed for processes of other users, and for all if kernel.yama.ptrace_scope is not 0")
            .hint("start the program yourself instead: unjank trace -- CMD"),
        TraceError::Backend { backend: Backend::Bpf, .. }
            if !rustix::process::geteuid().is_root() =>
        {
            told.hint("sudo unjank setup --system trace has a service load them for every user")
                .hint("omit --backend to use the best one that works here")
        }
        TraceError::Backend { .. } => told.hint("omit --backend to use the best one that works here"),
        _ => told,
    }
}

/// Reads a report from its page or its JSON; `-` is stdin.
pub(super) fn read(path: &Path) -> Result<TraceReport, Error> {
    let cannot = || Error::new(FailureCategory::User, format!("read {}", path.display()));
    let limit = u64::try_from(data::LARGEST).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::Read::read_to_end(&mut io::Read::take(io::stdin().lock(), limit), &mut bytes)
    } else {
        File::open(path)
            .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, limit), &mut bytes))
    };
    read.map_err(|error| cannot().because(error))?;
    data::read(&bytes).map_err(|error| {
        cannot().because(error).hint("write a report with: unjank trace -o FILE.html -- CMD")
    })
}
