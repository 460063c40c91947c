//! The code of one process: which file, or copy of memory, each executable mapping stands for.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, major, minor};
use sys::file_worker::{DeviceNumber, FileWorker};
use sys::mounts::Mounts;

use super::image::Image;
use super::maps::{self, Mapping};
use crate::recorder::TraceRecorder;
use crate::recording::{FileIdentity, Module};

/// The largest file that is put together from memory when it cannot be opened any more.
const MEMORY: u64 = 64 << 20;

/// The most images that are kept; programs that make libraries without end do not fill our memory.
const IMAGES: usize = 4096;

/// Where programs that compile at run time say what they compiled.
pub(super) const COMPILED: &str = "/tmp";

/// An index into [`Images`].
pub(super) type ImageId = usize;

/// ELF files that have been read, each once.
#[derive(Debug)]
pub(super) struct Images {
    all: Vec<Image>,
    files: HashMap<FileIdentity, Option<ImageId>>,
    worker: FileWorker,
}

impl Images {
    /// Creates a collection whose files are read by `worker`.
    pub(super) fn read_by(worker: FileWorker) -> Images {
        Images { all: Vec::new(), files: HashMap::new(), worker }
    }

    pub(super) fn get(&self, id: ImageId) -> Option<&Image> {
        self.all.get(id)
    }

    fn add(&mut self, image: Image) -> Option<ImageId> {
        if self.all.len() >= IMAGES {
            return None;
        }
        self.all.push(image);
        Some(self.all.len() - 1)
    }

    /// Reads a file of a device; nothing, if that does not answer in time.
    fn of_file(
        &mut self,
        device: DeviceNumber,
        file: File,
        stat: &Stat,
    ) -> Option<Option<ImageId>> {
        let key = FileIdentity::of(stat);
        if let Some(known) = self.files.get(&key) {
            return Some(*known);
        }
        // Also what memory has of it: with `RWF_NOWAIT` a read may still wait until the file system has noted when it was.
        let read = self.worker.run(|| device, || Image::of_file(file).ok())?;
        // A file that is no ELF file of this machine stays that.
        let image = read.and_then(|image| self.add(image));
        if self.files.len() < IMAGES {
            self.files.insert(key, image);
        }
        Some(image)
    }

    /// Finds and reads what is behind a mapping of a process; nothing, if the device does not answer in time.
    fn of_mapping(&mut self, process: u32, mapping: &Mapping) -> Option<FoundImage> {
        let (device, wanted) = (mapping.device, mapping.clone());
        let found =
            match opens_without_wait(mapping).then(|| open_at_mapped_path(mapping)).flatten() {
                Some(found) => Some(found),
                None => self.worker.run(|| device, move || find_mapped_file(process, &wanted))?,
            };
        if let Some(MappingLookup { file, stat, reached_by }) = found {
            let image = self.of_file(device, file, &stat)?;
            return Some(FoundImage { image, reached_by, file: Some(FileIdentity::of(&stat)) });
        }
        let wanted = mapping.clone();
        let put_together = move || Image::of_bytes(from_memory(process, &wanted)?).ok();
        let image = self.worker.run(|| device, put_together)?;
        let image = image.and_then(|image| self.add(image));
        Some(FoundImage { image, ..FoundImage::default() })
    }
}

/// What an executable mapping stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeLocation {
    /// The module in the recording; none for memory without a name.
    pub(super) module: Option<u32>,
    /// Its unwind tables.
    pub(super) image: Option<ImageId>,
    /// What is taken from an address in the process to get the address in the module.
    pub(super) bias: u64,
}

/// The executable mappings of a process.
#[derive(Debug)]
pub(super) struct AddressSpace {
    process: u32,
    mappings: Vec<(Mapping, Option<CodeLocation>)>,
    names_compiled_code: Option<bool>,
}

impl AddressSpace {
    /// Reads what `process` has mapped now.
    pub(super) fn read(process: u32) -> AddressSpace {
        let mut mappings = maps::read(process);
        mappings.retain(|mapping| mapping.is_code);
        AddressSpace {
            process,
            mappings: mappings.into_iter().map(|mapping| (mapping, None)).collect(),
            names_compiled_code: None,
        }
    }

