//! What a running session has to learn after files were put in place or taken away, and who owns a name in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bus::client::blocking::BlockingClient;

use host::activation;
use jobs::cgroup::Cgroup;
use sys::mounts::Mounts;

use crate::part::SetupPart;

/// A bus that has not answered after this is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A session that runs.
#[derive(Debug)]
pub struct LiveSession {
    bus: Option<BlockingClient>,
    has_systemd: bool,
}

/// The process that owns a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameOwner {
    /// Its number.
    pub pid: u32,
    /// Its program, where that can be seen.
    pub program: Option<PathBuf>,
}

impl NameOwner {
    /// Says whether it is our daemon.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.program.as_deref().is_some_and(activation::is_ours)
    }

    /// Returns the name of its program.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.program.as_deref().and_then(Path::file_name);
        name.map_or("another program".to_owned(), |name| {
            name.to_string_lossy().trim_end_matches(" (deleted)").to_owned()
        })
    }

    /// Says whether its program was replaced by another version since it was started.
    fn was_replaced(&self) -> bool {
        let path = self.program.as_deref().and_then(Path::to_str);
        path.is_some_and(|path| path.ends_with(" (deleted)"))
    }

    /// Says whether it has child processes, which would lose their parent.
    fn has_children(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let children = |path: PathBuf| std::fs::read(path.join("children")).unwrap_or_default();
        tasks.flatten().any(|task| !children(task.path()).trim_ascii().is_empty())
    }

    /// Says whether it runs in the control group of a unit.
    fn is_of_unit(&self, unit: &str) -> bool {
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid));
        let groups = groups.unwrap_or_default();
        groups.lines().any(|line| line.rsplit('/').any(|part| part == unit))
    }

    /// Says whether it runs host commands, or one of them has left a process behind: whoever stops its unit ends them, too.
    fn has_commands(&self) -> bool {
        if self.has_children() {
            return true;
        }
        // Any other group is shared with programs that have nothing to do with it.
        let is_alone = SetupPart::Host.units().iter().any(|unit| self.is_of_unit(unit));
        let group = || Cgroup::of(&Mounts::read().ok()?, self.pid);
        let processes =
            is_alone.then(group).flatten().map_or(Vec::new(), |group| group.processes());
        processes.iter().any(|pid| *pid != self.pid)
    }

    /// Returns the command that ends it and all that it runs.
    #[must_use]
    pub fn end_command(&self, part: SetupPart) -> String {
        let unit = part.units().iter().find(|unit| self.is_of_unit(unit));
        match unit {
            Some(unit) => format!("systemctl --user stop {unit}"),
            None => format!("kill {}", self.pid),
        }
    }
}

/// What becomes of another service that has a name which ours serves from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherServices {
    /// It goes on until it ends by itself, or with the session.
    GoOn,
    /// It is ended, and a call that reaches it in that moment fails.
    EndNow,
}

/// What became of the program that had a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameHandover {
    /// Nobody has it: the next call starts ours.
    NobodyHadIt,
    /// Ours has it already, of the version that it was started with.
    WasOurs(NameOwner),
    /// It was ended; the next call starts ours.
    Ended(NameOwner),
    /// The other one has it until the session ends.
    StillTheirs(NameOwner),
    /// Ours runs host commands, which would end with it: it goes on until they have ended.
    HasCommands(NameOwner),
    /// There is no bus to ask.
    NoBus,
}

impl LiveSession {
    /// Connects to the bus of this session, if there is one. `runtime` is `$XDG_RUNTIME_DIR`.
    #[must_use]
    pub fn connect(runtime: Option<&Path>) -> LiveSession {
        let bus = BlockingClient::connect(None).ok().map(|mut client| {
            client.set_timeout(PATIENCE);
            client
        });
        let has_systemd = runtime.is_some_and(|dir| dir.join("systemd/private").exists());
        LiveSession { bus, has_systemd }
    }

    /// Says whether there is a bus.
    #[must_use]
    pub fn has_bus(&self) -> bool {
        self.bus.is_some()
    }

    /// Says whether the user's systemd runs.
    #[must_use]
    pub fn has_systemd(&self) -> bool {
        self.has_systemd
    }

    /// Returns the process that owns a name.
    #[must_use]
    pub fn owner(&self, name: &str) -> Option<NameOwner> {
        let bus = self.bus.as_ref()?;
        let unique = bus.name_owner(name).ok().flatten()?;
        let pid = bus.pid_of(&unique).ok()?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        Some(NameOwner { pid, program })
    }

