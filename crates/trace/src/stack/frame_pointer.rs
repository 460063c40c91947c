//! Where a function that keeps a frame pointer has its frame, if nobody has told the pointer.
//!
//! `/proc/PID/syscall` tells the instruction and the stack pointer of a blocked thread alone, and whole distributions are built
//! with frame pointers: there the tables find a caller by `rbp`. Two things have to agree before it is taken as known. The
//! instructions at the beginning of the function make room on the stack, which is the distance from the stack pointer to the
//! frame; and behind the frame stands an address that a call instruction leads back to, which calls this very function, or
//! names none and was called itself. What agrees with more than one place, or with none, is not known.

use super::rule::FramePointerSetup;

/// How many bytes of a function are read for what makes its frame.
const BEGINNING: usize = 192;

/// The longest call instruction, with its prefixes.
const CALL: usize = 8;

/// The most words that a function pushes for a call: arguments that do not fit into registers.
const PUSHED: u64 = 16;

/// The largest frame that is looked for.
const LARGEST: u64 = 1 << 20;

/// The memory of a process.
pub(super) trait ProcessMemory {
    /// Fills `bytes` from `address` on; whether all of it could be read.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;

    /// Returns the word of the stack at `address`.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// Returns whether there is code at `address`.
    fn is_code(&mut self, address: u64) -> bool;

    /// Returns whether somebody called each of the callers that the stack leads to, if the frame is here.
    fn leads_to_callers(&mut self, frame: u64) -> bool;
}

/// Returns the distances from the stack pointer to the frame pointer that the function's beginning allows while it calls; `None` if
/// its code cannot be read.
pub(super) fn frame_sizes(
    setup: &FramePointerSetup,
    bias: u64,
    memory: &mut impl ProcessMemory,
) -> Option<Vec<u64>> {
    let start = setup.set_at.wrapping_add(bias);
    let length = setup.until.saturating_sub(setup.set_at).min(BEGINNING as u64);
    let mut code = [0; BEGINNING];
    let code = &mut code[..usize::try_from(length).unwrap_or(0)];
    if !memory.read(start, code) {
        return None;
    }
    let mut sizes: Vec<u64> = Vec::new();
    for reserved in reserved(code) {
        for kept in [setup.kept_bytes, 0] {
            let size = reserved.saturating_add(kept);
            if size.is_multiple_of(8) && size <= LARGEST && !sizes.contains(&size) {
                sizes.push(size);
            }
        }
    }
    Some(sizes)
}

/// Returns how much the instructions may take from the stack pointer, beside what they push to keep it.
fn reserved(code: &[u8]) -> Vec<u64> {
    // Sums, as large frames are made page by page; with many pages a loop does it, up to what `lea` loads into `r11`.
    let (mut found, mut sum, mut looped) = (Vec::new(), 0_u64, None);
    for at in 0..code.len() {
        let size = match &code[at..] {
            // sub $8, %rsp with a byte of its own, and with four.
            [0x48, 0x83, 0xec, size, ..] if *size < 0x80 => u64::from(*size),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            // add $-128, %rsp is shorter than to take 128 away.
            [0x48, 0x83, 0xc4, 0x80, ..] => 128,
            // lea -0x10000(%rsp), %r11
            [0x4c, 0x8d, 0x9c, 0x24, a, b, c, d, ..] => {
                let size = i32::from_le_bytes([*a, *b, *c, *d]).unsigned_abs();
                looped = Some(u64::from(size));
                continue;
            }
            // jne to the beginning of that loop.
            [0x75, 0x80..=0xff, ..] => {
                if let Some(size) = looped.take() {
                    sum = size;
                    found.push(sum);
                }
                continue;
            }
            _ => continue,
        };
        sum = sum.saturating_add(size);
        found.push(sum);
    }
    if found.is_empty() {
        // Nothing, or a register that is pushed for its room alone.
        found = vec![0, 8];
    }
    found
}

/// What the instruction before a return address calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// This address.
    Direct(u64),
    /// What stands in the word at this address.
    Through(u64),
    /// What a register or a word that it points to says.
    Indirect,
}

