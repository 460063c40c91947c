//! Maps: memory that programs in the kernel and we share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Attribute, Command, types_of};

/// What a map is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapKind {
    /// Keys of any bytes; memory is taken as entries come.
    Hash,
    /// As `Hash`, with keys of four bytes and values that begin with a timer of 16 bytes.
    TimerHash,
    /// Values by number, all there from the start.
    Array,
    /// As `Array`, but programs only read it, and once it is frozen its values are constants to them.
    Constants,
    /// Values by number, apart for each CPU.
    PerCpuArray,
    /// One value for each thread, with the thread's life; only programs reach it.
    TaskStorage,
    /// A ring of records from programs to us; its "entries" are bytes, a power of two of at least a page.
    Ring,
}

impl MapKind {
    /// Its number and flags in `linux/bpf.h`.
    fn number_and_flags(self) -> (u32, u32) {
        const NO_PREALLOC: u32 = 1;
        const READ_ONLY_TO_PROGRAMS: u32 = 1 << 7;
        match self {
            MapKind::Hash | MapKind::TimerHash => (1, NO_PREALLOC),
            MapKind::Array => (2, 0),
            MapKind::Constants => (2, READ_ONLY_TO_PROGRAMS),
            MapKind::PerCpuArray => (6, 0),
            MapKind::TaskStorage => (29, NO_PREALLOC),
            MapKind::Ring => (27, 0),
        }
    }
}

/// A map.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    /// What one lookup gives: for the kinds per CPU, a value for each possible CPU.
    value_bytes: usize,
}

/// How many CPUs the machine can have: maps per CPU have a value for each.
fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Gives the kernel the types of a task storage's key (`int`, type 1) and value (`u64[words]`, type 3), without which it
/// makes none.
fn storage_types(words: u32) -> io::Result<OwnedFd> {
    // Each type: name, kind, size; then for a number its encoding and bits, for an array its element, index and length.
    types_of(
        &[1, KIND_INT, 4, SIGNED | 32, 5, KIND_INT, 8, 64, 0, KIND_ARRAY, 0, 2, 1, words],
        b"\0int\0u64\0",
    )
}

/// Gives the kernel the types of a key (`int`, type 1) and of a value that begins with a timer (type 5).
fn timer_types(value_bytes: u32) -> io::Result<OwnedFd> {
    const KIND_STRUCTURE: u32 = 4 << 24;
    let words = value_bytes.div_ceil(8);
    types_of(
        &[
            [1, KIND_INT, 4, SIGNED | 32].as_slice(),
            &[5, KIND_INT, 8, 64],
            // `struct bpf_timer { u64 words[2]; }`.
            &[0, KIND_ARRAY, 0, 2, 1, 2],
            &[9, KIND_STRUCTURE | 1, 16, 31, 3, 0],
            // The value: the timer, and words behind it.
            &[19, KIND_STRUCTURE | 2, value_bytes, 25, 4, 0, 31, 6, 128],
            &[0, KIND_ARRAY, 0, 2, 1, words.saturating_sub(2)],
        ]
        .concat(),
        b"\0int\0u64\0bpf_timer\0value\0timer\0words\0",
    )
}

const KIND_INT: u32 = 1 << 24;
const KIND_ARRAY: u32 = 3 << 24;
/// The encoding of numbers with a sign.
const SIGNED: u32 = 1 << 24;

