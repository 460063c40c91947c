//! File mappings.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

/// A whole file mapped privately and read-only.
#[derive(Debug)]
pub struct Map(memmap2::Mmap);

impl Map {
    /// Maps the whole of `file`.
    ///
    /// # Errors
    ///
    /// Whatever `mmap` reports; an empty file maps to an empty slice.
    pub fn of(file: &File) -> io::Result<Map> {
        // SAFETY: the bytes are only promised to be readable, not to stay the same; every decoder
        // over them is safe code on `&[u8]` that checks bounds on each read. The files are replaced
        // by rename and never shortened by us; a user who truncates one gets SIGBUS, as documented.
        unsafe { memmap2::MmapOptions::new().map_copy_read_only(file) }.map(Map)
    }

    /// Returns the mapped bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One byte at the start of a file, shared with other processes: a flag that some raise and others look at.
///
/// Somebody who makes the file shorter than a byte while it is mapped has its readers killed by SIGBUS; such files
/// belong in a directory that only the user can write.
#[derive(Debug)]
pub struct SharedByte(memmap2::MmapRaw);

impl SharedByte {
    /// Maps the first byte of `file`, to be read.
    ///
    /// # Errors
    ///
    /// Whatever `mmap` reports.
    pub fn to_read(file: &File) -> io::Result<SharedByte> {
        memmap2::MmapOptions::new().len(1).map_raw_read_only(file).map(SharedByte)
    }

    /// Returns the byte as it is now, without a system call.
    #[must_use]
    pub fn load(&self) -> u8 {
        // SAFETY: the mapping is one byte long, lives as long as `self`, and a byte is always aligned. Every
        // access to it from this process is atomic and goes through this type; a relaxed load is allowed on memory
        // that is mapped read-only.
        unsafe { AtomicU8::from_ptr(self.0.as_mut_ptr()) }.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_byte_that_is_written_is_seen_through_the_mapping() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(2).expect("two bytes");
        let reader = SharedByte::to_read(&file).expect("a mapping");
        assert_eq!(reader.load(), 0);
        file.write_all_at(&[1], 0).expect("a byte");
        assert_eq!(reader.load(), 1);
    }
}
