//! The memory of chunks: of this process alone, or shared with the process that takes them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::shared::{Passed, Slot, Slots};

use super::ring::CHUNK;

/// Bytes that a chunk keeps messages in.
#[derive(Debug)]
pub(super) enum Memory {
    /// Of this process.
    Own(Vec<u8>),
    /// One of the slots that two processes share.
    Slot(Slot),
    /// Longer than a slot, to be passed by its descriptor.
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
    /// Gives it back to the system; of a slot, the pages.
    pub(super) fn free(self) {
        if let Memory::Slot(mut slot) = self {
            // Pages that stay are used again with the slot.
            let _ = slot.discard();
        }
    }
}

/// Where memory for chunks comes from.
#[derive(Debug, Default)]
pub(super) enum MemorySource {
    /// This process.
    #[default]
    Own,
    /// Slots that another process sees, too.
    Shared {
        /// All of them.
        slots: Arc<Slots>,
        /// Where a free one is looked for first.
        next: AtomicUsize,
    },
}

impl MemorySource {
    /// Takes memory from slots of the size of a chunk.
    pub(super) fn shared(slots: Arc<Slots>) -> MemorySource {
        MemorySource::Shared { slots, next: AtomicUsize::new(0) }
    }

    /// Returns memory of this size, a chunk's or more; none where there is none. It waits for no lock.
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
