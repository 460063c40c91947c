//! A comparison as a page: arrows from before to after.

use super::text::{arrow, maybe};
use super::{Comparison, PathDifference};
use report::chart::scatter::{self, Dot};
use report::chart::timeline;
use report::page::Page;
use report::provenance::Provenance;
use trace::report::page::{STYLE, class_of};

/// The most rows of a table.
const ROWS: usize = 150;

/// Writes the page, one HTML file.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub fn render(comparison: &Comparison, provenance: &Provenance) -> String {
    let mut page = Page::new("unjank trace compare", &comparison.verdict);
    page.style(timeline::STYLE);
    page.style(STYLE);
    let dots: Vec<Dot<'_>> = comparison
        .calls
        .iter()
        .map(|change| {
            // What is gone stays where it was, hollow; what is new has no arrow.
            let after = (change.after.count as f64, change.after.wall_ns as f64);
            let before = (change.before.count as f64, change.before.wall_ns as f64);
            let (at, from) =
                if after.0 < 1.0 { (before, Some(before)) } else { (after, Some(before)) };
            Dot {
                name: &change.name,
                count: at.0,
                time_ns: at.1,
                class: class_of(change.class),
                before: from,
            }
        })
        .collect();
    page.figure(
        &scatter::render("Calls against time, before and after", &dots),
        "Each arrow is a kind of call, from the first report to the second: how many to the right, their time together upwards. Idle waits are left out.",
    );
    for (title, changes) in [("Code paths", &comparison.paths), ("Calls", &comparison.calls)] {
        page.heading(title);
        page.table(
            &[
                "",
                "before",
                "after",
                "change",
                "calls before",
                "calls after",
                "longest before",
                "longest after",
            ],
            &changes.iter().take(ROWS).map(row).collect::<Vec<_>>(),
        );
    }
    page.heading("What to bear in mind");
    page.list(&comparison.doubts);
    page.finish(&[], provenance)
}

fn row(change: &PathDifference) -> Vec<String> {
    vec![
        change.name.clone(),
        maybe(change.before.wall_ns),
        maybe(change.after.wall_ns),
        arrow(change),
        change.before.count.to_string(),
        change.after.count.to_string(),
        maybe(change.before.longest_ns),
        maybe(change.after.longest_ns),
    ]
}
