//! Follows long waits of main threads by the wake-ups of the machine, soon after they have ended.

use std::collections::{BTreeSet, HashMap};
use std::thread::JoinHandle;

use report::error::chain as causes;
use sys::bpf::LoadError;
use wakeups::kernel::WakeupTracer;
use wakeups::{KernelFunctions, KnownPrograms, ThreadWait, WakeupHistory};

use super::record::CallRecord;
use crate::place::bus_names;
use crate::recorder::{TraceRecorder, UnrecordedWait};
use crate::recording::RecordedChain;
use crate::syscall::{EVENT_WAITS, call_name};
use crate::syscall_set::Set;

/// The most waits that are taken before other records are.
const AT_ONCE: usize = 256;
/// Shorter waits of main threads are not followed, in nanoseconds.
const SHORTEST_NS: u64 = 5_000_000;
/// The most waits of other threads that are kept.
const HISTORY: usize = 65_536;
/// The most chains that are kept of waits for events, most of which are idle; and of others.
const CHAINS: usize = 256;

/// The most wake-ups that are kept of a chain.
const WAKEUPS: usize = 128;

/// The most waits of main threads that are kept for the same functions of the kernel, and the most such lists of functions.
const WAITS_OF_FUNCTIONS: usize = 32_768;
const LISTS_OF_FUNCTIONS: usize = 256;

/// A wait of a main thread, whatever it was for.
#[derive(Clone, Copy, Debug)]
struct AnyWait {
    thread: u32,
    call: Option<u32>,
    from_ns: u64,
    to_ns: u64,
}

/// Whether a thread that waits in this function of the kernel is stopped by a signal, or frozen.
fn stops(function: Option<&str>) -> bool {
    matches!(function, Some("do_signal_stop" | "do_freezer_trap"))
}

/// Whether a thread that waits in this function of the kernel has to because of what its control group has used: it does so as
/// any call returns, which is not what it waits for.
fn throttles(function: Option<&str>) -> bool {
    let function = function.map(|name| name.trim_start_matches('_'));
    function.is_some_and(|name| {
        name.starts_with("mem_cgroup_handle_over_high") || name.starts_with("blkcg_maybe_throttle")
    })
}

/// A long wait of a main thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct MainWait {
    thread: u32,
    number: u32,
    /// Of the monotonic clock.
    from_ns: u64,
    began_ns: u64,
    wall_ns: u64,
}

impl MainWait {
    /// Returns the wait that a call was, if it is to be followed.
    pub(super) fn of(call: &CallRecord<'_>, began_ns: u64) -> Option<MainWait> {
        (call.thread == call.process && call.wall_ns >= SHORTEST_NS).then_some(MainWait {
            thread: call.thread,
            number: call.number,
            from_ns: call.start_ns,
            began_ns,
            wall_ns: call.wall_ns,
        })
    }

    /// Returns the wait of a main thread in a call that is not recorded, if it is to be followed.
    fn of_unrecorded(wait: &ThreadWait, recorded: &Set, began_ns: u64) -> Option<MainWait> {
        let wall_ns = wait.to_ns.saturating_sub(wait.from_ns);
        let number = wait.call.filter(|call| !recorded.contains(*call))?;
        (wait.who.thread == wait.process && wall_ns >= SHORTEST_NS).then_some(MainWait {
            thread: wait.process,
            number,
            from_ns: wait.from_ns,
            began_ns,
            wall_ns,
        })
    }
}

/// Puts the programs that record wake-ups into the kernel, on a thread of its own: others are put there meanwhile.
#[derive(Debug)]
pub(super) enum ChainLoader {
    /// They are being put there; without a thread it is done when they are needed.
    Loads(Option<JoinHandle<Result<WakeupTracer, LoadError>>>),
    /// They are left out; a note says why.
    LeftOut(&'static str),
}

impl ChainLoader {
    /// Begins.
    pub(super) fn start() -> ChainLoader {
        // Without a thread it is done when it is needed.
        ChainLoader::Loads(sys::thread::spawn("wakeups", WakeupTracer::load).ok())
    }

