//! The bare system calls on one thread: what any listing must do, and nothing else.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use sys::dir::{OpenDirectory, StatxFlags, StatxTimestamp};

/// The largest piece that `getdents64` is worth asking for.
const BUFFER: usize = 1 << 20;

/// Names one after another, each with its NUL, and their types.
#[derive(Debug, Default)]
pub(super) struct Names {
    arena: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<u8>,
}

/// What a detailed view shows of a file.
#[derive(Debug)]
#[expect(dead_code, reason = "it is kept as a client would keep it")]
struct Record {
    size: u64,
    inode: u64,
    mode: u16,
    user: u32,
    group: u32,
    times: [StatxTimestamp; 4],
}

/// Reads all names with `getdents64`; returns how many there are.
pub(super) fn names(path: &Path) -> io::Result<usize> {
    let directory = OpenDirectory::open(path)?;
    Ok(read(&directory)?.ends.len())
}

/// Reads all names, and the attributes of each with `statx`; returns how many there are.
pub(super) fn attributes(path: &Path) -> io::Result<usize> {
    let directory = OpenDirectory::open(path)?;
    let names = read(&directory)?;
    let mut records = Vec::with_capacity(names.ends.len());
    let mut start = 0;
    for end in &names.ends {
        let end = *end as usize;
        let name = CStr::from_bytes_with_nul(&names.arena[start..end])
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        start = end;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let status = directory.status(name, wanted)?;
        records.push(Record {
            size: status.stx_size,
            inode: status.stx_ino,
            mode: status.stx_mode,
            user: status.stx_uid,
            group: status.stx_gid,
            times: [status.stx_mtime, status.stx_atime, status.stx_ctime, status.stx_btime],
        });
    }
    Ok(std::hint::black_box(records).len())
}

fn read(directory: &OpenDirectory) -> io::Result<Names> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut names = Names::default();
    let mut too_long = false;
    loop {
        let more = directory.read(&mut buffer, |name| {
            names.arena.extend_from_slice(name.name.to_bytes_with_nul());
            names.kinds.push(name.kind);
            match u32::try_from(names.arena.len()) {
                Ok(end) => names.ends.push(end),
                Err(_) => too_long = true,
            }
        })?;
        if too_long {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if !more {
            std::hint::black_box(&names.kinds);
            return Ok(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_calls_find_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let corpus = super::super::Corpus::make(dir.path(), 3000, &stop).unwrap();
        assert_eq!(names(corpus.path()).unwrap(), 3000);
        assert_eq!(attributes(corpus.path()).unwrap(), 3000);
        assert!(names(&dir.path().join("none")).is_err());
    }
}
