//! Plants hangs in all programs at once, each in a random order of causes, while the recorder runs beside them.

use std::thread;
use std::time::Duration;

use jobs::cgroup::Freezer;
use report::error::chain;

use super::Lab;
use super::causes::{HangSource, Planter};
use super::groups::{FreezingGroup, SmallMemory};
use super::judge::{ObservedProgram, PlantedHang, Span, ToldHang};
use super::program::{HangingProgram, Outcome};
use super::recorder::{HangRecorder, told, unix_offset_ns};
use super::toolkits::Toolkit;
use super::traced::AttachedTrace;
use crate::lab::{BenchError, Measuring, cannot};
use crate::trace::exercise::now_ns;

/// How long hangs are, in milliseconds: the shortest is clearly over what must be recalled.
const LENGTHS_MS: std::ops::Range<u64> = 200..600;
/// How long programs rest between two hangs, in milliseconds.
const RESTS_MS: std::ops::Range<u64> = 150..450;
/// How many compute beside a program on one processor.
const NEIGHBOURS: usize = 3;
/// A hang that only shows that the recorder follows a program, or has stored what was before, in milliseconds.
const MARK_MS: u64 = 250;
/// How often such a hang is planted until it is given up.
const MARKS: usize = 40;
/// How long a trace may take to begin, at first; one that takes longer is given twice as much.
const ATTACHING: Duration = Duration::from_secs(1);
/// How many hangs a quick run traces.
const QUICKLY_TRACED: usize = 3;
/// How often that is doubled until the trace is given up.
const ATTEMPTS: usize = 4;
/// How long a recorder may take to store a hang that has ended.
const STORING: Duration = Duration::from_millis(1500);

/// What was planted and what was recorded.
#[derive(Debug, Default)]
pub(super) struct PlantingResult {
    pub(super) planted: Vec<PlantedHang>,
    pub(super) told: Vec<ToldHang>,
    pub(super) programs: Vec<ObservedProgram>,
    /// What could not be planted, and why.
    pub(super) failures: Vec<String>,
    /// How much of the main thread's time each trace did not explain, in percent.
    pub(super) unexplained: Vec<f64>,
}

/// Who watches the programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Watcher {
    /// One recorder all the time.
    Recorder,
    /// A trace for each hang.
    Trace,
}

/// Plants all causes in the programs of all toolkits, `runs` times.
pub(super) fn plant(lab: &Lab<'_>) -> Result<PlantingResult, BenchError> {
    let offset = unix_offset_ns(lab.clock);
    let recorder = HangRecorder::start(&lab.scene)?;
    let start = |toolkit: &&'static Toolkit| lab.scene.blink(toolkit).map(|one| (*toolkit, one));
    let programs: Result<Vec<_>, _> = lab.scene.toolkits.iter().map(start).collect();
    let mut programs = programs?;
    for (toolkit, program) in &mut programs {
        let since = now_ns();
        if !marked(lab, program, offset, since)? {
            return Err(cannot(
                "unjank hangs record",
                format!("it does not follow {}", toolkit.id),
            ));
        }
    }
    let mut driven = drive_all(lab, programs, Watcher::Recorder)?;
    for driven in &mut driven {
        // What was planted last is stored by then; if not, it is missing.
        marked(lab, &mut driven.program, offset, now_ns())?;
    }
    let mut result = PlantingResult::of(driven);
    recorder.end()?;
    result.told = told(&lab.scene, offset)?;
    Ok(result)
}

/// Plants all causes in the programs of all toolkits, `runs` times, each while a trace of the program is made; in a quick run a
/// few in the first one.
pub(super) fn plant_traced(lab: &Lab<'_>) -> Result<PlantingResult, BenchError> {
    let toolkits = lab.scene.toolkits.iter().take(lab.effort.of(usize::MAX, 1));
    let start = |toolkit: &&'static Toolkit| lab.scene.blink(toolkit).map(|one| (*toolkit, one));
    let programs: Result<Vec<_>, _> = toolkits.map(start).collect();
    Ok(PlantingResult::of(drive_all(lab, programs?, Watcher::Trace)?))
}

