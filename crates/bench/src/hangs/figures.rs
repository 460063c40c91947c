//! The figures, in the order in which they are measured.

use std::collections::BTreeMap;

use super::causes::CAUSES;
use super::judge::{CauseResult, Judgement, RightShare, judge};
use super::planting::{plant, plant_traced};
use super::{Figure, Lab, idle, overhead, using};
use crate::lab::BenchError;
use crate::names::Needs;
use crate::row::{FigureRow, FigureTarget};
use report::figure::Quantity;
use report::samples::Samples;

/// What a trace tells, not the recorder.
pub(super) const TRACED: &str = "traced";

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "planted",
        about: "hangs of known causes, and what is recorded of them",
        seconds: 330,
        needs: Needs::Nothing,
        run: planted,
    },
    Figure {
        id: TRACED,
        about: "hangs of known causes, and what a trace of the program tells of each",
        seconds: 900,
        needs: Needs::Nothing,
        run: traced,
    },
    Figure {
        id: "idle",
        about: "the recorder beside programs at rest",
        seconds: 160,
        needs: Needs::Nothing,
        run: idle::idle,
    },
    Figure {
        id: "overhead",
        about: "programs beside the recorder, beside nothing and beside perf record",
        seconds: 700,
        needs: Needs::Nothing,
        run: overhead::overhead,
    },
    Figure {
        id: "use",
        about: "programs as they are, used by a script beside an installation, and what is recorded of their gaps",
        seconds: 1300,
        needs: Needs::Nothing,
        run: using::using,
    },
];

/// What was promised, in percent.
const RECALL: f64 = 99.0;
const CLASS: f64 = 97.0;
const ATTRIBUTION: f64 = 95.0;

/// What is promised of a trace.
const TRACED_CLASS: f64 = 98.0;
const UNEXPLAINED: f64 = 5.0;

fn planted(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let result = plant(lab)?;
    let judged = judge(&result.planted, &result.told, &result.programs);
    Ok(rows(&judged, &result.failures))
}

fn traced(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let result = plant_traced(lab)?;
    let judged = judge(&result.planted, &result.told, &result.programs);
    let mut rows: Vec<FigureRow> =
        rows(&judged, &result.failures).into_iter().map(of_a_trace).collect();
    rows.push(FigureRow {
        id: "traced-unexplained",
        title: "traced: time not explained".to_owned(),
        quantity: Quantity::Share,
        ours: result.unexplained.into_iter().collect(),
        peer: Samples::default(),
        target: Some(FigureTarget::Within(UNEXPLAINED)),
        note: "of the main thread, each sample is a trace".to_owned(),
    });
    Ok(rows)
}

/// Makes a row of what is recorded one of what is traced.
fn of_a_trace(row: FigureRow) -> FigureRow {
    let cause = CAUSES.iter().find(|cause| cause.id == row.id);
    let (id, target) = match row.id {
        "recall" => ("traced-recall", row.target),
        "precision" => ("traced-precision", row.target),
        "class" => ("traced-class", Some(FigureTarget::Reaching(TRACED_CLASS))),
        "function" => ("traced-function", row.target),
        "file" => ("traced-file", row.target),
        "program" => ("traced-program", row.target),
        "length" => ("traced-length", row.target),
        id => (cause.map_or(id, |cause| cause.traced_id), row.target),
    };
    FigureRow { id, title: format!("traced: {}", row.title), target, ..row }
}

fn row(
    id: &'static str,
    title: String,
    share: RightShare,
    target: Option<f64>,
    note: String,
) -> FigureRow {
    FigureRow {
        id,
        title,
        quantity: Quantity::Share,
        // Nothing of nothing is no number, and not kept.
        ours: [share.percent()].into_iter().collect(),
        peer: Samples::default(),
        target: Some(target.map_or(FigureTarget::Alone, FigureTarget::Reaching)),
        note,
    }
}

fn of(share: RightShare) -> String {
    format!("{} of {}", share.right, share.all)
}

