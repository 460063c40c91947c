//! The pictures of a report: calls against time, and when each thread waited.

use crate::report::schema::{Slow, TraceMethod, TraceReport};
use crate::report::text::busy_ns;
use crate::report::verdict::time;
use crate::syscall::SyscallClass;
use report::chart::scatter::{self, Dot};
use report::chart::timeline::{self, Bar, Lane, Shape, TimeAxis};

/// The most threads that are drawn.
const LANES: usize = 16;
/// The most bars that are drawn; the longest.
const BARS: usize = 700;
/// The most bars that say in words what they are where there is no script.
const TITLES: usize = 120;
/// From here on a person feels it, in nanoseconds.
const FELT_NS: u64 = 100_000_000;

/// Returns the class of the page that colours a kind of call.
pub fn class_of(class: SyscallClass) -> &'static str {
    match class {
        SyscallClass::Sync => "k-sync",
        SyscallClass::Names => "k-names",
        SyscallClass::Data => "k-data",
        SyscallClass::Wait => "k-wait",
        SyscallClass::Network => "k-network",
        SyscallClass::Process => "k-process",
        SyscallClass::Other => "k-other",
    }
}

/// Draws calls against time.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub(super) fn scatter(report: &TraceReport) -> String {
    let dots: Vec<Dot<'_>> = report
        .calls
        .iter()
        .map(|kind| Dot {
            name: &kind.name,
            count: kind.count.saturating_sub(kind.idle) as f64,
            time_ns: busy_ns(kind) as f64,
            class: class_of(kind.class),
            before: None,
        })
        .collect();
    scatter::render("Calls against time", &dots)
}

/// Chooses the threads that are drawn: those that waited most, main threads first.
fn lanes(report: &TraceReport) -> Vec<usize> {
    let mut order: Vec<usize> = (0..report.threads.len()).collect();
    let main = report.main_thread.and_then(|at| usize::try_from(at).ok());
    order.sort_by_key(|at| {
        let thread = &report.threads[*at];
        (Some(*at) != main, std::cmp::Reverse((thread.stalls.wall_ns, thread.wall_ns)))
    });
    order.truncate(LANES);
    order
}

/// Draws when each thread waited.
pub(super) fn timeline(report: &TraceReport) -> String {
    let order = lanes(report);
    let mut by_length: Vec<usize> = (0..report.slow.len()).collect();
    // Idle waits are long and say little: they do not push the stalls out.
    by_length.sort_by_key(|at| {
        let slow = &report.slow[*at];
        std::cmp::Reverse((slow.how == TraceMethod::Stall, slow.wall_ns))
    });
    let stalls = by_length
        .iter()
        .filter(|at| report.slow[**at].how == TraceMethod::Stall)
        .take(BARS * 3 / 4);
    let idle =
        by_length.iter().filter(|at| report.slow[**at].how != TraceMethod::Stall).take(BARS / 4);
    let drawn: Vec<usize> = stalls.chain(idle).copied().collect();
    let titles: Vec<String> = drawn
        .iter()
        .enumerate()
        .map(
            |(rank, at)| {
                if rank < TITLES { title(report, &report.slow[*at]) } else { String::new() }
            },
        )
        .collect();
    let names: Vec<String> = order.iter().map(|at| thread_name(report, *at)).collect();
    let lanes: Vec<Lane<'_>> = order
        .iter()
        .zip(&names)
        .map(|(thread, name)| {
            let of_thread = drawn.iter().zip(&titles).filter(|(at, _)| {
                usize::try_from(report.slow[**at].thread).is_ok_and(|of| of == *thread)
            });
            let known = &report.threads[*thread];
            Lane {
                name,
                life_ns: (known.start_ns, known.end_ns.unwrap_or(report.length_ns)),
                bars: of_thread.map(|(at, title)| bar(report, *at, title)).collect(),
            }
        })
        .collect();
    let count = |shape: Shape| {
        lanes.iter().flat_map(|lane| &lane.bars).filter(|bar| bar.shape == shape).count()
    };
    let described = format!(
        "{} threads over {}: {} waits that were felt, {} that missed a frame, {} shorter ones, {} idle ones",
        lanes.len(),
        time(report.length_ns),
        count(Shape::Felt),
        count(Shape::Missed),
        count(Shape::Short),
        count(Shape::Idle)
    );
    timeline::render(
        "When each thread waited",
        &described,
        &lanes,
        report.length_ns,
        TimeAxis::Elapsed { frame_ns: report.frame_ns },
    )
}

fn thread_name(report: &TraceReport, at: usize) -> String {
    let thread = &report.threads[at];
    let name = if thread.name.is_empty() { report.program(thread.process) } else { &thread.name };
    if thread.main { format!("{name} {}", thread.id) } else { format!("· {name} {}", thread.id) }
}

fn bar<'a>(report: &'a TraceReport, at: usize, title: &'a str) -> Bar<'a> {
    let slow = &report.slow[at];
    let class = report.calls.get(slow.call as usize).map_or(SyscallClass::Other, |kind| kind.class);
    Bar {
        at_ns: slow.at_ns,
        length_ns: slow.wall_ns,
        class: class_of(class),
        shape: match (slow.how, slow.wall_ns) {
            (TraceMethod::Idle | TraceMethod::Child, _) => Shape::Idle,
            (TraceMethod::Stall, ns) if ns > FELT_NS => Shape::Felt,
            (TraceMethod::Stall, ns) if ns > report.frame_ns => Shape::Missed,
            (TraceMethod::Stall, _) => Shape::Short,
        },
        id: at,
        title,
    }
}

fn title(report: &TraceReport, slow: &Slow) -> String {
    let mut title = format!("{}: {}", time(slow.wall_ns), report.call_name(slow.call));
    if let Some(target) = slow.target.and_then(|at| report.target_name(at)) {
        title.push_str(&format!(" of {}", report::table::cut(&target, 60)));
    }
    let stack = slow.stack.and_then(|at| report.stacks.get(usize::try_from(at).ok()?));
    let blamed = stack.and_then(|stack| stack.frames.get(usize::try_from(stack.blamed?).ok()?));
    if let Some(frame) = blamed.and_then(|at| report.frames.get(usize::try_from(*at).ok()?)) {
        title.push_str(&format!(" by {}", report::table::cut(&frame.name, 60)));
    }
    title
}

/// Says how to read the timeline, and what it leaves out.
pub(super) fn timeline_caption(report: &TraceReport) -> String {
    let mut caption = format!(
        "A lane a thread, the one that matters on top. The higher a bar, the worse: low ones are shorter than a frame of {}, higher ones miss frames, the highest are felt (over 100 ms). Hollow: idle.",
        time(report.frame_ns)
    );
    let threads = report.threads.len().saturating_sub(LANES);
    if threads > 0 {
        caption.push_str(&format!(" {threads} threads that waited less are not drawn."));
    }
    let bars = report.slow.len().saturating_sub(BARS) as u64 + report.slow_left_out;
    if bars > 0 {
        caption.push_str(&format!(" {bars} shorter calls are not drawn."));
    }
    caption
}
