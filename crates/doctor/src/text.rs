//! A diagnosis on a terminal: the verdict, the table, the recommendations.

use std::borrow::Cow;
use std::time::Duration;

use report::text::{Charset, visible};

use super::Diagnosis;
use super::actions::{Action, FindingCause};
use super::finding::{Finding, MeasurementOutcome};
use report::figure::{Quantity, duration, frame_count, nanoseconds};
use report::grade::{Grade, feeling};
use report::paint::{Paint, Tone};
use report::paragraph::{capital, counted, wrap};
use report::samples::Samples;
use report::table::{Align, TableCell, TextTable};

/// How many columns of a bar are one frame; a bar ends after two frames.
const FRAME_COLUMNS: usize = 4;

/// Summarises the diagnosis in one sentence.
#[must_use]
pub fn verdict(diagnosis: &Diagnosis) -> String {
    let frame = duration(diagnosis.frame);
    let timed = diagnosis.judged();
    let count = |grade| {
        timed.iter().filter(|finding| finding.grade(diagnosis.frame) == Some(grade)).count()
    };
    let (near, misses) = (count(Grade::Near), count(Grade::Misses));
    let steps = counted(timed.len(), "step");
    let mut sentence = match (timed.first(), misses, near) {
        (None, ..) if diagnosis.findings.iter().any(is_told) => {
            "Nothing of this takes time; what was found stands below.".to_owned()
        }
        (None, ..) => "Nothing could be measured.".to_owned(),
        (_, 0, 0) if timed.len() == 1 => {
            format!("The one step measured fits its frame of {frame}.")
        }
        (_, 0, 0) => format!("All {steps} measured fit their frame of {frame}."),
        (_, 0, near) => {
            format!("Nothing misses its frame of {frame}; {near} of {steps} come near it.")
        }
        (Some(slowest), misses, _) => {
            let median = time(slowest).map_or(0.0, Samples::median);
            let feeling = feeling(median).map_or(String::new(), |word| format!(", {word}"));
            let verb = if misses == 1 { "misses its" } else { "miss their" };
            format!(
                "{misses} of {steps} {verb} frame of {frame}; the slowest, {}, takes {} ({} frames{feeling}).",
                slowest.name,
                Quantity::Time.show(median),
                frame_count(median, diagnosis.frame),
            )
        }
    };
    let broken = diagnosis
        .findings
        .iter()
        .filter(|finding| matches!(finding.outcome, MeasurementOutcome::Wrong(_)));
    match broken.count() {
        0 => (),
        1 => sentence.push_str(" One thing is broken."),
        broken => sentence.push_str(&format!(" {broken} things are broken.")),
    }
    if diagnosis.interrupted {
        sentence.push_str(" Interrupted: the rest was not looked at.");
    }
    sentence
}

/// Returns whether a finding tells something, other than that nothing could be looked at.
fn is_told(finding: &Finding) -> bool {
    !matches!(finding.outcome, MeasurementOutcome::Skipped(_))
}

/// Writes the whole diagnosis for a screen of `width` columns.
#[must_use]
pub fn render(diagnosis: &Diagnosis, width: usize, paint: Paint) -> String {
    let hangs = diagnosis.hangs.as_ref();
    let mut text =
        hangs.map_or(String::new(), |hangs| wrap(&shown(&hangs.sentence), width, "") + "\n");
    text.push_str(&paint.set(Tone::Strong, wrap(&verdict(diagnosis), width, "").trim_end()));
    text.push('\n');
    if !diagnosis.slowest_first().is_empty() {
        text.push('\n');
        text.push_str(&table(diagnosis).render(width, paint));
    }
    let mut list = |title: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            text.push_str(&format!("\n{}\n", paint.set(Tone::Strong, title)));
            texts.iter().for_each(|line| text.push_str(line));
        }
    };
    let each = |pick: &dyn Fn(&Finding) -> Option<String>| -> Vec<String> {
        diagnosis.findings.iter().filter_map(pick).collect()
    };
    list(
        "Broken",
        each(&|finding| match &finding.outcome {
            MeasurementOutcome::Wrong(what) => {
                Some(wrap(&shown(&format!("{}: {what}", finding.name)), width, "  ▲ "))
            }
            _ => None,
        }),
    );
    let (actions, causes) = diagnosis.actions();
    list(
        "What to do",
        (1..).zip(&actions).map(|(number, action)| todo(number, action, width, paint)).collect(),
    );
    list("Why", causes.iter().map(|cause| why(cause, width)).collect());
    list("Also", each(&|finding| Some(wrap(&shown(&finding.told()?), width, "  · "))));
    let gained = diagnosis.gains.iter().map(|gain| wrap(&shown(gain), width, "  · "));
    list("Brought by what is switched on", gained.collect());
    // A command is on one line, so that it can be pasted.
    let commands = super::actions::parts(diagnosis).into_iter();
    list("To switch on", commands.map(|(_, command)| format!("  {}\n", shown(&command))).collect());
    text
}

