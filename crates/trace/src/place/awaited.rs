//! The descriptors that a `poll` or a `select` waits for.

/// A bit of `events` in `struct pollfd`: it may be written.
const WRITABLE: u16 = 4;

/// A descriptor that is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct AwaitedDescriptor {
    pub(super) descriptor: i32,
    /// Whether room to write to it is waited for.
    pub(super) writes: bool,
}

/// Returns what a list of `struct pollfd` names.
pub(super) fn of_poll(list: &[u8]) -> Vec<AwaitedDescriptor> {
    let entry = |entry: &[u8]| {
        let descriptor = i32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
        let events = u16::from_le_bytes(entry.get(4..6)?.try_into().ok()?);
        let writes = events & WRITABLE != 0;
        (descriptor >= 0).then_some(AwaitedDescriptor { descriptor, writes })
    };
    list.chunks_exact(8).filter_map(entry).collect()
}

/// Returns what the sets of a `select` name, of which the first 64 descriptors are known: those to read and those to write.
pub(super) fn of_select([reads, writes]: [u64; 2], count: u64) -> Vec<AwaitedDescriptor> {
    let is_in = |set: u64, at: i32| set >> at & 1 == 1;
    let count = i32::try_from(count.min(64)).unwrap_or(0);
    let numbers = (0..count).filter(|at| is_in(reads | writes, *at));
    numbers
        .map(|descriptor| AwaitedDescriptor { descriptor, writes: is_in(writes, descriptor) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sets_name_descriptors_and_what_they_are_waited_for() {
        let of = |descriptor, writes| AwaitedDescriptor { descriptor, writes };
        let mut list = Vec::new();
        for (descriptor, events) in [(3_i32, 1_u16), (-1, 1), (4, 5)] {
            list.extend(descriptor.to_le_bytes());
            list.extend(events.to_le_bytes());
            list.extend([0, 0]);
        }
        assert_eq!(of_poll(&list), [of(3, false), of(4, true)]);
        assert_eq!(of_poll(&list[..7]), []);
        assert_eq!(of_select([0b1001, 0b1100], 3), [of(0, false), of(2, true)]);
        assert_eq!(of_select([u64::MAX, 0], u64::MAX).len(), 64);
        assert_eq!(of_select([1 << 63, 0], 64), [of(63, false)]);
    }
}
