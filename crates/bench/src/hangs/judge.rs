//! Holds what was recorded against what was planted and what the programs saw themselves.

use std::collections::BTreeMap;

use super::causes::HangSource;

/// Planted hangs that were shorter, by the program's own clock, are not judged, in nanoseconds.
pub(super) const SHORTEST_NS: u64 = 150_000_000;

/// A time, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

impl Span {
    pub(super) fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn overlap_ns(self, other: Span) -> u64 {
        self.to_ns.min(other.to_ns).saturating_sub(self.from_ns.max(other.from_ns))
    }
}

/// A gap that a program saw itself: a step of its main loop, or a timer that was late.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OwnGap {
    pub(super) is_step: bool,
    pub(super) span: Span,
}

/// A hang that was planted.
#[derive(Clone, Debug)]
pub(super) struct PlantedHang {
    pub(super) toolkit: &'static str,
    pub(super) cause: &'static HangSource,
    pub(super) process: u32,
    pub(super) span: Span,
    /// For how long the thread ran meanwhile, in nanoseconds.
    pub(super) ran_ns: u64,
    /// For how long it was ready to run meanwhile.
    pub(super) ready_ns: u64,
}

/// A hang that was recorded.
#[derive(Clone, Debug)]
pub(super) struct ToldHang {
    pub(super) process: u32,
    pub(super) span: Span,
    pub(super) cause: String,
    /// The function that is blamed.
    pub(super) function: String,
    /// The files and programs of its calls, the largest first.
    pub(super) objects: Vec<String>,
    /// The programs that it waited for, and those that they waited for.
    pub(super) chain: Vec<String>,
}

/// A program in which hangs were planted, after its end.
#[derive(Clone, Debug)]
pub(super) struct ObservedProgram {
    pub(super) process: u32,
    pub(super) gaps: Vec<OwnGap>,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct RightShare {
    pub(super) right: usize,
    pub(super) all: usize,
}

impl RightShare {
    pub(super) fn add(&mut self, is_right: bool) {
        self.right += usize::from(is_right);
        self.all += 1;
    }

    /// Returns the share in percent; none of nothing.
    pub(super) fn percent(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are some thousands")]
        let percent = 100.0 * self.right as f64 / self.all as f64;
        percent
    }
}

/// What came of the hangs of one cause in the program of one toolkit.
#[derive(Clone, Debug, Default)]
pub(super) struct CauseResult {
    pub(super) recalled: RightShare,
    pub(super) class: RightShare,
    /// The causes that were told in place of the right one, how often.
    pub(super) other_classes: BTreeMap<String, usize>,
    /// The functions that were blamed in place of the right one, how often.
    pub(super) other_functions: BTreeMap<String, usize>,
    /// The objects that were named in place of the right one, how often.
    pub(super) other_objects: BTreeMap<String, usize>,
}

/// What came of all hangs.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    pub(super) recall: RightShare,
    pub(super) class: RightShare,
    pub(super) function: RightShare,
    pub(super) file: RightShare,
    pub(super) peer: RightShare,
    /// Recorded hangs that the programs had.
    pub(super) precision: RightShare,
    /// By how much the lengths are wrong, in nanoseconds.
    pub(super) length_errors: Vec<f64>,
    /// By cause and toolkit.
    pub(super) causes: BTreeMap<(&'static str, &'static str), CauseResult>,
    /// Planted hangs that were too short to be judged.
    pub(super) too_short: usize,
    /// What was recorded and did not happen, for a person.
    pub(super) false_hangs: Vec<String>,
}

/// Holds what was recorded against what happened.
pub(super) fn judge(
    planted: &[PlantedHang],
    told: &[ToldHang],
    programs: &[ObservedProgram],
) -> Judgement {
    let mut judgement = Judgement::default();
    for hang in planted {
        if hang.span.length_ns() < SHORTEST_NS {
            judgement.too_short += 1;
        } else {
            judge_planted(hang, told, programs, &mut judgement);
        }
    }
    for hang in told {
        let Some(program) = programs.iter().find(|program| program.process == hang.process) else {
            continue;
        };
        let outside =
            planted.iter().filter(|planted| planted.process == hang.process).map(|one| one.span);
        let spans: Vec<Span> = program.gaps.iter().map(|gap| gap.span).chain(outside).collect();
        let is_true = covered_ns(hang.span, &spans) * 2 >= hang.span.length_ns();
        judgement.precision.add(is_true);
        if !is_true {
            judgement.false_hangs.push(format!(
                "{} of {} ms",
                hang.cause,
                hang.span.length_ns() / 1_000_000
            ));
        }
    }
    judgement
}

