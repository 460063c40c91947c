//! The files whose pages a thread waited for, from the addresses at which pages were missing.
//!
//! What is mapped at an address is read from outside, when the wait is over and something else may be mapped there. So it
//! counts only if the same file was there both before and after.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kernelwork::kernel::has_swap;
use sys::mounts::Mounts;
use sys::perf::ThreadSampler;
use trace::stack::maps::{self, Mapping};

use crate::kernel::{SamplerRights, ThreadBlock};
use crate::model::{CallObject, ObjectKind};

/// The most page faults of one absence whose address is kept.
const FAULTS: usize = 8192;
/// The most files of one absence that are told apart.
const FILES: usize = 64;
/// A fault is over this long after its last wait at most, in nanoseconds.
const SETTLED_NS: u64 = 2_000_000;
/// A page of memory, in bytes.
const PAGE: u64 = 4096;
/// In an entry of `/proc/PID/pagemap`: the page is there, and it is a file's.
const IS_OF_FILE: u64 = 1 << 63 | 1 << 61;

/// The index of a file among those of an absence.
type FileIndex = usize;

/// A wait for a page that is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct PageFault {
    at_ns: u64,
    /// The file; none if it is not known, or the memory is of none.
    file: Option<FileIndex>,
}

/// The page faults of an absence.
#[derive(Debug)]
pub(super) struct FaultFiles {
    sampler: ThreadSampler,
    /// What was mapped when that was last read.
    mapped: Vec<Mapping>,
    /// In the order of time.
    faults: Vec<PageFault>,
    files: Vec<(Vec<u8>, CallObject)>,
    /// When addresses were last taken: of earlier faults all are known, but for those in `blind`.
    taken_ns: u64,
    /// Times of which some faults are not known.
    blind: Vec<(u64, u64)>,
}

impl FaultFiles {
    /// Begins to record the addresses at which a thread waits for pages; none where the kernel does not allow it.
    pub(super) fn begin(thread: u32, rights: &SamplerRights) -> Option<FaultFiles> {
        let sampler = ThreadSampler::at_faults_by(rights, thread).ok()?;
        let taken_ns = sys::bpf::clock_ns();
        Some(FaultFiles {
            sampler,
            mapped: Vec::new(),
            faults: Vec::new(),
            files: Vec::new(),
            taken_ns,
            blind: vec![(0, taken_ns)],
        })
    }

    /// Reads what is mapped now, while the thread waits for a page: what is mapped there when the wait is over may be another
    /// file, and is told only if it is the same.
    pub(super) fn read_mapped(&mut self, process: u32) {
        if self.mapped.is_empty() {
            self.mapped = maps::read(process);
        }
    }

    /// Takes the addresses that are there, and finds their files.
    pub(super) fn take(&mut self, process: u32) {
        let mut addresses = Vec::new();
        self.sampler.take(|sample| addresses.extend(sample.fault.map(|at| (sample.at_ns, at))));
        let now_ns = sys::bpf::clock_ns();
        if self.sampler.has_lost() {
            self.blind.push((self.taken_ns, now_ns));
        }
        self.taken_ns = now_ns;
        if addresses.is_empty() {
            return;
        }
        let mapped = maps::read(process);
        let has_swap = has_swap();
        let pages = has_swap.then(|| File::open(format!("/proc/{process}/pagemap")).ok()).flatten();
        for (at_ns, address) in addresses {
            if self.faults.len() >= FAULTS {
                self.blind.push((at_ns, u64::MAX));
                break;
            }
            let before = at(&self.mapped, address);
            let after = at(&mapped, address);
            let same = before.zip(after).filter(|(before, after)| is_same(before, after, address));
            let mapping = same.map(|(_, mapping)| mapping).filter(|mapping| {
                // A private page may have been in the swap, and none of it came from the file.
                let pages = pages.as_ref();
                !has_swap
                    || mapping.inode == 0
                    || mapping.is_shared
                    || pages.is_some_and(|pages| is_of_file(pages, address))
            });
            let file = mapping.and_then(|mapping| self.index(process, mapping, has_swap));
            self.faults.push(PageFault { at_ns, file });
        }
        self.mapped = mapped;
    }

