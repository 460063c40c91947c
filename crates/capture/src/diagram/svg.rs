//! The diagram as one SVG picture, for documents: the first messages, or all of a short capture.

use std::time::Duration;

use super::Diagram;
use crate::model::peers::PeerId;
use crate::model::{NONE, Row};
use crate::stats::time;
use report::escape::escape;
use report::table::cut;
use wire::MessageType;

const LEFT: usize = 92;
const COLUMN: usize = 168;
const HEAD: usize = 52;
const ROW: usize = 26;

/// Draws the first `most` messages, in the style of a page.
pub(super) fn svg(diagram: &Diagram<'_>, most: usize, frame: Duration) -> String {
    let rows: Vec<(u32, &Row)> = diagram.rows().take(most).collect();
    let used = |row: &Row| [row.sender, row.receiver].map(|peer| diagram.column(peer));
    let columns =
        rows.iter().flat_map(|(_, row)| used(row)).flatten().max().map_or(1, |last| last + 1);
    let width = LEFT + columns * COLUMN;
    let height = HEAD + rows.len() * ROW + 12;
    let x = |column: usize| LEFT + column * COLUMN + COLUMN / 2;
    let y = |at: usize| HEAD + at * ROW + ROW / 2 + 4;
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">\n\
         <title>Sequence of {} messages</title>\n<desc>A column a connection, an arrow a message, time downwards.</desc>\n",
        rows.len()
    );
    for column in 0..columns {
        let (title, detail) = diagram.title(column);
        let middle = x(column);
        out.push_str(&format!(
            "<path class=\"life\" d=\"M{middle} {HEAD}V{}\"/>\
             <text class=\"strong\" text-anchor=\"middle\" x=\"{middle}\" y=\"20\">{}</text>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{middle}\" y=\"38\">{}<title>{}</title></text>\n",
            height - 8,
            escape(&cut(&title, 22)),
            escape(&cut(&detail, 25)),
            escape(&diagram.about(column)),
        ));
    }
    let start_ns = rows.first().map_or(0, |(_, row)| row.at_ns);
    for (at, (_, row)) in rows.iter().enumerate() {
        let partner = rows.binary_search_by_key(&row.partner, |(number, _)| *number).ok();
        if let (MessageType::Call, Some(partner), Some(caller)) =
            (row.kind, partner.filter(|_| row.partner != NONE), diagram.column(row.sender))
        {
            let took = diagram.model.latency_ns(row).unwrap_or(0);
            let away = diagram.column(row.receiver).is_some_and(|to| to < caller);
            arc(&mut out, x(caller), [y(at), y(partner)], away, took, frame);
        }
        if let (Some(_), Some(caller)) = (diagram.model.waited_ns(row), diagram.column(row.sender))
        {
            // Nothing answers below it, so the arc has no end.
            let (x, from) = (x(caller), y(at));
            let down = height - 8;
            out.push_str(&format!(
                "<path class=\"arc misses\" d=\"M{x} {from}q10 12 10 24V{down}\"/>\n"
            ));
        }
        line(&mut out, diagram, row, y(at), &x, [LEFT, width], start_ns);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws the time that a call waits, beside its caller's line.
fn arc(
    out: &mut String,
    x: usize,
    [from, to]: [usize; 2],
    away: bool,
    took_ns: u64,
    frame: Duration,
) {
    let took = Duration::from_nanos(took_ns);
    let grade = if took > frame {
        " misses"
    } else if took > frame / 2 {
        " near"
    } else {
        ""
    };
    let bulge = ((to - from) / 3).clamp(10, COLUMN / 3);
    let side = if away { x + bulge } else { x - bulge };
    out.push_str(&format!(
        "<path class=\"arc{grade}\" d=\"M{x} {from}C{side} {} {side} {} {x} {to}\"/>\n",
        from + 8,
        to - 8
    ));
}

/// The colours of a picture that stands alone: those of the pages, on light paper.
const STYLE: &str = "<style>:root { --paper: #fdfdfc; --ink: #1d2126; --soft: #59616b; --rule: #d9dde2; --call: #0072b2; --reply: #767d86; --signal: #008a64; --near: #e69f00; --misses: #d55e00; } \
svg { background: var(--paper); } text { font: 13px system-ui, sans-serif; fill: var(--ink); } .tick { fill: var(--soft); font-size: 12px; } .strong { font-weight: 600; } \
.life { stroke: var(--rule); stroke-width: 1.5; fill: none; } .call { stroke: var(--call); stroke-width: 1.6; fill: none; } .reply { stroke: var(--reply); stroke-width: 1.4; stroke-dasharray: 5 3; fill: none; } \
.signal { stroke: var(--signal); stroke-width: 1.6; fill: none; } .failed { stroke: var(--misses); stroke-width: 1.8; stroke-dasharray: 5 3; fill: none; } \
.head.call { fill: var(--call); stroke: none; } .head.reply { stroke-dasharray: none; } .head.signal { fill: var(--signal); stroke: none; } .head.failed { fill: var(--misses); stroke: none; } \
.arc { stroke: var(--reply); stroke-width: 1.2; fill: none; } .arc.near { stroke: var(--near); stroke-width: 1.8; } .arc.misses { stroke: var(--misses); stroke-width: 2.4; } .dot.signal { fill: var(--signal); stroke: none; }</style>\n";

/// Draws the first `most` messages as a picture that stands alone.
#[must_use]
pub fn picture(diagram: &Diagram<'_>, most: usize, frame: Duration) -> String {
    svg(diagram, most, frame).replacen("</desc>\n", &format!("</desc>\n{STYLE}"), 1)
}

/// Draws a message.
fn line(
    out: &mut String,
    diagram: &Diagram<'_>,
    row: &Row,
    y: usize,
    x: &impl Fn(usize) -> usize,
    [left, right]: [usize; 2],
    start_ns: u64,
) {
    let model = diagram.model;
    let texts = &model.texts;
    let named = model.named(row);
    let after = row.at_ns.saturating_sub(start_ns);
    out.push_str(&format!("<text class=\"tick\" x=\"4\" y=\"{}\">{}</text>", y + 4, time(after)));
    let Some(from) = diagram.column(row.sender).map(x) else { return };
    let member = texts.get(named.member);
    let (class, label) = match row.kind {
        MessageType::Call => match model.waited_ns(row) {
            Some(waited) => ("call", format!("{member}, no answer in {}", time(waited))),
            None => ("call", member.to_owned()),
        },
        MessageType::Return => ("reply", model.latency_ns(row).map_or(String::new(), time)),
        MessageType::Error => {
            ("failed", texts.get(row.error).rsplit('.').next().unwrap_or("").to_owned())
        }
        MessageType::Signal => ("signal", member.to_owned()),
        MessageType::Other(_) => ("reply", String::new()),
    };
    let whole = format!("{}.{member} {}", texts.get(named.interface), texts.get(named.path));
    out.push_str(&format!("<g><title>{}</title>", escape(whole.trim_matches(['.', ' ']))));
    let to = Some(row.receiver).filter(|peer| *peer != PeerId::NONE);
    match to.and_then(|peer| diagram.column(peer)).map(x) {
        Some(to) if to != from => {
            let (way, room) = if to > from { (-1_i64, to - from) } else { (1, from - to) };
            let to_i = i64::try_from(to).unwrap_or(0);
            let back = to_i + way * 9;
            out.push_str(&format!(
                "<path class=\"{class}\" d=\"M{from} {y}H{to}\"/><path class=\"head {class}\" d=\"M{back} {}L{to} {y}L{back} {}\"/>",
                y - 4,
                y + 4
            ));
            words(out, (from + to) / 2, y, &label, room);
        }
        Some(_) => {
            out.push_str(&format!("<path class=\"{class}\" d=\"M{from} {}h14v8h-14\"/>", y - 4));
            words(out, from + COLUMN / 2, y, &label, COLUMN);
        }
        None => {
            out.push_str(&format!(
                "<path class=\"{class}\" stroke-dasharray=\"2 3\" d=\"M{left} {y}H{right}\"/><circle class=\"dot {class}\" cx=\"{from}\" cy=\"{y}\" r=\"5\"/>"
            ));
            for peer in model.hearers(row) {
                if let Some(at) = diagram.column(*peer).map(x) {
                    out.push_str(&format!(
                        "<circle class=\"{class}\" cx=\"{at}\" cy=\"{y}\" r=\"3\"/>"
                    ));
                }
            }
            words(out, from + COLUMN / 2, y, &label, COLUMN);
        }
    }
    out.push_str("</g>\n");
}

fn words(out: &mut String, x: usize, y: usize, label: &str, room: usize) {
    let label = cut(label, (room / 7).saturating_sub(3).max(4));
    out.push_str(&format!(
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{x}\" y=\"{}\">{}</text>",
        y - 4,
        escape(&label)
    ));
}
