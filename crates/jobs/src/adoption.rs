//! Units of systemd that are known to work in the background, configured to start in the idle class and to be held while other programs wait.
//!
//! Each receives a drop-in of its own, `UNIT.d/60-unjank.conf` (systemd.unit(5)), which sets its classes and wants `unjank-run@UNIT`, a template that runs `unjank run --attach` beside it.
//! No other file is changed: [`undo`] removes these files.
//!
//! systemd runs the program of the template again and again, so the caller checks first that only the manager's user and root can change it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use report::quoting::unit_program;

use super::units::KNOWN;

/// The first line of each file of an adoption: files without it are never removed.
pub const MARK: &str =
    "# made by unjank run --adopt-units; unjank run --adopt-units --undo removes it";
/// The name of the drop-in of an adopted unit.
pub const DROP_IN: &str = "60-unjank.conf";
/// The name of the template of the units that hold another one.
pub const TEMPLATE: &str = "unjank-run@.service";

/// Why an adoption or its undoing stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptionError {
    /// The file is as it was.
    #[error("cannot {step} {path:?}")]
    File {
        /// What failed: `write`, `replace` or `remove`.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// systemd cannot read the path of the program in a unit; nothing was written.
    #[error("cannot write the path of {program:?} into a unit")]
    ProgramPath {
        /// The program.
        program: PathBuf,
    },
}

/// Returns the [known](KNOWN) background units that one of the directories `sources` has.
#[must_use]
pub fn present(sources: &[PathBuf]) -> Vec<&'static str> {
    let is_there = |unit: &&str| sources.iter().any(|source| source.join(unit).exists());
    KNOWN.into_iter().filter(is_there).collect()
}

/// Writes the template, which runs `program`, and a drop-in for each of `units` into `target`; returns the new files.
///
/// # Errors
///
/// The variant says at which file it stopped; files before it are written.
pub fn adopt(target: &Path, units: &[&str], program: &Path) -> Result<Vec<PathBuf>, AdoptionError> {
    let mut made = Vec::new();
    let text = template(program)?;
    let template = target.join(TEMPLATE);
    remove_other(&template, &text)?;
    made.extend(write(&template, &text)?);
    for unit in units {
        made.extend(write(&target.join(drop_in_path(unit)), &drop_in())?);
    }
    Ok(made)
}

/// Returns the path of the drop-in of `unit` below the directory of units.
#[must_use]
pub fn drop_in_path(unit: &str) -> PathBuf {
    Path::new(&format!("{unit}.d")).join(DROP_IN)
}

/// Returns the drop-in of each adopted unit.
#[must_use]
pub fn drop_in() -> String {
    format!(
        "\
{MARK}
[Unit]
Wants=unjank-run@%n.service

[Service]
IOSchedulingClass=idle
CPUSchedulingPolicy=idle
"
    )
}

/// Returns the template of the units that hold another unit. Such a unit ends together with the held one. It may start first and then tries again: a one-shot unit would be over before a unit that is ordered after it.
///
/// # Errors
///
/// systemd cannot read the path of `program` in a unit.
pub fn template(program: &Path) -> Result<String, AdoptionError> {
    let Some(program) = unit_program(program) else {
        return Err(AdoptionError::ProgramPath { program: program.to_owned() });
    };
    Ok(format!(
        "\
{MARK}
[Unit]
Description=Hold %i while others wait
StartLimitBurst=20

[Service]
ExecStart={program} run --attach %i
Restart=on-failure
RestartSec=100ms
"
    ))
}

/// Removes a template that an earlier adoption wrote with another text: it may run a program that others can change.
fn remove_other(path: &Path, text: &str) -> Result<(), AdoptionError> {
    let Ok(there) = fs::read_to_string(path) else { return Ok(()) };
    if there.lines().next() != Some(MARK) || there == text {
        return Ok(());
    }
    fs::remove_file(path).map_err(|source| AdoptionError::File {
        step: "replace",
        path: path.to_owned(),
        source,
    })
}

