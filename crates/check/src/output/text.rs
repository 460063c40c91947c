//! What a check found, for people: a line for each limit and each finding.

use report::paint::{Paint, Tone};
use report::paragraph::counted;
use report::text::spelled;

use super::CheckDocument;
use crate::baseline::{BaselineChange, FindingKind};

/// The most lines of the baseline that are named as too wide.
const TIGHTEN: usize = 10;

/// Writes what was found, a line each, and the verdict of the report if something is broken.
#[must_use]
pub fn render(document: &CheckDocument<'_>, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |tone: Tone, word: &str, what: &str| {
        let what = spelled(what, paint.charset());
        text.push_str(&format!("{}  {what}\n", paint.set(tone, word)));
    };
    for outcome in document.outcomes {
        if outcome.kept {
            line(Tone::Good, "● kept  ", &outcome.text);
        } else {
            line(Tone::Bad, "▲ broken", &outcome.text);
        }
    }
    let judgement = document.judgement;
    let mut wide = 0;
    for finding in &judgement.findings {
        match finding.kind {
            FindingKind::NotJudged => line(Tone::Bad, "▲ unseen", &finding.text),
            FindingKind::NotConfirmed => line(Tone::Dim, "· chance", &finding.text),
            FindingKind::Tighten => {
                wide += 1;
                if wide <= TIGHTEN {
                    line(Tone::Dim, "· note  ", &finding.text);
                }
            }
            _ => line(Tone::Bad, "▲ broken", &finding.text),
        }
        if finding.kind.fails()
            && let Some(wait) = &finding.wait
        {
            wait.stack.iter().take(6).for_each(|caller| line(Tone::Dim, "        ", caller));
        }
    }
    if wide > TIGHTEN {
        line(
            Tone::Dim,
            "· note  ",
            &format!("{} more lines could go or be lowered", wide - TIGHTEN),
        );
    }
    if let Some(file) = document.baseline {
        let allowed = counted(judgement.allowed, "allowed wait");
        let runs = counted(judgement.runs, "run");
        let broken = judgement.findings.iter().filter(|finding| finding.kind.fails()).count();
        if broken == 0 {
            line(Tone::Good, "● kept  ", &format!("{file}: {allowed} in {runs}, none that is new"));
        } else {
            let broken = counted(broken, "finding");
            line(Tone::Bad, "▲ broken", &format!("{file}: {broken}, {allowed} in {runs}"));
        }
    }
    if !document.is_kept() {
        text.push_str(&format!("{}\n", spelled(document.verdict, paint.charset())));
    }
    text
}

/// Writes what an update changed, a line each.
#[must_use]
pub fn changes(changes: &[BaselineChange], paint: Paint) -> String {
    let lines = changes.iter().map(|change| {
        let (tone, word, what) = match change {
            BaselineChange::Added(what) => (Tone::Warn, "+ added  ", what),
            BaselineChange::Raised(what) => (Tone::Warn, "↑ raised ", what),
            BaselineChange::Lowered(what) => (Tone::Good, "↓ lowered", what),
            BaselineChange::Removed(what) => (Tone::Good, "- removed", what),
        };
        format!("{}  {}\n", paint.set(tone, word), spelled(what, paint.charset()))
    });
    lines.collect()
}
