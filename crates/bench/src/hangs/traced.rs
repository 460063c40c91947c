//! A trace of a program in which one hang is planted, and what its report says of that hang.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use sys::syscall::SyscallClass;
use trace::report::account::{TimeAccount, TimeBlock};
use trace::report::chains::StallHop;
use trace::report::schema::{Slow, TargetKind, TraceMethod};
use trace::report::{TraceReport, data};

use super::judge::{Span, ToldHang};
use super::process::OwnedProcess;
use super::scene::HangScene;
use crate::lab::{BenchError, cannot};

/// How long a trace may take to name functions, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Blocks that are shorter are no hangs, in nanoseconds.
const HANG_NS: u64 = 100_000_000;

/// `unjank trace attach` of one program, until it is told to end.
#[derive(Debug)]
pub(super) struct AttachedTrace {
    process: OwnedProcess,
    of: u32,
    path: PathBuf,
}

/// What a trace says.
#[derive(Debug)]
pub(super) struct TraceFinding {
    /// The time that was recorded.
    pub(super) recorded: Span,
    /// The blocks of the main thread that are hangs, the longest first.
    pub(super) hangs: Vec<ToldHang>,
    /// How much of the main thread's time is not explained, in percent.
    pub(super) unexplained: f64,
}

impl AttachedTrace {
    /// Starts to trace a process.
    pub(super) fn start(scene: &HangScene, of: u32) -> Result<AttachedTrace, BenchError> {
        let path = scene.at(&format!("trace-{of}"));
        let output = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        let output = output.map_err(|error| cannot(&path, error))?;
        let mut command = scene.command(&scene.unjank);
        command.args(["trace", "attach", "--json", &of.to_string()]).stdout(output);
        let process = OwnedProcess::start(&mut command);
        let process = process.map_err(|error| cannot("unjank trace attach", error))?;
        Ok(AttachedTrace { process, of, path })
    }

    /// Ends it, and reads its report; none if it had not begun to record.
    pub(super) fn end(self) -> Result<Option<TraceFinding>, BenchError> {
        let failed = |error: std::io::Error| cannot("unjank trace attach", error);
        self.process.end_within(PATIENCE).map_err(failed)?;
        let bytes = fs::read(&self.path).map_err(failed)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let report = data::read(&bytes).map_err(|error| cannot("the report of a trace", error))?;
        let finding = finding(&report, self.of);
        finding
            .map(Some)
            .ok_or_else(|| cannot("the report of a trace", "it does not account for the program"))
    }
}

fn finding(report: &TraceReport, of: u32) -> Option<TraceFinding> {
    let began_ns = report.began_monotonic_ns?;
    let number = u32::try_from(report.threads.iter().position(|thread| thread.id == of)?).ok()?;
    let account = report.threads.get(number as usize)?.account.as_ref()?;
    let long = account.blocks.iter().filter(|block| block.wall_ns >= HANG_NS);
    let hangs = long.map(|block| hang(report, number, of, account, block));
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    let unexplained = 100.0 * account.parts.unknown_ns as f64 / account.wall_ns.max(1) as f64;
    let to_ns = began_ns.saturating_add(report.length_ns);
    Some(TraceFinding {
        recorded: Span { from_ns: began_ns, to_ns },
        hangs: hangs.collect(),
        unexplained,
    })
}

