//! `unjank run --adopt-units`: units of systemd that are known to work in the background start in the idle class from now on, and are held while others wait.
//!
//! Each gets a drop-in of its own, `UNIT.d/60-unjank.conf` (systemd.unit(5)), which sets its classes and wants `unjank-run@UNIT`, a template that runs `unjank run --attach` beside it.
//! Nothing else is touched: undoing it removes these files.
//!
//! The template has the manager run this program again and again: it is refused where somebody else than the manager's user and root can change it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use session::jobs::trust::{self, Runner};
use session::jobs::units::{KNOWN, Manager};

use crate::cli::catalogue::shown_path;
use crate::cli::screen;
use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

/// The first line of what we write: nothing without it is removed.
const OURS: &str = "# made by unjank run --adopt-units; unjank run --adopt-units --undo removes it";
const DROP_IN: &str = "60-unjank.conf";
const TEMPLATE: &str = "unjank-run@.service";

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Adopt them.
    Adopt,
    /// Leave them as they were.
    Undo,
}

/// Adopts the units of this user's manager; as root those of the system's.
pub(super) fn run(way: Way) -> Result<Verdict, Error> {
    let is_root = rustix::process::geteuid().is_root();
    let (target, sources) = if is_root {
        (PathBuf::from("/etc/systemd/system"), Manager::System.places(None))
    } else {
        let configuration = configuration()?;
        (configuration.join("systemd/user"), Manager::User.places(Some(&configuration)))
    };
    let mut out = screen::stdout();
    let done = match way {
        Way::Adopt => adopt(&target, &sources, trusted)?,
        Way::Undo => undo(&target)?,
    };
    for path in &done {
        let what = if way == Way::Adopt { "made" } else { "removed" };
        sayln!(out, "{what} {}", shown_path(path))?;
    }
    if done.is_empty() {
        let nothing = match way {
            Way::Adopt => "No unit that is known to work in the background is left to adopt.",
            Way::Undo => "No unit was adopted.",
        };
        sayln!(out, "{nothing}")?;
    } else {
        let user = if is_root { "" } else { "--user " };
        sayln!(out, "It takes effect after: systemctl {user}daemon-reload")?;
    }
    Ok(Verdict::Yes)
}

#[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
fn configuration() -> Result<PathBuf, Error> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config"))).ok_or_else(|| {
        Error::new(Kind::Config, "find the user's units")
            .because("there is no home directory")
            .hint("set HOME")
    })
}

/// Returns this program, if nobody but this user and root can change it.
fn trusted() -> Result<PathBuf, Error> {
    let program = env::current_exe()
        .map_err(|error| Error::new(Kind::Internal, "find this program").because(error))?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let runner = Runner { user: user.as_raw(), group: group.as_raw() };
    trust::check(&program, runner).map_err(|error| {
        let what = format!("have systemd run {}", shown_path(&program));
        let hint = if user.is_root() {
            "install it for every user: packaging/install --prefix /usr/local"
        } else {
            "take the write permission from others, or move the program"
        };
        Error::new(Kind::Config, what).because(error).hint(hint)
    })
}

fn adopt(
    target: &Path,
    sources: &[PathBuf],
    program: impl Fn() -> Result<PathBuf, Error>,
) -> Result<Vec<PathBuf>, Error> {
    let found: Vec<&str> = KNOWN
        .into_iter()
        .filter(|unit| sources.iter().any(|source| source.join(unit).exists()))
        .collect();
    let mut made = Vec::new();
    if found.is_empty() {
        return Ok(made);
    }
    let text = template_text(&program()?)?;
    let template = target.join(TEMPLATE);
    remove_other(&template, &text)?;
    made.extend(write(&template, &text)?);
    for unit in found {
        made.extend(write(&target.join(format!("{unit}.d")).join(DROP_IN), DROP_IN_TEXT)?);
    }
    Ok(made)
}

/// What a unit gets.
const DROP_IN_TEXT: &str = "\
[Unit]
Wants=unjank-run@%n.service

[Service]
IOSchedulingClass=idle
CPUSchedulingPolicy=idle
";

