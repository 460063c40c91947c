//! `doctor`: measures this machine's interactive paths against the frame, and changes nothing.
//!
//! Begin with [`Machine`], which says where things are, [`diagnose`], which runs [`PROBES`], and [`text::render`], which shows the
//! [`Diagnosis`]. README.md has an example.

pub mod actions;
pub mod background;
pub mod bus;
pub mod finding;
pub mod gains;
pub mod host;
pub mod json;
pub mod launches;
pub mod listing;
pub mod machine;
pub mod page;
pub mod plugins;
pub mod recents;
pub mod remedy;
pub mod settings;
pub mod storage;
pub mod text;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sys::clock::Clock;

use self::finding::{Finding, MeasurementOutcome};
use self::machine::Machine;
use self::remedy::Shell;

/// Looks at one area of the machine.
pub trait Probe: std::fmt::Debug + Sync {
    /// Returns the name by which `--only` chooses it.
    fn name(&self) -> &'static str;

    /// Returns what it looks at, in a few words.
    fn about(&self) -> &'static str;

    /// Returns the heading over what it found.
    fn title(&self) -> &'static str;

    /// Returns what it will do, in order; nothing is done yet.
    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>>;
}

/// All probes, in the order in which they run. A new one is one line here.
pub const PROBES: &[&dyn Probe] = &[
    &storage::Storage,
    &background::BackgroundProbe,
    &settings::SettingsProbe,
    &launches::LaunchProbe,
    &listing::ListingProbe,
    &bus::BusProbe,
    &recents::RecentsProbe,
    &host::HostProbe,
    &plugins::Plugins,
];

/// Does a part of a probe's work and returns what it found.
pub type ProbeWork<'a> = Box<dyn FnOnce(&StepContext<'_>) -> Vec<Finding> + 'a>;

/// A part of a probe's work.
pub struct ProbeStep<'a> {
    /// What is being done, for the progress bar.
    pub text: String,
    /// How long it takes as a rule.
    pub expect: Duration,
    /// Does it.
    pub run: ProbeWork<'a>,
}

impl std::fmt::Debug for ProbeStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step")
            .field("text", &self.text)
            .field("expect", &self.expect)
            .finish_non_exhaustive()
    }
}

impl<'a> ProbeStep<'a> {
    /// Makes a step that takes about `expect_ms` milliseconds.
    pub fn new(
        text: impl Into<String>,
        expect_ms: u64,
        run: impl FnOnce(&StepContext<'_>) -> Vec<Finding> + 'a,
    ) -> ProbeStep<'a> {
        ProbeStep {
            text: text.into(),
            expect: Duration::from_millis(expect_ms),
            run: Box::new(run),
        }
    }
}

/// What a step needs while it runs.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    /// Measures.
    pub clock: &'a dyn Clock,
    /// The budget of one interactive step.
    pub frame: Duration,
    /// Set when the user wants to end; a step then returns what it has.
    pub stop: &'a AtomicBool,
}

impl StepContext<'_> {
    /// Returns whether the user wants to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs `work` and returns how long it took, in nanoseconds.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let start = self.clock.monotonic();
        let result = work();
        let took = self.clock.monotonic().saturating_sub(start);
        (report::figure::nanoseconds(took), result)
    }

    /// Returns whether `budget` has passed since `start` (of the clock's monotonic time).
    #[must_use]
    pub fn spent(&self, start: Duration, budget: Duration) -> bool {
        self.clock.monotonic().saturating_sub(start) >= budget
    }
}

/// What all probes found.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The budget of one interactive step.
    pub frame: Duration,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// The user ended it early.
    pub interrupted: bool,
    /// How long it took.
    pub took: Duration,
    /// How commands are typed here.
    pub shell: Shell,
    /// What the parts that were switched on have brought, a sentence a step.
    pub gains: Vec<String>,
    /// What was recorded of yesterday's hangs, where recording is on.
    pub hangs: Option<RecordedHangs>,
}

/// What was recorded of hangs: not measured here, and told first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedHangs {
    /// For people.
    pub sentence: String,
    /// The same for programs: an object.
    pub facts: serde_json::Value,
}

impl RecordedHangs {
    /// Tells that hangs are recorded, and why what was recorded cannot be read.
    #[must_use]
    pub fn unreadable(why: &str) -> RecordedHangs {
        RecordedHangs {
            sentence: format!("What was recorded of yesterday's hangs cannot be read: {why}."),
            facts: serde_json::json!({ "error": why }),
        }
    }
}

impl Diagnosis {
    /// Returns the findings that have a time, slowest median first.
    #[must_use]
    pub(crate) fn slowest_first(&self) -> Vec<&Finding> {
        let median = |finding: &Finding| match &finding.outcome {
            MeasurementOutcome::Time(samples) => samples.median(),
            _ => f64::NAN,
        };
        let mut timed: Vec<&Finding> =
            self.findings.iter().filter(|finding| finding.grade(self.frame).is_some()).collect();
        timed.sort_by(|a, b| median(b).total_cmp(&median(a)));
        timed
    }

