//! What a run did that its baseline does not allow, and what could not be seen.

use std::collections::BTreeMap;

use serde::Serialize;
use trace::report::TraceReport;
use trace::report::account::TimeAccount;
use trace::report::verdict::time;
use trace::syscall_set::Set;

use super::file::{AllowedWait, Baseline};
use super::lines::LineIndex;
use super::phases::ProgramPhases;
use super::places::UserPlaces;
use super::waits::{FoundWait, MainThreadWaits, WaitKey};
use crate::ending;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A wait that the baseline does not have.
    NewWait,
    /// A sync that came more often than it may.
    MoreWaits,
    /// Waits that took longer than they may.
    LongerWait,
    /// Short waits that took longer together than they may.
    ShortWaits,
    /// A limit that is broken.
    Limit,
    /// Something that could not be seen, so that no answer is true.
    NotJudged,
    /// A finding that did not come again when the command was repeated; it does not fail.
    NotConfirmed,
    /// A line that could be lowered or removed; it does not fail.
    Tighten,
}

impl FindingKind {
    /// Returns its name for programs, which stays the same.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            FindingKind::NewWait => "new-wait",
            FindingKind::MoreWaits => "more-waits",
            FindingKind::LongerWait => "longer-wait",
            FindingKind::ShortWaits => "short-waits",
            FindingKind::Limit => "limit",
            FindingKind::NotJudged => "not-judged",
            FindingKind::NotConfirmed => "not-confirmed",
            FindingKind::Tighten => "tighten",
        }
    }

    /// Returns whether a check with such a finding fails.
    #[must_use]
    pub fn fails(self) -> bool {
        !matches!(self, FindingKind::NotConfirmed | FindingKind::Tighten)
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckFinding {
    /// What it is about.
    pub kind: FindingKind,
    /// The finding in a sentence.
    pub text: String,
    /// The wait, if it is about one that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<FoundWait>,
    /// The line of the baseline, from 1, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What that line allows: in each run another of its waits may be the longest.
    #[serde(skip)]
    pub allowed: Option<WaitKey>,
    /// Whether no further run can excuse it: a sync was called, whatever the machine did meanwhile, or the program crashed.
    pub is_certain: bool,
}

impl CheckFinding {
    /// Makes a finding that is about no wait.
    #[must_use]
    pub fn new(kind: FindingKind, text: String) -> CheckFinding {
        CheckFinding { kind, text, wait: None, line: None, allowed: None, is_certain: false }
    }

    /// Returns what stays the same in the next run: what two findings about the same thing share.
    #[must_use]
    pub fn identity(&self) -> (FindingKind, WaitKey) {
        let of_wait = || self.wait.as_ref().map(|wait| wait.key.clone());
        let key = self.allowed.clone().or_else(of_wait);
        // What is about no wait is known by its first words.
        let words = || WaitKey {
            phase: self.text.split(':').next().unwrap_or_default().to_owned(),
            ..WaitKey::default()
        };
        (self.kind, key.unwrap_or_else(words))
    }

    /// Returns whether a finding of another run is about the same thing, of which one of them may have seen less.
    fn is_confirmed_by(&self, other: &CheckFinding) -> bool {
        let ((kind, key), (of_other, other_key)) = (self.identity(), other.identity());
        let agrees = key == other_key || kind == FindingKind::NewWait && key.fits(&other_key);
        kind == of_other && agrees
    }
}

/// What was found in one run, or in several that confirm each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BaselineJudgement {
    /// The findings, those that fail first.
    pub findings: Vec<CheckFinding>,
    /// How many lines of the baseline were seen and kept.
    pub allowed: usize,
    /// How many runs were judged.
    pub runs: usize,
}

impl BaselineJudgement {
    /// Returns whether nothing was found that fails.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.findings.iter().any(|finding| finding.kind.fails())
    }

    fn sort(&mut self) {
        self.findings.sort_by_cached_key(|finding| {
            let blocked = finding.wait.as_ref().map_or(0, |wait| wait.blocked_ns);
            (finding.kind, std::cmp::Reverse(blocked), finding.text.clone())
        });
    }
}

