//! Where this session keeps its settings, from the environment; nothing below the command reads it.

use std::ffi::OsString;
use std::path::PathBuf;

use settings::engine::DatabaseDirectories;
use settings::profile::SettingsEnvironment;

/// Reads the environment as GLib does.
pub(crate) fn read() -> SettingsEnvironment {
    let runtime_dir = directory("XDG_RUNTIME_DIR")
        .or_else(|| directory("XDG_CACHE_HOME"))
        .unwrap_or_else(|| home().join(".cache"));
    let data_dirs = directory("XDG_DATA_DIRS")
        .map_or_else(|| "/usr/local/share:/usr/share".into(), PathBuf::into_os_string);
    SettingsEnvironment {
        profile: variable("DCONF_PROFILE").map(PathBuf::from),
        config_home: config_home(),
        runtime_dir,
        data_dirs: std::env::split_paths(&data_dirs).collect(),
        sysconf_dir: "/etc".into(),
        mandatory_dir: "/run/dconf/user".into(),
        uid: rustix::process::getuid().as_raw(),
    }
}

/// Returns the directories that our own service keeps databases and history in.
pub(super) fn places(environment: &SettingsEnvironment) -> DatabaseDirectories {
    let state = directory("XDG_STATE_HOME").unwrap_or_else(|| home().join(".local/state"));
    DatabaseDirectories {
        config: environment.config_home.join("dconf"),
        flags: environment.runtime_dir.join("dconf"),
        volatile: environment.runtime_dir.join("dconf-service"),
        state: state.join("unjank/settings"),
    }
}

/// Says whether the environment names a session bus.
pub(super) fn names_a_session_bus() -> bool {
    directory("DBUS_SESSION_BUS_ADDRESS").is_some()
}

/// Returns the languages whose entries of key files count, as GLib finds them.
pub(super) fn languages() -> Vec<String> {
    let set = ["LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(directory);
    let value = set.map_or_else(|| "C".to_owned(), |value| value.to_string_lossy().into_owned());
    let mut languages: Vec<String> = value.split(':').flat_map(variants).collect();
    languages.push("C".to_owned());
    languages
}

/// Returns every locale that is `locale` with parts left out: `de_AT.UTF-8@euro`, …, `de`.
fn variants(locale: &str) -> Vec<String> {
    let (rest, modifier) = split_before(locale, '@');
    let (rest, codeset) = split_before(rest, '.');
    let (language, territory) = split_before(rest, '_');
    let mut found = Vec::new();
    for mask in (0..8).rev() {
        let part = |bit: u8, part: &'static str| (mask & bit == 0).then_some(part);
        // A part that is not there would give the same locale twice.
        if [(4, territory), (2, codeset), (1, modifier)]
            .iter()
            .any(|(bit, text)| text.is_empty() && part(*bit, "").is_none())
        {
            continue;
        }
        let mut text = language.to_owned();
        for (bit, more) in [(4, territory), (2, codeset), (1, modifier)] {
            if part(bit, "").is_none() {
                text.push_str(more);
            }
        }
        found.push(text);
    }
    found
}

fn split_before(text: &str, separator: char) -> (&str, &str) {
    text.split_at(text.find(separator).unwrap_or(text.len()))
}

fn config_home() -> PathBuf {
    directory("XDG_CONFIG_HOME").unwrap_or_else(|| home().join(".config"))
}

/// Returns `$HOME`, else the home directory that the system has for the user.
fn home() -> PathBuf {
    if let Some(home) = directory("HOME") {
        return home;
    }
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.len() > 5 && fields[2] == uid);
    user.map_or_else(|| PathBuf::from("/"), |fields| PathBuf::from(fields[5]))
}

/// An empty variable counts as not set.
fn directory(name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_stands_for_all_that_are_less_exact() {
        assert_eq!(variants("C"), ["C"]);
        assert_eq!(variants("de_AT"), ["de_AT", "de"]);
        assert_eq!(
            variants("de_AT.UTF-8@euro"),
            [
                "de_AT.UTF-8@euro",
                "de_AT.UTF-8",
                "de_AT@euro",
                "de_AT",
                "de.UTF-8@euro",
                "de.UTF-8",
                "de@euro",
                "de"
            ]
        );
    }
}
