//! Where hangs are planted: a display, a bus, a resolver and a file system that answer late, and the programs.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use report::error::chain;
use sys::scratch::{self, TempDir};

use super::causes::{CAUSES, HangSource, Planter, SERVICE};
use super::files::write_new;
use super::groups::{FreezingGroup, SmallMemory};
use super::process::OwnedProcess;
use super::program::HangingProgram;
use super::served::{ServedBench, ServedUser};
use super::toolkits::{self, DisplayKind, TOOLKITS, Toolkit};
use crate::lab::{BenchError, cannot};

/// How long the service that starts slowly starts, in milliseconds.
const START_MS: u32 = 300;

/// A display, a bus, and what answers late on them.
#[derive(Debug)]
pub struct HangScene {
    /// This program.
    pub(super) unjank: PathBuf,
    /// The toolkits whose programs were compiled.
    pub(super) toolkits: Vec<&'static Toolkit>,
    display: String,
    wayland: Option<String>,
    bus: String,
    /// The directory of the late file system, if it is mounted.
    late: Option<PathBuf>,
    late_server: Option<OwnedProcess>,
    resolver: Option<String>,
    /// As whom programs and recorder run, if not as who measures, with the recorder service.
    served: Option<ServedUser>,
    /// What is not there, and why.
    left_out: Vec<String>,
    // Those that were started last end first.
    processes: Vec<OwnedProcess>,
    // Dropped last: what lives in it has ended by then.
    scratch: TempDir,
}

impl Drop for HangScene {
    fn drop(&mut self) {
        // What is mounted in our directory has to be gone before the directory is.
        if let Some(server) = self.late_server.take() {
            server.let_end();
        }
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
    }
}

impl HangScene {
    /// Compiles the programs and starts what they need, below `parent`; `only` are the toolkits, all if it is empty. With `served`
    /// all of it runs as an ordinary user, for whom the recorder service has programs in the kernel.
    ///
    /// # Errors
    ///
    /// There is no X server, no bus, no compiler or no toolkit; the service does not serve, or the user cannot enter the directory.
    pub fn make(
        parent: &Path,
        unjank: &Path,
        only: &[String],
        served: Option<&ServedBench>,
    ) -> Result<HangScene, BenchError> {
        let served = served.map(ServedUser::serve).transpose()?;
        let scratch = scratch::shown_within(parent).map_err(|error| cannot(parent, error))?;
        let mut scene = HangScene {
            served,
            unjank: unjank.to_owned(),
            toolkits: Vec::new(),
            display: String::new(),
            wayland: None,
            bus: String::new(),
            late: None,
            late_server: None,
            resolver: None,
            left_out: Vec::new(),
            processes: Vec::new(),
            scratch,
        };
        for name in ["home", "run", "files", "late", "services"] {
            let path = scene.at(name);
            DirBuilder::new().mode(0o700).create(&path).map_err(|error| cannot(&path, error))?;
        }
        toolkits::unpack(scene.scratch.path())?;
        // Only what the user's own programs write is his: we work in the directory itself with our rights.
        scene.make_readable(scene.scratch.path(), 0o755)?;
        for name in ["home", "run", "files", "late"] {
            scene.give(&scene.at(name))?;
        }
        scene.make_readable(&scene.at("services"), 0o755)?;
        scene.check_user()?;
        let mut display = scene.command("Xvfb");
        display.args(["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"]);
        scene.display = format!(":{}", scene.serve("Xvfb", &mut display)?);
        scene.start_wayland(only);
        scene.start_bus()?;
        scene.start_late();
        for toolkit in TOOLKITS {
            if only.is_empty() || only.iter().any(|name| name == toolkit.id) {
                scene.add(toolkit);
            }
        }
        if scene.toolkits.is_empty() {
            return Err(cannot("the programs of toolkits", scene.left_out.join("; ")));
        }
        Ok(scene)
    }

    fn start_wayland(&mut self, only: &[String]) {
        let is_wanted = |toolkit: &&Toolkit| {
            toolkit.display == DisplayKind::Wayland
                && (only.is_empty() || only.iter().any(|name| name == toolkit.id))
        };
        if !TOOLKITS.iter().any(|toolkit| is_wanted(&toolkit)) {
            return;
        }
        let name = "wayland-9";
        let mut command = self.command("weston");
        // It has no helpers: they would outlive it.
        let config = self.write("weston.ini", "[input-method]\npath=\n");
        command.args(["--backend=headless-backend.so", "--shell=kiosk-shell.so"]);
        command.arg(format!("--config={}", self.at("weston.ini").display()));
        command.args(["--idle-time=0", &format!("--socket={name}")]).stdout(Stdio::null());
        if let Err(error) = config {
            self.left_out.push(format!("Wayland ({})", chain(&error)));
            return;
        }
        match OwnedProcess::start(&mut command) {
            Ok(process) => {
                let socket = self.at("run").join(name);
                let is_there = process.ends_or(|| socket.exists());
                self.processes.push(process);
                match is_there {
                    true => self.wayland = Some(name.to_owned()),
                    false => self.left_out.push("Wayland (weston does not serve)".to_owned()),
                }
            }
            Err(error) => self.left_out.push(format!("Wayland (weston: {error})")),
        }
    }

