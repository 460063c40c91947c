//! What a hang is told to have gone to: its cause, and the stack of that cause.

use std::collections::HashMap;

use trace::place::NAMED_PIPE;
use trace::report::account::TimeParts;
use trace::stack::blame::{FrameRole, role};
use trace::stack::names::Frame;

use crate::codec::MAX_CALLS;
use crate::model::{CallShare, Hang, HangCause, ObjectKind};

/// The stack of a wait, and for how much of a hang it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DescribedWait {
    /// The number of the description.
    pub(crate) number: u32,
    /// The blocked time, in nanoseconds.
    pub(crate) blocked_ns: u64,
    /// The name of the call, or [`CallShare::PAGE_FAULT`].
    pub(crate) call: String,
    /// What a hang went to that was in this wait alone.
    pub(crate) cause: HangCause,
}

impl DescribedWait {
    /// Returns the part of a share that a description stands for.
    pub(crate) fn of(number: u32, share: &CallShare) -> DescribedWait {
        let cause = match share.is_page_fault() {
            true => HangCause::PageFault,
            false => share.cause(),
        };
        let CallShare { call, blocked_ns, .. } = share;
        DescribedWait { number, blocked_ns: *blocked_ns, call: call.clone(), cause }
    }

    /// Returns whether its stack shows where a hang of a cause and with these calls was spent: it waited for the same, or in a call
    /// that did and whose object was not read each time.
    pub(crate) fn is_of(&self, cause: HangCause, calls: &[CallShare]) -> bool {
        is_anywhere(cause)
            || self.cause == cause
            || calls.iter().any(|share| share.call == self.call && share.cause() == cause)
    }
}

/// Returns whether a stack of samples shows where a hang of this cause was spent.
pub(crate) fn is_sampled(cause: HangCause) -> bool {
    cause == HangCause::Computing || is_anywhere(cause)
}

/// Returns whether a hang of this cause may have been spent anywhere.
fn is_anywhere(cause: HangCause) -> bool {
    matches!(cause, HangCause::ProcessorQueue | HangCause::Stopped | HangCause::Unknown)
}

/// Returns whether a sample was taken in a call of this cause: many short waits are not described, and the processor works for their
/// calls, too. The C library may make a call by further functions of its own.
pub(crate) fn is_in_call_of(frames: &[Frame], cause: HangCause, calls: &[CallShare]) -> bool {
    let of_libc = frames.iter().take_while(|frame| role(frame) == FrameRole::Libc).count();
    // Of a program that is linked with it, the first one.
    frames.iter().take(of_libc.max(1)).any(|frame| {
        let name = frame.name.trim_start_matches('_').trim_start_matches("libc_");
        let is_it = |share: &CallShare| match share.is_of_ring() {
            true => name == "syscall" || name.starts_with("io_uring_"),
            false => without_width(&share.call) == without_width(name),
        };
        calls.iter().any(|share| is_it(share) && share.cause() == cause)
    })
}

/// Returns the name of a call without the width of its offsets: `pread` and `pread64` are one function, of which either name is told.
fn without_width(name: &str) -> &str {
    name.trim_end_matches("64")
}

/// Returns the calls with those of the same name and object together, the longest first.
pub(crate) fn merged(calls: Vec<CallShare>) -> Vec<CallShare> {
    let mut merged: Vec<CallShare> = Vec::new();
    for share in calls {
        let same = merged
            .iter_mut()
            .find(|known| (&known.call, &known.object) == (&share.call, &share.object));
        match same {
            Some(known) => {
                known.blocked_ns = known.blocked_ns.saturating_add(share.blocked_ns);
                known.seen = known.seen.saturating_add(share.seen);
            }
            None => merged.push(share),
        }
    }
    merged.sort_by_cached_key(|share| std::cmp::Reverse(share.blocked_ns));
    merged.retain(|share| share.blocked_ns > 0);
    merged.truncate(MAX_CALLS);
    merged
}