/// Judges a report by a baseline; a window was shown at `window_ns`, if one was.
#[must_use]
pub fn judge(
    report: &TraceReport,
    baseline: &Baseline,
    places: &UserPlaces,
    window_ns: Option<u64>,
) -> BaselineJudgement {
    let rules = baseline.rules();
    let phases = ProgramPhases::find(report, rules.quiet_ns, window_ns);
    let waits = MainThreadWaits::find(report, &phases, places, rules.floor_ns);
    let mut findings = not_judged(report, baseline, &phases);

    let lines = LineIndex::new(&baseline.waits);
    let mut seen: BTreeMap<usize, Vec<FoundWait>> = BTreeMap::new();
    for wait in waits.found {
        match lines.find(&wait, places) {
            Some(at) => seen.entry(at).or_default().push(wait),
            None => findings.push(CheckFinding {
                text: format!("new wait: {}", described(&wait)),
                is_certain: wait.is_sync,
                wait: Some(wait),
                ..CheckFinding::new(FindingKind::NewWait, String::new())
            }),
        }
    }
    for (at, line) in baseline.waits.iter().enumerate() {
        let waits = seen.get(&at).map(Vec::as_slice).unwrap_or_default();
        findings.extend(line_finding(line, waits, baseline));
    }
    for budget in &baseline.phases {
        let found_ns = waits.short_ns.get(&budget.phase).copied().unwrap_or(0);
        let most_ns = rules.allowed_ns(budget.short);
        if found_ns > most_ns {
            let text = format!(
                "short waits of the phase {}: {} together, {} allowed",
                budget.phase,
                time(found_ns),
                time(most_ns)
            );
            findings.push(CheckFinding::new(FindingKind::ShortWaits, text));
        }
    }
    let mut judgement = BaselineJudgement { findings, allowed: seen.len(), runs: 1 };
    judgement.sort();
    judgement
}

/// Repeats a command up to `times` while something that fails could be chance, and keeps what came each time.
///
/// # Errors
///
/// Those of `again`, which runs the command once more and judges it.
pub fn confirm<E>(
    first: BaselineJudgement,
    times: usize,
    mut again: impl FnMut() -> Result<BaselineJudgement, E>,
) -> Result<BaselineJudgement, E> {
    let mut judgement = first;
    for _ in 0..times {
        let is_open = |finding: &CheckFinding| finding.kind.fails() && !finding.is_certain;
        // What is certain is decided, but what chance made is not to stand beside it.
        if !judgement.findings.iter().any(is_open) {
            break;
        }
        let next = again()?;
        let is_blind = |judgement: &BaselineJudgement| {
            judgement.findings.iter().any(|finding| finding.kind == FindingKind::NotJudged)
        };
        let runs = judgement.runs + next.runs;
        // A run that saw everything answers for one that did not, and not the other way round.
        let (base, other) = match (is_blind(&judgement), is_blind(&next)) {
            (true, false) => (next, judgement),
            _ => (judgement, next),
        };
        let answers = !is_blind(&base) && !is_blind(&other);
        let is_in = |findings: &[CheckFinding], wanted: &CheckFinding| {
            findings.iter().any(|finding| finding.is_confirmed_by(wanted))
        };
        let (allowed, mut findings) = (base.allowed, Vec::new());
        for finding in base.findings {
            if !is_open(&finding) || !answers || is_in(&other.findings, &finding) {
                findings.push(finding);
            } else {
                findings.push(once(finding));
            }
        }
        for finding in other.findings.into_iter().filter(|finding| finding.kind.fails()) {
            if is_in(&findings, &finding) {
                continue;
            }
            // What is certain needs no second time.
            findings.push(if finding.is_certain { finding } else { once(finding) });
        }
        judgement = BaselineJudgement { findings, allowed, runs };
    }
    judgement.sort();
    Ok(judgement)
}

/// Returns a finding that did not come again.
fn once(finding: CheckFinding) -> CheckFinding {
    let text = format!("in one of several runs alone: {}", finding.text);
    CheckFinding { kind: FindingKind::NotConfirmed, text, ..finding }
}

/// Returns why calls may have been made that are not counted, if they may.
pub(crate) fn unseen_calls(report: &TraceReport) -> Option<String> {
    if report.watch.backend == "peek" {
        return Some("backend: peek samples, so that not every wait is seen".to_owned());
    }
    if report.watch.not_counted > 0 {
        let count = report.watch.not_counted;
        return Some(format!("not counted: calls, or processes with all their calls: {count}"));
    }
    let foreign = report.watch.foreign_calls;
    (foreign > 0).then(|| {
        format!(
            "32-bit: calls, or programs with all their calls, that were not recorded: {foreign}"
        )
    })
}