fn table(diagnosis: &Diagnosis) -> TextTable {
    let frame = diagnosis.frame;
    let mut table = TextTable::new(&[
        ("step", Align::Text),
        ("median", Align::Point),
        ("frames", Align::Point),
        ("verdict", Align::Text),
        ("0   1   2", Align::Text),
        ("p95", Align::Point),
        ("n", Align::Point),
    ]);
    for finding in diagnosis.slowest_first() {
        let (Some(samples), Some(grade)) = (time(finding), finding.grade(frame)) else { continue };
        let median = samples.median();
        let word = feeling(median)
            .map_or(grade.word().to_owned(), |feeling| format!("{}, {feeling}", grade.word()));
        let (word, tone) = match finding.is_comparison {
            true => ("compared".to_owned(), Tone::Dim),
            false => (format!("{} {word}", grade.shape()), grade.tone()),
        };
        table.row(vec![
            shown(&finding.name).into_owned().into(),
            TableCell::toned(Tone::Strong, Quantity::Time.show(median)),
            frame_count(median, frame).into(),
            TableCell::toned(tone, word),
            TableCell::toned(tone, bar(median, frame)),
            TableCell::toned(Tone::Dim, Quantity::Time.show(samples.p95())),
            TableCell::toned(Tone::Dim, samples.len().to_string()),
        ]);
    }
    table
}

/// Draws a time as a bar in eighths of a column, with the frame as a line.
fn bar(time_ns: f64, frame: Duration) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let columns = 2 * FRAME_COLUMNS;
    let full = columns * 8;
    let share = time_ns / nanoseconds(frame).max(1.0) / 2.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "clamped to the bar"
    )]
    let eighths = (share.clamp(0.0, 1.0) * full as f64).ceil() as usize;
    let mut bar: String = (0..columns)
        .map(|column| match eighths.saturating_sub(column * 8) {
            0 if column == FRAME_COLUMNS => '│',
            part if part >= 8 => '█',
            part => EIGHTHS[part],
        })
        .collect();
    if share > 1.0 {
        bar.push('▶');
    }
    bar.trim_end().to_owned()
}

/// Writes what to do: what it does, the command on a line of its own, and what for.
fn todo(number: usize, action: &Action, width: usize, paint: Paint) -> String {
    let mut lines = wrap(&format!("{}:", capital(&action.text)), width, &format!("{number:>3}. "));
    lines.push_str(&format!("       {}\n", paint.set(Tone::Strong, &action.command)));
    lines.push_str(&wrap(&shown(&action.reason), width, "     "));
    lines
}

/// Writes why something is as it is, and what a person can do about it.
fn why(cause: &FindingCause, width: usize) -> String {
    let mut text = shown(&cause.reason).into_owned();
    for hint in &cause.hints {
        text.push_str(&format!(". {}", capital(hint)));
    }
    wrap(&text, width, "  · ")
}

/// Returns text of others as a terminal may show it.
fn shown(text: &str) -> Cow<'_, str> {
    visible(text, Charset::Unicode)
}