impl Map {
    /// Makes a map of up to `entries` pairs; a ring of `entries` bytes. Sizes are in bytes.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: `EPERM` without the right to it, `EINVAL` for what the kernel does not know.
    pub fn new(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> io::Result<Map> {
        let (number, flags) = kind.number_and_flags();
        let mut attribute = Attribute::new()
            .word(0, number)
            .word(4, key_bytes)
            .word(8, value_bytes)
            .word(12, entries)
            .word(16, flags)
            .name(28, name);
        let types = match kind {
            MapKind::TaskStorage => Some((storage_types(value_bytes.div_ceil(8))?, 3)),
            MapKind::TimerHash => Some((timer_types(value_bytes)?, 5)),
            _ => None,
        };
        if let Some((types, value)) = &types {
            attribute = attribute.descriptor(48, types.as_raw_fd()).word(52, 1).word(56, *value);
        }
        let descriptor = attribute.open(Command::MapCreate)?;
        let one = usize::try_from(value_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let value_bytes = match kind {
            MapKind::PerCpuArray => one.next_multiple_of(8) * possible_cpus()?,
            _ => one,
        };
        let key_bytes = usize::try_from(key_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Map { descriptor, key_bytes, value_bytes })
    }

    /// Returns the map of a ring that another process made; it has no keys and values.
    pub(super) fn of_ring(descriptor: OwnedFd) -> Map {
        Map { descriptor, key_bytes: 0, value_bytes: 0 }
    }

    fn attribute(&self) -> Attribute<'_> {
        Attribute::new().descriptor(0, self.descriptor.as_raw_fd())
    }

    fn check_key(&self, key: &[u8]) -> io::Result<()> {
        if key.len() == self.key_bytes { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn read(&self, command: Command, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check_key(key)?;
        let mut value = vec![0; self.value_bytes];
        let read = self.attribute().reads(8, key).writes(16, &mut value).run(command);
        match read {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the value of `key`; none if there is none.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; `InvalidInput` for a key of another size.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.read(Command::MapLookup, key)
    }

    /// Takes the value of `key` out of a hash.
    ///
    /// # Errors
    ///
    /// As [`get`](Map::get).
    pub fn take(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.read(Command::MapLookupAndDelete, key) {
            // Kernels before 5.14 cannot do both at once for a hash.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let value = self.get(key)?;
                self.remove(key)?;
                Ok(value)
            }
            other => other,
        }
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: `E2BIG` for a full map; `InvalidInput` for a key or value of another size.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update(key, value, 0)
    }

    /// Sets the value of `key` where it has none yet.
    ///
    /// # Errors
    ///
    /// As [`set`](Map::set), and `EEXIST` for a key that has a value, which stays.
    pub fn add(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        /// `BPF_NOEXIST`.
        const IF_NEW: u64 = 1;
        self.update(key, value, IF_NEW)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        self.check_key(key)?;
        if value.len() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attribute = self.attribute().reads(8, key).reads(16, value).long(24, flags);
        attribute.run(Command::MapUpdate).map(|_| ())
    }

    /// Makes its values unchangeable from outside of programs.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn freeze(&self) -> io::Result<()> {
        self.attribute().run(Command::MapFreeze).map(|_| ())
    }

    /// Removes `key`, if it is there.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; `InvalidInput` for a key of another size.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.check_key(key)?;
        match self.attribute().reads(8, key).run(Command::MapDelete) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns all pairs of a hash. What is added or removed meanwhile may be missed; what stays is not.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn pairs(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut pairs = Vec::new();
        self.visit(|key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(pairs)
    }

    /// Gives each pair of a hash to `each`, of which few are held at a time.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`, and the first error of `each`, after which nothing more is given to it.
    pub fn visit(&self, mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut has_begun = false;
        let visited = self.visit_in_batches(|key, value| {
            has_begun = true;
            each(key, value)
        });
        match visited {
            // Kernels before 5.6, and kinds without batches.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && !has_begun => {
                self.visit_one_by_one(each)
            }
            other => other,
        }
    }

    fn visit_in_batches(
        &self,
        mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        // The position is opaque, and as long as a key or a 32-bit number.
        let mut position: Vec<u8> = Vec::new();
        let mut at_once = 256_usize;
        loop {
            let mut next = vec![0; self.key_bytes.max(8)];
            let mut keys = vec![0; self.key_bytes * at_once];
            let mut values = vec![0; self.value_bytes * at_once];
            let count = u32::try_from(at_once).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut attribute = Attribute::new()
                .writes(8, &mut next)
                .writes(16, &mut keys)
                .writes(24, &mut values)
                .word(32, count)
                .descriptor(36, self.descriptor.as_raw_fd());
            if !position.is_empty() {
                attribute = attribute.reads(0, &position);
            }
            let result = attribute.run(Command::MapLookupBatch);
            let read = usize::try_from(attribute.word_at(32)).unwrap_or(0).min(at_once);
            let last = match result {
                Ok(_) => false,
                Err(e) if e.kind() == io::ErrorKind::NotFound => true,
                // A bucket holds more than there was room for.
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && at_once < 1 << 16 => {
                    at_once *= 2;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let keys = keys.chunks_exact(self.key_bytes);
            let values = values.chunks_exact(self.value_bytes);
            for (key, value) in keys.zip(values).take(read) {
                each(key, value)?;
            }
            if last {
                return Ok(());
            }
            position = next;
        }
    }

    fn visit_one_by_one(
        &self,
        mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut key: Option<Vec<u8>> = None;
        loop {
            let mut next = vec![0; self.key_bytes];
            let mut attribute = self.attribute();
            if let Some(key) = &key {
                attribute = attribute.reads(8, key);
            }
            match attribute.writes(16, &mut next).run(Command::MapNextKey) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e),
            }
            if let Some(value) = self.get(&next)? {
                each(&next, &value)?;
            }
            key = Some(next);
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What an instruction needs to know of a map: its descriptor, which must stay open until the program is loaded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharedMap(pub(super) i32);

impl From<&Map> for SharedMap {
    fn from(map: &Map) -> SharedMap {
        SharedMap(map.descriptor.as_raw_fd())
    }
}