fn rows(judged: &Judgement, failures: &[String]) -> Vec<FigureRow> {
    let Judgement { recall, class, function, file, peer, precision, .. } = *judged;
    let mut about_recall = of(recall);
    if judged.too_short > 0 {
        about_recall.push_str(&format!(
            "; {} were shorter than 150 ms by the program's own clock and are not judged",
            judged.too_short
        ));
    }
    if !failures.is_empty() {
        about_recall.push_str(&format!("; not planted: {}", failures.join(", ")));
    }
    let mut about_precision = format!("{}, by what the programs saw themselves", of(precision));
    if !judged.false_hangs.is_empty() {
        about_precision.push_str(&format!("; false: {}", judged.false_hangs.join(", ")));
    }
    let parts = [
        ("recall", "planted hangs, recorded", recall, RECALL, about_recall),
        ("precision", "recorded hangs, true", precision, RECALL, about_precision),
        ("class", "right cause", class, CLASS, of(class)),
        ("function", "right function", function, ATTRIBUTION, of(function)),
        ("file", "right file", file, ATTRIBUTION, of(file)),
        ("program", "right other program", peer, ATTRIBUTION, of(peer)),
    ];
    let measured = parts.into_iter().filter(|(.., share, _, _)| share.all > 0);
    let mut rows: Vec<FigureRow> = measured
        .map(|(id, title, share, target, note)| {
            row(id, title.to_owned(), share, Some(target), note)
        })
        .collect();
    rows.push(FigureRow {
        id: "length",
        title: "error of the length".to_owned(),
        quantity: Quantity::Time,
        ours: judged.length_errors.iter().copied().collect(),
        peer: Samples::default(),
        target: Some(FigureTarget::Alone),
        note: "beside the step of the main loop by the program's own clock".to_owned(),
    });
    for cause in CAUSES {
        let results: Vec<(&'static str, &CauseResult)> = judged
            .causes
            .iter()
            .filter(|((id, _), _)| *id == cause.id)
            .map(|((_, toolkit), result)| (*toolkit, result))
            .collect();
        if !results.is_empty() {
            rows.push(FigureRow {
                ours: results.iter().map(|(_, result)| result.class.percent()).collect(),
                ..row(
                    cause.id,
                    format!("right cause, {}", cause.id),
                    RightShare::default(),
                    None,
                    format!("{}; {}", cause.about, deviations(&results)),
                )
            });
        }
    }
    rows
}

/// Says what was not recorded, and what was told otherwise.
fn deviations(results: &[(&'static str, &CauseResult)]) -> String {
    let mut parts = Vec::new();
    for (toolkit, result) in results {
        let missed = result.recalled.all - result.recalled.right;
        let mut part = Vec::new();
        if missed > 0 {
            part.push(format!("{missed} of {} not recorded", result.recalled.all));
        }
        for (what, others) in [
            ("cause", &result.other_classes),
            ("function", &result.other_functions),
            ("object", &result.other_objects),
        ] {
            if !others.is_empty() {
                part.push(format!("{what} {}", counted(others)));
            }
        }
        if !part.is_empty() {
            parts.push(format!("{toolkit}: {}", part.join(", ")));
        }
    }
    match parts.is_empty() {
        true => "each sample is a toolkit".to_owned(),
        false => format!("each sample is a toolkit; told otherwise: {}", parts.join("; ")),
    }
}

/// Writes the most frequent names with how often they came.
fn counted(names: &BTreeMap<String, usize>) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<(&String, &usize)> = names.iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = names.iter().take(SHOWN).map(|(name, count)| format!("{name} x {count}"));
    let mut text = shown.collect::<Vec<_>>().join(" / ");
    if names.len() > SHOWN {
        text.push_str(" / others");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_and_told_otherwise_stands_in_the_notes() {
        let mut judged = Judgement {
            recall: RightShare { right: 9, all: 10 },
            class: RightShare { right: 8, all: 9 },
            length_errors: vec![1e6, 3e6],
            too_short: 2,
            ..Judgement::default()
        };
        let mut result = CauseResult {
            recalled: RightShare { right: 9, all: 10 },
            class: RightShare { right: 8, all: 9 },
            ..CauseResult::default()
        };
        result.other_classes.insert("computing".to_owned(), 1);
        judged.causes.insert(("sync", "qt5"), result);
        let rows = rows(&judged, &["swap in x: none".to_owned()]);
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        assert_eq!(ids, ["recall", "class", "length", "sync"], "what has none is left out");
        assert!(rows[0].note.contains("9 of 10; 2 were shorter"), "{}", rows[0].note);
        assert!(rows[0].note.ends_with("not planted: swap in x: none"), "{}", rows[0].note);
        assert_eq!(
            rows[3].note,
            "fsync of a written file; each sample is a toolkit; told otherwise: \
             qt5: 1 of 10 not recorded, cause computing x 1"
        );
    }
}
