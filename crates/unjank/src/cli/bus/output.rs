//! The files that records and reports go into: they hold whole messages, so only their owner may read them.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::cli::screen;
use crate::error::{Error, FailureCategory};

/// The mode of a file that its owner alone reads and writes.
const OWNER: u32 = 0o600;

/// Opens the file: a new one, or a pipe or device that is there.
#[expect(clippy::disallowed_methods, reason = "a record for a program")]
pub(super) fn create(path: &Path) -> Result<File, Error> {
    let cannot = |error: io::Error| {
        Error::new(FailureCategory::User, format!("write {}", path.display())).because(error)
    };
    if path == Path::new("-") {
        let is_terminal = screen::is_terminal();
        if is_terminal {
            return Err(Error::new(FailureCategory::User, "write a recording to a terminal")
                .hint("redirect it to a file or a program, for example | tshark -r -"));
        }
        let shared =
            std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned().map_err(cannot)?;
        let file = File::from(shared);
        // A pipe of our own description can be written without waiting, whatever its other holders want.
        return if file.metadata().map_err(cannot)?.file_type().is_fifo() {
            let own = OpenOptions::new()
                .write(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
                .open("/proc/self/fd/1");
            Ok(own.unwrap_or(file))
        } else {
            Ok(file)
        };
    }
    let exists = path.metadata().is_ok_and(|found| !found.is_file());
    if exists {
        // Opening a pipe waits for its reader.
        return OpenOptions::new().write(true).open(path).map_err(cannot);
    }
    OpenOptions::new().write(true).create_new(true).mode(OWNER).open(path).map_err(cannot)
}

/// Opens the file of a report, new or in place of what it holds.
pub(super) fn replace(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER).open(path)?;
    if file.metadata()?.is_file() {
        // One that was there may have been readable for others; whose it is not, he decides.
        let _ = file.set_permissions(Permissions::from_mode(OWNER));
    }
    Ok(file)
}

/// Opens the file of a report, which must not exist.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(OWNER).open(path)
}
