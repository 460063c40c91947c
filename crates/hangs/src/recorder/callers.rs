//! What the functions that make a wait say about its place.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sys::perf::CALLERS_STACK;
use trace::backend::peek::blocked::BlockedSyscall;
use trace::stack::blame::{FrameRole, is_foreign, role};
use trace::stack::names::Frame;
use trace::stack::waits::{
    is_idle, is_in_step, is_loop, is_toolkit_loop, looks_without_loop, runs_main_loop,
    waits_for_answer, waits_for_display_answer,
};

use super::places::{PlaceEvidence, PlaceKind};
use crate::kernel::{EventWait, WaitPlace};

/// How the names of the functions begin in which threads start.
const STARTS: [&str; 3] = ["_start", "__libc_start", "clone"];
/// The names of those that they call, in C and in Go.
const MAINS: [&str; 2] = ["main", "main.main"];
/// So many functions may be around the one of `STARTS`: a runtime's own.
const AROUND_START: usize = 4;
/// The most places of one process whose callers are remembered.
const PLACES: usize = 64;
/// The most different callers of one process by which its waits are known.
const CHAINS: usize = 64;

/// The innermost callers of a wait, up to one that says what the wait is, whatever it is called by.
///
/// Nothing has to be read to find them again on another stack: the functions between put the same on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CallChain {
    /// What the waits are that have these callers.
    kind: PlaceKind,
    /// The instruction behind the call.
    ip: u64,
    /// How far above the stack pointer each return address is, and the address.
    places: Vec<(usize, u64)>,
}

impl CallChain {
    /// Returns those of a wait, if they say what it is; `inner` has the stack pointers and addresses of its innermost frames.
    pub(super) fn of(frames: &[Frame], inner: &[(u64, u64)]) -> Option<CallChain> {
        CallChain::of_answer(frames, inner).or_else(|| CallChain::of_loop(frames, inner))
    }

    /// Returns those up to one that waits for an answer of the display.
    fn of_answer(frames: &[Frame], inner: &[(u64, u64)]) -> Option<CallChain> {
        let last = frames.iter().position(waits_for_display_answer)?;
        // What another library runs for it may be a loop.
        let is_between =
            |frame: &Frame| role(frame) == FrameRole::Libc || frame.module == frames[last].module;
        let is_known = frames[..last].iter().all(is_between);
        CallChain::up_to(last, PlaceKind::Nested, frames, inner).filter(|_| is_known)
    }

    /// Returns those up to the function of the program that runs a known event loop.
    fn of_loop(frames: &[Frame], inner: &[(u64, u64)]) -> Option<CallChain> {
        let is_own = |frame: &Frame| role(frame) == FrameRole::User && !is_loop(frame);
        let last = frames.iter().position(is_own)?;
        let (of_loop, _) = frames.split_at(last);
        // By a foreign function interface a script may call anything from the same instruction.
        let is_known = of_loop.iter().any(is_loop)
            && !of_loop.iter().any(|frame| waits_in_step(frame) || is_foreign(frame));
        let chain = CallChain::up_to(last, PlaceKind::Loop, frames, inner).filter(|_| is_known)?;
        // Beyond what is copied of each look it is not found again.
        let (at, _) = chain.places.last()?;
        (*at + 8 <= usize::from(CALLERS_STACK)).then_some(chain)
    }

    fn up_to(
        last: usize,
        kind: PlaceKind,
        frames: &[Frame],
        inner: &[(u64, u64)],
    ) -> Option<CallChain> {
        // An inlined function has no frame of its own on the stack.
        let last = frames[..last].iter().filter(|frame| !frame.is_inlined).count();
        let (sp, ip) = *inner.first()?;
        let place = |(above, address): &(u64, u64)| {
            // A call puts the address behind the frame of its function.
            let at = above.checked_sub(sp)?.checked_sub(8)?;
            Some((usize::try_from(at).ok()?, *address))
        };
        let places: Option<Vec<_>> = inner.get(1..=last)?.iter().map(place).collect();
        let places = places.filter(|places| !places.is_empty())?;
        Some(CallChain { kind, ip, places })
    }

    /// Returns what the waits are that have these callers.
    pub(crate) fn kind(&self) -> PlaceKind {
        self.kind
    }

