//! Code paths: slow calls put together by the frame to blame, the call, and what it worked on.

use std::collections::HashMap;
use std::hash::Hash;

use super::schema::{CodePath, Share, TargetKind, TraceMethod};
use super::symbolized::{SymbolizedRecording, add, item, kind_of};
use crate::call::TracedCall;

/// The most stacks and the most targets that are kept of one path.
const SHARES: usize = 12;
/// The most paths that are kept.
const PATHS: usize = 300;

/// What calls of one path have in common.
#[derive(Eq, Hash, PartialEq)]
struct Key {
    frame: Option<u32>,
    number: u32,
    kind: Option<TargetKind>,
    how: TraceMethod,
}

/// Calls and time by an index of the recording.
#[derive(Default)]
struct Shares(HashMap<u32, (u64, u64)>);

impl Shares {
    fn add(&mut self, at: u32, call: &TracedCall) {
        let (count, wall) = self.0.entry(at).or_default();
        (*count, *wall) = (*count + 1, wall.saturating_add(call.wall_ns));
    }

    fn finish(self) -> Vec<Share> {
        let shares = self.0.into_iter();
        let mut shares: Vec<Share> =
            shares.map(|(index, (count, wall_ns))| Share { index, count, wall_ns }).collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.wall_ns), share.index));
        shares.truncate(SHARES);
        shares
    }
}

/// Puts the slow calls together; stalls first, then by time. The shares have the recording's own indexes.
pub(super) fn paths(
    builder: &SymbolizedRecording<'_>,
    call_index: &HashMap<u32, u32>,
) -> Vec<CodePath> {
    // One function has many addresses; the first of its frames stands for all.
    let mut functions: HashMap<(&str, Option<&str>), u32> = HashMap::new();
    let same: Vec<u32> = (0..)
        .zip(&builder.frames)
        .map(|(at, frame)| *functions.entry((&frame.name, frame.module.as_deref())).or_insert(at))
        .collect();
    let mut paths: HashMap<Key, (CodePath, Shares, Shares)> = HashMap::new();
    for (call, how) in builder.slow() {
        let Some(call_at) = call_index.get(&call.number) else { continue };
        let named = call.stack.and_then(|stack| builder.stacks.get(&stack));
        let frame = named.and_then(|named| named.frames.get(named.blamed?).copied());
        let frame = frame.and_then(|frame| item(&same, frame).copied());
        let target = call.target.and_then(|target| item(&builder.recording.targets, target.0));
        let key = Key { frame, number: call.number, kind: target.map(kind_of), how };
        let (path, targets, stacks) = paths.entry(key).or_insert_with_key(|key| {
            let path = CodePath {
                frame: key.frame,
                call: *call_at,
                kind: key.kind,
                how,
                count: 0,
                on_main: 0,
                wall_ns: 0,
                cpu_ns: None,
                blocked_ns: None,
                elsewhere_ns: 0,
                longest_ns: 0,
                targets: Vec::new(),
                stacks: Vec::new(),
            };
            (path, Shares::default(), Shares::default())
        });
        path.count += 1;
        path.on_main += u64::from(call.thread == call.process);
        path.wall_ns = path.wall_ns.saturating_add(call.wall_ns);
        path.longest_ns = path.longest_ns.max(call.wall_ns);
        add(&mut path.cpu_ns, call.cpu_ns);
        add(&mut path.blocked_ns, builder.blocked_ns(call));
        let stopped = builder.stopped_ns(call).unwrap_or(0);
        let elsewhere = builder.queued_ns(call).unwrap_or(0).saturating_add(stopped);
        path.elsewhere_ns = path.elsewhere_ns.saturating_add(elsewhere.min(call.wall_ns));
        if let Some(target) = call.target {
            targets.add(target.0, call);
        }
        if let Some(stack) = call.stack {
            stacks.add(stack.0, call);
        }
    }
    let mut paths: Vec<CodePath> = paths
        .into_values()
        .map(|(mut path, targets, stacks)| {
            (path.targets, path.stacks) = (targets.finish(), stacks.finish());
            path
        })
        .collect();
    // The call and the frame only make the order of equals the same each time.
    paths.sort_by_key(|path| {
        (path.how, std::cmp::Reverse((path.wall_ns, path.count)), path.call, path.frame)
    });
    paths.truncate(PATHS);
    paths
}
