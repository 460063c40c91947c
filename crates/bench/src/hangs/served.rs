//! An ordinary user as whom programs and recorder run, and the recorder service that has programs in the kernel for him.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use sys::scratch::{self, TempDir};

use super::process::OwnedProcess;
use crate::lab::{BenchError, cannot};

/// The user of the service, as the unit's `DynamicUser=`: a number that systemd and Debian leave unused, so that nobody else is it.
const SERVICE_USER: u32 = 61_000;
/// What the service may, as its unit has it.
const CAPABILITIES: &str = "-all,+bpf,+perfmon";
/// Where directories for a service are made.
const RUN: &str = "/run";
/// It does not end before the benchmark does, in seconds.
const IDLE: &str = "1000000";
/// There is no polkit that decides who is served: the user's group is.
const NO_BUS: &str = "unix:path=/nowhere/at/all";

/// Who is measured through the recorder service.
#[derive(Clone, Debug)]
pub struct ServedBench {
    /// The user's name.
    pub user: String,
    /// The program of the service.
    pub service: PathBuf,
}

/// A user who is not root.
#[derive(Debug)]
pub(super) struct OrdinaryUser {
    name: String,
    user: u32,
    group: u32,
}

impl OrdinaryUser {
    /// Finds a user by the name.
    fn find(name: &str) -> Result<OrdinaryUser, BenchError> {
        let path = "/etc/passwd";
        let users = std::fs::read_to_string(path).map_err(|error| cannot(path, error))?;
        let user = OrdinaryUser::among(&users, name);
        user.ok_or_else(|| {
            cannot(format!("programs as user {name}"), "there is no such user beside root")
        })
    }

    fn among(users: &str, name: &str) -> Option<OrdinaryUser> {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let is_it = fields.next() == Some(name);
            let mut number = || fields.next()?.parse::<u32>().ok();
            let (_password, user, group) = (number(), number()?, number()?);
            (is_it && user != 0).then(|| OrdinaryUser { name: name.to_owned(), user, group })
        })
    }

    /// Returns a command that runs a program as this user, with his rights alone.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [user, group] = [self.user, self.group].map(|number| number.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &group, "--clear-groups"]);
        command.args(["--inh-caps", "-all"]).arg(program);
        command
    }
}

/// The service, at work for one user.
#[derive(Debug)]
pub(super) struct ServedUser {
    user: OrdinaryUser,
    service: OwnedProcess,
    socket: PathBuf,
    log: PathBuf,
    _dir: TempDir,
}

impl ServedUser {
    /// Starts the service with its two capabilities, for a user.
    ///
    /// # Errors
    ///
    /// We are not root, there is no such user, or the service does not serve.
    pub(super) fn serve(bench: &ServedBench) -> Result<ServedUser, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Err(cannot("unjank-recorder", "only root can start it and be another user"));
        }
        let user = OrdinaryUser::find(&bench.user)?;
        let failed = |error: io::Error| cannot("unjank-recorder", error);
        let dir = scratch::shown_within(Path::new(RUN)).map_err(failed)?;
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).map_err(failed)?;
        chown(dir.path(), Some(SERVICE_USER), Some(SERVICE_USER)).map_err(failed)?;
        let (socket, log) = (dir.path().join("socket"), dir.path().join("log"));
        let [number, group] = [SERVICE_USER, user.group].map(|number| number.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &number, "--regid", &number, "--clear-groups", "--no-new-privs"]);
        command.args(["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES]);
        command.args(["--bounding-set", CAPABILITIES]).arg(&bench.service);
        command.arg("--socket").arg(&socket).args(["--group", &group]);
        command.args(["--bus", NO_BUS, "--idle", IDLE]);
        let log_file = File::options().append(true).create_new(true).open(&log).map_err(failed)?;
        let service = OwnedProcess::start_logging(&mut command, log_file).map_err(failed)?;
        let served = ServedUser { user, service, socket, log, _dir: dir };
        if served.service.ends_or(|| served.socket.exists() && served.log().contains("serves")) {
            return Ok(served);
        }
        Err(cannot("unjank-recorder", served.log().lines().last().unwrap_or("it does not serve")))
    }

    /// Returns a command that runs a program as the user, and finds the service.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.user.command(program);
        command.env("UNJANK_RECORDER", &self.socket);
        command
    }

    /// Gives a file or a directory with all that is in it to the user. A directory is his last of all, so that he can put nothing
    /// else in the place of what is in it meanwhile; links are given themselves.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        if std::fs::symlink_metadata(path)?.is_dir() {
            for entry in std::fs::read_dir(path)? {
                self.give(&entry?.path())?;
            }
        }
        lchown(path, Some(self.user.user), Some(self.user.group))
    }

    /// Returns the user's name.
    pub(super) fn name(&self) -> &str {
        &self.user.name
    }

    /// Returns the service's process ID.
    pub(super) fn service(&self) -> u32 {
        self.service.id()
    }

    /// Returns how many sessions for hangs a process has begun.
    pub(super) fn sessions(&self, process: u32) -> usize {
        sessions_in(&self.log(), process)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Counts the sessions for hangs that a process began by the service's log.
fn sessions_in(log: &str, process: u32) -> usize {
    let begun = format!("(process {process}) began a session for hangs");
    log.lines().filter(|line| line.ends_with(&begun)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_name_and_is_not_root() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533:nobody:/:/sbin/nologin\nodd\n";
        let nobody = OrdinaryUser::among(users, "nobody").unwrap();
        assert_eq!((nobody.user, nobody.group), (65534, 65533));
        for name in ["root", "odd", "nobod", ""] {
            assert!(OrdinaryUser::among(users, name).is_none(), "{name}");
        }
    }

    #[test]
    fn sessions_are_those_of_the_process_and_of_its_kind() {
        let log = "unjank-recorder: serves\n\
            unjank-recorder: user 65534 (process 12) began a session for hangs\n\
            unjank-recorder: user 65534 (process 12) began a session\n\
            unjank-recorder: the connection of user 65534 (process 12) ended\n\
            unjank-recorder: user 65534 (process 12) began a session for hangs\n\
            unjank-recorder: user 65534 (process 112) began a session for hangs\n";
        assert_eq!([12, 112, 1, 2].map(|process| sessions_in(log, process)), [2, 1, 0, 0]);
    }
}
