//! A part of what was recorded: which hangs, and for how long somebody watched.

use std::collections::BTreeMap;

use crate::excluded::shared_list;
use crate::model::{ERASED_PROGRAM, Hang, ObjectKind, ProgramSteps, WatchedPeriod, is_of_program};
use crate::store::StoredHistory;

/// Two periods this close to each other have no gap between them, in nanoseconds.
pub(crate) const CLOSE_NS: u64 = 5_000_000_000;
/// A recorder that runs has stored a period within this time, in nanoseconds.
const RECENT_NS: u64 = 90_000_000_000;

/// A span of time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimeSpan {
    /// Its beginning.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

impl TimeSpan {
    /// All of time.
    pub const ALL: TimeSpan = TimeSpan { from_ns: 0, to_ns: u64::MAX };

    /// Returns its length.
    #[must_use]
    pub fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// How much of a span was watched.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WatchCoverage {
    /// For how long a recorder looked, in nanoseconds.
    pub recorder_ns: u64,
    /// For how long at least one interactive program was followed, or the chosen one, in nanoseconds.
    pub watched_ns: u64,
    /// Times of the span, up to now, in which no recorder looked, the longest first. Before the first period it is a gap only if
    /// the span has a beginning.
    pub gaps: Vec<TimeSpan>,
    /// How much at the end of the span is too near to now to be a gap, in nanoseconds: a recorder that runs stores it later.
    pub not_counted_ns: u64,
    /// Everything before this moment was erased, if it lies behind the beginning of the span, in nanoseconds since 1970.
    pub erased_before_ns: Option<u64>,
    /// The interval of looks, in nanoseconds; 0 where the kernel reports each step.
    pub interval_ns: u64,
    /// For how much of `recorder_ns` it looked at such intervals, in nanoseconds.
    pub sampled_ns: u64,
    /// Programs that could not be followed because there were too many, at most in a period.
    pub over_limit: u32,
    /// Programs that the kernel did not let us look at.
    pub refused: u32,
    /// Hangs that were seen and could not be stored.
    pub lost: u64,
    /// For how long the recorder itself did not run although it was there, each time for too short a time to be a gap, in
    /// nanoseconds.
    pub stalled_ns: u64,
}

/// Adds a share of what was counted of a program in a period to what was counted before.
fn add_share(total: &mut ProgramSteps, counted: &ProgramSteps, share: (u64, u64)) {
    // However small the part of the period is: the program was watched in it.
    let part = |time: u64| scaled(time, share).max(time.min(1));
    total.watched_ns = total.watched_ns.saturating_add(part(counted.watched_ns));
    total.present_ns = total.present_ns.saturating_add(part(counted.present_ns));
    total.processes = total.processes.max(counted.processes);
    total.without_loop = counted.without_loop;
    total.late_ns = total.late_ns.max(counted.late_ns);
    total.steps.merge(&counted.steps);
}

/// The hangs of a span, and how much of it was watched.
#[derive(Clone, Debug, Default)]
pub struct HangHistory {
    /// The hangs, the longest first.
    pub hangs: Vec<Hang>,
    /// How many of them began in a time whose watching is not counted, and how long they took, in nanoseconds: the last minute of a
    /// recorder is counted when it is over, and never if it was killed.
    pub uncounted: (usize, u64),
    /// The program that was chosen.
    pub program: Option<String>,
    /// How much was watched.
    pub coverage: WatchCoverage,
    /// What was counted of each program: `processes` is the most of a period, `without_loop` that of the last period.
    pub programs: BTreeMap<String, ProgramSteps>,
    /// What of the store could not be read.
    pub damage: Option<String>,
}

/// Returns which share of a period lies in a span, as `(part, whole)`.
fn overlap(period: &WatchedPeriod, span: TimeSpan) -> Option<(u64, u64)> {
    let whole = period.to_ns.saturating_sub(period.from_ns).max(1);
    let from = period.from_ns.max(span.from_ns);
    let to = period.to_ns.max(period.from_ns + 1).min(span.to_ns);
    (to > from).then(|| ((to - from).min(whole), whole))
}

