//! Which buses are watched, and how we get to see them: directly, through pkexec, or through the host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use capture::capture::CapturedBus;
use capture::record::{BusMonitor, BusToRecord, Follower, RecordError};
use clap::Args;

use crate::error::{Error, FailureCategory, Verdict};

/// Where the system bus listens if nobody says otherwise.
const SYSTEM: &str = "unix:path=/run/dbus/system_bus_socket";
/// What says that we are in a sandbox.
const SANDBOX: &str = "/.flatpak-info";

/// The buses.
#[derive(Clone, Debug, Args)]
pub(crate) struct Buses {
    /// Use the session bus, the default.
    #[arg(long)]
    session: bool,
    /// Use the system bus; asks for permission with pkexec if needed.
    #[arg(long)]
    system: bool,
    /// Use the bus at this address. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,
    /// Select only messages that match this match rule. May be repeated.
    #[arg(long = "match", value_name = "RULE")]
    rules: Vec<String>,
}

/// When it is asked who is on a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Before the first message: what is found has a place of its own.
    First,
    /// After it, so that the answers are messages of the record.
    AmongMessages,
}

impl Buses {
    /// Returns the match rules by which messages are chosen; none means all.
    pub(crate) fn matched(&self) -> &[String] {
        &self.rules
    }

    /// Begins to watch them.
    pub(crate) fn watch(&self, asks: Asks) -> Result<Vec<BusToRecord>, Error> {
        let mut buses: Vec<(String, String)> = Vec::new();
        if self.session || !self.system && self.address.is_empty() {
            buses.push(("session".to_owned(), session()?));
        }
        if self.system {
            buses.push(("system".to_owned(), system()));
        }
        buses.extend(self.address.iter().map(|address| (String::new(), address.clone())));
        let numbered = (0..).zip(buses);
        numbered.map(|(number, (name, address))| self.source(number, name, address, asks)).collect()
    }

    /// Says what is watched, for a person.
    pub(crate) fn describe(sources: &[BusToRecord]) -> String {
        let name = |source: &BusToRecord| match &*source.bus.name {
            "" => source.bus.address.clone(),
            name => format!("the {name} bus"),
        };
        sources.iter().map(name).collect::<Vec<_>>().join(" and ")
    }

    fn source(
        &self,
        number: u16,
        name: String,
        address: String,
        asks: Asks,
    ) -> Result<BusToRecord, Error> {
        let follow = || match Follower::connect(&address, number) {
            Ok(follower) => Ok(Some(follower)),
            // A sandbox lets us see next to nobody; the messages come another way.
            Err(_) if in_sandbox() => Ok(None),
            Err(error) => Err(told(error)),
        };
        let before = if asks == Asks::First { Some(follow()?) } else { None };
        let monitor = self.monitor(&name, &address)?;
        let follower = match before {
            Some(follower) => follower,
            None => follow()?,
        };
        let bus = CapturedBus { bus: number, name, address, rules: self.rules.clone() };
        Ok(BusToRecord { bus, monitor, follower })
    }

    fn monitor(&self, name: &str, address: &str) -> Result<BusMonitor, Error> {
        if in_sandbox() && !name.is_empty() {
            return self.through_host(name);
        }
        match BusMonitor::attach(address, &self.rules) {
            Err(error) if error.is_denied() && name == "system" => self.elevated(address),
            other => other.map_err(told),
        }
    }

