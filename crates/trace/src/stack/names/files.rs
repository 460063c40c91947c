//! The files that may name a module's functions: itself, its debug files, and what is packed inside of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, ReadCache};

use sys::file_worker::{DeviceNumber, FileWorker};
use sys::mounts::Mounts;

use super::SymbolSources;
use super::lines::{Elf, Lines, SECTION};
use super::symbols::Symbols;
use crate::recording::{FileIdentity, Module};
use crate::stack::image::{Image, has_fair_tables};
use crate::stack::space::open;

/// The largest that a packed symbol table may become.
const UNPACKED: u64 = 256 << 20;

/// The largest table of symbols that is read; that of a browser's largest library has 50 MB.
const SYMBOLS: u64 = 256 << 20;

/// The longest file that is summed up, which takes most of a second. Only files of programs without a build id are.
const SUMMED: u64 = 64 << 20;

/// What the unpacker may use; that of the strongest preset.
const MEMORY_KIB: u32 = 80 << 10;

/// What a module's files say.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Unwind tables, which say where functions begin.
    pub(super) image: Image,
    /// Symbols that name every function.
    pub(super) full: Vec<Symbols>,
    /// Symbols of what the module shows to others.
    pub(super) exported: Symbols,
    /// Lines and inlined functions.
    pub(super) lines: Option<Lines>,
}

/// A file that may have been split off a module, and the sum that it has then where the module has no build id.
type DebugFile = (PathBuf, Option<u32>);

impl Files {
    /// Looks for the files of `module`; without any there are no names. Nothing, if it cannot be read in time: it may be later.
    ///
    /// What was split off it is left out if that cannot be.
    pub(super) fn of(
        module: &Module,
        sources: &SymbolSources,
        worker: &mut FileWorker,
    ) -> Option<Files> {
        let at = path_of(module);
        let device = || device_of(&at);
        let (of, places) = (module.clone(), sources.clone());
        let (mut files, elsewhere) = worker.run(device, move || Files::of_itself(&of, &places))?;
        for (path, sum) in &elsewhere {
            if files.is_complete() {
                break;
            }
            let (found, id, sum) = (path.clone(), module.build_id.clone(), *sum);
            let read = move || Files::of_debug_file(&found, id.as_deref(), sum);
            files.join(worker.run(|| device_of(path), read).flatten());
        }
        if files.full.is_empty() && !elsewhere.is_empty() {
            let of = module.clone();
            files.join(worker.run(device, move || Files::packed_in(&of))?);
        }
        Some(files)
    }

    /// Returns whether nothing more is looked for.
    fn is_complete(&self) -> bool {
        !self.full.is_empty() && self.lines.is_some()
    }

    /// Adds what another file of the same module says.
    fn join(&mut self, other: Option<Files>) {
        let Some(Files { full, lines, .. }) = other else { return };
        self.full.extend(full);
        if self.lines.is_none() {
            self.lines = lines;
        }
    }

    /// Reads the file of a module, and those on the same device that were split off it. Returns where more may be, the surest first.
    fn of_itself(module: &Module, sources: &SymbolSources) -> (Files, Vec<DebugFile>) {
        let mut files = Files::default();
        let Some((path, image)) = find(module) else { return (files, Vec::new()) };
        files.image = image;
        let Some((file, _)) = open(&path) else { return (files, Vec::new()) };
        let cache = ReadCache::new(file);
        let Some(elf) = parse(&cache) else { return (files, Vec::new()) };
        files.exported = Symbols::exported(&elf);
        files.add(&elf);
        let mounts = Mounts::read().unwrap_or_default();
        let device = |path: &Path| mounts.above(path).map(|mount| mount.device);
        let own = device(&path);
        let mut elsewhere = Vec::new();
        for (found, sum) in debug_files(module, &elf, &path, sources) {
            if files.is_complete() {
                return (files, Vec::new());
            }
            if found == path {
                continue;
            }
            match device(&found) == own {
                true => files.join(Files::of_debug_file(&found, module.build_id.as_deref(), sum)),
                false => elsewhere.push((found, sum)),
            }
        }
        if files.full.is_empty() && elsewhere.is_empty() {
            files.join(Files::packed_inside(&elf));
        }
        (files, elsewhere)
    }

    fn of_debug_file(path: &Path, id: Option<&[u8]>, sum: Option<u32>) -> Option<Files> {
        let (file, _) = open(path)?;
        let is_it = match id {
            Some(id) => Image::of_file(file).ok()?.build_id.as_deref() == Some(id),
            // Without build ids the sum over the whole file is what ties the two together.
            None => checksum(file) == sum,
        };
        let (file, _) = is_it.then(|| open(path)).flatten()?;
        let mut files = Files::default();
        files.add(&parse(&ReadCache::new(file))?);
        Some(files)
    }