    /// Returns the index of a file, which is named if it is new, or of the swap for memory of the process's own.
    fn index(&mut self, process: u32, mapping: &Mapping, has_swap: bool) -> Option<FileIndex> {
        let is_own = mapping.inode == 0;
        let path = if is_own { &[][..] } else { &mapping.path };
        if let Some(known) = self.files.iter().position(|(of, _)| of == path) {
            return Some(known);
        }
        let is_known = if is_own { has_swap } else { is_file(path) };
        if self.files.len() >= FILES || !is_known {
            return None;
        }
        let object = if is_own { swap() } else { object(process, path) };
        self.files.push((path.to_vec(), object));
        Some(self.files.len() - 1)
    }

    /// Returns for each of these waits, which follow each other, the file whose page it was for, as far as that is known.
    pub(super) fn of_waits(&self, waits: &[ThreadBlock]) -> Vec<Option<&CallObject>> {
        let indices = files_of_waits(waits, &self.faults, &self.blind, self.taken_ns);
        let file = |index: Option<FileIndex>| self.files.get(index?).map(|(_, object)| object);
        indices.into_iter().map(file).collect()
    }
}

/// Returns for each wait the file of the fault that it was a part of.
fn files_of_waits(
    waits: &[ThreadBlock],
    faults: &[PageFault],
    blind: &[(u64, u64)],
    taken_ns: u64,
) -> Vec<Option<FileIndex>> {
    let mut files = vec![None; waits.len()];
    // A fault may consist of several waits; its end is that of the last one, or soon after.
    let mut next: Option<(u64, Option<FileIndex>)> = None;
    for (wait, file) in waits.iter().zip(&mut files).rev() {
        if !wait.could_run && (wait.call.is_some() || wait.is_stopped) {
            next = Some((wait.from_ns, None));
            continue;
        }
        let first = faults.get(faults.partition_point(|fault| fault.at_ns < wait.to_ns));
        let (until_ns, inherited) = next.unwrap_or((taken_ns, None));
        *file = match first {
            // What was longer after the wait is another fault: not each wait outside of calls is for a disk.
            Some(fault) if fault.at_ns <= until_ns => {
                fault.file.filter(|_| fault.at_ns - wait.to_ns <= SETTLED_NS)
            }
            _ => inherited.filter(|_| until_ns - wait.to_ns.min(until_ns) <= SETTLED_NS),
        };
        let end_ns = first.map_or(until_ns, |fault| fault.at_ns.min(until_ns));
        if blind.iter().any(|(from_ns, to_ns)| *from_ns < end_ns && wait.to_ns < *to_ns) {
            *file = None;
        }
        next = Some((wait.from_ns, *file));
    }
    for (wait, file) in waits.iter().zip(&mut files) {
        if wait.could_run {
            *file = None;
        }
    }
    files
}

fn at(mapped: &[Mapping], address: u64) -> Option<&Mapping> {
    let index = mapped.partition_point(|mapping| mapping.end <= address);
    mapped.get(index).filter(|mapping| mapping.start <= address)
}

/// Returns whether the same byte of the same file is at an address in both.
fn is_same(before: &Mapping, after: &Mapping, address: u64) -> bool {
    let byte = |mapping: &Mapping| (address - mapping.start).checked_add(mapping.offset);
    (before.device, before.inode, before.is_shared) == (after.device, after.inode, after.is_shared)
        && before.path == after.path
        && byte(before) == byte(after)
}

/// Returns whether a path of `/proc/PID/maps` is that of a file with a name, and not of memory that the kernel gives one.
fn is_file(path: &[u8]) -> bool {
    let memory: [&[u8]; 3] = [b"/memfd:", b"/dev/", b"/SYSV"];
    path.starts_with(b"/") && !memory.iter().any(|beginning| path.starts_with(beginning))
}

/// Returns whether the page that is at an address now is a file's, and no copy of one.
fn is_of_file(pages: &File, address: u64) -> bool {
    let mut entry = [0; 8];
    pages.read_exact_at(&mut entry, address / PAGE * 8).is_ok()
        && u64::from_ne_bytes(entry) & IS_OF_FILE == IS_OF_FILE
}