    /// Returns whether the process writes down which functions it compiles, for tools like this one.
    pub(super) fn names_compiled_code(&mut self) -> bool {
        let process = self.process;
        *self.names_compiled_code.get_or_insert_with(|| {
            // Java writes its map when it ends; with this option it keeps frame pointers from the beginning.
            let line = sys::process_file::read(process, "cmdline", 65_536).unwrap_or_default();
            let option = b"-XX:+PreserveFramePointer";
            line.split(|byte| *byte == 0).any(|word| word == option)
                || map_of_compiled(Path::new(COMPILED), process).is_some()
        })
    }

    /// Reads the mappings again; what is known of those that are still there stays.
    pub(super) fn refresh(&mut self) {
        let now = AddressSpace::read(self.process);
        let is_same = |(one, _): &(Mapping, _), (other, _): &(Mapping, _)| one == other;
        let same = now.mappings.len() == self.mappings.len()
            && now.mappings.iter().zip(&self.mappings).all(|(one, other)| is_same(one, other));
        if !now.is_empty() && !same {
            *self = now;
        }
    }

    /// Returns the space of a process that was made from this one.
    pub(super) fn of_child(&self, process: u32) -> AddressSpace {
        let mappings = self.mappings.clone();
        AddressSpace { process, mappings, names_compiled_code: None }
    }

    /// Returns whether nothing could be read, as of a process that has gone.
    pub(super) fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Returns what the code at `address` belongs to; none where there is no code.
    pub(super) fn code(
        &mut self,
        address: u64,
        images: &mut Images,
        recorder: &mut TraceRecorder,
    ) -> Option<CodeLocation> {
        let behind = self.mappings.partition_point(|(mapping, _)| mapping.start <= address);
        let (mapping, code) = self.mappings.get_mut(behind.checked_sub(1)?)?;
        if address >= mapping.end {
            return None;
        }
        if code.is_none() {
            let (found, is_read) = resolve(self.process, mapping, images, recorder);
            if !is_read {
                return Some(found);
            }
            *code = Some(found);
        }
        *code
    }
}

/// Finds the file or the memory behind `mapping`, and says whether it could be read: what does not answer now may later.
fn resolve(
    process: u32,
    mapping: &Mapping,
    images: &mut Images,
    recorder: &mut TraceRecorder,
) -> (CodeLocation, bool) {
    if mapping.path.is_empty() || mapping.path.starts_with(b"[anon") {
        return (CodeLocation { module: None, image: None, bias: 0 }, true);
    }
    let found = images.of_mapping(process, mapping);
    let is_read = found.is_some();
    let FoundImage { image, reached_by, file } = found.unwrap_or_default();
    let known = image.and_then(|image| images.get(image));
    // Without headers the file's own numbering is not known; its offsets stand in.
    let first = known.and_then(|image| image.address_of(mapping.offset)).unwrap_or(mapping.offset);
    let build_id = known.and_then(|image| image.build_id.clone());
    let module = Module {
        path: mapping.path.clone(),
        // A build id says more, and is that of each copy.
        file: file.filter(|_| build_id.is_none()),
        build_id,
        reached_by: reached_by.map(|path| path.as_os_str().as_bytes().to_vec()),
    };
    let bias = mapping.start.wrapping_sub(first);
    (CodeLocation { module: Some(recorder.module(module)), image, bias }, is_read)
}

/// What was found behind a mapping.
#[derive(Default)]
struct FoundImage {
    image: Option<ImageId>,
    /// A path by which it was reached, if that is another one than its own.
    reached_by: Option<PathBuf>,
    /// Which file it is; none of what was put together from memory.
    file: Option<FileIdentity>,
}

struct MappingLookup {
    file: File,
    stat: Stat,
    reached_by: Option<PathBuf>,
}

