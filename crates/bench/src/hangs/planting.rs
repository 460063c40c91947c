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
    let driven: Result<Vec<_>, BenchError> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (toolkit, program)) in (0..).zip(programs) {
            let work = move || drive(lab, toolkit, program, number);
            let started = sys::thread::spawn_scoped(scope, "bench-hangs", work);
            threads.push(started.map_err(|error| cannot("a thread", chain(&error)))?);
        }
        let panicked = || cannot("a thread", "it panicked");
        threads.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let mut result = PlantingResult::default();
    for mut driven in driven? {
        // What was planted last is stored by then; if not, it is missing.
        marked(lab, &mut driven.program, offset, now_ns())?;
        result.planted.append(&mut driven.planted);
        result.failures.append(&mut driven.failures);
        let process = driven.program.id();
        result.programs.push(ObservedProgram { process, gaps: driven.program.end() });
    }
    recorder.end()?;
    result.told = told(&lab.scene, offset)?;
    result.failures.sort();
    result.failures.dedup();
    Ok(result)
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
    failures: Vec<String>,
}

fn drive(
    lab: &Lab<'_>,
    toolkit: &'static Toolkit,
    mut program: HangingProgram,
    number: u64,
) -> Result<Driven, BenchError> {
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
    let (mut planted, mut failures) = (Vec::new(), Vec::new());
    // The services are there before the first call, so that it is as long as it is told to be.
    for name in ["dbus-call", "dbus-start"] {
        if lab.causes.iter().any(|cause| cause.id == name) {
            program.order(name, 1)?;
        }
    }
    for _ in 0..lab.runs {
        let mut causes = lab.causes.clone();
        random.shuffle(&mut causes);
        for cause in causes {
            lab.go_on()?;
            program.rest(Duration::from_millis(random.u64(RESTS_MS)))?;
            let ms = random.u64(LENGTHS_MS);
            match plant_one(lab, &groups, &mut program, cause, ms)? {
                Outcome::Hung { span, ran_ns, ready_ns } => planted.push(PlantedHang {
                    toolkit: toolkit.id,
                    cause,
                    process: program.id(),
                    span,
                    ran_ns,
                    ready_ns,
                }),
                Outcome::Cannot(why) => {
                    failures.push(format!("{} in {}: {why}", cause.id, toolkit.id));
                }
            }
        }
    }
    program.rest(Duration::from_millis(RESTS_MS.end))?;
    Ok(Driven { program, planted, failures })
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
