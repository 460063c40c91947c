//! The thread that describes hangs: it unwinds copies of stacks, resolves names, decides on the cause, and stores.
//!
//! Names are read from large files, which takes a while the first time; the thread that looks at programs never waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use sys::file_worker::FileWorker;
use trace::call::StackId;
use trace::place::NAMED_PIPE;
use trace::recorder::TraceRecorder;
use trace::recording::{Backend, StackEnd};
use trace::stack::blame::blame;
use trace::stack::names::{Frame, Names, SymbolSources};
use trace::stack::waits::asks;
use trace::stack::{FILE_TIME_LIMIT, FRAMES, KnownRegisters, Unwinder};
use trace::syscall::call_name;

use super::callers::{CallChain, WaitCallers, evidence_of};
use super::cause::{cause_of, is_in_call_of, is_sampled, merged, with_chain, with_stack};
use super::identity::{HangIdentity, suspended_ns};
use super::places::{PlaceEvidence, PlaceKind};
use super::work::{DescribeWork, HangDraft, PlaceAnswer, SharedCounters, StackBytes, WorkQueue};
use crate::codec::MAX_FRAMES;
use crate::excluded::PathConcealer;
use crate::model::{CallObject, Hang, HangCause, HangFrame, HangRecord, ObjectKind, UnseenParts};
use crate::store::HangStore;

/// After this many different stacks all caches are cleared: a recorder runs for weeks.
const CACHED_STACKS: usize = 500;
/// Symbols are kept for so long after they were needed: they take tens of megabytes, and hangs come together.
const KEPT: Duration = Duration::from_secs(20);
/// The most records that wait for a disk that takes none.
const BACKLOG: usize = 256;
/// Functions that wait for an answer of the display are among so many of the innermost ones.
const INNERMOST: usize = 6;
/// The function that runs a loop is among so many, of which there are as many as a part of the stack has.
const INNERMOST_OF_PART: usize = 12;
/// The most hangs whose stacks are collected at a time.
const OPEN_HANGS: usize = 512;

/// A stack of an absence.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum CollectedStack {
    /// One of those that are kept for all absences.
    Shared(u32),
    /// One of [`CollectedStacks::named`].
    Named(usize),
}

/// The functions of a stack.
#[derive(Clone, Debug, Default)]
struct NamedStack {
    frames: Vec<Frame>,
    /// Whether it was followed to the first function of the thread.
    is_whole: bool,
}