    /// Waits for none, with a note that says why.
    pub(super) fn left_out(note: &'static str) -> ChainLoader {
        ChainLoader::LeftOut(note)
    }

    /// Waits until they are there; else returns a note.
    fn load(self) -> Result<WakeupTracer, String> {
        let loader = match self {
            ChainLoader::Loads(loader) => loader,
            ChainLoader::LeftOut(note) => return Err(note.to_owned()),
        };
        let loaded = loader.and_then(|loader| loader.join().ok());
        loaded.unwrap_or_else(WakeupTracer::load).map_err(|error| {
            format!("Waits are not followed to other programs: {}.", causes(&error))
        })
    }
}

/// Records wake-ups, and follows waits.
#[derive(Debug)]
pub(super) struct ChainRecorder {
    /// None where the kernel does not take the programs.
    tracer: Option<WakeupTracer>,
    history: WakeupHistory,
    lost: u64,
    /// Chains of waits for events, of other calls that are recorded, and of calls that are not.
    chains: [Vec<RecordedChain>; 3],
    programs: KnownPrograms,
    /// Waits of main threads, by the kernel's functions that they were in.
    waits: HashMap<Vec<u64>, Vec<AnyWait>>,
    /// How many waits there was no room for that would have been told.
    left_out: u64,
    /// Waits in calls that are not recorded, to be followed when all that was recorded is taken.
    unfollowed: Vec<MainWait>,
    note: Option<String>,
}

impl ChainRecorder {
    /// Makes one whose programs are in the kernel.
    pub(super) fn new(loader: ChainLoader) -> ChainRecorder {
        let (tracer, note) = match loader.load() {
            Ok(tracer) => (Some(tracer), None),
            Err(note) => (None, Some(note)),
        };
        ChainRecorder {
            tracer,
            history: WakeupHistory::new(HISTORY),
            lost: 0,
            chains: [const { Vec::new() }; 3],
            programs: KnownPrograms::default(),
            waits: HashMap::new(),
            left_out: 0,
            unfollowed: Vec::new(),
            note,
        }
    }

    /// Takes a part of what was recorded; returns whether there may be more, of which nobody has to wait for the whole: on a
    /// busy machine all its threads wait and wake each other up. When there is no more, follows waits that have ended: those
    /// in `waits`, and of the processes of which `is_recorded` says so those in calls that are not in the set `recorded`, such
    /// as for locks.
    pub(super) fn follow(
        &mut self,
        waits: &mut Vec<MainWait>,
        recorded: &Set,
        began_ns: u64,
        is_recorded: impl Fn(u32) -> bool,
    ) -> bool {
        let Some(tracer) = &mut self.tracer else {
            waits.clear();
            return false;
        };
        let taken = tracer.take_each(AT_ONCE, |wait| {
            if wait.who.thread == wait.process && is_recorded(wait.process) {
                let is_left_out = !keep_wait(&mut self.waits, &wait) && is_told(&wait, recorded);
                self.left_out += u64::from(is_left_out);
            }
            self.unfollowed.extend(MainWait::of_unrecorded(&wait, recorded, began_ns));
            self.history.add(wait);
        });
        self.unfollowed.retain(|wait| is_recorded(wait.thread));
        if taken >= AT_ONCE {
            return true;
        }
        let others = std::mem::take(&mut self.unfollowed);
        if !waits.is_empty() || !others.is_empty() {
            let lost = tracer.lost().unwrap_or(self.lost);
            self.history.count_lost(lost.saturating_sub(self.lost));
            self.lost = lost;
        }
        let all = waits.drain(..).map(|wait| (wait, true));
        for (wait, is_call) in all.chain(others.into_iter().map(|wait| (wait, false))) {
            let to_ns = wait.from_ns.saturating_add(wait.wall_ns);
            let Some(thread) = self.history.identity(wait.thread, to_ns) else { continue };
            let chain = self.history.walk(thread, wait.from_ns, to_ns);
            if chain.hops.len() < 2 {
                continue;
            }
            let chains = match (is_call, is_event_wait(wait.number)) {
                (true, true) => &mut self.chains[0],
                (true, false) => &mut self.chains[1],
                (false, _) => &mut self.chains[2],
            };
            if chains.len() >= CHAINS && chains.iter().all(|kept| kept.wall_ns >= wait.wall_ns) {
                continue;
            }
            // They may end soon, or run another program.
            let programs = chain.hops.iter().map(|hop| self.programs.of_hop(hop)).collect();
            let wakeups = self.history.wakeups(&chain, WAKEUPS);
            chains.push(RecordedChain {
                thread: wait.thread,
                start_ns: wait.from_ns.saturating_sub(wait.began_ns),
                wall_ns: wait.wall_ns,
                number: wait.number,
                chain,
                wakeups,
                functions: Vec::new(),
                programs,
            });
            let shortest = (0..chains.len()).min_by_key(|at| chains[*at].wall_ns);
            if let Some(shortest) = shortest.filter(|_| chains.len() > CHAINS) {
                chains.swap_remove(shortest);
            }
        }
        false
    }