fn hang(
    report: &TraceReport,
    number: u32,
    of: u32,
    account: &TimeAccount,
    block: &TimeBlock,
) -> ToldHang {
    let to_ns = block.at_ns.saturating_add(block.wall_ns);
    let is_inside =
        |at_ns: u64, wall_ns: u64| at_ns.saturating_add(wall_ns) > block.at_ns && at_ns < to_ns;
    let calls = CallSums::of(
        report.slow.iter().filter(|slow| {
            slow.thread == number
                && slow.how != TraceMethod::Idle
                && is_inside(slow.at_ns, slow.wall_ns)
        }),
        block,
        report,
    );
    let hops = report
        .chains
        .iter()
        .filter(|chain| chain.thread == of && is_inside(chain.at_ns, chain.wall_ns))
        .flat_map(|chain| chain.hops.iter().skip(1));
    // Of a program that has ended only the name of its thread is known.
    let program = |hop: &StallHop| match last_component(&hop.executable) {
        "" => hop.name.clone(),
        name => name.to_owned(),
    };
    let chain: Vec<String> = hops.map(program).collect();
    let parts = block.parts;
    let pages = parts.fault_ns + parts.reclaim_ns + parts.swap_ns;
    let in_calls = parts.call_ns + parts.ring_ns + parts.lock_ns + parts.child_ns;
    let kinds = [
        (parts.processor_ns, "computing"),
        (parts.ready_ns, "processor-queue"),
        (pages, "page-fault"),
        (in_calls, "calls"),
        (parts.stopped_ns, "stopped"),
        (parts.idle_ns, "idle"),
        (parts.tracer_ns, "tracer"),
        (parts.unknown_ns, "not-known"),
    ];
    let kind = kinds.iter().max_by_key(|(ns, _)| *ns).map_or("not-known", |(_, kind)| *kind);
    let named = |frame: Option<u32>| {
        let frame = frame.and_then(|frame| report.frames.get(frame as usize));
        frame.map(|frame| frame.name.clone()).unwrap_or_default()
    };
    // The object is that of the longer waits, of pages or in calls.
    let file = account.file_of_most_pages().unwrap_or_default();
    let object = if pages > in_calls { file.to_owned() } else { most(&calls.objects) };
    let most_pages = account.pages.iter().max_by_key(|page| page.count);
    let most_memory = account.memory.iter().max_by_key(|row| row.wall_ns);
    let (cause, function) = match kind {
        "calls" => {
            let cause = match () {
                () if parts.lock_ns * 2 > in_calls => "lock".to_owned(),
                () if parts.child_ns * 2 > in_calls => "child".to_owned(),
                () => most(&calls.causes),
            };
            (cause, most(&calls.functions))
        }
        "page-fault" => {
            let function = most_pages.and_then(|page| page.frame);
            let function = function.or(most_memory.and_then(|row| row.frame));
            (kind.to_owned(), named(function))
        }
        _ => (kind.to_owned(), named(block.frame)),
    };
    let from_ns = report.began_monotonic_ns.unwrap_or(0).saturating_add(block.at_ns);
    ToldHang {
        process: of,
        span: Span { from_ns, to_ns: from_ns.saturating_add(block.wall_ns) },
        cause,
        function,
        objects: vec![object],
        chain,
    }
}

/// The slow calls of a block, by what they waited for, who made them, and on what.
#[derive(Debug, Default)]
struct CallSums {
    causes: BTreeMap<String, u64>,
    functions: BTreeMap<String, u64>,
    objects: BTreeMap<String, u64>,
}

impl CallSums {
    fn of<'a>(
        calls: impl Iterator<Item = &'a Slow>,
        block: &TimeBlock,
        report: &TraceReport,
    ) -> CallSums {
        let mut sums = CallSums::default();
        for slow in calls {
            let operation = slow.operation.and_then(|at| report.operations.get(at as usize));
            let target = operation.map_or(slow.target, |operation| operation.target);
            let stack = slow.stack.and_then(|at| report.stacks.get(at as usize));
            let blamed = stack.and_then(|stack| stack.frames.get(stack.blamed? as usize).copied());
            sums.add(report, (slow.call, target, blamed), slow.wall_ns);
        }
        for row in &block.short_calls {
            sums.add(report, (row.call, row.target, row.frame), row.wall_ns);
        }
        sums
    }

    /// Adds waits in a call for an object, which a function made; all are indexes into the report.
    fn add(
        &mut self,
        report: &TraceReport,
        (call, target, frame): (u32, Option<u32>, Option<u32>),
        wall_ns: u64,
    ) {
        let target = target.and_then(|at| report.targets.get(at as usize));
        let Some(call) = report.calls.get(call as usize) else { return };
        let is = |kind: TargetKind| target.is_some_and(|target| target.kind == kind);
        let cause = match call.class {
            SyscallClass::Sync => "sync",
            _ if is(TargetKind::File) => "file-data",
            // Qt waits with one for the thread that receives its answers.
            _ if is(TargetKind::Socket) => "other-program",
            _ if call.name.starts_with("futex") => "lock",
            _ if call.name.starts_with("wait") => "child",
            _ => "other-program",
        };
        let frame = frame.and_then(|frame| report.frames.get(frame as usize));
        for (sums, name) in [
            (&mut self.causes, cause),
            (&mut self.functions, frame.map_or("", |frame| &frame.name)),
            (&mut self.objects, target.map_or("", |target| &target.name)),
        ] {
            *sums.entry(name.to_owned()).or_default() += wall_ns;
        }
    }
}

fn most(sums: &BTreeMap<String, u64>) -> String {
    sums.iter().max_by_key(|(_, ns)| **ns).map(|(name, _)| name.clone()).unwrap_or_default()
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
