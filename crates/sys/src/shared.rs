//! Memory that a process shares with those that it forks, to hand work over without copying it.
//!
//! The processes that share it are two sides of one program: who fills a slot says so by other means, and does not touch
//! it again before the other side has given it back. Nothing here is for memory of a process that is not trusted.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::MmapMut;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Memory in slots of one size, the same memory for this process and for those that it forks from now on.
#[derive(Debug)]
pub struct Slots {
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    map: Mapping,
    size: usize,
    /// Which slots this process uses now.
    used: Vec<AtomicBool>,
}

/// A slot that this process uses: nobody else in it does.
#[derive(Debug)]
pub struct Slot {
    memory: Arc<Memory>,
    number: usize,
}

/// Memory that stays the same one in a process that is forked; a private mapping would become a copy.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory alone; what is in it is guarded by those who refer to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(length: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // A page takes memory when something is written into it, and nobody is promised all of it.
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses where nothing else is.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever refers to it keeps it from being dropped.
        // It stays if this fails, which costs memory alone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Slots {
    /// Makes room for `count` slots of `size` bytes. A page takes memory when something is written into it.
    ///
    /// # Errors
    ///
    /// As `mmap(2)`.
    pub fn new(count: usize, size: usize) -> io::Result<Slots> {
        let length = count.checked_mul(size).filter(|length| *length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        let map = Mapping::of(length)?;
        let used = (0..count).map(|_| AtomicBool::new(false)).collect();
        Ok(Slots { memory: Arc::new(Memory { map, size, used }) })
    }

    /// Returns how many slots there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.memory.used.len()
    }

    /// Takes a slot; none if this process uses it already, or there is no such slot.
    #[must_use]
    pub fn take(&self, number: usize) -> Option<Slot> {
        let used = self.memory.used.get(number)?;
        let was_used = used.swap(true, Ordering::Acquire);
        (!was_used).then(|| Slot { memory: Arc::clone(&self.memory), number })
    }
}

impl Slot {
    /// Returns which one it is.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    fn start(&self) -> NonNull<u8> {
        let begin = self.number * self.memory.size;
        // SAFETY: the slot was taken, so that its begin lies within the mapping.
        unsafe { self.memory.map.start.add(begin) }
    }

    /// Gives the pages back to the system; they hold zeros when they are used again.
    ///
    /// # Errors
    ///
    /// As `madvise(2)`; the memory stays as it is.
    pub fn discard(&mut self) -> io::Result<()> {
        let (start, size) = (self.start(), self.memory.size);
        // SAFETY: the range lies within the mapping, this process uses it through this slot alone, and zeros are bytes.
        unsafe {
            rustix::mm::madvise(start.as_ptr().cast(), size, rustix::mm::Advice::LinuxRemove)
        }?;
        Ok(())
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping, which lives as long as this slot; in this process only this slot
        // refers to it, and the other process does not write to it before it is given back.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.memory.size) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the other process does not read it before it is handed over.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.memory.size) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(used) = self.memory.used.get(self.number) {
            used.store(false, Ordering::Release);
        }
    }
}

/// Memory for one thing that is too long for a slot, to be passed to another process by its descriptor.
#[derive(Debug)]
pub struct Passed {
    map: MmapMut,
    file: File,
}

impl Passed {
    /// Makes memory of `length` bytes.
    ///
    /// # Errors
    ///
    /// As `memfd_create(2)` and `mmap(2)`.
    pub fn new(length: usize) -> io::Result<Passed> {
        let file = crate::memfd::create("unjank-passed")?;
        file.set_len(u64::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?)?;
        Passed::map(file)
    }

    /// Maps what another process passed.
    ///
    /// # Errors
    ///
    /// As `mmap(2)`.
    pub fn of(descriptor: OwnedFd) -> io::Result<Passed> {
        Passed::map(File::from(descriptor))
    }

    fn map(file: File) -> io::Result<Passed> {
        // SAFETY: the file is one of ours without a name; the other process that has it is the same program, which
        // neither cuts it off nor writes to it while this process uses it.
        let map = unsafe { MmapMut::map_mut(&file) }?;
        Ok(Passed { map, file })
    }
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for Passed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl DerefMut for Passed {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

/// Numbers that both processes see as they change.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    map: Mapping,
}

impl<const N: usize> Counters<N> {
    /// Makes `N` of them, which are 0.
    ///
    /// # Errors
    ///
    /// As `mmap(2)`; `InvalidInput` if there are to be none.
    pub fn new() -> io::Result<Counters<N>> {
        let length = Some(N * size_of::<AtomicU64>()).filter(|length| *length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Counters { map: Mapping::of(length)? })
    }

    fn all(&self) -> &[AtomicU64; N] {
        let start = self.map.start.cast::<[AtomicU64; N]>();
        // SAFETY: the mapping is long enough, its pages are aligned to more than 8 bytes, and every process that has it
        // touches it by atomic operations alone.
        unsafe { start.as_ref() }
    }

    /// Returns all of them.
    #[must_use]
    pub fn load(&self) -> [u64; N] {
        std::array::from_fn(|at| self.all()[at].load(Ordering::Relaxed))
    }

    /// Sets all of them, one after the other.
    pub fn store(&self, values: [u64; N]) {
        for (counter, value) in self.all().iter().zip(values) {
            counter.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the copy of this test program that forks.
    const FORKS: &str = "UNJANK_TEST_SHARED_FORKS";

    #[test]
    fn a_slot_is_used_once_at_a_time() {
        let slots = Slots::new(2, 4096).unwrap();
        let mut one = slots.take(0).unwrap();
        assert!(slots.take(0).is_none() && slots.take(2).is_none());
        let two = slots.take(1).unwrap();
        one[4095] = 7;
        assert_eq!((one.len(), two[0], two.number()), (4096, 0, 1));
        one.discard().unwrap();
        assert_eq!(one[4095], 0);
        drop(one);
        assert!(slots.take(0).is_some());
        assert!(Slots::new(0, 4096).is_err());
    }

    #[test]
    fn what_is_passed_is_the_same_memory() {
        let mut memory = Passed::new(100_000).unwrap();
        let again = Passed::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        memory[99_999] = 9;
        assert_eq!((again.len(), again[99_999]), (100_000, 9));
    }

    #[test]
    fn a_forked_process_shares_slots_and_counters() {
        #[expect(clippy::disallowed_methods, reason = "the test tells its copy what it is")]
        let is_copy = std::env::var_os(FORKS).is_some();
        if !is_copy {
            // The test runner has threads, and a process with threads does not fork.
            let mut copy = Command::new(std::env::current_exe().unwrap());
            copy.args(["--test-threads=1", "--exact", "--nocapture"]);
            copy.arg("shared::tests::a_forked_process_shares_slots_and_counters");
            let output = copy.env(FORKS, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        let slots = Slots::new(3, 4096).unwrap();
        let counters = Counters::<2>::new().unwrap();
        // SAFETY: the new process calls what needs no lock of another thread, and ends at once.
        match unsafe { libc::fork() } {
            0 => {
                let mut slot = slots.take(2).unwrap();
                slot[..5].copy_from_slice(b"hello");
                counters.store([5, u64::MAX]);
                crate::supervise::exit_now(0)
            }
            pid => {
                let mut status = 1;
                // SAFETY: the kernel writes one number to where `status` is.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert_eq!(status, 0);
            }
        }
        assert_eq!(&slots.take(2).unwrap()[..5], b"hello");
        assert_eq!(counters.load(), [5, u64::MAX]);
    }
}
