//! A comparison on a terminal.

use super::{Comparison, PathDifference, Trend, direction};
use report::figure::ratio;
use report::paint::{Paint, Tone};
use report::paragraph::wrap;
use report::table::{Align, TableCell, TextTable};
use trace::report::verdict::time;

/// How many lines a table has.
const ROWS: usize = 12;

/// Writes a comparison for a screen of `width` columns.
#[must_use]
pub fn render(comparison: &Comparison, width: usize, paint: Paint) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&comparison.verdict, width, "").trim_end());
    text.push('\n');
    for (title, changes) in [("Code paths", &comparison.paths), ("Calls", &comparison.calls)] {
        if !changes.is_empty() {
            text.push_str(&format!("\n{}\n", paint.set(Tone::Strong, title)));
            text.push_str(&table(changes).render(width, paint));
            if changes.len() > ROWS {
                let rest = format!("and {} that changed less", changes.len() - ROWS);
                text.push_str(&format!("{}\n", paint.set(Tone::Dim, &rest)));
            }
        }
    }
    text.push('\n');
    for doubt in &comparison.doubts {
        text.push_str(&wrap(doubt, width, "  · "));
    }
    text
}

/// Writes a time, nothing for none.
pub(super) fn maybe(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { time(ns) }
}

/// Writes which way a change went: `↓ 1/15`, `↑ x 2.0`, `↓ gone`.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(super) fn arrow(change: &PathDifference) -> String {
    let (before, after) = (change.before.wall_ns, change.after.wall_ns);
    let arrow = direction(before, after).arrow();
    match (before, after) {
        (0, 0) => String::new(),
        (_, 0) => format!("{arrow} gone"),
        (0, _) => format!("{arrow} new"),
        _ => format!("{arrow} {}", ratio(after as f64, before as f64)),
    }
}

fn table(changes: &[PathDifference]) -> TextTable {
    let mut table = TextTable::new(&[
        ("", Align::Text),
        ("before", Align::Point),
        ("after", Align::Point),
        ("change", Align::Text),
        ("calls", Align::Point),
        ("then", Align::Point),
    ]);
    for change in changes.iter().take(ROWS) {
        let tone = match direction(change.before.wall_ns, change.after.wall_ns) {
            Trend::Faster => Tone::Good,
            Trend::Slower => Tone::Bad,
            Trend::Same => Tone::Dim,
        };
        table.row(vec![
            change.name.clone().into(),
            maybe(change.before.wall_ns).into(),
            TableCell::toned(Tone::Strong, maybe(change.after.wall_ns)),
            TableCell::toned(tone, arrow(change)),
            change.before.count.to_string().into(),
            change.after.count.to_string().into(),
        ]);
    }
    table
}
