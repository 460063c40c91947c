//! The summary on a terminal.

use super::cell::{Cell as Combination, Class, Measure};
use super::summary::{Promise, Row, verdict};
use crate::report::figure::Quantity;
use crate::report::paint::{Paint, Tone};
use crate::report::paragraph::wrap;
use crate::report::provenance::Provenance;
use crate::report::table::{Align, Cell, Table};

/// Returns in which unit a measure is shown.
#[must_use]
pub(super) fn quantity(measure: Measure) -> Quantity {
    match measure {
        Measure::Launch | Measure::Whole => Quantity::Time,
        Measure::Alone | Measure::Shared => Quantity::Size,
    }
}

/// Returns the title of the part of a measure.
#[must_use]
pub(super) fn title(measure: Measure) -> &'static str {
    match measure {
        Measure::Launch => "Launches, and their ratio to unloaded ones",
        Measure::Whole => "One whole job with nothing beside it, and its ratio to a plain one",
        Measure::Alone => "Bytes a second that a job writes with nothing beside it",
        Measure::Shared => "The same while launches take half of the time, and the ratio",
    }
}

/// Writes the summary for a screen of `width` columns.
#[must_use]
pub fn render(
    rows: &[Row],
    notes: &[String],
    provenance: &Provenance,
    width: usize,
    paint: Paint,
) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&verdict(rows), width, "").trim_end());
    text.push('\n');
    for part in rows.chunk_by(|one, two| one.cell.measure == two.cell.measure) {
        let Some(first) = part.first() else { continue };
        text.push_str(&format!("\n{}\n", paint.set(Tone::Strong, title(first.cell.measure))));
        text.push_str(&table(part).render(width, paint));
    }
    text.push('\n');
    for line in notes.iter().cloned().chain(provenance.lines()) {
        text.push_str(&paint.set(Tone::Dim, wrap(&line, width, "").trim_end()));
        text.push('\n');
    }
    text
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("cell", Align::Text),
        ("n", Align::Text),
        ("median", Align::Point),
        ("p95", Align::Point),
        ("ratio", Align::Text),
        ("p95", Align::Text),
        ("idle", Align::Text),
        ("must", Align::Text),
        ("", Align::Text),
    ]);
    for row in rows {
        let [n, median, p95, ratio, p95_ratio, idle, must, word] = figures(row);
        let tone = match row.keeps() {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None => Tone::Plain,
        };
        table.row(vec![
            name(&row.cell).into(),
            n.into(),
            median.into(),
            p95.into(),
            ratio.into(),
            p95_ratio.into(),
            idle.into(),
            must.into(),
            Cell::toned(tone, word),
        ]);
    }
    table
}

/// Returns what a cell is called where its measure is known.
#[must_use]
pub(super) fn name(cell: &Combination) -> String {
    match cell.class {
        Class::Unloaded => format!("{} · unloaded", short_queue(cell)),
        class => format!("{} · {} {}", short_queue(cell), cell.background, class.name()),
    }
}

/// Returns a short name of a cell's queue.
pub(super) fn short_queue(cell: &Combination) -> String {
    match cell.wbt.wbt_lat_usec() {
        None => cell.scheduler.clone(),
        Some(0) => format!("{} wbt off", cell.scheduler),
        Some(usec) => format!("{} wbt {usec}", cell.scheduler),
    }
}

/// Returns the figures of a row: number, median, p95, both ratios, the share in the idle class, what was promised, and whether it is kept.
pub(super) fn figures(row: &Row) -> [String; 8] {
    let quantity = quantity(row.cell.measure);
    let two = |ratio: f64| if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
    let compared = row.cell.class != Class::Unloaded && row.cell.measure != Measure::Alone;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let promise = row.promise.map(|promise| match promise {
        Promise::AtMost(median, p95) if p95.is_finite() => format!("<= {median} / {p95}"),
        Promise::AtMost(median, _) => format!("<= {median}"),
        Promise::AtLeast(median) => format!(">= {median}"),
    });
    let share = row.promised_share.map(|share| format!("idle >= {}", percent(share)));
    let must: Vec<String> = promise.into_iter().chain(share).collect();
    [
        row.samples.len().to_string(),
        quantity.show(row.samples.median()),
        quantity.show(row.samples.p95()),
        if compared { two(row.ratio.ratio) } else { String::new() },
        if compared { two(row.p95_ratio) } else { String::new() },
        row.idle_share.map(percent).unwrap_or_default(),
        must.join(", "),
        match row.keeps() {
            Some(true) => "● pass".to_owned(),
            Some(false) => "▲ short".to_owned(),
            None => String::new(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::sample::tests::sample;
    use super::super::summary::rows;
    use super::*;

    #[test]
    fn every_cell_is_a_line_that_fits_the_screen() {
        let mut samples = Vec::new();
        for scheduler in ["none", "mq-deadline"] {
            for class in [Class::Unloaded, Class::Plain, Class::Idle, Class::Run] {
                samples.extend(
                    (0..4).map(|number| sample(scheduler, class, 700.0 + f64::from(number))),
                );
            }
        }
        let provenance = Provenance::of_this_machine("unjank".to_owned(), SystemTime::UNIX_EPOCH);
        let text = render(&rows(&samples), &[], &provenance, 100, Paint::Off);
        for needed in
            ["mq-deadline · tar run", "none · unloaded", "<= 1.15 / 1.5", "● pass", "1.00"]
        {
            assert!(text.contains(needed), "{needed} in\n{text}");
        }
        let table = text.lines().filter(|line| line.contains(" · ") && line.contains(" ms"));
        assert!(
            table.clone().count() == 8 && table.clone().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