    fn start_bus(&mut self) -> Result<(), BenchError> {
        let service = toolkits::compile_service(self.scratch.path())?;
        self.make_readable(&service, 0o755)?;
        for toolkit in TOOLKITS {
            for (kind, more) in [("Answers", String::new()), ("Starts", format!(" {START_MS}"))] {
                let name = format!("org.unjank.bench.{kind}_{}", dbus_name(toolkit.id));
                let verb = kind.to_lowercase();
                let text = format!(
                    "[D-BUS Service]\nName={name}\nExec={} {verb} {name}{more}\n",
                    service.display()
                );
                self.write(&format!("services/{name}.service"), &text)?;
            }
        }
        let config = format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:dir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <servicedir>{}</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#,
            self.at("services").display()
        );
        self.write("bus.conf", &config)?;
        let mut bus = self.command("dbus-daemon");
        bus.arg(format!("--config-file={}", self.at("bus.conf").display()));
        bus.args(["--nofork", "--nopidfile", "--print-address=1"]);
        self.bus = self.serve("dbus-daemon", &mut bus)?;
        let mut resolver = self.command(service);
        match OwnedProcess::start_saying(resolver.arg("resolves")) {
            Ok((process, port)) => {
                self.processes.push(process);
                self.resolver = Some(port);
            }
            Err(error) => self.left_out.push(format!("resolver ({error})")),
        }
        Ok(())
    }

    fn start_late(&mut self) {
        let point = self.at("late");
        let started = toolkits::compile_late(self.scratch.path()).and_then(|program| {
            self.make_readable(&program, 0o755)?;
            let mut command = self.command(&program);
            let said = OwnedProcess::start_saying(command.arg(&point));
            said.map_err(|error| cannot("fusermount3", error))
        });
        match started {
            Ok((process, _)) => {
                self.late_server = Some(process);
                self.late = Some(point);
            }
            Err(error) => self.left_out.push(format!("late-file ({})", chain(&error))),
        }
    }

    /// Compiles the program of a toolkit, and tries it.
    fn add(&mut self, toolkit: &'static Toolkit) {
        let tried = match toolkit.display {
            DisplayKind::Wayland if self.wayland.is_none() => {
                Err(cannot("weston", "it does not run"))
            }
            _ => toolkits::compile(self.scratch.path(), toolkit)
                .and_then(|program| self.make_readable(&program, 0o755))
                .and_then(|()| self.rest(toolkit))
                .map(|program| drop(program.end())),
        };
        match tried {
            Ok(()) => self.toolkits.push(toolkit),
            Err(error) => self.left_out.push(format!("{} ({})", toolkit.id, chain(&error))),
        }
    }

    /// Starts the program of a toolkit that only rests.
    pub(super) fn rest(&self, toolkit: &Toolkit) -> Result<HangingProgram, BenchError> {
        self.run(toolkit, "rest")
    }

    /// Starts the program of a toolkit, which blinks as one with a text cursor does.
    pub(super) fn blink(&self, toolkit: &Toolkit) -> Result<HangingProgram, BenchError> {
        self.run(toolkit, "blink")
    }

    fn run(&self, toolkit: &Toolkit, manner: &str) -> Result<HangingProgram, BenchError> {
        let mut command = self.command(self.at(&toolkit.program()));
        command.arg(self.at("files")).args([&dbus_name(toolkit.id), manner]);
        command.arg(self.late.as_deref().unwrap_or(Path::new("")));
        command.arg(self.resolver.as_deref().unwrap_or("0"));
        match toolkit.display {
            DisplayKind::X => {
                command.env("DISPLAY", &self.display).env("GDK_BACKEND", "x11");
                command.env("QT_QPA_PLATFORM", "xcb");
            }
            DisplayKind::Wayland => {
                command.env("WAYLAND_DISPLAY", self.wayland.as_deref().unwrap_or_default());
                command.env("GDK_BACKEND", "wayland").env("GSK_RENDERER", "cairo");
            }
        }
        HangingProgram::start(command)
    }

    /// Starts neighbours that compute for so long on one processor.
    pub(super) fn neighbours(&self, count: usize, ms: u64) -> io::Result<Vec<OwnedProcess>> {
        let start = |_| {
            let mut command = self.command(self.at(SERVICE));
            command.args(["computes", &ms.to_string()]).stdout(Stdio::null());
            OwnedProcess::start(&mut command)
        };
        (0..count).map(start).collect()
    }

    /// Returns a command that sees this bus and directories that go away, and no display; it runs as the ordinary user, if there is one.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let as_user = self.served.as_ref().map(|served| served.command(&program));
        self.placed(as_user.unwrap_or_else(|| Command::new(program)))
    }

    /// Returns the same as who measures.
    pub(super) fn own_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.placed(Command::new(program))
    }

    fn placed(&self, mut command: Command) -> Command {
        let home = self.at("home");
        command.env("HOME", &home).env("XDG_RUNTIME_DIR", self.at("run"));
        for (name, directory) in [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_STATE_HOME", ".local/state"),
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_DATA_HOME", ".local/share"),
        ] {
            command.env(name, home.join(directory));
        }
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.bus).env("LC_ALL", "C.UTF-8");
        // Neither settings nor helpers of the session take a part in what is measured.
        command.env("GSETTINGS_BACKEND", "memory").env("GTK_A11Y", "none").env("NO_AT_BRIDGE", "1");
        command.env("GIO_USE_VFS", "local").env("GDK_SYNCHRONIZE", "0");
        for name in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Returns the name of the X server's display.
    pub(super) fn display(&self) -> &str {
        &self.display
    }

    /// Returns a path in our directory.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Returns the causes of `wanted`, all if it is empty, that can be planted here; the others are left out.
    pub fn possible(&mut self, wanted: &[String]) -> Vec<&'static HangSource> {
        let is_wanted =
            |cause: &&HangSource| wanted.is_empty() || wanted.iter().any(|name| name == cause.id);
        let mut possible = Vec::new();
        for cause in CAUSES.iter().filter(is_wanted) {
            match self.obstacle(cause) {
                None => possible.push(cause),
                Some(why) => self.left_out.push(format!("{} ({why})", cause.id)),
            }
        }
        possible
    }

    fn obstacle(&self, cause: &HangSource) -> Option<String> {
        match cause.planter {
            Planter::Freezer => {
                FreezingGroup::make("try").err().map(|error| format!("cgroup: {error}"))
            }
            Planter::SmallMemory => {
                SmallMemory::make("try").err().map(|error| format!("memory of a cgroup: {error}"))
            }
            Planter::Swap => {
                let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
                (swaps.lines().count() < 2).then(|| "there is no swap".to_owned())
            }
            Planter::Program if cause.id == "late-file" && self.late.is_none() => {
                Some("FUSE".to_owned())
            }
            _ => None,
        }
    }

    /// Says what hangs are planted in, and what is left out.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let programs = self.toolkits.iter().map(|toolkit| toolkit.about);
        let mut lines = vec![format!("programs: {}", programs.collect::<Vec<_>>().join(", "))];
        if !self.left_out.is_empty() {
            lines.push(format!("left out: {}", self.left_out.join(", ")));
        }
        lines
    }

    fn serve(&mut self, name: &str, command: &mut Command) -> Result<String, BenchError> {
        let started = OwnedProcess::start_saying(command).map_err(|error| cannot(name, error))?;
        self.processes.push(started.0);
        Ok(started.1)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), BenchError> {
        let path = self.at(name);
        write_new(&path, text.as_bytes()).map_err(|error| cannot(&path, error))?;
        self.make_readable(&path, 0o644)
    }

    /// Lets the ordinary user, if there is one, read what is at a path, and run or enter it if the mode says so; he cannot change it.
    pub(super) fn make_readable(&self, path: &Path, mode: u32) -> Result<(), BenchError> {
        let done = self
            .served
            .as_ref()
            .map(|_| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)));
        done.unwrap_or(Ok(())).map_err(|error| cannot(path, error))
    }

    /// Gives what is at a path to the ordinary user, if there is one; nothing may be done there with our rights any more.
    pub(super) fn give(&self, path: &Path) -> Result<(), BenchError> {
        let given = self.served.as_ref().map(|served| served.give(path));
        given.unwrap_or(Ok(())).map_err(|error| cannot(path, error))
    }

    /// Looks whether the ordinary user can run our program, and enter the directory.
    fn check_user(&self) -> Result<(), BenchError> {
        let Some(served) = &self.served else { return Ok(()) };
        for path in [&self.at("home"), &self.unjank] {
            let mut command = served.command("test");
            let status = command.arg("-x").arg(path).status();
            if !status.is_ok_and(|status| status.success()) {
                let why = format!("user {} cannot reach it", served.name());
                return Err(cannot(path, why));
            }
        }
        Ok(())
    }

    /// Returns the recorder service and the user for whom it is there, if the recorder has its programs in the kernel through it.
    pub(super) fn served(&self) -> Option<&ServedUser> {
        self.served.as_ref()
    }

    /// Says how the recorder has its programs in the kernel, if not by the rights of who measures.
    #[must_use]
    pub fn through(&self) -> Option<String> {
        let name = self.served.as_ref()?.name();
        Some(format!("through the recorder service, all as user {name}"))
    }
}

/// Returns the name of a toolkit as a part of a name on the bus.
fn dbus_name(id: &str) -> String {
    id.replace('-', "_")
}