/// Returns what hides an answer, and might not in another run: what was lost, not watched, not explained, or never came.
pub(super) fn blind_spots(report: &TraceReport) -> Vec<String> {
    let mut spots = Vec::new();
    spots.extend(unseen_calls(report));
    spots.extend(ending::runs_still(report).map(|why| format!("end: {why}")));
    let lost = report.watch.lost.saturating_sub(report.watch.not_counted);
    if lost > 0 {
        spots.push(format!("lost: {lost} events of the recording were lost"));
    }
    if report.slow_left_out > 0 {
        let count = report.slow_left_out;
        spots.push(format!("left out: {count} slow calls had no room in the report"));
    }
    match report.main() {
        None => spots.push("main thread: none was recorded".to_owned()),
        Some(main) => {
            let elsewhere = main.account.as_ref().and_then(TimeAccount::elsewhere);
            spots.extend(elsewhere.map(|elsewhere| format!("main thread: {elsewhere}")));
        }
    }
    spots
}

/// Returns how much time of the main thread no wait of a line explains: what is not explained at all, and what was in calls that were
/// each too short to be recorded. All of it if nothing accounted for it.
pub(super) fn unexplained_ns(report: &TraceReport) -> u64 {
    let Some(main) = report.main() else { return report.length_ns };
    let life = || main.end_ns.unwrap_or(report.length_ns).saturating_sub(main.start_ns);
    let of_account =
        |account: &TimeAccount| account.parts.unknown_ns.saturating_add(account.short_calls_ns);
    main.account.as_ref().map_or_else(life, of_account)
}

/// Says how much of that was in calls too short to be recorded, and which these were mostly.
fn short_calls(report: &TraceReport) -> String {
    let account = report.main().and_then(|main| main.account.as_ref());
    let Some(account) = account.filter(|account| account.short_calls_ns > 0) else {
        return String::new();
    };
    let most = account.short_calls.first();
    let most =
        most.map_or_else(String::new, |row| format!(", mostly {}", report.short_calls_path(row)));
    format!(" ({} of it in calls too short to be recorded{most})", time(account.short_calls_ns))
}

/// Returns the name of the program whose main thread is judged.
pub(super) fn program(report: &TraceReport) -> &str {
    report.main().map_or("", |main| report.program(main.process))
}

fn not_judged(
    report: &TraceReport,
    baseline: &Baseline,
    phases: &ProgramPhases,
) -> Vec<CheckFinding> {
    let header = &baseline.header;
    let mut spots = blind_spots(report);
    let program = program(report);
    if report.main().is_some() && program != header.program {
        spots.push(format!(
            "program: the main thread is that of {program}, the baseline's that of {}",
            header.program
        ));
    }
    if !covers(&report.watch.calls, &header.calls) {
        spots.push(format!(
            "calls: {} were watched, for the baseline {}",
            report.watch.calls, header.calls
        ));
    }
    if report.watch.threshold_ns > header.threshold {
        spots.push(format!(
            "threshold: calls from {} on were kept, for the baseline from {} on",
            time(report.watch.threshold_ns),
            time(header.threshold)
        ));
    }
    let (unknown_ns, most_ns) =
        (unexplained_ns(report), baseline.rules().allowed_ns(header.unexplained));
    if unknown_ns > most_ns {
        spots.push(format!(
            "not explained: {} of the main thread's time{}, {} allowed",
            time(unknown_ns),
            short_calls(report),
            time(most_ns)
        ));
    }
    // What was not seen of a wait cannot speak against a line, so that a line with a function would excuse any.
    if baseline.waits.iter().any(|line| !matches!(&*line.function, "" | "*")) {
        spots.extend(unseen_callers(report));
    }
    let names = phases.names();
    let missing = baseline.phases.iter().filter(|phase| phase.runs >= header.runs);
    for phase in missing.filter(|phase| !names.contains(&phase.phase.as_str())) {
        spots.push(format!("phase {0}: it never came, so its waits were not seen", phase.phase));
    }
    let unknown =
        names.iter().filter(|name| !baseline.phases.iter().any(|phase| phase.phase == **name));
    spots.extend(unknown.map(|name| format!("phase {name}: the baseline does not have it")));
    let findings = spots.into_iter().map(|text| CheckFinding::new(FindingKind::NotJudged, text));
    // A program that crashes now and then is not well if it does not the next time.
    let failed = ending::failure(report).map(|why| CheckFinding {
        is_certain: true,
        ..CheckFinding::new(FindingKind::NotJudged, format!("failed: {why}"))
    });
    findings.chain(failed).collect()
}

