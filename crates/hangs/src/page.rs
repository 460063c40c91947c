//! A page of a span of time, mostly a day: a lane for each program, and the sheet of each hang.

use report::chart::timeline::{self, Bar, Lane, Shape, TimeAxis, render};
use report::escape::escape;
use report::figure::duration;
use report::page::Page;
use report::paint::Paint;
use report::paragraph::counted;
use report::provenance::Provenance;
use report::text::Charset;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{HangHistory, TimeSpan};
use crate::model::{Hang, HangCause};
use crate::text::HangTextStyle;

/// The most programs with a lane of their own; those with the most time come first.
const LANES: usize = 24;
/// The most hangs that are on the page; the longest come first.
const HANGS: usize = 1000;
/// A bar is at least so wide, as a share of the whole width: a second of a day would not be seen.
const NARROWEST: u64 = 400;

/// Returns the page.
#[must_use]
pub fn render_page(
    history: &HangHistory,
    span: TimeSpan,
    when: &str,
    style: &HangTextStyle<'_>,
    provenance: &Provenance,
) -> String {
    let style = HangTextStyle { paint: Paint::new(false, Charset::Unicode), ..style.clone() };
    let verdict = style.verdict(history, span, when);
    let mut page = Page::new("Hangs", verdict.first().map_or("", |line| line));
    let hangs = &history.hangs[..history.hangs.len().min(HANGS)];
    if !hangs.is_empty() {
        page.style(timeline::STYLE);
        page.style(STYLE);
        let (first, last) = shown_span(history, hangs, span);
        let caption = format!(
            "From {} to {}: a lane for each of the programs with the most of it, {LANES} at most, a bar for each hang; the name of a bar says which. Short ones are drawn wider than they were. Its line says nothing of when a program ran. With scripts, a part of the picture that is drawn over is shown alone (keys: + - 0 and arrows), and a bar opens its sheet.",
            style.moment(first),
            style.moment(last)
        );
        page.markup(&tools(hangs));
        page.markup(&legend(hangs));
        page.figure(&chart(hangs, first, last, &style), &caption);
        page.tail(&data(hangs, first, last, &style));
        page.tail(&format!("<script>\n{SCRIPT}</script>\n"));
    }
    for line in verdict.iter().skip(1) {
        page.paragraph(&escape(line));
    }
    if !hangs.is_empty() {
        page.heading("Each hang, the longest first");
    }
    for hang in hangs {
        let line = format!("{}. {}", hang.number, style.line(hang));
        page.markup(&format!(
            "<details id=\"hang-{}\"><summary>{}</summary><pre>{}</pre></details>\n",
            hang.number,
            escape(&line),
            escape(&style.sheet(hang))
        ));
    }
    if history.hangs.len() > hangs.len() {
        page.paragraph(&format!(
            "{} shorter ones are not on this page.",
            history.hangs.len() - hangs.len()
        ));
    }
    page.finish(&[], provenance)
}

const STYLE: &str = "\
main{max-width:940px}
details pre{overflow-x:auto;font-size:13px}summary{cursor:pointer;overflow-wrap:anywhere}
.k-other{--kind:var(--ink)}svg .selection{fill:var(--ours);opacity:.2}figure svg{touch-action:pan-y;user-select:none}
";

/// Zooms, filters, and opens sheets; without it the page says the same.
const SCRIPT: &str = include_str!("page/timeline.js");

/// What only the script makes do anything.
fn tools(hangs: &[Hang]) -> String {
    let causes: BTreeSet<HangCause> = hangs.iter().map(|hang| hang.cause).collect();
    let options: String = causes
        .iter()
        .map(|cause| format!("<option value=\"{}\">{}</option>", cause.word(), cause.words()))
        .collect();
    format!(
        "<div class=\"tools\" id=\"tools\" hidden><input type=\"search\" placeholder=\"Filter: a program, a file, a function\" aria-label=\"Filter hangs (key: /)\"><select aria-label=\"Cause\"><option value=\"\">every cause</option>{options}</select><button type=\"button\" data-zoom=\"in\">Zoom in</button><button type=\"button\" data-zoom=\"out\">Zoom out</button><button type=\"button\" data-zoom=\"all\">All of it</button><output aria-live=\"polite\"></output></div>\n"
    )
}

