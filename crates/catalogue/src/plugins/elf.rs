//! Where a Qt plugin keeps its metadata in its ELF file: found with as few small reads as can be, without loading code.
//!
//! Qt 6 writes an ELF note (`.note.qt.metadata`), whose program header is in the first page; one read is enough.
//! Qt 5, and Qt 6 before 6.3, write a section (`.qtmetadata`), which only the section table at the end of the file leads to.
//! The file may be anything: what does not fit is an error of this file alone.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf::{ET_DYN, FileHeader32, FileHeader64, NoteType, SHT_NOTE, SHT_PROGBITS};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadCacheOps, ReadRef};

/// What is read first: headers of any plugin, and all of a Qt 6 plugin's metadata in most.
const FIRST_LEN: usize = 4096;

/// How far before what is asked for is read too: linkers put the names of the sections before their table.
const BEFORE: u64 = 1024;

/// The most that is read of one file; the largest known metadata takes 40 KB.
const MOST_BYTES: u64 = 4 << 20;

/// The most segments that are looked at.
const MOST_SEGMENTS: usize = 64;

/// The name and the type of Qt's note.
const NOTE_NAME: &[u8] = b"qt-project!";
const NOTE_TYPE: NoteType = NoteType(0x7451_0001);

/// Why a file gave no metadata.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The file cannot be read.
    #[error("cannot read the file")]
    Unreadable(#[source] io::Error),
    /// It is no ELF shared object.
    #[error("not an ELF shared object")]
    NotElf,
    /// It is one, and it has no metadata of Qt: a library that is no plugin.
    #[error("an ELF file without metadata of Qt")]
    NoMetadata,
    /// Its headers point outside of it, or claim sizes that no plugin has.
    #[error("damaged ELF headers: {0}")]
    Damaged(String),
}

impl From<object::Error> for ElfError {
    fn from(error: object::Error) -> ElfError {
        ElfError::Damaged(error.to_string())
    }
}

/// Where metadata was found, which says how its header looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetadataLocation {
    /// In the note of Qt 6; the bytes are the note's description.
    Note,
    /// In the section of Qt 5; the bytes are the section's, padding before the magic text included.
    Section,
}

/// The bytes of the metadata, still encoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedMetadata {
    /// Where they were.
    pub place: MetadataLocation,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The parts of a file that were read: its first page, and the last part that was asked for.
struct Parts<'f> {
    file: &'f File,
    parts: [(u64, Vec<u8>); 2],
    at: u64,
    /// What the file system said when a part could not be read.
    failure: &'f RefCell<Option<io::Error>>,
}

impl Parts<'_> {
    /// Copies what is there at `self.at`; says whether all of it is.
    fn copy(&self, buffer: &mut [u8]) -> bool {
        let copied = self.parts.iter().find_map(|(begin, bytes)| {
            let start = usize::try_from(self.at.checked_sub(*begin)?).ok()?;
            bytes.get(start..start.checked_add(buffer.len())?)
        });
        copied.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
    }
}

impl ReadCacheOps for Parts<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|file| file.len()).map_err(drop)
    }

    fn seek(&mut self, place: u64) -> Result<u64, ()> {
        self.at = place;
        Ok(place)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        self.read_exact(buffer).map(|()| buffer.len())
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        if !self.copy(buffer) {
            let begin = self.at.saturating_sub(BEFORE);
            let before = usize::try_from(self.at - begin).unwrap_or(0);
            match read(self.file, begin, before + buffer.len()) {
                Ok(bytes) => self.parts[1] = (begin, bytes),
                Err(error) => *self.failure.borrow_mut() = Some(error),
            }
        }
        if self.copy(buffer) { Ok(()) } else { Err(()) }
    }
}

/// A file of which only so much is read, however often its headers ask for it.
#[derive(Clone, Copy)]
struct Bounded<'a, 'f> {
    cache: &'a ReadCache<Parts<'f>>,
    left: &'a Cell<u64>,
}

