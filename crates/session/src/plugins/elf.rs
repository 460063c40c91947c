//! Where a Qt plugin keeps its metadata in its ELF file: found with as few small reads as can be, without loading code.
//!
//! Qt 6 writes an ELF note (`.note.qt.metadata`), whose program header is in the first page; one read is enough.
//! Qt 5, and Qt 6 before 6.3, write a section (`.qtmetadata`), which only the section table at the end of the file leads to.
//! The file may be anything: every offset and length is checked, and what does not fit is an error of this file alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is read first: headers of any plugin, and all of a Qt 6 plugin's metadata in most.
const FIRST_LEN: usize = 4096;

/// How far before the section table its names are looked for in the same read.
const NAMES_BEFORE: u64 = 1024;

/// The most that metadata may take; the largest known takes 40 KB.
const BODY_MAX: u64 = 4 << 20;

/// The most that the section table or its names may take.
const TABLE_MAX: u64 = 4 << 20;

/// The name and the type of Qt's note.
const NOTE_NAME: &[u8] = b"qt-project!\0";
const NOTE_TYPE: u32 = 0x7451_0001;

const PT_NOTE: u32 = 4;
const SHT_PROGBITS: u32 = 1;
const SHT_NOTE: u32 = 7;
const SHN_XINDEX: u64 = 0xffff;

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
    Damaged(&'static str),
}

/// Where metadata was found, which says how its header looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In the note of Qt 6; the bytes are the note's description.
    Note,
    /// In the section of Qt 5; the bytes are the section's, padding before the magic text included.
    Section,
}

/// The bytes of the metadata, still encoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Raw {
    /// Where they were.
    pub place: Place,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// How the numbers of an ELF file are laid out.
#[derive(Clone, Copy, Debug)]
struct Shape {
    wide: bool,
    big: bool,
}

impl Shape {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(u64::from(if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }))
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Reads a number that is as wide as the file's addresses.
    fn word(self, bytes: &[u8], at: usize) -> Option<u64> {
        if !self.wide {
            return self.u32(bytes, at).map(u64::from);
        }
        let bytes = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// Chooses between the offsets of 32-bit and 64-bit headers.
    fn at(self, narrow: usize, wide: usize) -> usize {
        if self.wide { wide } else { narrow }
    }
}

/// A table of headers in the file.
#[derive(Clone, Copy, Debug)]
struct Headers {
    offset: u64,
    entry_len: u64,
    count: u64,
}

/// What the ELF header says.
#[derive(Debug)]
struct Elf<'a> {
    shape: Shape,
    first: &'a [u8],
    programs: Headers,
    sections: Headers,
    names_index: u64,
}

/// A section or segment: a range of the file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    len: u64,
}

impl<'a> Elf<'a> {
    fn parse(first: &'a [u8]) -> Result<Elf<'a>, ElfError> {
        let ident = first.get(..16).filter(|ident| ident.starts_with(b"\x7fELF"));
        let ident = ident.ok_or(ElfError::NotElf)?;
        let shape = match (ident[4], ident[5]) {
            (class @ 1..=2, order @ 1..=2) => Shape { wide: class == 2, big: order == 2 },
            _ => return Err(ElfError::NotElf),
        };
        let header = || -> Option<Elf<'a>> {
            let counts = shape.at(42, 54);
            let programs = Headers {
                offset: shape.word(first, shape.at(28, 32))?,
                entry_len: shape.u16(first, counts)?,
                count: shape.u16(first, counts + 2)?,
            };
            let sections = Headers {
                offset: shape.word(first, shape.at(32, 40))?,
                entry_len: shape.u16(first, counts + 4)?,
                count: shape.u16(first, counts + 6)?,
            };
            let names_index = shape.u16(first, counts + 8)?;
            Some(Elf { shape, first, programs, sections, names_index })
        };
        // ET_DYN: anything else is never loaded as a plugin.
        if shape.u16(first, 16) != Some(3) {
            return Err(ElfError::NotElf);
        }
        header().ok_or(ElfError::NotElf)
    }

    /// Returns the segments with notes, as far as their headers are in the first page.
    fn note_segments(&self) -> impl Iterator<Item = Extent> + '_ {
        let Headers { offset, entry_len, count } = self.programs;
        let starts = (0..count).map_while(move |i| {
            usize::try_from(offset.checked_add(i.checked_mul(entry_len)?)?).ok()
        });
        starts.take(64).filter_map(|at| {
            let shape = self.shape;
            let is_note = shape.u32(self.first, at)? == PT_NOTE;
            let offset = shape.word(self.first, at + shape.at(4, 8))?;
            let len = shape.word(self.first, at + shape.at(16, 32))?;
            is_note.then_some(Extent { offset, len })
        })
    }
}

/// Finds Qt's note among the notes in `bytes`, and returns the range of its description, which may end after `bytes`.
fn find_note(shape: Shape, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 0_usize;
    loop {
        let name_len = shape.u32(bytes, at)? as usize;
        let body_len = shape.u32(bytes, at + 4)? as usize;
        let kind = shape.u32(bytes, at + 8)?;
        let name_at = at + 12;
        let body_at = name_at.checked_add(name_len.checked_next_multiple_of(4)?)?;
        if kind == NOTE_TYPE && bytes.get(name_at..name_at.checked_add(name_len)?)? == NOTE_NAME {
            return Some(body_at..body_at.checked_add(body_len)?);
        }
        at = body_at.checked_add(body_len.checked_next_multiple_of(4)?)?;
    }
}

