//! Files that are written for what is measured.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Writes a file that is not there yet.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(bytes)
}
