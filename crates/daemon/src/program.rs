//! The daemon as a program: its arguments, its log and its end.

use report::error::chain;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use bus::server::Takeover;
use clap::{Args, ValueEnum};
use host::environment::SessionEnvironment as HostEnvironment;
use host::identity::ProcessDirectory;
use report::text::{Charset, visible, visible_bytes};
use settings::engine::EngineOptions;
use settings::history::Keep;
use sys::clock::SystemClock;
use sys::seccomp::refusing::{self, GivenUp};
use tracing::Level;

use super::{Config, DaemonEnvironment, DaemonError, Notifier, SettingsRole};

/// What the daemon is told on its command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to serve, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "dconf", value_name = "NAME")]
    names: Vec<Name>,
    /// Take the names over from another unjankd that has them.
    #[arg(long)]
    replace: bool,
    /// End after this many seconds without a call; 0 stays for ever.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle_exit: u64,
    /// Never delay the replies to a program that writes without end.
    #[arg(long)]
    no_pacing: bool,
    /// Keep no history of who changed what.
    #[arg(long)]
    no_history: bool,
    /// Never store the values of keys that match, for example '*password*'; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    history_deny: Vec<String>,
    /// What to log to standard error; the values of settings never are.
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL")]
    log_level: LogLevel,
    /// The same as --log-level debug.
    #[arg(long, short)]
    verbose: bool,
}

/// What can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// ca.desrt.dconf, the settings service.
    Dconf,
    /// org.freedesktop.Flatpak, commands outside of sandboxes.
    Flatpak,
    /// Listings of directories, at unjank/listing.sock in the runtime directory, recent documents, org.unjank.Session1, and the index of plugins and applications.
    Session,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    /// Our own faults.
    Error,
    /// Conditions that are bad but expected.
    Warn,
    /// The start and the end.
    Info,
    /// Every call.
    Debug,
}

/// The freed memory that is kept for reuse, in bytes: as much as a commit of a few thousand keys needs.
const KEPT_BYTES: i32 = 4 << 20;
/// Freed blocks of this size or larger are returned to the kernel at once.
const LARGE_BYTES: i32 = 8 << 20;

/// Serves until the daemon is ended, and reports errors.
#[must_use]
pub fn run(arguments: &Arguments) -> ExitCode {
    sys::heap::keep_freed(KEPT_BYTES, LARGE_BYTES);
    let environment = match DaemonEnvironment::read() {
        Ok(environment) => environment,
        Err(error) => return fail(&error, None),
    };
    let level = match arguments.log_level {
        _ if arguments.verbose => Level::DEBUG,
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    start_log(level, environment.to_journal);
    // Before the first thread.
    if let Some(what) = given_up(&arguments.names)
        && let Err(error) = refusing::give_up(what)
    {
        tracing::warn!(%error, "this kernel has no filters of system calls, so none were given up");
    }
    match super::run(config(arguments, environment)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, hint(&error)),
    }
}

/// Returns what a daemon that serves these names can do without. Commands of the host inherit it, so that nothing is taken
/// from them; of the others only settings start no program.
fn given_up(names: &[Name]) -> Option<GivenUp> {
    match names {
        _ if names.contains(&Name::Flatpak) => None,
        _ if names.contains(&Name::Session) => Some(GivenUp::Privileged),
        _ => Some(GivenUp::Programs),
    }
}

