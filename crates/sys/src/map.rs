//! File mappings.

use std::fs::File;
use std::io;

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
