//! The MIME type of a file, by its name and by what is in it, as the shared-mime-info files say.
//!
//! Shared MIME-info Database specification 0.21: `globs2` and `magic` in each `mime` directory, of which the more
//! important ones add to and overrule the others. [`crate::mime_types`] knows how types relate.

mod globs;
mod magic;

pub use globs::Globs;
pub use magic::Magic;

use std::path::Path;

/// The longest file of the database that is read; real ones have 60 KiB.
const LONGEST: u64 = 8 << 20;

/// Reads a file of the database; nothing if there is none, or it is too long.
fn contents(path: &Path) -> Vec<u8> {
    // Opening a pipe would wait for somebody who writes into it.
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Vec::new();
    }
    let Ok(file) = std::fs::File::open(path) else { return Vec::new() };
    let mut bytes = Vec::new();
    match std::io::Read::read_to_end(&mut std::io::Read::take(file, LONGEST + 1), &mut bytes) {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length <= LONGEST) => bytes,
        _ => Vec::new(),
    }
}
