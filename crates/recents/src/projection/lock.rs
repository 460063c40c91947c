//! The lock by which KDE's programs write one after the other: Qt's `QLockFile`, acquired and released as Qt does.
//!
//! The file `<path>.lock` holds five lines: process, program, host, machine, boot. Its owner keeps it locked with
//! `flock`, and removes it at the end. A lock whose process has ended is stale, and any program may remove it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};
use sys::dir::OpenDirectory;
use sys::watch::{DirectoryChange, DirectoryWatch, WatchScope};

use sys::clock::Clock;

/// How long an empty or invalid lock file is respected: its owner may be about to write it.
const UNREADABLE_FOR: Duration = Duration::from_secs(30);

/// The greatest length of a lock file, in bytes.
const MAX_BYTES: u64 = 4096;

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another program holds it for longer than the time limit. Nothing is changed.
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
        /// The error of the disk.
        source: io::Error,
    },
}

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Holds the `flock` lock, by which other programs notice that the owner lives.
    file: File,
}

impl Lock {
    /// Locks the file at `path`; waits at most `patience` for another owner. Creates the directory of the file.
    pub(super) fn of(
        path: &Path,
        clock: &dyn Clock,
        patience: Duration,
    ) -> Result<Lock, LockError> {
        let path = beside(path);
        match wait_for(&path, clock, patience) {
            Ok(Some(file)) => Ok(Lock { path, file }),
            Ok(None) => Err(LockError::Held { path }),
            Err(source) => Err(LockError::Failed { path, source }),
        }
    }
}

/// Removes the lock of the file at `path` if its owner has ended, as the next program that writes would.
///
/// # Errors
///
/// As `stat(2)` and `unlink(2)`.
pub(super) fn remove_stale(path: &Path, clock: &dyn Clock) -> io::Result<()> {
    remove_if_stale(&beside(path), clock).map(drop)
}

/// Returns the path of the lock of the file at `path`.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A lock file that another program took for stale and created anew is not removed.
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
    let watch = DirectoryWatch::of(&OpenDirectory::open(dir)?, WatchScope::Names)?;
    // It is a local file, on which `flock` does not hang.
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
        // A time limit is needed, too: an owner that is killed removes nothing, so no event comes.
        watch.wait(&still_there, Some(left.min(Duration::from_millis(100))))?;
        watch.read(|_: DirectoryChange<'_>| {})?;
    }
}

/// Creates the lock file; `None` if it exists.
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
    // On a file system without `flock`, other programs only notice later that the owner was killed.
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    if let Err(error) = file.write_all(Holder::own().text().as_bytes()) {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    // Between the creation and the `flock` another program may have taken it for stale.
    Ok(is_at(&file, path).then_some(file))
}

/// Returns whether `file` is still the file at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

/// Removes the lock file if its process has ended; returns whether it did.
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
    // A process that holds the `flock` lock lives, whatever the file says.
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

/// The holder of a lock, according to the file.
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
            boot: sys::clock::boot_id(),
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

    /// Returns whether the process has ended, as far as that is known here.
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
        // As in Qt: the number belongs to another program now.
        let program = program_of(&self.process.to_string());
        let said = self.program.rsplit('/').next().unwrap_or_default();
        !program.is_empty() && !said.is_empty() && program != said
    }
}

/// Returns the file name of a process's program; empty if it is not readable.
fn program_of(process: &str) -> String {
    let link = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let name = link.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    // The suffix that the kernel adds to a program that was replaced while it ran.
    name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned)
}

/// Returns the machine ID, from the files that Qt reads.
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
        // A process that holds the `flock` lock lives, whatever the file says.
        fs::write(&at, Holder { process: dead, ..own }.text()).unwrap();
        let file = File::open(&at).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(held(&path));
    }
}
