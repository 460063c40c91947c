//! The summary on a terminal.

use super::cell::{LoadClass, MatrixCell as Combination, Measure};
use super::summary::{CellRow, Promise, verdict};
use report::figure::Quantity;
use report::paint::{Paint, Tone};
use report::paragraph::wrap;
use report::provenance::Provenance;
use report::table::{Align, TableCell, TextTable};

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
    rows: &[CellRow],
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

/// The rows of one measure, a line for each queue above its cells.
///
/// A narrow screen drops columns from the right: what the verdict rests on stands before it.
fn table(rows: &[CellRow]) -> TextTable {
    let mut table = TextTable::new(&[
        ("cell", Align::Text),
        ("median", Align::Point),
        ("ratio / p95", Align::Text),
        ("must", Align::Text),
        ("", Align::Text),
        ("idle", Align::Text),
        ("n", Align::Text),
        ("p95", Align::Point),
    ]);
    table.cut_first(0, NARROWEST_CELL);
    let queue = |row: &CellRow| (row.cell.disk.clone(), short_queue(&row.cell));
    for part in rows.chunk_by(|one, two| queue(one) == queue(two)) {
        let Some(first) = part.first() else { continue };
        table.row(vec![TableCell::toned(Tone::Strong, short_queue(&first.cell))]);
        for row in part {
            let [n, median, p95, ratio, p95_ratio, idle, must, word] = figures(row);
            // Of whole jobs and rates the median alone is promised.
            let ratio = match row.cell.measure {
                Measure::Launch if !ratio.is_empty() => format!("{ratio} / {p95_ratio}"),
                _ => ratio,
            };
            table.row(vec![
                format!("  {}", beside(&row.cell)).into(),
                median.into(),
                ratio.into(),
                must.into(),
                TableCell::toned(row.reached().tone(), word),
                idle.into(),
                n.into(),
                p95.into(),
            ]);
        }
    }
    table
}

/// A command in the background is cut down to this before columns go.
const NARROWEST_CELL: usize = 24;

/// Returns what a cell is called where its measure and its queue are known.
fn beside(cell: &Combination) -> String {
    match cell.class {
        LoadClass::Unloaded => "unloaded".to_owned(),
        class => format!("{} {}", cell.background, class.name()),
    }
}

/// Returns what a cell is called where its measure is known.
#[must_use]
pub(super) fn name(cell: &Combination) -> String {
    format!("{} · {}", short_queue(cell), beside(cell))
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
pub(super) fn figures(row: &CellRow) -> [String; 8] {
    let quantity = quantity(row.cell.measure);
    let two = |ratio: f64| if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
    let compared = row.cell.class != LoadClass::Unloaded && row.cell.measure != Measure::Alone;
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
        row.reached().word().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::cell::Throttling;
    use super::super::sample::tests::sample;
    use super::super::summary::rows;
    use super::*;
    use crate::lab::Effort;

    /// Samples of every class on queues with names of every length, as a whole run has them.
    fn whole_run() -> Vec<CellRow> {
        let mut samples = Vec::new();
        for (scheduler, wbt) in [
            ("none", Throttling::Default),
            ("mq-deadline", Throttling::Default),
            ("mq-deadline", Throttling::Off),
        ] {
            for class in [LoadClass::Unloaded, LoadClass::Plain, LoadClass::Idle, LoadClass::Run] {
                let scale = if class == LoadClass::Plain { 7.6 } else { 1.0 };
                samples.extend((0..20).map(|number| {
                    let mut sample = sample(scheduler, class, scale * (700.0 + f64::from(number)));
                    sample.cell.wbt = wbt;
                    if class != LoadClass::Unloaded {
                        sample.cell.background = "flatpak".to_owned();
                    }
                    sample.context.other_bytes = Some(1);
                    sample
                }));
            }
        }
        rows(&samples, Effort::Full)
    }

    fn rendered(rows: &[CellRow], width: usize) -> String {
        let provenance = Provenance::of_this_machine("unjank".to_owned(), SystemTime::UNIX_EPOCH);
        render(rows, &[], &provenance, width, Paint::Off)
    }

    #[test]
    fn on_eighty_columns_every_cell_says_what_it_must_be_and_whether_it_is() {
        let text = rendered(&whole_run(), 80);
        let table: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("cell")).take(16).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        cell                 median     ratio / p95  must                   idle  n
        none
          unloaded           710    ms                                            20
          flatpak plain        5.39 s   7.60 / 7.69                         75 %  20
          flatpak idle       710    ms  1.00 / 1.01                         75 %  20
          flatpak run        710    ms  1.00 / 1.01  <= 1.15 / 1.5  ● pass  75 %  20
        mq-deadline
          unloaded           710    ms                                            20
          flatpak plain        5.39 s   7.60 / 7.69                         75 %  20
          flatpak idle       710    ms  1.00 / 1.01                         75 %  20
          flatpak run        710    ms  1.00 / 1.01  <= 1.15 / 1.5  ● pass  75 %  20
        mq-deadline wbt off
          unloaded           710    ms                                            20
          flatpak plain        5.39 s   7.60 / 7.69                         75 %  20
          flatpak idle       710    ms  1.00 / 1.01                         75 %  20
          flatpak run        710    ms  1.00 / 1.01                         75 %  20
        ");
        assert!(table.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn cells_of_a_quick_run_are_not_judged() {
        let mut rows = whole_run();
        rows.iter_mut().for_each(|row| row.effort = Effort::Quick);
        let text = rendered(&rows, 80);
        assert_eq!(text.matches("<= 1.15 / 1.5  not judged").count(), 2, "{text}");
        assert!(!text.contains("pass"), "{text}");
    }

    #[test]
    fn a_narrow_screen_cuts_a_long_command_before_it_drops_a_column() {
        let mut rows = whole_run();
        for row in &mut rows {
            if row.cell.class != LoadClass::Unloaded {
                row.cell.background = "restic backup --one-file-system /home /srv".to_owned();
            }
        }
        let text = rendered(&rows, 80);
        assert!(text.contains("  restic back…home /srv run  "), "{text}");
        assert!(text.contains("must") && text.contains("● pass"), "{text}");
        let text = rendered(&rows, 40);
        let table = text.lines().filter(|line| line.contains(" ms") || line.contains("restic"));
        assert!(table.clone().count() > 8, "{text}");
        assert!(table.clone().all(|line| line.chars().count() <= 40), "{text}");
    }
}
