//! A run on a terminal: the verdict, the table, the spreads, where it comes from.

use super::names::BenchNames;
use super::row::{FigureRow, Reached};
use super::run::Run;
use report::paint::{Paint, Tone};
use report::paragraph::{counted, wrap};
use report::samples::Samples;
use report::table::{Align, TableCell, TextTable};

/// Says in one sentence how ours does beside the peer.
#[must_use]
pub fn verdict(run: &Run) -> String {
    let count = |reached| run.rows.iter().filter(|row| run.reached(row) == reached).count();
    let (pass, short) = (count(Reached::Pass), count(Reached::FallsShort));
    let (not_judged, not_resolved) = (count(Reached::NotJudged), count(Reached::NotResolved));
    let mut sentence = match (pass, short) {
        (0, 0) if not_judged + not_resolved > 0 => {
            format!("{} measured.", counted(run.rows.len(), "figure"))
        }
        (0, 0) => format!("{} measured; none has a target.", counted(run.rows.len(), "figure")),
        (pass, 0) if not_resolved > 0 => {
            format!("{pass} of {} with a target reach it.", counted(pass + not_resolved, "figure"))
        }
        (pass, 0) => format!("All {} with a target reach it.", counted(pass, "figure")),
        (pass, short) => {
            let names: Vec<&str> = run
                .rows
                .iter()
                .filter(|row| run.reached(row) == Reached::FallsShort)
                .map(|row| row.id)
                .collect();
            let verb = if short == 1 { "falls" } else { "fall" };
            format!(
                "{short} of {} {verb} short: {}.",
                counted(pass + short + not_resolved, "figure"),
                names.join(", ")
            )
        }
    };
    if not_judged > 0 {
        let verb = if not_judged == 1 { "is" } else { "are" };
        sentence.push_str(&format!(
            " {} {verb} not judged: few rounds prove nothing.",
            counted(not_judged, "figure")
        ));
    }
    let open = || run.rows.iter().filter(|row| run.reached(row) == Reached::NotResolved);
    for (why, has_interval) in
        [("the target lies within the interval", true), ("too few rounds have no interval", false)]
    {
        let of_it = |row: &&FigureRow| {
            row.paired().is_some_and(|paired| paired.low.is_some()) == has_interval
        };
        let names: Vec<&str> = open().filter(of_it).map(|row| row.id).collect();
        if !names.is_empty() {
            let verb = if names.len() == 1 { "is" } else { "are" };
            sentence.push_str(&format!(
                " {} {verb} not resolved, since {why}: {}.",
                counted(names.len(), "figure"),
                names.join(", ")
            ));
        }
    }
    if !run.missing.is_empty() {
        sentence.push_str(&format!(" {} not measured.", counted(run.missing.len(), "figure")));
    }
    if run.interrupted {
        sentence.push_str(" Interrupted: the rest was not measured.");
    }
    sentence
}

/// Writes the whole run for a screen of `width` columns.
#[must_use]
pub fn render(run: &Run, width: usize, paint: Paint) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&verdict(run), width, "").trim_end());
    text.push('\n');
    if !run.rows.is_empty() {
        text.push('\n');
        text.push_str(&table(run).render(width, paint));
        text.push_str(&format!("\n{}\n", paint.set(Tone::Strong, "Median [least … most], n")));
        run.rows.iter().for_each(|row| text.push_str(&spread(row, &run.terms, width)));
    }
    if !run.missing.is_empty() {
        text.push_str(&format!("\n{}\n", paint.set(Tone::Strong, "Not measured")));
        for (id, why) in &run.missing {
            text.push_str(&wrap(&format!("{id}: {why}"), width, "  · "));
        }
    }
    let mut last = vec![run.sides()];
    if run.setting.quick {
        last.push("a quick run: too few rounds for figures to be shown".to_owned());
    }
    last.extend(run.setting.places.iter().cloned());
    last.extend(run.provenance.lines());
    text.push('\n');
    for line in last {
        text.push_str(&paint.set(Tone::Dim, wrap(&line, width, "").trim_end()));
        text.push('\n');
    }
    text
}