/// Returns why the functions that made calls may not be known, if the recording left them out.
fn unseen_callers(report: &TraceReport) -> Option<String> {
    if report.watch.leaves_out_stacks {
        return Some(
            "functions: no stacks were recorded, and the baseline has functions".to_owned(),
        );
    }
    let count = report.watch.stacks_left_out;
    (count > 0).then(|| format!("functions: {count} slow calls were recorded without their stacks"))
}

/// Returns whether one set of calls holds all of another one.
fn covers(watched: &str, wanted: &str) -> bool {
    let [Ok(all), Ok(needed)] = [watched.parse::<Set>(), wanted.parse::<Set>()] else {
        // The options of a log are not known.
        return watched == wanted;
    };
    needed.numbers().into_iter().all(|number| all.contains(number))
}

/// Returns what is to be said of a line: its waits came too often, took too long, or it could be lowered.
fn line_finding(
    line: &AllowedWait,
    waits: &[FoundWait],
    baseline: &Baseline,
) -> Option<CheckFinding> {
    let count: u64 = waits.iter().map(|wait| wait.count).sum();
    let blocked_ns = waits.iter().map(|wait| wait.blocked_ns).fold(0, u64::saturating_add);
    let first = waits.iter().max_by_key(|wait| wait.blocked_ns).cloned();
    let finding = |kind: FindingKind, text: String, is_certain: bool| CheckFinding {
        wait: first.clone(),
        line: (line.line > 0).then_some(line.line),
        allowed: Some(line.key()),
        is_certain,
        ..CheckFinding::new(kind, text)
    };
    let Some(wait) = &first else {
        // What did not come in each run of the baseline need not come in this one.
        if line.least == 0 {
            return None;
        }
        let gone = format!("line {} could go: {} was not seen", line.line, named(&line.key()));
        return Some(finding(FindingKind::Tighten, gone, false));
    };
    // As far above the most as the fewest were below it.
    let most = line.count.saturating_add(line.count.saturating_sub(line.least));
    if wait.is_sync && count > most {
        let what = described(wait);
        let text = format!("more often: {what}; {count} in this run, {most} allowed");
        return Some(finding(FindingKind::MoreWaits, text, true));
    }
    let most_ns = baseline.rules().allowed_ns(line.time);
    if blocked_ns > most_ns {
        let text = format!(
            "longer: {}; {} in this run, {} allowed",
            described(wait),
            time(blocked_ns),
            time(most_ns)
        );
        return Some(finding(FindingKind::LongerWait, text, false));
    }
    if wait.is_sync && count < line.least {
        let text = format!(
            "line {} could be lowered: {} came {count} times, the fewest were {}",
            line.line,
            named(&line.key()),
            line.least
        );
        return Some(finding(FindingKind::Tighten, text, false));
    }
    None
}

/// Names what waits have in common: `start: fsync of ~/x by save`.
pub(super) fn named(key: &WaitKey) -> String {
    let mut text = format!("{}: {}", key.phase, key.call);
    if !key.path.is_empty() {
        text.push_str(&format!(" of {}", key.path));
    }
    if !key.function.is_empty() {
        text.push_str(&format!(" by {}", key.function));
    }
    text
}

/// Describes a wait: its name, where it is in the source, how many there were and what they took.
fn described(wait: &FoundWait) -> String {
    let mut text = named(&wait.key);
    if let Some(place) = &wait.source {
        let file = place.file.rsplit('/').next().unwrap_or(&place.file);
        text.push_str(&format!(" ({file}:{})", place.line));
    }
    let times = if wait.count == 1 { "once" } else { "times" };
    let count = if wait.count == 1 { String::new() } else { format!("{} ", wait.count) };
    format!("{text}, {count}{times}, {} blocked", time(wait.blocked_ns))
}
