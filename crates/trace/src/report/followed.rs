//! Makes rows of the chains of a recording: names, and a sentence a hop.

use std::collections::BTreeMap;

use wakeups::{ChainEnd, ChainHop, ChainWakeup, ProgramFacts, WakeupSource, systemd_unit};

use super::chains::{StallChain, StallHop, WakeupRow};
use super::schema::TraceMethod;
use super::spelling::{command_line, spell};
use super::symbolized::SymbolizedRecording;
use super::verdict::time;
use crate::recording::{RecordedChain, Recording};
use crate::syscall::call_name;

/// The most chains of a report, those of the longest waits.
const CHAINS: usize = 100;
/// The most wake-ups of a report.
const WAKEUPS: usize = 2000;
/// The most names of one process on a bus that are told.
const NAMES: usize = 3;

/// Returns the chains of stalls, the longest first.
pub(super) fn chains(builder: &SymbolizedRecording<'_>) -> Vec<StallChain> {
    let recording = builder.recording;
    let chains = of_stalls(builder).into_iter();
    chains.map(|chain| row(chain, recording)).collect()
}

/// Returns the wake-ups of the threads of the chains of stalls, by thread and time; of the longest waits first, if there are
/// too many.
pub(super) fn wakeups(builder: &SymbolizedRecording<'_>) -> Vec<WakeupRow> {
    let mut rows: BTreeMap<(u32, u64), WakeupRow> = BTreeMap::new();
    for chain in of_stalls(builder) {
        let begin = chain.chain.hops.first().map_or(0, |hop| hop.from_ns);
        for wakeup in &chain.wakeups {
            let at_ns = chain.start_ns.saturating_add(wakeup.at_ns.saturating_sub(begin));
            if rows.len() >= WAKEUPS && !rows.contains_key(&(wakeup.who.thread, at_ns)) {
                return rows.into_values().collect();
            }
            rows.insert((wakeup.who.thread, at_ns), wakeup_row(wakeup, at_ns));
        }
    }
    rows.into_values().collect()
}

fn wakeup_row(wakeup: &ChainWakeup, at_ns: u64) -> WakeupRow {
    let source = wakeup.source.filter(|source| !source.is_hidden());
    let by_interrupt = source.is_some_and(|source| source.context.is_interrupt());
    WakeupRow {
        thread: wakeup.who.thread,
        process: wakeup.process,
        name: name(&wakeup.name),
        at_ns,
        waited_ns: wakeup.waited_ns,
        uninterruptible: wakeup.uninterruptible,
        by: source.filter(|_| !by_interrupt).map(|source| source.who.thread),
        by_interrupt,
        ready_ns: wakeup.ready_ns,
        processor_ns: wakeup.processor_ns,
    }
}

fn of_stalls<'a>(builder: &SymbolizedRecording<'a>) -> Vec<&'a RecordedChain> {
    let recording = builder.recording;
    let calls = builder.slow().filter(|(_, how)| *how != TraceMethod::Idle);
    let mut stalls: BTreeMap<(u32, u32), Vec<(u64, u64)>> = BTreeMap::new();
    for (call, _) in calls {
        let of_kind = stalls.entry((call.thread, call.number)).or_default();
        of_kind.push((call.start_ns, call.start_ns.saturating_add(call.wall_ns)));
    }
    stalls.values_mut().for_each(|spans| spans.sort_unstable());
    let is_stall = |chain: &RecordedChain| {
        let spans = stalls.get(&(chain.thread, chain.number));
        spans.is_some_and(|spans| is_one_of(chain, spans))
    };
    let mut chains: Vec<&RecordedChain> =
        recording.chains.iter().filter(|chain| is_stall(chain)).collect();
    chains.sort_by_key(|chain| (std::cmp::Reverse(chain.wall_ns), chain.start_ns, chain.thread));
    chains.truncate(CHAINS);
    chains
}

