//! The thread that describes hangs: it unwinds copies of stacks, resolves names, decides on the cause, and stores.
//!
//! Names are read from large files, which takes a while the first time; the thread that looks at programs never waits for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use trace::call::StackId;
use trace::recorder::TraceRecorder;
use trace::recording::Backend;
use trace::report::account::TimeParts;
use trace::stack::blame::{blame, waits_for_answer};
use trace::stack::names::{Frame, Names, SymbolSources};
use trace::stack::{KnownRegisters, Unwinder};
use trace::syscall::call_name;

use super::callers::{WaitCallers, evidence_of};
use super::follower::{PlaceEvidence, WaitPlace};
use crate::codec::{MAX_CALLS, MAX_FRAMES};
use crate::excluded::PathConcealer;
use crate::model::{
    CallShare, Hang, HangCause, HangFrame, HangRecord, ObjectKind, UnseenParts, WatchedPeriod,
};
use crate::store::HangStore;

/// After this many different stacks all caches are cleared: a recorder runs for weeks.
const CACHED_STACKS: usize = 500;
/// Symbols are kept for so long after they were needed: they take tens of megabytes, and hangs come together.
const KEPT: Duration = Duration::from_secs(20);
/// The most records that wait for a disk that takes none.
const BACKLOG: usize = 256;
/// The most copies of stacks that wait for this thread.
pub(crate) const COPIES: usize = 96;
/// The most hangs whose stacks are collected at a time.
const OPEN_HANGS: usize = 512;

/// Work for the thread.
#[derive(Debug)]
pub(crate) enum DescribeWork {
    /// The stack of a wait, to classify it.
    Place { process: u32, call: u32, place: WaitPlace, has_display: bool, copy: StackBytes },
    /// The stack of a call that a hang waits in.
    Stack { key: u64, process: u32, number: u32, copy: StackBytes },
    /// A sample of a thread that runs.
    Sample { key: u64, process: u32, registers: KnownRegisters, bytes: Vec<u8>, stands_for_ns: u64 },
    /// A hang has reached a length at which it is stored, or has ended.
    Hang(Box<HangDraft>),
    /// An absence was no hang.
    Dropped { key: u64 },
    /// A period has passed.
    Watched(WatchedPeriod),
    /// A process has ended, or runs another program.
    Forget { process: u32 },
    /// Everything is to be durable.
    Sync,
}

/// A copy of the stack of a blocked thread.
#[derive(Debug)]
pub(crate) struct StackBytes {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A hang without its stack.
#[derive(Debug)]
pub(crate) struct HangDraft {
    /// The number of the absence.
    pub(crate) key: u64,
    /// The fields that are known; number, cause and stack are not.
    pub(crate) hang: Hang,
    /// How much blocked time each description stands for.
    pub(crate) descriptions: Vec<(u32, u64)>,
}

/// The answer about a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceAnswer {
    pub(crate) process: u32,
    pub(crate) place: WaitPlace,
    pub(crate) evidence: PlaceEvidence,
}

/// Counters that the two threads share.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    /// Copies of stacks that wait.
    pub(crate) copies: AtomicUsize,
    /// Hangs that could not be stored since that was last reported.
    pub(crate) lost: AtomicU32,
}

/// What connects the thread that observes with the one that describes.
#[derive(Debug)]
pub(crate) struct RecorderLink {
    pub(crate) work: Sender<DescribeWork>,
    pub(crate) answers: Receiver<PlaceAnswer>,
    pub(crate) counters: Arc<SharedCounters>,
}

impl RecorderLink {
    /// Sends work to the other thread, which lives as long as this one.
    pub(crate) fn send(&self, work: DescribeWork) {
        let _ = self.work.send(work);
    }

