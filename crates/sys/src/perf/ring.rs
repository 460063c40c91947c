//! The memory in which the kernel leaves the records of an event, as `perf_event_open(2)` describes it.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The offset of `data_head` in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
/// The offset of `data_tail`.
const TAIL: usize = 1032;

/// The ring of an event.
#[derive(Debug)]
pub(super) struct EventRing {
    base: NonNull<u8>,
    page: usize,
    /// Pages without the first.
    pages: usize,
    copy: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on the thread that reads it.
unsafe impl Send for EventRing {}

impl EventRing {
    /// Maps the ring of an event: its first page and `pages` of records, a power of two.
    ///
    /// # Errors
    ///
    /// As `mmap(2)`; `ENOMEM` where the memory that the user may lock is used up, for which the kernel says `EPERM` here.
    pub(super) fn map(event: &OwnedFd, pages: usize) -> io::Result<EventRing> {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is touched.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page * (1 + pages),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )
        };
        let base = base.map_err(|error| match error {
            Errno::PERM => Errno::NOMEM,
            other => other,
        })?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(EventRing { base, page, pages, copy: Vec::new() })
    }

    /// Returns one of the two positions in the first page: where the kernel writes, or where we read.
    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both lie in the first page, which is mapped as long as `self` lives.
        let word = unsafe { self.base.add(at) };
        // SAFETY: the word is aligned; the kernel changes it as a whole, and we change ours through this atomic alone.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Returns whether no record is there.
    pub(super) fn is_empty(&self) -> bool {
        let written = self.position(HEAD).load(Ordering::Acquire);
        written == self.position(TAIL).load(Ordering::Relaxed)
    }

    /// Gives each record that is there to `each`: its type, and what follows its header.
    pub(super) fn take(&mut self, mut each: impl FnMut(RecordHeader, &[u8])) {
        let size = self.page * self.pages;
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        let length = usize::try_from(head.wrapping_sub(tail)).unwrap_or(0).min(size);
        let start = usize::try_from(tail).unwrap_or(0) % size;
        for (from, count) in
            [(start, length.min(size - start)), (0, length.saturating_sub(size - start))]
        {
            // SAFETY: `from + count` is at most `size`, and the data of `size` bytes follow the first page.
            let data = unsafe { self.base.add(self.page + from) };
            // SAFETY: the kernel does not write between our position and its own, and nothing keeps the slice.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(data.as_ptr(), count) });
        }
        self.position(TAIL).store(head, Ordering::Release);
        let mut rest = &copy[..];
        while let Some((header, record)) = next_record(&mut rest) {
            each(header, record);
        }
        self.copy = copy;
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page * (1 + self.pages)) };
    }
}

/// The beginning of `struct perf_event_header`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RecordHeader {
    /// `type`.
    pub(super) kind: u32,
    /// `misc`.
    pub(super) flags: u16,
}

/// Takes a record off the front: its header, and what follows.
fn next_record<'a>(rest: &mut &'a [u8]) -> Option<(RecordHeader, &'a [u8])> {
    let kind = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
    let flags = u16::from_ne_bytes(rest.get(4..6)?.try_into().ok()?);
    let size = usize::from(u16::from_ne_bytes(rest.get(6..8)?.try_into().ok()?));
    let record = rest.get(8..size)?;
    *rest = rest.get(size..)?;
    Some((RecordHeader { kind, flags }, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_one_after_another_and_a_torn_one_is_none() {
        let mut bytes = Vec::new();
        for (kind, flags, body) in [(14_u32, 0x2000_u16, 8_u16), (9, 0, 16)] {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend((8 + body).to_ne_bytes());
            bytes.extend(vec![7; body.into()]);
        }
        let mut rest = &bytes[..];
        let first = next_record(&mut rest).expect("a record");
        assert_eq!(first, (RecordHeader { kind: 14, flags: 0x2000 }, &[7; 8][..]));
        assert_eq!(next_record(&mut rest).expect("a second").1.len(), 16);
        assert!(rest.is_empty());
        for length in 0..16 {
            assert!(next_record(&mut &bytes[..length]).is_none(), "{length}");
        }
        // A size of less than its header would never end.
        assert!(next_record(&mut &[0; 64][..]).is_none());
    }
}