impl<'a> ReadRef<'a> for Bounded<'a, '_> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, at: u64, length: u64) -> Result<&'a [u8], ()> {
        self.left.set(self.left.get().checked_sub(length).ok_or(())?);
        self.cache.read_bytes_at(at, length)
    }

    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        // Names are looked up in what was read as a whole.
        Err(())
    }
}

/// Reads as much of a part of the file as there is.
fn read(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An offset over 2^63 is no I/O error of the disk.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns the metadata of the plugin in `file`, still encoded.
///
/// One read for a plugin of Qt 6, three for one of Qt 5; the code of the plugin is not read.
///
/// # Errors
///
/// The file cannot be read, is no plugin, or is damaged.
pub fn metadata(file: &File) -> Result<EncodedMetadata, ElfError> {
    let first = read(file, 0, FIRST_LEN).map_err(ElfError::Unreadable)?;
    let class = first.get(4).filter(|_| first.starts_with(b"\x7fELF")).copied();
    let failure = RefCell::new(None);
    let parts = [(0, first), (0, Vec::new())];
    let cache = ReadCache::new(Parts { file, parts, at: 0, failure: &failure });
    let data = Bounded { cache: &cache, left: &Cell::new(MOST_BYTES) };
    let found = match class {
        Some(1) => find::<FileHeader32<Endianness>>(data),
        Some(2) => find::<FileHeader64<Endianness>>(data),
        _ => Err(ElfError::NotElf),
    };
    match failure.take() {
        Some(error) if found.is_err() => Err(ElfError::Unreadable(error)),
        _ => found,
    }
}

fn find<H: FileHeader<Endian = Endianness>>(
    data: Bounded<'_, '_>,
) -> Result<EncodedMetadata, ElfError> {
    let header = H::parse(data).map_err(|_| ElfError::NotElf)?;
    let endian = header.endian().map_err(|_| ElfError::NotElf)?;
    // Anything else is never loaded as a plugin.
    if header.e_type(endian) != ET_DYN {
        return Err(ElfError::NotElf);
    }
    let segments = header.program_headers(endian, data).unwrap_or_default();
    for segment in segments.iter().take(MOST_SEGMENTS) {
        if let Ok(Some(notes)) = segment.notes(endian, data)
            && let Some(found) = in_notes::<H>(notes, endian)?
        {
            return Ok(found);
        }
    }
    let sections = header.section_headers(endian, data)?;
    if sections.is_empty() {
        return Err(ElfError::NoMetadata);
    }
    let names = header.section_strings_index(endian, data)?;
    let damaged = |what: &str| ElfError::Damaged(what.to_owned());
    let names = sections.get(names.0).ok_or_else(|| damaged("the index of the section names"))?;
    let names = names.data(endian, data)?;
    for section in sections {
        let name = usize::try_from(section.sh_name(endian)).ok().and_then(|at| names.get(at..));
        let is_named = |name_of: &[u8]| name.is_some_and(|rest| rest.starts_with(name_of));
        match section.sh_type(endian) {
            SHT_PROGBITS if is_named(b".qtmetadata\0") => {
                let bytes = section.data(endian, data)?.to_vec();
                return Ok(EncodedMetadata { place: MetadataLocation::Section, bytes });
            }
            SHT_NOTE if is_named(b".note.qt.metadata\0") => {
                let notes = section.notes(endian, data)?;
                let found = notes.map(|notes| in_notes::<H>(notes, endian)).transpose()?.flatten();
                return found.ok_or_else(|| damaged("the metadata note"));
            }
            _ => {}
        }
    }
    Err(ElfError::NoMetadata)
}

/// Finds Qt's note among others.
fn in_notes<H: FileHeader<Endian = Endianness>>(
    mut notes: NoteIterator<'_, H>,
    endian: Endianness,
) -> Result<Option<EncodedMetadata>, ElfError> {
    while let Some(note) = notes.next()? {
        if note.name() == NOTE_NAME && note.n_type(endian) == NOTE_TYPE {
            let bytes = note.desc().to_vec();
            return Ok(Some(EncodedMetadata { place: MetadataLocation::Note, bytes }));
        }
    }
    Ok(None)
}
