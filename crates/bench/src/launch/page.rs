//! The summary as a page: every sample of every cell, on one axis a background.

use super::cell::{LoadClass, Measure};
use super::summary::{CellRow, verdict};
use super::text::{figures, name, quantity, short_queue, title};
use report::chart::samples;
use report::page::Page;
use report::provenance::Provenance;

/// What is beside the two sides of other pages: cells that are not the point.
const STYLE: &str = "svg .dots.aside { stroke: var(--aside); fill: none; }\nsvg .outline.aside { stroke: var(--aside); }\n\
svg .dots.idle { stroke: #cc79a7; fill: none; }\nsvg .outline.idle { fill: #cc79a7; stroke: #cc79a7; }\n\
th, td { padding-left: 9px; }\ntd:first-child { min-width: 7em; }\n";

/// Writes the page, one HTML file.
#[must_use]
pub fn render(rows: &[CellRow], notes: &[String], provenance: &Provenance) -> String {
    let mut page = Page::new("unjank bench launch", &verdict(rows));
    page.style(STYLE);
    for part in rows.chunk_by(|one, two| one.cell.measure == two.cell.measure) {
        let Some(first) = part.first() else { continue };
        page.heading(title(first.cell.measure));
        let mut backgrounds: Vec<&str> = Vec::new();
        for row in part.iter().filter(|row| row.cell.class != LoadClass::Unloaded) {
            if !backgrounds.contains(&&*row.cell.background) {
                backgrounds.push(&row.cell.background);
            }
        }
        for background in backgrounds {
            draw(&mut page, part, background);
        }
        let headings = [
            "cell",
            "median",
            "ratio",
            "p95 ratio",
            "must",
            "",
            "95 % interval",
            "idle",
            "n",
            "p95",
        ];
        let cells = |row: &CellRow| {
            let [n, median, p95, ratio, p95_ratio, idle, must, word] = figures(row);
            let interval = if ratio.is_empty() {
                String::new()
            } else {
                format!("{:.2} … {:.2}", row.ratio.low, row.ratio.high)
            };
            // What the verdict rests on stands before it, and both where a narrow screen shows them.
            vec![name(&row.cell), median, ratio, p95_ratio, must, word, interval, idle, n, p95]
        };
        page.table(&headings, &part.iter().map(cells).collect::<Vec<_>>());
    }
    let phases = phases(rows);
    if !phases.is_empty() {
        page.fold("Launches by what the background was at");
        page.table(&["cell", "phase", "n", "median", "p95"], &phases);
        page.unfold();
    }
    page.finish(notes, provenance)
}

/// Draws all cells of one background, and the unloaded ones beside them.
fn draw(page: &mut Page, rows: &[CellRow], background: &str) {
    let chosen: Vec<(&CellRow, String)> = rows
        .iter()
        .filter(|row| row.cell.class == LoadClass::Unloaded || row.cell.background == background)
        .map(|row| (row, format!("{}, {}", short_queue(&row.cell), row.cell.class.name())))
        .collect();
    let Some((first, _)) = chosen.first() else { return };
    let drawn: Vec<samples::Row<'_>> = chosen
        .iter()
        .map(|(row, name)| samples::Row {
            name,
            class: match row.cell.class {
                LoadClass::Unloaded => "aside",
                LoadClass::Plain => "peer",
                LoadClass::Idle => "idle",
                LoadClass::Run => "ours",
            },
            samples: &row.samples,
        })
        .collect();
    let what = match first.cell.measure {
        Measure::Launch => format!(
            "Launches of {} while {background} works in the background",
            first.cell.foreground
        ),
        Measure::Whole => format!("One whole job of {background}"),
        Measure::Alone | Measure::Shared => format!("Bytes a second written by {background}"),
    };
    let svg = samples::render(&what, quantity(first.cell.measure), &drawn);
    page.figure(
        &svg,
        &format!("{what}: every sample is a dot, the box holds the middle half, the stroke is the median; the outline is how densely they lie."),
    );
}

/// Returns a line for each cell and phase with more than one phase.
fn phases(rows: &[CellRow]) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for row in rows.iter().filter(|row| row.cell.measure == Measure::Launch) {
        let mut names: Vec<&String> = row.phases.iter().collect();
        names.sort();
        names.dedup();
        if names.len() < 2 {
            continue;
        }
        for phase in names {
            let of = row.samples.values().iter().zip(&row.phases);
            let samples: report::samples::Samples =
                of.filter(|(_, at)| *at == phase).map(|(value, _)| *value).collect();
            let quantity = quantity(row.cell.measure);
            lines.push(vec![
                name(&row.cell),
                phase.clone(),
                samples.len().to_string(),
                quantity.show(samples.median()),
                quantity.show(samples.p95()),
            ]);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::sample::tests::sample;
    use super::super::summary::rows;
    use super::*;
    use crate::lab::Effort;

    #[test]
    fn a_page_has_a_dot_for_every_sample_and_a_chart_for_every_background() {
        let mut samples = Vec::new();
        for class in [LoadClass::Unloaded, LoadClass::Plain, LoadClass::Run] {
            for (number, phase) in
                ["job", "undo", "job", "job", "undo", "job"].into_iter().enumerate()
            {
                let ms =
                    u32::try_from(number).map_or(0.0, |number| 700.0 + 40.0 * f64::from(number));
                let mut sample = sample("none", class, ms);
                sample.context.phase =
                    if class == LoadClass::Unloaded { "" } else { phase }.to_owned();
                samples.push(sample);
            }
        }
        let provenance = Provenance::of_this_machine("unjank".to_owned(), SystemTime::UNIX_EPOCH);
        let html = render(&rows(&samples, Effort::Full), &["a note".to_owned()], &provenance);
        assert_eq!(html.matches("<svg").count(), 1);
        assert_eq!(html.matches("h0").count(), 18);
        assert!(html.contains("none, unloaded") && html.contains("<td>undo</td>"));
        assert!(!html.contains("NaN") && html.contains("a note"));
    }
}