    fn are_on(&self, ip: u64, stack: &[u8]) -> bool {
        self.ip == ip
            && self.places.iter().all(|(at, address)| {
                let bytes = stack.get(*at..).and_then(<[u8]>::first_chunk);
                bytes.is_some_and(|bytes| u64::from_ne_bytes(*bytes) == *address)
            })
    }
}

/// The callers of one program's waits that say what these are. As it draws its first window a program waits for the display from
/// hundreds of depths on the stack; and it may run its loop inside of a step once from each of many.
#[derive(Debug, Default)]
pub(crate) struct CallChains(Vec<(CallChain, Option<u64>)>);

impl CallChains {
    /// Notes callers if they wait for an answer.
    pub(crate) fn learn_answer(&mut self, callers: &CallChain) {
        if callers.kind == PlaceKind::Nested {
            self.add(callers, None);
        }
    }

    /// Notes callers of a wait of a loop if they run one. They may run others, too: what waits with another list of descriptors is not
    /// known by them.
    pub(crate) fn learn_loop(&mut self, callers: &CallChain, wait: EventWait) {
        if callers.kind == PlaceKind::Loop {
            self.add(callers, Some(wait.first_argument()));
        }
    }

    fn add(&mut self, callers: &CallChain, first: Option<u64>) {
        let known = (callers.clone(), first);
        if self.0.len() < CHAINS && !self.0.contains(&known) {
            self.0.push(known);
        }
    }

    /// Returns what a wait is, if its callers are known; `stack` are the bytes of the stack from the stack pointer on.
    pub(crate) fn kind(&self, call: &BlockedSyscall, stack: &[u8]) -> Option<PlaceKind> {
        let first = EventWait::of(call).first_argument();
        let known = self.0.iter().find(|(callers, of)| {
            of.is_none_or(|of| of == first) && callers.are_on(call.ip, stack)
        });
        known.map(|(callers, _)| callers.kind)
    }
}

/// Returns whether a function waits for an answer, and nothing else is done meanwhile.
fn waits_in_step(frame: &Frame) -> bool {
    waits_for_answer(frame) && !runs_main_loop(frame)
}

/// Returns whether a stack reaches the start of its thread.
fn is_whole(frames: &[Frame]) -> bool {
    let mut outermost = frames.iter().rev().take(AROUND_START);
    outermost.any(|frame| {
        MAINS.contains(&&*frame.name)
            || STARTS.iter().any(|beginning| frame.name.starts_with(beginning))
    })
}

/// Returns what the stack of a wait says about its place.
///
/// A loop whose callers are not all known may be one that waits for an answer, as `g_dbus_connection_call_sync` has: a stack
/// that was cut shows no loop at rest. `display` says whether the connection to the display is among what is waited for, if that is
/// known.
pub(super) fn evidence_of(call: &str, frames: &[Frame], display: Option<bool>) -> PlaceEvidence {
    // A loop that waits for the display, too, draws and answers, whatever runs it waits for.
    let serves = |inner: &[Frame]| display == Some(true) && inner.iter().any(is_toolkit_loop);
    let waits = |(at, frame): (usize, &Frame)| waits_in_step(frame) && !serves(&frames[..at]);
    PlaceEvidence {
        is_idle_loop: is_whole(frames) && is_idle(call, frames),
        waits_for_answer: frames.iter().enumerate().any(waits),
        never_by_depth: call == "futex" || is_in_step(frames),
        looks_without_loop: looks_without_loop(frames),
        has_display: display == Some(true),
        lacks_display: display == Some(false),
        same_call: None,
    }
}

/// The callers of the waits of each process.
#[derive(Debug, Default)]
pub(super) struct WaitCallers(HashMap<u32, Vec<(u64, WaitPlace)>>);

impl WaitCallers {
    /// Returns the first place at which the same functions have waited, the innermost one from the same call; notes this one if
    /// there is none.
    ///
    /// From where a function that waits was called does not matter: it has the same depth on the stack, and the same place.
    /// Once a process has threads, the C library makes the system call of `poll` from a function of its own for that, deeper on
    /// the stack. A stack that was cut may be that of other functions.
    pub(super) fn same_call(
        &mut self,
        process: u32,
        place: WaitPlace,
        frames: &[Frame],
    ) -> Option<WaitPlace> {
        let callers = frames.iter().skip_while(|frame| role(frame) == FrameRole::Libc);
        let callers: Vec<&Frame> = callers.collect();
        if callers.is_empty() || !is_whole(frames) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        callers[0].address.address.hash(&mut hasher);
        for frame in callers {
            (&frame.module, &frame.name).hash(&mut hasher);
        }
        let callers = hasher.finish();
        let places = self.0.entry(process).or_default();
        let known = places.iter().find(|(of, _)| *of == callers).map(|(_, place)| *place);
        if known.is_none() && places.len() < PLACES {
            places.push((callers, place));
        }
        known.filter(|known| *known != place)
    }