/// Returns the spans of all periods, without overlaps, in their order.
fn counted_spans(periods: &[WatchedPeriod]) -> Vec<TimeSpan> {
    let mut spans: Vec<TimeSpan> = periods
        .iter()
        .map(|period| TimeSpan { from_ns: period.from_ns, to_ns: period.to_ns })
        .collect();
    spans.sort_by_cached_key(|span| span.from_ns);
    let mut joined: Vec<TimeSpan> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.from_ns.saturating_sub(last.to_ns) <= CLOSE_NS => {
                last.to_ns = last.to_ns.max(span.to_ns);
            }
            _ => joined.push(span),
        }
    }
    joined
}

/// Returns whether a moment lies in one of some spans that are in order.
fn is_in(spans: &[TimeSpan], at_ns: u64) -> bool {
    let before = spans.partition_point(|span| span.from_ns <= at_ns.saturating_add(CLOSE_NS));
    spans[..before].last().is_some_and(|span| at_ns <= span.to_ns)
}

fn scaled(time: u64, (part, whole): (u64, u64)) -> u64 {
    u64::try_from(u128::from(time) * u128::from(part) / u128::from(whole)).unwrap_or(time)
}

impl WatchCoverage {
    fn of(
        periods: &[WatchedPeriod],
        erased_before_ns: Option<u64>,
        span: TimeSpan,
        now_ns: u64,
    ) -> WatchCoverage {
        let erased_before_ns = erased_before_ns.filter(|before| *before > span.from_ns);
        let mut coverage = WatchCoverage { erased_before_ns, ..WatchCoverage::default() };
        let mut spans = Vec::new();
        for period in periods {
            let Some(share) = overlap(period, span) else { continue };
            coverage.recorder_ns += scaled(period.recorder_ns, share);
            coverage.watched_ns += scaled(period.watched_ns, share);
            coverage.interval_ns = coverage.interval_ns.max(period.interval_ns);
            if period.interval_ns > 0 {
                coverage.sampled_ns += scaled(period.recorder_ns, share);
            }
            coverage.over_limit = coverage.over_limit.max(period.over_limit);
            coverage.refused = coverage.refused.max(period.refused);
            coverage.lost += u64::from(period.lost);
            coverage.stalled_ns += scaled(period.stalled_ns(), share);
            spans.push(TimeSpan { from_ns: period.from_ns, to_ns: period.to_ns });
        }
        spans.sort_by_cached_key(|span| span.from_ns);
        // Of what was erased nobody knows whether it is a gap.
        let known_ns = span.from_ns.max(erased_before_ns.unwrap_or(0));
        let mut end = Some(known_ns).filter(|_| span.from_ns > 0);
        for TimeSpan { from_ns, to_ns } in &spans {
            let (from_ns, to_ns) = (*from_ns, *to_ns);
            if let Some(end) = end
                && from_ns.saturating_sub(end) > CLOSE_NS
            {
                coverage.gaps.push(TimeSpan { from_ns: end, to_ns: from_ns });
            }
            end = end.max(Some(to_ns));
        }
        let until = span.to_ns.min(now_ns);
        // The period that goes on is not stored yet.
        let slack = if now_ns.saturating_sub(until) > RECENT_NS { CLOSE_NS } else { RECENT_NS };
        if let Some(end) = end.filter(|_| !spans.is_empty()) {
            match until.saturating_sub(end) {
                length if length > slack => {
                    coverage.gaps.push(TimeSpan { from_ns: end, to_ns: until });
                }
                length => coverage.not_counted_ns = length,
            }
        }
        coverage.gaps.sort_by_key(|gap| std::cmp::Reverse(gap.length_ns()));
        coverage
    }
}

