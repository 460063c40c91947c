//! A session of its own, with a bus, a settings service and the module.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests make files that need not last, read the environment of who tests and say what they skip"
)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::service::has_dconf;

/// The crate's directory.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// How many keys `k0`, `k1` ... the schema of the tests has.
const NUMBERS: usize = 1000;

/// The session.
pub(crate) struct TestSession {
    directory: tempfile::TempDir,
    is_without_bus: bool,
}

/// What a program did.
pub(crate) struct Ran {
    pub(crate) is_good: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestSession {
    /// Makes the files of a session whose settings service is this command; nothing if a program is missing.
    pub(crate) fn new(service: &str) -> Option<TestSession> {
        if !all_are_installed() {
            return None;
        }
        let session =
            TestSession { directory: tempfile::tempdir().unwrap(), is_without_bus: false };
        for below in ["home", "run", "services", "schemas", "modules"] {
            fs::create_dir(session.path(below)).unwrap();
        }
        let file = format!("[D-BUS Service]\nName=ca.desrt.dconf\nExec={service}\n");
        fs::write(session.path("services/ca.desrt.dconf.service"), file).unwrap();
        let services = session.path("services");
        let bus = include_str!("session.conf").replace("@services@", services.to_str().unwrap());
        fs::write(session.path("session.conf"), bus).unwrap();
        symlink(library(), session.path("modules/libgiounjank.so")).unwrap();
        let numbers: String = (0..NUMBERS)
            .map(|number| format!("<key name='k{number}' type='i'><default>0</default></key>"))
            .collect();
        let schema = include_str!("schema.xml").replace("@numbers@", &numbers);
        fs::write(session.path("schemas/org.unjank.test.gschema.xml"), schema).unwrap();
        succeed(Command::new("glib-compile-schemas").arg(session.path("schemas")));
        Some(session)
    }

    /// Has the programs find no bus.
    pub(crate) fn without_bus(mut self) -> TestSession {
        self.is_without_bus = true;
        self
    }

    /// Returns a path of the session.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// Returns a command that runs a program of the session's user with a backend.
    pub(crate) fn command(&self, backend: &str, program: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "120"]);
        if !self.is_without_bus {
            command.args(["dbus-run-session", "--config-file"]);
            command.arg(self.path("session.conf")).arg("--");
        }
        command.args(program).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("XDG_RUNTIME_DIR", self.path("run"));
        command.env("LC_ALL", "C.UTF-8").env("GSETTINGS_SCHEMA_DIR", self.path("schemas"));
        command.env("GIO_EXTRA_MODULES", self.path("modules")).env("GSETTINGS_BACKEND", backend);
        if self.is_without_bus {
            command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus");
        }
        command
    }

    /// Runs a program with the module.
    pub(crate) fn run(&self, program: &[&str]) -> Ran {
        Ran::of(&mut self.command("unjank", program))
    }

    /// Compiles `tests/backend.c` and returns the program.
    pub(crate) fn compile(&self, source: &str) -> String {
        let program = self.path(Path::new(source).file_stem().unwrap().to_str().unwrap());
        let mut flags = Command::new("pkg-config");
        let flags = succeed(flags.args(["--cflags", "--libs", "gio-2.0"]));
        let mut compiler = Command::new("gcc");
        compiler.args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        compiler.arg(Path::new(CRATE).join(source)).args(flags.split_whitespace());
        succeed(&mut compiler);
        program.into_os_string().into_string().unwrap()
    }
}

impl Ran {
    /// Runs a command.
    pub(crate) fn of(command: &mut Command) -> Ran {
        let Output { status, stdout, stderr } =
            command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let [stdout, stderr] =
            [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        // The bus may not raise its limit of descriptors here, and says so.
        let stderr = stderr.lines().filter(|line| !line.starts_with("dbus-daemon["));
        let stderr = stderr.collect::<Vec<_>>().join("\n");
        Ran { is_good: status.success(), stdout, stderr }
    }

    /// Fails unless the program said that all is well.
    pub(crate) fn expect_good(&self) {
        let Ran { is_good, stdout, stderr } = self;
        assert!(*is_good && stdout == "good\n", "{stdout}{stderr}");
    }
}

/// Runs a command that must succeed and returns what it printed.
fn succeed(command: &mut Command) -> String {
    let ran = Ran::of(command);
    assert!(ran.is_good, "{command:?}: {}", ran.stderr);
    ran.stdout
}

/// Returns the module that was built with the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libgiounjank.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// Whether there is all that these tests run; a failure where all must run.
fn all_are_installed() -> bool {
    let has_gio = Command::new("pkg-config").args(["--exists", "gio-2.0"]).status();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed =
        |program: &&str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let missing: Vec<&str> =
        ["dbus-run-session", "dconf", "gsettings", "glib-compile-schemas", "gcc"]
            .into_iter()
            .filter(|program| !is_installed(program))
            .collect();
    if missing.is_empty() && has_dconf() && has_gio.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(must_run().is_none(), "GIO, dconf or {missing:?} is needed");
    println!("SKIPPED: no GIO, dconf or {missing:?}");
    false
}

/// Says that a test is skipped because something is missing; a failure where all must run.
pub(crate) fn skip(missing: &str) {
    assert!(must_run().is_none(), "{missing} is needed");
    println!("SKIPPED: no {missing}");
}

/// Set where no test may be skipped.
pub(crate) fn must_run() -> Option<OsString> {
    std::env::var_os("REQUIRE_ALL")
}
