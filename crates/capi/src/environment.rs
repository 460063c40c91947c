//! What the environment of the program says of places; nothing else here reads it.

use std::ffi::OsString;
use std::path::PathBuf;

use catalogue::apps::place::ApplicationDirectories;
use catalogue::index::sources::IndexSources;
use recents::{RecentsFiles, RememberingProgram};
use settings::profile::{SettingsEnvironment, SettingsProfile};

/// Where programs are looked for without `PATH`.
const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns a variable that is set to something.
#[expect(clippy::disallowed_methods, reason = "the library reads the environment of its program")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the directory that a variable names; a relative path is to be ignored, says the Base Directory Specification.
pub(crate) fn directory(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the directories that a variable lists.
pub(crate) fn directories(name: &str, fallback: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_else(|| fallback.into());
    std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

/// Returns the program of this name in `$PATH`.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let candidates = directories("PATH", PROGRAM_PATH).into_iter().map(|dir| dir.join(name));
    candidates.into_iter().find(|path| path.is_file())
}

/// Returns the socket at which the daemon of the session serves listings.
pub(crate) fn listing_socket() -> Option<PathBuf> {
    Some(directory("XDG_RUNTIME_DIR")?.join("unjank/listing.sock"))
}

/// Returns the locale of the order of names.
pub(crate) fn collation_locale() -> String {
    let found = ["LC_ALL", "LC_COLLATE", "LANG"].into_iter().find_map(variable);
    found.and_then(|value| value.into_string().ok()).unwrap_or_default()
}

/// Returns the directories with the MIME database, the user's first.
pub(crate) fn mime_directories() -> Vec<PathBuf> {
    let home = directory("HOME").map(|home| home.join(".local/share"));
    let own = directory("XDG_DATA_HOME").or(home);
    let all = directories("XDG_DATA_DIRS", "/usr/local/share:/usr/share");
    own.into_iter().chain(all).map(|data| data.join("mime")).collect()
}

/// Returns the home directory.
pub(crate) fn home() -> PathBuf {
    directory("HOME").unwrap_or_else(|| PathBuf::from("/"))
}

/// Returns where settings are, as GLib finds it.
pub(crate) fn settings() -> SettingsEnvironment {
    SettingsEnvironment::from_variables(variable, rustix::process::getuid().as_raw())
}

/// Returns where the session bus listens.
pub(crate) fn session_bus() -> Option<Vec<u8>> {
    if let Some(address) = variable("DBUS_SESSION_BUS_ADDRESS") {
        return Some(address.into_encoded_bytes());
    }
    let path = directory("XDG_RUNTIME_DIR")?.join("bus");
    Some([b"unix:path=", path.into_os_string().as_encoded_bytes()].concat())
}

/// Returns where recent documents are.
pub(crate) fn recents() -> RecentsFiles {
    let environment = settings();
    let databases = SettingsProfile::choose(&environment, None).databases;
    RecentsFiles {
        dconf: databases.iter().map(|database| database.file(&environment)).collect(),
        ..RecentsFiles::from_variables(variable)
    }
}

/// Returns whether documents of this program may be remembered: `unjank recent private` marks those whose may not.
pub(crate) fn remembering() -> RememberingProgram {
    match variable("UNJANK_PRIVATE_PATHS") {
        Some(_) => RememberingProgram::Private,
        None => RememberingProgram::Ordinary,
    }
}

/// Returns what an index is made of, as the daemon and the command have it: all of them share one file.
pub(crate) fn index_sources(locale: Option<&str>) -> IndexSources {
    let architecture = ["/usr/lib/", std::env::consts::ARCH, "-linux-gnu"].concat();
    let libraries = || [&architecture[..], "/usr/lib64", "/usr/lib"].into_iter().map(PathBuf::from);
    let installed = libraries()
        .flat_map(|lib| ["qt6/plugins", "qt5/plugins", "qt/plugins"].map(|below| lib.join(below)));
    let gio = libraries().map(|lib| lib.join("gio/modules"));
    let session = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(variable);
    let session = session.and_then(|value| value.into_string().ok());
    let desktops = variable("XDG_CURRENT_DESKTOP").unwrap_or_default();
    let desktops = desktops.as_encoded_bytes().split(|byte| *byte == b':').flat_map(str::from_utf8);
    let has_home = directory("HOME").is_some();
    let own = |name, fallback| directory(name).or_else(|| has_home.then(|| home().join(fallback)));
    IndexSources {
        plugin_roots: directories("QT_PLUGIN_PATH", "").into_iter().chain(installed).collect(),
        gio_dirs: directories("GIO_EXTRA_MODULES", "").into_iter().chain(gio).collect(),
        places: ApplicationDirectories {
            config_home: own("XDG_CONFIG_HOME", ".config"),
            config_dirs: directories("XDG_CONFIG_DIRS", "/etc/xdg"),
            data_home: own("XDG_DATA_HOME", ".local/share"),
            data_dirs: directories("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
            desktops: desktops.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            path: directories("PATH", PROGRAM_PATH),
        },
        locale: locale.map(str::to_owned).or(session).unwrap_or_else(|| "C".to_owned()),
    }
}

/// Returns the directory with the user's index, if there is a home for it.
pub(crate) fn index_directory() -> Option<PathBuf> {
    let cache = directory("HOME").map(|home| home.join(".cache"));
    Some(directory("XDG_CACHE_HOME").or(cache)?.join("unjank"))
}
