//! Copies of the host's files that `flatpak run` shows to sandboxes: name servers, hosts and the time zone, kept up to date.
//!
//! A sandbox has an `/etc` of its own, so changes of the host's files do not appear in it. The copies are
//! replaced, never modified, and the directory is locked against systemd-tmpfiles.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use store::disk::Disk;
use store::publish::publish_volatile;

/// The files of `/etc` that are copied as they are.
const COPIED: [&str; 5] = ["resolv.conf", "host.conf", "hosts", "gai.conf", "localtime"];
/// The longest file that is copied.
const MOST_BYTES: u64 = 4 << 20;
/// The most symlinks that are followed, as in the kernel.
const MOST_LINKS: usize = 40;
/// The inotify events of a changed or replaced file.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// The directory of the copies.
#[derive(Debug)]
pub struct MonitorDirectory {
    path: PathBuf,
    etc: PathBuf,
    disk: Arc<dyn Disk>,
    identity: DirectoryIdentity,
    _locks: [File; 2],
}

/// Which directory it is: another one of the same name, made after somebody has removed it, is not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirectoryIdentity {
    device: u64,
    inode: u64,
}

impl DirectoryIdentity {
    fn new(found: &fs::Metadata) -> DirectoryIdentity {
        DirectoryIdentity { device: found.dev(), inode: found.ino() }
    }

    /// Returns whether it is in its place at `path` still.
    #[must_use]
    pub fn is_at(self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| DirectoryIdentity::new(&found) == self)
    }
}

impl MonitorDirectory {
    /// Makes the directory `monitor` in `dir` and fills it with copies of files of `etc`.
    ///
    /// # Errors
    ///
    /// The directory cannot be made. A file that cannot be copied is logged, and is not there.
    pub fn start(dir: &Path, etc: &Path, disk: Arc<dyn Disk>) -> io::Result<MonitorDirectory> {
        let path = dir.join("monitor");
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
        let locks = [lock(dir)?, lock(&path)?];
        let identity = DirectoryIdentity::new(&locks[1].metadata()?);
        let monitor = MonitorDirectory { path, etc: etc.to_owned(), disk, identity, _locks: locks };
        monitor.copy_all();
        Ok(monitor)
    }

    /// Returns the directory of the copies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns which directory it is. While this lives no other has its identity.
    #[must_use]
    pub fn identity(&self) -> DirectoryIdentity {
        self.identity
    }

    /// Keeps the copies up to date until the other end of `stop` is closed. A directory that was removed is not made again.
    ///
    /// # Errors
    ///
    /// As `inotify_init1(2)` and `poll(2)`: the copies stay as they are.
    pub fn follow(&self, stop: &OwnedFd) -> io::Result<()> {
        loop {
            // A change may redirect a symlink, so all paths are watched anew.
            let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let steps = self.steps();
            for dir in steps.iter().filter_map(|step| step.parent()) {
                // It fails for a missing or unreadable directory, whose changes are not noticed.
                let _ = inotify::add_watch(&watch, dir, CHANGES | WatchFlags::ONLYDIR);
            }
            let names: BTreeSet<OsString> =
                steps.iter().filter_map(|step| step.file_name()).map(Into::into).collect();
            // A file may have changed before the watch was added.
            self.copy_all();
            if !wait(&watch, &names, stop)? {
                return Ok(());
            }
        }
    }

    /// Returns every path that leads to a copied file: a change of any may change the file.
    fn steps(&self) -> BTreeSet<PathBuf> {
        let names = COPIED.iter().chain(&["timezone"]);
        names.flat_map(|name| ways(&self.etc.join(name))).collect()
    }

    fn copy_all(&self) {
        for name in COPIED {
            self.put(name, read(&self.etc.join(name)));
        }
        self.put("timezone", self.time_zone().map(|zone| format!("{zone}\n").into_bytes()));
    }