pub(super) fn time(finding: &Finding) -> Option<&Samples> {
    match &finding.outcome {
        MeasurementOutcome::Time(samples) => Some(samples),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use catalogue::apps::place::ApplicationDirectories;
    use catalogue::index::sources::IndexSources;

    use super::super::machine::Machine;
    use super::super::remedy::{Remedy, Shell};
    use super::*;

    /// The example where hangs were recorded.
    pub(crate) fn example_with_hangs() -> Diagnosis {
        let sentence = "Yesterday 14 hangs.".to_owned();
        let facts = serde_json::json!({ "hangs": 14 });
        Diagnosis { hangs: Some(crate::RecordedHangs { sentence, facts }), ..example() }
    }

    /// A machine on which everything happens that can.
    pub(crate) fn example() -> Diagnosis {
        let places = ApplicationDirectories {
            path: vec!["/usr/bin".into(), "/bin".into()],
            ..ApplicationDirectories::default()
        };
        let catalogue = IndexSources { places, ..IndexSources::default() };
        let times =
            |millis: &[f64]| MeasurementOutcome::Time(millis.iter().map(|ms| ms * 1e6).collect());
        Diagnosis {
            frame: Duration::from_micros(16_667),
            findings: vec![
                Finding::new("storage", "file system (home, temp)", "statvfs", MeasurementOutcome::Note("ext4 on /, disk vda (does not rotate, scheduler none, no throttling), rw".to_owned())),
                Finding::new("storage", "sync (home, temp)", "write 4 KiB, fsync in ~", times(&[0.31, 0.30, 0.42])).because("it fits: of no advice is there need"),
                Finding::new("storage", "sync beside a copy (home, temp)", "the same beside a copy", times(&[24.0, 26.2, 190.0]))
                    .because("the copy fills the queue of vda (scheduler none); there is no write-back throttling")
                    .remedy(Remedy::SetScheduler("vda".to_owned())),
                Finding::new("settings", "write one key, installed service", "Change on a private bus", times(&[1609.0, 1500.0])),
                Finding::new("settings", "write one key, unjank", "Change on a private bus", times(&[99.1, 99.2])).compared(),
                Finding::new("settings", "first read", "open", times(&[9.1, 9.2])),
                Finding::new("settings", "flag of readers", "lstat", MeasurementOutcome::Wrong("/run/user/1000/dconf/user belongs to root".to_owned()))
                    .because("a program ran as root with your XDG_RUNTIME_DIR")
                    .remedy(Remedy::RemoveForeign { path: "/run/user/1000/dconf/user".into(), needs_root: false }),
                Finding::new("settings", "session bus", "connect", MeasurementOutcome::Skipped("there is no session bus".to_owned())),
            ],
            interrupted: false,
            took: Duration::from_secs(9),
            shell: Shell::of(&Machine { catalogue, uid: 0, ..Machine::default() }),
            gains: Vec::new(),
            hangs: None,
        }
    }

    #[test]
    fn the_verdict_comes_first_and_the_commands_can_be_pasted() {
        let text = render(&example(), 80, Paint::Off);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text, @r"
        2 of 4 steps miss their frame of 16.7 ms; the slowest, write one key, installed
        service, takes 1.55 s (93 frames, hung). One thing is broken.

        step                              median     frames  verdict         0   1   2
        write one key, installed service    1.55 s   93      ▲ misses, hung  ████████▶
        write one key, unjank              99.2  ms   5.9    compared        ████████▶
        sync beside a copy (home, temp)    26.2  ms   1.6    ▲ misses        ██████▍
        first read                          9.15 ms   0.5    ◐ near          ██▎ │
        sync (home, temp)                 310    µs   0.02   ● fits          ▏   │
        (no room for p95 and n)

        Broken
          ▲ flag of readers: /run/user/1000/dconf/user belongs to root

        What to do
          1. Remove it; the next reader makes a new one:
               rm -rf /run/user/1000/dconf/user
             flag of readers: a program ran as root with your XDG_RUNTIME_DIR
          2. Let the scheduler put a waiting program before a copy, until the next
             start:
               echo bfq | tee /sys/block/vda/queue/scheduler
             sync beside a copy (home, temp): the copy fills the queue of vda (scheduler
             none); there is no write-back throttling

        Also
          · file system (home, temp): ext4 on /, disk vda (does not rotate, scheduler
            none, no throttling), rw
          · session bus: not measured: there is no session bus
        ");
    }

    #[test]
    fn the_verdict_counts_and_names_the_slowest() {
        let mut diagnosis = example();
        diagnosis.findings.retain(|finding| finding.grade(diagnosis.frame) == Some(Grade::Fits));
        insta::assert_snapshot!(verdict(&diagnosis), @"The one step measured fits its frame of 16.7 ms.");
        diagnosis.interrupted = true;
        diagnosis.findings.clear();
        insta::assert_snapshot!(verdict(&diagnosis), @"Nothing could be measured. Interrupted: the rest was not looked at.");
        let mut near = example();
        near.findings.retain(|finding| !finding.is_bad(near.frame));
        insta::assert_snapshot!(verdict(&near), @"Nothing misses its frame of 16.7 ms; 1 of 2 steps come near it.");
    }

    #[test]
    fn a_bar_shows_the_frame_and_says_when_it_goes_on() {
        let frame = Duration::from_millis(10);
        let bars = [0.0, 0.1e6, 5e6, 10e6, 15e6, 20e6, 1e9].map(|time| bar(time, frame));
        insta::assert_snapshot!(bars.join("\n"), @r"
            │
        ▏   │
        ██  │
        ████│
        ██████
        ████████
        ████████▶
        ");
    }

    #[test]
    fn what_was_recorded_of_hangs_is_told_first() {
        let text = render(&example_with_hangs(), 80, Paint::Off);
        assert!(text.starts_with("Yesterday 14 hangs.\n\n2 of 4 steps miss"), "{text}");
        assert!(render(&example(), 80, Paint::Off).starts_with("2 of 4 steps miss"));
    }
}
