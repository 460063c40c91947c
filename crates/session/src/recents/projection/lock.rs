//! The lock by which KDE's programs write one after the other: Qt's `QLockFile`, taken and given back as Qt does.
//!
//! The file `<path>.lock` holds five lines: process, program, host, machine, boot. Its maker keeps it locked with
//! `flock`, and removes it at the end. One whose process is gone is stale, and anybody may remove it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};
use sys::dir::Directory;
use sys::watch::{Change, Scope, Watch};

use crate::clock::Clock;

/// A lock file in which nothing can be read is left alone for so long: its maker may be about to write.
const UNREADABLE_FOR: Duration = Duration::from_secs(30);

/// No lock file is longer.
const MAX_BYTES: u64 = 4096;

/// Why a lock was not had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another program holds it, for longer than we wait. Nothing is changed.
    #[error("cannot lock {path:?}: another program holds it")]
    Held {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file cannot be made. Nothing is changed.
    #[error("cannot lock {path:?}")]
    Failed {
        /// The lock file.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

/// A lock that is held; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Keeps `flock`'s lock, by which others see that we live.
    file: File,
}

impl Lock {
    /// Locks the file at `path`, and waits for others at most for `patience`. The file's directory is made.
    pub(super) fn of(
        path: &Path,
        clock: &dyn Clock,
        patience: Duration,
    ) -> Result<Lock, LockError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        match wait_for(&path, clock, patience) {
            Ok(Some(file)) => Ok(Lock { path, file }),
            Ok(None) => Err(LockError::Held { path }),
            Err(source) => Err(LockError::Failed { path, source }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that somebody took for stale and made anew is not ours.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn wait_for(path: &Path, clock: &dyn Clock, patience: Duration) -> io::Result<Option<File>> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let end = clock.monotonic() + patience;
    if let Some(file) = attempt(path, dir)? {
        return Ok(Some(file));
    }
    let watch = Watch::of(&Directory::open(dir)?, Scope::Names)?;
    // A file of ours, which nobody hangs up.
    let still_there = File::open(dir)?;
    loop {
        if (remove_if_stale(path, clock)? || !path.exists())
            && let Some(file) = attempt(path, dir)?
        {
            return Ok(Some(file));
        }
        let left = end.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return Ok(None);
        }
        // Not only for changes: a holder that dies removes nothing.
        watch.wait(&still_there, Some(left.min(Duration::from_millis(100))))?;
        watch.read(|_: Change<'_>| {})?;
    }
}

/// Makes the lock file; `None` if there is one.
fn attempt(path: &Path, dir: &Path) -> io::Result<Option<File>> {
    let open = || {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).open(path)
    };
    let made = open().or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            open()
        }
        _ => Err(error),
    });
    let mut file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    };
    // A file system without such locks loses only that others see more slowly that we died.
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    if let Err(error) = file.write_all(Holder::own().text().as_bytes()) {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    // Between the making and the `flock` somebody may have taken it for stale.
    Ok(is_at(&file, path).then_some(file))
}

/// Tells whether `file` is still the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

/// Removes the lock file of a process that is gone; says whether it did.
fn remove_if_stale(path: &Path, clock: &dyn Clock) -> io::Result<bool> {
    let mut options = fs::OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    // Flags of `open(2)` are small positive numbers.
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = match options.read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(_) => return Ok(false),
        Ok(file) => file,
    };
    let mut text = String::new();
    let read = (&file).take(MAX_BYTES).read_to_string(&mut text);
    let is_stale = match read.ok().and_then(|_| Holder::parse(&text)) {
        Some(holder) => holder.is_gone(),
        None => {
            let written = file.metadata()?.modified()?;
            clock.now().duration_since(written).is_ok_and(|age| age > UNREADABLE_FOR)
        }
    };
    // Who holds the file open and locked lives, whatever stands in it.
    if !is_stale || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    if !is_at(&file, path) {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

/// Who holds a lock, as the file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    process: i32,
    program: String,
    host: String,
    machine: String,
    boot: String,
}

impl Holder {
    fn own() -> Holder {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        Holder {
            process,
            program: program_of("self"),
            host: line_of("/proc/sys/kernel/hostname"),
            machine: machine(),
            boot: line_of("/proc/sys/kernel/random/boot_id"),
        }
    }

    fn text(&self) -> String {
        let Holder { process, program, host, machine, boot } = self;
        format!("{process}\n{program}\n{host}\n{machine}\n{boot}\n")
    }

