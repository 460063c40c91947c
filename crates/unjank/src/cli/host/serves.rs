//! Who answers host commands now and next, because only our service knows of a policy.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::client::blocking::BlockingClient;
use bus::client::flatpak::SERVICE;
use report::text::{Charset, visible_bytes};
use serde::Serialize;
use session::keyfile::KeyFile;

use crate::cli::screen::sayln;

/// The program that knows of policies.
const OURS: &str = "unjankd";
/// A bus that has not answered after this is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who answers `org.freedesktop.Flatpak` on the session bus.
#[derive(Debug, Serialize)]
pub(super) struct Serves {
    /// The process that owns the name, if there is one.
    process: Option<u32>,
    /// Its program.
    program: Option<PathBuf>,
    /// The command line by which the bus starts the next one.
    starts: Option<String>,
    /// The file that says so.
    file: Option<PathBuf>,
    /// Whether the next call is judged by the policy; nothing where it cannot be known.
    applies: Option<bool>,
}

impl Serves {
    /// Asks the bus, and looks at the files by which it starts services; nothing is started.
    pub(super) fn find() -> Serves {
        let owner = BlockingClient::connect(None).and_then(|mut client| {
            client.set_timeout(PATIENCE);
            let Some(owner) = client.name_owner(SERVICE)? else { return Ok(None) };
            client.pid_of(&owner).map(Some)
        });
        let process = owner.as_ref().ok().copied().flatten();
        let program = process.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
        let (file, starts) = activation(&directories()).unzip();
        let applies = match (&owner, process) {
            (Err(_), _) => None,
            (_, Some(_)) => program.as_deref().map(is_ours),
            (_, None) => Some(starts.as_deref().is_some_and(starts_ours)),
        };
        Serves { process, program, starts, file, applies }
    }

    /// Says it, where a policy limits somebody.
    pub(super) fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        let starts = self.starts.as_deref().map(|line| shown(line.as_bytes()));
        let next_is_ours = self.starts.as_deref().is_some_and(starts_ours);
        match (self.applies, self.process) {
            (None, _) => {
                sayln!(
                    out,
                    "Whether it is applied is not known: no session bus says who runs host commands."
                )?;
            }
            (Some(true), Some(pid)) => {
                sayln!(out, "It is applied: {OURS} (process {pid}) runs host commands.")?;
                if !next_is_ours {
                    let next = starts.unwrap_or_else(|| "nothing".to_owned());
                    sayln!(out, "Once that has ended it is not: the bus would start {next}.")?;
                    sayln!(out, "  packaging/install --host")?;
                }
            }
            (Some(true), None) => {
                let next = starts.unwrap_or_default();
                sayln!(out, "It is applied: the next call makes the bus start {next}.")?;
            }
            (Some(false), Some(pid)) => {
                let program = self.program.as_deref().unwrap_or(Path::new("another program"));
                let program = shown(program.as_os_str().as_encoded_bytes());
                sayln!(
                    out,
                    "It is NOT applied: {program} (process {pid}) runs host commands, and knows no policy."
                )?;
                sayln!(out, "  {OURS} --names flatpak --replace")?;
            }
            (Some(false), None) => match starts {
                Some(next) => {
                    sayln!(
                        out,
                        "It is NOT applied: the next call makes the bus start {next}, which knows no policy."
                    )?;
                    sayln!(out, "  packaging/install --host")?;
                }
                None => sayln!(out, "Nobody runs host commands, and the bus would start nobody.")?,
            },
        }
        Ok(())
    }
}

fn shown(bytes: &[u8]) -> String {
    visible_bytes(bytes, Charset::Unicode).into_owned()
}

fn is_ours(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // A program that was replaced by a newer one still serves.
    name.strip_suffix(" (deleted)").unwrap_or(name) == OURS
}

/// Says whether a command line starts our service.
fn starts_ours(line: &str) -> bool {
    let program = line.split_ascii_whitespace().next().unwrap_or_default();
    is_ours(Path::new(program.trim_matches(['"', '\''])))
}

/// Returns where a session's bus looks for services, the first that has one counts.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn directories() -> Vec<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(".local/share"));
    let mut all: Vec<PathBuf> = absolute("XDG_RUNTIME_DIR").into_iter().collect();
    all.extend(absolute("XDG_DATA_HOME").or_else(home));
    let shared = std::env::var_os("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    all.extend(std::env::split_paths(
        &shared.unwrap_or_else(|| "/usr/local/share:/usr/share".into()),
    ));
    all.push("/usr/share".into());
    all.into_iter().map(|dir| dir.join("dbus-1/services")).collect()
}

/// Finds the first file that is about the name, and its command line.
fn activation(directories: &[PathBuf]) -> Option<(PathBuf, String)> {
    let about = |path: &PathBuf| {
        let file = KeyFile::parse(&std::fs::read(path).ok()?).ok()?;
        let value = |key| file.get("D-BUS Service", key).map(str::to_owned);
        (value("Name")? == SERVICE).then(|| value("Exec"))?
    };
    directories.iter().find_map(|dir| {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|it| it == "service"));
        files.sort();
        files.into_iter().find_map(|path| about(&path).map(|line| (path, line)))
    })
}