    /// Reads the symbols that are packed inside of a module.
    fn packed_in(module: &Module) -> Option<Files> {
        let (path, _) = find(module)?;
        let cache = ReadCache::new(open(&path)?.0);
        Files::packed_inside(&parse(&cache)?)
    }

    fn packed_inside<R: Read + Seek>(elf: &Elf<'_, R>) -> Option<Files> {
        let packed = ReadCache::new(Cursor::new(unpacked(elf)?));
        let mut files = Files::default();
        files.add(&parse(&packed)?);
        Some(files)
    }

    fn add<R: Read + Seek>(&mut self, elf: &Elf<'_, R>) {
        let symbols = Symbols::full(elf);
        if !symbols.is_empty() {
            self.full.push(symbols);
        }
        if self.lines.is_none() {
            self.lines = Lines::of(elf);
        }
    }
}

/// Returns where the file of a module is.
pub(super) fn path_of(module: &Module) -> PathBuf {
    let path = module.reached_by.as_deref().unwrap_or(&module.path);
    OsStr::from_bytes(path).into()
}

/// Returns the device that a path is on by the table of mounts alone: the path itself is not looked at.
pub(super) fn device_of(path: &Path) -> DeviceNumber {
    let mounts = Mounts::read().unwrap_or_default();
    mounts.above(path).map_or((0, 0), |mount| mount.device)
}

/// Reads the headers of a file whose sections are all of a size that can be read, and its tables of symbols.
fn parse<R: Read + Seek>(cache: &ReadCache<R>) -> Option<Elf<'_, R>> {
    // `ElfFile64` reads the tables of symbols at once, however large they are said to be.
    let header = FileHeader64::<LittleEndian>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let is_fair = |section: &elf::SectionHeader64<LittleEndian>| {
        let most = match section.sh_type(endian) {
            elf::SHT_SYMTAB | elf::SHT_DYNSYM | elf::SHT_SYMTAB_SHNDX => SYMBOLS,
            _ => SECTION,
        };
        section.file_range(endian).is_none_or(|(_, len)| len <= most)
    };
    if !has_fair_tables(header, endian, cache)
        || !header.section_headers(endian, cache).ok()?.iter().all(is_fair)
    {
        return None;
    }
    ElfFile64::parse(cache).ok()
}

/// Finds the file that was mapped; another one that has its path now, or has it elsewhere, is not it.
fn find(module: &Module) -> Option<(PathBuf, Image)> {
    let paths = [module.reached_by.as_deref(), Some(&*module.path)];
    paths.into_iter().flatten().filter(|path| path.starts_with(b"/")).find_map(|path| {
        let path = PathBuf::from(OsStr::from_bytes(path));
        let (file, stat) = open(&path)?;
        let is_same = module.file == Some(FileIdentity::of(&stat));
        let image = Image::of_file(file).ok()?;
        // Files without a build id are all alike.
        let is_it = image.build_id == module.build_id && (module.build_id.is_some() || is_same);
        is_it.then_some((path, image))
    })
}

/// Returns where the separate debug files of `module` may be, the surest first.
fn debug_files<R: Read + Seek>(
    module: &Module,
    elf: &Elf<'_, R>,
    path: &Path,
    sources: &SymbolSources,
) -> Vec<DebugFile> {
    let id = module.build_id.as_deref();
    let hex = id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let mut paths = Vec::new();
    if let Some((first, rest)) = hex.as_deref().and_then(|hex| hex.split_at_checked(2)) {
        for directory in &sources.debug_directories {
            paths.push((directory.join(format!(".build-id/{first}/{rest}.debug")), None));
        }
    }
    if let Ok(Some((name, sum))) = elf.gnu_debuglink()
        && !name.contains(&b'/')
        && let Some(beside) = path.parent()
    {
        let name = OsStr::from_bytes(name);
        paths.push((beside.join(name), Some(sum)));
        paths.push((beside.join(".debug").join(name), Some(sum)));
        let below = beside.strip_prefix("/").unwrap_or(beside);
        for directory in &sources.debug_directories {
            paths.push((directory.join(below).join(name), Some(sum)));
        }
    }
    if let (Some(hex), Some(cache)) = (&hex, &sources.debuginfod_cache) {
        paths.push((cache.join(hex).join("debuginfo"), None));
    }
    paths
}

