//! Programs in the kernel: `bpf(2)` as types, without a compiler or a library for it.
//!
//! Maps, programs and links are descriptors: when the last one is closed, by us or because we were killed, the kernel
//! takes everything back. Nothing is pinned to a file.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

pub mod assembler;
pub mod btf;
pub mod file_names;
mod kernel_names;
mod load;
mod map;
pub mod owner;
pub mod processor_time;
mod program;
pub mod record;
mod ring;

pub use kernel_names::KernelNames;
pub use load::{LoadError, is_in_first_namespace};
pub use map::{Map, MapKind, SharedMap};
pub use program::{AttachError, AttachedPrograms, BpfProgram, Instruction, ProgramKind, Refused};
pub use ring::Ring;

/// `TS_COMPAT` in `thread_info.status` of a thread: it is in a call of 32-bit code, whose number means another call. Programs of 64 bits
/// can make such calls, too, by `int 0x80`.
pub const FOREIGN_CALL: i32 = 2;

/// Returns the clock that programs in the kernel read, `CLOCK_MONOTONIC` without what a time namespace adds to it, in nanoseconds.
#[must_use]
pub fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    static ADDED_NS: OnceLock<i128> = OnceLock::new();
    u64::try_from(now_ns - ADDED_NS.get_or_init(namespace_offset_ns)).unwrap_or(0)
}

/// Returns what the time namespace of this process adds to `CLOCK_MONOTONIC`, in nanoseconds; 0 where that cannot be read.
fn namespace_offset_ns() -> i128 {
    let link = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    // The file tells of the namespace of children.
    if link("time") != link("time_for_children") {
        return 0;
    }
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    monotonic_offset_ns(&offsets).unwrap_or(0)
}

/// Returns the offset of `CLOCK_MONOTONIC` among those of a time namespace, in nanoseconds.
fn monotonic_offset_ns(offsets: &str) -> Option<i128> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanoseconds) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
}

/// Gives the kernel types in the format of BTF, from which maps and programs take theirs.
fn types_of(types: &[u32], names: &[u8]) -> io::Result<OwnedFd> {
    const MAGIC: u16 = 0xeb9f;
    const HEADER: u32 = 24;
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let (types_bytes, names_bytes) = (length(size_of_val(types))?, length(names.len())?);
    let mut blob = MAGIC.to_ne_bytes().to_vec();
    blob.extend([1, 0]);
    let header = [HEADER, 0, types_bytes, types_bytes, names_bytes];
    for word in header.iter().chain(types) {
        blob.extend(word.to_ne_bytes());
    }
    blob.extend(names);
    Attribute::new().reads(0, &blob).word(16, length(blob.len())?).open(Command::TypesLoad)
}

/// The commands of `bpf(2)` that we give, by their numbers in `linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    ProgramRun = 10,
    ProgramById = 13,
    MapById = 14,
    InfoByDescriptor = 15,
    RawTracepointOpen = 17,
    TypesLoad = 18,
    MapLookupAndDelete = 21,
    MapFreeze = 22,
    MapLookupBatch = 24,
    LinkById = 30,
}

/// What the kernel keeps as long as somebody refers to it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum KernelObject {
    /// A program.
    Program,
    /// A map.
    Map,
    /// What has a program run: where it is attached.
    Link,
}

impl KernelObject {
    /// Says whether the kernel has this object by its number, which `fdinfo` in proc(5) shows as `prog_id`, `map_id` or `link_id`.
    ///
    /// # Errors
    ///
    /// Whoever asks may not know (root may).
    pub fn is_there(self, number: u32) -> io::Result<bool> {
        let by_number = match self {
            KernelObject::Program => Command::ProgramById,
            KernelObject::Map => Command::MapById,
            KernelObject::Link => Command::LinkById,
        };
        match Attribute::new().word(0, number).open(by_number) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // It goes just now.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// The argument of one command: `union bpf_attr`, filled field by field at the offsets of `linux/bpf.h`.
///
/// Fields that are not set are zero, which the kernel takes as "not given"; the size is that of all fields that we know.
struct Attribute<'a> {
    bytes: [u8; Attribute::SIZE],
    /// What the pointers in it point to stays borrowed as long as it lives.
    borrowed: std::marker::PhantomData<&'a mut [u8]>,
}

impl<'a> Attribute<'a> {
    const SIZE: usize = 144;

    fn new() -> Attribute<'a> {
        Attribute { bytes: [0; Attribute::SIZE], borrowed: std::marker::PhantomData }
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn long(mut self, at: usize, value: u64) -> Self {
        self.bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// A name of up to 15 bytes, for those who list maps and programs.
    fn name(mut self, at: usize, name: &str) -> Self {
        let length = name.len().min(15);
        self.bytes[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }

    /// The address of memory that the kernel reads.
    fn reads(self, at: usize, from: &'a [u8]) -> Self {
        let address = from.as_ptr().expose_provenance() as u64;
        self.long(at, address)
    }

    /// The address of memory that the kernel writes.
    fn writes(self, at: usize, to: &'a mut [u8]) -> Self {
        let address = to.as_mut_ptr().expose_provenance() as u64;
        self.long(at, address)
    }

    fn descriptor(self, at: usize, descriptor: RawFd) -> Self {
        self.word(at, descriptor.cast_unsigned())
    }

    fn word_at(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).map_or(0, |four| {
            let mut word = [0; 4];
            word.copy_from_slice(four);
            u32::from_ne_bytes(word)
        })
    }

    /// Gives the command to the kernel.
    ///
    /// The caller has checked that each memory range named in it is as long as the command reads or writes.
    fn run(&mut self, command: Command) -> io::Result<RawFd> {
        // SAFETY: `bytes` is as long as is said and ours for the call. The addresses in it were taken from slices that
        // are borrowed for longer than `self` lives, and each caller has checked their lengths against what the
        // command reads or writes there.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command as libc::c_long,
                self.bytes.as_mut_ptr(),
                Attribute::SIZE,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        RawFd::try_from(result).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Gives a command to the kernel that answers with a new descriptor.
    fn open(&mut self, command: Command) -> io::Result<OwnedFd> {
        let descriptor = self.run(command)?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_time_namespace_adds_is_read() {
        let offsets = "monotonic          100000         5\nboottime               7         0\n";
        assert_eq!(monotonic_offset_ns(offsets), Some(100_000_000_000_005));
        assert_eq!(monotonic_offset_ns("monotonic -3 999999999\n"), Some(-2_000_000_001));
        for wrong in ["", "boottime 7 0\n", "monotonic\n", "monotonic x 0\n"] {
            assert_eq!(monotonic_offset_ns(wrong), None, "{wrong}");
        }
    }
}
