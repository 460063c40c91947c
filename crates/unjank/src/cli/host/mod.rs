//! `unjank host`, and `unjank-host`, the same as a small program of its own: a command on the host, from inside a sandbox, and
//! exactly what became of it.

mod direct;
mod log;
mod order;
mod policy;
mod serves;
mod shim;
mod spawn;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Args, FromArgMatches, Subcommand, ValueEnum};
use host::client::life::{self, HostOutcome, RunError};
use host::client::order::HostOrder;
use host::client::{EnvironmentInheritance, WithoutUs};
use host::process::CommandExit;
use host::relay::RelayCondition;

use crate::cli::refusal::refuse;
use crate::cli::screen;
use crate::error::{Error, FailureCategory};

pub(crate) use self::shim::run_as_called as run_shim;
pub(crate) use self::spawn::{is_name as is_spawn, run as run_spawn};

/// The name of the small program.
const PROGRAM: &str = "unjank-host";
/// The status for trouble of ours or the service's, as of `env` and `timeout`.
const TROUBLE: u8 = 125;
/// The status of a command that may not be run.
const DENIED: u8 = 126;
/// The status of a command that is not there.
const MISSING: u8 = 127;
/// The status of a command that took too long, as of `timeout`.
const TIMED_OUT: u8 = 124;

/// Run a command on the host, from inside a sandbox.
///
/// Exits with the command's status: 128 and the signal's number if a signal ended it, 124 after the timeout, 125 if the service
/// failed, 126 if the command may not be run, 127 if it does not exist. Without a bus, the command runs in place.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank host -- git status")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Host {
    #[command(subcommand)]
    what: Option<HostSubcommand>,
    #[command(flatten)]
    command: Option<Run>,
}

#[derive(Debug, Subcommand)]
enum HostSubcommand {
    Shim(shim::Shim),
    Policy(policy::Policy),
    Log(log::Log),
}

/// A command to run, and how.
#[derive(Debug, Args)]
struct Run {
    /// End the command, and all that it started, when this program ends.
    #[arg(long)]
    watch_bus: bool,
    /// Set an environment variable. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = ValueParser::new(order::variable))]
    env: Vec<(String, String)>,
    /// Remove an environment variable. May be repeated.
    #[arg(long, value_name = "NAME")]
    unset_env: Vec<String>,
    /// Start with an empty environment.
    #[arg(long)]
    clear_env: bool,
    /// Set the environment variables that a descriptor provides in the form of `env -0`. May be repeated.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    env_fd: Vec<i32>,
    /// Run the command in this directory.
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Pass a descriptor of this program to the command, under the same number. May be repeated.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    forward_fd: Vec<i32>,
    /// End the command after this time: 1.5s, 10m, 2h. Implies --watch-bus.
    #[arg(long, value_name = "TIME", value_parser = order::time)]
    timeout: Option<Duration>,
    /// Fail if the bus or the service does not answer within this time; 30 seconds by default.
    #[arg(long, value_name = "TIME", value_parser = order::time)]
    answer_within: Option<Duration>,
    /// Run the command with this niceness.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-20..20))]
    nice: Option<i32>,
    /// Run the command in the idle classes of processor and disk.
    #[arg(long)]
    idle: bool,
    /// If a signal ends the command, end by the same signal instead of exiting with 128 + its number.
    #[arg(long)]
    signal: bool,
    /// Create a pseudo-terminal for the command.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    tty: Tty,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// When the command gets a terminal of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tty {
    /// If standard input and output are one terminal.
    Auto,
    /// If standard input is a terminal.
    Always,
    /// Never: the command gets the descriptors unchanged.
    Never,
}

impl Tty {
    /// Returns what must hold for the command to receive a terminal; `None` if it never does.
    fn condition(self) -> Option<RelayCondition> {
        match self {
            Tty::Auto => Some(RelayCondition::InputAndOutput),
            Tty::Always => Some(RelayCondition::Input),
            Tty::Never => None,
        }
    }
}

/// Runs a command line of `unjank-host`, the first word of which is the name that it was called by.
///
/// It is what `unjank host` is, and `flatpak-spawn` or a shim by another name, without the rest of `unjank`.
#[must_use]
pub fn program(arguments: &[OsString]) -> ExitCode {
    if arguments.first().is_some_and(|name| is_spawn(name)) {
        return run_spawn(arguments);
    }
    if let Some(code) = run_shim(arguments) {
        return code;
    }
    if let Some(code) = run_alone(arguments.get(1..).unwrap_or_default()) {
        return code;
    }
    let table = || {
        let command = clap::Command::new(PROGRAM).version(env!("CARGO_PKG_VERSION"));
        Host::augment_args(command).max_term_width(80)
    };
    let read = table().try_get_matches_from(arguments);
    match read.and_then(|found| Host::from_arg_matches(&found)) {
        Ok(host) => host.run(),
        Err(error) => refuse(table(), arguments, error),
    }
}