    /// Reads a lock file; the last two lines came with Qt 5.11.
    fn parse(text: &str) -> Option<Holder> {
        let mut lines = text.lines();
        let process = lines.next()?.trim().parse().ok().filter(|process| *process > 0)?;
        let mut next = || lines.next().unwrap_or_default().to_owned();
        Some(Holder { process, program: next(), host: next(), machine: next(), boot: next() })
    }

    /// Tells whether the process has ended, as far as that can be told from here.
    fn is_gone(&self) -> bool {
        let own = Holder::own();
        let is_here = match self.machine.is_empty() || own.machine.is_empty() {
            true => self.host.is_empty() || self.host == own.host,
            false => self.machine == own.machine,
        };
        if !is_here {
            return false;
        }
        if !self.boot.is_empty() && !own.boot.is_empty() && self.boot != own.boot {
            return true;
        }
        let Some(process) = Pid::from_raw(self.process) else { return false };
        if test_kill_process(process) == Err(rustix::io::Errno::SRCH) {
            return true;
        }
        // Qt's rule: another program has the number now.
        let program = program_of(&self.process.to_string());
        let said = self.program.rsplit('/').next().unwrap_or_default();
        !program.is_empty() && !said.is_empty() && program != said
    }
}

/// Returns the file name of a process's program; nothing if that may not be read.
fn program_of(process: &str) -> String {
    let link = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let name = link.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    // The kernel's mark of a program that was replaced while it ran.
    name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned)
}

/// Returns the number of this machine, from where Qt looks for it.
fn machine() -> String {
    let first = line_of("/etc/machine-id");
    if first.is_empty() { line_of("/var/lib/dbus/machine-id") } else { first }
}

fn line_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test plays the other programs")]
mod tests {
    use super::*;
    use std::time::{Instant, SystemTime};

    #[derive(Debug)]
    struct Real(Instant);

    impl Clock for Real {
        fn now(&self) -> SystemTime {
            SystemTime::now()
        }
        fn monotonic(&self) -> Duration {
            self.0.elapsed()
        }
    }

    fn clock() -> Real {
        Real(Instant::now())
    }

    fn held(path: &Path) -> bool {
        matches!(Lock::of(path, &clock(), Duration::from_millis(30)), Err(LockError::Held { .. }))
    }

    #[test]
    fn the_lock_is_one_holders_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/list");
        let lock = Lock::of(&path, &clock(), Duration::ZERO).unwrap();
        let text = fs::read_to_string(dir.path().join("new/list.lock")).unwrap();
        assert_eq!(Holder::parse(&text), Some(Holder::own()));
        assert_eq!(text.lines().count(), 5);
        assert!(held(&path));
        drop(lock);
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
        Lock::of(&path, &clock(), Duration::ZERO).unwrap();
    }

    #[test]
    fn who_waits_is_woken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let lock = Lock::of(&path, &clock(), Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| Lock::of(&path, &clock(), Duration::from_secs(50)).map(|_| ()));
            drop(lock);
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_dead_holders_lock_is_taken_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let at = dir.path().join("list.lock");
        let own = Holder::own();
        let dead = {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            let process = i32::try_from(child.id()).unwrap();
            child.wait().unwrap();
            process
        };
        let stale = [
            Holder { process: dead, ..own.clone() },
            Holder { program: "another-program".into(), ..own.clone() },
            Holder { boot: "an earlier one".into(), ..own.clone() },
            Holder { process: dead, machine: String::new(), boot: String::new(), ..own.clone() },
        ];
        for holder in stale {
            fs::write(&at, holder.text()).unwrap();
            assert!(!held(&path), "{holder:?}");
            assert!(!at.exists());
        }
        let living = [
            own.clone(),
            Holder { process: dead, machine: "another".into(), ..own.clone() },
            Holder { process: dead, machine: String::new(), host: "other".into(), ..own.clone() },
        ];
        for holder in living {
            fs::write(&at, holder.text()).unwrap();
            assert!(held(&path), "{holder:?}");
        }
        fs::write(&at, "").unwrap();
        assert!(held(&path), "its maker may be about to write");
        let old = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(&at).unwrap().set_modified(old).unwrap();
        assert!(!held(&path));
        // Whoever keeps it locked lives, whatever it says.
        fs::write(&at, Holder { process: dead, ..own }.text()).unwrap();
        let file = File::open(&at).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(held(&path));
    }
}