    /// Replaces a copy that differs from its file; removes it if the file is missing.
    fn put(&self, name: &str, contents: io::Result<Vec<u8>>) {
        // To publish a file makes its directory, which would then hold this one alone.
        if !self.identity.is_at(&self.path) {
            return;
        }
        let path = self.path.join(name);
        let done = match contents {
            Ok(bytes) if fs::read(&path).is_ok_and(|known| known == bytes) => Ok(()),
            Ok(bytes) => {
                publish_volatile(&*self.disk, &path, &bytes).map(drop).map_err(io::Error::other)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(name, %error, "cannot copy a file for sandboxes");
        }
    }

    /// Returns the name of the time zone: the target of `localtime` below `zoneinfo`, else the contents of `timezone`.
    fn time_zone(&self) -> io::Result<String> {
        let ways = ways(&self.etc.join("localtime"));
        let linked = ways.iter().find_map(|way| {
            let (_, zone) = way.to_str()?.split_once("/zoneinfo/")?;
            Some(zone.to_owned())
        });
        match linked {
            Some(zone) => Ok(zone),
            None => {
                let text = read(&self.etc.join("timezone"))?;
                Ok(String::from_utf8_lossy(&text).trim().to_owned())
            }
        }
    }
}

/// Returns `path` and the targets of its symlinks, one by one.
fn ways(path: &Path) -> Vec<PathBuf> {
    let mut ways = vec![path.to_owned()];
    while ways.len() < MOST_LINKS
        && let Some(last) = ways.last()
        && let (Ok(target), Some(dir)) = (fs::read_link(last), last.parent())
    {
        ways.push(plain(&dir.join(target)));
    }
    ways
}

/// Resolves `.` and `..` in a path.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a directory with a shared lock, which systemd-tmpfiles respects.
fn lock(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    // An exclusive lock is held for a moment only.
    let _ = file.try_lock_shared();
    Ok(file)
}

/// Waits until one of `names` has changed, or the other end of `stop` is closed; returns whether a name has changed.
fn wait(watch: &OwnedFd, names: &BTreeSet<OsString>, stop: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut polled = [
            PollFd::new(stop, PollFlags::empty()),
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !polled[0].revents().is_empty() {
            return Ok(false);
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            let lost = event.events().intersects(
                ReadFlags::QUEUE_OVERFLOW | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF,
            );
            let named = event
                .file_name()
                .is_some_and(|name| names.contains(std::ffi::OsStr::from_bytes(name.to_bytes())));
            if lost || named {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are the host")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn copies_follow_the_host_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let (etc, run) = (dir.path().join("etc"), dir.path().join("run"));
        let zones = dir.path().join("zoneinfo/Europe");
        for made in [&etc, &run, &zones] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(run.join("stub"), "nameserver 1\n").unwrap();
        symlink("../run/stub", etc.join("resolv.conf")).unwrap();
        fs::write(zones.join("Oslo"), "TZif").unwrap();
        symlink("../zoneinfo/Europe/Oslo", etc.join("localtime")).unwrap();
        let monitor =
            MonitorDirectory::start(&dir.path().join("helper"), &etc, store::disk::real()).unwrap();
        let copy =
            |name: &str| fs::read_to_string(dir.path().join("helper/monitor").join(name)).ok();
        assert_eq!(copy("resolv.conf").as_deref(), Some("nameserver 1\n"));
        assert_eq!(copy("timezone").as_deref(), Some("Europe/Oslo\n"));
        assert_eq!(copy("localtime").as_deref(), Some("TZif"));
        assert_eq!(copy("hosts"), None);

        let (stop, stopped) = sys::socket::pair().unwrap();
        let follower = std::thread::spawn(move || monitor.follow(&stopped));
        // In place, by replacement of what a link leads to, and of the link itself.
        fs::write(run.join("stub"), "nameserver 2\n").unwrap();
        until(|| copy("resolv.conf").as_deref() == Some("nameserver 2\n"));
        fs::write(run.join("new"), "nameserver 3\n").unwrap();
        fs::rename(run.join("new"), run.join("stub")).unwrap();
        until(|| copy("resolv.conf").as_deref() == Some("nameserver 3\n"));
        fs::write(run.join("other"), "nameserver 4\n").unwrap();
        symlink("../run/other", etc.join("link")).unwrap();
        fs::rename(etc.join("link"), etc.join("resolv.conf")).unwrap();
        until(|| copy("resolv.conf").as_deref() == Some("nameserver 4\n"));
        fs::write(etc.join("hosts"), "127.0.0.1 here\n").unwrap();
        until(|| copy("hosts").is_some());
        fs::remove_file(etc.join("hosts")).unwrap();
        until(|| copy("hosts").is_none());
        drop(stop);
        follower.join().unwrap().unwrap();
    }

    #[test]
    fn a_directory_that_was_removed_is_left_to_who_makes_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let etc = dir.path().join("etc");
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("hosts"), "127.0.0.1 here\n").unwrap();
        let start =
            || MonitorDirectory::start(&dir.path().join("h"), &etc, store::disk::real()).unwrap();
        let first = start();
        let (path, identity) = (first.path().to_owned(), first.identity());
        assert!(identity.is_at(&path));
        fs::remove_dir_all(&path).unwrap();
        fs::write(etc.join("gai.conf"), "changed").unwrap();
        first.copy_all();
        assert!(!path.exists() && !identity.is_at(&path));
        // One that somebody else made does not hold what sandboxes need.
        fs::create_dir(&path).unwrap();
        first.copy_all();
        assert!(!identity.is_at(&path) && fs::read_dir(&path).unwrap().next().is_none());
        let second = start();
        assert!(second.identity().is_at(&path) && path.join("hosts").exists());
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("hosts", dir.path().join("hosts")).unwrap();
        assert_eq!(ways(&dir.path().join("hosts")).len(), MOST_LINKS);
        let monitor =
            MonitorDirectory::start(&dir.path().join("h"), dir.path(), store::disk::real());
        assert_eq!(fs::read_dir(monitor.unwrap().path()).unwrap().count(), 0);
    }
}