/// Returns the calls that the bytes before `address` may end with; instructions of this machine cannot be read backwards for certain.
fn calls_before(before: [u8; CALL], address: u64) -> impl Iterator<Item = Call> + use<> {
    let displaced =
        |a, b, c, d| address.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
    let [_, first, second, third, fourth, fifth, sixth, seventh] = before;
    let direct = (third == 0xe8).then(|| Call::Direct(displaced(fourth, fifth, sixth, seventh)));
    let through = ((second, third) == (0xff, 0x15))
        .then(|| Call::Through(displaced(fourth, fifth, sixth, seventh)));
    // The second byte says what operand follows: a register; one that points to a word; with an index; with a distance.
    let is_call = |byte: u8| byte & 0o070 == 0o020;
    let (mode, base) = (|byte: u8| byte >> 6, |byte: u8| byte & 7);
    let indirect = (sixth == 0xff
        && is_call(seventh)
        && (mode(seventh) == 3 || mode(seventh) == 0 && !matches!(base(seventh), 4 | 5)))
        || (fifth == 0xff
            && is_call(sixth)
            && (mode(sixth) == 1 && base(sixth) != 4 || mode(sixth) == 0 && base(sixth) == 4))
        || (fourth == 0xff && is_call(fifth) && mode(fifth) == 1 && base(fifth) == 4)
        || (second == 0xff && is_call(third) && mode(third) == 2 && base(third) != 4)
        || (first == 0xff
            && is_call(second)
            && (mode(second) == 2 || mode(second) == 0)
            && base(second) == 4);
    let indirect = indirect.then_some(Call::Indirect);
    [direct, through, indirect].into_iter().flatten()
}

/// How certain a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    /// Something is called there, and the callers of the caller, too.
    Called,
    /// The very function is called there.
    CallsIt,
}

/// Returns the frame pointer of the function that begins at `start`, which goes on at `ip` and whose stack pointer is `sp`; `sizes`
/// are of [`frame_sizes`].
pub(super) fn find(
    start: u64,
    ip: u64,
    sp: u64,
    sizes: &[u64],
    memory: &mut impl ProcessMemory,
) -> Option<u64> {
    let mut places = places_at(start, sp, sizes.iter().copied(), memory);
    if places.is_empty()
        && let Some(pushed) = pushed_for_call(ip, memory)
    {
        let sizes = sizes.iter().map(|size| size.saturating_add(pushed));
        places = places_at(start, sp, sizes, memory);
    }
    if let Some(best) = places.iter().map(|(_, certainty)| *certainty).max() {
        return only(places.iter().filter(|(_, certainty)| *certainty == best));
    }
    // It may have pushed what it takes back later.
    let with_pushed = |size: &u64| {
        let size = *size;
        (1..=PUSHED).map(move |words| size.saturating_add(words * 8))
    };
    let mut places = places_at(start, sp, sizes.iter().flat_map(with_pushed), memory);
    places.retain(|(_, certainty)| *certainty == Certainty::CallsIt);
    places.sort_unstable();
    places.dedup();
    only(places.iter())
}

/// Returns how many bytes were pushed for a call that returns here, if they are taken from the stack again at once.
fn pushed_for_call(ip: u64, memory: &mut impl ProcessMemory) -> Option<u64> {
    let mut code = [0; 4];
    let bytes = memory.read(ip, &mut code).then_some(code)?;
    // add $32, %rsp
    let [0x48, 0x83, 0xc4, bytes @ 1..=0x7f] = bytes else { return None };
    Some(u64::from(bytes))
}

/// Returns where the frame may be at these distances from the stack pointer.
fn places_at(
    start: u64,
    sp: u64,
    distances: impl Iterator<Item = u64>,
    memory: &mut impl ProcessMemory,
) -> Vec<(u64, Certainty)> {
    let frames = distances.filter_map(|distance| sp.checked_add(distance));
    frames.filter_map(|frame| Some((frame, certainty(start, frame, memory)?))).collect()
}

fn only<'place>(mut places: impl Iterator<Item = &'place (u64, Certainty)>) -> Option<u64> {
    let (frame, _) = places.next()?;
    places.next().is_none().then_some(*frame)
}

/// Returns how certain it is that the function at `start` has its frame here; `None` if it cannot be.
fn certainty(start: u64, frame: u64, memory: &mut impl ProcessMemory) -> Option<Certainty> {
    let address = memory.word(frame.checked_add(8)?)?;
    if !memory.is_code(address.checked_sub(1)?) {
        return None;
    }
    let mut is_called = false;
    for call in calls_to(address, memory)? {
        is_called = true;
        let is_it = match call {
            Call::Direct(target) => target == start || stub(target, memory) == Some(start),
            Call::Through(slot) => pointer(slot, memory) == Some(start),
            Call::Indirect => false,
        };
        if is_it {
            return Some(Certainty::CallsIt);
        }
    }
    // A function that another one ended with, and that somebody points to, is called by no name.
    (is_called && memory.leads_to_callers(frame)).then_some(Certainty::Called)
}

/// Returns the calls that may return to `address`; `None` if its code cannot be read.
fn calls_to<Memory: ProcessMemory>(
    address: u64,
    memory: &mut Memory,
) -> Option<impl Iterator<Item = Call> + use<Memory>> {
    let mut before = [0; CALL];
    let start = address.checked_sub(CALL as u64)?;
    memory.read(start, &mut before).then(|| calls_before(before, address))
}