/// Returns whether a chain is that of one of these calls, which are in the order of time and do not overlap. A call that was sampled
/// begins and ends some milliseconds beside the wait that the kernel told.
fn is_one_of(chain: &RecordedChain, calls: &[(u64, u64)]) -> bool {
    let (from, to) = (chain.start_ns, chain.start_ns.saturating_add(chain.wall_ns));
    let first = calls.partition_point(|(_, end)| *end <= from);
    let overlapping = calls.iter().skip(first).take_while(|(start, _)| *start < to);
    let common = |(start, end): &(u64, u64)| (*end).min(to).saturating_sub((*start).max(from));
    let is_it = |call: &(u64, u64)| {
        let longer = chain.wall_ns.max(call.1.saturating_sub(call.0));
        call.0 == from || common(call).saturating_mul(2) >= longer
    };
    overlapping.into_iter().any(is_it)
}

fn row(chain: &RecordedChain, recording: &Recording) -> StallChain {
    let hops = hops(chain, recording);
    let found = &chain.chain;
    let last = hops.len().saturating_sub(1);
    let waiting = hops.first().and_then(|hop| hop.user);
    let sentences = hops.iter().enumerate().map(|(at, hop)| {
        let end = (at == last).then_some(found.end);
        sentence(hop, at == 0, end, found.end_ns, chain.start_ns, waiting)
    });
    let sentences = sentences.collect();
    StallChain {
        thread: chain.thread,
        at_ns: chain.start_ns,
        wall_ns: chain.wall_ns,
        hops,
        end: found.end.word().to_owned(),
        end_ns: found.end_ns,
        has_losses: found.has_losses,
        sentences,
    }
}

/// Returns the hops of a chain with names.
fn hops(chain: &RecordedChain, recording: &Recording) -> Vec<StallHop> {
    let nothing = ProgramFacts::default();
    // The chain's clock is another one: its first hop begins with the call.
    let begin = chain.chain.hops.first().map_or(0, |hop| hop.from_ns);
    let since = |ns: u64| chain.start_ns.saturating_add(ns.saturating_sub(begin));
    let hop = |(at, (hop, function)): (usize, (&ChainHop, Option<&Option<String>>))| {
        let facts = chain.programs.get(at).unwrap_or(&nothing);
        let bus_names = recording.chain_bus_names.get(&hop.process).map_or(&[][..], Vec::as_slice);
        // A process that was recorded may have run several programs; the last one is known, by whose name its first thread goes.
        let known = recording.processes.get(&hop.process);
        let known = known.filter(|known| hop.is_named_after(&known.executable));
        let executable = match known {
            Some(known) if facts.executable.is_empty() => &known.executable,
            _ => &facts.executable,
        };
        let command = match known {
            Some(known) if facts.command.is_empty() => &known.command,
            _ => &facts.command,
        };
        StallHop {
            thread: hop.who.thread,
            process: hop.process,
            name: name(&hop.name),
            executable: spell(executable),
            command: command_line(command),
            unit: systemd_unit(&facts.cgroup).map(|unit| spell(&unit.name)),
            cgroup: spell(&facts.cgroup),
            user: facts.user,
            bus_names: bus_names.iter().map(|name| spell(name.as_bytes())).collect(),
            from_ns: since(hop.from_ns),
            to_ns: since(hop.to_ns),
            asked_ns: hop.asked_ns,
            processor_ns: hop.processor_ns,
            ready_ns: hop.ready_ns,
            waited_ns: hop.waited_ns,
            other_ns: hop.other_ns,
            waits: hop.waits,
            call: hop.call.and_then(call_name).map(str::to_owned),
            function: function.cloned().flatten().map(|function| spell(function.as_bytes())),
            started_ns: hop.born_ns.map(since),
            through: hop.through.iter().map(carrier).collect(),
        }
    };
    let functions = chain.functions.iter().map(Some).chain(std::iter::repeat(None));
    chain.chain.hops.iter().zip(functions).enumerate().map(hop).collect()
}

