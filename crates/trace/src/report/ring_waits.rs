//! Makes rows of the operations of `io_uring` of a recording, and says which waits they ended.

use std::collections::{BTreeMap, HashMap};

use kernelwork::name_of;

use super::operations::{OperationRow, OperationSum};
use super::schema::{Slow, TraceReport};
use super::symbolized::{SymbolizedRecording, index};
use super::verdict::time;
use crate::call::TargetId;
use crate::kernel_work::{RecordedOperation, RecordedOperations};
use crate::syscall;

/// The most operations of a report beside those that ended a wait.
const OPERATIONS: usize = 500;
/// The most sums.
const SUMS: usize = 200;

/// Operations chosen for a report.
pub(super) struct ChosenOperations {
    pub(super) rows: Vec<OperationRow>,
    pub(super) sums: Vec<OperationSum>,
    pub(super) left_out: u64,
    /// Where each operation of the recording went.
    places: HashMap<u32, u32>,
    /// The operation that ended a wait, by thread and when the call began.
    waits: BTreeMap<(u32, u64), u32>,
}

/// Returns the targets of the operations that a report would show.
pub(super) fn targets(builder: &SymbolizedRecording<'_>) -> Vec<TargetId> {
    let work = &builder.recording.kernel;
    let rows = chosen(builder).into_iter().filter_map(|at| work.operations.get(at)?.target);
    rows.chain(sums(builder).into_iter().filter_map(|sum| sum.target)).collect()
}

fn sums<'a>(builder: &SymbolizedRecording<'a>) -> Vec<&'a RecordedOperations> {
    let mut sums: Vec<_> = builder.recording.kernel.totals.iter().collect();
    sums.sort_by_key(|sum| (std::cmp::Reverse((sum.wall_ns, sum.count)), sum.opcode, sum.target));
    sums.truncate(SUMS);
    sums
}

/// Chooses the longest operations, and those that ended waits; in the order of time.
fn chosen(builder: &SymbolizedRecording<'_>) -> Vec<usize> {
    let work = &builder.recording.kernel;
    let mut order: Vec<usize> = (0..work.operations.len()).collect();
    order.sort_by_cached_key(|at| std::cmp::Reverse(work.operations[*at].wall_ns));
    order.truncate(OPERATIONS);
    let ended = work.waits.values().filter_map(|wait| usize::try_from(wait.operation).ok());
    order.extend(ended.filter(|at| *at < work.operations.len()));
    order.sort_by_key(|at| (work.operations[*at].start_ns, *at));
    order.dedup();
    order
}

/// Makes the rows; `target_index` says where a target is in the report.
pub(super) fn operations(
    builder: &SymbolizedRecording<'_>,
    target_index: &HashMap<TargetId, u32>,
) -> ChosenOperations {
    let work = &builder.recording.kernel;
    let place = |target: Option<TargetId>| target_index.get(&target?).copied();
    let chosen = chosen(builder);
    let places: HashMap<u32, u32> =
        chosen.iter().enumerate().map(|(to, from)| (index(*from), index(to))).collect();
    let rows: Vec<OperationRow> = chosen
        .iter()
        .filter_map(|at| work.operations.get(*at))
        .map(|operation| row(operation, place(operation.target)))
        .collect();
    let sums = sums(builder).into_iter().map(|sum| OperationSum {
        name: name(sum.opcode),
        target: place(sum.target),
        count: sum.count,
        errors: sum.errors,
        wall_ns: sum.wall_ns,
        longest_ns: sum.longest_ns,
        bytes: sum.bytes,
    });
    let waits = work.waits.iter().map(|(wait, found)| (*wait, found.operation)).collect();
    ChosenOperations {
        sums: sums.collect(),
        left_out: (work.operations.len() - rows.len()) as u64 + work.dropped,
        rows,
        places,
        waits,
    }
}

impl ChosenOperations {
    /// Returns the operation that ended the call of a thread that began at `start_ns`.
    pub(super) fn that_ended(&self, thread: u32, start_ns: u64) -> Option<u32> {
        self.places.get(self.waits.get(&(thread, start_ns))?).copied()
    }
}

fn name(opcode: u8) -> String {
    name_of(opcode).map_or_else(|| format!("operation {opcode}"), str::to_owned)
}

fn row(operation: &RecordedOperation, target: Option<u32>) -> OperationRow {
    let error = operation.result.filter(|result| *result < 0);
    OperationRow {
        name: name(operation.opcode),
        process: operation.process,
        thread: operation.thread,
        at_ns: operation.start_ns,
        wall_ns: operation.wall_ns,
        result: operation.result.filter(|result| *result >= 0),
        error: error.map(|error| syscall::error_name(error.saturating_neg())),
        bytes: operation.bytes,
        target,
        descriptor: operation.descriptor,
        registered: operation.is_registered,
        worker: operation.by_worker,
        readiness: operation.awaited_readiness,
    }
}

impl TraceReport {
    /// Writes what an operation is: `READ of ~/x`.
    #[must_use]
    pub fn operation_title(&self, name: &str, target: Option<u32>) -> String {
        match target.and_then(|at| self.target_name(at)) {
            Some(target) => format!("{name} of {target}"),
            None => name.to_owned(),
        }
    }

    /// Says of a slow call which operation of `io_uring` ended it; nothing where none did.
    #[must_use]
    pub fn operation_text(&self, slow: &Slow) -> Option<String> {
        let operation = self.operations.get(usize::try_from(slow.operation?).ok()?)?;
        let mut text = self.operation_title(&operation.name, operation.target);
        if operation.registered {
            text.push_str(" (a registered file)");
        }
        let ended = match (&operation.error, operation.result) {
            (Some(error), _) => format!("failed with {error} {}", time(operation.wall_ns)),
            (None, Some(_)) => format!("was completed {}", time(operation.wall_ns)),
            (None, None) => format!("ran at the end of the recording, {}", time(operation.wall_ns)),
        };
        text.push_str(&format!(", which {ended} after it was submitted"));
        if operation.worker {
            text.push_str(", by a worker thread of the kernel");
        }
        Some(text)
    }
}
