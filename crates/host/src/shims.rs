//! Shims: links to a client of host commands that run the host's command of their name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Names under which our programs are something else.
pub const RESERVED_NAMES: [&str; 5] =
    ["unjank", "unjankd", "unjank-host", "dconf", "flatpak-spawn"];

/// A shim that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundShim {
    /// The command.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The sandbox's own program, which runs without a service.
    #[serde(rename = "own")]
    pub sandbox_program: Option<PathBuf>,
    /// Whether the PATH leads to the shim.
    #[serde(rename = "first")]
    pub is_first_on_path: bool,
}

/// Checks a name that a shim is to have.
///
/// # Errors
///
/// Why it can be none.
pub fn check_shim_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" | "." | ".." => Err("it is no name of a command"),
        _ if name.contains('/') => Err("a name has no slash; the directory is said with --dir"),
        _ if RESERVED_NAMES.contains(&name) => {
            Err("this program is something else under that name")
        }
        _ => Ok(()),
    }
}

/// Returns the shims in directories, by their names. `is_shim` says whether a file is one, `beside` the sandbox's own program of a
/// name, and whether the PATH leads to the shim.
pub fn find_shims(
    dirs: &[PathBuf],
    is_shim: impl Fn(&Path) -> bool,
    beside: impl Fn(&OsStr, &Path) -> (Option<PathBuf>, bool),
) -> Vec<FoundShim> {
    let mut found: Vec<FoundShim> = Vec::new();
    for dir in dirs {
        // A directory that cannot be read has nothing that could be run by its name.
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let Some(name) = path.file_name().and_then(OsStr::to_str) else { continue };
            let is_known = found.iter().any(|other| other.path == path);
            if !is_known && check_shim_name(name).is_ok() && is_shim(&path) {
                let (sandbox_program, is_first_on_path) = beside(name.as_ref(), &path);
                found.push(FoundShim {
                    name: name.to_owned(),
                    path,
                    sandbox_program,
                    is_first_on_path,
                });
            }
        }
    }
    found.sort_by(|one, other| (&one.name, &one.path).cmp(&(&other.name, &other.path)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shims_are_names_of_commands() {
        assert_eq!(check_shim_name("git"), Ok(()));
        for wrong in ["", ".", "..", "a/b", "unjank", "flatpak-spawn"] {
            assert!(check_shim_name(wrong).is_err(), "{wrong}");
        }
    }
}
