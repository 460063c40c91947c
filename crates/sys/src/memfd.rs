//! Memory that is passed between processes: written once, sealed, and verified by the one who maps it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;

/// What makes memory constant for good: no byte and not the length can change, and neither can this.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Makes an empty file in memory that can be sealed; `name` is seen in `/proc/PID/fd` only.
///
/// # Errors
///
/// As `memfd_create(2)`.
pub fn create(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file =
        memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|error| match error {
            // Linux before 6.3 does not know the flag that forbids execution.
            Errno::INVAL => memfd_create(name, flags),
            other => Err(other),
        })?;
    Ok(File::from(file))
}

/// Seals `file`: from now on neither its bytes nor its length change, whoever holds it.
///
/// # Errors
///
/// As `fcntl(2)`: `EBUSY` while a mapping of it can be written.
pub fn seal(file: &File) -> io::Result<()> {
    fcntl_add_seals(file, SEALS).map_err(io::Error::from)
}

/// Memory of another process that cannot change any more, mapped to be read.
#[derive(Debug)]
pub struct Sealed(memmap2::Mmap);

/// How the pages of a mapping come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// All of them at once, while it is mapped.
    Now,
    /// Each when it is first looked at.
    Later,
}

impl Sealed {
    /// Maps the whole of `file` after it was verified that it is memory, sealed in every way, without holes,
    /// and not longer than `most` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is anything else; what `fcntl(2)`, `fstat(2)` and `mmap(2)` report.
    pub fn of(file: impl AsFd, most: u64, pages: Pages) -> io::Result<Sealed> {
        let file = file.as_fd();
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let seals = fcntl_get_seals(file).map_err(|error| match error {
            Errno::INVAL => refused("it is no memory file"),
            other => other.into(),
        })?;
        if !seals.contains(SEALS) {
            return Err(refused("it is not sealed"));
        }
        let status = rustix::fs::fstat(file)?;
        let length = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if length > most {
            return Err(refused("it is too long"));
        }
        // A sealed hole would cost its writer nothing and its reader a page for each look.
        if u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512) < length {
            return Err(refused("it has holes"));
        }
        let length = usize::try_from(length).map_err(|_| refused("it is too long"))?;
        let mut options = memmap2::MmapOptions::new();
        options.len(length);
        if pages == Pages::Now {
            options.populate();
        }
        // SAFETY: the seals say that nobody can write to these pages or cut them off, and that the seals stay, so
        // the bytes are as constant as those of any `&[u8]` and no access gets SIGBUS.
        let map = unsafe { options.map_copy_read_only(&file) }?;
        Ok(Sealed(map))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn memory(bytes: &[u8]) -> File {
        let mut file = create("test").unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn sealed_bytes_are_read_and_stay() {
        let mut file = memory(b"seven");
        seal(&file).unwrap();
        for pages in [Pages::Now, Pages::Later] {
            assert_eq!(Sealed::of(&file, 5, pages).unwrap().bytes(), b"seven");
        }
        assert!(file.write_all(b"more").is_err(), "a sealed file cannot grow");
        assert!(file.set_len(1).is_err(), "a sealed file cannot shrink");
    }

    #[test]
    fn what_could_change_under_the_reader_is_refused() {
        let why = |file: &File, most| {
            Sealed::of(file, most, Pages::Later).map(|_| ()).unwrap_err().to_string()
        };
        let open = memory(b"seven");
        assert_eq!(why(&open, 100), "it is not sealed");
        for missing in [SealFlags::SEAL, SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE] {
            let half = memory(b"seven");
            fcntl_add_seals(&half, SEALS.difference(missing)).unwrap();
            assert_eq!(why(&half, 100), "it is not sealed", "without {missing:?}");
        }
        seal(&open).unwrap();
        assert_eq!(why(&open, 4), "it is too long");
        assert_eq!(why(&tempfile::tempfile().unwrap(), 100), "it is no memory file");
        let hole = create("hole").unwrap();
        hole.set_len(1 << 20).unwrap();
        seal(&hole).unwrap();
        assert_eq!(why(&hole, 1 << 30), "it has holes");
    }
}