/// Decides on the cause: the largest part of the account, and of blocked calls the kind of call that took the most.
pub(crate) fn cause_of(parts: &TimeParts, calls: &[CallShare]) -> HangCause {
    let parts = [
        (parts.processor_ns, HangCause::Computing),
        (parts.ready_ns, HangCause::ProcessorQueue),
        (parts.fault_ns, HangCause::PageFault),
        (parts.lock_ns, HangCause::Lock),
        (parts.stopped_ns, HangCause::Stopped),
        (parts.unknown_ns, HangCause::Unknown),
        (parts.call_ns, HangCause::OtherCall),
    ];
    let Some((most, cause)) = parts.into_iter().max_by_key(|(part, _)| *part) else {
        return HangCause::Unknown;
    };
    match cause {
        _ if most == 0 => HangCause::Unknown,
        HangCause::OtherCall => {
            let mut kinds: HashMap<HangCause, u64> = HashMap::new();
            for share in
                calls.iter().filter(|share| share.call != "futex" && !share.is_page_fault())
            {
                *kinds.entry(share.cause()).or_default() += share.blocked_ns;
            }
            let most = kinds.into_iter().max_by_key(|(cause, blocked)| (*blocked, *cause));
            most.map_or(HangCause::OtherCall, |(cause, _)| cause)
        }
        cause => cause,
    }
}

/// Returns the cause of a hang of which the stack is known, too: `asks` says that a function on it waits for an answer.
/// Qt has a thread that receives from the bus, and whoever asks waits for that thread with a lock; GLib's wakes who asks.
pub(crate) fn with_stack(cause: HangCause, asks: bool) -> HangCause {
    match cause {
        HangCause::Lock | HangCause::OtherCall if asks => HangCause::OtherProgram,
        cause => cause,
    }
}