fn drive_all(
    lab: &Lab<'_>,
    programs: Vec<(&'static Toolkit, HangingProgram)>,
    watcher: Watcher,
) -> Result<Vec<Driven>, BenchError> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (toolkit, program)) in (0..).zip(programs) {
            let work = move || drive(lab, toolkit, program, number, watcher);
            let started = sys::thread::spawn_scoped(scope, "bench-hangs", work);
            threads.push(started.map_err(|error| cannot("a thread", chain(&error)))?);
        }
        let panicked = || cannot("a thread", "it panicked");
        threads.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

impl PlantingResult {
    fn of(driven: Vec<Driven>) -> PlantingResult {
        let mut result = PlantingResult::default();
        for mut driven in driven {
            result.planted.append(&mut driven.planted);
            result.told.append(&mut driven.told);
            result.unexplained.append(&mut driven.unexplained);
            result.failures.append(&mut driven.failures);
            let process = driven.program.id();
            result.programs.push(ObservedProgram { process, gaps: driven.program.end() });
        }
        result.failures.sort();
        result.failures.dedup();
        result
    }
}

/// Plants hangs that are not judged until one is recorded; returns whether one is.
pub(super) fn marked(
    lab: &Lab<'_>,
    program: &mut HangingProgram,
    offset: u64,
    since: u64,
) -> Result<bool, BenchError> {
    for _ in 0..MARKS {
        lab.go_on()?;
        program.order("sleep", MARK_MS)?;
        program.rest(STORING)?;
        let told = told(&lab.scene, offset)?;
        if told.iter().any(|hang| hang.process == program.id() && hang.span.to_ns > since) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A program in which hangs were planted.
struct Driven {
    program: HangingProgram,
    planted: Vec<PlantedHang>,
    /// What traces told of it.
    told: Vec<ToldHang>,
    unexplained: Vec<f64>,
    failures: Vec<String>,
}

fn drive(
    lab: &Lab<'_>,
    toolkit: &'static Toolkit,
    program: HangingProgram,
    number: u64,
    watcher: Watcher,
) -> Result<Driven, BenchError> {
    let mut driven = Driven {
        program,
        planted: Vec::new(),
        told: Vec::new(),
        unexplained: Vec::new(),
        failures: Vec::new(),
    };
    let program = &mut driven.program;
    let mut random = fastrand::Rng::with_seed(20 + number);
    // They are made once: a process that is moved is another to those who follow cgroups.
    let wants = |planter| lab.causes.iter().any(|cause| cause.planter == planter);
    let cannot_make = |what: &'static str| move |error: std::io::Error| cannot(what, error);
    let groups = PlantingGroups {
        freezing: wants(Planter::Freezer)
            .then(|| FreezingGroup::make(toolkit.id))
            .transpose()
            .map_err(cannot_make("a cgroup"))?,
        small: wants(Planter::SmallMemory)
            .then(|| SmallMemory::make(toolkit.id))
            .transpose()
            .map_err(cannot_make("a cgroup with little memory"))?,
    };
    if let Some(group) = &groups.freezing {
        group.take(program.id()).map_err(cannot_make("a cgroup"))?;
    }
    // The services are there before the first call, so that it is as long as it is told to be.
    for name in ["dbus-call", "dbus-start"] {
        if lab.causes.iter().any(|cause| cause.id == name) {
            program.order(name, 1)?;
        }
    }
    for _ in 0..lab.runs {
        let mut causes = lab.causes.clone();
        random.shuffle(&mut causes);
        if watcher == Watcher::Trace {
            causes.truncate(lab.effort.of(usize::MAX, QUICKLY_TRACED));
        }
        for cause in causes {
            lab.go_on()?;
            program.rest(Duration::from_millis(random.u64(RESTS_MS)))?;
            let ms = random.u64(LENGTHS_MS);
            let outcome = match watcher {
                Watcher::Recorder => plant_one(lab, &groups, program, cause, ms)?,
                Watcher::Trace => {
                    let traced = plant_one_traced(lab, &groups, program, cause, ms)?;
                    driven.unexplained.extend(traced.unexplained);
                    driven.told.extend(traced.told);
                    traced.outcome
                }
            };
            match outcome {
                Outcome::Hung { span, ran_ns, ready_ns } => driven.planted.push(PlantedHang {
                    toolkit: toolkit.id,
                    cause,
                    process: program.id(),
                    span,
                    ran_ns,
                    ready_ns,
                }),
                Outcome::Cannot(why) => {
                    driven.failures.push(format!("{} in {}: {why}", cause.id, toolkit.id));
                }
            }
        }
    }
    program.rest(Duration::from_millis(RESTS_MS.end))?;
    Ok(driven)
}

/// A hang that was planted while a trace was made.
struct TracedPlant {
    outcome: Outcome,
    told: Vec<ToldHang>,
    unexplained: Option<f64>,
}

fn plant_one_traced(
    lab: &Lab<'_>,
    groups: &PlantingGroups,
    program: &mut HangingProgram,
    cause: &HangSource,
    ms: u64,
) -> Result<TracedPlant, BenchError> {
    let mut attaching = ATTACHING;
    for _ in 0..ATTEMPTS {
        lab.go_on()?;
        let trace = AttachedTrace::start(&lab.scene, program.id())?;
        program.rest(attaching)?;
        let outcome = plant_one(lab, groups, program, cause, ms)?;
        // The step of the main loop that the hang is in has ended by then.
        program.rest(Duration::from_millis(RESTS_MS.start))?;
        let finding = trace.end()?;
        let Outcome::Hung { span, .. } = outcome else {
            return Ok(TracedPlant { outcome, told: Vec::new(), unexplained: None });
        };
        if let Some(finding) = finding.filter(|one| one.recorded.from_ns < span.from_ns) {
            let unexplained = Some(finding.unexplained);
            return Ok(TracedPlant { outcome, told: finding.hangs, unexplained });
        }
        attaching *= 2;
    }
    Err(cannot("unjank trace attach", "it does not begin to record"))
}

/// The cgroups of one program.
struct PlantingGroups {
    freezing: Option<FreezingGroup>,
    small: Option<SmallMemory>,
}

fn plant_one(
    lab: &Lab<'_>,
    groups: &PlantingGroups,
    program: &mut HangingProgram,
    cause: &HangSource,
    ms: u64,
) -> Result<Outcome, BenchError> {
    let failed = |error: std::io::Error| cannot(cause.about, error);
    let length = Duration::from_millis(ms);
    match (cause.planter, groups) {
        (Planter::Neighbours, _) => {
            let neighbours = lab.scene.neighbours(NEIGHBOURS, ms + 50).map_err(failed)?;
            let outcome = program.order(cause.id, ms);
            drop(neighbours);
            outcome
        }
        (Planter::SmallMemory, PlantingGroups { small: Some(small), .. }) => {
            small.take(program.id()).map_err(failed)?;
            let outcome = program.order(cause.id, ms);
            small.put_back(program.id()).map_err(failed)?;
            outcome
        }
        (Planter::Swap, _) => {
            if let Outcome::Cannot(why) = program.order("pageout", 0)? {
                return Ok(Outcome::Cannot(why));
            }
            program.rest(Duration::from_millis(RESTS_MS.start))?;
            program.order(cause.id, ms)
        }
        (Planter::Signal, _) => {
            let signal = |number| sys::supervise::send(program.id(), number).map_err(failed);
            let from_ns = now_ns();
            signal(19)?;
            let rested = wait(program.id(), length);
            // It goes on whatever happened.
            signal(18)?;
            rested.map_err(failed)?;
            Ok(held(from_ns))
        }
        (Planter::Freezer, PlantingGroups { freezing: Some(group), .. }) => {
            let from_ns = now_ns();
            group.freeze(Freezer::Frozen).map_err(failed)?;
            let rested = wait(program.id(), length);
            group.freeze(Freezer::Thawed).map_err(failed)?;
            rested.map_err(failed)?;
            Ok(held(from_ns))
        }
        _ => program.order(cause.id, ms),
    }
}

/// Waits, unless the process ends meanwhile.
fn wait(process: u32, length: Duration) -> std::io::Result<()> {
    sys::socket::wait_readable(sys::pidfd::open(process)?, Some(length)).map(drop)
}

/// A program was held from outside until now.
fn held(from_ns: u64) -> Outcome {
    Outcome::Hung { span: Span { from_ns, to_ns: now_ns() }, ran_ns: 0, ready_ns: 0 }
}