/// Returns whether the instruction before `address` is a call.
pub(super) fn is_behind_call(address: u64, memory: &mut impl ProcessMemory) -> bool {
    let is_code = address.checked_sub(1).is_some_and(|last| memory.is_code(last));
    is_code && calls_to(address, memory).is_some_and(|mut calls| calls.next().is_some())
}

/// Returns where a jump through a word leads, as linkers write them for functions of other files.
fn stub(address: u64, memory: &mut impl ProcessMemory) -> Option<u64> {
    let mut code = [0; 16];
    if !memory.read(address, &mut code) {
        return None;
    }
    let mut rest = &code[..];
    // endbr64, and a prefix that once guarded bounds.
    for prefix in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xf2]] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let [0xff, 0x25, a, b, c, d, ..] = *rest else { return None };
    let behind = address.wrapping_add((code.len() - rest.len() + 6) as u64);
    let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
    pointer(behind.wrapping_add_signed(distance), memory)
}

fn pointer(address: u64, memory: &mut impl ProcessMemory) -> Option<u64> {
    let mut word = [0; 8];
    memory.read(address, &mut word).then(|| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The beginning of the function that is looked for.
    const START: u64 = 0x1000;

    /// Where it goes on.
    const IP: u64 = 0x1100;

    /// Where the stack pointer is.
    const SP: u64 = 0x9000;

    /// A stack of words above [`SP`], and bytes of code.
    #[derive(Default)]
    struct Memory {
        stack: BTreeMap<u64, u64>,
        code: BTreeMap<u64, u8>,
        /// The frames whose callers were called themselves.
        called: Vec<u64>,
    }

    impl Memory {
        fn put(&mut self, address: u64, bytes: &[u8]) {
            self.code.extend((address..).zip(bytes.iter().copied()));
        }

        /// Puts a frame at a distance from the stack pointer, whose function returns behind a call of these bytes.
        fn frame(&mut self, distance: u64, caller: u64, returns_to: u64, call: &[u8]) {
            self.put(returns_to - CALL as u64, &[0x90; CALL]);
            self.put(returns_to - call.len() as u64, call);
            self.stack.insert(SP + distance, caller);
            self.stack.insert(SP + distance + 8, returns_to);
        }

        fn find(&mut self, sizes: &[u64]) -> Option<u64> {
            find(START, IP, SP, sizes, self).map(|frame| frame - SP)
        }
    }

    impl ProcessMemory for Memory {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            (address..)
                .zip(bytes)
                .all(|(at, byte)| self.code.get(&at).map(|read| *byte = *read).is_some())
        }

        fn word(&mut self, address: u64) -> Option<u64> {
            self.stack.get(&address).copied()
        }

        fn is_code(&mut self, address: u64) -> bool {
            address < SP
        }

        fn leads_to_callers(&mut self, frame: u64) -> bool {
            self.called.contains(&frame)
        }
    }

    /// The bytes of a call of the function, that returns to this address.
    fn call_of_it(returns_to: u64) -> [u8; 5] {
        let [a, b, c, d, ..] = START.wrapping_sub(returns_to).to_le_bytes();
        [0xe8, a, b, c, d]
    }

    const INDIRECT: &[u8] = &[0xff, 0xd0];

    #[test]
    fn the_room_is_what_the_beginning_takes() {
        let small: &[u8] = &[0x53, 0x48, 0x83, 0xec, 0x48, 0x90];
        assert_eq!(reserved(small), [0x48]);
        assert_eq!(reserved(&[0x48, 0x81, 0xec, 0, 0x10, 0, 0]), [0x1000]);
        assert_eq!(reserved(&[0x48, 0x83, 0xc4, 0x80]), [128]);
        assert_eq!(reserved(&[0x53, 0x90]), [0, 8]);
        // A page, another one, and what is left.
        let pages = [&[0x48, 0x81, 0xec, 0, 0x10, 0, 0][..]; 2].concat();
        assert_eq!(reserved(&[&pages[..], small].concat()), [0x1000, 0x2000, 0x2048]);
        // Up to what r11 says, page by page, and what is left.
        let looped = [
            &[0x4c, 0x8d, 0x9c, 0x24, 0, 0, 0xff, 0xff][..],
            &[0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x4c, 0x39, 0xdc, 0x75, 0xef],
            small,
        ];
        assert_eq!(reserved(&looped.concat()), [0x1000, 0x10000, 0x10048]);
    }

    #[test]
    fn calls_are_known_by_their_bytes() {
        let before = |bytes: &[u8]| {
            let mut all = [0x90; CALL];
            all[CALL - bytes.len()..].copy_from_slice(bytes);
            calls_before(all, 0x5000).collect::<Vec<Call>>()
        };
        assert_eq!(before(&[0xe8, 0, 0xf0, 0xff, 0xff]), [Call::Direct(0x4000)]);
        assert_eq!(before(&[0xff, 0x15, 0x10, 0, 0, 0]), [Call::Through(0x5010)]);
        let indirect: [&[u8]; 9] = [
            INDIRECT,
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x10],
            &[0xff, 0x50, 8],
            &[0xff, 0x14, 0xc8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x90, 0, 1, 0, 0],
            &[0xff, 0x94, 0x24, 0, 1, 0, 0],
            &[0xff, 0x14, 0xc5, 0, 1, 0, 0],
        ];
        for bytes in indirect {
            assert_eq!(before(bytes), [Call::Indirect], "{bytes:x?}");
        }
        // Jumps and pushes have the same first byte.
        for bytes in [&[0xff, 0xe0][..], &[0xff, 0x25, 0x10, 0, 0, 0], &[0xff, 0x75, 8], &[0x90]] {
            assert_eq!(before(bytes), [], "{bytes:x?}");
        }
    }

    #[test]
    fn a_frame_is_found_where_its_size_and_the_call_of_its_function_agree() {
        let mut memory = Memory::default();
        memory.frame(0x40, 0, 0x2000, &call_of_it(0x2000));
        assert_eq!(memory.find(&[0x40]), Some(0x40));
        assert_eq!(memory.find(&[0x20, 0x40]), Some(0x40));
        assert_eq!(memory.find(&[0x48]), None);
        // What was pushed for the call that it is in, lies below.
        assert_eq!(memory.find(&[0x30]), Some(0x40));
    }

    #[test]
    fn a_call_that_names_no_function_counts_if_its_caller_was_called_too() {
        let mut memory = Memory::default();
        memory.frame(0x40, 0, 0x2000, INDIRECT);
        assert_eq!(memory.find(&[0x40]), None);
        memory.called = vec![SP + 0x40];
        assert_eq!(memory.find(&[0x40]), Some(0x40));
        // Without a size that says so, it may be anybody's.
        assert_eq!(memory.find(&[0x30]), None);
    }

    #[test]
    fn what_is_taken_back_behind_a_call_was_pushed_for_it() {
        let mut memory = Memory { called: vec![SP + 0x60], ..Memory::default() };
        memory.frame(0x60, 0, 0x2000, INDIRECT);
        assert_eq!(memory.find(&[0x40]), None);
        memory.put(IP, &[0x48, 0x83, 0xc4, 0x20]);
        assert_eq!(memory.find(&[0x40]), Some(0x60));
        // Where a function ends, it takes back its own room.
        assert_eq!(memory.find(&[0x60]), Some(0x60));
    }

    #[test]
    fn what_earlier_calls_left_is_not_taken_for_the_frame() {
        let mut memory = Memory::default();
        memory.frame(0x10, SP + 0x40, 0x2000, &call_of_it(0x2000));
        memory.frame(0x40, SP + 0x80, 0x3000, &call_of_it(0x3000));
        assert_eq!(memory.find(&[0x40]), Some(0x40));
        // Both may be it, and so neither is.
        assert_eq!(memory.find(&[0x10, 0x40]), None);
        assert_eq!(memory.find(&[0x8]), None);
        // The call of another function counts less.
        memory.called = vec![SP + 0x10];
        memory.frame(0x10, SP + 0x40, 0x2000, INDIRECT);
        assert_eq!(memory.find(&[0x10, 0x40]), Some(0x40));
    }

    #[test]
    fn a_function_is_known_through_what_linkers_put_between() {
        let mut memory = Memory::default();
        let stub = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf5, 0x0f, 0, 0];
        memory.put(0x3000, &stub);
        memory.put(0x300b, &[0; 5]);
        memory.put(0x4000, &START.to_le_bytes());
        let [a, b, c, d, ..] = 0x1000_u64.to_le_bytes();
        memory.frame(0x40, 0, 0x2000, &[0xe8, a, b, c, d]);
        assert_eq!(memory.find(&[0x40]), Some(0x40));
        let [a, b, c, d, ..] = 0x2000_u64.to_le_bytes();
        memory.frame(0x40, 0, 0x2000, &[0xff, 0x15, a, b, c, d]);
        assert_eq!(memory.find(&[0x40]), Some(0x40));
        memory.put(0x4000, &[1]);
        assert_eq!(memory.find(&[0x40]), None);
    }

    #[test]
    fn no_memory_is_too_wild() {
        let mut memory = Memory::default();
        for (at, wild) in [(0, u64::MAX), (8, 0), (16, 1), (24, 7), (32, u64::MAX - 1)] {
            memory.stack.insert(SP + at, wild);
        }
        for sp in [SP, 0, u64::MAX - 8, u64::MAX] {
            assert_eq!(
                find(START, IP, sp, &[0, 8, 16, 24, u64::MAX, u64::MAX - 40], &mut memory),
                None
            );
        }
    }
}
