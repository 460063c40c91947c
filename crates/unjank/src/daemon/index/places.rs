//! Where plugins and applications are, from the environment of the daemon or of the command.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use session::apps::place::Places;
use session::index::refresh::Location;
use session::index::sources::Sources;

/// Where a package manager puts the index that comes with the system.
pub const SYSTEM: &str = "/var/cache/unjank";

/// Where programs are looked for without `PATH`.
const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns where this session looks for programs.
#[must_use]
pub fn program_path() -> OsString {
    variable("PATH").unwrap_or_else(|| PROGRAM_PATH.into())
}

fn paths(name: &str, fallback: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_else(|| fallback.into());
    // A relative path is to be ignored, says the Base Directory Specification.
    std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

fn below_home(name: &str, fallback: &str) -> Option<PathBuf> {
    let own = variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    own.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(fallback)))
}

/// Returns where applications and associations are.
fn places() -> Places {
    let desktops = variable("XDG_CURRENT_DESKTOP").unwrap_or_default();
    // A name that is no UTF-8 is nobody's.
    let desktops = desktops.as_bytes().split(|byte| *byte == b':').flat_map(str::from_utf8);
    Places {
        config_home: below_home("XDG_CONFIG_HOME", ".config"),
        config_dirs: paths("XDG_CONFIG_DIRS", "/etc/xdg"),
        data_home: below_home("XDG_DATA_HOME", ".local/share"),
        data_dirs: paths("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
        desktops: desktops.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        path: paths("PATH", PROGRAM_PATH),
    }
}

/// Returns what an index is made of: plugins in `QT_PLUGIN_PATH`, then where distributions install them; texts in `locale`, or this session's.
#[must_use]
pub fn sources(locale: Option<&str>) -> Sources {
    let architecture = ["/usr/lib/", std::env::consts::ARCH, "-linux-gnu"].concat();
    let installed = [&architecture[..], "/usr/lib64", "/usr/lib"].into_iter().flat_map(|lib| {
        ["qt6/plugins", "qt5/plugins", "qt/plugins"].map(|below| PathBuf::from(lib).join(below))
    });
    let gio = [&architecture[..], "/usr/lib64", "/usr/lib"]
        .map(|lib| PathBuf::from(lib).join("gio/modules"));
    let session_locale = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(variable);
    let session_locale = session_locale.and_then(|value| value.into_string().ok());
    Sources {
        plugin_roots: paths("QT_PLUGIN_PATH", "").into_iter().chain(installed).collect(),
        gio_dirs: paths("GIO_EXTRA_MODULES", "").into_iter().chain(gio).collect(),
        places: places(),
        locale: locale.map(str::to_owned).or(session_locale).unwrap_or_else(|| "C".to_owned()),
    }
}

/// Returns where this user's index is; `None` if neither `XDG_CACHE_HOME` nor `HOME` is set.
#[must_use]
pub fn location(locale: Option<&str>) -> Option<Location> {
    let cache = below_home("XDG_CACHE_HOME", ".cache")?;
    Some(Location::new(cache.join("unjank"), sources(locale), Some(SYSTEM.into())))
}
