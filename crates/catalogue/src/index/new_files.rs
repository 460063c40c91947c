//! Reading the files that are new, on several threads where that pays.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;
use sys::dir::OpenDirectory;

use super::identity::Identity;
use super::sections::RecordList;
use super::{app, plugin};
use crate::apps::associations::read_whole;
use crate::apps::desktop::DesktopFile;
use crate::plugins::elf::ElfError;
use crate::plugins::metadata::{self, MetadataError};
use crate::unread::Unread;
use xdg::languages::Languages;

/// Why something is left out that is no file with bytes of its own.
pub(super) const NOT_REGULAR: &str = "not a regular file";

/// From how many files on a second thread pays.
const SHARED_FROM: usize = 24;

/// How many threads read at least where many files are new: a disk that is slow to answer answers several at once.
const READERS: usize = 2;

/// What is the same for all files that are read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) languages: Languages,
    /// The time on the clock of files before anything was looked at.
    pub(super) start: u64,
}

/// A file that is read.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    /// The namespace of a plugin, the identifier of an application.
    name: String,
    level: u32,
    /// Its directory, while it is open.
    directory: Option<Arc<OpenDirectory>>,
    /// What it was when it was read.
    pub(super) identity: Identity,
    /// Its record, none for a library that is no plugin, or why it cannot be used.
    pub(super) made: Result<Option<Vec<u8>>, Unread>,
}

/// Reads files, and returns how many there were.
pub(super) fn read_new(mut new: Vec<(RecordList, &mut NewFile)>, reading: &Reading) -> usize {
    let opened = new.len();
    if opened < SHARED_FROM {
        new.iter_mut().for_each(|(list, file)| file.read(*list, reading));
        return opened;
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.clamp(READERS, 8);
    // Small helpings: files differ much in size, and a cold disk in speed.
    let next = AtomicUsize::new(0);
    let slots: Vec<_> = new.into_iter().map(Mutex::new).collect();
    let work = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Ok(mut slot) = slot.lock() {
                let (list, file) = &mut *slot;
                file.read(*list, reading);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where there is no further thread, those that there are read all.
            let _ = sys::thread::spawn_scoped(scope, "index-reader", work);
        }
        work();
    });
    opened
}

impl NewFile {
    pub(super) fn new(
        path: PathBuf,
        name: String,
        level: u32,
        directory: Option<Arc<OpenDirectory>>,
    ) -> NewFile {
        NewFile { path, name, level, directory, identity: Identity::ABSENT, made: Ok(None) }
    }

    fn read(&mut self, list: RecordList, reading: &Reading) {
        self.made = self.record(list, reading);
        self.directory = None;
    }

    fn record(&mut self, list: RecordList, reading: &Reading) -> Result<Option<Vec<u8>>, Unread> {
        let file = self.open()?;
        let len_bytes = self.identity.len_bytes();
        self.identity = self.identity.sure(reading.start);
        let (identity, languages) = (self.identity, &reading.languages);
        match list {
            RecordList::Plugins => {
                let raw = match metadata::read(&file) {
                    Ok(raw) => raw,
                    Err(MetadataError::Elf(ElfError::NoMetadata)) => return Ok(None),
                    Err(MetadataError::Elf(ElfError::Unreadable(error))) => {
                        return Err(error.into());
                    }
                    Err(error) => return Err(Unread::contents(error)),
                };
                let metadata = metadata::decode_in(&raw, languages);
                let metadata = metadata.map_err(Unread::contents)?;
                Ok(Some(plugin::record(&self.path, &self.name, identity, &metadata, languages)))
            }
            RecordList::Apps => {
                let bytes = read_whole(file, len_bytes)?;
                let file = DesktopFile::parse_in(&bytes, languages).map_err(Unread::contents)?;
                let record =
                    app::record(&self.path, &self.name, self.level, identity, &file, languages);
                Ok(Some(record))
            }
        }
    }

    /// Opens a regular file and looks at it; a pipe of that name does not make us wait.
    fn open(&mut self) -> Result<File, Unread> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match (&self.directory, self.path.file_name()) {
            (Some(directory), Some(name)) => openat(directory, name, flags, Mode::empty()),
            _ => openat(CWD, &self.path, flags, Mode::empty()),
        };
        let file = file.map_err(|error| {
            self.identity = match error {
                // What comes there afterwards was not looked at.
                Errno::NOENT => Identity::ABSENT,
                _ => Identity::of(&self.path),
            };
            Unread::from(error)
        })?;
        let found = rustix::fs::fstat(&file)?;
        self.identity = Identity::of_stat(&found);
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            Ok(File::from(file))
        } else {
            Err(Unread::contents(NOT_REGULAR))
        }
    }
}
