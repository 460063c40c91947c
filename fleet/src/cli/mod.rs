//! The command line: what is typed, what is printed, and the exit status.

mod facts;
mod generate;
mod metric_sender;
mod openmetrics;
mod otlp;
mod parquet;
mod profile;

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{CommandFactory, Parser, Subcommand};
use hangs::model::Hang;
use hangs::store::StoredHistory;
use report::text::{Charset, visible};
use store::disk::Disk;
use sys::clock::{Clock, SystemClock};
use unjank_export::identity::{IdentityError, RecordSource};
use unjank_export::viewer::MOST_BYTES;
use unjank_export::watched_store::WatchedStore;
use unjank_export::{perfetto, pprof};

/// What `--help` begins with.
const EXAMPLE: &str = "Write or send what `unjank hangs` recorded, when you say so

Example: unjank-export parquet --to ~/hangs-lake

To have systemd do that each day, once the directory is there:
systemctl --user enable --now $(systemd-escape --path --template=unjank-export@.timer ~/hangs-lake)

Nothing is sent without a command of this program. docs/fleet.md says what each one writes.";

#[derive(Debug, Parser)]
#[command(version, about = "Write or send what `unjank hangs` recorded", long_about = EXAMPLE)]
struct Arguments {
    /// The name of this machine in what is written; without it a hash of its ID stands there.
    #[arg(long, value_name = "NAME", global = true)]
    machine: Option<String>,
    /// The store; without it that of this user.
    #[arg(long, value_name = "DIR", global = true)]
    store: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Parquet(parquet::Parquet),
    Otlp(otlp::Otlp),
    Openmetrics(openmetrics::OpenMetrics),
    /// Write the stacks of hangs as a profile for pprof and what reads its format
    Pprof(profile::Profile),
    /// Write hangs as a trace for Perfetto, a process for each program
    Perfetto(profile::Profile),
    #[command(hide = true)]
    Generate(generate::Generate),
}

/// Stands in a verdict over a store of which not everything could be read.
const AS_FAR: &str = ", as far as the store can be read";

/// What to do where a file of the store cannot be read.
const UNREADABLE: &str =
    "run this as the user whose store it is, or move that file out of the store";

/// Why a command could not do its work: an object, a cause, and a hint where there is one. The exit status is 2.
#[derive(Debug)]
struct Failure {
    text: String,
    hint: Option<String>,
    /// The reader of our output has closed it, and wants no more.
    is_closed_pipe: bool,
}

impl Failure {
    fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), hint: None, is_closed_pipe: false }
    }

    fn of(error: &dyn std::error::Error) -> Failure {
        Failure::new(report::error::chain(error))
    }

    fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let is_closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        let text = format!("cannot write the output: {}", report::error::chain(&error));
        Failure { is_closed_pipe, ..Failure::new(text) }
    }
}

/// The files of a store: the number of each, and which file it is.
type StoreFiles = Vec<(u64, (u64, u64))>;

/// What each command works with.
struct Session {
    disk: Arc<dyn Disk>,
    clock: SystemClock,
    dir: PathBuf,
    source: RecordSource,
    /// What was said of damage last.
    damage: RefCell<Option<String>>,
}

#[expect(clippy::disallowed_methods, reason = "this program reads its environment here alone")]
fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the directory `unjank/NAME` of this user's state.
fn state_directory(name: &str, hint: &str) -> Result<PathBuf, Failure> {
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let none = || Failure::new("cannot find this user's directories").hint(hint);
    Ok(state.ok_or_else(none)?.join("unjank").join(name))
}

/// Looks whether the directory of the store can be read.
fn check_store(disk: &dyn Disk, dir: &Path) -> Result<(), Failure> {
    let Err(error) = disk.list(dir) else { return Ok(()) };
    let text = format!("cannot read the store {dir:?}: {}", report::error::chain(&error));
    let failure = Failure::new(text);
    Err(match error.kind() {
        io::ErrorKind::NotFound => failure.hint("to switch the recorder on: unjank setup hangs"),
        io::ErrorKind::PermissionDenied => failure.hint("run this as the user whose store it is"),
        _ => failure.hint("name the directory of a store: --store DIR"),
    })
}

