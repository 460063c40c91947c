//! The ring of records that programs in the kernel fill and we empty.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Map, MapKind};

/// A ring map, mapped into our memory.
///
/// The kernel lays it out as a page that we write (how far we have read), a page that we read (how far is written), and
/// the data twice in a row, so that no record is ever cut by the end.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// The page with our position.
    ours: NonNull<u8>,
    /// The page with the kernel's position; the data follows.
    kernels: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mappings belong to the process, not to a thread, and are unmapped by whoever drops the ring; all that changes them
// takes `&mut self` or is atomic.
unsafe impl Send for Ring {}

/// Set in a record's length while it is written.
const BUSY: u32 = 1 << 31;
/// Set in a record's length when it was given up.
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;

impl Ring {
    /// Makes a ring of `size` bytes, a power of two of at least a page.
    ///
    /// # Errors
    ///
    /// As `bpf(2)` and `mmap(2)`.
    pub fn new(name: &str, size: u32) -> io::Result<Ring> {
        Ring::map_memory(Map::new(MapKind::Ring, name, 0, 0, size)?, size)
    }

    /// Maps a ring of `size` bytes that another process made, and of which this one is the only reader.
    ///
    /// # Errors
    ///
    /// As `mmap(2)`: `EINVAL` for a descriptor that is no ring, or one of another size.
    pub fn from_descriptor(descriptor: OwnedFd, size: u32) -> io::Result<Ring> {
        if !size.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ring::map_memory(Map::of_ring(descriptor), size)
    }

    fn map_memory(map: Map, size: u32) -> io::Result<Ring> {
        let size = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        let page = rustix::param::page_size();
        let shared = MapFlags::SHARED;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is touched.
        let ours = unsafe { mmap(std::ptr::null_mut(), page, both, shared, &map, 0) }?;
        let length = page + 2 * size;
        let at = page as u64;
        // SAFETY: as above.
        let kernels =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, shared, &map, at) };
        let kernels = match kernels {
            Ok(kernels) => kernels,
            Err(e) => {
                // SAFETY: `ours` was mapped above with this length, and nothing refers to it.
                let _ = unsafe { munmap(ours, page) };
                return Err(e.into());
            }
        };
        let (Some(ours), Some(kernels)) = (NonNull::new(ours.cast()), NonNull::new(kernels.cast()))
        else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(Ring { map, ours, kernels, page, size })
    }

    /// Returns the map that programs write to.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    fn our_position(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives and is aligned; the kernel only ever reads this word, and
        // this program changes it through this atomic alone.
        unsafe { AtomicU64::from_ptr(self.ours.as_ptr().cast()) }
    }

    fn written_position(&self) -> u64 {
        // SAFETY: the page is mapped as long as `self` lives and is aligned; the kernel writes the word as a whole, and
        // a load with acquire order is allowed on memory that is mapped read-only.
        unsafe { AtomicU64::from_ptr(self.kernels.as_ptr().cast()) }.load(Ordering::Acquire)
    }

    /// Returns the length word of the record at `at`, which is below `size` and a multiple of 8.
    fn length_word(&self, at: usize) -> u32 {
        // SAFETY: `page + at` is inside the mapping of `page + 2 * size` bytes.
        let word = unsafe { self.kernels.add(self.page + at) };
        // SAFETY: the word is aligned, since pages are and `at` is a multiple of 8; the kernel changes it as a whole.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }.load(Ordering::Acquire)
    }

    /// Says whether nothing is left to take, and nothing is being written either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.our_position().load(Ordering::Relaxed) >= self.written_position()
    }

    /// Gives each record that is there to `each`, at most `most` of them, and returns how many there were.
    ///
    /// A record's bytes are gone when `each` returns.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        self.offer(most, |record| {
            each(record);
            true
        })
    }

    /// Gives each record that is there to `each`, at most `most` of them, until `each` refuses one, which stays. Returns how many went.
    pub fn offer(&mut self, most: usize, mut each: impl FnMut(&[u8]) -> bool) -> usize {
        let mut taken = 0;
        let mut position = self.our_position().load(Ordering::Relaxed);
        let written = self.written_position();
        while position < written && taken < most {
            let at = usize::try_from(position).unwrap_or(usize::MAX) & (self.size - 1) & !7;
            let word = self.length_word(at);
            if word & BUSY != 0 {
                break;
            }
            let length = usize::try_from(word & !DISCARDED).unwrap_or(usize::MAX);
            if length > self.size - HEADER {
                // The kernel never writes this; going on would read past the ring.
                break;
            }
            if word & DISCARDED == 0 {
                // SAFETY: the data follows the header inside the doubled mapping, since `at` is below `size` and
                // `length` at most `size - HEADER`.
                let data = unsafe { self.kernels.add(self.page + at + HEADER) };
                // SAFETY: the kernel does not touch a finished record until our position is past it, which is stored
                // after `each` has returned, and nothing keeps the slice.
                let record = unsafe { std::slice::from_raw_parts(data.as_ptr(), length) };
                if !each(record) {
                    break;
                }
            }
            position += (length + HEADER).next_multiple_of(8) as u64;
            self.our_position().store(position, Ordering::Release);
            taken += 1;
        }
        taken
    }
}

impl AsFd for Ring {
    /// Readable when a program has woken us for a record.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.ours.as_ptr().cast(), self.page) };
        let length = self.page + 2 * self.size;
        // SAFETY: as above.
        let _ = unsafe { munmap(self.kernels.as_ptr().cast(), length) };
    }
}
