//! A bus of its own with a service of host commands on it; both end, and the directory goes, when it is dropped.

use report::error::chain;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bus::client::blocking::BlockingClient;
use host::client::SERVICE;

use sys::scratch::{self, TempDir};

/// The bus, with what a session's has.
const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:dir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// How long a service is waited for that was told to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running service and its bus.
#[derive(Debug)]
pub struct HostServiceFixture {
    address: String,
    processes: Vec<Child>,
    // Dropped last: what lives in it has ended by then.
    scratch: TempDir,
}

impl HostServiceFixture {
    /// Starts a bus and `command` on it, with directories of their own below `parent`, and waits until it serves.
    ///
    /// # Errors
    ///
    /// Nothing runs: there is no `dbus-daemon`, or the service does not take its name.
    pub fn start(command: &[String], parent: &Path) -> io::Result<HostServiceFixture> {
        let scratch = scratch::within(parent)?;
        let config = scratch.path().join("bus.conf");
        std::io::Write::write_all(
            &mut std::fs::OpenOptions::new().write(true).create_new(true).open(&config)?,
            CONFIG.as_bytes(),
        )?;
        let mut service =
            HostServiceFixture { address: String::new(), processes: Vec::new(), scratch };
        let mut bus = service.command("dbus-daemon");
        bus.arg(format!("--config-file={}", config.display()));
        bus.args(["--nofork", "--nopidfile", "--print-address=1"]);
        let mut bus = bus.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = bus.stdout.take();
        service.processes.push(bus);
        let mut address = String::new();
        BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?).read_line(&mut address)?;
        service.address = address.trim().to_owned();
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut serves = service.command(program);
        serves.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        service.processes.push(serves.spawn()?);
        let told = BlockingClient::connect(Some(&service.address))
            .and_then(|client| client.wait_for_owner(SERVICE));
        told.map_err(|error| io::Error::other(chain(&error)))?;
        Ok(service)
    }

    /// Returns a command that sees this bus, and directories that go away.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let dir = self.scratch.path();
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address).env("HOME", dir);
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
            command.env(name, dir);
        }
        command.env("XDG_RUNTIME_DIR", dir).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }
}

impl Drop for HostServiceFixture {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            // The original service leaves a server of certificates behind when it is killed. An error says that it has
            // ended, which is what is wanted.
            let _ = sys::supervise::send(process.id(), 15);
            if !matches!(ended_within(process), Ok(true)) {
                let _ = process.kill();
            }
            let _ = process.wait();
        }
    }
}

/// Waits for the end of a process that was told to end, but not for long.
fn ended_within(process: &Child) -> io::Result<bool> {
    let handle = sys::pidfd::open(process.id())?;
    sys::socket::wait_readable(&handle, Some(PATIENCE))
}