impl HangHistory {
    /// Selects the hangs that began in a span, and if it is given those of one program. What comes after `now_ns` is no gap.
    #[must_use]
    pub fn select(
        stored: &StoredHistory,
        span: TimeSpan,
        program: Option<&str>,
        now_ns: u64,
    ) -> HangHistory {
        HangHistory::select_where(stored, span, program, now_ns, &|_| true)
    }

    /// Selects as [`HangHistory::select`] does, and of these hangs those that `keeps` returns true for. How much was watched is not
    /// changed by that.
    #[must_use]
    pub fn select_where(
        stored: &StoredHistory,
        span: TimeSpan,
        program: Option<&str>,
        now_ns: u64,
        keeps: &dyn Fn(&Hang) -> bool,
    ) -> HangHistory {
        let is_meant = |name: &str| program.is_none_or(|meant| is_of_program(name, meant));
        let mut hangs: Vec<Hang> = stored
            .hangs
            .values()
            .filter(|hang| (span.from_ns..=span.to_ns).contains(&hang.started_ns))
            .filter(|hang| is_meant(&hang.program) && keeps(hang))
            .cloned()
            .collect();
        hangs.sort_by_key(|hang| (std::cmp::Reverse(hang.length_ns), hang.number));
        let mut programs: BTreeMap<String, ProgramSteps> = BTreeMap::new();
        for period in &stored.periods {
            let Some(share) = overlap(period, span) else { continue };
            for steps in period.programs.iter().filter(|steps| is_meant(&steps.program)) {
                let program = steps.program.clone();
                let none = ProgramSteps { program: program.clone(), ..ProgramSteps::default() };
                add_share(programs.entry(program).or_insert(none), steps, share);
            }
        }
        let mut coverage =
            WatchCoverage::of(&stored.periods, stored.erased_before(now_ns), span, now_ns);
        if program.is_some() {
            // Its helpers are watched while it is.
            let of_program = programs.values().map(|of| of.present_ns).max().unwrap_or(0);
            coverage.watched_ns = coverage.watched_ns.min(of_program);
        }
        let spans = counted_spans(&stored.periods);
        let uncounted = hangs
            .iter()
            .filter(|hang| !is_in(&spans, hang.started_ns))
            .fold((0, 0_u64), |(count, sum), hang| (count + 1, sum.saturating_add(hang.length_ns)));
        HangHistory {
            hangs,
            uncounted,
            program: program.map(str::to_owned),
            coverage,
            programs,
            damage: stored.damage(),
        }
    }

    /// Returns whether hangs of a program are missing because they were erased.
    #[must_use]
    pub fn has_erased_program(&self) -> bool {
        self.programs.contains_key(ERASED_PROGRAM)
    }

    /// Returns how many programs were there and not followed, or not all of their processes.
    #[must_use]
    pub fn not_followed(&self) -> u64 {
        let WatchCoverage { over_limit, refused, .. } = self.coverage;
        let without_loop = u64::try_from(self.without_loop().len()).unwrap_or(u64::MAX);
        u64::from(over_limit).saturating_add(refused.into()).saturating_add(without_loop)
    }

    /// Returns the programs of which nothing can be told, or not of all processes: they were there, and no wait of a main loop was
    /// found. With each is how many of its processes that are, if it is not all.
    #[must_use]
    pub fn without_loop(&self) -> Vec<(&str, Option<(u32, u32)>)> {
        let programs = self.programs.iter().filter(|(name, _)| *name != ERASED_PROGRAM);
        let found = programs.filter_map(|(name, of)| {
            let has_hang = || self.hangs.iter().any(|hang| hang.program == *name);
            match of.watched_ns == 0 && of.steps.total() == 0 && !has_hang() {
                true => Some((&**name, None)),
                false if of.without_loop == 0 => None,
                false => Some((&**name, Some((of.without_loop, of.processes)))),
            }
        });
        found.collect()
    }

