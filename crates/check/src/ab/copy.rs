//! A temporary copy of files, and the way in which a command is led to it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::AbError;
use sys::scratch::{self, TempDir};

/// Copies of files and directories; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Copies {
    pairs: Vec<(PathBuf, PathBuf)>,
    scratch: Vec<TempDir>,
}

/// What a command is run with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommandEnvironment {
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// All of its variables.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Its directory.
    pub(super) directory: PathBuf,
}

impl Copies {
    /// Copies each of `originals`, which are absolute, beside it or where else the same file system can be written; then settles the disk.
    ///
    /// # Errors
    ///
    /// Nothing is left behind.
    pub(super) fn make(originals: &[PathBuf], temp_dir: &Path) -> Result<Copies, AbError> {
        let mut copies = Copies { pairs: Vec::new(), scratch: Vec::new() };
        for original in originals {
            let failed = |source| AbError::Copy { path: original.clone(), source };
            let scratch = beside(original, temp_dir).map_err(failed)?;
            let copy = scratch.path().join(original.file_name().unwrap_or(OsStr::new("root")));
            let copied = copy_tree(original, &copy, scratch.path());
            // What the copy left to be written must not be paid for by the first sync of the run.
            let settled = copied.and_then(|()| {
                rustix::fs::syncfs(fs::File::open(scratch.path())?).map_err(io::Error::from)
            });
            copies.scratch.push(scratch);
            settled.map_err(failed)?;
            copies.pairs.push((original.clone(), copy));
        }
        Ok(copies)
    }

    /// Returns the path in a copy that stands for `path`, if it is in one of the originals.
    fn place_of(&self, path: &Path) -> Option<PathBuf> {
        // The innermost original counts where one holds another.
        let deepest = self
            .pairs
            .iter()
            .filter(|(original, _)| path.starts_with(original))
            .max_by_key(|(original, _)| original.as_os_str().len());
        let (original, copy) = deepest?;
        let rest = path.strip_prefix(original).ok()?;
        Some(if rest.as_os_str().is_empty() { copy.clone() } else { copy.join(rest) })
    }

    /// Returns whether a file is in one of the copies.
    pub(super) fn hold(&self, file: &Path) -> bool {
        self.pairs.iter().any(|(_, copy)| file.starts_with(copy))
    }

    /// Leads a command to the copies: its directory, and every argument and variable that names a path in an original.
    pub(super) fn lead(&self, way: &CommandEnvironment) -> CommandEnvironment {
        let moved = self.place_of(&way.directory);
        let stays = moved.is_none();
        let argument = |argument: &OsString| {
            let bytes = argument.as_bytes();
            let split = bytes.iter().position(|byte| *byte == b'=' && bytes.starts_with(b"-"));
            let (option, value) = bytes.split_at(split.map_or(0, |at| at + 1));
            let path = Path::new(OsStr::from_bytes(value));
            // A relative path finds the copy by itself if the directory is in it.
            let absolute = if path.is_absolute() {
                self.place_of(path)
            } else if stays && !value.is_empty() {
                self.place_of(&normal(&way.directory.join(path)))
            } else {
                None
            };
            absolute.map_or_else(
                || argument.clone(),
                |path| OsString::from_vec([option, path.as_os_str().as_bytes()].concat()),
            )
        };
        let variable = |value: &OsString| {
            let parts = value.as_bytes().split(|byte| *byte == b':').map(|part| {
                let path = Path::new(OsStr::from_bytes(part));
                let place = path.is_absolute().then(|| self.place_of(path)).flatten();
                place.map_or_else(|| part.to_vec(), |place| place.into_os_string().into_vec())
            });
            OsString::from_vec(parts.collect::<Vec<_>>().join(&b':'))
        };
        let (program, arguments) = way.command.split_at(way.command.len().min(1));
        CommandEnvironment {
            command: program.iter().cloned().chain(arguments.iter().map(argument)).collect(),
            environment: way.environment.iter().map(|(k, v)| (k.clone(), variable(v))).collect(),
            directory: moved.unwrap_or_else(|| way.directory.clone()),
        }
    }
}