fn judge_planted(
    hang: &PlantedHang,
    told: &[ToldHang],
    programs: &[ObservedProgram],
    judgement: &mut Judgement,
) {
    let result = judgement.causes.entry((hang.cause.id, hang.toolkit)).or_default();
    let candidates = told.iter().filter(|told| told.process == hang.process);
    let best = candidates.max_by_key(|told| told.span.overlap_ns(hang.span));
    let best = best.filter(|told| told.span.overlap_ns(hang.span) * 2 >= hang.span.length_ns());
    judgement.recall.add(best.is_some());
    result.recalled.add(best.is_some());
    let Some(told) = best else { return };
    let is_class = right_classes(hang).contains(&&*told.cause);
    judgement.class.add(is_class);
    result.class.add(is_class);
    if !is_class {
        *result.other_classes.entry(told.cause.clone()).or_default() += 1;
    }
    if !hang.cause.functions.is_empty() {
        let is_right = hang.cause.functions.contains(&&*told.function);
        judgement.function.add(is_right);
        if !is_right {
            *result.other_functions.entry(shown(&told.function)).or_default() += 1;
        }
    }
    let first = told.objects.first().map(String::as_str).unwrap_or_default();
    if let Some(file) = hang.cause.file {
        let is_right = first.rsplit('/').next().is_some_and(|name| name.contains(file));
        judgement.file.add(is_right);
        if !is_right {
            *result.other_objects.entry(shown(first)).or_default() += 1;
        }
    }
    if let Some(peer) = hang.cause.peer {
        // The kernel keeps 15 letters of a name.
        let in_chain = told.chain.iter().any(|hop| !hop.is_empty() && peer.starts_with(&**hop));
        let is_right = first.contains(peer) || in_chain;
        judgement.peer.add(is_right);
        if !is_right {
            *result.other_objects.entry(shown(first)).or_default() += 1;
        }
    }
    // The step around what was planted begins and ends with the loop; a program that is stopped from outside has none.
    let gaps = programs.iter().filter(|program| program.process == hang.process);
    let steps = gaps.flat_map(|program| &program.gaps).filter(|gap| gap.is_step);
    let around = steps.map(|gap| gap.span).max_by_key(|span| span.overlap_ns(hang.span));
    let around = around.filter(|span| span.overlap_ns(hang.span) * 10 >= hang.span.length_ns() * 9);
    let own = around.unwrap_or(hang.span).length_ns();
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    judgement.length_errors.push(told.span.length_ns().abs_diff(own) as f64);
}

/// Returns the causes that are right for what happened by the program's own account, which a busy machine or a fast disk makes
/// another than what was planted.
fn right_classes(hang: &PlantedHang) -> Vec<&'static str> {
    let mut right = hang.cause.classes.to_vec();
    let waited_ns = hang.span.length_ns().saturating_sub(hang.ran_ns + hang.ready_ns);
    let most = hang.ran_ns.max(hang.ready_ns).max(waited_ns);
    // A tenth of the time is no difference that samples show.
    let is_most = |part: u64| part.saturating_add(hang.span.length_ns() / 10) >= most;
    if is_most(hang.ran_ns) {
        right.push("computing");
    }
    if is_most(hang.ready_ns) {
        right.push("processor-queue");
    }
    right
}

/// Returns how much of `span` the others cover, each moment once, in nanoseconds.
pub(super) fn covered_ns(span: Span, others: &[Span]) -> u64 {
    let mut inside: Vec<Span> =
        others.iter().copied().filter(|other| other.overlap_ns(span) > 0).collect();
    inside.sort_by_key(|other| other.from_ns);
    let (mut covered, mut until) = (0, span.from_ns);
    for other in inside {
        let from = other.from_ns.max(until);
        let to = other.to_ns.min(span.to_ns);
        covered += to.saturating_sub(from);
        until = until.max(to);
    }
    covered
}