fn table(run: &Run) -> TextTable {
    let mut table = TextTable::new(&[
        ("figure", Align::Text),
        (run.terms.ours, Align::Point),
        (run.terms.peer, Align::Point),
        ("ratio", Align::Text),
        ("must be", Align::Text),
        ("verdict", Align::Text),
    ]);
    for row in &run.rows {
        let show = |value: f64| {
            if value.is_nan() { "-".to_owned() } else { row.quantity.show(value) }
        };
        let reached = run.reached(row);
        table.row(vec![
            row.title.clone().into(),
            TableCell::toned(Tone::Strong, show(row.ours.median())),
            show(row.peer.median()).into(),
            row.show_short_ratio().into(),
            row.show_target().into(),
            TableCell::toned(reached.tone(), reached.word()),
        ]);
    }
    table
}

fn spread(row: &FigureRow, terms: &BenchNames, width: usize) -> String {
    let side = |samples: &Samples| match samples.is_empty() {
        true => "not measured".to_owned(),
        false => row.quantity.show_spread(samples),
    };
    let paired = row.paired();
    let of_ratio = if paired.is_some() { "ratio".len() } else { 0 };
    let name = terms.ours.len().max(terms.peer.len()).max(of_ratio);
    let mut text = format!("  {:14}  {:name$}  {}\n", row.id, terms.ours, side(&row.ours));
    if !row.is_alone() {
        text.push_str(&format!("  {:14}  {:name$}  {}\n", "", terms.peer, side(&row.peer)));
    }
    if let Some(paired) = paired {
        let rounds = counted(paired.rounds, "round");
        text.push_str(&format!("  {:14}  {:name$}  {paired}, {rounds}\n", "", "ratio"));
    }
    if !row.note.is_empty() {
        text.push_str(&wrap(&row.note, width, &" ".repeat(18)));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::row::FigureTarget;
    use crate::run::BenchSetting;
    use report::figure::Quantity;
    use report::provenance::Provenance;

    /// A run with every kind of row.
    pub(crate) fn example() -> Run {
        let samples = |values: &[f64]| values.iter().copied().collect::<Samples>();
        let row = |id, title: &str, quantity, ours: &[f64], peer: &[f64], target| FigureRow {
            id,
            title: title.to_owned(),
            quantity,
            ours: samples(ours),
            peer: samples(peer),
            target,
            note: String::new(),
        };
        let mut provenance = Provenance::of_this_machine(
            "unjank bench settings --peer /p".to_owned(),
            SystemTime::UNIX_EPOCH,
        );
        provenance.kernel = "Linux 6.18".to_owned();
        provenance.processor = "Processor".to_owned();
        provenance.processors = 2;
        provenance.memory_bytes = 24 << 30;
        provenance.optimised = true;
        provenance.profile = "dist".to_owned();
        Run {
            rows: vec![
                row(
                    "write-tmpfs",
                    "write, 4475 keys (tmpfs)",
                    Quantity::Time,
                    &[0.61e6, 0.6e6, 0.9e6],
                    &[11.4e6, 11.0e6, 12.0e6],
                    Some(FigureTarget::AtMost(1.0 / 15.0)),
                ),
                row(
                    "clients-disk",
                    "8 clients x 50 writes (ext4)",
                    Quantity::Rate,
                    &[900.0],
                    &[96.0],
                    Some(FigureTarget::AtLeast(10.0)),
                ),
                row("start", "start by activation", Quantity::Time, &[3.1e6], &[6.5e6], None),
            ],
            missing: vec![("bytes-disk", "needs --dir with a directory on a disk".to_owned())],
            interrupted: false,
            setting: BenchSetting {
                ours: "unjankd".to_owned(),
                peer: "/p (dconf-service 0.40)".to_owned(),
                places: vec!["memory: tmpfs on /dev/shm, rw".to_owned()],
                quick: false,
            },
            provenance,
            terms: crate::names::SETTINGS,
        }
    }

    #[test]
    fn a_run_is_told_as_a_verdict_a_table_and_its_spreads() {
        let text = render(&example(), 80, Paint::Off);
        let text = text.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
        insta::assert_snapshot!(text, @r"
        1 of 2 figures falls short: clients-disk. 1 figure not measured.

        figure                        ours       peer      ratio  must be  verdict
        write, 4475 keys (tmpfs)      610    µs  11.4  ms  1/19   <= 1/15  ● pass
        8 clients x 50 writes (ext4)  900    /s  96.0  /s  x 9.4  >= x 10  ▲ short
        start by activation             3.10 ms   6.50 ms  1/2.1

        Median [least … most], n
          write-tmpfs     ours  610 µs [600 … 900], n = 3
                          peer  11.4 ms [11.0 … 12.0], n = 3
          clients-disk    ours  900 /s [900 … 900], n = 1
                          peer  96.0 /s [96.0 … 96.0], n = 1
          start           ours  3.10 ms [3.10 … 3.10], n = 1
                          peer  6.50 ms [6.50 … 6.50], n = 1

        Not measured
          · bytes-disk: needs --dir with a directory on a disk

        ours unjankd · peer /p (dconf-service 0.40)
        memory: tmpfs on /dev/shm, rw
        unjank bench settings --peer /p · unjank 0.0.0
        Linux 6.18 · 2 x Processor · 24.0 GiB
        1970-01-01T00:00:00Z
        ");
    }

    #[test]
    fn a_run_passes_only_if_all_of_it_does() {
        let mut run = example();
        assert!(!run.passes());
        run.missing.clear();
        assert!(!run.passes(), "one figure falls short");
        run.rows.remove(1);
        assert!(run.passes());
        assert_eq!(verdict(&run), "All 1 figure with a target reach it.");
    }

    #[test]
    fn what_is_not_resolved_is_said_and_no_run_passes_with_it() {
        let mut run = example();
        run.missing.clear();
        run.rows.remove(1);
        run.rows[0].target = Some(FigureTarget::AtMost(1.01));
        let peers = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 1.0];
        let ours = [1.0, 1.0, 1.0, 1.3, 1.1, 0.9, 1.0];
        for (side, values) in [(0, ours), (1, peers)] {
            let row = &mut run.rows[0];
            let samples = if side == 0 { &mut row.ours } else { &mut row.peer };
            *samples = Samples::default();
            for value in values {
                samples.push(value * 1e6);
                samples.end_round();
            }
        }
        assert!(!run.passes());
        assert_eq!(
            verdict(&run),
            "2 figures measured. 1 figure is not resolved, since the target lies within the interval: write-tmpfs."
        );
        let text = render(&run, 80, Paint::Off);
        assert!(text.contains("ratio  x 1.000 [0.900 … 1.300], 7 rounds\n"), "{text}");
        assert!(text.contains("x 1.000  <= x 1.01  ○ not resolved\n"), "{text}");
        assert!(crate::page::render(&run).contains("x 1.000 [0.900 … 1.300]"));
        let document: serde_json::Value =
            serde_json::from_str(&crate::json::render(&run).unwrap()).unwrap();
        let figure = &document["figures"][0];
        assert_eq!(figure["verdict"], "not-resolved");
        assert_eq!(
            (&figure["paired"]["low"], &figure["paired"]["rounds"]),
            (&0.9.into(), &7.into())
        );
        assert_eq!(figure["ratio"], run.rows[0].ours.median() / run.rows[0].peer.median());
        let row = &mut run.rows[0];
        for side in [&mut row.ours, &mut row.peer] {
            *side = Samples::default();
            side.push(1e6);
            side.end_round();
        }
        assert!(!run.passes());
        let said = verdict(&run);
        assert!(said.ends_with("since too few rounds have no interval: write-tmpfs."), "{said}");
        run.setting.quick = true;
        assert!(run.passes() && !verdict(&run).contains("not resolved"));
    }

    #[test]
    fn a_quick_run_judges_only_what_must_never_happen() {
        let mut run = example();
        run.missing.clear();
        run.setting.quick = true;
        assert_eq!(
            verdict(&run),
            "3 figures measured. 2 figures are not judged: few rounds prove nothing."
        );
        assert!(run.passes());
        let text = render(&run, 80, Paint::Off);
        assert_eq!(text.matches("not judged\n").count(), 2, "{text}");
        assert!(!text.contains("pass") && !text.contains("short"), "{text}");
        assert!(text.contains("a quick run: too few rounds for figures to be shown"), "{text}");
        let page = crate::page::render(&run);
        assert!(page.contains("not judged") && !page.contains("● pass"), "{page}");
        let document = crate::json::render(&run).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(
            (&document["passes"], &document["figures"][0]["verdict"]),
            (&true.into(), &"not-judged".into())
        );

        // Of what must never happen, once is too often.
        run.rows[0].quantity = Quantity::Count;
        run.rows[0].target = Some(FigureTarget::Within(0.0));
        assert!(!run.passes());
        assert!(verdict(&run).contains("falls short: write-tmpfs"), "{}", verdict(&run));
        // What could not be measured is no matter of rounds.
        run.rows.remove(0);
        assert!(run.passes());
        run.missing.push(("bytes-disk", "needs --dir".to_owned()));
        assert!(!run.passes());
    }
}
