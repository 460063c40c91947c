//! The processes of this user.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use session::recents::forget::RunningProgram;

/// Returns the processes of this user that live in this home, with their names; not those of this program, in whatever
/// version, which keep nothing that was forgotten.
pub(super) fn programs(home: &Path) -> Vec<RunningProgram> {
    let user = rustix::process::getuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let is_ours = entry.metadata().ok()?.uid() == user;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let name = name.trim_end();
            let is_other = name != env!("CARGO_PKG_NAME") && lives_in(&entry.path(), home);
            (is_ours && is_other).then(|| RunningProgram {
                pid,
                name: name.to_owned(),
                has_gtk: has_gtk(&entry.path()),
            })
        })
        .collect()
}

/// Whether a process has this home; one that does not say is taken for one of ours.
fn lives_in(process: &Path, home: &Path) -> bool {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let said = variables.find_map(|variable| variable.strip_prefix(b"HOME="));
    said.is_none_or(|said| said == home.as_os_str().as_bytes())
}

fn has_gtk(process: &Path) -> bool {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let is_gtk =
        |line: &[u8]| line.windows(9).any(|part| part == b"/libgtk-3" || part == b"/libgtk-4");
    maps.split(|byte| *byte == b'\n').any(is_gtk)
}