fn name(bytes: &[u8]) -> String {
    spell(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

fn carrier(source: &WakeupSource) -> String {
    format!("{} [{}]", name(&source.name), source.who.thread)
}

/// Names a hop: `a [123] (a.service, org.a)`, or a thread of it.
///
/// Its user is said where it is certainly another one than that of the thread that waited, `waiting`.
fn who(hop: &StallHop, waiting: Option<u32>) -> String {
    let program = hop.executable.rsplit('/').next().unwrap_or_default();
    let words: Vec<&str> = hop.command.split(' ').collect();
    // A script is better known than what interprets it.
    let script = words.iter().skip(1).find(|word| !word.starts_with('-'));
    let script = script.filter(|_| program.starts_with("python") || program == "perl");
    let program = script.map_or(program, |word| word.rsplit('/').next().unwrap_or(program));
    let mut text = match (program, hop.thread == hop.process) {
        ("", _) => format!("{} [{}]", hop.name, hop.thread),
        (program, true) => format!("{program} [{}]", hop.process),
        (program, false) => {
            format!("thread {} [{}] of {program} [{}]", hop.name, hop.thread, hop.process)
        }
    };
    let named = hop.bus_names.iter().take(NAMES).cloned();
    let group = (hop.unit.is_none() && hop.cgroup.len() > 1)
        .then(|| format!("control group {}", hop.cgroup));
    let other = hop.user.filter(|user| waiting.is_some_and(|waiting| waiting != *user));
    let user = other.map(|user| format!("user {user}"));
    let facts: Vec<String> =
        user.into_iter().chain(hop.unit.clone()).chain(group).chain(named).collect();
    if !facts.is_empty() {
        text.push_str(&format!(" ({})", facts.join(", ")));
    }
    text
}

/// Says in what a hop waited: ` in poll (unix_stream_data_wait)`.
fn waited_in(hop: &StallHop) -> String {
    match (&hop.call, &hop.function) {
        (Some(call), Some(function)) => format!(" in {call} ({function})"),
        (Some(word), None) | (None, Some(word)) => format!(" in {word}"),
        (None, None) => String::new(),
    }
}

fn sentence(
    hop: &StallHop,
    is_first: bool,
    end: Option<ChainEnd>,
    end_ns: u64,
    begin_ns: u64,
    waiting: Option<u32>,
) -> String {
    let who = who(hop, waiting);
    let mut text = if is_first { format!("the main thread of {who}") } else { who };
    if let Some(started) = hop.started_ns {
        let after = time(started.saturating_sub(begin_ns));
        text.push_str(&format!(", which was started {after} after the wait began,"));
    }
    let part = time(end_ns);
    let times = if hop.waits > 1 { format!(" in {} waits", hop.waits) } else { String::new() };
    let place = waited_in(hop);
    let did = match end {
        None => format!("waited {}{times}{place}", time(hop.waited_ns)),
        Some(ChainEnd::Timer) => format!("slept {part}{times}{place} until a time that was set"),
        Some(ChainEnd::Disk) => format!("waited {part}{times} for a disk{place}"),
        Some(ChainEnd::Network) => format!("waited {part}{times} for the network{place}"),
        Some(ChainEnd::Device) => {
            format!("waited {part}{times} for a device or an interrupt{place}")
        }
        Some(ChainEnd::Processor | ChainEnd::Ready) => format!(
            "ran for {part}: {} on a processor, {} ready, without one",
            time(hop.processor_ns),
            time(hop.ready_ns)
        ),
        Some(ChainEnd::Several) => format!(
            "did several things: {} on a processor, {} without one, {} in waits, {} at most for one",
            time(hop.processor_ns),
            time(hop.ready_ns),
            time(hop.waited_ns.saturating_add(hop.other_ns)),
            time(hop.waited_ns)
        ),
        Some(ChainEnd::TooLong) => format!("waited {part}{place}; more hops are not followed"),
        Some(ChainEnd::NotKnown) => {
            let waited_ns = if end_ns > 0 { end_ns } else { hop.asked_ns };
            format!("waited {}{times}{place}; for what is not known", time(waited_ns))
        }
    };
    text.push(' ');
    text.push_str(&did);
    if !hop.through.is_empty() {
        text.push_str(&format!("; it answered through {}", hop.through.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use wakeups::{ThreadIdentity, WakeupChain, WakeupContext};

    use super::*;
    use crate::recorder::TraceRecorder;
    use crate::recording::Backend;

    fn hop(process: u32, name: &[u8], waited_ns: u64) -> ChainHop {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name);
        ChainHop {
            who: ThreadIdentity { thread: process, began: 0 },
            process,
            name: bytes,
            from_ns: 5_000_000,
            to_ns: 2_005_000_000,
            asked_ns: 2_000_000_000,
            processor_ns: 0,
            ready_ns: 0,
            waited_ns,
            other_ns: 0,
            waits: 1,
            call: crate::syscall::call_number("poll"),
            functions: Vec::new(),
            born_ns: None,
            parent: None,
            through: Vec::new(),
        }
    }

    #[test]
    fn a_chain_is_told_in_a_sentence_a_hop_with_units_and_names_on_the_bus() {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), std::time::UNIX_EPOCH);
        let recording = recorder.recording();
        recording.chain_bus_names.insert(20, vec!["org.a".to_owned()]);
        let programs = [
            ("/usr/bin/app", "/"),
            ("/usr/libexec/a", "/user.slice/user@1000.service/app.slice/a.service"),
        ];
        let programs = programs.map(|(executable, cgroup)| ProgramFacts {
            executable: executable.into(),
            cgroup: cgroup.into(),
            ..ProgramFacts::default()
        });
        let mut hops = vec![
            hop(10, b"app", 1_990_000_000),
            hop(20, b"a", 1_980_000_000),
            hop(30, b"evil\x1b[2J", 1_970_000_000),
        ];
        hops[1].through = vec![WakeupSource {
            who: ThreadIdentity { thread: 2, began: 0 },
            name: *b"dbus-daemon\0\0\0\0\0",
            context: WakeupContext::Program,
            ..WakeupSource::default()
        }];
        hops[2].born_ns = Some(105_000_000);
        let chain =
            WakeupChain { hops, end: ChainEnd::Disk, end_ns: 1_970_000_000, has_losses: false };
        let chain = RecordedChain {
            thread: 10,
            start_ns: 1_000_000_000,
            wall_ns: 2_000_000_000,
            number: 7,
            chain,
            wakeups: Vec::new(),
            functions: vec![None, Some("unix_stream_data_wait".to_owned())],
            programs: programs.to_vec(),
        };
        let row = super::row(&chain, recording);
        assert_eq!(
            row.sentences,
            [
                "the main thread of app [10] waited 1.99 s in poll",
                "a [20] (a.service, org.a) waited 1.98 s in poll (unix_stream_data_wait); \
                 it answered through dbus-daemon [2]",
                "evil\\x1b[2J [30], which was started 100 ms after the wait began, \
                 waited 1.97 s for a disk in poll",
            ]
        );
        // Whose a hop is, is said where it is another user's, and both are known.
        let told = |users: [Option<u32>; 2]| {
            let mut chain = chain.clone();
            chain.programs.iter_mut().for_each(|facts| facts.cgroup.clear());
            for (facts, user) in chain.programs.iter_mut().zip(users) {
                facts.user = user;
            }
            super::row(&chain, recording).sentences.remove(1)
        };
        assert!(told([Some(1000), Some(65534)]).starts_with("a [20] (user 65534, org.a) waited "));
        for same in [[Some(7), Some(7)], [Some(7), None], [None, Some(7)], [None, None]] {
            assert!(told(same).starts_with("a [20] (org.a) waited "), "{same:?}");
        }
        assert_eq!((row.end.as_str(), row.hops[2].started_ns), ("disk", Some(1_100_000_000)));
        assert_eq!((row.hops[0].from_ns, row.hops[0].to_ns), (1_000_000_000, 3_000_000_000));
    }

    #[test]
    fn a_chain_is_that_of_the_call_that_was_made_then() {
        let chain = |start_ns, wall_ns| RecordedChain {
            thread: 10,
            start_ns,
            wall_ns,
            number: 202,
            chain: WakeupChain {
                hops: Vec::new(),
                end: ChainEnd::Timer,
                end_ns: 0,
                has_losses: false,
            },
            wakeups: Vec::new(),
            functions: Vec::new(),
            programs: Vec::new(),
        };
        let calls = [(100, 200), (300, 900)];
        let is_one = |start_ns, wall_ns| super::is_one_of(&chain(start_ns, wall_ns), &calls);
        // To the nanosecond, as the kernel tells a call, and beside it, as sampling does.
        assert!(is_one(100, 100) && is_one(300, 10) && is_one(310, 580) && is_one(290, 600));
        assert!(!is_one(0, 90) && !is_one(210, 80) && !is_one(900, 100));
        // A part of a call, or a call in a part of it, is another wait.
        assert!(!is_one(400, 100) && !is_one(50, 2000));
    }
}
