//! The processes of this user.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forget::RunningProgram;
use sys::process_file;

/// The most that is read of what a process says.
const MOST_BYTES: u64 = 32 << 20;

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
            let is_other = is_ours && name != env!("CARGO_PKG_NAME") && lives_in(pid, home);
            is_other.then(|| RunningProgram { pid, name: name.to_owned(), has_gtk: has_gtk(pid) })
        })
        .collect()
}

/// Whether a process has this home; one that does not say is taken for one of ours.
fn lives_in(process: u32, home: &Path) -> bool {
    let environment = process_file::read(process, "environ", MOST_BYTES).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let said = variables.find_map(|variable| variable.strip_prefix(b"HOME="));
    said.is_none_or(|said| said == home.as_os_str().as_bytes())
}

/// Whether a process has GTK loaded; `None` if it hangs.
fn has_gtk(process: u32) -> Option<bool> {
    let maps = match process_file::read(process, "maps", MOST_BYTES) {
        Err(error) if process_file::is_stuck(&error) => return None,
        maps => maps.unwrap_or_default(),
    };
    let is_gtk =
        |line: &[u8]| line.windows(9).any(|part| part == b"/libgtk-3" || part == b"/libgtk-4");
    Some(maps.split(|byte| *byte == b'\n').any(is_gtk))
}
