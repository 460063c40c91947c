//! Programs that are started with our library in front of the C library's functions.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::linking::Linking;

use crate::cli::preload;
use crate::error::{Error, FailureCategory};

/// What the library is called.
pub(super) const LIBRARY: &str = "relax";
/// The variable by which the dynamic linker is told.
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// Runs a command in the place of this program, with the library and a variable for it. Returns only if that fails.
pub(super) fn run(command: &[OsString], variable: &str, value: &OsStr) -> Error {
    match prepare(command, variable, value) {
        Ok(mut prepared) => {
            let error = prepared.exec();
            Error::new(FailureCategory::User, format!("run {}", command[0].display()))
                .because(error)
        }
        Err(error) => error,
    }
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn prepare(command: &[OsString], variable: &str, value: &OsStr) -> Result<Command, Error> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        Error::new(FailureCategory::User, "run a program: none is given")
            .hint("give a command after --")
    })?;
    let library = preload::library(LIBRARY)?;
    if let Some(path) = found(program, std::env::var_os("PATH").as_deref()) {
        check(&path)?;
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut prepared = Command::new(program);
    prepared.args(arguments).env(VARIABLE, preload).env(variable, value);
    Ok(prepared)
}

/// Finds a program as `execvp` does.
fn found(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = path.unwrap_or_else(|| OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Says why a library cannot be preloaded into a program, where that can be seen.
fn check(path: &Path) -> Result<(), Error> {
    let because = match Linking::of(path) {
        Linking::Dynamic => return Ok(()),
        Linking::Static => "it is linked statically",
        Linking::OtherLoader => "it is built for another C library or processor",
        Linking::Privileged => "it runs with the rights of another user",
    };
    Err(Error::new(FailureCategory::User, format!("preload a library into {}", path.display()))
        .because(io::Error::other(because)))
}