    /// Forgets a process that has ended, or runs another program.
    pub(super) fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use trace::recording::CodeAddress;
    use trace::stack::names::NameCertainty;

    use super::*;

    pub(in super::super) fn frame_in(module: &str, name: &str) -> Frame {
        Frame {
            name: name.to_owned(),
            module: module.to_owned(),
            trust: NameCertainty::Exported,
            offset: None,
            line: None,
            is_inlined: false,
            address: CodeAddress { module: None, address: 0 },
        }
    }

    #[test]
    fn a_stack_that_was_cut_before_the_wait_for_an_answer_shows_no_loop_at_rest() {
        let glib = |name| frame_in("libglib-2.0.so.0", name);
        let gio = |name| frame_in("libgio-2.0.so.0", name);
        let mut frames = vec![frame_in("libc.so.6", "poll"), glib("g_main_loop_run")];
        let of = |frames: &[Frame]| evidence_of("poll", frames, None);
        let unknown = PlaceEvidence {
            is_idle_loop: false,
            waits_for_answer: false,
            never_by_depth: false,
            looks_without_loop: false,
            has_display: false,
            lacks_display: false,
            same_call: None,
        };
        assert_eq!(of(&frames), unknown, "it was cut here");
        frames.push(gio("g_dbus_connection_send_message_with_reply_sync"));
        assert_eq!(of(&frames), PlaceEvidence { waits_for_answer: true, ..unknown }, "or here");
        for cut in ["main::{lambda()#1}::operator()", "maintain_cache", "mainloop"] {
            let ends_there = [&frames[..2], &[frame_in("notes", cut)]].concat();
            assert!(!of(&ends_there).is_idle_loop, "{cut}");
        }
        let start = [frame_in("notes", "main"), frame_in("libc.so.6", "__libc_start_main")];
        let whole = [&frames[..2], &start].concat();
        assert_eq!(of(&whole), PlaceEvidence { is_idle_loop: true, ..unknown });
        // The start of a stripped program has no name, and what it calls has one.
        let stripped = [&whole[..2], &whole[3..], &[frame_in("notes", "0x1234")]].concat();
        assert!(of(&stripped).is_idle_loop);
    }

    #[test]
    fn a_look_for_input_in_a_step_and_a_wait_in_what_draws_are_no_loops() {
        let libc = |name| frame_in("libc.so.6", name);
        let outer = [
            frame_in("libwriter.so", "paint"),
            frame_in("libglib-2.0.so.0", "g_main_context_dispatch"),
            frame_in("libglib-2.0.so.0", "g_main_loop_run"),
            frame_in("writer", "main"),
            libc("__libc_start_main"),
        ];
        let is_loop = |inner: &[Frame]| {
            let evidence = evidence_of("poll", &[inner, &outer[..]].concat(), Some(true));
            evidence.is_loop((9000, 1), 9000)
        };
        assert!(!is_loop(&[libc("poll"), frame_in("libwriter.so", "any_input")]));
        let waits = [libc("poll"), frame_in("libxcb.so.1", "xcb_wait_for_event")];
        let copies = [&waits[..], &[frame_in("libcairo.so.2.11600.0", "fn@0xa3b70")]].concat();
        assert!(!is_loop(&copies));
        for sends in ["xcb_writev", "xcb_flush", "xcb_send_request_with_fds64", "_XSend", "_XFlush"]
        {
            assert!(!is_loop(&[libc("poll"), frame_in("libxcb.so.1", sends)]), "{sends}");
        }
        // A dialog runs a loop of its own.
        // What asks whether there is anything to do is followed by what does it.
        for runs in ["g_main_loop_run", "g_main_context_iteration", "g_main_context_pending"] {
            let dialog = [libc("poll"), frame_in("libglib-2.0.so.0", runs)];
            assert!(is_loop(&dialog), "{runs}");
        }
        let clipboard = frame_in("libgtk-3.so.0", "gtk_clipboard_wait_for_contents");
        let serves = [libc("poll"), frame_in("libglib-2.0.so.0", "g_main_loop_run"), clipboard];
        assert!(is_loop(&serves), "events are handled meanwhile");
        // A name that ends so says that a function waits, and not for what.
        for module in ["writer", "libwriter.so"] {
            let own = frame_in(module, "save_sync");
            let serves = [libc("poll"), frame_in("libglib-2.0.so.0", "g_main_loop_run"), own];
            assert!(is_loop(&serves), "{module}");
        }
        let asks = frame_in("libgio-2.0.so.0", "g_dbus_connection_call_sync");
        let asks = [libc("poll"), frame_in("libglib-2.0.so.0", "g_main_loop_run"), asks];
        assert!(!evidence_of("poll", &[&asks[..], &outer].concat(), None).is_loop((9000, 1), 9000));
        assert!(is_loop(&waits));
        // Firefox gives GLib a function to wait with.
        let waits_itself = [libc("poll"), frame_in("libxul.so", "fn@0x6f86db0")];
        let waits_itself = [&waits_itself[..], &outer[2..]].concat();
        assert!(evidence_of("poll", &waits_itself, Some(true)).is_loop((9000, 1), 9500));
        // Nothing is known of the loop of this program.
        let own = [libc("poll"), frame_in("game", "wait_for_input"), frame_in("game", "main")];
        assert!(evidence_of("poll", &own, Some(true)).is_loop((9000, 1), 9500));
    }

