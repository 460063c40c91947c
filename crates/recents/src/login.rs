//! The unit of the user's systemd that starts the daemon with every login while the lists are in memory.
//!
//! The daemon restores the lists after a crash, and copies them to the disk when the session ends.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use report::quoting::unit_program;
use store::publish::publish;

use super::Recents;

/// The name of the unit.
pub const UNIT: &str = "unjank-recents.service";

/// Why the unit could not be installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The file is as it was, or as its publisher says.
    #[error("cannot {step} {path:?}")]
    File {
        /// What failed: `write` or `remove`.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// systemd cannot read the path of the daemon in a unit; nothing was written.
    #[error("cannot write the path of {daemon:?} into a unit")]
    DaemonPath {
        /// The daemon.
        daemon: PathBuf,
    },
}

/// What an installation has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginService {
    /// No systemd runs services of this user; nothing was written.
    NoManager,
    /// The daemon is started now and with every login.
    Started,
    /// The unit is installed, but systemd did not start it now.
    StartsWithLogin,
}

/// Returns the unit, and the link by which it starts, if systemd runs this user's services.
fn unit(recents: &Recents) -> Option<(PathBuf, PathBuf)> {
    let runtime = recents.places().runtime.as_ref()?.ancestors().nth(2)?;
    let dir = recents.places().config.join("systemd/user");
    let link = dir.join("default.target.wants").join(UNIT);
    runtime.join("systemd").is_dir().then(|| (dir.join(UNIT), link))
}

/// Installs the unit, which runs `daemon`, and starts it.
///
/// # Errors
///
/// The variant says at which file it stopped.
pub fn install(recents: &Recents, daemon: &Path) -> Result<LoginService, LoginError> {
    let Some((unit, link)) = unit(recents) else { return Ok(LoginService::NoManager) };
    let fail = |source: Box<dyn std::error::Error + Send + Sync>| LoginError::File {
        step: "write",
        path: unit.clone(),
        source,
    };
    let disk = recents.disk();
    let text = unit_text(daemon)?;
    publish(disk, &unit, text.as_bytes()).map_err(|error| fail(error.into()))?;
    let wanted = link.parent().unwrap_or(Path::new("/"));
    store::publish::make_directory(disk, wanted).map_err(|error| fail(error.into()))?;
    match disk.symlink(&Path::new("..").join(UNIT), &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(fail(error.into()));
        }
        _ => {}
    }
    let is_started = systemctl(&["daemon-reload"]) && systemctl(&["start", "--no-block", UNIT]);
    Ok(if is_started { LoginService::Started } else { LoginService::StartsWithLogin })
}

/// Stops the unit and removes it.
///
/// # Errors
///
/// The variant says which file is still there.
pub fn remove(recents: &Recents) -> Result<(), LoginError> {
    let Some((unit, link)) = unit(recents) else { return Ok(()) };
    if recents.disk().stat(&unit).is_err() {
        return Ok(());
    }
    systemctl(&["stop", "--no-block", UNIT]);
    for path in [&link, &unit] {
        match recents.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LoginError::File {
                    step: "remove",
                    path: path.clone(),
                    source: error.into(),
                });
            }
            _ => {}
        }
    }
    systemctl(&["daemon-reload"]);
    Ok(())
}

/// Returns the text of the unit (systemd.service(5)).
fn unit_text(daemon: &Path) -> Result<String, LoginError> {
    let program =
        unit_program(daemon).ok_or_else(|| LoginError::DaemonPath { daemon: daemon.to_owned() })?;
    Ok(format!(
        "# Written by `unjank recent volatile on`; with `off` it is removed.\n\
         [Unit]\n\
         Description=Recent documents in memory, with copies on the disk\n\n\
         [Service]\n\
         ExecStart={program} --names session --replace --idle-exit 0\n\
         Restart=on-failure\n\
         TimeoutStopSec=20s\n\n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// Runs `systemctl --user`; returns whether it succeeded.
fn systemctl(arguments: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
