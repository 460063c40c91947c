//! What the environment says: where things are, and whether blame is on.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use bus::server::Blame;
use session::listing::WorkerProgram;
use session::settings::engine::Places;

/// The places and switches that a daemon takes from its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Where databases are.
    pub places: Places,
    /// The directory of the handover lock.
    pub lock_dir: PathBuf,
    /// This program, which reads directories in processes of its own.
    pub worker: WorkerProgram,
    /// The policy of host commands.
    pub host_policy: PathBuf,
    /// The log of host commands.
    pub host_log: PathBuf,
    /// All variables.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The directory of this login, for what ends with it.
    pub runtime: PathBuf,
    /// Whether calls are recorded.
    pub blame: Blame,
    /// Where the service manager listens.
    pub notify_socket: Option<OsString>,
    /// Whether standard error goes to the journal, which knows the time itself.
    pub to_journal: bool,
}

/// Why the environment does not say where things are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find the home directory: HOME is not set, and neither is {missing}")]
pub struct EnvironmentError {
    missing: &'static str,
}

impl Environment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    ///
    /// A directory is named neither by its own variable nor by `HOME`.
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    pub fn read() -> Result<Environment, EnvironmentError> {
        let mut read = Environment::from(|name| std::env::var_os(name), kernel_command_line)?;
        let bytes = |(name, value): (OsString, OsString)| (name.into_vec(), value.into_vec());
        read.variables = std::env::vars_os().map(bytes).collect();
        Ok(read)
    }

    /// Reads an environment through `variable`; asks for the kernel's command line only if it must.
    fn from(
        variable: impl Fn(&str) -> Option<OsString>,
        command_line: impl FnOnce() -> Vec<u8>,
    ) -> Result<Environment, EnvironmentError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let below_home = |name: &'static str, fallback: &str| match (set(name), set("HOME")) {
            (Some(dir), _) => Ok(PathBuf::from(dir)),
            (None, Some(home)) => Ok(PathBuf::from(home).join(fallback)),
            (None, None) => Err(EnvironmentError { missing: name }),
        };
        let config = below_home("XDG_CONFIG_HOME", ".config")?;
        let state = below_home("XDG_STATE_HOME", ".local/state")?;
        // As GLib does: readers look for the flags there.
        let runtime = match set("XDG_RUNTIME_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => below_home("XDG_CACHE_HOME", ".cache")?,
        };
        // Set is enough, even to nothing.
        let blame = variable("DCONF_BLAME").is_some()
            || command_line().windows(11).any(|word| word == b"DCONF_BLAME");
        Ok(Environment {
            host_policy: session::host::policy::file(&config),
            host_log: session::host::log::file(&state),
            places: Places {
                config: config.join("dconf"),
                flags: runtime.join("dconf"),
                volatile: runtime.join("dconf-service"),
                state: state.join("unjank/settings"),
            },
            lock_dir: runtime.join("unjank"),
            variables: Vec::new(),
            runtime,
            worker: super::listing::worker_program(),
            blame: if blame { Blame::On } else { Blame::Off },
            notify_socket: set("NOTIFY_SOCKET"),
            to_journal: set("JOURNAL_STREAM").is_some(),
        })
    }
}

/// Returns the part of the kernel's command line that the original looks at.
fn kernel_command_line() -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/cmdline") {
        // What could not be read does not hold the word.
        let _ = file.take(1023).read_to_end(&mut start);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        variables: &[(&str, &str)],
        command_line: &str,
    ) -> Result<Environment, EnvironmentError> {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        Environment::from(value, || command_line.as_bytes().to_vec())
    }

    #[test]
    fn directories_default_to_those_below_home() {
        let environment = read(&[("HOME", "/home/ann"), ("XDG_CONFIG_HOME", "")], "").unwrap();
        assert_eq!(environment.places.config, PathBuf::from("/home/ann/.config/dconf"));
        assert_eq!(environment.places.flags, PathBuf::from("/home/ann/.cache/dconf"));
        assert_eq!(
            environment.places.state,
            PathBuf::from("/home/ann/.local/state/unjank/settings")
        );
        assert_eq!(environment.blame, Blame::Off);
    }

    #[test]
    fn their_own_variables_come_first() {
        let environment = read(
            &[
                ("XDG_CONFIG_HOME", "/c"),
                ("XDG_RUNTIME_DIR", "/r"),
                ("XDG_STATE_HOME", "/s"),
                ("NOTIFY_SOCKET", "@n"),
            ],
            "",
        )
        .unwrap();
        assert_eq!(environment.places.config, PathBuf::from("/c/dconf"));
        assert_eq!(environment.places.volatile, PathBuf::from("/r/dconf-service"));
        assert_eq!(environment.lock_dir, PathBuf::from("/r/unjank"));
        assert_eq!(environment.notify_socket, Some("@n".into()));
    }

    #[test]
    fn without_a_home_the_missing_directory_is_named() {
        let error = read(&[("XDG_CONFIG_HOME", "/c")], "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot find the home directory: HOME is not set, and neither is XDG_STATE_HOME"
        );
    }

    #[test]
    fn blame_is_on_by_an_empty_variable_or_by_the_kernel_command_line() {
        let home = ("HOME", "/h");
        assert_eq!(read(&[home, ("DCONF_BLAME", "")], "").unwrap().blame, Blame::On);
        assert_eq!(read(&[home], "quiet DCONF_BLAME rw").unwrap().blame, Blame::On);
        assert_eq!(read(&[home], "quiet DCONF BLAME rw").unwrap().blame, Blame::Off);
    }
}