    /// Returns whether another copy of a stack may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.counters.copies.load(Ordering::Relaxed) < COPIES
    }

    /// Counts a copy of a stack that is about to be sent.
    pub(crate) fn count_copy(&self) {
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stack of an absence.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum CollectedStack {
    /// One of those that are kept for all absences.
    Shared(u32),
    /// One of [`CollectedStacks::named`].
    Named(usize),
}

/// The stacks of one absence.
#[derive(Debug, Default)]
struct CollectedStacks {
    /// The number under which it is stored, once it is.
    number: Option<u64>,
    process: u32,
    described: HashMap<u32, CollectedStack>,
    sampled: HashMap<CollectedStack, u64>,
    /// Stacks with the names of their functions, which are there when the caches are not any more.
    named: Vec<Vec<Frame>>,
}

impl CollectedStacks {
    /// Returns the stacks that are among those of all absences, each once.
    fn shared(&self) -> BTreeSet<u32> {
        let all = self.described.values().chain(self.sampled.keys());
        all.filter_map(|stack| match stack {
            CollectedStack::Shared(id) => Some(*id),
            CollectedStack::Named(_) => None,
        })
        .collect()
    }

    /// Puts a stack with its names in the place of one of all absences.
    fn name(&mut self, id: u32, frames: Vec<Frame>) {
        let (shared, named) = (CollectedStack::Shared(id), CollectedStack::Named(self.named.len()));
        self.named.push(frames);
        for stack in self.described.values_mut().filter(|stack| **stack == shared) {
            *stack = named;
        }
        if let Some(weight) = self.sampled.remove(&shared) {
            self.sampled.insert(named, weight);
        }
    }
}

/// Describes and stores.
pub(crate) struct HangDescriber {
    recorder: TraceRecorder,
    unwinder: Unwinder,
    names: Names,
    sources: SymbolSources,
    open: HashMap<u64, CollectedStacks>,
    store: HangStore,
    concealer: PathConcealer,
    backlog: Vec<HangRecord>,
    callers: WaitCallers,
    counters: Arc<SharedCounters>,
    answers: Sender<PlaceAnswer>,
}

impl HangDescriber {
    pub(crate) fn new(
        store: HangStore,
        concealer: PathConcealer,
        sources: SymbolSources,
        counters: Arc<SharedCounters>,
        answers: Sender<PlaceAnswer>,
    ) -> HangDescriber {
        HangDescriber {
            recorder: TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH),
            unwinder: Unwinder::new(),
            names: Names::new(sources.clone()),
            sources,
            open: HashMap::new(),
            store,
            concealer,
            backlog: Vec::new(),
            callers: WaitCallers::default(),
            counters,
            answers,
        }
    }

    /// Works until no more can come.
    pub(crate) fn run(mut self, work: &Receiver<DescribeWork>, told: &mut dyn FnMut(&Hang)) {
        loop {
            match work.recv_timeout(KEPT) {
                Ok(item) => self.handle(item, told),
                Err(RecvTimeoutError::Timeout) => self.clear_caches(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.sync();
    }

    fn handle(&mut self, work: DescribeWork, told: &mut dyn FnMut(&Hang)) {
        match work {
            DescribeWork::Place { process, call, place, has_display, copy } => {
                let stack = self.unwind(process, &copy);
                let frames = self.frames(process, stack.0);
                let name = call_name(call).unwrap_or("?");
                let evidence = PlaceEvidence {
                    same_call: self.callers.same_call(process, place, &frames),
                    ..evidence_of(name, &frames, has_display)
                };
                // The other end is gone when the recorder ends.
                let _ = self.answers.send(PlaceAnswer { process, place, evidence });
            }
            DescribeWork::Stack { key, process, number, copy } => {
                let stack = self.unwind(process, &copy);
                if let Some(open) = self.open_hang(key, process) {
                    open.described.insert(number, CollectedStack::Shared(stack.0));
                }
            }
            DescribeWork::Sample { key, process, registers, bytes, stands_for_ns } => {
                self.took_copy();
                let HangDescriber { unwinder, recorder, .. } = self;
                let stack = unwinder.offline(process, &registers, &bytes, recorder);
                if let Some(open) = self.open_hang(key, process) {
                    let stack = CollectedStack::Shared(stack.0);
                    *open.sampled.entry(stack).or_default() += stands_for_ns;
                }
            }
            DescribeWork::Hang(draft) => self.store_hang(*draft, told),
            DescribeWork::Dropped { key } => {
                self.open.remove(&key);
                self.limit_memory();
            }
            DescribeWork::Watched(period) => {
                self.append(HangRecord::Watched(period));
            }
            DescribeWork::Forget { process } => {
                self.unwinder.forget(process);
                self.callers.forget(process);
            }
            DescribeWork::Sync => self.sync(),
        }
    }

    fn took_copy(&self) {
        self.counters.copies.fetch_sub(1, Ordering::Relaxed);
    }

    fn open_hang(&mut self, key: u64, process: u32) -> Option<&mut CollectedStacks> {
        let has_room = self.open.len() < OPEN_HANGS || self.open.contains_key(&key);
        let begin = || CollectedStacks { process, ..CollectedStacks::default() };
        has_room.then(|| self.open.entry(key).or_insert_with(begin))
    }

    fn unwind(&mut self, process: u32, copy: &StackBytes) -> StackId {
        self.took_copy();
        let registers = KnownRegisters::new(copy.ip, copy.sp);
        let HangDescriber { unwinder, recorder, .. } = self;
        unwinder.offline(process, &registers, &copy.bytes, recorder)
    }

    fn frames(&mut self, process: u32, stack: u32) -> Vec<Frame> {
        let recording = self.recorder.recording();
        let index = usize::try_from(stack).unwrap_or(usize::MAX);
        let Some(stack) = recording.stacks.get(index) else { return Vec::new() };
        self.names.frames(recording, process, stack)
    }

    /// Clears the caches if they have grown too large.
    fn limit_memory(&mut self) {
        if self.recorder.recording().stacks.len() > CACHED_STACKS {
            self.clear_caches();
        }
    }

    /// Drops symbols and tables of unwinding. Hangs that go on, which one of a stopped program may do for days, keep the names of
    /// their functions.
    fn clear_caches(&mut self) {
        if self.recorder.recording().stacks.is_empty() {
            return;
        }
        let mut open = std::mem::take(&mut self.open);
        for stacks in open.values_mut() {
            for id in stacks.shared() {
                let frames = self.frames(stacks.process, id);
                stacks.name(id, frames);
            }
        }
        self.open = open;
        self.recorder = TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH);
        self.unwinder = Unwinder::new();
        self.names = Names::new(self.sources.clone());
        sys::heap::give_back_freed();
    }

    fn store_hang(&mut self, draft: HangDraft, told: &mut dyn FnMut(&Hang)) {
        let HangDraft { key, mut hang, descriptions } = draft;
        let stacks = self.open.entry(key).or_default();
        let mut weights = stacks.sampled.clone();
        for (number, weight) in descriptions {
            if let Some(stack) = stacks.described.get(&number) {
                *weights.entry(*stack).or_default() += weight;
            }
        }
        let known = stacks.number;
        let most = weights.into_iter().max_by_key(|(stack, weight)| (*weight, *stack));
        let frames = match most.map(|(stack, _)| stack) {
            Some(CollectedStack::Shared(id)) => self.frames(hang.process, id),
            Some(CollectedStack::Named(at)) => stacks.named.get(at).cloned().unwrap_or_default(),
            None => Vec::new(),
        };
        let asks = frames.iter().any(waits_for_answer);
        hang.blamed = blame(&frames, None)
            .filter(|at| *at < MAX_FRAMES)
            .and_then(|at| u32::try_from(at).ok());
        hang.frames = frames.into_iter().take(MAX_FRAMES).map(stored_frame).collect();
        for share in &mut hang.calls {
            if let Some(object) = &mut share.object
                && object.kind == ObjectKind::File
            {
                let now = SystemTime::UNIX_EPOCH
                    + Duration::from_nanos(hang.started_ns.min(i64::MAX.unsigned_abs()));
                object.name = self.concealer.stored_path(&object.name, &hang.program, now);
            }
        }
        hang.calls = merged(std::mem::take(&mut hang.calls));
        hang.cause = with_stack(cause_of(&hang.parts, &hang.calls), asks);
        // A program that was stopped has no part in it.
        let is_missing = hang.frames.is_empty() && hang.cause != HangCause::Stopped;
        if is_missing && !hang.unseen.has(UnseenParts::FUNCTIONS) {
            hang.unseen.add(UnseenParts::STACK);
        }
        hang.number = known.unwrap_or_else(|| self.store.take_number());
        if hang.goes_on {
            if let Some(open) = self.open.get_mut(&key) {
                open.number = Some(hang.number);
            }
        } else {
            self.open.remove(&key);
        }
        if self.append(HangRecord::Hang(Box::new(hang.clone()))) {
            told(&hang);
        }
        self.limit_memory();
    }

    /// Stores a record, with those that could not be stored before; returns whether all are stored.
    fn append(&mut self, record: HangRecord) -> bool {
        self.backlog.push(record);
        if self.store.append(&self.backlog).is_ok() {
            self.backlog.clear();
            return true;
        }
        if self.backlog.len() > BACKLOG {
            let is_hang = matches!(self.backlog.remove(0), HangRecord::Hang(_));
            self.counters.lost.fetch_add(u32::from(is_hang), Ordering::Relaxed);
        }
        false
    }

    fn sync(&mut self) {
        if !self.backlog.is_empty() && self.store.append(&self.backlog).is_ok() {
            self.backlog.clear();
        }
        // A failure shows at the next append, which starts another file.
        let _ = self.store.sync();
    }
}

fn stored_frame(frame: Frame) -> HangFrame {
    HangFrame { function: frame.text(), module: frame.module }
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
    merged.sort_by_key(|share| std::cmp::Reverse(share.blocked_ns));
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
/// Qt has a thread that receives from the bus, and whoever asks waits for that thread with a lock.
fn with_stack(cause: HangCause, asks: bool) -> HangCause {
    match cause {
        HangCause::Lock if asks => HangCause::OtherProgram,
        cause => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::super::callers::tests::frame_in;
    use super::*;
    use crate::model::CallObject;

    fn share(call: &str, blocked_ns: u64, kind: Option<ObjectKind>) -> CallShare {
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
            // A ring is no program, and what it was asked for is not known.
            ("io_uring_enter", Some(ObjectKind::Other), HangCause::OtherCall),
        ] {
            assert_eq!(cause_of(&parts(80, 0), &[share(call, 80, kind)]), cause, "{call}");
        }
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
        let frame = |name: &str| frame_in("m", name);
        let asks =
            |names: &[&str]| names.iter().map(|name| frame(name)).any(|f| waits_for_answer(&f));
        let call = ["syscall", "QWaitCondition::wait", "QDBusConnection::call", "save", "main"];
        assert_eq!(with_stack(HangCause::Lock, asks(&call)), HangCause::OtherProgram);
        let lock = ["__lll_lock_wait", "save", "main"];
        assert_eq!(with_stack(HangCause::Lock, asks(&lock)), HangCause::Lock);
        assert_eq!(with_stack(HangCause::Sync, asks(&call)), HangCause::Sync);
    }

    #[test]
    fn a_hang_that_goes_on_keeps_the_names_of_its_functions_and_no_caches() {
        let dir = tempfile::tempdir().unwrap();
        let disk = store::disk::real();
        let store = HangStore::open(Arc::clone(&disk), dir.path(), 1 << 20).unwrap();
        let concealer = PathConcealer::open(disk, dir.path(), None).unwrap();
        let counters = Arc::new(SharedCounters::default());
        let (answers, _answers) = std::sync::mpsc::channel();
        let sources = SymbolSources::default();
        let mut describer = HangDescriber::new(store, concealer, sources, counters, answers);
        let mut told = Vec::new();
        let mut handle = |describer: &mut HangDescriber, work| {
            describer.handle(work, &mut |hang: &Hang| told.push(hang.clone()));
        };
        let process = std::process::id();
        let ip = (merged as fn(Vec<CallShare>) -> Vec<CallShare>) as usize as u64 + 1;
        let copy = || StackBytes { ip, sp: 0x1000, bytes: vec![0; 64] };
        let draft = |goes_on| {
            let hang = Hang {
                number: 0,
                started_ns: 1,
                length_ns: 1,
                uncertain_ns: 0,
                goes_on,
                process,
                program: "notes".to_owned(),
                unit: String::new(),
                cause: HangCause::Unknown,
                parts: TimeParts { call_ns: 1, ..TimeParts::default() },
                calls: vec![share("fsync", 1, None)],
                frames: Vec::new(),
                blamed: None,
                pressure: None,
                unseen: UnseenParts::default(),
                chain: None,
            };
            DescribeWork::Hang(Box::new(HangDraft { key: 1, hang, descriptions: vec![(1, 1)] }))
        };
        handle(&mut describer, DescribeWork::Stack { key: 1, process, number: 1, copy: copy() });
        handle(&mut describer, draft(true));
        describer.clear_caches();
        assert!(describer.recorder.recording().stacks.is_empty(), "the hang goes on");
        handle(&mut describer, draft(false));
        assert!(describer.open.is_empty());
        let functions: Vec<&[HangFrame]> = told.iter().map(|hang| &*hang.frames).collect();
        let [first, last] = *functions else { panic!("{functions:?}") };
        assert!(first == last && first[0].function.contains("merged"), "{functions:?}");
        assert_eq!(told[0].number, told[1].number);
    }

    #[test]
    fn calls_on_the_same_object_are_one() {
        let calls = vec![share("fsync", 5, None), share("read", 7, None), share("fsync", 3, None)];
        let calls = merged(calls);
        assert_eq!((&*calls[0].call, calls[0].blocked_ns, calls[0].seen), ("fsync", 8, 2));
        assert_eq!(calls.len(), 2);
    }
}
