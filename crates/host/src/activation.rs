//! The service files by which a session's bus starts programs.

use std::path::Path;

pub use xdg::bus_service::find;

/// Says whether a program is our daemon.
#[must_use]
pub fn is_ours(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // A program that was replaced by a newer one still serves.
    name.strip_suffix(" (deleted)").unwrap_or(name) == "unjankd"
}

/// Says whether a command line starts our daemon.
#[must_use]
pub fn starts_ours(line: &str) -> bool {
    let program = line.split_ascii_whitespace().next().unwrap_or_default();
    is_ours(Path::new(program.trim_matches(['"', '\''])))
}