/// Runs the words behind `unjank host` if there are no options among them, without a parser: a plugin that runs git at every key
/// waits for it.
///
/// Returns nothing for any other command line.
pub(crate) fn run_alone(words: &[OsString]) -> Option<ExitCode> {
    // Others of our commands begin with one of these words.
    let others = ["shim", "policy", "log", "help"];
    let first = words.first().filter(|word| others.iter().all(|other| word != other))?;
    let words = match first.as_encoded_bytes() {
        b"--" => words.get(1..).filter(|words| !words.is_empty())?,
        option if option.starts_with(b"-") => return None,
        _ => words,
    };
    Some(match order::here(words) {
        Ok(order) => finish(&order, run_on_host(&order), Dies::WithStatus),
        Err(error) => trouble(&error),
    })
}

impl Host {
    /// Does what was asked for, and returns the exit code.
    pub(crate) fn run(self) -> ExitCode {
        let done = match (self.what, self.command) {
            (Some(HostSubcommand::Shim(shim)), _) => shim.run(),
            (Some(HostSubcommand::Policy(policy)), _) => policy.run(),
            (Some(HostSubcommand::Log(log)), _) => log.run(),
            (None, Some(command)) => return command.run(),
            (None, None) => Err(Error::new(FailureCategory::User, "run a command: none is given")),
        };
        done.map_or_else(|error| error.report(), ExitCode::from)
    }
}

impl Run {
    /// Runs the command, and returns its status.
    fn run(self) -> ExitCode {
        match self.order() {
            Ok(order) => {
                let dies = if self.signal { Dies::BySignal } else { Dies::WithStatus };
                finish(&order, run_on_host(&order), dies)
            }
            Err(error) => trouble(&error),
        }
    }

    fn order(&self) -> Result<HostOrder, Error> {
        let mut order = order::here(&self.command)?;
        for number in &self.env_fd {
            order.environment.extend(order::variables_in(*number)?);
        }
        order.environment.extend(self.env.iter().cloned());
        order.unset.clone_from(&self.unset_env);
        if self.clear_env {
            order.inherits = EnvironmentInheritance::Nothing;
        }
        if self.watch_bus || self.timeout.is_some() {
            order.without_us = WithoutUs::Ends;
        }
        if let Some(directory) = &self.directory {
            order.directory = order::absolute(directory)?;
        }
        order::forward(&mut order, &self.forward_fd)?;
        order.timeout = self.timeout;
        if let Some(limit) = self.answer_within {
            order.answer_within = limit;
        }
        order.nice = self.nice;
        order.idle = self.idle;
        order.terminal = self.tty.condition();
        Ok(order)
    }
}