/// Returns the unit that holds another one. It ends with it by itself; it may start first, and then tries again: a unit that runs once would be over before one that is ordered after it.
fn template_text(program: &Path) -> Result<String, Error> {
    // systemd takes some characters for quotes, variables and specifiers (systemd.service(5), systemd.unit(5)).
    let program = program.to_str().filter(|path| !path.contains(['"', '\\', '$', '\n']));
    let Some(program) = program else {
        return Err(Error::new(Kind::Config, "write the path of this program into a unit")
            .hint("its path must have no quote, backslash or dollar"));
    };
    let program = program.replace('%', "%%");
    Ok(format!(
        "\
[Unit]
Description=Hold %i while others wait
StartLimitBurst=20

[Service]
ExecStart=\"{program}\" run --attach %i
Restart=on-failure
RestartSec=100ms
"
    ))
}

/// Removes a template of ours that says something else: it may run a program that others can change.
fn remove_other(path: &Path, text: &str) -> Result<(), Error> {
    let Ok(there) = fs::read_to_string(path) else { return Ok(()) };
    if there.lines().next() != Some(OURS) || there == whole(text) {
        return Ok(());
    }
    fs::remove_file(path).map_err(|error| {
        Error::new(Kind::Config, format!("replace {}", shown_path(path))).because(error)
    })
}

fn whole(text: &str) -> String {
    format!("{OURS}\n{text}")
}

/// Writes a file that is not there, which everybody may read and its user alone may write. One that is there is left as it is, ours or not: `None`.
fn write(path: &Path, text: &str) -> Result<Option<PathBuf>, Error> {
    let failed = |error: io::Error| {
        Error::new(Kind::Config, format!("write {}", shown_path(path))).because(error)
    };
    if let Some(parent) = path.parent() {
        // The umask takes away, and never adds.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o644).open(path) {
        Ok(mut file) => {
            file.write_all(whole(text).as_bytes()).map_err(failed)?;
            // Also under a umask that keeps others from reading.
            file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
            Ok(Some(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Removes what was made, and the directories that are empty then.
fn undo(target: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut removed = Vec::new();
    let drop_ins = KNOWN.map(|unit| target.join(format!("{unit}.d")).join(DROP_IN));
    for path in drop_ins.into_iter().chain([target.join(TEMPLATE)]) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.lines().next() != Some(OURS) {
            continue;
        }
        fs::remove_file(&path).map_err(|error| {
            Error::new(Kind::Config, format!("remove {}", shown_path(&path))).because(error)
        })?;
        if let Some(parent) = path.parent().filter(|parent| *parent != target) {
            // Somebody else's drop-in is in it.
            let _ = fs::remove_dir(parent);
        }
        removed.push(path);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this() -> Result<PathBuf, Error> {
        Ok("/usr/bin/unjank".into())
    }

    #[test]
    fn a_template_of_ours_that_runs_another_program_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("man-db.service");
        OpenOptions::new().create(true).append(true).open(unit).unwrap();
        let sources = [dir.path().to_owned()];
        adopt(dir.path(), &sources, || Ok("/home/me/unjank".into())).unwrap();
        let made = adopt(dir.path(), &sources, this).unwrap();
        assert_eq!(made, [dir.path().join(TEMPLATE)]);
        let text = fs::read_to_string(&made[0]).unwrap();
        assert!(text.contains("ExecStart=\"/usr/bin/unjank\" run"), "{text}");
        for strange in ["/a\"b/unjank", "/a$b/unjank", "/a\\b/unjank", "/a\nb/unjank"] {
            assert!(template_text(Path::new(strange)).is_err(), "{strange:?}");
        }
        assert!(template_text(Path::new("/a%b/unjank")).unwrap().contains("/a%%b/unjank"));
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
        let made = adopt(&target, &sources, this).unwrap();
        let drop_in = target.join("man-db.service.d/60-unjank.conf");
        assert_eq!(made, [target.join(TEMPLATE), drop_in.clone()]);
        assert!(fs::read_to_string(&drop_in).unwrap().contains("IOSchedulingClass=idle"));
        assert!(adopt(&target, &sources, this).unwrap().is_empty(), "they are adopted already");
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
        adopt(dir.path(), &[dir.path().to_owned()], this).unwrap();
        undo(dir.path()).unwrap();
        assert_eq!(fs::read(&drop_in).unwrap(), b"mine");
    }
}
