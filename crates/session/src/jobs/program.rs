//! Whether a program loads our library: not one that is linked without a loader, and not one that gains privileges.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// So much of a program is read: its headers are at its beginning.
const HEADERS: u64 = 4096;
/// The segment that names the loader (elf(5)).
const INTERPRETER: u32 = 3;

/// What a program does with our library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preloads {
    /// It loads it, or has an interpreter that does.
    Yes,
    /// It does not: its files have to be found from outside.
    No,
}

impl Preloads {
    /// Looks at the program at `path`.
    #[must_use]
    pub fn of(path: &Path) -> Preloads {
        const SET_USER_OR_GROUP: u32 = 0o6000;
        if fs::metadata(path).is_ok_and(|data| data.mode() & SET_USER_OR_GROUP != 0) {
            return Preloads::No;
        }
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEADERS).read_to_end(&mut bytes));
        match read.ok().and_then(|_| has_interpreter(&bytes)) {
            Some(false) => Preloads::No,
            // A script, whose interpreter counts, or what cannot be read.
            Some(true) | None => Preloads::Yes,
        }
    }
}

/// Says whether an ELF file of this machine's byte order names a loader; `None` if it is none.
fn has_interpreter(bytes: &[u8]) -> Option<bool> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let part = bytes.get(at..at.checked_add(len)?)?;
        let mut wide = [0; 8];
        if cfg!(target_endian = "little") {
            wide.get_mut(..len)?.copy_from_slice(part);
        } else {
            wide.get_mut(8 - len..)?.copy_from_slice(part);
        }
        usize::try_from(u64::from_ne_bytes(wide)).ok()
    };
    if bytes.get(..4)? != b"\x7fELF" {
        return None;
    }
    let (table, size, count) = match bytes.get(4)? {
        1 => (number(28, 4)?, number(42, 2)?, number(44, 2)?),
        2 => (number(32, 8)?, number(54, 2)?, number(56, 2)?),
        _ => return None,
    };
    for at in 0..count {
        let kind = number(table.checked_add(at.checked_mul(size)?)?, 4)?;
        if u32::try_from(kind) == Ok(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_with_a_loader_and_a_script_load_the_library() {
        assert_eq!(Preloads::of(Path::new("/proc/self/exe")), Preloads::Yes);
        assert_eq!(Preloads::of(Path::new("/etc/passwd")), Preloads::Yes);
        assert_eq!(Preloads::of(Path::new("/no/such/program")), Preloads::Yes);
    }

    #[test]
    fn an_elf_file_without_a_loader_does_not() {
        let mut bytes = fs::read("/proc/self/exe").unwrap();
        bytes.truncate(4096);
        assert_eq!(has_interpreter(&bytes), Some(true));
        if bytes[4] == 2 && cfg!(target_endian = "little") {
            let table = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
            let table = usize::try_from(table).unwrap();
            for at in 0..usize::from(bytes[56]) {
                let kind = table + at * 56;
                if bytes[kind] == 3 {
                    bytes[kind] = 0;
                }
            }
            assert_eq!(has_interpreter(&bytes), Some(false));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_wild(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let magic = b"\x7fELF\x02";
            let len = bytes.len().min(magic.len());
            bytes[..len].copy_from_slice(&magic[..len]);
            has_interpreter(&bytes);
        }
    }
}