    /// Returns the program that had run for the longest before it was watched, with how long that was, in nanoseconds.
    #[must_use]
    pub fn latest(&self) -> Option<(&str, u64)> {
        let programs = self.programs.iter().map(|(name, of)| (&**name, of.late_ns));
        programs.max_by_key(|(_, late_ns)| *late_ns)
    }

    /// Returns whether the hangs of a program are those of several processes.
    #[must_use]
    pub fn has_several(&self, program: &str) -> bool {
        let mut of_program = self.hangs.iter().filter(|hang| hang.program == program);
        let Some(first) = of_program.next() else { return false };
        let process = |hang: &Hang| (hang.process, hang.process_began_ns);
        of_program.any(|hang| process(hang) != process(first))
    }
}

/// Returns the file for which a hang waited. A lock and a new version of a list of recent documents, whose name is another each time,
/// stand for the list.
#[must_use]
pub fn file_of(hang: &Hang) -> Option<&str> {
    let object = hang.object().filter(|object| object.kind == ObjectKind::File)?;
    Some(shared_list(&object.name).unwrap_or(&object.name))
}

/// By what hangs are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HangGrouping {
    /// The program.
    Program,
    /// The process: one of several that run the same program, or ran it one after the other.
    Process,
    /// The kind of cause.
    Cause,
    /// The file or peer.
    File,
    /// The function to blame.
    Function,
    /// The unit of systemd.
    Unit,
}

impl HangGrouping {
    /// All groupings with the words by which they are chosen.
    pub const ALL: [(&'static str, HangGrouping); 6] = [
        ("program", HangGrouping::Program),
        ("process", HangGrouping::Process),
        ("cause", HangGrouping::Cause),
        ("file", HangGrouping::File),
        ("function", HangGrouping::Function),
        ("unit", HangGrouping::Unit),
    ];

    /// Returns the grouping of this name.
    ///
    /// # Errors
    ///
    /// A sentence with the names that there are.
    pub fn parse(name: &str) -> Result<HangGrouping, String> {
        let found = HangGrouping::ALL.into_iter().find(|(known, _)| *known == name);
        found
            .map(|(_, grouping)| grouping)
            .ok_or_else(|| "group by program, process, cause, file, function or unit".to_owned())
    }

    fn key(self, hang: &Hang) -> String {
        match self {
            HangGrouping::Program => hang.program.clone(),
            HangGrouping::Process => format!("{} [{}]", hang.program, hang.process),
            HangGrouping::Cause => hang.cause.words().to_owned(),
            HangGrouping::File => file_of(hang).map_or("(none)".to_owned(), str::to_owned),
            HangGrouping::Function => {
                hang.blamed_frame().map_or("(not known)".to_owned(), |frame| frame.function.clone())
            }
            HangGrouping::Unit if hang.unit.is_empty() => "(none)".to_owned(),
            HangGrouping::Unit => hang.unit.clone(),
        }
    }
}

/// The hangs of one group.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct HangGroup {
    /// What they have in common.
    pub name: String,
    /// How many.
    pub count: u64,
    /// All of their time, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// The number of the longest.
    pub longest: u64,
}

