//! Reads the environment: the directories, and whether blame is on.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use bus::server::CallRecording;
use listing::WorkerProgram;
use settings::engine::DatabaseDirectories;

/// The directories and switches that a daemon takes from its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonEnvironment {
    /// The directories of databases.
    pub places: DatabaseDirectories,
    /// The directory of the handover lock.
    pub lock_dir: PathBuf,
    /// This program, which reads directories in processes of its own.
    pub worker: WorkerProgram,
    /// The policy of host commands.
    pub host_policy: PathBuf,
    /// The directories in which other writers of the policy are searched.
    pub host_exposure: host::policy::ExposurePlaces,
    /// The log of host commands.
    pub host_log: PathBuf,
    /// All variables.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The directory of this login session.
    pub runtime: PathBuf,
    /// Whether calls are recorded.
    pub blame: CallRecording,
    /// The socket of the service manager.
    pub notify_socket: Option<OsString>,
    /// Whether standard error goes to the journal, which adds the time itself.
    pub to_journal: bool,
}

/// The error if a directory cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find the home directory: HOME is not set, and neither is {missing}")]
pub struct EnvironmentError {
    missing: &'static str,
}

impl DaemonEnvironment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    ///
    /// Neither the directory's own variable nor `HOME` is set.
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    pub fn read() -> Result<DaemonEnvironment, EnvironmentError> {
        let mut read = DaemonEnvironment::from(|name| std::env::var_os(name), kernel_command_line)?;
        let bytes = |(name, value): (OsString, OsString)| (name.into_vec(), value.into_vec());
        read.variables = std::env::vars_os().map(bytes).collect();
        Ok(read)
    }

    /// Reads an environment through `variable`, and the kernel's command line only if necessary.
    fn from(
        variable: impl Fn(&str) -> Option<OsString>,
        command_line: impl FnOnce() -> Vec<u8>,
    ) -> Result<DaemonEnvironment, EnvironmentError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let below_home = |name: &'static str, fallback: &str| match (set(name), set("HOME")) {
            (Some(dir), _) => Ok(PathBuf::from(dir)),
            (None, Some(home)) => Ok(PathBuf::from(home).join(fallback)),
            (None, None) => Err(EnvironmentError { missing: name }),
        };
        let config = below_home("XDG_CONFIG_HOME", ".config")?;
        let state = below_home("XDG_STATE_HOME", ".local/state")?;
        // Without `HOME` only the directories with variables of their own are known.
        let home = set("HOME").map_or_else(|| config.clone(), PathBuf::from);
        let data = set("XDG_DATA_HOME").map_or_else(|| home.join(".local/share"), PathBuf::from);
        // As in GLib: readers open the flags there.
        let runtime = match set("XDG_RUNTIME_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => below_home("XDG_CACHE_HOME", ".cache")?,
        };
        // The variable counts also if it is empty.
        let blame = variable("DCONF_BLAME").is_some()
            || command_line().windows(11).any(|word| word == b"DCONF_BLAME");
        Ok(DaemonEnvironment {
            host_policy: host::policy::file(&config),
            host_exposure: host::policy::ExposurePlaces::usual(&home, &config, &data),
            host_log: host::log::file(&state),
            places: DatabaseDirectories {
                config: config.join("dconf"),
                flags: runtime.join("dconf"),
                volatile: runtime.join("dconf-service"),
                state: state.join("unjank/settings"),
            },
            lock_dir: runtime.join("unjank"),
            variables: Vec::new(),
            runtime,
            worker: super::listing::worker_program(),
            blame: if blame { CallRecording::On } else { CallRecording::Off },
            notify_socket: set("NOTIFY_SOCKET"),
            to_journal: set("JOURNAL_STREAM").is_some(),
        })
    }
}

/// Returns the part of the kernel's command line that the original reads.
fn kernel_command_line() -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/cmdline") {
        // An unreadable command line counts as one without the word.
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
    ) -> Result<DaemonEnvironment, EnvironmentError> {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        DaemonEnvironment::from(value, || command_line.as_bytes().to_vec())
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
        assert_eq!(environment.blame, CallRecording::Off);
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
        assert_eq!(read(&[home, ("DCONF_BLAME", "")], "").unwrap().blame, CallRecording::On);
        assert_eq!(read(&[home], "quiet DCONF_BLAME rw").unwrap().blame, CallRecording::On);
        assert_eq!(read(&[home], "quiet DCONF BLAME rw").unwrap().blame, CallRecording::Off);
    }
}