/// Returns the cause of a hang whose longest wait was followed, too: where that ended because its time was over, nobody is known to
/// have been waited for, unless another program is at the other end.
pub(crate) fn with_chain(cause: HangCause, hang: &Hang) -> HangCause {
    let longest = hang.calls.iter().find(|share| share.cause() == cause);
    let object = longest.and_then(|share| share.object.as_ref());
    let has_peer = object.is_some_and(|object| {
        object.kind == ObjectKind::Socket || object.name.starts_with(NAMED_PIPE)
    });
    match cause {
        HangCause::Lock | HangCause::OtherProgram if hang.ran_out_of_time() && !has_peer => {
            HangCause::OtherCall
        }
        // What is registered in an `epoll` is not known, but who ended the wait.
        HangCause::OtherCall
            if object.is_some_and(|object| object.name == "[eventpoll]")
                && hang.peer().is_some() =>
        {
            HangCause::OtherProgram
        }
        cause => cause,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use trace::stack::waits::asks;

    use super::super::callers::tests::frame_in;
    use super::*;
    use crate::model::{CallObject, ObjectKind};

    pub(in super::super) fn share(
        call: &str,
        blocked_ns: u64,
        kind: Option<ObjectKind>,
    ) -> CallShare {
        let object = kind.map(|kind| CallObject {
            kind,
            name: "x".to_owned(),
            file_system: String::new(),
            device: String::new(),
        });
        CallShare { call: call.to_owned(), blocked_ns, seen: 1, object }
    }

    #[test]
    fn the_cause_is_the_largest_part_and_of_calls_the_kind_that_took_the_most() {
        let parts =
            |call_ns, processor_ns| TimeParts { call_ns, processor_ns, ..TimeParts::default() };
        let calls = [
            share("fsync", 30, Some(ObjectKind::File)),
            share("openat", 25, None),
            share("newfstatat", 25, None),
        ];
        assert_eq!(cause_of(&parts(80, 10), &calls), HangCause::FileNames);
        assert_eq!(cause_of(&parts(80, 10), &calls[..1]), HangCause::Sync);
        assert_eq!(cause_of(&parts(80, 100), &calls), HangCause::Computing);
        assert_eq!(cause_of(&parts(0, 0), &[]), HangCause::Unknown);
        for (call, kind, cause) in [
            ("poll", Some(ObjectKind::Socket), HangCause::OtherProgram),
            ("read", Some(ObjectKind::File), HangCause::FileData),
            ("read", Some(ObjectKind::Other), HangCause::OtherProgram),
            ("read", None, HangCause::OtherCall),
            ("clock_nanosleep", None, HangCause::Sleep),
            ("wait4", Some(ObjectKind::Child), HangCause::Child),
            ("recvmsg", None, HangCause::OtherProgram),
            ("io_uring read_fixed", Some(ObjectKind::File), HangCause::FileData),
            ("io_uring fsync", Some(ObjectKind::File), HangCause::Sync),
            ("io_uring recv", Some(ObjectKind::Socket), HangCause::OtherProgram),
            ("rt_sigtimedwait", None, HangCause::OtherCall),
            // A ring is no program, and what it was asked for is not known.
            ("io_uring_enter", Some(ObjectKind::Other), HangCause::OtherCall),
        ] {
            assert_eq!(cause_of(&parts(80, 0), &[share(call, 80, kind)]), cause, "{call}");
        }
        for (name, cause) in [
            ("[eventfd]", HangCause::OtherCall),
            ("[timerfd]", HangCause::OtherCall),
            // What is registered in it is not known.
            ("[eventpoll]", HangCause::OtherCall),
            ("2 descriptors", HangCause::OtherProgram),
            ("named pipe /x", HangCause::OtherProgram),
        ] {
            let mut polls = share("poll", 80, Some(ObjectKind::Other));
            if let Some(object) = &mut polls.object {
                object.name = name.to_owned();
            }
            assert_eq!(cause_of(&parts(80, 0), &[polls]), cause, "{name}");
        }
    }

    #[test]
    fn a_sample_is_of_a_cause_if_it_was_taken_in_a_call_of_it() {
        let file = Some(ObjectKind::File);
        let calls = [share("fsync", 90, file), share("read", 20, file)];
        let is_in = |functions: &[(&str, &str)]| {
            let frames: Vec<Frame> =
                functions.iter().map(|(module, name)| frame_in(module, name)).collect();
            is_in_call_of(&frames, HangCause::Sync, &calls)
        };
        for name in ["fsync", "__fsync", "__libc_fsync"] {
            assert!(is_in(&[("libc.so.6", name)]), "{name}");
            assert!(is_in(&[("static-program", name)]), "{name}");
        }
        // As glibc 2.41 makes a call that threads may be cancelled in.
        let cancelled = ["__syscall_cancel_arch", "__syscall_cancel", "fsync"];
        assert!(is_in(&cancelled.map(|name| ("libc.so.6", name))));
        assert!(!is_in(&[("notes", "compute"), ("libc.so.6", "fsync")]));
        assert!(!is_in(&[("libc.so.6", "read")]));
        assert!(!is_in(&[("libc.so.6", "")]));
        assert!(!is_in(&[]));
    }

    #[test]
    fn a_call_is_known_by_each_of_its_names() {
        let file = Some(ObjectKind::File);
        let read = [share("pread64", 90, file)];
        let of_ring = [share("io_uring read", 90, file)];
        let is_in = |name, calls: &[CallShare]| {
            is_in_call_of(&[frame_in("libc.so.6", name)], HangCause::FileData, calls)
        };
        assert!(is_in("pread", &read) && is_in("pread64", &read) && is_in("__libc_pread64", &read));
        assert!(!is_in("read", &read) && !is_in("syscall", &read));
        assert!(is_in("syscall", &of_ring) && is_in("io_uring_submit_and_wait", &of_ring));
        assert!(!is_in("read", &of_ring));
    }

    #[test]
    fn pages_are_no_call_and_are_what_a_hang_for_them_waited_for() {
        let file = Some(ObjectKind::File);
        let calls = [share(CallShare::PAGE_FAULT, 90, file), share("fsync", 20, None)];
        let parts = |call_ns, fault_ns| TimeParts { call_ns, fault_ns, ..TimeParts::default() };
        assert_eq!(cause_of(&parts(100, 90), &calls), HangCause::Sync);
        assert_eq!(cause_of(&parts(20, 90), &calls), HangCause::PageFault);
    }

    #[test]
    fn a_lock_behind_which_an_answer_is_awaited_is_another_program() {
        let asks = |names: &[(&str, &str)]| {
            let frames = names.iter().map(|(module, name)| frame_in(module, name));
            asks(&frames.collect::<Vec<Frame>>())
        };
        let own = [("notes", "save"), ("notes", "main")];
        let syscall = ("libc.so.6", "syscall");
        let call = ("libQt5DBus.so.5", "QDBusConnection::call");
        let call = [&[syscall, ("libQt5Core.so.5", "QWaitCondition::wait"), call][..], &own];
        let call = call.concat();
        assert_eq!(with_stack(HangCause::Lock, asks(&call)), HangCause::OtherProgram);
        let lock = [&[("libc.so.6", "__lll_lock_wait")][..], &own].concat();
        assert_eq!(with_stack(HangCause::Lock, asks(&lock)), HangCause::Lock);
        // The bus calls the program, which takes a lock of its own.
        let handler = ("libQt5DBus.so.5", "QDBusConnectionPrivate::deliverCall");
        let called = [&lock[..], &[handler]].concat();
        assert_eq!(with_stack(HangCause::Lock, asks(&called)), HangCause::Lock);
        assert_eq!(with_stack(HangCause::Sync, asks(&call)), HangCause::Sync);
    }

    #[test]
    fn who_ended_a_wait_tells_what_it_was_for() {
        use crate::model::{HangChain, HangHop};
        let hop = |process| HangHop {
            program: "sh".to_owned(),
            process,
            unit: String::new(),
            call: String::new(),
            function: String::new(),
            waited_ns: 80,
        };
        let told = |call: &str, name: &str, hops: Vec<HangHop>, end: &str| {
            let mut waits = share(call, 80, Some(ObjectKind::Other));
            if let Some(object) = &mut waits.object {
                object.name = name.to_owned();
            }
            let cause = waits.cause();
            let mut hang = crate::text::tests::hostile(cause, ObjectKind::Other);
            (hang.process, hang.length_ns, hang.calls) = (7, 100, vec![waits]);
            let end = end.to_owned();
            hang.chain = Some(HangChain { hops, end, end_ns: 80, has_losses: false });
            with_chain(cause, &hang)
        };
        let (own, other) = (hop(7), hop(8));
        let alone = || vec![own.clone()];
        let both = || vec![own.clone(), other.clone()];
        assert_eq!(told("poll", "pipe:[1]", alone(), "timer"), HangCause::OtherCall);
        assert_eq!(told("poll", "pipe:[1]", alone(), "disk"), HangCause::OtherProgram);
        assert_eq!(told("poll", "pipe:[1]", both(), "timer"), HangCause::OtherProgram);
        assert_eq!(told("poll", "named pipe /x", alone(), "timer"), HangCause::OtherProgram);
        assert_eq!(told("epoll_wait", "[eventpoll]", both(), "timer"), HangCause::OtherProgram);
        assert_eq!(told("epoll_wait", "[eventpoll]", alone(), "timer"), HangCause::OtherCall);
    }

    #[test]
    fn calls_on_the_same_object_are_one() {
        let calls = vec![share("fsync", 5, None), share("read", 7, None), share("fsync", 3, None)];
        let calls = merged(calls);
        assert_eq!((&*calls[0].call, calls[0].blocked_ns, calls[0].seen), ("fsync", 8, 2));
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn the_stack_of_a_hang_is_one_of_its_cause() {
        let wait = |call: &str, kind| DescribedWait::of(1, &share(call, 5, kind));
        let file = Some(ObjectKind::File);
        let calls = [share("fsync", 30, file), share("read", 9, None), share("read", 1, file)];
        assert!(wait("fsync", file).is_of(HangCause::Sync, &calls));
        assert!(!wait("futex", None).is_of(HangCause::Sync, &calls));
        assert!(!wait("fsync", file).is_of(HangCause::Lock, &calls));
        assert!(wait("read", file).is_of(HangCause::OtherCall, &calls), "not read each time");
        assert!(wait(CallShare::PAGE_FAULT, file).is_of(HangCause::PageFault, &calls));
        assert!(!wait(CallShare::PAGE_FAULT, file).is_of(HangCause::FileData, &[]));
        assert!(
            wait("futex", None).is_of(HangCause::ProcessorQueue, &calls),
            "it could be anywhere"
        );
        assert!(is_sampled(HangCause::Computing) && !is_sampled(HangCause::Lock));
    }
}