fn shown(name: &str) -> String {
    if name.is_empty() { "nothing".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hangs::CAUSES;

    const MS: u64 = 1_000_000;

    fn span(from_ms: u64, to_ms: u64) -> Span {
        Span { from_ns: from_ms * MS, to_ns: to_ms * MS }
    }

    fn planted(id: &str, from_ms: u64, to_ms: u64) -> PlantedHang {
        let cause = CAUSES.iter().find(|cause| cause.id == id).unwrap();
        PlantedHang {
            toolkit: "x",
            cause,
            process: 7,
            span: span(from_ms, to_ms),
            ran_ns: 0,
            ready_ns: 0,
        }
    }

    fn told(cause: &str, function: &str, object: &str, from_ms: u64, to_ms: u64) -> ToldHang {
        ToldHang {
            process: 7,
            span: span(from_ms, to_ms),
            cause: cause.to_owned(),
            function: function.to_owned(),
            objects: vec![object.to_owned()],
            chain: Vec::new(),
        }
    }

    fn program(steps: &[Span]) -> [ObservedProgram; 1] {
        let gaps = steps.iter().map(|span| OwnGap { is_step: true, span: *span }).collect();
        [ObservedProgram { process: 7, gaps }]
    }

    fn share(right: usize, all: usize) -> RightShare {
        RightShare { right, all }
    }

    #[test]
    fn a_hang_that_is_told_rightly_is_right_in_every_respect() {
        let judged = judge(
            &[planted("sync", 100, 400)],
            &[told("sync", "plant_sync", "/home/a/x.saved", 95, 405)],
            &program(&[span(90, 410)]),
        );
        for part in [judged.recall, judged.class, judged.function, judged.file, judged.precision] {
            assert_eq!(part, share(1, 1), "{judged:?}");
        }
        assert_eq!((judged.peer, &*judged.length_errors), (share(0, 0), &[10e6][..]));
    }

    #[test]
    fn each_fault_that_is_planted_in_a_record_is_found() {
        let steps = program(&[span(100, 400)]);
        let hang = [planted("child", 100, 400)];
        let of = |told: ToldHang| judge(&hang, &[told], &steps);
        let late = of(told("child", "plant_child", "sleep", 500, 800));
        assert_eq!((late.recall, late.precision), (share(0, 1), share(0, 1)), "elsewhere");
        assert_eq!(late.false_hangs, ["child of 300 ms"]);
        let short = of(told("child", "plant_child", "sleep", 100, 200));
        assert_eq!((short.recall, short.precision), (share(0, 1), share(1, 1)), "a part of it");
        let class = of(told("sync", "plant_child", "sleep", 100, 400));
        assert_eq!(
            (class.class, class.function, class.peer),
            (share(0, 1), share(1, 1), share(1, 1))
        );
        assert_eq!(class.causes[&("child", "x")].other_classes["sync"], 1);
        let function = of(told("child", "main", "sleep", 100, 400));
        assert_eq!((function.class, function.function), (share(1, 1), share(0, 1)));
        let peer = of(told("child", "plant_child", "", 100, 400));
        assert_eq!(peer.peer, share(0, 1));
        assert_eq!(peer.causes[&("child", "x")].other_objects["nothing"], 1);
        let other_process =
            ToldHang { process: 8, ..told("child", "plant_child", "sleep", 100, 400) };
        let missed = of(other_process);
        assert_eq!((missed.recall, missed.precision), (share(0, 1), share(0, 0)));
    }

    #[test]
    fn what_the_machine_made_of_a_plant_is_right_and_what_is_too_short_is_not_judged() {
        let mut hang = planted("sync", 100, 400);
        (hang.ran_ns, hang.ready_ns) = (200 * MS, 40 * MS);
        assert_eq!(right_classes(&hang), ["sync", "computing"]);
        hang.ran_ns = 20 * MS;
        assert_eq!(right_classes(&hang), ["sync"]);
        let judged = judge(&[planted("sync", 100, 249)], &[], &program(&[]));
        assert_eq!((judged.recall, judged.too_short), (share(0, 0), 1));
    }

    #[test]
    fn moments_that_two_gaps_cover_count_once() {
        let others = [span(0, 50), span(20, 60), span(90, 200), span(300, 400)];
        assert_eq!(covered_ns(span(10, 100), &others), 60 * MS);
    }
}