/// The stacks of one absence.
#[derive(Debug, Default)]
struct CollectedStacks {
    /// Once it is stored.
    identity: Option<HangIdentity>,
    process: u32,
    described: HashMap<u32, CollectedStack>,
    /// The functions of the kernel of the descriptions that have some.
    kernel: HashMap<u32, Vec<String>>,
    sampled: HashMap<CollectedStack, u64>,
    /// Stacks with the names of their functions, which are there when the caches are not any more.
    named: Vec<NamedStack>,
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
    fn name(&mut self, id: u32, stack: NamedStack) {
        let (shared, named) = (CollectedStack::Shared(id), CollectedStack::Named(self.named.len()));
        self.named.push(stack);
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
    /// What reads files for both, also after their caches were cleared.
    files: FileWorker,
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
        let files = FileWorker::new(FILE_TIME_LIMIT);
        HangDescriber {
            recorder: TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH),
            unwinder: Unwinder::with_worker(files.clone()),
            names: Names::with_worker(sources.clone(), files.clone()),
            files,
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
        let mut queue = WorkQueue::default();
        loop {
            queue.0.extend(work.try_iter());
            if let Some(item) = queue.take() {
                self.handle(item, told);
                continue;
            }
            match work.recv_timeout(KEPT) {
                Ok(item) => queue.0.push_back(item),
                Err(RecvTimeoutError::Timeout) => self.clear_caches(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.sync();
        self.store.end();
    }

    fn handle(&mut self, work: DescribeWork, told: &mut dyn FnMut(&Hang)) {
        match work {
            DescribeWork::Place { process, call, wait, display, copy, is_part } => {
                self.took_copy();
                let name = call_name(call).unwrap_or("?");
                // Whoever calls what waits for an answer of the display: that may be in a library with large tables.
                let most = if is_part { INNERMOST_OF_PART } else { INNERMOST };
                let mut frames = self.innermost(most, process, &copy);
                let mut chain = CallChain::of(&frames, self.unwinder.inner_frames());
                let mut same_call = None;
                let kind = chain.as_ref().map(CallChain::kind);
                // Whatever calls it: the main loop runs, and handles events.
                let is_main = kind == Some(PlaceKind::Loop) && display == Some(true);
                let is_known = kind == Some(PlaceKind::Nested) || is_part && is_main;
                if !is_known && !is_part {
                    frames = self.innermost(FRAMES, process, &copy);
                    chain = CallChain::of(&frames, self.unwinder.inner_frames());
                    same_call = self.callers.same_call(process, wait.place, &frames);
                }
                let evidence = PlaceEvidence { same_call, ..evidence_of(name, &frames, display) };
                let evidence = Some(evidence).filter(|_| is_known || !is_part);
                // The other end is gone when the recorder ends.
                let answer = PlaceAnswer { process, wait, evidence, chain };
                let _ = self.answers.send(answer);
            }
            DescribeWork::Stack { key, process, number, copy } => {
                self.took_copy();
                let stack = self.unwind(FRAMES, process, &copy);
                if let Some(open) = self.open_hang(key, process) {
                    open.described.insert(number, CollectedStack::Shared(stack.0));
                    if !copy.kernel.is_empty() {
                        open.kernel.insert(number, copy.kernel);
                    }
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

    fn unwind(&mut self, most: usize, process: u32, copy: &StackBytes) -> StackId {
        let registers = KnownRegisters::new(copy.ip, copy.sp);
        let HangDescriber { unwinder, recorder, .. } = self;
        unwinder.offline_up_to(most, process, &registers, &copy.bytes, recorder)
    }

    /// Returns the innermost functions of a stack.
    fn innermost(&mut self, most: usize, process: u32, copy: &StackBytes) -> Vec<Frame> {
        let stack = self.unwind(most, process, copy);
        self.named(process, stack.0).frames
    }

    fn named(&mut self, process: u32, stack: u32) -> NamedStack {
        let recording = self.recorder.recording();
        let index = usize::try_from(stack).unwrap_or(usize::MAX);
        let Some(stack) = recording.stacks.get(index) else { return NamedStack::default() };
        let frames = self.names.frames(recording, process, stack);
        NamedStack { frames, is_whole: stack.end == StackEnd::Whole }
    }

    /// Returns the functions of a stack of an absence.
    fn named_of(&mut self, key: u64, process: u32, stack: CollectedStack) -> NamedStack {
        match stack {
            CollectedStack::Shared(id) => self.named(process, id),
            CollectedStack::Named(at) => {
                let named = self.open.get(&key).and_then(|stacks| stacks.named.get(at));
                named.cloned().unwrap_or_default()
            }
        }
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
                let named = self.named(stacks.process, id);
                stacks.name(id, named);
            }
        }
        self.open = open;
        self.recorder = TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH);
        // What is stalled stays known: else each clearing would begin to wait for it anew.
        self.unwinder = Unwinder::with_worker(self.files.clone());
        self.names = Names::with_worker(self.sources.clone(), self.files.clone());
        sys::heap::give_back_freed();
    }

    fn store_hang(&mut self, draft: HangDraft, told: &mut dyn FnMut(&Hang)) {
        let HangDraft { key, began_ns, mut hang, descriptions } = draft;
        let known = self.open.get(&key).and_then(|stacks| stacks.identity);
        let suspended_ns = suspended_ns();
        if let Some(known) = known {
            hang.started_ns = known.started_ns(began_ns, hang.started_ns, suspended_ns);
        }
        for share in &mut hang.calls {
            let Some(object) = &mut share.object else { continue };
            let Some(at) = path_in(object) else { continue };
            let (beginning, path) = object.name.split_at(at);
            let now = SystemTime::UNIX_EPOCH
                + Duration::from_nanos(hang.started_ns.min(i64::MAX.unsigned_abs()));
            let stored = self.concealer.stored_path(path, &hang.program, now);
            object.name = format!("{beginning}{stored}");
        }
        hang.calls = merged(std::mem::take(&mut hang.calls));
        let cause = cause_of(&hang.parts, &hang.calls);
        let stacks = self.open.entry(key).or_default();
        // A stack in which it waited for something else, or computed, would blame a function that has no part in the cause.
        let mut weights = match is_sampled(cause) {
            true => stacks.sampled.clone(),
            false => HashMap::new(),
        };
        let mut in_kernel: BTreeMap<&[String], u64> = BTreeMap::new();
        for wait in descriptions.iter().filter(|wait| wait.is_of(cause, &hang.calls)) {
            if let Some(stack) = stacks.described.get(&wait.number) {
                *weights.entry(*stack).or_default() += wait.blocked_ns;
            }
            if let Some(functions) = stacks.kernel.get(&wait.number) {
                *in_kernel.entry(functions).or_default() += wait.blocked_ns;
            }
        }
        let longest = in_kernel.into_iter().max_by_key(|(_, blocked_ns)| *blocked_ns);
        hang.kernel_functions = longest.map_or_else(Vec::new, |(functions, _)| functions.to_vec());
        if weights.is_empty() {
            for (stack, weight) in stacks.sampled.clone() {
                let NamedStack { frames, .. } = self.named_of(key, hang.process, stack);
                if is_in_call_of(&frames, cause, &hang.calls) {
                    weights.insert(stack, weight);
                }
            }
        }
        let most = weights.into_iter().max_by_key(|(stack, weight)| (*weight, *stack));
        let named = most.map(|(stack, _)| self.named_of(key, hang.process, stack));
        let NamedStack { frames, is_whole } = named.unwrap_or_default();
        let asks = asks(&frames);
        hang.blamed = blame(&frames, None)
            .filter(|at| *at < MAX_FRAMES)
            .and_then(|at| u32::try_from(at).ok());
        hang.frames = frames.into_iter().take(MAX_FRAMES).map(stored_frame).collect();
        hang.cause = with_stack(with_chain(cause, &hang), asks);
        // A program that was stopped has no part in it.
        let is_missing = hang.frames.is_empty()
            && hang.cause != HangCause::Stopped
            && !hang.unseen.has(UnseenParts::FUNCTIONS);
        if is_missing || !hang.frames.is_empty() && !is_whole {
            hang.unseen.add(UnseenParts::STACK);
        }
        hang.number = known.map_or_else(|| self.store.take_number(), |known| known.number);
        if hang.goes_on {
            if let Some(open) = self.open.get_mut(&key) {
                let Hang { number, started_ns, .. } = hang;
                let identity = HangIdentity { number, began_ns, started_ns, suspended_ns };
                open.identity = Some(identity);
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

/// Returns where in the name of what a call was about its path begins, if it has one.
fn path_in(object: &CallObject) -> Option<usize> {
    match object.kind {
        ObjectKind::File => Some(0),
        // The path of a socket stands behind the program that listens there, and behind `@` if it has no file.
        ObjectKind::Socket => {
            let place = object.name.find(") at ").map_or(0, |at| at + ") at ".len());
            let at = place + usize::from(object.name[place..].starts_with('@'));
            object.name[at..].starts_with('/').then_some(at)
        }
        _ => object.name.starts_with(NAMED_PIPE).then_some(NAMED_PIPE.len()),
    }
}

fn stored_frame(frame: Frame) -> HangFrame {
    HangFrame { function: frame.text(), module: frame.module.into() }
}

#[cfg(test)]
mod tests {
    use trace::report::account::TimeParts;

    use super::super::cause::tests::share;
    use super::*;
    use crate::model::CallShare;
    use crate::recorder::cause::DescribedWait;

    /// A describer with a store of its own, and what it told.
    struct DescriberFixture {
        describer: HangDescriber,
        told: Vec<Hang>,
        _dir: tempfile::TempDir,
    }

    impl DescriberFixture {
        fn new() -> DescriberFixture {
            let dir = tempfile::tempdir().unwrap();
            let disk = store::disk::real();
            let store = HangStore::open(Arc::clone(&disk), dir.path(), 1 << 20).unwrap();
            let concealer = PathConcealer::open(disk, dir.path(), None).unwrap();
            let counters = Arc::new(SharedCounters::default());
            let (answers, _) = std::sync::mpsc::channel();
            let sources = SymbolSources::default();
            let describer = HangDescriber::new(store, concealer, sources, counters, answers);
            DescriberFixture { describer, told: Vec::new(), _dir: dir }
        }

        fn handle(&mut self, work: DescribeWork) {
            self.describer.handle(work, &mut |hang: &Hang| self.told.push(hang.clone()));
        }

        /// Gives it the stack of a wait of the first hang in a function of this program.
        fn stack(&mut self, number: u32, ip: u64) {
            let copy = StackBytes::new(ip, 0x1000, vec![0; 64]);
            let process = std::process::id();
            self.handle(DescribeWork::Stack { key: 1, process, number, copy });
        }

        /// Gives it the first hang, each call of which was described with its place in the list.
        fn hang(&mut self, goes_on: bool, parts: TimeParts, calls: Vec<CallShare>) {
            let descriptions =
                (1..).zip(&calls).map(|(number, share)| DescribedWait::of(number, share)).collect();
            let hang = Hang {
                number: 0,
                // Each state is told by clocks of its own moment, of which one may be set.
                started_ns: 1_000_000 << self.told.len(),
                length_ns: 1,
                uncertain_ns: 0,
                goes_on,
                process: std::process::id(),
                process_began_ns: 1,
                program: "notes".to_owned(),
                unit: String::new(),
                cause: HangCause::Unknown,
                parts,
                calls,
                frames: Vec::new(),
                blamed: None,
                pressure: None,
                unseen: UnseenParts::default(),
                chain: None,
                disk_use: None,
                kernel_functions: Vec::new(),
            };
            self.handle(DescribeWork::Hang(Box::new(HangDraft {
                key: 1,
                began_ns: 7,
                hang,
                descriptions,
            })));
        }
    }

    fn in_merged() -> u64 {
        (merged as fn(Vec<CallShare>) -> Vec<CallShare>) as usize as u64 + 1
    }

    fn in_cause_of() -> u64 {
        (cause_of as fn(&TimeParts, &[CallShare]) -> HangCause) as usize as u64 + 1
    }

    #[test]
    fn every_path_in_a_name_is_found() {
        let path = |kind, name: &str| {
            let (name, file_system, device) = (name.to_owned(), String::new(), String::new());
            let object = CallObject { kind, name, file_system, device };
            path_in(&object).map(|at| object.name[at..].to_owned())
        };
        for (name, expected) in [
            ("server (7) at /home/ann/a/ipc.sock", Some("/home/ann/a/ipc.sock")),
            ("server (7) at @/home/ann/.cache/bus", Some("/home/ann/.cache/bus")),
            ("a \\'b (7) at /home/ann/c) at /d", Some("/home/ann/c) at /d")),
            ("/home/ann/ipc.sock", Some("/home/ann/ipc.sock")),
            ("@/home/ann/ipc.sock", Some("/home/ann/ipc.sock")),
            ("server (7) at @name", None),
            ("server (7)", None),
            ("unix socket", None),
            ("tcp 127.0.0.1:80", None),
            ("", None),
        ] {
            assert_eq!(path(ObjectKind::Socket, name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(path(ObjectKind::File, "/home/ann/a").as_deref(), Some("/home/ann/a"));
        let pipe = format!("{NAMED_PIPE}/home/ann/p");
        assert_eq!(path(ObjectKind::Other, &pipe).as_deref(), Some("/home/ann/p"));
        assert_eq!(path(ObjectKind::Child, "sh (7) at /home"), None);
    }

    #[test]
    fn a_hang_that_goes_on_keeps_the_names_of_its_functions_and_no_caches() {
        let mut fixture = DescriberFixture::new();
        let parts = TimeParts { call_ns: 1, ..TimeParts::default() };
        let calls = || vec![share("fsync", 1, None)];
        fixture.stack(1, in_merged());
        fixture.hang(true, parts, calls());
        fixture.describer.clear_caches();
        assert!(fixture.describer.recorder.recording().stacks.is_empty(), "the hang goes on");
        fixture.hang(false, parts, calls());
        assert!(fixture.describer.open.is_empty());
        let functions: Vec<&[HangFrame]> = fixture.told.iter().map(|hang| &*hang.frames).collect();
        let [first, last] = *functions else { panic!("{functions:?}") };
        assert!(first == last && first[0].function.contains("merged"), "{functions:?}");
        let identity = |at: usize| (fixture.told[at].number, fixture.told[at].started_ns);
        assert_eq!(identity(0), identity(1));
    }

    #[test]
    fn the_function_to_blame_is_that_of_the_cause_although_another_stack_has_more_time() {
        let calls = [share("futex", 70, None), share("fsync", 60, None), share("fsync", 20, None)];
        for (parts, expected) in [
            (TimeParts { lock_ns: 70, call_ns: 80, ..TimeParts::default() }, Some("merged")),
            (TimeParts { lock_ns: 90, call_ns: 80, ..TimeParts::default() }, Some("cause_of")),
            // No sample of what it computed was read.
            (TimeParts { processor_ns: 90, ..TimeParts::default() }, None),
        ] {
            let mut fixture = DescriberFixture::new();
            for (number, ip) in [(1, in_cause_of()), (2, in_merged())] {
                fixture.stack(number, ip);
            }
            fixture.hang(false, parts, calls.to_vec());
            let hang = &fixture.told[0];
            let function = hang.frames.first().map(|frame| &*frame.function);
            let is_it = match (function, expected) {
                (Some(function), Some(expected)) => function.contains(expected),
                (function, expected) => function == expected,
            };
            assert!(is_it, "{function:?} in {hang:?}");
            assert_eq!(hang.unseen.has(UnseenParts::STACK), expected.is_none());
        }
    }
}
