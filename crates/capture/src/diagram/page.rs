//! The page of a diagram: the picture that scrolls and searches, without scripts its beginning, and the figures.

use std::time::Duration;

use super::{Bodies, Diagram, data, svg};
use crate::stats::{self, Stats};
use report::advice::Advice;
use report::page::{Page, Todo};
use report::provenance::Provenance;

/// So many messages are drawn without scripts, and on paper.
const STILL: usize = 60;
/// Rows of each table.
const ROWS: usize = 50;

const STYLE: &str = include_str!("diagram.css");
const SCRIPT: &str = include_str!("diagram.js");

/// Only a script makes it do anything, so only that shows it.
const STAGE: &str = "<section id=\"sequence\" hidden aria-label=\"sequence diagram\">\n<div class=\"tools\">\
<input type=\"search\" placeholder=\"Search: a word, from: to: member: iface: path: type: error: slower-than:5ms\" \
aria-label=\"Search (key: /)\"><label><input type=\"checkbox\" id=\"only\"> only these</label>\
<button type=\"button\" id=\"farther\" aria-label=\"smaller\">−</button>\
<button type=\"button\" id=\"nearer\" aria-label=\"larger\">+</button><output aria-live=\"polite\"></output></div>\n\
<div class=\"stage\"><div class=\"view\" tabindex=\"0\" role=\"application\" aria-label=\"messages: arrows move, Enter \
goes to the answer, / searches\"><div class=\"whole\"><canvas></canvas></div></div>\
<div class=\"map\" title=\"the whole capture: hits, slow calls, errors\"><canvas></canvas></div>\
<aside class=\"about\" hidden aria-live=\"polite\"></aside></div>\n</section>\n";

const LEGEND: &str = "<ul class=\"legend\">\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"call\" d=\"M0 5H26\"/><path class=\"head call\" d=\"M24 1L33 5L24 9z\"/></svg>call</li>\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"reply\" d=\"M33 5H8\"/><path class=\"reply head\" d=\"M9 1L0 5L9 9\"/></svg>answer</li>\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"failed\" d=\"M33 5H8\"/><path class=\"head failed\" d=\"M9 1L0 5L9 9z\"/></svg>error</li>\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"signal\" stroke-dasharray=\"2 3\" d=\"M0 5H34\"/><circle class=\"dot signal\" cx=\"10\" cy=\"5\" r=\"4\"/><circle class=\"signal\" cx=\"26\" cy=\"5\" r=\"3\"/></svg>signal to everybody; rings: who is known to hear it</li>\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"signal\" stroke-dasharray=\"8 2 2 2\" d=\"M0 5H26\"/><path class=\"head signal\" d=\"M24 1L33 5L24 9z\"/></svg>signal to one</li>\
<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"arc misses\" d=\"M10 0C26 2 26 8 10 10\"/></svg>an answer later than a frame</li></ul>\n";

/// Makes the page.
///
/// # Errors
///
/// The data cannot be written, which should not occur.
pub fn page(
    diagram: &Diagram<'_>,
    bodies: &Bodies,
    stats: &Stats,
    frame: Duration,
    provenance: &Provenance,
) -> std::io::Result<String> {
    let mut page = Page::new("unjank bus diagram", &stats::verdict(stats));
    page.style(STYLE);
    page.markup(STAGE);
    page.markup(LEGEND);
    let shown = diagram.len().min(STILL);
    page.markup("<figure class=\"static\">\n");
    page.markup(&svg::svg(diagram, shown, frame));
    let note = if diagram.len() > shown {
        format!("The first {shown} of {} messages; a script shows all of them.", diagram.len())
    } else {
        "Each arrow is a message; time goes down.".to_owned()
    };
    page.markup(&format!("<figcaption>{note}</figcaption>\n</figure>\n"));
    let todo = advice(stats);
    if !todo.is_empty() {
        page.heading("What to do");
        let entries: Vec<Todo<'_>> =
            todo.iter().map(|(reason, advice)| Todo { reason, advice }).collect();
        page.advice(&entries);
    }
    tables(&mut page, stats);
    let data = data::data(diagram, bodies, frame)?;
    page.tail(&format!(
        "<script type=\"text/plain\" id=\"unjank-bus\">{data}</script>\n<script>\n{SCRIPT}</script>\n"
    ));
    Ok(page.finish(&[], provenance))
}