/// Returns whether a mapped file can be opened without a wait. The kernel keeps the path of a mapped file in memory, unless the file was
/// removed; a file system on a disk reads nothing to open it, and one of a server or of a program may ask that.
fn opens_without_wait(mapping: &Mapping) -> bool {
    let path = Path::new(std::ffi::OsStr::from_bytes(&mapping.path));
    let is_local = |mounts: Mounts| {
        mounts.above(path).is_some_and(|mount| {
            !mount.is_network() && !mount.is_fuse() && mount.fs_type != "autofs"
        })
    };
    let is_there = mapping.path.starts_with(b"/") && !mapping.path.ends_with(b" (deleted)");
    is_there && (mapping.device.0 != 0 || Mounts::read().is_ok_and(is_local))
}

fn is_mapped_file(mapping: &Mapping, stat: &Stat) -> bool {
    let device = (major(stat.st_dev), minor(stat.st_dev));
    // Btrfs and overlayfs show one device to `stat` and another in `maps`; theirs has no major number.
    stat.st_ino == mapping.inode && (device == mapping.device || device.0 == 0)
}

/// Opens the file of `mapping` where it was mapped, and no other that has taken its name.
fn open_at_mapped_path(mapping: &Mapping) -> Option<MappingLookup> {
    let path = Path::new(std::ffi::OsStr::from_bytes(&mapping.path));
    let (file, stat) = open(path).filter(|(_, stat)| is_mapped_file(mapping, stat))?;
    Some(MappingLookup { file, stat, reached_by: None })
}

/// Opens the file of `mapping`, and no other that has taken its name.
fn find_mapped_file(process: u32, mapping: &Mapping) -> Option<MappingLookup> {
    if !mapping.path.starts_with(b"/") {
        return None;
    }
    if let Some(found) = open_at_mapped_path(mapping) {
        return Some(found);
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&mapping.path));
    let proc = PathBuf::from(format!("/proc/{process}"));
    // A container has a root of its own.
    let inside = proc.join("root").join(path.strip_prefix("/").ok()?);
    if let Some((file, stat)) = open(&inside).filter(|(_, stat)| is_mapped_file(mapping, stat)) {
        return Some(MappingLookup { file, stat, reached_by: Some(inside) });
    }
    // Deleted or replaced: the kernel still has it, and gives it to root.
    let held = proc.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    let (file, stat) = open(&held)?;
    Some(MappingLookup { file, stat, reached_by: Some(held) })
}

/// Opens a regular file, without waiting for the other end of anything that is none.
pub(crate) fn open(path: &Path) -> Option<(File, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        .then(|| (File::from(file), stat))
}

/// Opens the map of `process` in `directory`, if it belongs to who runs the process.
///
/// Anybody may write such a file into `/tmp`; another user's words are no names.
pub(super) fn map_of_compiled(directory: &Path, process: u32) -> Option<File> {
    let path = directory.join(format!("perf-{process}.map"));
    let (file, stat) = open(&path)?;
    let runs_as = std::fs::metadata(format!("/proc/{process}")).map(|meta| meta.uid());
    // Of a process that has gone only we ourselves can be meant.
    let owner = runs_as.unwrap_or_else(|_| rustix::process::geteuid().as_raw());
    (stat.st_uid == owner).then_some(file)
}

/// Puts the loaded parts of a file together from the memory of the process, each where it was in the file.
fn from_memory(process: u32, mapping: &Mapping) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let same = |other: &&Mapping| {
        other.path == mapping.path && (other.device, other.inode) == (mapping.device, mapping.inode)
    };
    for part in maps::read(process).iter().filter(same) {
        let len = part.end - part.start;
        let end = part.offset.checked_add(len).filter(|end| *end <= MEMORY)?;
        let (start, end) = (usize::try_from(part.offset).ok()?, usize::try_from(end).ok()?);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        // What cannot be read stays zero, which no decoder takes for anything.
        let _got = sys::remote::read(process, part.start, &mut bytes[start..end]);
    }
    (!bytes.is_empty()).then_some(bytes)
}
