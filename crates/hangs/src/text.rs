//! What people read about hangs: a line each, in words, and lists of them.

mod advice;
mod comparison;
mod sheet;
mod verdict;
mod yesterday;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::{Timestamp, Zoned};
use report::figure::duration;
use report::paint::{Paint, Tone};
use report::paragraph::{counted, wrap};
use report::table::{Align, TextTable};
use report::text::spelled;

use crate::history::{HangGroup, HangHistory, TimeSpan};
use crate::model::{CallObject, Hang, HangCause, ObjectKind};
use crate::remedy::AppliedRemedies;
use crate::store::EraseOutcome;

pub use self::comparison::ComparedText;

/// For whom and where text is written.
#[derive(Clone, Debug)]
pub struct HangTextStyle<'a> {
    /// The home, which is written as `~`.
    pub home: Option<&'a Path>,
    /// Now, where the user is.
    pub now: &'a Zoned,
    /// Colours and characters.
    pub paint: Paint,
    /// The width of the screen.
    pub width: usize,
    /// What is on of that which removes causes.
    pub applied: &'a AppliedRemedies,
}

fn time(nanoseconds: u64) -> String {
    duration(Duration::from_nanos(nanoseconds))
}

/// Writes a length that a person measures in minutes and hours.
fn long_time(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let minutes = seconds / 60;
    match (minutes / 60, minutes % 60) {
        (0, 0) => time(nanoseconds),
        (0, minutes @ 1..10) if !seconds.is_multiple_of(60) => {
            format!("{minutes} min {} s", seconds % 60)
        }
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

impl HangTextStyle<'_> {
    /// Writes a path of the user's home with `~`, and without what a terminal would obey.
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        let home = self.home.and_then(Path::to_str).filter(|home| home.len() > 1);
        let rest = home.and_then(|home| path.strip_prefix(home));
        let short = match rest.filter(|rest| rest.starts_with('/')) {
            Some(rest) => format!("~{rest}"),
            None => path.to_owned(),
        };
        self.others(&short)
    }

    /// Writes text of others on one line.
    #[must_use]
    pub fn others(&self, text: &str) -> String {
        spelled(text, self.paint.charset()).into_owned()
    }

    /// Returns a moment where the user is.
    #[must_use]
    pub fn local(&self, at_ns: u64) -> Zoned {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(at_ns.min(i64::MAX.unsigned_abs()));
        Timestamp::try_from(at).unwrap_or_default().to_zoned(self.now.time_zone().clone())
    }

    /// Returns what clocks where the user is show at a moment, in nanoseconds since 1970 as they count it.
    #[must_use]
    pub fn wall_clock_ns(&self, at_ns: u64) -> u64 {
        let offset_ns = i64::from(self.local(at_ns).offset().seconds()) * 1_000_000_000;
        at_ns.saturating_add_signed(offset_ns)
    }

    /// Writes a moment: the time of today, else with the date.
    #[must_use]
    pub fn moment(&self, at_ns: u64) -> String {
        let at = self.local(at_ns);
        let format = if at.date() == self.now.date() { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        at.strftime(format).to_string()
    }

    /// Writes what a hang waited for: `fdatasync of ~/x on vda, in KConfig::sync`.
    #[must_use]
    pub fn reason(&self, hang: &Hang) -> String {
        let mut text = self.waited_for(hang);
        if let Some(frame) = hang.blamed_frame() {
            let _ = write!(text, ", in {}", self.others(&frame.function));
        }
        text
    }

    fn waited_for(&self, hang: &Hang) -> String {
        let words = hang.cause_words();
        let is_call = !matches!(
            hang.cause,
            HangCause::Computing
                | HangCause::ProcessorQueue
                | HangCause::Stopped
                | HangCause::Unknown
                | HangCause::Sleep
        );
        let share = hang.longest_call().filter(|_| is_call);
        let Some(share) = share else { return words.to_owned() };
        let call = self.others(&share.call);
        let peer = hang.peer();
        match &share.object {
            None if share.is_page_fault() => words.to_owned(),
            None | Some(CallObject { kind: ObjectKind::Other, .. })
                if hang.cause == HangCause::OtherProgram && peer.is_some() =>
            {
                let peer = peer.map_or_else(String::new, |hop| self.others(&hop.program));
                format!("waiting for {peer} ({call})")
            }
            Some(CallObject { kind: ObjectKind::Other, name, .. }) if share.is_page_fault() => {
                format!("waiting for memory from {}", self.others(name))
            }
            Some(CallObject { kind: ObjectKind::File, name, device, .. }) => {
                let on = if device.is_empty() {
                    String::new()
                } else {
                    format!(" on {}", self.others(device))
                };
                let waits = match share.is_page_fault() {
                    true => "waiting for pages",
                    false => &*call,
                };
                format!("{waits} of {}{on}", self.path(name))
            }
            Some(CallObject { kind: ObjectKind::Socket, name, .. }) => {
                format!("waiting for {} ({call})", self.others(name))
            }
            Some(CallObject { kind: ObjectKind::Child, name, .. }) if !name.is_empty() => {
                format!("waiting for the child {} ({call})", self.others(name))
            }
            Some(CallObject { kind: ObjectKind::Other, name, .. }) if !name.is_empty() => {
                format!("{words}: {call} of {}", self.others(name))
            }
            _ => format!("{words} ({call})"),
        }
    }

    /// Writes a hang in a line, without its number.
    #[must_use]
    pub fn line(&self, hang: &Hang) -> String {
        self.line_of(&self.others(&hang.program), hang)
    }

    /// Writes a hang of a history in a line. Where several processes of its program have hangs it says which one it was.
    #[must_use]
    pub fn line_in(&self, history: &HangHistory, hang: &Hang) -> String {
        let program = self.others(&hang.program);
        match history.has_several(&hang.program) {
            true => self.line_of(&format!("{program} [{}]", hang.process), hang),
            false => self.line_of(&program, hang),
        }
    }

    fn line_of(&self, program: &str, hang: &Hang) -> String {
        let length = time(hang.length_ns);
        let length = match hang.goes_on {
            true => format!("{length} or longer"),
            false => length,
        };
        let verb = if hang.unseen.may_be_several() { "was busy" } else { "froze" };
        format!(
            "{} {verb} {} at {}: {}",
            self.paint.set(Tone::Strong, program),
            self.paint.set(Tone::Bad, &length),
            self.moment(hang.started_ns),
            self.reason(hang)
        )
    }

    fn paragraphs(&self, lines: &[String]) -> String {
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate() {
            let wrapped = wrap(line, self.width, "");
            let tone = if at == 0 { Tone::Strong } else { Tone::Dim };
            text.push_str(&self.paint.set(tone, wrapped.trim_end()));
            text.push('\n');
        }
        text
    }

    /// Writes the list of hangs, the worst first, at most `most`, with what mends them.
    #[must_use]
    pub fn list(&self, history: &HangHistory, span: TimeSpan, when: &str, most: usize) -> String {
        let mut text = self.paragraphs(&self.verdict(history, span, when));
        if !history.hangs.is_empty() {
            text.push('\n');
        }
        let digits =
            history.hangs.iter().map(|hang| hang.number).max().unwrap_or(0).to_string().len();
        for hang in history.hangs.iter().take(most) {
            let number = format!("{:>digits$}", hang.number);
            let _ = writeln!(
                text,
                "{}  {}",
                self.paint.set(Tone::Dim, &number),
                self.line_in(history, hang)
            );
        }
        if history.hangs.len() > most {
            let _ = writeln!(
                text,
                "and {} more; --limit shows more of them",
                history.hangs.len() - most
            );
        }
        let remedies = self.remedies(&history.hangs);
        if !remedies.is_empty() {
            text.push('\n');
            text.push_str(&remedies);
        }
        text
    }

    /// Writes groups of hangs.
    #[must_use]
    pub fn top(
        &self,
        history: &HangHistory,
        groups: &[HangGroup],
        span: TimeSpan,
        when: &str,
        by: &str,
    ) -> String {
        let mut text = self.paragraphs(&self.verdict(history, span, when));
        if groups.is_empty() {
            return text;
        }
        text.push('\n');
        let columns = [
            (by, Align::Text),
            ("hangs", Align::Point),
            ("in all", Align::Point),
            ("longest", Align::Point),
            ("number", Align::Point),
        ];
        let mut table = TextTable::new(&columns);
        for group in groups {
            table.row(vec![
                self.path(&group.name).into(),
                group.count.to_string().into(),
                time(group.total_ns).into(),
                time(group.longest_ns).into(),
                group.longest.to_string().into(),
            ]);
        }
        text.push_str(&table.render(self.width, self.paint));
        text
    }
}

/// Returns what to say of the recorder below a list; nothing while all is well. `is_counted`: the records tell of a time that was
/// watched.
#[must_use]
pub fn recorder_hint(
    is_running: bool,
    is_counted: bool,
    is_on: impl FnOnce() -> bool,
) -> Option<&'static str> {
    Some(match is_running {
        true if is_counted => return None,
        true => "The recorder runs: what it has watched is counted each minute.",
        false if is_on() => {
            "The recorder does not run, although it is switched on. To see why: systemctl --user status unjank-hangs. Without systemd start it yourself: unjank hangs record"
        }
        false => "The recorder does not run. To switch it on: unjank setup hangs",
    })
}

/// Writes a count with its noun.
#[must_use]
pub fn number(count: u64, noun: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

/// Says what was erased.
#[must_use]
pub fn erased_text(outcome: &EraseOutcome) -> String {
    let named = match outcome.mentions {
        0 => String::new(),
        mentions => format!(", its name in {} of other programs", number(mentions, "hang")),
    };
    format!(
        "Erased: {}{named}, and what was counted in {}.\n",
        number(outcome.hangs, "hang"),
        number(outcome.periods, "period")
    )
}

/// Counts what stays because it cannot be read, if there is any: `1 file and 2 records`.
#[must_use]
pub fn kept_text(outcome: &EraseOutcome) -> Option<String> {
    match (outcome.kept_files, outcome.kept_records) {
        (0, 0) => None,
        (files, 0) => Some(number(files, "file")),
        (0, records) => Some(number(records, "record")),
        (files, records) => {
            Some(format!("{} and {}", number(files, "file"), number(records, "record")))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
