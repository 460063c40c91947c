//! The memory of chunks: private, or shared with the process that consumes them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::shared::{Passed, Slot, Slots};

/// The usual size of a chunk: it stays in the cache of a processor while it is filled and emptied.
pub(super) const CHUNK: usize = 1 << 18;

/// The memory of a chunk.
#[derive(Debug)]
pub(super) enum Memory {
    /// Memory of this process.
    Own(Vec<u8>),
    /// A slot of the memory that two processes share.
    Slot(Slot),
    /// Memory that is longer than a slot, which is passed by its descriptor.
    Passed(Passed),
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Own(Vec::new())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Memory::Own(bytes) => bytes,
            Memory::Slot(slot) => slot,
            Memory::Passed(memory) => memory,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Own(bytes) => bytes,
            Memory::Slot(slot) => slot,
            Memory::Passed(memory) => memory,
        }
    }
}

impl Memory {
    /// Returns the memory to the system; of a slot, its pages.
    pub(super) fn free(self) {
        if let Memory::Slot(mut slot) = self {
            // If it fails, the pages are used again together with the slot.
            let _ = slot.discard();
        }
    }
}

/// An allocator of memory for chunks.
#[derive(Debug, Default)]
pub(super) enum MemorySource {
    /// Memory of this process.
    #[default]
    Own,
    /// Slots that are shared with another process.
    Shared {
        /// All slots.
        slots: Arc<Slots>,
        /// The slot at which the search for a free one begins.
        next: AtomicUsize,
    },
}

impl MemorySource {
    /// Allocates from shared slots of the size of a chunk.
    pub(super) fn shared(slots: Arc<Slots>) -> MemorySource {
        MemorySource::Shared { slots, next: AtomicUsize::new(0) }
    }

    /// Allocates memory of this size, at least a chunk; `None` if there is none. It takes no lock.
    pub(super) fn make(&self, size: usize) -> Option<Memory> {
        match self {
            MemorySource::Own => Some(Memory::Own(vec![0; size])),
            MemorySource::Shared { .. } if size > CHUNK => {
                Passed::new(size).ok().map(Memory::Passed)
            }
            MemorySource::Shared { slots, next } => {
                let count = slots.count();
                let first = next.load(Ordering::Relaxed);
                let slot = (first..first + count).find_map(|at| slots.take(at % count))?;
                next.store((slot.number() + 1) % count, Ordering::Relaxed);
                Some(Memory::Slot(slot))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_in_turn_and_what_is_longer_has_memory_of_its_own() {
        let source = MemorySource::shared(Arc::new(Slots::new(2, CHUNK).unwrap()));
        let one = source.make(CHUNK).unwrap();
        let two = source.make(CHUNK).unwrap();
        assert!(source.make(CHUNK).is_none());
        one.free();
        let again = source.make(CHUNK).unwrap();
        assert!(
            matches!((&again, &two), (Memory::Slot(a), Memory::Slot(b)) if a.number() != b.number())
        );
        let long = source.make(3 * CHUNK).unwrap();
        assert!(matches!(&long, Memory::Passed(memory) if memory.len() == 3 * CHUNK));
    }
}
