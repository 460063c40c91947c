//! Temporary files whose writer died.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::resolve;
use crate::disk::Disk;

/// Stands between the target's name and the token in the name of a temporary file of ours.
pub(super) const MARK: &str = ".unjank-";

/// Removes what dead writers of `path` left beside it, and returns what was removed.
///
/// Ours, `.NAME.unjank-TOKEN`, go when nobody holds their lock: a lock ends with the process that holds it, which a
/// process number in the name would not show across PID namespaces, reboots and reused numbers. Those of
/// dconf-service, `NAME.XXXXXX` with six capitals and digits of which at least one is of each kind (`user.backup`
/// is a person's file), carry no lock: they go when their contents are older than `older_than_ns` (nanoseconds
/// since 1970). The caller owns the database's bus name and gives the time when it got it, so that no living
/// dconf-service can be writing one of them.
///
/// # Errors
///
/// The first failure of the disk; what could be removed was removed. No directory means that nothing is stale.
pub fn remove_stale(disk: &dyn Disk, path: &Path, older_than_ns: i128) -> io::Result<Vec<PathBuf>> {
    let target = resolve::target(disk, path)?;
    let dir = resolve::directory_of(&target);
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut removed = Vec::new();
    let mut failed = None;
    for candidate in names {
        if !is_temporary(name, &candidate) {
            continue;
        }
        let candidate = dir.join(candidate);
        match remove_one(disk, &candidate, older_than_ns) {
            Ok(true) => removed.push(candidate),
            Ok(false) => {}
            // Finished or removed by its own writer meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// Removes what dead writers of any file left in a directory, as [`remove_stale`] does for one file of it; only our own
/// temporary files are known so.
///
/// # Errors
///
/// As [`remove_stale`].
pub fn remove_all_stale(disk: &dyn Disk, dir: &Path, older_than_ns: i128) -> io::Result<()> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut failed = None;
    for candidate in names.iter().filter(|name| is_ours(name.as_bytes())) {
        match remove_one(disk, &dir.join(candidate), older_than_ns) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Tells whether a name is that of a temporary file of ours, whatever it is for.
fn is_ours(candidate: &[u8]) -> bool {
    let at = candidate.len().checked_sub(MARK.len() + TOKEN_LEN);
    candidate.first() == Some(&b'.')
        && at.is_some_and(|at| at > 1 && is_ending_of_ours(&candidate[at..]))
}

/// Tells whether bytes are the mark and a token.
fn is_ending_of_ours(ending: &[u8]) -> bool {
    ending.strip_prefix(MARK.as_bytes()).is_some_and(|token| {
        token.len() == TOKEN_LEN
            && token.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
    })
}

/// The letters of a token.
const TOKEN_LEN: usize = 16;

/// Removes one temporary file if it is old and nobody's.
fn remove_one(disk: &dyn Disk, path: &Path, older_than_ns: i128) -> io::Result<bool> {
    // Also for ours: a writer that has made its file and not locked it yet is younger than we are.
    if disk.stat(path)?.mtime_ns >= older_than_ns {
        return Ok(false);
    }
    disk.remove_abandoned(path)
}

/// Tells whether `candidate` is a name of a temporary file for `name`.
fn is_temporary(name: &OsStr, candidate: &OsStr) -> bool {
    let (name, candidate) = (name.as_bytes(), candidate.as_bytes());
    let ending = candidate.strip_prefix(b".").and_then(|rest| rest.strip_prefix(name));
    if let Some(ending) = ending.filter(|ending| ending.starts_with(MARK.as_bytes())) {
        return is_ending_of_ours(ending);
    }
    let theirs = candidate.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"."));
    theirs.is_some_and(|token| {
        token.len() == 6
            && token.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
            && token.iter().any(u8::is_ascii_digit)
            && token.iter().any(u8::is_ascii_uppercase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(candidate: &str) -> bool {
        is_temporary(OsStr::new("user"), OsStr::new(candidate))
    }

    #[test]
    fn a_persons_backup_is_no_temporary_file() {
        for name in
            ["user", "user.backup", "user.BACKUP", "user.202611", "user~0", "user.txt", "user.A1"]
        {
            assert!(!temporary(name), "{name}");
        }
        assert!(!temporary("user2.A1B2C3"), "of another database");
        assert!(!temporary(".user.unjank-0123456789abcdeg"));
    }

    #[test]
    fn both_services_temporary_files_are_known_by_name() {
        assert!(temporary("user.5TNF9Z"));
        assert!(temporary(".user.unjank-0123456789abcdef"));
        assert!(is_ours(b".user.1.17.unjank-0123456789abcdef"));
        for name in [".unjank-0123456789abcdef", "user.unjank-0123456789abcdef", ".a.unjank-0123"] {
            assert!(!is_ours(name.as_bytes()), "{name}");
        }
    }
}