/// What memory of a process's own is read from.
fn swap() -> CallObject {
    let text = String::new;
    let name = "swap".to_owned();
    CallObject { kind: ObjectKind::Other, name, file_system: text(), device: text() }
}

fn object(process: u32, path: &[u8]) -> CallObject {
    let mounts = Mounts::of_process(process).unwrap_or_default();
    let mount = mounts.above(Path::new(std::ffi::OsStr::from_bytes(path)));
    let device = mount.map(|mount| {
        let source = mount.source.as_bytes();
        let source = source.strip_prefix(b"/dev/").unwrap_or(source);
        String::from_utf8_lossy(source).into_owned()
    });
    CallObject {
        kind: ObjectKind::File,
        name: String::from_utf8_lossy(path).into_owned(),
        file_system: mount.map(|mount| mount.fs_type.clone()).unwrap_or_default(),
        device: device.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::syscall::call_number;

    const US: u64 = 1000;

    fn wait(from_us: u64, to_us: u64, call: Option<&str>) -> ThreadBlock {
        ThreadBlock {
            from_ns: from_us * US,
            to_ns: to_us * US,
            ready_ns: 0,
            blocked_ns: (to_us - from_us) * US,
            off_before_ns: 0,
            could_run: false,
            is_stopped: false,
            call: call.map(|name| call_number(name).unwrap()),
            arguments: [0; 6],
            place: (1, 1),
        }
    }

    fn fault(at_us: u64, file: Option<FileIndex>) -> PageFault {
        PageFault { at_ns: at_us * US, file }
    }

    #[test]
    fn a_wait_is_for_the_page_that_was_there_when_it_was_over_and_for_none_that_is_not_certain() {
        let mut preempted = wait(6000, 7000, None);
        preempted.could_run = true;
        let waits = [
            wait(0, 1000, None),
            // Two waits and a time without a processor in one fault.
            wait(2000, 4000, None),
            wait(4100, 5900, None),
            preempted,
            wait(9000, 9500, Some("read")),
            // For a lock of the memory: the next fault is another one.
            wait(10_000, 11_000, None),
            wait(20_000, 21_000, None),
        ];
        let faults = [
            fault(1050, Some(0)),
            fault(7050, Some(1)),
            fault(14_000, Some(0)),
            fault(21_010, Some(1)),
        ];
        let files = |blind: &[(u64, u64)]| files_of_waits(&waits, &faults, blind, 30_000 * US);
        let all = [Some(0), Some(1), Some(1), None, None, None, Some(1)];
        assert_eq!(files(&[]), all);
        // Samples were lost: the fault may have been another one's.
        let blind = files(&[(0, 1500 * US), (20_500 * US, 22_000 * US)]);
        assert_eq!(blind, [None, Some(1), Some(1), None, None, None, None]);
        assert_eq!(files_of_waits(&waits, &[], &[], 30_000 * US), [None; 7]);
    }

    #[test]
    fn what_is_mapped_counts_if_it_is_the_same_byte_of_the_same_file_before_and_after() {
        let mapping = |start: u64, offset: u64, inode: u64, path: &str| Mapping {
            start,
            end: start + 8192,
            offset,
            device: (8, 1),
            inode,
            is_code: false,
            is_shared: true,
            path: path.into(),
        };
        let before = [mapping(4096, 0, 7, "/a"), mapping(16_384, 0, 8, "/b")];
        let file = |after: &Mapping, address| {
            at(&before, address).is_some_and(|known| is_same(known, after, address))
        };
        assert!(file(&before[0], 4100));
        // The first page was unmapped.
        assert!(file(&mapping(8192, 4096, 7, "/a"), 8200));
        assert!(!file(&mapping(4096, 4096, 7, "/a"), 4100), "another part of it");
        assert!(!file(&mapping(4096, 0, 9, "/a"), 4100), "another file of this name");
        assert!(!file(&mapping(4096, 0, 7, "/c"), 4100), "renamed");
        assert_eq!(at(&before, 12_288), None, "between them");
        assert_eq!(at(&before, 4095), None);
        for (path, is_named) in [
            ("/usr/x", true),
            ("/memfd:x", false),
            ("/dev/zero (deleted)", false),
            ("[heap]", false),
        ] {
            assert_eq!(is_file(path.as_bytes()), is_named, "{path}");
        }
    }
}
