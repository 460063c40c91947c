//! Where the bus of this user's session looks for service files: from the environment.
#![expect(clippy::disallowed_methods, reason = "the command reads the environment")]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Returns where a session's bus looks for services; the first that has one counts.
pub(crate) fn service_directories() -> Vec<PathBuf> {
    let data = absolute("HOME")
        .map(|home| absolute("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share")));
    let shared = variable("XDG_DATA_DIRS").unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    let mut all: Vec<PathBuf> = absolute("XDG_RUNTIME_DIR").into_iter().chain(data).collect();
    all.extend(env::split_paths(&shared));
    all.push("/usr/share".into());
    all.into_iter().map(|dir| dir.join("dbus-1/services")).collect()
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn absolute(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
