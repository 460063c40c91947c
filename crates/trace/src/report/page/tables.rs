//! The tables of a page: each sorts and filters where scripts run, and is whole where they do not.

use super::pictures::class_of;
use crate::report::names::Confidence;
use crate::report::operations::OperationRow;
use crate::report::schema::{CodePath, Share, Slow, TraceMethod, TraceReport};
use crate::report::spelling::tilde;
use crate::report::text::{busy_ns, bytes};
use crate::report::verdict::{frames_of, time};
use crate::syscall::SyscallClass;
use report::escape::escape;
use report::grade::feeling;

/// The most rows of a table.
const ROWS: usize = 120;
/// The most of the slowest calls that are listed one by one.
const SLOWEST: usize = 100;
/// Rows beyond these are not printed on paper.
const PRINTED: usize = 25;
/// So many stacks are shown of each path; the data has more.
const STACKS: usize = 2;
/// Paths beyond these show one stack each, to keep the page small.
const DETAILED: usize = 20;
/// The most frames that are shown of a stack.
const FRAMES: usize = 24;

/// A cell: its markup, and the figure by which it sorts.
struct Cell {
    class: &'static str,
    figure: Option<u64>,
    markup: String,
}

/// Makes a cell of words.
fn words(markup: String) -> Cell {
    Cell { class: "text", figure: None, markup }
}

/// Makes a cell of a figure.
fn figure(value: u64, text: &str) -> Cell {
    Cell { class: "", figure: Some(value), markup: escape(text) }
}

fn duration(ns: u64) -> Cell {
    figure(ns, &if ns == 0 { String::new() } else { time(ns) })
}

fn maybe(ns: Option<u64>) -> Cell {
    ns.map_or_else(|| figure(0, ""), duration)
}

fn count(value: u64) -> Cell {
    figure(value, &if value == 0 { String::new() } else { value.to_string() })
}

/// Makes a cell of the longest wait, which says in a word and a shape how a person takes it.
#[expect(clippy::cast_precision_loss, reason = "compared with a tenth of a second")]
fn longest(report: &TraceReport, ns: u64) -> Cell {
    let mut cell = duration(ns);
    if ns > report.frame_ns {
        let word = feeling(ns as f64).unwrap_or("misses");
        cell.markup = format!("{} <span class=\"alarm\">▲ {word}</span>", cell.markup);
    }
    cell
}

/// Makes a cell of a time with a bar below it: its part of the most.
#[expect(clippy::cast_precision_loss, reason = "a width in per cent")]
fn share(ns: u64, most: u64, class: &str) -> Cell {
    let part = 100.0 * ns as f64 / most.max(1) as f64;
    let mut cell = duration(ns);
    cell.markup.push_str(&format!(
        "<span class=\"share {class}\" style=\"--part:{:.0}%\"></span>",
        part.clamp(1.0, 100.0)
    ));
    cell
}

