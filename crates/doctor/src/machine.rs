//! The caller's description of the machine and the session to examine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use catalogue::index::sources::IndexSources;

/// The session's directories and addresses, as the environment gives them.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    pub config_home: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`; GLib falls back to `$XDG_CACHE_HOME`.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_CACHE_HOME`, or `~/.cache`.
    pub cache_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or `~/.local/state`.
    pub state_home: Option<PathBuf>,
    /// `$XDG_DATA_HOME`, or `~/.local/share`.
    pub data_home: Option<PathBuf>,
    /// `$TMPDIR`, or `/tmp`.
    pub temp_dir: PathBuf,
    /// `$XDG_DATA_DIRS`, or its default; the first one wins.
    pub data_dirs: Vec<PathBuf>,
    /// `$DCONF_PROFILE`.
    pub dconf_profile: Option<OsString>,
    /// `$DBUS_SESSION_BUS_ADDRESS`, or the socket in the runtime directory if there is one.
    pub bus_address: Option<String>,
    /// What tells this session from others, where it is set: `$DISPLAY`, `$WAYLAND_DISPLAY`, `$XAUTHORITY`,
    /// `$SSH_AUTH_SOCK`, with their values.
    pub session_variables: Vec<(String, String)>,
    /// The directory of the running program, beside which `unjankd` is looked for.
    pub program_dir: Option<PathBuf>,
    /// Where plugins, applications and associations are.
    pub catalogue: IndexSources,
    /// How programs of this session wait for their lists of recent documents.
    pub recents: RecentsSyncMode,
    /// The user's number.
    pub uid: u32,
}

/// How programs wait for the disk because of lists of recent documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecentsSyncMode {
    /// As their authors wrote them.
    #[default]
    Usual,
    /// Those of the next login do not wait.
    RelaxedNext,
    /// They do not: this library is in front of them.
    Relaxed(PathBuf),
}

/// What `unjank recent relax --session on` writes below the directory of settings.
const RELAXED: &str = "environment.d/60-unjank-relax.conf";

impl Machine {
    /// Describes a session by its environment: `value` returns that of a variable. What is not in the environment is left empty.
    #[must_use]
    pub fn of_variables(value: &dyn Fn(&str) -> Option<OsString>) -> Machine {
        let variable = |name: &str| value(name).filter(|value| !value.is_empty());
        let absolute =
            |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let runtime_dir = absolute("XDG_RUNTIME_DIR");
        let data_dirs =
            variable("XDG_DATA_DIRS").unwrap_or(OsString::from("/usr/local/share:/usr/share"));
        // Without the variable, libdbus and systemd agree on this socket.
        let socket = runtime_dir.as_ref().map(|dir| dir.join("bus")).filter(|path| path.exists());
        let preloaded = variable("LD_PRELOAD").filter(|_| variable("UNJANK_RELAX_DIR").is_some());
        let config_home = absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config"));
        let is_next = config_home.as_ref().is_some_and(|config| config.join(RELAXED).exists());
        let recents = match preloaded.as_deref().and_then(relax_library) {
            Some(library) => RecentsSyncMode::Relaxed(library),
            None if is_next => RecentsSyncMode::RelaxedNext,
            None => RecentsSyncMode::Usual,
        };
        let bus_address = variable("DBUS_SESSION_BUS_ADDRESS")
            .and_then(|address| address.into_string().ok())
            .or_else(|| socket.map(|path| format!("unix:path={}", path.display())));
        Machine {
            config_home,
            recents,
            cache_home: absolute("XDG_CACHE_HOME").or_else(|| below_home(".cache")),
            state_home: absolute("XDG_STATE_HOME").or_else(|| below_home(".local/state")),
            data_home: absolute("XDG_DATA_HOME").or_else(|| below_home(".local/share")),
            temp_dir: absolute("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")),
            data_dirs: std::env::split_paths(&data_dirs)
                .filter(|path| path.is_absolute())
                .collect(),
            dconf_profile: variable("DCONF_PROFILE"),
            session_variables: ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SSH_AUTH_SOCK"]
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), variable(name)?.into_string().ok()?)))
                .collect(),
            home,
            runtime_dir,
            bus_address,
            ..Machine::default()
        }
    }

    /// Returns whether `unjank setup` finds the programs that it needs: an installation, or a build.
    #[must_use]
    pub fn can_set_up(&self) -> bool {
        let program = self.program_dir.as_ref().map(|dir| dir.join("unjank"));
        program.is_some_and(|program| setup::plan::ProgramSource::beside(&program).is_ok())
    }

    /// Returns `path` as its user writes it: `~/.config`.
    #[must_use]
    pub fn short(&self, path: &Path) -> String {
        match self.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }
}

/// Finds the relax library among those that are put in front of programs.
fn relax_library(preloaded: &OsStr) -> Option<PathBuf> {
    let names = preloaded.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let paths = names.map(|name| Path::new(OsStr::from_bytes(name)));
    let mut ours = paths.filter(|path| {
        path.file_name()
            .is_some_and(|name| name == "libunjank_relax.so" || name == "libunjank-relax.so")
    });
    ours.find(|path| path.exists()).map(Path::to_owned)
}

/// Returns `path` or the nearest directory above it that exists.
#[must_use]
pub fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|ancestor| ancestor.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_home_is_written_with_a_tilde() {
        let machine = Machine { home: Some("/home/ana".into()), ..Machine::default() };
        assert_eq!(machine.short(Path::new("/home/ana/.config")), "~/.config");
        assert_eq!(machine.short(Path::new("/home/ana")), "~");
        assert_eq!(machine.short(Path::new("/home/anabel")), "/home/anabel");
    }

    #[test]
    fn the_nearest_existing_directory_is_found() {
        assert_eq!(existing(Path::new("/proc/no/such")), Some(Path::new("/proc")));
    }
}