/// Unpacks `.gnu_debugdata`: an ELF file with the private symbols, as Fedora's files carry it.
fn unpacked<R: Read + Seek>(elf: &Elf<'_, R>) -> Option<Vec<u8>> {
    let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
    let mut plain = Vec::new();
    let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, MEMORY_KIB);
    reader.take(UNPACKED).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// Sums a file as `.gnu_debuglink` does: the CRC-32 of Ethernet. None of a file that is too long.
fn checksum(mut file: File) -> Option<u32> {
    if file.metadata().ok()?.len() > SUMMED {
        return None;
    }
    let mut buffer = vec![0; 1 << 16];
    let mut sum = !0_u32;
    loop {
        let len = file.read(&mut buffer).ok()?;
        if len == 0 {
            return Some(!sum);
        }
        for byte in &buffer[..len] {
            sum ^= u32::from(*byte);
            for _ in 0..8 {
                sum = (sum >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(sum & 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_ethernet() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"123456789").unwrap();
        file.rewind().unwrap();
        assert_eq!(checksum(file), Some(0xcbf4_3926));
    }

    #[test]
    fn a_file_that_would_take_minutes_is_not_summed() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(200 << 30).unwrap();
        assert_eq!(checksum(file), None);
    }

    /// The program that runs this, and a copy in which a section is said to have this length, and the file is long enough.
    fn enlarged(is_meant: impl Fn(&Elf<'_, Cursor<&[u8]>>) -> usize, len: u64) -> File {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let sections =
            usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap())).unwrap();
        let index = is_meant(&parse(&ReadCache::new(Cursor::new(&bytes[..]))).unwrap());
        let size = sections + 64 * index + 32;
        bytes[size..size + 8].copy_from_slice(&len.to_le_bytes());
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file.set_len(8 << 30).unwrap();
        file
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test stands for a linker")]
    fn a_file_without_a_build_id_is_found_as_long_as_it_is_the_one_that_was_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        while let Some(at) = bytes.windows(8).position(|bytes| bytes == b"\x03\0\0\0GNU\0") {
            bytes[at + 4] = b'X';
        }
        let write = |path: &Path, bytes: &[u8]| {
            std::io::Write::write_all(&mut File::create(path).unwrap(), bytes).unwrap();
        };
        write(&path, &bytes);
        let mapped = || Module {
            path: path.as_os_str().as_bytes().to_vec(),
            build_id: None,
            file: Some(FileIdentity::of(&open(&path).unwrap().1)),
            reached_by: None,
        };
        let module = mapped();
        assert!(find(&module).is_some());
        let unseen = Module { file: None, ..module.clone() };
        assert!(find(&unseen).is_none(), "what was mapped may be another one");
        // In a container that is gone: what has its path here is another file.
        let in_container = Module {
            reached_by: Some(b"/proc/4294967295/root/program".to_vec()),
            file: module.file.map(|file| FileIdentity { inode: file.inode + 1, ..file }),
            ..module.clone()
        };
        assert!(find(&in_container).is_none());
        // Built again in place, and by another file.
        bytes.extend(b"more");
        write(&path, &bytes);
        assert!(find(&module).is_none() && find(&mapped()).is_some());
        let module = mapped();
        // The old file stays, so that its number is not given to the new one.
        std::fs::hard_link(&path, dir.path().join("old")).unwrap();
        std::fs::remove_file(&path).unwrap();
        write(&path, &bytes);
        assert!(find(&module).is_none() && find(&mapped()).is_some());
    }

    #[test]
    fn nothing_that_is_said_to_be_huge_is_read() {
        for (name, file) in crate::stack::image::hostile::files() {
            let largest = std::rc::Rc::clone(&file.largest);
            let cache = ReadCache::new(file);
            let is_parsed = parse(&cache).is_some();
            assert!(largest.get() <= SYMBOLS, "{name}: {} bytes at once", largest.get());
            assert!(!is_parsed, "{name}");
        }
    }

    #[test]
    fn a_table_of_symbols_that_is_said_to_be_huge_is_not_read() {
        let file = enlarged(|elf| elf.elf_symbol_table().section().0, 512 << 20);
        assert!(parse(&ReadCache::new(file)).is_none());
    }

    #[test]
    fn debugging_information_that_is_said_to_be_huge_is_not_read() {
        let info =
            |elf: &Elf<'_, Cursor<&[u8]>>| elf.section_by_name(".debug_info").unwrap().index().0;
        let cache = ReadCache::new(enlarged(info, 600 << 20));
        let elf = parse(&cache).unwrap();
        assert!(!Symbols::full(&elf).is_empty(), "its functions have their names");
        assert!(Lines::of(&elf).is_none());
    }
}