/// Takes `.` and `..` out of an absolute path by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => (),
            part => normal.push(part),
        }
    }
    normal
}

/// Makes a directory on the file system of `original`: above it, in `temp_dir`, or in it.
fn beside(original: &Path, temp_dir: &Path) -> io::Result<TempDir> {
    let device = fs::metadata(original)?.dev();
    let here = [original.parent(), Some(temp_dir), Some(original).filter(|path| path.is_dir())];
    let mut last = io::ErrorKind::NotFound.into();
    for dir in here.into_iter().flatten() {
        // Elsewhere a sync would cost something else, and the comparison would be of another disk.
        if fs::metadata(dir).is_ok_and(|metadata| metadata.dev() == device) {
            match scratch::within(dir) {
                Ok(scratch) => return Ok(scratch),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

/// Copies a file, a link or a directory with all that it holds, except `leave_out`; sockets, pipes and devices are left out.
fn copy_tree(from: &Path, to: &Path, leave_out: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    let kind = metadata.file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)
    } else if kind.is_file() {
        fs::copy(from, to).map(drop)
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.path() != leave_out {
                copy_tree(&entry.path(), &to.join(entry.file_name()), leave_out)?;
            }
        }
        // Last, for a directory that may not be written.
        fs::set_permissions(to, metadata.permissions())
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of a test, not durable ones")]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_led_to_the_copy_wherever_it_names_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        fs::create_dir_all(home.join("data/deep")).unwrap();
        fs::write(home.join("data/deep/file"), "x").unwrap();
        std::os::unix::fs::symlink("deep/file", home.join("data/link")).unwrap();
        let copies = Copies::make(std::slice::from_ref(&home), dir.path()).unwrap();
        let text = |path: &Path| path.display().to_string();
        let way = CommandEnvironment {
            command: ["program", &text(&home.join("data")), "--file=/etc/x", "data", "home/data"]
                .iter()
                .map(OsString::from)
                .chain([OsString::from(format!("--dir={}/data", text(&home)))])
                .collect(),
            environment: vec![
                ("HOME".into(), home.clone().into()),
                ("DIRS".into(), format!("/usr:{}/data:{}x", text(&home), text(&home)).into()),
            ],
            directory: dir.path().to_owned(),
        };
        let led = copies.lead(&way);
        let copy = copies.place_of(&home).unwrap();
        assert_ne!(copy, home);
        assert_eq!(fs::read(copy.join("data/link")).unwrap(), b"x");
        let wanted = [
            "program".to_owned(),
            text(&copy.join("data")),
            "--file=/etc/x".to_owned(),
            "data".to_owned(),
            text(&copy.join("data")),
            format!("--dir={}/data", text(&copy)),
        ];
        assert_eq!(led.command, wanted.map(OsString::from));
        assert_eq!(led.environment[0].1, OsString::from(copy.clone()));
        let dirs = format!("/usr:{}/data:{}x", text(&copy), text(&home));
        assert_eq!(led.environment[1].1, OsString::from(dirs), "a path ends at a slash");
        assert_eq!(led.directory, way.directory);
        // From within, relative paths need no change, and the directory is the copy's.
        let led = copies.lead(&CommandEnvironment { directory: home.join("data"), ..way.clone() });
        assert_eq!(led.directory, copy.join("data"));
        assert_eq!(led.command[4], OsString::from("home/data"));
        drop(copies);
        assert!(!copy.exists() && home.join("data/deep/file").exists());
    }

    #[test]
    fn what_is_not_there_cannot_be_copied() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = Copies::make(&[missing], dir.path()).unwrap_err();
        assert!(matches!(error, AbError::Copy { .. }));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