/// What the script needs: of each hang when it began after the beginning of the picture, how long it was, in milliseconds, and why. It has
/// no text of others.
fn data(hangs: &[Hang], first: u64, last: u64, style: &HangTextStyle<'_>) -> String {
    let ms = |ns: u64| ns / 1_000_000;
    let each: Vec<String> = hangs
        .iter()
        .map(|hang| {
            let at = ms(hang.started_ns.saturating_sub(first));
            format!(
                "\"{}\":[{at},{},\"{}\"]",
                hang.number,
                ms(hang.length_ns).max(1),
                hang.cause.word()
            )
        })
        .collect();
    format!(
        "<script type=\"application/json\" id=\"unjank-hangs\">{{\"local_ms\":{},\"length_ms\":{},\"hangs\":{{{}}}}}</script>\n",
        ms(style.wall_clock_ns(first)),
        ms(last - first).max(1),
        each.join(",")
    )
}

/// Returns the span of the picture: the chosen one where it has bounds, without the time at its ends that was not watched, else that of
/// the hangs.
fn shown_span(history: &HangHistory, hangs: &[Hang], span: TimeSpan) -> (u64, u64) {
    let first = hangs.iter().map(|hang| hang.started_ns).min().unwrap_or(0);
    let last = hangs.iter().map(Hang::ended_ns).max().unwrap_or(0);
    let gaps = &history.coverage.gaps;
    let before = gaps.iter().find(|gap| gap.from_ns == span.from_ns);
    let after = gaps.iter().find(|gap| gap.to_ns == span.to_ns);
    let from_ns = before.map_or(span.from_ns, |gap| gap.to_ns);
    let to_ns = after.map_or(span.to_ns, |gap| gap.from_ns);
    let first = if from_ns == 0 { first } else { from_ns.min(first) };
    let last = if to_ns == u64::MAX { last } else { to_ns.max(last) };
    (first, last.max(first + 1))
}

fn chart(hangs: &[Hang], first: u64, last: u64, style: &HangTextStyle<'_>) -> String {
    let length = last - first;
    let mut programs: BTreeMap<&str, (u64, Vec<&Hang>)> = BTreeMap::new();
    for hang in hangs {
        let (total, of_program) = programs.entry(&hang.program).or_default();
        *total = total.saturating_add(hang.length_ns);
        of_program.push(hang);
    }
    let mut programs: Vec<(&str, (u64, Vec<&Hang>))> = programs.into_iter().collect();
    programs.sort_by_cached_key(|(_, (total, _))| std::cmp::Reverse(*total));
    programs.truncate(LANES);
    let titles: Vec<Vec<String>> = programs
        .iter()
        .map(|(_, (_, hangs))| {
            hangs.iter().map(|hang| format!("{}. {}", hang.number, style.line(hang))).collect()
        })
        .collect();
    let lanes: Vec<Lane<'_>> = programs
        .iter()
        .zip(&titles)
        .map(|((name, (_, hangs)), titles)| Lane {
            name,
            life_ns: (0, length),
            bars: hangs
                .iter()
                .zip(titles)
                .map(|(hang, title)| Bar {
                    at_ns: hang.started_ns - first,
                    length_ns: hang.length_ns.max(length / NARROWEST),
                    class: class(hang.cause),
                    shape: Shape::Felt,
                    id: usize::try_from(hang.number).unwrap_or(0),
                    title,
                })
                .collect(),
        })
        .collect();
    let described = format!(
        "{} over {}: {}",
        counted(lanes.len(), "program"),
        duration(Duration::from_nanos(length)),
        counted(lanes.iter().map(|lane| lane.bars.len()).sum(), "hang")
    );
    let axis = TimeAxis::Clock { begin_ns: style.wall_clock_ns(first) };
    render("Hangs by program", &described, &lanes, length, axis)
}

/// Says what the colours are, of the causes that occur.
fn legend(hangs: &[Hang]) -> String {
    let mut items = String::new();
    for (colour, text) in [
        ("k-sync", "storing data"),
        ("k-data", "files and pages"),
        ("k-names", "looking up files"),
        ("k-network", "other programs"),
        ("k-wait", "locks, sleeps, children, stops"),
        ("k-process", "computing, or waiting for a processor"),
        ("k-other", "other calls, or not known"),
    ] {
        if hangs.iter().any(|hang| class(hang.cause) == colour) {
            items.push_str(&format!("<li><span class=\"swatch {colour}\"></span>{text}</li>"));
        }
    }
    format!("<ul class=\"legend\">{items}</ul>\n")
}

/// Returns the class of the page that colours a cause.
fn class(cause: HangCause) -> &'static str {
    match cause {
        HangCause::Sync => "k-sync",
        HangCause::FileData | HangCause::PageFault => "k-data",
        HangCause::FileNames => "k-names",
        HangCause::OtherProgram => "k-network",
        HangCause::Lock | HangCause::Sleep | HangCause::Child | HangCause::Stopped => "k-wait",
        HangCause::Computing | HangCause::ProcessorQueue => "k-process",
        HangCause::OtherCall | HangCause::Unknown => "k-other",
    }
}