impl Session {
    fn open(store: Option<&Path>, machine: Option<&str>) -> Result<Session, Failure> {
        let disk = store::disk::real();
        let dir = match store {
            Some(dir) => dir.to_owned(),
            None => state_directory("hangs", "set HOME, or use --store DIR")?,
        };
        check_store(&*disk, &dir)?;
        // Whoever exports it, these are the same records.
        let user = rustix::fs::stat(&dir)
            .map_or_else(|_| rustix::process::getuid().as_raw(), |stat| stat.st_uid);
        let source =
            RecordSource::find(&*disk, &dir, machine, user).map_err(|error| match error {
                IdentityError::NotRead { ref path, .. } if path.starts_with(&dir) => {
                    Failure::of(&error).hint(UNREADABLE)
                }
                _ => Failure::of(&error).hint("name the machine: --machine NAME"),
            })?;
        Ok(Session { disk, clock: SystemClock::start(), dir, source, damage: RefCell::default() })
    }

    fn read_store(&self) -> Result<StoredHistory, Failure> {
        check_store(&*self.disk, &self.dir)?;
        hangs::store::read(&*self.disk, &self.dir).map_err(|error| Failure::of(&error))
    }

    /// Reads the store, and says on stderr what of it cannot be read, once.
    fn stored(&self) -> Result<StoredHistory, Failure> {
        let stored = self.read_store()?;
        self.tell_damage(&stored);
        Ok(stored)
    }

    fn tell_damage(&self, stored: &StoredHistory) {
        let damage = stored.damage();
        if let Some(damage) = damage.as_ref().filter(|_| *self.damage.borrow() != damage) {
            say(&format!("{damage} The rest of {:?} is exported.", self.dir));
        }
        *self.damage.borrow_mut() = damage;
    }

    /// Reads the store as [`Session::stored`] does, and refuses one of which nothing can be read.
    fn stored_records(&self) -> Result<StoredHistory, Failure> {
        let stored = self.read_store()?;
        self.check_records(&stored)?;
        Ok(stored)
    }

    /// Refuses a store of which nothing can be read: what is written of it would say that there were no hangs. Says what else cannot be
    /// read.
    fn check_records(&self, stored: &StoredHistory) -> Result<(), Failure> {
        match stored.damage() {
            Some(damage) if stored.hangs.is_empty() && stored.periods.is_empty() => {
                let what = damage.trim_start_matches("Not read: ").trim_end_matches('.');
                let text = format!("cannot read any record in the store {:?}: {what}", self.dir);
                Err(Failure::new(text).hint(UNREADABLE))
            }
            _ => {
                self.tell_damage(stored);
                Ok(())
            }
        }
    }

    /// Reads the store again if it has changed. Returns whether it was read.
    fn refresh(&self, watched: &mut WatchedStore) -> Result<bool, Failure> {
        check_store(&*self.disk, &self.dir)?;
        let done = watched.refresh(&*self.disk, &self.dir, self.now_ns());
        done.map_err(|error| Failure::of(&error))
    }

    /// Returns the files of the store, which are others after records were erased.
    fn store_files(&self) -> StoreFiles {
        hangs::store::files(&*self.disk, &self.dir).unwrap_or_default()
    }

    /// Returns what says whether the end of a hang that goes on may still be recorded.
    fn may_end(&self) -> impl Fn(&Hang) -> bool + use<> {
        let is_recorded = hangs::store::running_recorder(&*self.disk, &self.dir).is_some();
        move |hang| is_recorded && Path::new(&format!("/proc/{}", hang.process)).exists()
    }

    fn now_ns(&self) -> u64 {
        let since = self.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Writes a line to stderr; text that others chose is escaped.
#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn say(line: &str) {
    // Where stderr is closed nobody reads it.
    let _ = writeln!(io::stderr(), "{}", visible(line, Charset::Unicode));
}

/// Writes a line to stdout.
#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", visible(line, Charset::Unicode))
}

impl Arguments {
    fn run(self) -> Result<(), Failure> {
        let session = || Session::open(self.store.as_deref(), self.machine.as_deref());
        match self.command {
            Command::Parquet(parquet) => parquet.run(&session()?),
            Command::Otlp(otlp) => otlp.run(&session()?),
            Command::Openmetrics(metrics) => metrics.run(&session()?),
            Command::Pprof(profile) => {
                profile.run(&session()?, |hangs| pprof::profile(hangs.iter().copied(), MOST_BYTES))
            }
            Command::Perfetto(profile) => {
                profile.run(&session()?, |hangs| perfetto::trace(hangs.iter().copied(), MOST_BYTES))
            }
            // What packages ask for while they are built: it needs no store.
            Command::Generate(generate) => generate.run(Arguments::command()),
        }
    }
}

/// Runs what was typed.
pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.run() {
        Ok(()) => ExitCode::SUCCESS,
        // Who closes the pipe has read enough.
        Err(failure) if failure.is_closed_pipe => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("unjank-export: {}", failure.text));
            if let Some(hint) = failure.hint {
                say(&format!("hint: {hint}"));
            }
            ExitCode::from(2)
        }
    }
}