    /// Records no more; what was recorded can still be taken.
    pub(super) fn detach(&mut self) {
        if let Some(tracer) = &mut self.tracer {
            tracer.detach();
        }
    }

    /// Puts the chains into the recording, and the waits that none of the calls in the set `recorded` was. `began` is when the
    /// recording did, and since when what the first process does is its own, of the monotonic clock.
    pub(super) fn finish(
        &mut self,
        recorder: &mut TraceRecorder,
        recorded: &Set,
        began: (u64, u64),
    ) {
        let recording = recorder.recording();
        recording.notes.extend(self.note.take());
        recording.lost += self.left_out;
        if self.left_out > 0 {
            recording.notes.push(format!(
                "{} waits of main threads in calls that are not recorded were not kept, for there were too many.",
                self.left_out
            ));
        }
        let mut chains: Vec<RecordedChain> =
            self.chains.iter_mut().flat_map(std::mem::take).collect();
        let hops = || chains.iter().flat_map(|chain| &chain.chain.hops);
        let addresses: BTreeSet<u64> = hops()
            .flat_map(|hop| &hop.functions)
            .chain(self.waits.keys().flatten())
            .copied()
            .collect();
        let functions = KernelFunctions::read(&addresses);
        let buses: BTreeSet<u32> =
            hops().flat_map(|hop| &hop.through).map(|source| source.process).collect();
        let mut names = bus_names::of_buses(&buses);
        let processes: BTreeSet<u32> = hops().map(|hop| hop.process).collect();
        names.retain(|process, _| processes.contains(process));
        recording.chain_bus_names = names;
        for chain in &mut chains {
            let name = |hop: &wakeups::ChainHop| functions.waited_in(&hop.functions);
            chain.functions =
                chain.chain.hops.iter().map(|hop| name(hop).map(str::to_owned)).collect();
        }
        // Who was stopped or frozen in a call did not wait for what ended it.
        chains.retain(|chain| !stops(chain.functions.first().and_then(Option::as_deref)));
        recording.chains = chains;
        self.tell_waits(&functions, recorder, recorded, began);
    }

