//! The paths of plugins and applications, from the environment of the daemon or of the command.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use catalogue::apps::place::ApplicationDirectories;
use catalogue::index::refresh::Location;
use catalogue::index::sources::IndexSources;

/// The path at which a package manager installs the system's index.
pub const SYSTEM: &str = "/var/cache/unjank";

/// The search path for programs if `PATH` is not set.
const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the directories in which this session searches for programs.
#[must_use]
pub fn program_path() -> OsString {
    variable("PATH").unwrap_or_else(|| PROGRAM_PATH.into())
}

fn paths(name: &str, fallback: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_else(|| fallback.into());
    // The XDG Base Directory Specification requires that relative paths are ignored.
    std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

fn below_home(name: &str, fallback: &str) -> Option<PathBuf> {
    let own = variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    own.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(fallback)))
}

/// Returns the directories of applications and associations.
fn places() -> ApplicationDirectories {
    let desktops = variable("XDG_CURRENT_DESKTOP").unwrap_or_default();
    // No desktop has a name that is not UTF-8.
    let desktops = desktops.as_bytes().split(|byte| *byte == b':').flat_map(str::from_utf8);
    ApplicationDirectories {
        config_home: below_home("XDG_CONFIG_HOME", ".config"),
        config_dirs: paths("XDG_CONFIG_DIRS", "/etc/xdg"),
        data_home: below_home("XDG_DATA_HOME", ".local/share"),
        data_dirs: paths("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
        desktops: desktops.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        path: paths("PATH", PROGRAM_PATH),
    }
}

/// Returns the sources of an index: plugins in `QT_PLUGIN_PATH`, then where distributions install them; texts in `locale`, or in this session's language.
#[must_use]
pub fn sources(locale: Option<&str>) -> IndexSources {
    let architecture = ["/usr/lib/", std::env::consts::ARCH, "-linux-gnu"].concat();
    let installed = [&architecture[..], "/usr/lib64", "/usr/lib"].into_iter().flat_map(|lib| {
        ["qt6/plugins", "qt5/plugins", "qt/plugins"].map(|below| PathBuf::from(lib).join(below))
    });
    let gio = [&architecture[..], "/usr/lib64", "/usr/lib"]
        .map(|lib| PathBuf::from(lib).join("gio/modules"));
    let session_locale = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(variable);
    let session_locale = session_locale.and_then(|value| value.into_string().ok());
    IndexSources {
        plugin_roots: paths("QT_PLUGIN_PATH", "").into_iter().chain(installed).collect(),
        gio_dirs: paths("GIO_EXTRA_MODULES", "").into_iter().chain(gio).collect(),
        places: places(),
        locale: locale.map(str::to_owned).or(session_locale).unwrap_or_else(|| "C".to_owned()),
    }
}

/// Returns the path of this user's index; `None` if neither `XDG_CACHE_HOME` nor `HOME` is set.
#[must_use]
pub fn location(locale: Option<&str>) -> Option<Location> {
    let cache = below_home("XDG_CACHE_HOME", ".cache")?;
    Some(Location::new(cache.join("unjank"), sources(locale), Some(SYSTEM.into())))
}
