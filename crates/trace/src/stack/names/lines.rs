//! Lines and inlined functions, from DWARF.

use std::io::{Read, Seek};
use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ReadCache};
use sys::sheltered::ShelteredReader;

/// The largest section that is read.
pub(super) const SECTION: u64 = 1 << 30;

/// The sections that say where functions and lines are. Where variables are, and macros, nobody asks: those are a quarter of what there
/// is to unpack.
const READ: [SectionId; 11] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// A file, its parts read when they are asked for.
pub(super) type Elf<'data, R> = ElfFile64<'data, object::LittleEndian, &'data ReadCache<R>>;

/// The most that the sections of a file have together, unpacked: of more no lines are read.
const UNPACKED: u64 = 512 << 20;

type Bytes = EndianArcSlice<LittleEndian>;

/// The most functions that can be inlined into one another at one place before we stop asking.
const DEPTH: usize = 64;

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was told it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// A function at an address, or one that is inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its name as the linker would have it.
    pub(super) name: Option<Vec<u8>>,
    /// Where in it the address is.
    pub(super) line: Option<SourceLine>,
}

/// The DWARF of a module, with a reader that is not made for what hostile files say; what it panics at has no lines.
#[derive(Debug)]
pub(super) struct Lines(ShelteredReader<u64, Vec<Source>>);

impl Lines {
    /// Reads the sections of DWARF; none where there are none.
    pub(super) fn of<R: Read + Seek>(elf: &Elf<'_, R>) -> Option<Lines> {
        elf.section_by_name(".debug_info")?;
        let unpacked = elf.sections().filter(|section| {
            section.name().is_ok_and(|name| READ.iter().any(|id| id.name() == name))
        });
        // Their headers say it: nothing of them is read for it.
        let sizes = unpacked
            .map(|section| section.compressed_file_range().map(|range| range.uncompressed_size));
        if sizes.flatten().fold(0, u64::saturating_add) > UNPACKED {
            return None;
        }
        let load = |id: SectionId| -> Result<Bytes, gimli::Error> {
            let bytes = if READ.contains(&id) { section(elf, id.name()) } else { Arc::from([]) };
            Ok(Bytes::new(bytes, LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(load).ok()?;
        let open = || Context::from_dwarf(dwarf).ok();
        ShelteredReader::start("debug-lines", open, |context, at| look(context, at)).map(Lines)
    }

    /// Returns what is at `address`, the innermost inlined function first and the function itself last.
    pub(super) fn find(&self, address: u64) -> Vec<Source> {
        self.0.ask(address).unwrap_or_default()
    }
}

fn look(context: &Context<Bytes>, address: u64) -> Vec<Source> {
    let mut found = Vec::new();
    // Split DWARF lies beside object files, which no installed program has.
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { return found };
    while found.len() < DEPTH
        && let Ok(Some(frame)) = frames.next()
    {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        // Where the functions are in another file (`-gsplit-dwarf`) the line may be that of one that is inlined.
        let line = frame
            .location
            .filter(|_| frame.function.is_some())
            .and_then(|place| Some(SourceLine { file: place.file?.to_owned(), line: place.line? }));
        found.push(Source { name: name.map(|name| name.as_bytes().to_vec()), line });
    }
    found
}

/// Returns the bytes of a section, unpacked; none of one that is not there or is too large.
fn section<R: Read + Seek>(elf: &Elf<'_, R>, name: &str) -> Arc<[u8]> {
    let bytes = elf.section_by_name(name).and_then(|section| {
        let packed = section.compressed_data().ok()?;
        (packed.uncompressed_size <= SECTION).then(|| packed.decompress().ok()).flatten()
    });
    bytes.map_or_else(|| Arc::from([]), |bytes| Arc::from(&*bytes))
}