    /// Records when main threads were stopped, and their waits in calls that are not recorded. Those for events are left to the
    /// looks from outside: without callers nobody knows whether they were rest.
    fn tell_waits(
        &mut self,
        functions: &KernelFunctions,
        recorder: &mut TraceRecorder,
        recorded: &Set,
        (began_ns, own_since_ns): (u64, u64),
    ) {
        let wants_waits = recorded.has_waits();
        let (mut others, mut returning) = (Vec::new(), Vec::new());
        for (list, waits) in self.waits.drain() {
            let function = functions.waited_in(&list);
            let (is_stop, is_throttled) = (stops(function), throttles(function));
            for wait in waits {
                let [from_ns, to_ns] =
                    [wait.from_ns, wait.to_ns].map(|at| at.saturating_sub(began_ns));
                let told = |number| UnrecordedWait { number, from_ns, to_ns, is_told: false };
                match wait.call.filter(|call| !is_event_wait(*call)) {
                    _ if is_stop => recorder.stopped(wait.thread, from_ns, to_ns),
                    _ if is_throttled => {}
                    Some(call) if recorded.contains(call) => {
                        if wait.from_ns < own_since_ns {
                            continue;
                        }
                        returning.push((wait.thread, told(call)));
                    }
                    Some(call) if wants_waits => others.push((wait.thread, told(call))),
                    _ => {}
                }
            }
        }
        others.sort_by_cached_key(|(_, wait)| wait.from_ns);
        for (thread, wait) in others {
            recorder.waited_unrecorded(thread, wait);
        }
        returning.sort_by_cached_key(|(_, wait)| wait.from_ns);
        recorder.waited_returning(&returning);
    }
}

fn is_event_wait(call: u32) -> bool {
    call_name(call).is_some_and(|name| EVENT_WAITS.contains(&name))
}

/// Returns whether a wait of a main thread is told by the wake-ups alone: no call is recorded for it, and it is not one for events.
fn is_told(wait: &ThreadWait, recorded: &Set) -> bool {
    let is_unrecorded = |call| !recorded.contains(call) && !is_event_wait(call);
    recorded.has_waits() && wait.call.is_some_and(is_unrecorded)
}

/// Keeps a wait of a main thread; returns whether there was room for it.
fn keep_wait(waits: &mut HashMap<Vec<u64>, Vec<AnyWait>>, wait: &ThreadWait) -> bool {
    let kept = AnyWait {
        thread: wait.who.thread,
        call: wait.call,
        from_ns: wait.from_ns,
        to_ns: wait.to_ns,
    };
    let has_room = waits.len() < LISTS_OF_FUNCTIONS;
    match waits.get_mut(&wait.functions) {
        Some(same) if same.len() < WAITS_OF_FUNCTIONS => same.push(kept),
        None if has_room => {
            waits.insert(wait.functions.clone(), vec![kept]);
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::recording::Backend;
    use crate::syscall::call_number;

    fn wait(call: &str, functions: u64) -> ThreadWait {
        ThreadWait {
            call: call_number(call),
            functions: vec![functions],
            to_ns: SHORTEST_NS,
            ..ThreadWait::default()
        }
    }

    #[test]
    fn waits_for_which_there_is_no_room_are_counted_unless_they_are_told_elsewhere_or_rest() {
        let blocking: Set = "blocking".parse().unwrap();
        let few: Set = "fsync".parse().unwrap();
        let mut waits = HashMap::new();
        for _ in 0..WAITS_OF_FUNCTIONS {
            assert!(keep_wait(&mut waits, &wait("futex", 0)));
        }
        assert!(!keep_wait(&mut waits, &wait("futex", 0)), "too many with one list of functions");
        for list in 1..LISTS_OF_FUNCTIONS {
            assert!(keep_wait(&mut waits, &wait("futex", list as u64)));
        }
        assert!(!keep_wait(&mut waits, &wait("futex", 1 << 40)), "too many such lists");
        assert!(keep_wait(&mut waits, &wait("futex", 1)));
        for (call, recorded, is_meant) in [
            ("futex", &blocking, true),
            ("fsync", &blocking, false),
            ("epoll_wait", &"blocking,!epoll_wait".parse().unwrap(), false),
            ("futex", &few, false),
        ] {
            assert_eq!(is_told(&wait(call, 0), recorded), is_meant, "{call} {recorded}");
        }
        assert!(!is_told(&ThreadWait::default(), &blocking), "outside of a call");
    }

    #[test]
    fn waits_that_were_left_out_are_lost_and_a_note_says_so() {
        let mut chains = ChainRecorder::new(ChainLoader::left_out("nothing is followed"));
        chains.left_out = 3;
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        chains.finish(&mut recorder, &Set::all(), (0, 0));
        let recording = recorder.recording();
        assert_eq!((recording.lost, recording.not_counted), (3, 0));
        assert!(recording.notes.iter().any(|note| note.starts_with("3 waits of main threads")));
    }
}
