//! Log files: direct, synchronous writes of whole sectors, or page cache and `fdatasync` where those are refused.
//!
//! A page of the cache is 4 KiB, so a log of small records that goes through it writes each page again for every
//! record. A direct write of one sector puts that sector on the medium and nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{self, Advice, AtFlags, Mode, OFlags, StatxFlags};

use super::opened::{read_exactly, stat_of};
use super::{LogFile, MAX_READ_BYTES};

/// The block of a file that is written through the page cache.
const CACHED_BLOCK: usize = 512;
/// The zeros that one write lays down.
const ZEROS_PER_WRITE: usize = 1 << 16;

/// Opens `path` as a log.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn LogFile>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let cached = File::from(fs::open(path, flags, Mode::empty())?);
    let stat = stat_of(&cached)?;
    if !stat.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // A killed process may have left records in the page cache only.
    cached.sync_data()?;
    let direct = open_direct(path, &cached)?;
    Ok(Box::new(RealLog { len: stat.len, identity: stat.identity, cached, direct }))
}

/// A log on the real disk.
#[derive(Debug)]
struct RealLog {
    len: u64,
    identity: (u64, u64),
    cached: File,
    direct: Option<Direct>,
}

/// The same file open for direct, synchronous writes.
#[derive(Debug)]
struct Direct {
    file: File,
    block_len: usize,
    buffer: AlignedBuffer,
}

impl LogFile for RealLog {
    fn block_len(&self) -> usize {
        self.direct.as_ref().map_or(CACHED_BLOCK, |direct| direct.block_len)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        if self.len > MAX_READ_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // After a failed sync the kernel may call a page clean that never reached the medium. Dropping the clean
        // pages makes the medium answer.
        fs::fadvise(&self.cached, 0, None, Advice::DontNeed)?;
        let mut bytes = vec![0; usize::try_from(self.len).map_err(io::Error::other)?];
        self.cached.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        read_exactly(&self.cached, at, len as u64)
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }

    fn extend(&mut self, len: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_PER_WRITE];
        let mut at = self.len;
        while at < len {
            let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(zeros.len());
            self.cached.write_all_at(&zeros[..count], at)?;
            at += count as u64;
        }
        self.cached.sync_data()?;
        self.len = self.len.max(len);
        Ok(())
    }

    fn write_blocks(&mut self, at: u64, blocks: &[u8]) -> io::Result<()> {
        match &mut self.direct {
            Some(direct) => direct.file.write_all_at(direct.buffer.filled_with(blocks), at),
            None => {
                self.cached.write_all_at(blocks, at)?;
                self.cached.sync_data()
            }
        }
    }

    fn write_cached(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.cached.write_all_at(bytes, at)?;
        self.len = self.len.max(at + bytes.len() as u64);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.cached.sync_data()
    }
}

/// Opens `path` for direct writes, `None` where the file system or the device refuses them.
fn open_direct(path: &Path, cached: &File) -> io::Result<Option<Direct>> {
    let Ok(stat) = fs::statx(cached, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(None);
    };
    // A kernel before 6.1 leaves both zero, as a file system without direct writes does. Then the block of the
    // page cache is tried: a refusal is seen at the first write below.
    let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
    let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let (memory, offset) = if told { (memory, offset) } else { (4096, 4096) };
    let (Ok(memory), Ok(offset)) = (usize::try_from(memory), usize::try_from(offset)) else {
        return Ok(None);
    };
    if !memory.is_power_of_two() || !offset.is_power_of_two() || memory > 65536 {
        return Ok(None);
    }
    // A direct write of a page is no smaller than what the page cache writes, and on btrfs it costs twice as much.
    if offset >= 4096 {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT | OFlags::DSYNC | OFlags::NOCTTY;
    let Ok(file) = fs::open(path, flags | OFlags::NONBLOCK, Mode::empty()) else {
        return Ok(None);
    };
    let file = File::from(file);
    if stat_of(&file)?.identity != stat_of(cached)?.identity {
        return Err(io::Error::other("the file was replaced while it was opened"));
    }
    let block_len = offset.max(512);
    let mut buffer = AlignedBuffer::new(memory);
    if !told && file.read_at(buffer.filled_with(&[0; 4096]), 0).is_err() {
        return Ok(None);
    }
    Ok(Some(Direct { file, block_len, buffer }))
}

/// Memory that starts at a multiple of `alignment`, as direct writes need it.
#[derive(Debug)]
struct AlignedBuffer {
    bytes: Vec<u8>,
    alignment: usize,
}

impl AlignedBuffer {
    fn new(alignment: usize) -> AlignedBuffer {
        AlignedBuffer { bytes: Vec::new(), alignment }
    }

    /// Copies `contents` to an aligned place and returns it.
    fn filled_with(&mut self, contents: &[u8]) -> &mut [u8] {
        if self.bytes.len() < contents.len() + self.alignment {
            self.bytes.resize(contents.len() + self.alignment, 0);
        }
        let start = self.bytes.as_ptr().addr().next_multiple_of(self.alignment)
            - self.bytes.as_ptr().addr();
        let aligned = &mut self.bytes[start..start + contents.len()];
        aligned.copy_from_slice(contents);
        aligned
    }
}