/// Runs a command on the host and waits for its end.
fn run_on_host(order: &HostOrder) -> HostOutcome {
    match bus_address() {
        Some(address) => life::run(order, &address, &say),
        None => HostOutcome::NoBus("DBUS_SESSION_BUS_ADDRESS is not set".to_owned()),
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Error {
        let own = Error::new(FailureCategory::Config, error.what).because(error.source);
        match error.hint {
            Some(hint) => own.hint(hint),
            None => own,
        }
    }
}

/// Says what became of the command as this program's own end.
fn finish(order: &HostOrder, outcome: HostOutcome, dies: Dies) -> ExitCode {
    match outcome {
        HostOutcome::Ended(status) => ended(status, dies),
        HostOutcome::TimedOut => ExitCode::from(TIMED_OUT),
        HostOutcome::Interrupted(number) => {
            sys::disposition::die_by(number);
            ExitCode::from(TROUBLE)
        }
        HostOutcome::Refused { name, text } => refused(order, &name, &text),
        HostOutcome::NoBus(why) => {
            say(&format!("unjank: there is no bus ({why}); the command runs in place\n"));
            direct::run(order)
        }
        HostOutcome::Failed(error) => trouble(&error.into()),
    }
}

/// Returns the status that stands for how a process ended, or ends as it did.
fn ended(status: u32, dies: Dies) -> ExitCode {
    match CommandExit::of(status) {
        CommandExit::Code(code) => ExitCode::from(code),
        CommandExit::Signal(number) => {
            if dies == Dies::BySignal {
                sys::disposition::die_by(i32::from(number));
            }
            ExitCode::from(128 | number)
        }
        CommandExit::Unknown => {
            let what = "learn how the command ended";
            let cause = format!("the service says {status:#x}");
            trouble(&Error::new(FailureCategory::Config, what).because(cause))
        }
    }
}

/// Says why the command was not started, and returns the status for that.
fn refused(order: &HostOrder, name: &str, text: &str) -> ExitCode {
    let why = text.strip_prefix("Failed to start command: ").unwrap_or(text).to_owned();
    let error = Error::new(FailureCategory::Config, format!("run {} on the host", order.name()))
        .because(why);
    let code = status_of(name);
    let error = if is_away(name) {
        error.hint("the sandbox must be allowed to talk to org.freedesktop.Flatpak: flatpak override --user --talk-name=org.freedesktop.Flatpak APP")
    } else {
        error
    };
    // A status from the table of commands that run others, whatever the kind.
    error.report();
    ExitCode::from(code)
}

/// Returns the status for an error of the service.
fn status_of(name: &str) -> u8 {
    match name {
        "org.freedesktop.DBus.Error.FileNotFound" => MISSING,
        "org.freedesktop.DBus.Error.AccessDenied" => DENIED,
        host::client::HOST_REFUSED => DENIED,
        _ => TROUBLE,
    }
}

/// Says whether an error means that there is no service.
fn is_away(name: &str) -> bool {
    matches!(
        name,
        "org.freedesktop.DBus.Error.ServiceUnknown" | "org.freedesktop.DBus.Error.NameHasNoOwner"
    ) || name.starts_with("org.freedesktop.DBus.Error.Spawn.")
}

fn trouble(error: &Error) -> ExitCode {
    error.report();
    ExitCode::from(TROUBLE)
}

/// Writes one line, whatever is in it.
fn say(text: &str) {
    // Nobody is left to be told when stderr is gone.
    let _ = writeln!(screen::stderr(), "{}", screen::sentence(text.trim_end()));
}

/// Returns the address of the session's bus.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn bus_address() -> Option<Vec<u8>> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(address) = variable("DBUS_SESSION_BUS_ADDRESS") {
        return Some(address.into_encoded_bytes());
    }
    // Without the variable, libdbus and systemd agree on this socket.
    let socket = PathBuf::from(variable("XDG_RUNTIME_DIR")?).join("bus");
    socket.exists().then(|| {
        let mut address = b"unix:path=".to_vec();
        for byte in socket.into_os_string().into_encoded_bytes() {
            match byte {
                b'%' | b',' | b';' => address.extend(format!("%{byte:02x}").into_bytes()),
                _ => address.push(byte),
            }
        }
        address
    })
}

/// Finds the programs of this name on the PATH, in its order.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn programs(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let name = name.to_owned();
    dirs.into_iter().map(move |dir| dir.join(&name)).filter(|program| {
        rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok() && program.is_file()
    })
}

/// Finds the next program of this name on the PATH that is not a client of host commands of ours.
fn other(name: &OsStr) -> Option<PathBuf> {
    programs(name).find(|program| !is_client(program))
}

/// Says whether a path leads to the file of this program, or of the small program beside it.
fn is_client(path: &Path) -> bool {
    let identity = |path: &Path| {
        let status = rustix::fs::stat(path).ok()?;
        Some((status.st_dev, status.st_ino))
    };
    let Some(found) = identity(path) else { return false };
    identity(Path::new("/proc/self/exe")) == Some(found)
        || small_program().is_some_and(|small| identity(&small) == Some(found))
}

/// Returns the small program beside this one, if it is there.
fn small_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}

/// How this program ends when a signal ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    /// With 128 and the signal's number.
    WithStatus,
    /// By the same signal.
    BySignal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_waitpid_writes_it() {
        for (status, end) in [
            (0, CommandExit::Code(0)),
            (256, CommandExit::Code(1)),
            (35584, CommandExit::Code(139)),
            (65280, CommandExit::Code(255)),
            (15, CommandExit::Signal(15)),
            (11, CommandExit::Signal(11)),
            (139, CommandExit::Signal(11)),
            (64, CommandExit::Signal(64)),
            // Stopped, continued, nonsense: not the end of a process.
            (0x137f, CommandExit::Unknown),
            (0xffff, CommandExit::Unknown),
            (0x80, CommandExit::Unknown),
            (0x1_0000, CommandExit::Unknown),
            (u32::MAX, CommandExit::Unknown),
        ] {
            assert_eq!(CommandExit::of(status), end, "{status:#x}");
        }
    }

    #[test]
    fn errors_of_the_service_have_the_statuses_of_a_shell() {
        assert_eq!(status_of("org.freedesktop.DBus.Error.FileNotFound"), 127);
        assert_eq!(status_of("org.freedesktop.DBus.Error.AccessDenied"), 126);
        assert_eq!(status_of("org.freedesktop.DBus.Error.Failed"), 125);
        assert_eq!(status_of("org.freedesktop.DBus.Error.ServiceUnknown"), 125);
    }
}