    #[test]
    fn a_wait_of_the_same_functions_from_another_place_in_the_c_library_is_the_same_call() {
        let at = |module: &str, name: &str, address: u64| Frame {
            address: CodeAddress { module: None, address },
            ..frame_in(module, name)
        };
        let start = [at("notes", "main", 7), at("libc.so.6", "__libc_start_main", 8)];
        let alone = [&[at("libc.so.6", "poll", 1), at("notes", "rest", 5)][..], &start].concat();
        let threads = [
            &[at("libc.so.6", "__syscall_cancel_arch", 2), at("libc.so.6", "poll", 3)][..],
            &alone[1..],
        ]
        .concat();
        let mut callers = WaitCallers::default();
        let (shallow, deep) = ((9000, 1), (8900, 2));
        assert_eq!(callers.same_call(1, shallow, &alone), None);
        assert_eq!(callers.same_call(1, shallow, &alone), None, "it is no other place");
        assert_eq!(callers.same_call(1, deep, &threads), Some(shallow));
        assert_eq!(callers.same_call(2, deep, &threads), None, "another process");
        let mut other = threads.clone();
        other[2].address.address = 6;
        assert_eq!(callers.same_call(1, deep, &other), None, "another call in the same function");
        let mut from_elsewhere = threads.clone();
        from_elsewhere[3].address.address = 6;
        assert_eq!(callers.same_call(1, deep, &from_elsewhere), Some(shallow));
        assert_eq!(callers.same_call(1, deep, &threads[..3]), None, "a stack that was cut");
        callers.forget(1);
        assert_eq!(callers.same_call(1, deep, &threads), None);
    }

    /// Returns what is known of a `poll` of two descriptors by what is on its stack.
    fn kind_of(known: &CallChains, array: u64, ip: u64, stack: &[u64]) -> Option<PlaceKind> {
        let stack: Vec<u8> = stack.iter().flat_map(|of| of.to_ne_bytes()).collect();
        let number = trace::syscall::call_number("poll").unwrap();
        let arguments = [array, 2, 0, 0, 0, 0];
        known.kind(&BlockedSyscall { number, arguments, sp: 9000, ip }, &stack)
    }

