//! Where the C library makes the calls in which events are waited for: what was learned in one process holds for all that have mapped the
//! same file.

use trace::stack::maps::{self, Mapping};

/// The most calls that are remembered: two of each kind for each C library.
const CALLS: usize = 64;

/// A call, by the file that makes it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct KnownCall {
    device: (u32, u32),
    inode: u64,
    /// The offset of the instruction in the file.
    offset: u64,
    number: u32,
    /// Whether the process had other threads: it makes its calls from another place then.
    has_others: bool,
}

/// The calls of all processes.
#[derive(Debug, Default)]
pub(super) struct WaitCalls(Vec<KnownCall>);

impl WaitCalls {
    /// Notes where a process makes a call.
    pub(super) fn learn(&mut self, process: u32, call: (u64, u32), has_others: bool) {
        self.learn_from(&maps::read(process), call, has_others);
    }

    fn learn_from(&mut self, mappings: &[Mapping], (ip, number): (u64, u32), has_others: bool) {
        let is_it = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&ip);
        let of_file = mappings.iter().find(is_it).filter(|mapping| mapping.inode != 0);
        let Some(&Mapping { start, offset, device, inode, .. }) = of_file else { return };
        let call = KnownCall { device, inode, offset: ip - start + offset, number, has_others };
        if self.0.len() < CALLS && !self.0.contains(&call) {
            self.0.push(call);
        }
    }

    /// Returns where a process makes a call in which events can be waited for, if that is known of another one.
    pub(super) fn find(&self, process: u32, has_others: bool) -> Option<(u64, u32)> {
        self.0
            .iter()
            .any(|call| call.has_others == has_others)
            .then(|| self.find_in(&maps::read(process), has_others))?
    }

    fn find_in(&self, mappings: &[Mapping], has_others: bool) -> Option<(u64, u32)> {
        let calls = self.0.iter().filter(|call| call.has_others == has_others);
        calls.into_iter().find_map(|call| {
            let of_file = |mapping: &&Mapping| {
                let within = call.offset.checked_sub(mapping.offset);
                (mapping.device, mapping.inode, mapping.is_code) == (call.device, call.inode, true)
                    && within.is_some_and(|within| within < mapping.end - mapping.start)
            };
            let mapping = mappings.iter().find(of_file)?;
            Some((call.offset - mapping.offset + mapping.start, call.number))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, offset: u64, inode: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x7000,
            offset,
            device: (8, 1),
            inode,
            is_code: true,
            is_shared: false,
            path: Vec::new(),
        }
    }

    #[test]
    fn a_call_of_one_process_is_found_in_another_one_that_has_mapped_the_file_elsewhere() {
        let one = [mapping(0x1_0000, 0x1000, 77), mapping(0x9_0000, 0, 0)];
        let other = [mapping(0x2_0000, 0x1000, 78), mapping(0x8_0000, 0x1000, 77)];
        let mut calls = WaitCalls::default();
        for _ in 0..2 {
            calls.learn_from(&one, (0x1_0345, 7), true);
        }
        // In memory of no file, or where nothing is mapped, there is none.
        for ip in [0x9_0100, 0x1000] {
            calls.learn_from(&one, (ip, 7), false);
        }
        assert_eq!(calls.0.len(), 1);
        assert_eq!(calls.find_in(&other, true), Some((0x8_0345, 7)));
        assert_eq!(calls.find_in(&other, false), None, "it has no threads");
        assert_eq!(calls.find_in(&other[..1], true), None, "another file");
        assert_eq!(calls.find_in(&[mapping(0x8_0000, 0x8000, 77)], true), None, "another part");
    }
}