/// Writes a table, without the columns in which nothing stands.
fn table(headings: &[(&str, &str)], rows: impl Iterator<Item = Vec<Cell>>) -> String {
    let mut rows: Vec<Vec<Cell>> = rows.collect();
    let is_used =
        |at: usize| rows.iter().any(|row| row.get(at).is_some_and(|cell| !cell.markup.is_empty()));
    let used: Vec<bool> = (0..headings.len()).map(is_used).collect();
    let kept = |at: &usize| used.get(*at).copied().unwrap_or(false);
    let headings: Vec<(&str, &str)> = headings
        .iter()
        .enumerate()
        .filter(|(at, _)| kept(at))
        .map(|(_, heading)| *heading)
        .collect();
    for row in &mut rows {
        let mut at = 0;
        row.retain(|_| {
            at += 1;
            kept(&(at - 1))
        });
    }
    let mut html =
        "<div class=\"wide\" tabindex=\"0\"><table class=\"sorts\">\n<thead><tr>".to_owned();
    for (heading, class) in &headings {
        html.push_str(&format!("<th scope=\"col\" class=\"{class}\">{heading}</th>"));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (number, row) in rows.into_iter().enumerate() {
        html.push_str(if number < PRINTED { "<tr>" } else { "<tr class=\"beyond\">" });
        for (cell, (_, class)) in row.into_iter().zip(&headings) {
            let class = if class.is_empty() { cell.class } else { class };
            html.push_str("<td");
            if !class.is_empty() {
                html.push_str(&format!(" class=\"{class}\""));
            }
            if let Some(figure) = cell.figure {
                html.push_str(&format!(" data-v=\"{figure}\""));
            }
            html.push_str(&format!(">{}</td>", cell.markup));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// Says how many rows a table leaves out.
fn left_out(all: u64, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown as u64) {
        0 => String::new(),
        rest => format!("<p class=\"origin\">{rest} {what} more are only in the sums.</p>\n"),
    }
}

fn class_at(report: &TraceReport, call: u32) -> SyscallClass {
    report.calls.get(call as usize).map_or(SyscallClass::Other, |kind| kind.class)
}

fn swatch(report: &TraceReport, call: u32) -> String {
    format!("<span class=\"swatch {}\"></span>", class_of(class_at(report, call)))
}

/// Slow calls by the function to blame.
pub(super) fn paths(report: &TraceReport) -> String {
    let headings = [
        ("code path", "text what"),
        ("wall", ""),
        ("frames", ""),
        ("count", ""),
        ("longest", ""),
        ("blocked", ""),
        ("on a CPU", ""),
    ];
    let most = report
        .paths
        .iter()
        .filter(|path| path.how == TraceMethod::Stall)
        .map(|path| path.wall_ns)
        .max();
    let rows = report.paths.iter().take(ROWS).enumerate().map(|(number, path)| {
        let stacks = if number < DETAILED { STACKS } else { 1 };
        let class = if path.how == TraceMethod::Stall {
            class_of(class_at(report, path.call))
        } else {
            "k-other"
        };
        vec![
            words(path_cell(report, path, stacks)),
            share(path.wall_ns, most.unwrap_or(0).max(path.wall_ns), class),
            figure(path.wall_ns, &frames_of(path.wall_ns, report)),
            count(path.count),
            if path.how == TraceMethod::Stall {
                longest(report, path.longest_ns)
            } else {
                duration(path.longest_ns)
            },
            maybe(path.blocked_ns),
            maybe(path.cpu_ns),
        ]
    });
    let html = table(&headings, rows);
    html + &left_out(report.paths.len() as u64, ROWS.min(report.paths.len()), "code paths")
}

fn path_cell(report: &TraceReport, path: &CodePath, stacks: usize) -> String {
    let call = escape(report.call_name(path.call));
    let mut html = match report.blamed(path) {
        Some(frame) => format!(
            "{}<span class=\"frame\">{}</span> {call}",
            swatch(report, path.call),
            escape(frame)
        ),
        None => format!("{}<span class=\"frame\">{call}</span>", swatch(report, path.call)),
    };
    let module = path.frame.and_then(|at| report.frames.get(usize::try_from(at).ok()?));
    if let Some(module) = module.and_then(|frame| frame.module.as_deref()) {
        html.push_str(&format!(" <span class=\"note\">in {}</span>", escape(module)));
    }
    match path.how {
        TraceMethod::Stall => (),
        TraceMethod::Idle => {
            html.push_str("<span class=\"note\">idle: an event loop with nothing to do</span>")
        }
        TraceMethod::Child => html.push_str(
            "<span class=\"note\">waits for a child that is in this report itself</span>",
        ),
    }
    for target in path.targets.iter().take(3) {
        if let Some(name) = report.target_name(target.index) {
            let times =
                if path.count > 1 { format!("{} × ", target.count) } else { String::new() };
            html.push_str(&format!("<span class=\"file\">{times}{}</span>", escape(&name)));
        }
    }
    if path.targets.len() > 3 {
        html.push_str(&format!("<span class=\"file\">and {} more</span>", path.targets.len() - 3));
    }
    if !path.stacks.is_empty() {
        let summary = match path.stacks.len() {
            1 => "1 stack".to_owned(),
            all if all > stacks => format!("{stacks} of {all} stacks"),
            all => format!("{all} stacks"),
        };
        html.push_str(&format!("<details><summary>{summary}</summary>"));
        for share in path.stacks.iter().take(stacks) {
            html.push_str(&stack(report, share, path.stacks.len() > 1));
        }
        html.push_str("</details>");
    }
    html
}

fn stack(report: &TraceReport, share: &Share, is_one_of_many: bool) -> String {
    let Some(stack) = report.stacks.get(share.index as usize) else { return String::new() };
    let mut html = String::new();
    if is_one_of_many {
        html.push_str(&format!(
            "<span class=\"note\">{} ×, {}</span>",
            share.count,
            time(share.wall_ns)
        ));
    }
    html.push_str("<ol class=\"stack\">");
    for (depth, at) in stack.frames.iter().take(FRAMES).enumerate() {
        let Some(frame) = report.frames.get(*at as usize) else { continue };
        let class = match stack.blamed {
            Some(blamed) if blamed as usize == depth => " class=\"blamed\"",
            _ if frame.folded => " class=\"folded\"",
            _ => "",
        };
        let doubt = if frame.confidence == Confidence::Hearsay { "?" } else { "" };
        let module = frame.module.as_deref().map_or(String::new(), |module| format!("  {module}"));
        let line = frame.line.as_deref().map_or(String::new(), |line| format!("  {line}"));
        html.push_str(&format!(
            "<li{class}>{}</li>",
            escape(&format!("{}{doubt}{module}{line}", frame.name))
        ));
    }
    if stack.frames.len() > FRAMES {
        html.push_str(&format!(
            "<li class=\"folded\">and {} more</li>",
            stack.frames.len() - FRAMES
        ));
    }
    html.push_str("</ol>");
    match &*stack.end {
        "cut" => html.push_str("<span class=\"note\">the rest was not copied</span>"),
        "lost" => html.push_str(
            "<span class=\"note\">from here on the code has no unwind information</span>",
        ),
        _ => (),
    }
    html
}

/// Each kind of call.
pub(super) fn calls(report: &TraceReport) -> String {
    let headings = [
        ("call", "text"),
        ("count", ""),
        ("errors", ""),
        ("wall", ""),
        ("p50", ""),
        ("p95", ""),
        ("p99", ""),
        ("longest", ""),
        ("idle", ""),
        ("blocked", ""),
        ("on a CPU", ""),
    ];
    let rows = (0..).zip(report.calls.iter().take(ROWS)).map(|(at, kind)| {
        let errnos: Vec<String> = kind
            .errnos
            .iter()
            .take(3)
            .map(|errno| format!("{} {}", errno.count, errno.name))
            .collect();
        let mut name = format!("{}{}", swatch(report, at), escape(&kind.name));
        if !errnos.is_empty() {
            name.push_str(&format!("<span class=\"note\">{}</span>", escape(&errnos.join(", "))));
        }
        vec![
            words(name),
            count(kind.count),
            count(kind.errors),
            duration(busy_ns(kind)),
            duration(kind.p50_ns),
            duration(kind.p95_ns),
            duration(kind.p99_ns),
            duration(kind.longest_ns),
            duration(kind.idle_ns),
            maybe(kind.blocked_ns),
            maybe(kind.cpu_ns),
        ]
    });
    table(&headings, rows)
}

/// Files, sockets, locks and children.
pub(super) fn targets(report: &TraceReport) -> String {
    let headings = [
        ("what", "text what"),
        ("wall", ""),
        ("count", ""),
        ("errors", ""),
        ("longest", ""),
        ("calls", "text"),
    ];
    let most =
        report.targets.iter().map(|target| target.wall_ns.saturating_sub(target.idle_ns)).max();
    let rows = (0..).zip(report.targets.iter().take(ROWS)).map(|(at, target)| {
        let wall = target.wall_ns.saturating_sub(target.idle_ns);
        let mut name = escape(&report.target_name(at).unwrap_or_default());
        if let Some(place) = report.place(target) {
            name.push_str(&format!("<span class=\"note\">{}</span>", escape(&place)));
        }
        let calls: Vec<String> = target
            .calls
            .iter()
            .take(4)
            .map(|call| format!("{} {}", call.count, report.call_name(call.call)))
            .collect();
        let first =
            target.calls.first().map_or(SyscallClass::Other, |call| class_at(report, call.call));
        vec![
            words(name),
            share(wall, most.unwrap_or(0), class_of(first)),
            count(target.count),
            count(target.errors),
            duration(target.longest_ns),
            words(escape(&calls.join(", "))),
        ]
    });
    let all = report.targets.len() as u64 + report.targets_left_out;
    table(&headings, rows) + &left_out(all, ROWS.min(report.targets.len()), "files and peers")
}

/// Writes what the main thread's short calls were blocked in; nothing if there were none.
pub(super) fn short_calls(report: &TraceReport) -> String {
    let account = report.main().and_then(|main| main.account.as_ref());
    let rows = account.map_or(&[][..], |account| &account.short_calls);
    let Some(most) = rows.iter().map(|row| row.wall_ns).max() else { return String::new() };
    let headings = [("calls", "text what"), ("blocked", ""), ("frames", ""), ("count", "")];
    let rows = rows.iter().map(|row| {
        vec![
            words(escape(&report.short_calls_path(row))),
            share(row.wall_ns, most, class_of(class_at(report, row.call))),
            figure(row.wall_ns, &frames_of(row.wall_ns, report)),
            count(row.count),
        ]
    });
    table(&headings, rows)
}

/// Operations of `io_uring` by kind and file.
pub(super) fn operation_sums(report: &TraceReport) -> String {
    let headings = [
        ("operation", "text what"),
        ("wall", ""),
        ("count", ""),
        ("errors", ""),
        ("longest", ""),
        ("bytes", ""),
    ];
    let most = report.operation_sums.iter().map(|sum| sum.wall_ns).max();
    let rows = report.operation_sums.iter().take(ROWS).map(|sum| {
        vec![
            words(escape(&report.operation_title(&sum.name, sum.target))),
            share(sum.wall_ns, most.unwrap_or(0), class_of(SyscallClass::Data)),
            count(sum.count),
            count(sum.errors),
            duration(sum.longest_ns),
            moved(sum.bytes),
        ]
    });
    let all = report.operation_sums.len();
    table(&headings, rows) + &left_out(all as u64, ROWS.min(all), "kinds of operation")
}

fn moved(count: Option<u64>) -> Cell {
    count.map_or_else(|| figure(0, ""), |count| figure(count, &bytes(count)))
}

/// The slowest operations of `io_uring` one by one.
pub(super) fn operations(report: &TraceReport) -> String {
    let headings = [
        ("operation", "text what"),
        ("at", ""),
        ("wall", ""),
        ("result", "text"),
        ("bytes", ""),
        ("thread", ""),
        ("how", "text"),
    ];
    let mut order: Vec<&OperationRow> = report.operations.iter().collect();
    order.sort_by_cached_key(|row| std::cmp::Reverse(row.wall_ns));
    let rows = order.into_iter().take(SLOWEST).map(|row| {
        let result = match (&row.error, row.result) {
            (Some(error), _) => error.clone(),
            (None, Some(result)) => result.to_string(),
            (None, None) => "still running".to_owned(),
        };
        let how = [
            (row.worker, "by a worker thread"),
            (row.registered, "registered file"),
            (row.readiness, "waited until it was ready"),
        ];
        let how: Vec<&str> = how.into_iter().filter(|(is, _)| *is).map(|(_, how)| how).collect();
        vec![
            words(escape(&report.operation_title(&row.name, row.target))),
            figure(row.at_ns, &time(row.at_ns)),
            duration(row.wall_ns),
            words(escape(&result)),
            moved(row.bytes),
            figure(u64::from(row.thread), &row.thread.to_string()),
            words(how.join(", ")),
        ]
    });
    let all = report.operations.len() as u64 + report.operations_left_out;
    let shown = SLOWEST.min(report.operations.len());
    table(&headings, rows) + &left_out(all, shown, "operations")
}

/// The slowest calls one by one.
pub(super) fn slow(report: &TraceReport) -> String {
    let headings = [
        ("call", "text what"),
        ("at", ""),
        ("wall", ""),
        ("blocked", ""),
        ("waiting for a CPU", ""),
        ("result", "text"),
        ("thread", "text"),
    ];
    let mut slowest: Vec<&Slow> =
        report.slow.iter().filter(|slow| slow.how == TraceMethod::Stall).collect();
    slowest.sort_by_cached_key(|slow| std::cmp::Reverse(slow.wall_ns));
    let shown = slowest.len().min(SLOWEST);
    let rows =
        slowest.iter().take(SLOWEST).map(|slow| {
            let home = report.home.as_deref();
            let result = match (&slow.error, slow.result) {
                (Some(error), _) => error.clone(),
                (None, Some(value)) => value.to_string(),
                (None, None) if slow.running => "still running".to_owned(),
                (None, None) => "?".to_owned(),
            };
            let blocked = slow.cpu_ns.zip(slow.queued_ns);
            let blocked = blocked
                .map(|(cpu, queued)| slow.wall_ns.saturating_sub(cpu).saturating_sub(queued));
            let thread = report.threads.get(slow.thread as usize);
            vec![
                words(format!(
                    "{}{}",
                    swatch(report, slow.call),
                    escape(&tilde(&slow.arguments, home))
                )),
                figure(slow.at_ns, &time(slow.at_ns)),
                longest(report, slow.wall_ns),
                maybe(blocked),
                maybe(slow.queued_ns),
                words(escape(&result)),
                words(thread.map_or(String::new(), |thread| {
                    escape(&format!("{} {}", thread.name, thread.id))
                })),
            ]
        });
    table(&headings, rows)
        + &left_out(slowest.len() as u64 + report.slow_left_out, shown, "slow calls")
}

/// Processes.
pub(super) fn processes(report: &TraceReport) -> String {
    let headings = [
        ("process", "text what"),
        ("number", ""),
        ("parent", ""),
        ("from", ""),
        ("to", ""),
        ("end", "text"),
    ];
    let rows = report.processes.iter().take(ROWS).map(|process| {
        let command =
            if process.command.is_empty() { &process.executable } else { &process.command };
        vec![
            words(escape(&report::table::cut(command, 200))),
            count(u64::from(process.id)),
            count(process.parent.map_or(0, u64::from)),
            figure(process.start_ns, &time(process.start_ns)),
            maybe(process.end_ns),
            words(escape(process.exit.as_deref().unwrap_or(""))),
        ]
    });
    table(&headings, rows)
        + &left_out(report.processes.len() as u64, ROWS.min(report.processes.len()), "processes")
}

/// Threads and how they stalled.
pub(super) fn threads(report: &TraceReport) -> String {
    let headings = [
        ("thread", "text what"),
        ("process", ""),
        ("calls", ""),
        ("stalled", ""),
        ("longest", ""),
        ("frames missed", ""),
        ("felt", ""),
        ("hung", ""),
        ("idle", ""),
    ];
    let rows = report.threads.iter().take(ROWS).map(|thread| {
        let main = if thread.main { ", main" } else { "" };
        vec![
            words(escape(&format!("{} {}{main}", thread.name, thread.id))),
            count(u64::from(thread.process)),
            count(thread.count),
            duration(thread.stalls.wall_ns),
            longest(report, thread.stalls.longest_ns),
            count(thread.stalls.frames),
            count(thread.stalls.felt),
            count(thread.stalls.hung),
            duration(thread.stalls.idle_ns),
        ]
    });
    table(&headings, rows)
        + &left_out(report.threads.len() as u64, ROWS.min(report.threads.len()), "threads")
}