/// Recommendations for findings that are certain.
fn advice(stats: &Stats) -> Vec<(String, Vec<Advice>)> {
    let one = |text: &str| vec![Advice { text: text.to_owned(), command: None }];
    let mut todo = Vec::new();
    if let Some(wake) = stats.wakes.first().filter(|wake| wake.count >= 10) {
        let reason =
            format!("{} woke {} {} times with {}.", wake.from, wake.to, wake.count, wake.member);
        todo.push((
            reason,
            one("ask for fewer signals with a narrower match rule, or send them less often"),
        ));
    }
    if let Some(started) = stats.activations.iter().max_by_key(|started| started.delay_ns) {
        let reason = format!(
            "{} was started for {} of {} and needed {}.",
            started.service,
            started.member,
            started.by,
            stats::time(started.delay_ns)
        );
        todo.push((reason, one("start it before it is needed, or call it without waiting")));
    }
    if let Some(astray) = stats.unowned.first() {
        let reason = format!(
            "{} sent {} to {}, which nobody owns ({} times).",
            astray.from, astray.member, astray.to, astray.count
        );
        todo.push((reason, one("install the service, or do not call it")));
    }
    todo
}

fn tables(page: &mut Page, stats: &Stats) {
    let text = |text: &str| text.to_owned();
    let mut put = |title: &str, headings: &[&str], rows: Vec<Vec<String>>| {
        if rows.is_empty() {
            return;
        }
        page.fold(title);
        page.table(headings, &rows);
        page.unfold();
    };
    let times = stats::Method::wait;
    put(
        "Methods",
        &["method", "calls", "p50", "p95", "p99", "longest", "in all", "errors", "open", "bytes"],
        stats
            .methods
            .iter()
            .take(ROWS)
            .map(|method| {
                vec![
                    format!("{} of {}", method.member, method.service),
                    method.calls.to_string(),
                    times(method, method.waits.p50_ns),
                    times(method, method.waits.p95_ns),
                    times(method, method.waits.p99_ns),
                    times(method, method.waits.max_ns),
                    times(method, method.waits.total_ns),
                    method.errors.to_string(),
                    method.unanswered.to_string(),
                    stats::size(method.bytes),
                ]
            })
            .collect(),
    );
    put(
        "Signals",
        &["signal", "count", "rate", "to one", "heard", "bytes"],
        stats
            .signals
            .iter()
            .take(ROWS)
            .map(|signal| {
                vec![
                    format!("{} of {}", signal.member, signal.service),
                    signal.count.to_string(),
                    stats::rate(signal.count, stats.span_ns),
                    signal.directed.to_string(),
                    signal.heard.to_string(),
                    stats::size(signal.bytes),
                ]
            })
            .collect(),
    );
    put(
        "Connections",
        &["connection", "sent", "bytes", "received", "woken", "wakes"],
        stats
            .services
            .iter()
            .take(ROWS)
            .map(|service| {
                vec![
                    text(&service.service),
                    service.sent.to_string(),
                    stats::size(service.sent_bytes),
                    service.received.to_string(),
                    service.woken.to_string(),
                    service.wakes.to_string(),
                ]
            })
            .collect(),
    );
    put(
        "Who wakes whom",
        &["message", "times", "from", "to"],
        stats
            .wakes
            .iter()
            .take(ROWS)
            .map(|wake| {
                vec![text(&wake.member), wake.count.to_string(), text(&wake.from), text(&wake.to)]
            })
            .collect(),
    );
    put(
        "Errors",
        &["error", "times"],
        stats
            .errors
            .iter()
            .take(ROWS)
            .map(|error| vec![text(&error.name), error.count.to_string()])
            .collect(),
    );
    put(
        "Unanswered calls",
        &["call", "at", "waited", "from", "to"],
        stats
            .unanswered
            .iter()
            .take(ROWS)
            .map(|open| {
                let (at, waited) = (stats::time(open.at_ns), stats::time(open.waited_ns));
                vec![text(&open.member), at, waited, text(&open.from), text(&open.to)]
            })
            .collect(),
    );
}
