//! Which paths other users could have laid out or can change.
//!
//! A program may be started again and again for a user if nobody else can change what is run then. Whoever may write to a
//! directory may put another program in the place of the one that is there, so each directory on the way counts.

mod links;

pub(crate) use links::{check_link, check_path};

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// For whom a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramOwner {
    /// The user; 0 is root, who trusts nobody else.
    pub user: u32,
    /// The user's own group, whose members may write what is the user's; of root's there are none.
    pub group: u32,
}

/// Why a program is not to be started: somebody else can change it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// What is on the way belongs to another user.
    #[error("{path:?} belongs to user {owner}")]
    BelongsToAnother {
        /// The program or a directory above it.
        path: PathBuf,
        /// Who may write there.
        owner: u32,
    },
    /// What is on the way may be written by others.
    #[error("{path:?} may be written by others (mode {mode:04o})")]
    WritableByOthers {
        /// The program or a directory above it.
        path: PathBuf,
        /// Its permissions. Where there is an access list, those of the group are the most that it gives.
        mode: u32,
    },
    /// It cannot be found out.
    #[error("cannot examine {path:?}")]
    Unknown {
        /// The program or a directory above it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Returns the program at `path` without symbolic links, if nobody but `runner` and root can change it or put another in its place.
///
/// # Errors
///
/// The variant says what others can change.
pub fn check(path: &Path, runner: ProgramOwner) -> Result<PathBuf, Untrusted> {
    let unknown = |path: &Path| {
        let path = path.to_owned();
        move |source| Untrusted::Unknown { path, source }
    };
    let program = path.canonicalize().map_err(unknown(path))?;
    for part in program.ancestors() {
        let about = fs::symlink_metadata(part).map_err(unknown(part))?;
        let what =
            PathComponent { owner: about.uid(), group: about.gid(), mode: about.mode() & 0o7777 };
        what.check(part, runner)?;
    }
    Ok(program)
}

/// What is known of a program or a directory.
struct PathComponent {
    owner: u32,
    group: u32,
    mode: u32,
}

impl ProgramOwner {
    /// Root, who trusts nobody else.
    pub const ROOT: ProgramOwner = ProgramOwner { user: 0, group: 0 };
}

impl PathComponent {
    fn check(&self, path: &Path, runner: ProgramOwner) -> Result<(), Untrusted> {
        let path = || path.to_owned();
        if self.owner != 0 && self.owner != runner.user {
            return Err(Untrusted::BelongsToAnother { path: path(), owner: self.owner });
        }
        let is_own_group = runner.user != 0 && self.group == runner.group;
        let others = if is_own_group { 0o002 } else { 0o022 };
        if self.mode & others != 0 {
            return Err(Untrusted::WritableByOthers { path: path(), mode: self.mode });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: ProgramOwner = ProgramOwner { user: 1000, group: 1000 };

    #[test]
    fn root_runs_only_what_root_alone_can_change() {
        for (owner, group, mode, wanted) in [
            (0, 0, 0o755, true),
            (0, 0, 0o4755, true),
            (1000, 1000, 0o755, false),
            (0, 0, 0o757, false),
            (0, 1000, 0o775, false),
            (0, 0, 0o775, false),
            // Others can put files beside it, and a directory for one that goes.
            (0, 0, 0o1777, false),
        ] {
            let part = PathComponent { owner, group, mode };
            assert_eq!(
                part.check(Path::new("/x"), ProgramOwner::ROOT).is_ok(),
                wanted,
                "{owner} {group} {mode:o}"
            );
        }
    }

    #[test]
    fn a_user_runs_only_what_is_the_users_own_or_roots() {
        for (owner, group, mode, wanted) in [
            (0, 0, 0o755, true),
            (1000, 1000, 0o775, true),
            (1000, 100, 0o775, false),
            (1000, 1000, 0o777, false),
            (1001, 1000, 0o755, false),
        ] {
            let part = PathComponent { owner, group, mode };
            assert_eq!(
                part.check(Path::new("/x"), USER).is_ok(),
                wanted,
                "{owner} {group} {mode:o}"
            );
        }
    }

    #[test]
    fn every_directory_on_the_way_counts_and_links_do_not_hide_it() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let open = dir.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(open.join("closed")).unwrap();
        let program = open.join("closed/program");
        fs::OpenOptions::new().create(true).append(true).open(&program).unwrap();
        symlink(&program, dir.join("link")).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let runner = ProgramOwner { user: own, group: rustix::process::getegid().as_raw() };
        for path in [program, dir.join("link")] {
            let error = check(&path, runner).unwrap_err();
            assert!(
                matches!(&error, Untrusted::WritableByOthers { path, .. } if *path == open),
                "{error}"
            );
        }
        assert!(matches!(check(&dir.join("none"), runner), Err(Untrusted::Unknown { .. })));
    }
}
