//! An ELF file as far as unwinding needs it: segments, build id and unwind tables, copied out so that nobody can change them under us.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::ops::Range;

use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::read::{CompressedFileRange, CompressionFormat};
use object::{LittleEndian, ReadCache, ReadRef};

use super::cfi::Table;

/// The largest unwind section that is read; that of a browser's largest library has 20 MB.
const SECTION: u64 = 128 << 20;

/// The most segments that a file may have.
const SEGMENTS: usize = 64;

/// The most sections that a file may have; programs with debug information have some forty.
const SECTIONS: usize = 4096;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ImageError {
    /// It is no 64-bit x86 ELF file, or a broken one.
    #[error("cannot read ELF headers")]
    Headers(#[source] object::read::Error),
    /// It is for another machine or has more segments or sections than any linker makes.
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
        let is_fair = has_fair_tables(header, endian, data);
        if header.e_machine.get(endian) != elf::EM_X86_64 || !is_fair {
            return Err(ImageError::Machine);
        }
        let programs = header.program_headers(endian, data).map_err(ImageError::Headers)?;
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
        if let Some(bytes) = sections.debug_frame {
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

/// Returns whether the headers of a file say of no more segments and sections than any linker makes: the tables are read whole.
pub(crate) fn has_fair_tables<'data, D: ReadRef<'data>>(
    header: &FileHeader64<LittleEndian>,
    endian: LittleEndian,
    data: D,
) -> bool {
    let is_fair = |count: Result<u32, _>, most| {
        count.is_ok_and(|count| usize::try_from(count).is_ok_and(|count| count <= most))
    };
    is_fair(header.phnum(endian, data), SEGMENTS) && is_fair(header.shnum(endian, data), SECTIONS)
}

/// The sections that matter, by address.
#[derive(Default)]
struct Sections {
    eh_frame: Option<Range<u64>>,
    /// The bytes of `.debug_frame`, unpacked.
    debug_frame: Option<Vec<u8>>,
}

fn sections<'data, D: ReadRef<'data>>(
    header: &FileHeader64<LittleEndian>,
    endian: LittleEndian,
    data: D,
) -> Sections {
    let mut found = Sections::default();
    // `ElfFile64` has this table, too, and reads all symbols for it, however many there are said to be.
    let Ok(table) = header.sections(endian, data) else { return found };
    for section in table.iter() {
        match table.section_name(endian, section) {
            Ok(b".eh_frame") => {
                let start = section.sh_addr(endian);
                let end = start.saturating_add(section.sh_size(endian));
                // Linked apart from its debug information, a file keeps the header but not the bytes.
                if section.sh_type(endian) != elf::SHT_NOBITS && start != 0 {
                    found.eh_frame = Some(start..end);
                }
            }
            Ok(name @ (b".debug_frame" | b".zdebug_frame")) if found.debug_frame.is_none() => {
                found.debug_frame = unpacked(section, name == b".zdebug_frame", endian, data);
            }
            _ => {}
        }
    }
    found
}

/// Returns the bytes of a section, unpacked; none of one that is larger than is read.
fn unpacked<'data, D: ReadRef<'data>>(
    section: &SectionHeader64<LittleEndian>,
    is_packed_by_name: bool,
    endian: LittleEndian,
    data: D,
) -> Option<Vec<u8>> {
    let range = section.file_range(endian);
    let packed = match section.compression(endian, data).ok()? {
        Some((header, offset, compressed_size)) => CompressedFileRange {
            format: match header.ch_type(endian) {
                elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                _ => return None,
            },
            offset,
            compressed_size,
            uncompressed_size: header.ch_size(endian),
        },
        // As Go's linker packed before 1.19: "ZLIB", and the size with its highest byte first.
        None if is_packed_by_name => {
            let (start, len) = range?;
            let head: [u8; 12] = data.read_bytes_at(start, 12).ok()?.try_into().ok()?;
            let [b'Z', b'L', b'I', b'B', size @ ..] = head else { return None };
            CompressedFileRange {
                format: CompressionFormat::Zlib,
                offset: start.checked_add(12)?,
                compressed_size: len.checked_sub(12)?,
                uncompressed_size: u64::from_be_bytes(size),
            }
        }
        None => CompressedFileRange::none(range),
    };
    if packed.uncompressed_size > SECTION || packed.compressed_size > SECTION {
        return None;
    }
    packed.data(data).ok()?.decompress().ok().map(std::borrow::Cow::into_owned)
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

/// Files whose headers say that something in them is huge.
#[cfg(test)]
pub(crate) mod hostile {
    use std::cell::Cell;
    use std::io::SeekFrom;
    use std::rc::Rc;

    use object::Object;

    use super::*;

    /// More than is read of anything.
    const HUGE: u64 = 2 << 30;

    /// A file of which little is there and the rest are zeros. It notes how much was read at once.
    pub(crate) struct Watched {
        bytes: Vec<u8>,
        at: u64,
        pub(crate) largest: Rc<Cell<u64>>,
    }

    impl Read for Watched {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.largest.set(self.largest.get().max(buffer.len() as u64));
            let start = usize::try_from(self.at).unwrap().min(self.bytes.len());
            let there = &self.bytes[start..];
            let len = there.len().min(buffer.len());
            buffer[..len].copy_from_slice(&there[..len]);
            buffer[len..].fill(0);
            self.at += buffer.len() as u64;
            Ok(buffer.len())
        }
    }

    impl Seek for Watched {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.at = match to {
                SeekFrom::Start(at) => at,
                SeekFrom::End(before) => (2 * HUGE).checked_add_signed(before).unwrap(),
                SeekFrom::Current(on) => self.at.checked_add_signed(on).unwrap(),
            };
            Ok(self.at)
        }
    }

    /// The program that runs this, with each thing in turn that can be said to be huge.
    pub(crate) fn files() -> Vec<(&'static str, Watched)> {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let long = |at: usize| u64::from_le_bytes(own[at..at + 8].try_into().unwrap());
        let sections = usize::try_from(long(40)).unwrap();
        let parsed = object::read::elf::ElfFile64::<LittleEndian>::parse(&*own).unwrap();
        let header = |name: &str| {
            let section = parsed.section_by_name(name).unwrap();
            sections + 64 * object::ObjectSection::index(&section).0
        };
        let put = |bytes: &mut Vec<u8>, at: usize, value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        let sized = |name: &str| {
            let mut bytes = own.clone();
            put(&mut bytes, header(name) + 32, &HUGE.to_le_bytes());
            bytes
        };
        let mut files = vec![("symbols", sized(".symtab")), ("exported symbols", sized(".dynsym"))];
        // A section of debug information gets the name of the unwind table.
        let mut named = sized(".debug_abbrev");
        let table = header(".shstrtab");
        let names = usize::try_from(long(table + 24)).unwrap();
        let is_name = |bytes: &[u8]| bytes == b".debug_abbrev\0";
        let at = own[names..].windows(14).position(is_name).unwrap();
        put(&mut named, names + at, b".debug_frame\0\0");
        files.push(("unwind tables", named));
        let mut many = own.clone();
        // The number of sections is in the first of them.
        put(&mut many, 60, &[0, 0]);
        put(&mut many, sections + 32, &(HUGE / 64).to_le_bytes());
        files.push(("sections", many));
        let mut many = own.clone();
        put(&mut many, 56, &[0xff, 0xff]);
        put(&mut many, sections + 44, &u32::try_from(HUGE / 56).unwrap().to_le_bytes());
        files.push(("segments", many));
        let watched = |bytes| Watched { bytes, at: 0, largest: Rc::default() };
        files.into_iter().map(|(name, bytes)| (name, watched(bytes))).collect()
    }

    #[test]
    fn nothing_that_is_said_to_be_huge_is_read() {
        for (name, file) in files() {
            let largest = Rc::clone(&file.largest);
            let image = Image::read(&ReadCache::new(file));
            assert!(largest.get() <= SECTION, "{name}: {} bytes at once", largest.get());
            // Where code is unwound does not depend on what is left out.
            let has_tables = image.is_ok_and(|image| !image.tables.is_empty());
            assert_eq!(has_tables, !matches!(name, "sections" | "segments"), "{name}");
        }
    }
}
