//! Regular files that others may have replaced by something that blocks its reader.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Opens a regular file for reading, and nothing else.
///
/// A FIFO that nobody writes into and a device are refused at once, where [`File::open`] may wait without end.
///
/// # Errors
///
/// `EISDIR` for a directory, `InvalidInput` for all else that is no regular file, and the errors of `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// Opens a regular file for reading as [`open`] does, with further flags.
///
/// # Errors
///
/// Those of [`open`].
pub fn open_with(path: &Path, more: OFlags) -> io::Result<File> {
    // O_NONBLOCK, so that a FIFO in the place of a file does not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags | more, Mode::empty())?);
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Reads a regular file whole.
///
/// # Errors
///
/// Those of [`open`] and of `read(2)`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of text whole.
///
/// # Errors
///
/// Those of [`read`], and `InvalidData` if it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test makes files of its own")]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(open(&fifo).unwrap_err().to_string(), "not a regular file");
        assert_eq!(open(Path::new("/dev/null")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file).unwrap(), b"text");
        assert_eq!(read_to_string(&file).unwrap(), "text");
    }
}