/// Writes a new file, which everybody may read and its user alone may write. A file that exists is not changed: `None`.
fn write(path: &Path, text: &str) -> Result<Option<PathBuf>, AdoptionError> {
    let failed = |source| AdoptionError::File { step: "write", path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        // The umask can only remove permissions from this mode.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o644).open(path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes()).map_err(failed)?;
            // The unit is readable also under a umask that removes that permission.
            file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
            Ok(Some(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Removes the files of an adoption, and the directories that are empty then; returns the removed files.
///
/// # Errors
///
/// The variant says at which file it stopped; files before it are removed.
pub fn undo(target: &Path) -> Result<Vec<PathBuf>, AdoptionError> {
    let mut removed = Vec::new();
    let drop_ins = KNOWN.map(|unit| target.join(drop_in_path(unit)));
    for path in drop_ins.into_iter().chain([target.join(TEMPLATE)]) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.lines().next() != Some(MARK) {
            continue;
        }
        fs::remove_file(&path).map_err(|source| AdoptionError::File {
            step: "remove",
            path: path.clone(),
            source,
        })?;
        if let Some(parent) = path.parent().filter(|parent| *parent != target) {
            // It fails if the directory has other drop-ins.
            let _ = fs::remove_dir(parent);
        }
        removed.push(path);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopt_present(target: &Path, sources: &[PathBuf]) -> Vec<PathBuf> {
        adopt(target, &present(sources), Path::new("/usr/bin/unjank")).unwrap()
    }

    #[test]
    fn a_template_of_ours_that_runs_another_program_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("man-db.service");
        OpenOptions::new().create(true).append(true).open(unit).unwrap();
        let sources = [dir.path().to_owned()];
        adopt(dir.path(), &present(&sources), Path::new("/home/me/unjank")).unwrap();
        let made = adopt_present(dir.path(), &sources);
        assert_eq!(made, [dir.path().join(TEMPLATE)]);
        let text = fs::read_to_string(&made[0]).unwrap();
        assert!(text.contains("ExecStart=\"/usr/bin/unjank\" run"), "{text}");
        for strange in ["/a\"b/unjank", "/a$b/unjank", "/a\\b/unjank", "/a\nb/unjank"] {
            assert!(template(Path::new(strange)).is_err(), "{strange:?}");
        }
        assert!(template(Path::new("/a%b/unjank")).unwrap().contains("/a%%b/unjank"));
    }

    #[test]
    fn units_that_are_there_are_adopted_and_left_again() {
        let dir = tempfile::tempdir().unwrap();
        let (target, source) = (dir.path().join("own"), dir.path().join("lib"));
        fs::create_dir_all(&source).unwrap();
        for unit in ["man-db.service", "graphical.service"] {
            OpenOptions::new().create(true).append(true).open(source.join(unit)).unwrap();
        }
        let sources = [source];
        let made = adopt_present(&target, &sources);
        let drop_in = target.join("man-db.service.d/60-unjank.conf");
        assert_eq!(made, [target.join(TEMPLATE), drop_in.clone()]);
        assert!(fs::read_to_string(&drop_in).unwrap().contains("IOSchedulingClass=idle"));
        assert!(adopt_present(&target, &sources).is_empty(), "they are adopted already");
        let others = target.join("man-db.service.d/70-other.conf");
        OpenOptions::new().create(true).append(true).open(&others).unwrap();
        assert_eq!(undo(&target).unwrap().len(), 2);
        assert!(others.exists() && !drop_in.exists());
        assert!(undo(&target).unwrap().is_empty());
    }

    #[test]
    fn what_somebody_else_wrote_is_neither_replaced_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let drop_in = dir.path().join("man-db.service.d/60-unjank.conf");
        fs::create_dir_all(drop_in.parent().unwrap()).unwrap();
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.path().join("man-db.service"))
            .unwrap();
        let mut file = OpenOptions::new().create(true).append(true).open(&drop_in).unwrap();
        file.write_all(b"mine").unwrap();
        adopt_present(dir.path(), &[dir.path().to_owned()]);
        undo(dir.path()).unwrap();
        assert_eq!(fs::read(&drop_in).unwrap(), b"mine");
    }
}
