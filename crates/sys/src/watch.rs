//! What changes in one directory, or that something changes in many, as inotify tells it.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::dir::OpenDirectory;

/// Tells what changes in a directory from when it was made. The directory is the one that was opened, wherever it is moved to.
#[derive(Debug)]
pub struct DirectoryWatch {
    inotify: OwnedFd,
    own: i32,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// Names that come and go.
    Names,
    /// Changes of contents and attributes too.
    Attributes,
}

/// Something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryChange<'a> {
    /// There is something new about this name: it came, went, or is another file, or its contents or attributes are others.
    Name(&'a CStr),
    /// There was more than the kernel keeps: anything may have changed.
    Lost,
    /// Something beside the directory was removed, perhaps itself: its own end is not told while it is open.
    Beside,
    /// The directory was moved or unmounted; nothing more is told.
    Gone,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// There are changes to read.
    Changes,
    /// The other end of the socket is gone.
    HungUp,
    /// Nothing, in the time.
    Nothing,
}

impl DirectoryWatch {
    /// Watches a directory.
    ///
    /// # Errors
    ///
    /// As `inotify_init1(2)` and `inotify_add_watch(2)`: the user has no watches left (`ENOSPC`, `EMFILE`), or `/proc` is not there.
    pub fn of(directory: &OpenDirectory, scope: WatchScope) -> io::Result<DirectoryWatch> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        if scope == WatchScope::Attributes {
            wanted |= WatchFlags::ATTRIB | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        }
        // By descriptor, so that it is the directory that is read and not another one at its path.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        let own = inotify::add_watch(&watch, &path, wanted)?;
        // A parent that may not be watched is not; then only the end of the directory goes unnoticed.
        // The root is its own parent: what is watched of it must not become this alone.
        let deleted = WatchFlags::DELETE | WatchFlags::MASK_ADD;
        let _ = inotify::add_watch(&watch, format!("{path}/.."), deleted);
        Ok(DirectoryWatch { inotify: watch, own })
    }

    /// Gives all changes that there are to `each`, without waiting.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    pub fn read(&self, mut each: impl FnMut(DirectoryChange<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let what = event.events();
            let gone = ReadFlags::DELETE_SELF
                | ReadFlags::MOVE_SELF
                | ReadFlags::UNMOUNT
                | ReadFlags::IGNORED;
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                each(DirectoryChange::Lost);
            } else if event.wd() != self.own {
                each(DirectoryChange::Beside);
            } else if what.intersects(gone) {
                each(DirectoryChange::Gone);
            } else if let Some(name) = event.file_name() {
                each(DirectoryChange::Name(name));
            }
        }
    }

    /// Waits for changes, at most for `timeout` (`None`: for ever), and no longer than the other end of `socket` is there.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub fn wait(&self, socket: impl AsFd, timeout: Option<Duration>) -> io::Result<Ready> {
        wait_beside(&socket, &self.inotify, timeout)
    }
}

/// Tells that something changes in any of many directories, not what.
#[derive(Debug)]
pub struct DirectoriesWatch {
    inotify: OwnedFd,
    /// What is to be told of each directory.
    told: HashMap<i32, WatchCompleteness>,
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum WatchCompleteness {
    /// Nothing.
    Nothing,
    /// Names came or went, or the directory did.
    Names,
    /// A file that was there is written, or its attributes are others, or anything may have happened.
    Written,
}

impl DirectoriesWatch {
    /// Begins to watch, nothing yet.
    ///
    /// # Errors
    ///
    /// As `inotify_init1(2)`.
    pub fn new() -> io::Result<DirectoriesWatch> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(DirectoriesWatch { inotify, told: HashMap::new() })
    }

    /// Watches one more directory, for names alone or for what is written too.
    ///
    /// # Errors
    ///
    /// As `inotify_add_watch(2)`.
    pub fn add(&mut self, path: &Path, what: WatchCompleteness) -> io::Result<()> {
        let mut wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        // A file of settings is rewritten in its place by editors.
        wanted |= WatchFlags::CLOSE_WRITE;
        if what == WatchCompleteness::Written {
            wanted |= WatchFlags::ATTRIB;
        }
        let number = inotify::add_watch(&self.inotify, path, wanted)?;
        self.told.insert(number, what);
        Ok(())
    }

    /// Watches one more directory, also for what is written to a file that stays open, as to a journal.
    ///
    /// # Errors
    ///
    /// As `inotify_add_watch(2)`.
    pub fn add_appended(&mut self, path: &Path) -> io::Result<()> {
        self.add(path, WatchCompleteness::Written)?;
        inotify::add_watch(&self.inotify, path, WatchFlags::MODIFY | WatchFlags::MASK_ADD)?;
        Ok(())
    }

    /// Takes what has been told, without waiting, and returns the most of it.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    pub fn read(&self) -> io::Result<WatchCompleteness> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut seen = WatchCompleteness::Nothing;
        loop {
            let (number, events) = match reader.next() {
                Ok(event) => (event.wd(), event.events()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(seen),
                Err(error) => return Err(error.into()),
            };
            let written = ReadFlags::MODIFY
                | ReadFlags::CLOSE_WRITE
                | ReadFlags::ATTRIB
                | ReadFlags::QUEUE_OVERFLOW;
            let most = self.told.get(&number).copied().unwrap_or(WatchCompleteness::Written);
            let what = if events.intersects(written) {
                WatchCompleteness::Written
            } else {
                WatchCompleteness::Names
            };
            seen = seen.max(what.min(most));
        }
    }

    /// Waits for changes, at most for `timeout` (`None`: for ever), and no longer than the other end of `socket` is there.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub fn wait(&self, socket: impl AsFd, timeout: Option<Duration>) -> io::Result<Ready> {
        wait_beside(&socket, &self.inotify, timeout)
    }
}

impl AsFd for DirectoriesWatch {
    /// Returns the descriptor that can be read when something was told.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Waits for changes, or for the end of the other end of `socket`.
fn wait_beside(
    socket: &impl AsFd,
    inotify: &impl AsFd,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let mut polled = [PollFd::new(socket, PollFlags::empty()), PollFd::new(inotify, PollFlags::IN)];
    wait(&mut polled, timeout)?;
    Ok(if !polled[0].revents().is_empty() {
        Ready::HungUp
    } else if polled[1].revents().is_empty() {
        Ready::Nothing
    } else {
        Ready::Changes
    })
}

/// Lets time pass, no longer than the other end of `socket` is there; says whether it still is.
///
/// # Errors
///
/// As `poll(2)`.
pub fn pause(socket: impl AsFd, time: Duration) -> io::Result<Ready> {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    wait(&mut polled, Some(time))?;
    Ok(if polled[0].revents().is_empty() { Ready::Nothing } else { Ready::HungUp })
}

fn wait(polled: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    loop {
        match poll(polled, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}
