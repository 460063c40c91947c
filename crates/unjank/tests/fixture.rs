//! A private bus with private directories, and services on it; everything ends with the fixture.
#![allow(dead_code, reason = "each test uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a fixture that cannot be set up fails the test; it stands for other programs"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bus::client::blocking::BlockingClient;
use rustix::process::{Pid, Signal, kill_process};

/// The service that we stand in for.
pub const REAL: &str = "/usr/libexec/dconf-service";
/// Our own.
pub const OURS: &str = env!("CARGO_BIN_EXE_unjankd");
/// The name that both own.
pub const NAME: &str = "ca.desrt.dconf";
/// The object of the database `user`.
pub const USER: &str = "/ca/desrt/dconf/Writer/user";

/// A golden `Change`: sets `/a/b` to the number 1.
pub const SET_A_B: &[u8] =
    &[0x2f, 0x61, 0x2f, 0x62, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x69, 0, 0x05, 0x10];

/// Runs `test`, and fails if it takes longer than a minute.
pub fn in_time(test: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = sender.send(());
    });
    if receiver.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test took over a minute");
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Says whether programs that a test needs are there; skips the test loudly or fails if they are not.
pub fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing: Vec<&&str> = programs
        .iter()
        .filter(|program| !std::env::split_paths(&path).any(|dir| dir.join(program).exists()))
        .collect();
    if missing.is_empty() {
        return true;
    }
    skip(&format!("no {missing:?}"));
    false
}

/// Says that a test is skipped and why, which is a failure where nothing may be skipped.
pub fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}

/// A number that changes how long a test runs, from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var_os(name).map(|value| value.to_string_lossy().parse().unwrap())
}

/// A private `dbus-daemon` with its own home, configuration, runtime and service directories.
pub struct Bus {
    dir: tempfile::TempDir,
    daemon: Child,
    address: String,
}

impl Bus {
    /// Starts a bus on which nothing can be activated; `None` without a `dbus-daemon`.
    pub fn start() -> Option<Bus> {
        Bus::start_with(&[])
    }

    /// Starts a bus that can activate `ca.desrt.dconf` by this command line.
    pub fn start_with(activate: &[&str]) -> Option<Bus> {
        Bus::start_at(tempfile::tempdir().unwrap(), activate)
    }

    /// Starts a bus whose directories are below `parent`, for example on a file system of its own.
    pub fn start_in(parent: &Path) -> Option<Bus> {
        Bus::start_at(tempfile::tempdir_in(parent).unwrap(), &[])
    }

    fn start_at(dir: tempfile::TempDir, activate: &[&str]) -> Option<Bus> {
        if !has(&["dbus-daemon"]) {
            return None;
        }
        for name in ["home", "config", "cache", "data", "state", "services", "run"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        if !activate.is_empty() {
            let service = format!("[D-BUS Service]\nName={NAME}\nExec={}\n", activate.join(" "));
            std::fs::write(dir.path().join("services/ca.desrt.dconf.service"), service).unwrap();
        }
        let config = dir.path().join("bus.conf");
        std::fs::write(
            &config,
            format!(
                r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={dir}/bus</listen>
  <servicedir>{dir}/services</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_message_size">1000000000</limit>
</busconfig>
"#,
                dir = dir.path().display()
            ),
        )
        .unwrap();
        let mut command = Command::new("dbus-daemon");
        environment(&mut command, dir.path(), "");
        let mut daemon = command
            .args(["--nofork", "--nopidfile", "--print-address", "--config-file"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut output = BufReader::new(daemon.stdout.take().unwrap());
        output.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        Some(Bus { dir, daemon, address })
    }

    /// The address of the bus.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory that holds everything: `home`, `config`, `cache`, `data`, `state`, `run`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The file of the database `user`.
    pub fn user_database(&self) -> PathBuf {
        self.dir().join("config/dconf/user")
    }

    /// A command that sees this bus and these directories and nothing else of the machine's session.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        environment(&mut command, self.dir(), &self.address);
        command
    }

    /// A connection.
    pub fn client(&self) -> BlockingClient {
        BlockingClient::connect(Some(&self.address)).unwrap()
    }

    /// Starts a service and waits until it owns the name.
    pub fn serve(&self, program: &str, arguments: &[&str]) -> Service {
        let mut command = self.command(program);
        command.args(arguments);
        self.serve_by(command)
    }

    /// Starts a service by this command and waits until it owns the name.
    pub fn serve_by(&self, mut command: Command) -> Service {
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let service = Service { child };
        let owner = self.client().wait_for_owner(NAME).unwrap();
        assert_eq!(self.client().pid_of(&owner).unwrap(), service.pid());
        service
    }

    /// Ends the bus as a crash would.
    pub fn kill(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn environment(command: &mut Command, dir: &Path, address: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8").current_dir(dir);
    for (variable, name) in [
        ("HOME", "home"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_RUNTIME_DIR", "run"),
    ] {
        command.env(variable, dir.join(name));
    }
    if !address.is_empty() {
        command.env("DBUS_SESSION_BUS_ADDRESS", address);
    }
}

/// A running service.
pub struct Service {
    child: Child,
}

impl Service {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end and returns its status and what it wrote to standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap(), text)
    }

    /// Sends it a signal, waits for its end and says how long that took.
    pub fn end(self, signal: Signal) -> (ExitStatus, String, Duration) {
        let start = Instant::now();
        self.signal(signal);
        let (status, text) = self.wait();
        (status, text, start.elapsed())
    }

    /// The processor time that it has used.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        let main: u64 = stat.split(' ').next().unwrap().parse().unwrap();
        let mut all = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap() {
            let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            all += stat.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
        Duration::from_nanos(all.max(main))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
