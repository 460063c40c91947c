//! The bytes of a stack: copied by somebody before, or read from the process in a few large pieces.

use super::rule::MemoryReader;

/// The first piece: most stacks that wait for something are not deeper.
const FIRST: usize = 16 << 10;

/// The pieces behind it.
const FURTHER: usize = 64 << 10;

/// The most pieces of one stack; more is read of none.
const PIECES: usize = 16;

/// A copy of the stack from its pointer upwards.
#[derive(Debug)]
pub(super) struct StackCopy<'bytes> {
    /// The address of the first byte.
    pub(super) start: u64,
    /// The bytes.
    pub(super) bytes: &'bytes [u8],
}

impl MemoryReader for StackCopy<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        word(self.bytes, at)
    }
}

/// The stack of a process that is stopped or blocked, read when it is needed.
#[derive(Debug)]
pub(super) struct RemoteStack<'scratch> {
    process: u32,
    scratch: &'scratch mut Scratch,
}

/// Room for the pieces, kept from stack to stack.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Address, and where its bytes are.
    pieces: Vec<(u64, std::ops::Range<usize>)>,
    bytes: Vec<u8>,
}

impl RemoteStack<'_> {
    /// Looks at the stack of `process`, whose pointer is `sp`.
    pub(super) fn new(process: u32, sp: u64, scratch: &mut Scratch) -> RemoteStack<'_> {
        scratch.pieces.clear();
        let mut remote = RemoteStack { process, scratch };
        remote.read(sp, FIRST);
        remote
    }

    fn find(&self, address: u64) -> Option<u64> {
        self.scratch.pieces.iter().find_map(|(start, range)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            word(self.scratch.bytes.get(range.clone())?, at)
        })
    }

    fn read(&mut self, address: u64, len: usize) {
        let start = self.scratch.pieces.last().map_or(0, |(_, range)| range.end);
        let end = start + len;
        if self.scratch.bytes.len() < end {
            self.scratch.bytes.resize(end, 0);
        }
        let got = sys::remote::read(self.process, address, &mut self.scratch.bytes[start..end]);
        // A piece without bytes is remembered too: what cannot be read is asked for once.
        self.scratch.pieces.push((address, start..start + got.unwrap_or(0)));
    }
}

impl MemoryReader for RemoteStack<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        if let Some(word) = self.find(address) {
            return Some(word);
        }
        if self.scratch.pieces.len() >= PIECES {
            return None;
        }
        self.read(address, FURTHER);
        self.find(address)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_where_it_ends() {
        let mut copied = StackCopy { start: 0x1000, bytes: &[1; 20] };
        assert_eq!(copied.word(0x1008), Some(0x0101_0101_0101_0101));
        assert_eq!(
            (copied.word(0xfff), copied.word(0x100d), copied.word(u64::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn memory_far_above_is_read_by_a_further_piece() {
        let words: Vec<u64> = (0..40_000).collect();
        let address = words.as_ptr() as u64;
        let mut scratch = Scratch::default();
        let mut remote = RemoteStack::new(std::process::id(), address, &mut scratch);
        assert_eq!(remote.word(address + 8 * 3), Some(3));
        assert_eq!(remote.word(address + 8 * 39_999), Some(39_999));
        assert_eq!(remote.scratch.pieces.len(), 2);
        assert_eq!(remote.word(8), None);
    }
}
