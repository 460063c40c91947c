//! What people read about hangs: a line each, in words, and the sheet of one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::{Timestamp, Zoned};
use report::figure::{Quantity, duration};
use report::paint::{Paint, Tone};
use report::paragraph::{counted, wrap};
use report::table::{Align, TextTable};
use report::text::spelled;

use crate::compare::{HangRate, RateComparison, RateDifference};
use crate::history::{HangGroup, HangGrouping, HangHistory, TimeSpan, WatchCoverage, group};
use crate::model::{
    CallObject, DiskUse, DiskUser, Hang, HangCause, HangChain, HangHop, ObjectKind,
};
use crate::remedy::{HangRemedy, remedy};
use crate::store::{EraseOutcome, StoredHistory};

/// That a program was not watched for so long after its start is told, in nanoseconds.
const LATE_NS: u64 = 3_000_000_000;
/// The most gaps that are named.
const GAPS: usize = 3;

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
}

fn time(nanoseconds: u64) -> String {
    duration(Duration::from_nanos(nanoseconds))
}

/// Writes a length that a person measures in minutes and hours.
fn long_time(nanoseconds: u64) -> String {
    let minutes = nanoseconds / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => time(nanoseconds),
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
        let words = hang.cause.words();
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
        match &share.object {
            None if share.is_page_fault() => words.to_owned(),
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

    /// Writes the sentence at the top, and what was not watched.
    #[must_use]
    pub fn verdict(&self, history: &HangHistory, span: TimeSpan, when: &str) -> Vec<String> {
        let WatchCoverage { watched_ns, recorder_ns, interval_ns, lost, .. } = history.coverage;
        let WatchCoverage { over_limit, refused, .. } = history.coverage;
        let without_loop = history.without_loop();
        let unfollowed = over_limit.saturating_add(refused) > 0 || !without_loop.is_empty();
        let mut lines = Vec::new();
        let program = history.program.as_deref().map(|program| self.others(program));
        // What cannot be read may be a hang, or a time in which somebody watched.
        let as_far = match history.damage {
            Some(_) => ", as far as the records can be read",
            None => "",
        };
        let watched = match watched_ns {
            0 => String::new(),
            watched => format!(" in {} of watching", long_time(watched)),
        };
        let total =
            history.hangs.iter().fold(0_u64, |sum, hang| sum.saturating_add(hang.length_ns));
        match history.hangs.first() {
            Some(worst) => {
                lines.push(format!(
                    "{} {when}{watched}, {} in all; the longest took {}.",
                    counted(history.hangs.len(), "hang"),
                    time(total),
                    time(worst.length_ns)
                ));
                if watched_ns == 0 {
                    lines.push(
                        "For how long was watched is not known: it is stored each minute, and lost if the recorder is killed."
                            .to_owned(),
                    );
                }
                if watched_ns > 0 && history.uncounted.0 > 0 {
                    lines.push(format!(
                        "{} of them began in a time whose watching is not counted: it is stored each minute, and lost if the recorder is killed.",
                        history.uncounted.0
                    ));
                }
            }
            None if watched_ns > 0 => {
                let of = match program {
                    Some(program) => format!(" of {program}"),
                    None if unfollowed => " of the programs that were followed".to_owned(),
                    None => String::new(),
                };
                lines.push(format!("No hang of 100 ms or more{of} {when}{watched}{as_far}."));
            }
            None if recorder_ns > 0 => {
                let nobody = match program {
                    Some(program) => format!("{program} was not watched"),
                    None if unfollowed => "no interactive program could be watched".to_owned(),
                    None => "no interactive program did".to_owned(),
                };
                lines.push(format!(
                    "Nothing to tell {when}: the recorder ran for {}, and {nobody}{as_far}.",
                    long_time(recorder_ns)
                ));
            }
            None if history.damage.is_none() && history.coverage.erased_before_ns.is_some() => {
                lines.push(format!("No record of hangs {when}."));
            }
            None if history.damage.is_some() => {
                lines.push(format!(
                    "Nothing can be told {when}: there are records that cannot be read."
                ));
            }
            None => lines.push(format!(
                "Nothing is recorded {when}: the recorder did not run, ended in its first minute, or its records were erased."
            )),
        }
        lines.extend(history.coverage.erased_before_ns.map(|before_ns| self.erased(before_ns)));
        lines.extend(history.damage.clone());
        let gaps = &history.coverage.gaps;
        for TimeSpan { from_ns, to_ns } in gaps.iter().take(GAPS) {
            lines.push(format!(
                "Not watched: {}, from {} to {}.",
                long_time(to_ns - from_ns),
                self.moment((*from_ns).max(span.from_ns)),
                self.moment((*to_ns).min(span.to_ns))
            ));
        }
        if gaps.len() > GAPS {
            lines.push(format!("Not watched: {} more gaps.", gaps.len() - GAPS));
        }
        let stalled_ns = history.coverage.stalled_ns;
        if stalled_ns > 0 {
            lines.push(format!(
                "The recorder itself did not run for {} of this time: it was stopped, the machine was too busy, or the clock was set. Hangs in it may be missing.",
                time(stalled_ns)
            ));
        }
        let programs = |count| counted(usize::try_from(count).unwrap_or(0), "program");
        if over_limit > 0 {
            lines.push(format!(
                "Not watched: {} beyond the most that a recorder follows.",
                programs(over_limit)
            ));
        }
        if let [first, others @ ..] = &*without_loop {
            let name = |(name, part): &(&str, Option<(u32, u32)>)| match part {
                None => self.others(name),
                Some((count, of)) => format!("{count} of {of} processes of {}", self.others(name)),
            };
            let first = name(first);
            let names = match others {
                [] => format!("{first}, in whose first thread"),
                [second] => format!("{first} and {}, in whose first threads", name(second)),
                [..] => format!("{first} and {} others, in whose first threads", others.len()),
            };
            lines.push(format!("Not watched: {names} no wait of a main loop was found."));
        }
        if let Some((program, late_ns)) =
            history.latest().filter(|(_, late_ns)| *late_ns >= LATE_NS)
        {
            lines.push(format!(
                "Not watched: the first moments of programs, at most {} ({}).",
                time(late_ns),
                self.others(program)
            ));
        }
        if refused > 0 {
            lines.push(format!(
                "Not watched: {} that the kernel did not let this recorder watch: by its rules (kernel.yama.ptrace_scope above 0 is one), or for want of memory.",
                programs(refused)
            ));
        }
        if lost > 0 {
            lines.push(format!(
                "Seen and not stored: {lost} hangs, because the disk took no records, they came faster than they were read, or the recorder service ended."
            ));
        }
        if interval_ns > 0 && watched_ns > 0 {
            let sampled_ns = history.coverage.sampled_ns;
            // Of the rest the kernel has reported each step.
            let part = match sampled_ns < recorder_ns / 100 * 99 {
                true => format!(" for {} of the time", time(sampled_ns)),
                false => String::new(),
            };
            lines.push(format!(
                "Sampled from outside{part} every {}: lengths are right within about half of that, and of shorter steps only a part is counted.",
                time(interval_ns)
            ));
        }
        lines
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
        let remedies = remedies(&history.hangs);
        if !remedies.is_empty() {
            text.push('\n');
        }
        for (remedy, count, total_ns) in remedies {
            let advice = remedy.advice();
            let _ =
                writeln!(text, "{} ({}): {}", counted(count, "hang"), time(total_ns), advice.text);
            if let Some(command) = advice.command {
                let _ = writeln!(text, "  {}", self.paint.set(Tone::Strong, &command));
            }
        }
        text
    }

    /// Writes everything about one hang.
    #[must_use]
    pub fn sheet(&self, hang: &Hang) -> String {
        let mut text = format!("{}\n", self.line(hang));
        let mut facts = vec![format!(
            "process {}{}{}; began {}{}",
            hang.process,
            match hang.process_began_ns {
                0 => String::new(),
                began => format!(", started {}", self.local(began).strftime("%Y-%m-%d %H:%M:%S")),
            },
            match &*hang.unit {
                "" => String::new(),
                unit => format!(" of {}", self.others(unit)),
            },
            self.local(hang.started_ns).strftime("%Y-%m-%d %H:%M:%S"),
            match hang.uncertain_ns {
                // Of one that went on a part is known.
                _ if hang.goes_on => String::new(),
                0 if hang.unseen.has_unseen_time() => {
                    "; the length is that of the part that was seen".to_owned()
                }
                0 => "; the length is exact".to_owned(),
                uncertain => format!("; the length may be wrong by {}", time(uncertain)),
            }
        )];
        if hang.goes_on {
            facts.push(
                "It went on when this was written; how long it took in the end is not known."
                    .to_owned(),
            );
        }
        if let Some([cpu, io, memory]) = hang.pressure {
            let share = |part: u16| format!("{}.{:02} %", part / 100, part % 100);
            facts.push(format!(
                "pressure in the ten seconds before its end: processors {}, disks {}, memory {}",
                share(cpu),
                share(io),
                share(memory)
            ));
        }
        for fact in facts {
            text.push_str(&self.paint.set(Tone::Dim, wrap(&fact, self.width, "").trim_end()));
            text.push('\n');
        }
        text.push_str("\nWhat the time went to\n");
        let mut table = TextTable::new(&[("part", Align::Text), ("time", Align::Point)]);
        let mut parts = hang.parts.named();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        for (name, part) in parts.into_iter().filter(|(_, part)| *part > 0) {
            table.row(vec![name.into(), time(part).into()]);
        }
        text.push_str(&table.render(self.width, self.paint));
        if !hang.calls.is_empty() {
            text.push_str("\nWhat it was blocked in\n");
            let columns = [
                ("in", Align::Text),
                ("blocked", Align::Point),
                ("seen", Align::Point),
                ("on", Align::Text),
                ("object", Align::Text),
            ];
            let mut table = TextTable::new(&columns);
            table.ends_in_paths();
            for share in &hang.calls {
                let object = share.object.as_ref();
                let on = object.map_or(String::new(), |object| {
                    format!("{} {}", object.file_system, object.device).trim().to_owned()
                });
                let name = object.map_or(String::new(), |object| match object.kind {
                    ObjectKind::File => self.path(&object.name),
                    _ => self.others(&object.name),
                });
                table.row(vec![
                    self.others(&share.call).into(),
                    time(share.blocked_ns).into(),
                    share.seen.to_string().into(),
                    self.others(&on).into(),
                    name.into(),
                ]);
            }
            text.push_str(&table.render(self.width, self.paint));
        }
        if !hang.frames.is_empty() {
            text.push_str("\nWhere most of it was spent\n");
            for (at, frame) in (0_u32..).zip(&hang.frames) {
                let is_blamed = hang.blamed == Some(at);
                let mark = if is_blamed { ">" } else { " " };
                let line = format!("{mark} {}  {}", frame.function, frame.module);
                let tone = if is_blamed { Tone::Strong } else { Tone::Dim };
                let _ = writeln!(text, "{}", self.paint.set(tone, &self.others(line.trim_end())));
            }
        }
        if let Some(chain) = &hang.chain {
            text.push_str("\nWhom the longest wait was for\n");
            for (at, hop) in chain.hops.iter().enumerate() {
                let end = (at + 1 == chain.hops.len()).then_some(chain);
                let line = self.others(&hop_sentence(hop, end));
                let _ = write!(text, "{}", wrap(&line, self.width, "  "));
            }
            if chain.has_losses {
                text.push_str("  Wake-ups were lost that may belong to it.\n");
            }
        }
        if let Some(used) = &hang.disk_use {
            let _ =
                writeln!(text, "\nWhat was read and written in {} of it", time(used.counted_ns));
            text.push_str(&self.disk_use(used).render(self.width, self.paint));
        }
        for sentence in hang.unseen.sentences(!hang.frames.is_empty()) {
            let _ = write!(text, "\n{}", wrap(sentence, self.width, ""));
        }
        if let Some(advice) = remedy(hang).map(HangRemedy::advice) {
            let _ = write!(text, "\nWhat mends it: {}\n", advice.text);
            if let Some(command) = advice.command {
                let _ = writeln!(text, "  {}", self.paint.set(Tone::Strong, &command));
            }
        }
        text
    }

    fn disk_use(&self, used: &DiskUse) -> TextTable {
        let columns = [
            ("by", Align::Text),
            ("process", Align::Text),
            ("read", Align::Point),
            ("written", Align::Point),
        ];
        let mut table = TextTable::new(&columns);
        #[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
        let bytes = |bytes: u64| Quantity::Size.show(bytes as f64);
        for DiskUser { program, process, read_bytes, written_bytes } in &used.programs {
            table.row(vec![
                self.others(program).into(),
                process.to_string().into(),
                bytes(*read_bytes).into(),
                bytes(*written_bytes).into(),
            ]);
        }
        let (read, written) = (bytes(used.read_bytes), bytes(used.written_bytes));
        table.row(vec!["all, on disks".into(), "".into(), read.into(), written.into()]);
        table
    }

    /// Writes the hangs of yesterday in a sentence, with what mends the most of them.
    #[must_use]
    pub fn yesterday(&self, history: &HangHistory) -> String {
        let watched = history.coverage.watched_ns;
        let damage = history.damage.as_ref().map_or(String::new(), |damage| format!(" {damage}"));
        let watching = long_time(watched);
        let Some(worst) = history.hangs.first() else {
            return match watched {
                0 if history.coverage.erased_before_ns.is_some() => {
                    format!("What was recorded of yesterday's hangs was erased.{damage}")
                }
                0 => format!("No watching for hangs is recorded of yesterday.{damage}"),
                _ => format!(
                    "Yesterday no program was seen to hang in {watching} of watching.{damage}"
                ),
            };
        };
        let mut text = format!(
            "Yesterday {} in {watching} of watching, the longest {} ({})",
            counted(history.hangs.len(), "hang"),
            time(worst.length_ns),
            self.others(&worst.program)
        );
        let groups = group(&history.hangs, HangGrouping::File);
        let most = groups.iter().filter(|group| group.name.starts_with('/') && group.count > 1);
        if let Some(most) = most.max_by_key(|group| group.count) {
            let _ = write!(text, "; {} of them on {}", most.count, self.path(&most.name));
        }
        if let Some((remedy, count, _)) = remedies(&history.hangs).first()
            && let Some(command) = remedy.advice().command
        {
            let _ = write!(text, "; what mends {count}: {command}");
        }
        text.push_str(". See: unjank hangs --since yesterday.");
        text.push_str(&damage);
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

    fn erased(&self, before_ns: u64) -> String {
        format!("Erased: everything that was recorded before {}.", self.moment(before_ns))
    }

    /// Writes a comparison of what is in `stored`.
    #[must_use]
    pub fn comparison(
        &self,
        comparison: &RateComparison,
        moment: &str,
        stored: &StoredHistory,
        now_ns: u64,
    ) -> String {
        let RateComparison { before, after, ratio, difference } = comparison;
        let verdict = match difference {
            RateDifference::Fewer => format!("Fewer hangs since {moment}."),
            RateDifference::More => format!("More hangs since {moment}."),
            RateDifference::None => format!("No clear difference before and after {moment}."),
            RateDifference::NotEnough => {
                format!("Too little was watched before or after {moment} to compare.")
            }
        };
        let mut lines = vec![verdict];
        let rate = |name: &str, rate: &HangRate| {
            let an_hour =
                rate.an_hour().map_or(String::new(), |rate| format!("{rate:.2} an hour, "));
            format!(
                "{name}: {} in {} of watching, {an_hour}{} in all",
                counted(usize::try_from(rate.hangs).unwrap_or(usize::MAX), "hang"),
                long_time(rate.watched_ns),
                time(rate.total_ns)
            )
        };
        lines.push(rate("before", before));
        lines.push(rate("after", after));
        if let Some((point, low, high)) = ratio {
            let figure = |value: &Option<f64>| {
                value.map_or("without bound".to_owned(), |value| format!("{value:.2}"))
            };
            lines.push(format!(
                "the rate after by the rate before: {} [{} … {}], 95 %",
                figure(point),
                figure(low),
                figure(high)
            ));
        }
        lines.extend(stored.erased_before(now_ns).map(|before_ns| self.erased(before_ns)));
        lines.extend(stored.damage());
        self.paragraphs(&lines)
    }
}

/// Returns what mends some of the hangs: for how many, and how much time they took; the most time first.
#[must_use]
pub fn remedies(hangs: &[Hang]) -> Vec<(HangRemedy, usize, u64)> {
    let mut found: std::collections::BTreeMap<HangRemedy, (usize, u64)> =
        std::collections::BTreeMap::new();
    for hang in hangs {
        if let Some(remedy) = remedy(hang) {
            let (count, total) = found.entry(remedy).or_default();
            *count += 1;
            *total = total.saturating_add(hang.length_ns);
        }
    }
    let mut found: Vec<(HangRemedy, usize, u64)> =
        found.into_iter().map(|(remedy, (count, total))| (remedy, count, total)).collect();
    found.sort_by_key(|(_, _, total)| std::cmp::Reverse(*total));
    found
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

/// Says what a thread of a chain did; the last one with what its time went to.
fn hop_sentence(hop: &HangHop, end: Option<&HangChain>) -> String {
    let unit = if hop.unit.is_empty() { String::new() } else { format!(", {}", hop.unit) };
    let place = match (&*hop.call, &*hop.function) {
        ("", "") => String::new(),
        (word, "") | ("", word) => format!(" in {word}"),
        (call, function) => format!(" in {call} ({function})"),
    };
    let did = match end.map(|chain| (&*chain.end, time(chain.end_ns))) {
        None => format!("waited {}{place}", time(hop.waited_ns)),
        Some(("timer", part)) => format!("slept {part}{place} until a time that was set"),
        Some(("disk", part)) => format!("waited {part} for a disk{place}"),
        Some(("network", part)) => format!("waited {part} for the network{place}"),
        Some(("device", part)) => format!("waited {part} for a device or an interrupt{place}"),
        Some(("processor", part)) => format!("ran for {part}"),
        Some(("ready", part)) => format!("ran for {part}, most of it without a processor"),
        Some(("several", _)) => "did several things".to_owned(),
        Some(("too-long", part)) => format!("waited {part}{place}; more are not followed"),
        Some((_, part)) => format!("took {part}{place}; for what is not known"),
    };
    match hop.process {
        // Of another user's is told no more than that.
        0 => format!("{} {did}", hop.program),
        process => format!("{} [{process}{unit}] {did}", hop.program),
    }
}

#[cfg(test)]
mod tests;
