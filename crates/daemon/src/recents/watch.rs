//! Watches the journal and the shared list for changes, with inotify.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// The watched files.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// The watch descriptor of each directory, and the name of the file in it.
    files: Vec<(i32, OsString)>,
}

impl Watch {
    /// Starts with nothing to watch. Must be called inside the runtime.
    #[expect(
        deprecated,
        reason = "the unsafe successor is for descriptors that may change; this one is owned and never replaced"
    )]
    pub(super) fn new() -> io::Result<Watch> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Watch { inotify: AsyncFd::new(fd)?, files: Vec::new() })
    }

    /// Watches a file in an existing directory. A second call for the same file changes nothing.
    pub(super) fn add(&mut self, file: &Path) -> io::Result<()> {
        let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // An addition writes to the journal; every other change gives a file a new name.
        let wanted = WatchFlags::MODIFY
            | WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let number = inotify::add_watch(&self.inotify, dir, wanted)?;
        let watched = (number, name.to_owned());
        if !self.files.contains(&watched) {
            self.files.push(watched);
        }
        Ok(())
    }

    /// Waits for a change. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else {
                return std::future::pending().await;
            };
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut found = false;
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => break,
                };
                if event.events().contains(ReadFlags::IGNORED) {
                    self.files.retain(|(number, _)| *number != event.wd());
                    found = true;
                    continue;
                }
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                let is_ours =
                    |(number, file): &(i32, OsString)| *number == event.wd() && name == Some(file);
                let is_lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                found |= is_lost || self.files.iter().any(is_ours);
            }
            ready.clear_ready();
            if found {
                return;
            }
        }
    }
}