    #[test]
    fn callers_that_run_a_loop_are_found_again_from_elsewhere_if_they_wait_for_the_same() {
        let frames = [
            frame_in("libc.so.6", "poll"),
            frame_in("libglib-2.0.so.0", "fn@0x54810"),
            frame_in("libglib-2.0.so.0", "g_main_context_iteration"),
            frame_in("libwriter.so", "handle_events"),
            frame_in("libwriter.so", "load"),
            frame_in("libwriter.so", "main"),
            frame_in("libc.so.6", "__libc_start_main"),
        ];
        let inner = [(1000, 5), (1016, 6), (1040, 7), (1104, 8), (1200, 9)];
        let callers = CallChain::of(&frames, &inner).unwrap();
        let wait = |subject| EventWait { place: (1000, 5), subject };
        let subject = 0x5000 + (2 << 48);
        let mut known = CallChains::default();
        known.learn_answer(&callers);
        let stack = [1, 6, 2, 3, 7, 9, 9, 9, 9, 9, 9, 9, 8];
        assert_eq!(kind_of(&known, 0x5000, 5, &stack), None, "it is not known to be one");
        known.learn_loop(&callers, wait(subject));
        assert_eq!(kind_of(&known, 0x5000, 5, &stack), Some(PlaceKind::Loop));
        assert_eq!(kind_of(&known, 0x6000, 5, &stack), None, "another context");
        assert_eq!(kind_of(&known, 0x5000, 5, &stack[..12]), None, "cut");
        let other = [&stack[..12], &[4]].concat();
        assert_eq!(kind_of(&known, 0x5000, 5, &other), None, "run by another function");

        let with = |at: usize, frame: Frame| {
            let mut frames = frames.to_vec();
            frames[at] = frame;
            CallChain::of(&frames, &inner)
        };
        assert_eq!(with(2, frame_in("libgio-2.0.so.0", "g_dbus_call_sync")), None, "an answer");
        let clipboard = frame_in("libgtk-3.so.0", "gtk_clipboard_wait_for_contents");
        let frames_of_clipboard = [&frames[..3], &[clipboard], &frames[3..]].concat();
        assert!(CallChain::of(&frames_of_clipboard, &inner).is_some());
        assert_eq!(with(2, frame_in("libglib-2.0.so.0", "g_poll")), None, "no loop");
        assert!(with(2, frame_in("libwriter.so", "g_main_context_iteration")).is_some());
        assert_eq!(with(2, frame_in("libffi.so.8", "ffi_call")), None, "a script");
        assert_eq!(CallChain::of(&frames[3..], &inner), None, "the program's own wait");
        let far = [(1000, 5), (1016, 6), (1040, 7), (1600, 8)];
        assert_eq!(CallChain::of(&frames, &far), None, "beyond what is copied");
    }

    #[test]
    fn callers_that_wait_for_an_answer_are_found_again_whoever_calls_them() {
        let inlined = Frame { is_inlined: true, ..frame_in("libxcb.so.1", "inlined") };
        let frames = [
            frame_in("libc.so.6", "poll"),
            inlined,
            frame_in("libxcb.so.1", "_xcb_conn_wait"),
            frame_in("libxcb.so.1", "xcb_wait_for_reply"),
            frame_in("libX11.so.6", "_XReply"),
        ];
        let inner = [(1000, 5), (1016, 6), (1040, 7), (1100, 8)];
        let mut known = CallChains::default();
        known.learn_answer(&CallChain::of(&frames, &inner).unwrap());
        let has =
            |ip: u64, words: &[u64]| kind_of(&known, 0x1000, ip, words) == Some(PlaceKind::Nested);
        assert!(has(5, &[1, 6, 2, 3, 7, 9]));
        assert!(!has(5, &[1, 6, 2, 3, 8, 9]), "another function waits");
        assert!(!has(4, &[1, 6, 2, 3, 7, 9]), "in another call");
        assert!(!has(5, &[1, 6, 2, 3]), "cut");
        assert!(!has(5, &[]));
        assert_eq!(CallChain::of(&frames[..3], &inner), None, "nobody waits for an answer");
        let mut orders = frames.clone();
        orders[3] = frame_in("libxcb.so.1", "QIODevice::waitForReadyRead");
        let of_service = CallChain::of(&orders, &inner);
        assert_eq!(of_service, None, "a service may wait so for the next order");
        assert_eq!(CallChain::of(&frames, &inner[..2]), None, "it is not known where it is");
        assert_eq!(CallChain::of(&frames[3..], &inner), None, "the call itself");
        let loops =
            [frame_in("libc.so.6", "poll"), frame_in("libglib-2.0.so.0", "g_main_loop_run")];
        let runs = [&loops[..], &[frame_in("libgio-2.0.so.0", "g_bus_get_sync")]].concat();
        assert_eq!(CallChain::of(&runs, &inner), None, "a loop that runs inside of it");
    }
}