/// Counts hangs in groups; the group with the most time comes first.
#[must_use]
pub fn group(hangs: &[Hang], grouping: HangGrouping) -> Vec<HangGroup> {
    let mut groups: BTreeMap<(String, u64), HangGroup> = BTreeMap::new();
    for hang in hangs {
        let name = grouping.key(hang);
        // The number of a process is used again.
        let of_process = grouping == HangGrouping::Process;
        let began_ns = if of_process { hang.process_began_ns } else { 0 };
        let group = groups.entry((name.clone(), began_ns)).or_insert(HangGroup {
            name,
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            longest: hang.number,
        });
        group.count += 1;
        group.total_ns = group.total_ns.saturating_add(hang.length_ns);
        if hang.length_ns > group.longest_ns {
            (group.longest_ns, group.longest) = (hang.length_ns, hang.number);
        }
    }
    let mut groups: Vec<HangGroup> = groups.into_values().collect();
    groups.sort_by(|one, other| {
        other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name))
    });
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StepHistogram;

    fn period(from_s: u64, to_s: u64) -> WatchedPeriod {
        let second = 1_000_000_000;
        let length = (to_s - from_s) * second;
        WatchedPeriod {
            from_ns: from_s * second,
            to_ns: to_s * second,
            recorder_ns: length,
            watched_ns: length / 2,
            ..WatchedPeriod::default()
        }
    }

    #[test]
    fn what_was_watched_is_the_share_of_each_period_in_the_span_and_gaps_are_named() {
        let periods = [period(0, 60), period(60, 120), period(600, 660)];
        let second = 1_000_000_000;
        let now = 700 * second;
        let all = WatchCoverage::of(&periods, None, TimeSpan::ALL, now);
        assert_eq!((all.recorder_ns, all.watched_ns), (180 * second, 90 * second));
        assert_eq!(all.gaps, [TimeSpan { from_ns: 120 * second, to_ns: 600 * second }]);
        let part = TimeSpan { from_ns: 30 * second, to_ns: 90 * second };
        let part = WatchCoverage::of(&periods, None, part, now);
        assert_eq!((part.recorder_ns, part.gaps.len()), (60 * second, 0));
        assert_eq!(all.stalled_ns, 0);
        let none = TimeSpan { from_ns: 200 * second, to_ns: 300 * second };
        assert_eq!(WatchCoverage::of(&periods, None, none, now), WatchCoverage::default());
    }

    #[test]
    fn a_short_time_in_which_the_recorder_did_not_run_is_told() {
        let second = 1_000_000_000;
        let mut stalled = period(0, 60);
        stalled.recorder_ns = 57 * second;
        let mut whole = period(60, 120);
        // A clock that is set a little by little makes no stall.
        whole.recorder_ns -= second / 10;
        let coverage = WatchCoverage::of(&[stalled, whole], None, TimeSpan::ALL, 130 * second);
        assert_eq!((coverage.stalled_ns, coverage.gaps.len()), (3 * second, 0), "{coverage:?}");
    }

    #[test]
    fn what_was_not_watched_at_the_ends_of_a_span_is_a_gap() {
        let second = 1_000_000_000;
        let periods = [period(1000, 1060), period(1060, 1120)];
        let gaps = |from_s: u64, to_s: Option<u64>, now_s: u64| {
            let to_ns = to_s.map_or(u64::MAX, |to| to * second);
            let span = TimeSpan { from_ns: from_s * second, to_ns };
            let gaps = WatchCoverage::of(&periods, None, span, now_s * second).gaps;
            let seconds = |gap: &TimeSpan| (gap.from_ns / second, gap.to_ns / second);
            gaps.iter().map(seconds).collect::<Vec<_>>()
        };
        assert_eq!(gaps(400, None, 1150), [(400, 1000)], "it began late, and runs");
        assert_eq!(gaps(998, None, 5000), [(1120, 5000)], "it ended");
        assert_eq!(gaps(400, Some(2000), 5000), [(1120, 2000), (400, 1000)]);
        assert_eq!(gaps(400, Some(1130), 5000), [(400, 1000), (1120, 1130)]);
        assert_eq!(gaps(0, None, 1150), [], "nobody asked for a beginning");
        assert_eq!(gaps(1030, Some(1100), 5000), []);
        assert_eq!(gaps(1030, None, 1000), [], "the clock was set back");
    }

    #[test]
    fn what_was_erased_is_no_gap() {
        let second = 1_000_000_000;
        let of = |erased_s: u64, from_s: u64| {
            let span = TimeSpan { from_ns: from_s * second, to_ns: u64::MAX };
            WatchCoverage::of(&[period(1000, 1060)], Some(erased_s * second), span, 1100 * second)
        };
        let gap =
            |from_s: u64, to_s: u64| TimeSpan { from_ns: from_s * second, to_ns: to_s * second };
        let coverage = of(900, 400);
        assert_eq!(coverage.gaps, [gap(900, 1000)], "before it nobody knows");
        assert_eq!(coverage.erased_before_ns, Some(900 * second));
        assert_eq!(of(1030, 400).gaps, []);
        assert_eq!(of(900, 0).gaps, [], "nobody asked for a beginning");
        let later = of(300, 400);
        assert_eq!((later.gaps, later.erased_before_ns), (vec![gap(400, 1000)], None));
    }

    #[test]
    fn a_moment_of_erasing_that_is_to_come_hides_no_gap() {
        let second = 1_000_000_000;
        let stored = StoredHistory {
            periods: vec![period(1000, 1060)],
            erased_before_ns: Some(5000 * second),
            ..StoredHistory::default()
        };
        let coverage = |now_s: u64| {
            let span = TimeSpan { from_ns: 400 * second, to_ns: 2000 * second };
            HangHistory::select(&stored, span, None, now_s * second).coverage
        };
        let set_back = coverage(1100);
        assert_eq!((set_back.gaps.len(), set_back.erased_before_ns), (1, None), "{set_back:?}");
        assert_eq!(coverage(5000).erased_before_ns, Some(5000 * second));
        assert_eq!(stored.erased_before(4999 * second), None);
    }

    fn of(program: &str, watched_ns: u64) -> ProgramSteps {
        let program = program.to_owned();
        let present_ns = watched_ns;
        ProgramSteps { program, watched_ns, present_ns, processes: 1, ..ProgramSteps::default() }
    }

    #[test]
    fn several_processes_at_a_time_are_not_a_longer_time() {
        let second = 1_000_000_000;
        let mut watched = period(0, 60);
        watched.watched_ns = 50 * second;
        let two = ProgramSteps { processes: 2, watched_ns: 40 * second, ..of("kate", 20 * second) };
        watched.programs = vec![two];
        let stored = StoredHistory { periods: vec![watched], ..StoredHistory::default() };
        let kate = HangHistory::select(&stored, TimeSpan::ALL, Some("kate"), 60 * second);
        assert_eq!(kate.coverage.watched_ns, 20 * second);
        assert_eq!(kate.programs["kate"].watched_ns, 40 * second);
    }

    #[test]
    fn a_process_without_a_main_loop_is_told_beside_others_of_its_name() {
        let mut watched = period(0, 60);
        let three = ProgramSteps { processes: 3, without_loop: 1, ..of("kate", 1) };
        let none = ProgramSteps { without_loop: 1, ..of("mpv", 0) };
        watched.programs = vec![three, none, of("notes", 1)];
        let stored = StoredHistory { periods: vec![watched], ..StoredHistory::default() };
        let history = HangHistory::select(&stored, TimeSpan::ALL, None, 60_000_000_000);
        assert_eq!(history.without_loop(), [("kate", Some((1, 3))), ("mpv", None)]);
    }

    #[test]
    fn of_one_program_only_the_time_counts_in_which_it_was_watched() {
        let second = 1_000_000_000;
        let mut watched = period(0, 60);
        let steps = StepHistogram::default();
        watched.programs = vec![
            ProgramSteps { steps, ..of("kate", 10 * second) },
            of("kate (helper)", 7 * second),
        ];
        let stored = StoredHistory { periods: vec![watched], ..StoredHistory::default() };
        let watched = |program| {
            let history = HangHistory::select(&stored, TimeSpan::ALL, program, 60 * second);
            history.coverage.watched_ns / second
        };
        assert_eq!([watched(None), watched(Some("kate")), watched(Some("gimp"))], [30, 10, 0]);
    }
}
