//! A report as a page: the verdict, the picture, the recommendations, the timeline, the tables, and the data.

mod chains;
mod pictures;
mod tables;

pub use self::pictures::class_of;

use super::account::{TimeAccount, TimeBlock};
use super::data;
use super::schema::TraceReport;
use super::text::account_rows;
use crate::syscall::SyscallClass;
use report::chart::timeline;
use report::page::{Page, Todo};

/// The style of what is drawn on a page, behind that of a timeline.
pub const STYLE: &str = include_str!("trace.css");
const SCRIPT: &str = include_str!("trace.js");

/// Writes the page, one HTML file, with the report's data in it.
///
/// # Errors
///
/// Whatever `serde_json` reports about the data; the types give it no reason.
pub fn render(report: &TraceReport) -> serde_json::Result<String> {
    let mut page = Page::new("unjank trace", &report.verdict);
    page.style(timeline::STYLE);
    page.style(STYLE);
    page.figure(
        &pictures::scatter(report),
        "Each dot is a kind of call: how many to the right, their time together upwards. On a dashed line, every call takes the time written at its end. Idle waits are left out.",
    );
    page.heading("What to do");
    if report.advice.is_empty() {
        page.paragraph(
            "Nothing was seen that we know a remedy for. The code paths below say who to ask.",
        );
    } else {
        let todo: Vec<Todo<'_>> = report
            .advice
            .iter()
            .map(|pattern| Todo { reason: &pattern.reason, advice: &pattern.advice })
            .collect();
        page.advice(&todo);
    }
    if let Some(account) = report.main().and_then(|main| main.account.as_ref()) {
        page.heading("What the main thread's time went to");
        let header = ["part", "wall", "mostly"];
        let rows = account_rows(report, account).into_iter().map(|row| row.to_vec());
        page.table(&header, &rows.collect::<Vec<_>>());
        if !account.blocks.is_empty() {
            page.paragraph("Its longest times without a look for new events:");
            page.list(&block_list(report, account));
        }
    }
    page.heading("When it waited");
    page.markup(&legend(report));
    page.figure(&pictures::timeline(report), &pictures::timeline_caption(report));
    page.markup(TOOLS);
    if !report.chains.is_empty() {
        page.heading("What it waited for");
        page.paragraph("The longest waits, followed to the threads that ended them. Each opens the one that it waited for.");
        page.markup(&chains::chains(report));
    }
    if !report.operation_sums.is_empty() {
        page.heading("Operations of io_uring");
        page.paragraph(
            "The time is that from the submission to the completion; operations overlap.",
        );
        page.markup(&tables::operation_sums(report));
        page.fold("The slowest operations, one by one");
        page.markup(&tables::operations(report));
        page.unfold();
    }
    page.heading("Code paths");
    page.paragraph("Slow calls by the function to blame. The stacks of each are folded below it.");
    page.markup(&tables::paths(report));
    let short_calls = tables::short_calls(report);
    if !short_calls.is_empty() {
        page.paragraph(
            "Calls of the main thread that were each too short to be recorded, estimated from samples:",
        );
        page.markup(&short_calls);
    }
    page.heading("Calls");
    page.markup(&tables::calls(report));
    if !report.targets.is_empty() {
        page.heading("Files and peers");
        page.markup(&tables::targets(report));
    }
    page.fold("The slowest calls, one by one");
    page.markup(&tables::slow(report));
    page.unfold();
    page.fold("Processes and threads");
    page.markup(&tables::processes(report));
    page.markup(&tables::threads(report));
    page.unfold();
    page.fold("How it was watched");
    page.list(&report.notes());
    page.unfold();
    page.tail(&data::element(report)?);
    page.tail(&format!("<script>\n{SCRIPT}</script>\n"));
    let setting = [format!(
        "{} · {} from {}",
        super::spelling::shown_command(&report.command),
        super::verdict::time(report.length_ns),
        report.began()
    )];
    Ok(page.finish(&setting, &report.provenance))
}

/// Describes the longest blocks.
fn block_list(report: &TraceReport, account: &TimeAccount) -> Vec<String> {
    let text = |block: &TimeBlock| {
        format!(
            "{} ({} frames) from {} on: {}",
            super::verdict::time(block.wall_ns),
            super::verdict::frames_of(block.wall_ns, report),
            super::verdict::time(block.at_ns),
            super::verdict::block_text(report, block)
        )
    };
    account.blocks.iter().map(text).collect()
}

/// The field that filters; only a script makes it do anything, so only that shows it.
const TOOLS: &str = "<div class=\"tools\" id=\"tools\" hidden><input type=\"search\" placeholder=\"Filter: a call, a function, a file\" aria-label=\"Filter tables and pictures (key: /)\"><button type=\"button\">Open all stacks</button><output aria-live=\"polite\"></output></div>\n";

/// Says what the colours are, of the kinds that occur.
fn legend(report: &TraceReport) -> String {
    let mut items = String::new();
    for class in SyscallClass::ALL {
        if report.slow.iter().any(|slow| {
            report.calls.get(slow.call as usize).is_some_and(|kind| kind.class == class)
        }) {
            items.push_str(&format!(
                "<li><span class=\"swatch {}\"></span>{}</li>",
                pictures::class_of(class),
                match class {
                    SyscallClass::Sync => "sync: until it is on the disk",
                    SyscallClass::Names => "names: look-ups and changes",
                    SyscallClass::Data => "data: reads and writes",
                    SyscallClass::Wait => "waits for a lock, a child, the time",
                    SyscallClass::Network => "sockets",
                    SyscallClass::Process => "programs and threads",
                    SyscallClass::Other => "other",
                }
            ));
        }
    }
    items.push_str("<li><span class=\"swatch hollow\"></span>idle, nobody waited</li>");
    format!("<ul class=\"legend\">{items}</ul>\n")
}

#[cfg(test)]
mod tests;