    /// Lets a helper with more rights begin, which passes what it got to us and ends.
    fn elevated(&self, address: &str) -> Result<BusMonitor, Error> {
        let cannot = |what: &str| Error::new(FailureCategory::Config, what.to_owned());
        let program =
            std::env::current_exe().map_err(|error| cannot("find this program").because(error))?;
        let (ours, theirs) =
            sys::socket::pair().map_err(|error| cannot("make a socket").because(error))?;
        let mut command = Command::new("pkexec");
        command.arg(program).args(["bus", "hand-monitor", "--address", address]);
        for rule in &self.rules {
            command.args(["--match", rule]);
        }
        // The socket is its standard input: pkexec closes all else.
        let child = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn();
        // The command holds their end, which must be gone when the helper is.
        drop(command);
        let mut child = child.map_err(|error| {
            cannot("watch the system bus, which only root may")
                .because(error)
                .hint("install pkexec, or run this command as root")
        })?;
        let received = BusMonitor::receive(&ours);
        let status = child.wait().map_err(|error| cannot("wait for pkexec").because(error))?;
        match received {
            Ok(Some(monitor)) => Ok(monitor),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(cannot("take over the system bus").because(error))
            }
            _ => Err(refused(status.code())),
        }
    }

    /// Watches by a program outside of the sandbox, whose output comes to us.
    fn through_host(&self, name: &str) -> Result<BusMonitor, Error> {
        let cannot = |what: &str| Error::new(FailureCategory::Config, what.to_owned());
        let program =
            std::env::current_exe().map_err(|error| cannot("find this program").because(error))?;
        let mut command = Command::new(program);
        command.args(["host", "--watch-bus", "--"]);
        if name == "system" {
            command.arg("pkexec");
        }
        command.args(["dbus-monitor", &format!("--{name}"), "--binary"]);
        command.args(&self.rules);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.map_err(|error| cannot("run a program on the host").because(error))?;
        let output = child.stdout.take().map(OwnedFd::from);
        let output = output.ok_or_else(|| cannot("read from the host"))?;
        // Who became a monitor is told so at once; who may not ends without a word.
        while !sys::socket::wait_readable(&output, None)? {}
        if rustix::io::ioctl_fionread(&output).is_ok_and(|bytes| bytes > 0) {
            // It ends when nobody reads what it writes.
            return Ok(BusMonitor::stream(output));
        }
        let status = child.wait().map_err(|error| cannot("wait for the host").because(error))?;
        Err(match name {
            "system" => refused(status.code()),
            name => Error::new(FailureCategory::Config, format!("watch the {name} bus"))
                .because(format!("dbus-monitor on the host ended at once: {status}")),
        })
    }
}

/// What the end of pkexec says, which tells the person's answer from a failure.
fn refused(code: Option<i32>) -> Error {
    let error = Error::new(FailureCategory::Config, "watch the system bus");
    match code {
        Some(126) => error.because("the request for permission was dismissed"),
        Some(127) => error
            .because("permission was denied")
            .hint("see the message of pkexec; root needs no permission"),
        _ => error.because("the helper ended without passing on the bus"),
    }
}

fn in_sandbox() -> bool {
    // An empty one is what is left of a mount.
    std::fs::metadata(SANDBOX).is_ok_and(|info| info.is_file() && info.len() > 0)
}

/// Puts what can be done about it to an error.
pub(crate) fn told(error: RecordError) -> Error {
    let (kind, hint) = match &error {
        RecordError::NoBus { .. } => {
            (FailureCategory::Config, Some("is a session running? --address names another bus"))
        }
        RecordError::Refused { .. } if error.is_denied() => {
            (FailureCategory::Config, Some("only root and the user of a bus may watch it"))
        }
        RecordError::Refused { name, .. }
            if name == "org.freedesktop.DBus.Error.MatchRuleInvalid" =>
        {
            (
                FailureCategory::User,
                Some("a rule is for example type='signal',sender='org.example'"),
            )
        }
        _ => (FailureCategory::Config, None),
    };
    let error = Error::new(kind, "watch the bus").because(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Returns the address of the session bus that programs find here.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(crate) fn session() -> Result<String, Error> {
    if let Some(address) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").filter(|it| !it.is_empty())
    {
        return Ok(address.to_string_lossy().into_owned());
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("bus"));
    match runtime.filter(|path| path.exists()) {
        Some(path) => Ok(format!("unix:path={}", path.display())),
        None => Err(Error::new(FailureCategory::Config, "find the session bus")
            .because("DBUS_SESSION_BUS_ADDRESS is not set")
            .hint("choose a bus with --address or --system")),
    }
}

/// Returns the address of the system bus.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn system() -> String {
    let address = std::env::var_os("DBUS_SYSTEM_BUS_ADDRESS").filter(|it| !it.is_empty());
    address.map_or_else(|| SYSTEM.to_owned(), |address| address.to_string_lossy().into_owned())
}

/// Begin to watch a bus and pass that to who started us.
#[derive(Debug, Args)]
pub(super) struct HandMonitor {
    #[arg(long)]
    address: String,
    #[arg(long = "match")]
    rules: Vec<String>,
}

impl HandMonitor {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let monitor = BusMonitor::attach(&self.address, &self.rules).map_err(told)?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let cannot =
            |error| Error::new(FailureCategory::Internal, "pass the bus on").because(error);
        sys::socket::check_messages(&socket).map_err(cannot)?;
        monitor.pass(&socket).map_err(cannot)?;
        Ok(Verdict::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dismissed_question_is_told_from_a_refusal() {
        assert!(refused(Some(126)).to_string().contains("dismissed"));
        assert!(refused(Some(127)).to_string().contains("denied"));
        assert!(refused(None).to_string().contains("without"));
    }
}
