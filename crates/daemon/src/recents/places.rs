//! The paths of this user's recent documents and of the writer program, from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use recents::{RecentsFiles, RememberingProgram, WriterProgram};
use settings::profile::{SettingsEnvironment, SettingsProfile};

/// The argument with which this program writes the lists of other programs once and ends.
pub const WRITER: &str = "recent-writer";

/// The variable that a private program inherits: the paths that it must not write, one per line.
pub const PRIVATE: &str = "UNJANK_PRIVATE_PATHS";

/// The paths and the privacy of this process, as its environment states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The directories and files of recent documents.
    pub places: RecentsFiles,
    /// Whether this program, or one that started it, runs in private mode.
    pub program: RememberingProgram,
}

/// The error if there is no home directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HOME is not set to an absolute path")]
pub struct NoHome;

/// Reads the environment of this process.
///
/// # Errors
///
/// There is no home directory.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn read() -> Result<Surroundings, NoHome> {
    from(|name| std::env::var_os(name))
}

fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Surroundings, NoHome> {
    // The XDG Base Directory Specification requires that relative paths are ignored.
    let directory = |name: &str| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = directory("HOME").ok_or(NoHome)?;
    let below = |name: &str, fallback: &str| directory(name).unwrap_or_else(|| home.join(fallback));
    let several = |name: &str, fallback: &str| -> Vec<PathBuf> {
        let value = variable(name).filter(|value| !value.is_empty());
        let value = value.unwrap_or_else(|| fallback.into());
        std::env::split_paths(&value).filter(|dir| dir.is_absolute()).collect()
    };
    let data = below("XDG_DATA_HOME", ".local/share");
    let config = below("XDG_CONFIG_HOME", ".config");
    let runtime = directory("XDG_RUNTIME_DIR");
    let dconf = SettingsEnvironment {
        profile: variable("DCONF_PROFILE").map(PathBuf::from),
        config_home: config.clone(),
        runtime_dir: runtime.clone().unwrap_or_else(|| home.join(".cache")),
        data_dirs: several("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
        sysconf_dir: "/etc".into(),
        mandatory_dir: "/run/dconf/user".into(),
        uid: rustix::process::getuid().as_raw(),
    };
    let databases = SettingsProfile::choose(&dconf, None).databases;
    let places = RecentsFiles {
        state: below("XDG_STATE_HOME", ".local/state").join("unjank/recents"),
        runtime: runtime.map(|dir| dir.join("unjank/recents")),
        xbel: data.join("recently-used.xbel"),
        links: data.join("RecentDocuments"),
        data,
        config,
        config_dirs: several("XDG_CONFIG_DIRS", "/etc/xdg"),
        cache: below("XDG_CACHE_HOME", ".cache"),
        home,
        temporary: directory("TMPDIR").unwrap_or_else(|| "/tmp".into()),
        dconf: databases.iter().map(|database| database.file(&dconf)).collect(),
    };
    // The mark of `unjank recent private -- CMD`, which its programs inherit.
    let is_private = variable(PRIVATE).is_some();
    let program =
        if is_private { RememberingProgram::Private } else { RememberingProgram::Ordinary };
    Ok(Surroundings { places, program })
}

/// Returns this program as the writer of the lists that other programs read.
#[must_use]
pub fn writer_program() -> WriterProgram {
    // A program file that was replaced has no path any more, but can still be run through /proc.
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    let path = path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    WriterProgram { path, arguments: vec![WRITER.into()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Surroundings, NoHome> {
        from(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn everything_is_below_home_unless_a_variable_says_otherwise() {
        let places = read(&[("HOME", "/home/ann"), ("XDG_DATA_HOME", "relative")]).unwrap().places;
        assert_eq!(places.xbel, PathBuf::from("/home/ann/.local/share/recently-used.xbel"));
        assert_eq!(places.state, PathBuf::from("/home/ann/.local/state/unjank/recents"));
        assert_eq!(places.runtime, None);
        assert_eq!(places.config_dirs, [PathBuf::from("/etc/xdg")]);
        let set =
            [("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("TMPDIR", "/t"), ("XDG_RUNTIME_DIR", "/r")];
        let places = read(&set).unwrap().places;
        assert_eq!(places.links, PathBuf::from("/d/RecentDocuments"));
        assert_eq!(places.temporary, PathBuf::from("/t"));
        assert_eq!(places.runtime, Some(PathBuf::from("/r/unjank/recents")));
        assert_eq!(read(&[]), Err(NoHome));
        assert_eq!(read(&[("HOME", "")]), Err(NoHome));
    }

    #[test]
    fn a_private_program_is_known_by_what_it_inherited() {
        let private = read(&[("HOME", "/h"), (PRIVATE, "/x")]).unwrap();
        assert_eq!(private.program, RememberingProgram::Private);
        assert_eq!(read(&[("HOME", "/h")]).unwrap().program, RememberingProgram::Ordinary);
    }
}