fn config(arguments: &Arguments, environment: DaemonEnvironment) -> Config {
    let mut options = EngineOptions::default();
    if arguments.no_pacing {
        options.pacing = None;
    }
    let mut keep = Keep::default();
    keep.deny.extend_from_slice(&arguments.history_deny);
    options.history = (!arguments.no_history).then_some(keep);
    let clock = std::sync::Arc::new(SystemClock::start());
    let serves = |name| arguments.names.contains(&name);
    let listings = serves(Name::Session).then(|| super::listing::ListingServiceOptions {
        dir: environment.lock_dir.clone(),
        worker: environment.worker,
        clock: clock.clone(),
    });
    let takeover = if arguments.replace { Takeover::IfAllowed } else { Takeover::Never };
    let recents = serves(Name::Session).then(super::recents::places::read).and_then(Result::ok);
    let recents = recents.map(|surroundings| super::recents::RecentsServiceOptions {
        address: None,
        takeover,
        places: surroundings.places,
        host: ProcessDirectory::real(&environment.runtime),
        disk: store::disk::real(),
        clock: clock.clone(),
    });
    let index = serves(Name::Session).then(|| super::index::places::location(None)).flatten();
    let index = index
        .map(|location| super::index::IndexServiceOptions { location, disk: store::disk::real() });
    let bounds = serves(Name::Flatpak).then(super::host::Bounds::raise);
    if bounds.is_some()
        && let Err(error) = sys::launch::keep_apart()
    {
        tracing::warn!(%error, "commands start with a look at the descriptors of all callers");
    }
    let host = bounds.map(|bounds| super::host::HostServiceOptions {
        address: None,
        takeover,
        policy: environment.host_policy,
        exposure: environment.host_exposure,
        log: environment.host_log,
        session: environment.runtime.join(".flatpak-helper"),
        runtime: environment.runtime.clone(),
        bounds,
        host: ProcessDirectory::real(&environment.runtime),
        keeper: host::keeper::KeeperProgram(super::listing::worker_program().path),
        environment: HostEnvironment::of(environment.variables),
        disk: store::disk::real(),
        clock: clock.clone(),
    });
    Config {
        host,
        recents,
        index,
        settings: if serves(Name::Dconf) { SettingsRole::Served } else { SettingsRole::Left },
        listings,
        address: None,
        places: environment.places,
        options,
        disk: store::disk::real(),
        clock,
        lock_dir: environment.lock_dir,
        takeover,
        idle_exit: (arguments.idle_exit > 0).then(|| Duration::from_secs(arguments.idle_exit)),
        blame: environment.blame,
        notifier: Notifier::new(environment.notify_socket),
    }
}

fn start_log(level: Level, to_journal: bool) {
    let log = tracing_subscriber::fmt().with_writer(|| LogLine).with_max_level(level);
    let log = log.with_target(false).with_ansi(false);
    if to_journal {
        log.without_time().init();
    } else {
        log.init();
    }
}

/// Writes an event of the log to stderr as one line, whatever callers put into what is told of them.
struct LogLine;

impl Write for LogLine {
    /// Writes one event: the subscriber passes each in one call, with its line end.
    #[expect(clippy::disallowed_methods, reason = "the line is escaped here")]
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = visible_bytes(text, Charset::Unicode).to_string();
        // The hint is added here and not at each warning, because libraries that the daemon uses warn, too.
        if sys::thread::tells_refusal(&line) {
            line.push_str(&format!(" hint=\"{}\"", sys::thread::PROCESS_LIMIT));
        }
        line.push('\n');
        io::stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    #[expect(clippy::disallowed_methods, reason = "the line is escaped here")]
    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn hint(error: &DaemonError) -> Option<&'static str> {
    sys::thread::hint(error).or(match error {
        DaemonError::NotServing(bus::server::ServerError::NameTaken { .. }) => Some(
            "another settings service is running; `unjankd --replace` takes over from an unjankd, any other has to be stopped",
        ),
        DaemonError::NotServing(bus::server::ServerError::NoBus(_)) => {
            Some("is DBUS_SESSION_BUS_ADDRESS set? `dbus-run-session unjankd` starts a bus")
        }
        _ => None,
    })
}

#[expect(clippy::print_stderr, reason = "a program that cannot start says so to its user")]
fn fail(error: &(dyn std::error::Error + 'static), hint: Option<&str>) -> ExitCode {
    eprintln!("unjankd: {}", visible(&chain(error), Charset::Unicode));
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
    if sys::thread::is_refusal(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}
