//! A run as a page.

use super::names::BenchNames;
use super::row::FigureRow;
use super::run::Run;
use super::text::verdict;
use report::chart::ratios::{self, Ratio};
use report::chart::samples;
use report::page::Page;

/// Writes the page, one HTML file.
#[must_use]
pub fn render(run: &Run) -> String {
    let mut page = Page::new(&format!("unjank bench {}", run.terms.bench), &verdict(run));
    let compared = run.rows.iter().filter(|row| row.ratio().is_finite());
    let ratios: Vec<Ratio<'_>> = compared.map(ratio).collect();
    if !ratios.is_empty() {
        page.figure(&ratios::render(&ratios), run.terms.caption);
    }
    page.heading("Figures");
    page.table(
        &["figure", run.terms.ours, run.terms.peer, "ratio", "must be", "verdict"],
        &run.rows.iter().map(|row| cells(run, row)).collect::<Vec<_>>(),
    );
    if !run.missing.is_empty() {
        page.heading("Not measured");
        let missing = run.missing.iter().map(|(id, why)| format!("{id}: {why}"));
        page.list(&missing.collect::<Vec<_>>());
    }
    page.heading("Every sample");
    page.paragraph("Figures of one or two samples stand in the table alone.");
    for row in run.rows.iter().filter(|row| row.ours.len() > 2 || row.peer.len() > 2) {
        let rows = [
            samples::Row { name: run.terms.ours, class: "ours", samples: &row.ours },
            samples::Row { name: run.terms.peer, class: "peer", samples: &row.peer },
        ];
        let rows = if row.is_alone() { &rows[..1] } else { &rows[..] };
        let ratio = row.show_ratio();
        let BenchNames { ours, peer, .. } = run.terms;
        let mut caption = match &*ratio {
            "" => format!("{} ({}).", row.title, row.id),
            ratio => format!("{} ({}): {ours} is {ratio} of {peer}.", row.title, row.id),
        };
        if !row.note.is_empty() {
            caption.push_str(&format!(" {}.", row.note));
        }
        page.figure(&samples::render(&row.title, row.quantity, rows), &caption);
    }
    page.fold("Medians and spreads");
    let side = |name: &str| format!("{name}: median [least … most], n");
    let spread = |row: &FigureRow, samples| row.quantity.show_spread(samples);
    let rows: Vec<Vec<String>> = run
        .rows
        .iter()
        .map(|row| vec![row.id.to_owned(), spread(row, &row.ours), spread(row, &row.peer)])
        .collect();
    page.table(&["figure", &side(run.terms.ours), &side(run.terms.peer)], &rows);
    page.unfold();
    let mut setting = vec![run.sides()];
    if run.setting.quick {
        setting.push("a quick run: too few rounds for figures to be shown".to_owned());
    }
    setting.extend(run.setting.places.iter().cloned());
    page.finish(&setting, &run.provenance)
}

/// Turns a ratio of medians into how many times better ours is.
fn ratio(row: &FigureRow) -> Ratio<'_> {
    let better = |ratio: f64| if row.more_is_better() { ratio } else { ratio.recip() };
    let promised = row.promised_ratio().map(better);
    Ratio { name: &row.title, reached: better(row.ratio()), promised }
}

fn cells(run: &Run, row: &FigureRow) -> Vec<String> {
    let show = |value: f64| if value.is_nan() { "-".to_owned() } else { row.quantity.show(value) };
    let reached = run.reached(row);
    vec![
        row.title.clone(),
        show(row.ours.median()),
        show(row.peer.median()),
        row.show_ratio(),
        row.show_target(),
        reached.word().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_chart_for_all_and_one_for_each_figure_with_samples() {
        let run = super::super::text::tests::example();
        let html = render(&run);
        assert_eq!(
            html.matches("<svg").count(),
            2,
            "one for all, one for what has samples to show"
        );
        assert!(html.contains("x 18.7, pass") && html.contains("x 9.38, short"), "{html}");
        assert!(!html.contains("NaN"));
    }
}