    /// Returns the findings that have a time and are in effect, slowest median first.
    #[must_use]
    pub fn judged(&self) -> Vec<&Finding> {
        let mut timed = self.slowest_first();
        timed.retain(|finding| !finding.is_comparison);
        timed
    }

    /// Returns what a person can do, most useful first, and the causes of the rest.
    #[must_use]
    pub fn actions(&self) -> (Vec<actions::Action>, Vec<actions::FindingCause>) {
        actions::ranked(self)
    }

    /// Returns whether something misses its frame or is broken.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.findings.iter().any(|finding| finding.is_bad(self.frame))
    }
}

/// Runs `probes` one step after another; `progress` hears of each step before it begins.
pub fn diagnose(
    probes: &[&dyn Probe],
    machine: &Machine,
    tools: &StepContext<'_>,
    progress: &mut dyn FnMut(DoctorProgress<'_>),
) -> Diagnosis {
    let start = tools.clock.monotonic();
    let steps: Vec<(&'static str, ProbeStep<'_>)> = probes
        .iter()
        .flat_map(|probe| probe.steps(machine).into_iter().map(|step| (probe.name(), step)))
        .collect();
    let whole: Duration = steps.iter().map(|(_, step)| step.expect).sum();
    let mut done = Duration::ZERO;
    let mut findings = Vec::new();
    for (probe, step) in steps {
        if tools.stopped() {
            break;
        }
        progress(DoctorProgress { probe, text: &step.text, done, whole });
        done += step.expect;
        findings.extend((step.run)(tools));
    }
    let took = tools.clock.monotonic().saturating_sub(start);
    let shell = Shell::of(machine);
    Diagnosis {
        frame: tools.frame,
        findings,
        interrupted: tools.stopped(),
        took,
        shell,
        gains: Vec::new(),
        hangs: None,
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug)]
pub struct DoctorProgress<'a> {
    /// The probe at work.
    pub probe: &'static str,
    /// What it does now.
    pub text: &'a str,
    /// How much of the expected time lies behind.
    pub done: Duration,
    /// The expected time of everything.
    pub whole: Duration,
}

#[cfg(test)]
mod tests {
    use sys::clock::SystemClock;

    use super::*;

    /// A probe that a user interrupts while it runs.
    #[derive(Debug)]
    struct Interrupted;

    impl Probe for Interrupted {
        fn name(&self) -> &'static str {
            "interrupted"
        }

        fn about(&self) -> &'static str {
            "a test"
        }

        fn title(&self) -> &'static str {
            "Test"
        }

        fn steps<'a>(&self, _: &'a Machine) -> Vec<ProbeStep<'a>> {
            let note = |name: &str| {
                Finding::new("interrupted", name, "", MeasurementOutcome::Note(String::new()))
            };
            vec![
                ProbeStep::new("first", 1, move |tools| {
                    tools.stop.store(true, Ordering::Relaxed);
                    vec![note("first")]
                }),
                ProbeStep::new("second", 1, move |_| vec![note("second")]),
            ]
        }
    }

    #[test]
    fn what_was_found_before_an_interruption_is_kept() {
        let clock = SystemClock::start();
        let stop = AtomicBool::new(false);
        let tools = StepContext { clock: &clock, frame: Duration::from_millis(16), stop: &stop };
        let mut texts = Vec::new();
        let diagnosis = diagnose(&[&Interrupted], &Machine::default(), &tools, &mut |now| {
            texts.push(now.text.to_owned());
        });
        assert!(diagnosis.interrupted && !diagnosis.is_bad());
        assert_eq!(diagnosis.findings.len(), 1);
        assert_eq!(texts, ["first"]);
    }

    #[test]
    fn all_probes_together_are_expected_to_take_under_twenty_seconds() {
        // The worst machine: three file systems, each on a disk, as this one three times.
        let machine = Machine {
            home: Some("/".into()),
            config_home: Some("/etc".into()),
            temp_dir: "/".into(),
            ..Machine::default()
        };
        let whole: Duration = PROBES
            .iter()
            .flat_map(|probe| {
                let times = if probe.name() == "storage" { 3 } else { 1 };
                let expected: Duration = probe.steps(&machine).iter().map(|step| step.expect).sum();
                std::iter::repeat_n(expected, times)
            })
            .sum();
        assert!(whole < Duration::from_secs(20), "{whole:?}");
    }

    #[test]
    fn every_probe_has_a_name_of_its_own() {
        let mut names: Vec<&str> = PROBES.iter().map(|probe| probe.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROBES.len());
    }
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