/// Reads `extent` of the file; less than all of it is an error.
fn read(file: &File, extent: Extent, most: u64, what: &'static str) -> Result<Vec<u8>, ElfError> {
    if extent.len > most {
        return Err(ElfError::Damaged(what));
    }
    let mut bytes = vec![0; usize::try_from(extent.len).map_err(|_| ElfError::Damaged(what))?];
    match file.read_exact_at(&mut bytes, extent.offset) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ElfError::Damaged(what)),
        // An offset over 2^63 is no I/O error of the disk.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(ElfError::Damaged(what)),
        Err(error) => Err(ElfError::Unreadable(error)),
    }
}

/// Reads as much of the first page as there is.
fn read_first(file: &File) -> Result<Vec<u8>, ElfError> {
    let mut first = vec![0; FIRST_LEN];
    let mut len = 0;
    while len < first.len() {
        match file.read_at(&mut first[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ElfError::Unreadable(error)),
        }
    }
    first.truncate(len);
    Ok(first)
}

/// Returns the metadata of the plugin in `file`, still encoded.
///
/// One read for a plugin of Qt 6, three for one of Qt 5; the code of the plugin is not read.
///
/// # Errors
///
/// The file cannot be read, is no plugin, or is damaged.
pub fn metadata(file: &File) -> Result<Raw, ElfError> {
    let first = read_first(file)?;
    let elf = Elf::parse(&first)?;
    if let Some(raw) = from_notes(file, &elf)? {
        return Ok(raw);
    }
    from_sections(file, &elf)
}

fn from_notes(file: &File, elf: &Elf<'_>) -> Result<Option<Raw>, ElfError> {
    for segment in elf.note_segments() {
        let Ok(start) = usize::try_from(segment.offset) else { continue };
        let Some(there) = elf.first.get(start..) else { continue };
        let len = usize::try_from(segment.len).unwrap_or(usize::MAX);
        let Some(body) = find_note(elf.shape, &there[..there.len().min(len)]) else { continue };
        if body.end > len {
            return Err(ElfError::Damaged("a note is longer than its segment"));
        }
        if let Some(bytes) = there.get(body.clone()) {
            return Ok(Some(Raw { place: Place::Note, bytes: bytes.to_vec() }));
        }
        let offset = segment.offset + body.start as u64;
        let extent = Extent { offset, len: body.len() as u64 };
        let bytes = read(file, extent, BODY_MAX, "the metadata note")?;
        return Ok(Some(Raw { place: Place::Note, bytes }));
    }
    Ok(None)
}

/// The section table with the bytes before it, where linkers put the names of the sections.
struct SectionTable<'a> {
    shape: Shape,
    entries: std::slice::ChunksExact<'a, u8>,
}

impl SectionTable<'_> {
    fn extent(&self, entry: &[u8]) -> Option<Extent> {
        let shape = self.shape;
        let offset = shape.word(entry, shape.at(16, 24))?;
        let len = shape.word(entry, shape.at(20, 32))?;
        Some(Extent { offset, len })
    }
}

fn from_sections(file: &File, elf: &Elf<'_>) -> Result<Raw, ElfError> {
    let shape = elf.shape;
    let Headers { offset, entry_len, count } = elf.sections;
    if offset == 0 || count == 0 {
        return Err(ElfError::NoMetadata);
    }
    if entry_len < shape.at(40, 64) as u64 {
        return Err(ElfError::Damaged("the section table's entries"));
    }
    if elf.names_index >= count || elf.names_index == SHN_XINDEX {
        return Err(ElfError::Damaged("the index of the section names"));
    }
    let before = offset.min(NAMES_BEFORE);
    let window = Extent { offset: offset - before, len: before + count * entry_len };
    let tail = read(file, window, TABLE_MAX, "the section table")?;
    let split = usize::try_from(before).unwrap_or(0);
    let entry_len = usize::try_from(entry_len).map_err(|_| ElfError::Damaged("section entries"))?;
    let table = SectionTable { shape, entries: tail[split..].chunks_exact(entry_len) };

    let names_entry =
        usize::try_from(elf.names_index).ok().and_then(|i| table.entries.clone().nth(i));
    let names_extent = names_entry
        .and_then(|entry| table.extent(entry))
        .ok_or(ElfError::Damaged("the section names"))?;
    let kept = names_extent.offset.checked_sub(window.offset).and_then(|start| {
        let start = usize::try_from(start).ok()?;
        tail.get(start..start.checked_add(usize::try_from(names_extent.len).ok()?)?)
    });
    let read_names;
    let names = match kept {
        Some(names) => names,
        None => {
            read_names = read(file, names_extent, TABLE_MAX, "the section names")?;
            &read_names[..]
        }
    };
    let name_is = |entry: &[u8], name: &[u8]| {
        let at = shape.u32(entry, 0).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| names.get(at..)).is_some_and(|rest| rest.starts_with(name))
    };
    for entry in table.entries.clone() {
        let kind = shape.u32(entry, 4);
        let body = |what| {
            let extent = table.extent(entry).ok_or(ElfError::Damaged(what))?;
            read(file, extent, BODY_MAX, what)
        };
        if kind == Some(SHT_PROGBITS) && name_is(entry, b".qtmetadata\0") {
            return Ok(Raw { place: Place::Section, bytes: body("the metadata section")? });
        }
        if kind == Some(SHT_NOTE) && name_is(entry, b".note.qt.metadata\0") {
            let bytes = body("the metadata note")?;
            let range = find_note(shape, &bytes).ok_or(ElfError::Damaged("the metadata note"))?;
            let bytes = bytes.get(range).ok_or(ElfError::Damaged("the metadata note"))?.to_vec();
            return Ok(Raw { place: Place::Note, bytes });
        }
    }
    Err(ElfError::NoMetadata)
}
