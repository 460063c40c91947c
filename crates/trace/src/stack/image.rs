//! An ELF file as far as unwinding needs it: segments, build id and unwind tables, copied out so that nobody can change them under us.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, ReadCache, ReadRef};

use super::cfi::Table;

/// The largest unwind section that is read; that of a browser's largest library has 20 MB.
const SECTION: u64 = 128 << 20;

/// The most segments that a file may have.
const SEGMENTS: usize = 64;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ImageError {
    /// It is no 64-bit x86 ELF file, or a broken one.
    #[error("cannot read ELF headers")]
    Headers(#[source] object::read::Error),
    /// It is for another machine or has more segments than any linker makes.
    #[error("cannot unwind code of this machine")]
    Machine,
}

/// A part of the file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its first address in the file's own numbering.
    pub(crate) address: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// How many bytes of it are in the file.
    pub(crate) len: u64,
    /// Whether it is code.
    pub(crate) is_code: bool,
}

/// What is kept of an ELF file.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Its loaded segments.
    pub(crate) segments: Vec<Segment>,
    /// Its GNU build id.
    pub(crate) build_id: Option<Vec<u8>>,
    /// Its unwind tables, the best first.
    pub(crate) tables: Vec<Table>,
}

impl Image {
    /// Reads `file`.
    ///
    /// # Errors
    ///
    /// Files that are no x86-64 ELF; without unwind tables there is an image without tables.
    pub(crate) fn of_file(file: File) -> Result<Image, ImageError> {
        Image::read(&ReadCache::new(file))
    }

    /// Reads the bytes of a file, or as much of it as was in memory.
    ///
    /// # Errors
    ///
    /// As [`Image::of_file`].
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Result<Image, ImageError> {
        Image::read(&ReadCache::new(Cursor::new(bytes)))
    }

    fn read<R: Read + Seek>(data: &ReadCache<R>) -> Result<Image, ImageError> {
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(ImageError::Headers)?;
        let endian = header.endian().map_err(ImageError::Headers)?;
        let programs = header.program_headers(endian, data).map_err(ImageError::Headers)?;
        if header.e_machine.get(endian) != elf::EM_X86_64 || programs.len() > SEGMENTS {
            return Err(ImageError::Machine);
        }
        let mut image = Image::default();
        let mut index = None;
        for program in programs {
            let address = program.p_vaddr(endian);
            let (offset, len) = program.file_range(endian);
            match program.p_type(endian) {
                elf::PT_LOAD => {
                    let is_code = program.p_flags(endian).contains(elf::PF_X);
                    image.segments.push(Segment { address, offset, len, is_code });
                }
                elf::PT_GNU_EH_FRAME if len <= SECTION => {
                    index = data.read_bytes_at(offset, len).ok().map(|bytes| (address, bytes));
                }
                elf::PT_NOTE if len <= 1 << 16 => {
                    let id = data.read_bytes_at(offset, len).ok().and_then(build_id);
                    image.build_id = image.build_id.take().or(id);
                }
                _ => {}
            }
        }
        let sections = sections(header, endian, data);
        image.tables.extend(image.eh_frame(index, sections.eh_frame.as_ref(), data));
        if let Some(bytes) = debug_frame(data) {
            image.tables.extend(Table::debug_frame(bytes));
        }
        Ok(image)
    }

    /// Reads `.eh_frame`, through its index if there is one that can be believed.
    fn eh_frame<'data, D: ReadRef<'data>>(
        &self,
        index: Option<(u64, &[u8])>,
        section: Option<&Range<u64>>,
        data: D,
    ) -> Option<Table> {
        let start = match (index, section) {
            (Some((address, bytes)), _) => Table::eh_frame_address(address, bytes),
            (None, Some(section)) => Some(section.start),
            (None, None) => None,
        }?;
        // Without section headers, as in memory, it ends at the latest where its segment does.
        let segment = self.segments.iter().find(|segment| segment.holds(start))?;
        let within = start - segment.address;
        let len = match section {
            Some(section) if section.start == start => section.end - section.start,
            _ => segment.len - within,
        };
        let len = len.min(segment.len - within).min(SECTION);
        let bytes = data.read_bytes_at(segment.offset.checked_add(within)?, len).ok()?;
        Table::eh_frame(start, bytes.to_vec(), index)
    }

    /// Returns the address, in the file's own numbering, of the code at `offset` in the file.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        // Mappings begin at whole pages, segments need not: two segments may share a page of the file.
        self.segments.iter().filter(|segment| segment.is_code).find_map(|segment| {
            let page = segment.offset & 0xfff;
            let first = segment.offset - page;
            let end = segment.offset.checked_add(segment.len)?;
            (first <= offset && offset < end)
                .then(|| segment.address.wrapping_sub(page).wrapping_add(offset - first))
        })
    }

    /// Returns the code at an address of the file, which is in `file`.
    pub(crate) fn code<'file>(
        &self,
        file: &'file [u8],
        address: u64,
        len: usize,
    ) -> Option<&'file [u8]> {
        let holds = |segment: &&Segment| segment.is_code && segment.holds(address);
        let segment = self.segments.iter().find(holds)?;
        let offset = segment.offset.checked_add(address - segment.address)?;
        let start = usize::try_from(offset).ok()?;
        file.get(start..start.checked_add(len)?)
    }

    /// Returns the addresses of the function that holds `address`, as the unwind tables have it.
    pub(crate) fn function(&self, address: u64) -> Option<super::cfi::Function> {
        self.tables.iter().find_map(|table| table.function(address))
    }
}

impl Segment {
    fn holds(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.len
    }
}

/// The sections that matter, by address.
#[derive(Default)]
struct Sections {
    eh_frame: Option<Range<u64>>,
}

fn sections<'data, D: ReadRef<'data>>(
    header: &FileHeader64<LittleEndian>,
    endian: LittleEndian,
    data: D,
) -> Sections {
    let mut found = Sections::default();
    let Ok(table) = header.sections(endian, data) else { return found };
    for section in table.iter() {
        if table.section_name(endian, section) == Ok(b".eh_frame") {
            let start = section.sh_addr(endian);
            let end = start.saturating_add(section.sh_size(endian));
            // Linked apart from its debug information, a file keeps the header but not the bytes.
            if section.sh_type(endian) != elf::SHT_NOBITS && start != 0 {
                found.eh_frame = Some(start..end);
            }
        }
    }
    found
}

/// Returns the bytes of `.debug_frame`, unpacked.
fn debug_frame<'data, D: ReadRef<'data>>(data: D) -> Option<Vec<u8>> {
    let file = object::read::elf::ElfFile64::<LittleEndian, D>::parse(data).ok()?;
    let section = file.section_by_name(".debug_frame")?;
    let packed = section.compressed_data().ok()?;
    if packed.uncompressed_size > SECTION || packed.data.len() as u64 > SECTION {
        return None;
    }
    packed.decompress().ok().map(std::borrow::Cow::into_owned)
}

/// Finds the build id in the bytes of a note segment.
pub(crate) fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let mut rest = notes;
    while rest.len() >= 12 {
        let (name, description) = (word(rest, 0)?, word(rest, 4)?);
        let at = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let bytes = rest.get(at..at.checked_add(description)?)?;
        // Type 3 of owner GNU.
        if rest.get(8..16) == Some(b"\x03\0\0\0GNU\0") && (4..=64).contains(&description) {
            return Some(bytes.to_vec());
        }
        rest = rest.get(at.checked_add(description.checked_next_multiple_of(4)?)?..)?;
    }
    None
}