    /// Has the bus and systemd read their files again; returns what did not.
    #[must_use]
    pub fn reload(&self) -> Vec<&'static str> {
        let mut failed = Vec::new();
        if self.has_systemd && !self.systemctl(&["daemon-reload"]) {
            failed.push("systemctl --user daemon-reload");
        }
        if let Some(bus) = &self.bus
            && bus.reload_config().is_err()
        {
            failed.push(
                "dbus-send --session --type=method_call --dest=org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus.ReloadConfig",
            );
        }
        failed
    }

    /// Returns who answers the name of a part, after ours was given it where that loses nothing.
    ///
    /// A daemon of ours that was replaced by another version ends when it has answered every call that the bus has given it,
    /// and the next call starts the new one. Other services have no such end: a call that reaches one while it ends fails,
    /// and programs of GSettings drop a change that failed. They are ended only when that is asked for, and a helper of
    /// Flatpak only while it has no commands.
    #[must_use]
    pub fn take_over(&self, part: SetupPart, patience: OtherServices) -> NameHandover {
        let (Some(name), true) = (part.bus_name(), self.has_bus()) else {
            return NameHandover::NoBus;
        };
        let Some(owner) = self.owner(name) else { return NameHandover::NobodyHadIt };
        if owner.is_ours() {
            return match owner.was_replaced() {
                true => self.renew(part, owner, name),
                false => NameHandover::WasOurs(owner),
            };
        }
        let is_known = match part {
            SetupPart::Settings => owner.name() == "dconf-service",
            SetupPart::Host => owner.name() == "flatpak-session-helper" && !owner.has_children(),
            _ => false,
        };
        if patience == OtherServices::EndNow && is_known && self.end(&owner, name) {
            NameHandover::Ended(owner)
        } else {
            NameHandover::StillTheirs(owner)
        }
    }

    /// Ends our daemon of an earlier version, where that loses nothing.
    fn renew(&self, part: SetupPart, owner: NameOwner, name: &str) -> NameHandover {
        if part == SetupPart::Host && owner.has_commands() {
            return NameHandover::HasCommands(owner);
        }
        if self.is_for_recents(&owner) {
            // It is not started by a call, so that nobody would copy the lists until the next login.
            let is_new = self.systemctl(&["restart", recents::login::UNIT]);
            let new = self.owner(name).filter(|new| is_new && new.is_ours() && *new != owner);
            return new.map_or(NameHandover::Ended(owner), NameHandover::WasOurs);
        }
        match self.end(&owner, name) {
            true => NameHandover::Ended(owner),
            false => NameHandover::WasOurs(owner),
        }
    }

    /// Says whether a daemon of ours keeps the lists of recent documents in memory.
    fn is_for_recents(&self, owner: &NameOwner) -> bool {
        self.has_systemd
            && owner.is_of_unit(recents::login::UNIT)
            && self.systemctl(&["is-active", "--quiet", recents::login::UNIT])
    }

    /// Has our daemon own the name of a part, so that calls are answered while its files go.
    ///
    /// A bus that has to start a service whose file has just gone refuses the call.
    pub fn hold(&self, part: SetupPart) {
        let (Some(bus), Some(name)) = (&self.bus, part.bus_name()) else { return };
        if self.owner(name).is_none() {
            // Where it cannot start, nobody's call is answered by it in any case.
            let _ = bus.start_service(name);
        }
    }

    /// Asks our daemon to end, which stores all that it has accepted first; returns what became of it, if it served this part.
    ///
    /// One that runs host commands goes on, and so does that of the lists of recent documents in memory.
    #[must_use]
    pub fn end_ours(&self, part: SetupPart) -> Option<NameHandover> {
        let owner = || self.owner(part.bus_name()?).filter(NameOwner::is_ours);
        if part == SetupPart::Host
            && let Some(owner) = owner().filter(NameOwner::has_commands)
        {
            return Some(NameHandover::HasCommands(owner));
        }
        for unit in part.units().iter().filter(|_| self.has_systemd) {
            // A unit that systemd does not know is none that runs.
            let _ = self.systemctl(&["stop", unit]);
        }
        let owner = owner().filter(|owner| !self.is_for_recents(owner))?;
        self.end(&owner, part.bus_name()?).then_some(NameHandover::Ended(owner))
    }

    /// Starts a unit of ours now.
    #[must_use]
    pub fn start(&self, unit: &str) -> bool {
        self.has_systemd && self.systemctl(&["start", "--no-block", unit])
    }

    /// Asks a process to end, and waits until it has given the name up.
    fn end(&self, owner: &NameOwner, name: &str) -> bool {
        let pid = i32::try_from(owner.pid).ok().and_then(rustix::process::Pid::from_raw);
        let Some(pid) = pid else { return false };
        let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        else {
            return false;
        };
        // It is still the same one: the number was not given to another process before it was opened.
        if self.owner(name).as_ref() != Some(owner) {
            return false;
        }
        let asked = rustix::process::pidfd_send_signal(&process, rustix::process::Signal::TERM);
        if asked.is_err() {
            return false;
        }
        let seconds = i64::try_from(PATIENCE.as_secs()).unwrap_or(5);
        let limit = rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 };
        let ended = rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN);
        rustix::event::poll(&mut [ended], Some(&limit)).is_ok_and(|count| count > 0)
    }

    fn systemctl(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("systemctl");
        command.arg("--user").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}
