//! A session of our own: a private bus, private directories, and one settings service on it.

use report::quoting::quoted;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bus::client::ClientError;
use bus::client::blocking::BlockingClient;

use sys::process::MeasuredProcess;
use sys::scratch::{self, TempDir};

/// Programs are looked for here; the caller's own path may hold others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The bus name of a settings service.
pub const SERVICE: &str = "ca.desrt.dconf";
/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a call may take that is measured: dconf-service takes a second for a write among 20,000 keys of one directory, and a busy machine takes 25 times as long.
const SLOWEST_CALL: Duration = Duration::from_secs(300);

/// Why there is no session, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A directory or a file of ours could not be made; nothing runs.
    #[error("cannot prepare {path:?}")]
    NotPrepared {
        /// What was to be made.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// There is no `dbus-daemon`, or it does not run; no service was started.
    #[error("cannot start dbus-daemon")]
    NoBus(#[source] io::Error),
    /// The service did not answer.
    #[error("cannot reach {program}")]
    NoService {
        /// The service's program.
        program: String,
        /// What the bus said.
        source: ClientError,
    },
    /// The service's process could not be held.
    #[error("cannot watch the process of {program}")]
    NoProcess {
        /// The service's program.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A settings service that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// More environment variables for it.
    pub environment: Vec<(String, String)>,
}

impl ServiceProgram {
    /// Returns a service without arguments, as the peer is.
    #[must_use]
    pub fn plain(path: &Path) -> ServiceProgram {
        ServiceProgram { command: vec![path.display().to_string()], environment: Vec::new() }
    }

    /// Returns our own daemon at `path`, as the settings service alone.
    #[must_use]
    pub fn unjankd(path: &Path) -> ServiceProgram {
        let command = [path.display().to_string(), "--names".to_owned(), "dconf".to_owned()];
        ServiceProgram { command: command.into(), environment: Vec::new() }
    }

    /// Returns our own daemon as the command at `path` serves it in its process.
    #[must_use]
    pub fn unjank(path: &Path) -> ServiceProgram {
        let mut program = ServiceProgram::unjankd(path);
        program.command.insert(1, "daemon".to_owned());
        program
    }

    /// Returns the path of the program.
    #[must_use]
    pub fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

/// A bus and the service that it starts; both end, and the directories go, when this is dropped.
#[derive(Debug)]
pub struct BenchSession {
    program: ServiceProgram,
    address: String,
    daemon: Child,
    service: Option<MeasuredProcess>,
    config_home: PathBuf,
    runtime_dir: PathBuf,
    // Dropped last: what lives in them has ended by then.
    _scratch: [TempDir; 2],
}

impl BenchSession {
    /// Starts a bus on which `program` owns the settings once it is called.
    ///
    /// What survives a restart (databases, state) is kept in a directory of our own in `durable`, what does not (the
    /// runtime directory, the socket) in one in `volatile`; the latter's path must be short, for a socket's sake.
    ///
    /// # Errors
    ///
    /// Nothing runs, and nothing is left behind.
    pub fn start(
        program: &ServiceProgram,
        durable: &Path,
        volatile: &Path,
    ) -> Result<BenchSession, SessionError> {
        let prepare = |path: &Path| {
            let path = path.to_owned();
            move |source| SessionError::NotPrepared { path, source }
        };
        let durable = scratch::within(durable).map_err(prepare(durable))?;
        let volatile = scratch::within(volatile).map_err(prepare(volatile))?;
        let directory = |path: PathBuf| {
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(prepare(&path))?;
            Ok(path)
        };
        let config_home = directory(durable.path().join("config"))?;
        directory(config_home.join("dconf"))?;
        let state_home = directory(durable.path().join("state"))?;
        let cache_home = directory(durable.path().join("cache"))?;
        let data_home = directory(durable.path().join("data"))?;
        let runtime_dir = directory(volatile.path().join("run"))?;
        let services = directory(volatile.path().join("services"))?;

        let service = services.join(format!("{SERVICE}.service"));
        create(&service, service_file(program).as_bytes()).map_err(prepare(&service))?;
        let config = volatile.path().join("bus.conf");
        create(&config, bus_config(volatile.path(), &services).as_bytes())
            .map_err(prepare(&config))?;

        let mut daemon = Command::new("dbus-daemon");
        daemon
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .env("HOME", durable.path())
            .env("XDG_CONFIG_HOME", &config_home)
            .env("XDG_STATE_HOME", state_home)
            .env("XDG_CACHE_HOME", cache_home)
            .env("XDG_DATA_HOME", data_home)
            .env("XDG_RUNTIME_DIR", &runtime_dir)
            .envs(program.environment.iter().map(|(name, value)| (name, value)));
        let mut daemon = daemon.spawn().map_err(SessionError::NoBus)?;
        let address = first_line(&mut daemon);
        let mut session = BenchSession {
            program: program.clone(),
            address: String::new(),
            daemon,
            service: None,
            config_home,
            runtime_dir,
            _scratch: [durable, volatile],
        };
        session.address = address.map_err(SessionError::NoBus)?;
        Ok(session)
    }

    /// Returns the address of the bus.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns `$XDG_CONFIG_HOME` of the session.
    #[must_use]
    pub fn config_home(&self) -> &Path {
        &self.config_home
    }

    /// Returns `$XDG_RUNTIME_DIR` of the session.
    #[must_use]
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// Puts a database file in place; the service must not have been called yet.
    ///
    /// # Errors
    ///
    /// The database is not there.
    pub fn seed(&self, database: &str, image: &[u8]) -> Result<(), SessionError> {
        let path = self.config_home.join("dconf").join(database);
        create(&path, image).map_err(|source| SessionError::NotPrepared { path, source })
    }

    /// Connects to the bus.
    ///
    /// # Errors
    ///
    /// The bus has ended.
    pub fn connect(&self) -> Result<BlockingClient, SessionError> {
        let client = BlockingClient::connect(Some(&self.address));
        let mut client = client.map_err(|source| self.unreachable(source))?;
        client.set_timeout(SLOWEST_CALL);
        Ok(client)
    }

    /// Returns the service's process; starts it if it does not run.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn service(&mut self) -> Result<&MeasuredProcess, SessionError> {
        let client = self.connect()?;
        client.ping().map_err(|source| self.unreachable(source))?;
        let pid = client.pid_of(SERVICE).map_err(|source| self.unreachable(source))?;
        let process = MeasuredProcess::open(pid).map_err(|source| SessionError::NoProcess {
            program: self.program.name().to_owned(),
            source,
        })?;
        Ok(self.service.insert(process))
    }

    /// Turns what the client said into an error that names the program.
    #[must_use]
    pub fn unreachable(&self, source: ClientError) -> SessionError {
        SessionError::NoService { program: self.program.name().to_owned(), source }
    }
}

impl Drop for BenchSession {
    fn drop(&mut self) {
        // The service may have been started again by a call since it was last looked at.
        let owner = BlockingClient::connect(Some(&self.address)).ok();
        let running = owner.and_then(|client| client.pid_of(SERVICE).ok());
        let running = running.and_then(|pid| MeasuredProcess::open(pid).ok());
        for process in self.service.take().into_iter().chain(running) {
            // An error says that it has ended, which is what is wanted.
            let _ = process.kill();
            let _ = process.wait(PATIENCE);
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

fn first_line(daemon: &mut Child) -> io::Result<String> {
    let output = daemon.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    match line.trim() {
        "" => Err(io::Error::other("it ended without an address")),
        address => Ok(address.to_owned()),
    }
}

fn service_file(program: &ServiceProgram) -> String {
    let words: Vec<String> = program.command.iter().map(|word| quoted(word)).collect();
    format!("[D-BUS Service]\nName={SERVICE}\nExec={}\n", words.join(" "))
}

fn bus_config(socket_dir: &Path, services: &Path) -> String {
    let escaped = |path: &Path| {
        path.display().to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    };
    format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}/bus</listen>
  <servicedir>{services}</servicedir>
  <auth>EXTERNAL</auth>
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
        socket = escaped(socket_dir),
        services = escaped(services),
    )
}
