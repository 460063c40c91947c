//! What the environment of the program says of places; nothing else here reads it.

use std::ffi::OsString;
use std::path::PathBuf;

use settings::profile::{ProfileBus, SettingsEnvironment};

/// Returns a variable that is set to something.
#[expect(clippy::disallowed_methods, reason = "the module reads the environment of its program")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the directory that a variable names; a relative path is to be ignored, says the Base Directory Specification.
fn directory(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn home() -> PathBuf {
    directory("HOME").unwrap_or_else(|| PathBuf::from("/"))
}

/// Returns where settings are, as GLib finds it.
pub(crate) fn settings() -> SettingsEnvironment {
    let runtime_dir = directory("XDG_RUNTIME_DIR").or_else(|| directory("XDG_CACHE_HOME"));
    let data = variable("XDG_DATA_DIRS").unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    SettingsEnvironment {
        profile: variable("DCONF_PROFILE").map(PathBuf::from),
        config_home: directory("XDG_CONFIG_HOME").unwrap_or_else(|| home().join(".config")),
        runtime_dir: runtime_dir.unwrap_or_else(|| home().join(".cache")),
        data_dirs: std::env::split_paths(&data).filter(|path| path.is_absolute()).collect(),
        sysconf_dir: "/etc".into(),
        mandatory_dir: "/run/dconf/user".into(),
        uid: rustix::process::getuid().as_raw(),
    }
}

/// Returns the text file in which GLib's own backend keeps the settings of sandboxed programs.
pub(crate) fn keyfile() -> PathBuf {
    let config = directory("XDG_CONFIG_HOME").unwrap_or_else(|| home().join(".config"));
    config.join("glib-2.0/settings/keyfile")
}

/// Returns the directory with the administrator's defaults and locks for that file.
pub(crate) fn keyfile_defaults() -> PathBuf {
    "/etc/glib-2.0/settings".into()
}

/// Returns where a bus listens.
pub(crate) fn bus_address(bus: ProfileBus) -> Option<Vec<u8>> {
    let (name, fallback) = match bus {
        ProfileBus::Session => (
            "DBUS_SESSION_BUS_ADDRESS",
            directory("XDG_RUNTIME_DIR").map(|directory| directory.join("bus")),
        ),
        ProfileBus::System => {
            ("DBUS_SYSTEM_BUS_ADDRESS", Some("/var/run/dbus/system_bus_socket".into()))
        }
    };
    if let Some(address) = variable(name) {
        return Some(address.into_encoded_bytes());
    }
    Some([b"unix:path=", fallback?.into_os_string().as_encoded_bytes()].concat())
}
