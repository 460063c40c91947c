//! A run of a benchmark: its figures one after another, and what came of them.

use report::error::chain;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::lab::{BenchError, Measuring};
use super::names::{BenchNames, Needs};
use super::row::{FigureRow, Reached};
use report::provenance::Provenance;

/// What a run found, and what is needed to judge it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The figures that were measured.
    pub rows: Vec<FigureRow>,
    /// The figures that were not, and why.
    pub missing: Vec<(&'static str, String)>,
    /// The user ended it early.
    pub interrupted: bool,
    /// What was compared, and where.
    pub setting: BenchSetting,
    /// The machine and the date.
    pub provenance: Provenance,
    /// What the benchmark and its sides are called.
    pub terms: BenchNames,
}

/// What was compared, and where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchSetting {
    /// Our program.
    pub ours: String,
    /// The peer's program, and its version where the system knows one.
    pub peer: String,
    /// The file systems: `memory: tmpfs on /dev/shm, …`.
    pub places: Vec<String>,
    /// Whether few rounds were made.
    pub quick: bool,
}

impl Run {
    /// Returns the line that says what was compared: `ours /p · peer /q`.
    #[must_use]
    pub fn sides(&self) -> String {
        let BenchNames { ours, peer, .. } = self.terms;
        format!("{ours} {} · {peer} {}", self.setting.ours, self.setting.peer)
    }

    /// Returns whether `row` reaches its target; a quick run judges only what must never happen.
    #[must_use]
    pub fn reached(&self, row: &FigureRow) -> Reached {
        match row.reached() {
            Reached::Pass | Reached::NotResolved | Reached::FallsShort
                if self.setting.quick && !row.is_judged_at_once() =>
            {
                Reached::NotJudged
            }
            reached => reached,
        }
    }

    /// Returns whether every figure with a target was measured, and reaches it where this run judges it.
    #[must_use]
    pub fn passes(&self) -> bool {
        let is_open = |row: &FigureRow| {
            let reached = self.reached(row);
            matches!(reached, Reached::FallsShort | Reached::NotResolved | Reached::NotMeasured)
        };
        self.missing.is_empty() && !self.rows.iter().any(is_open)
    }
}

/// One figure, or a few that are measured together, by `F`: a function of the benchmark's, or what it measures.
pub struct Figure<F> {
    /// The name by which `--only` chooses it.
    pub id: &'static str,
    /// What is measured.
    pub about: &'static str,
    /// How long it takes in a full run, in seconds.
    pub seconds: u32,
    /// What it needs that not everybody has.
    pub needs: Needs,
    /// Measures it.
    pub run: F,
}

impl<F> std::fmt::Debug for Figure<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Returns the names by which `--only` chooses figures. Evaluated at compile time, it keeps the code that measures them out of a
/// program that only knows their names.
#[must_use]
pub const fn ids<F, const N: usize>(figures: &[Figure<F>]) -> [&'static str; N] {
    let mut ids = [""; N];
    let mut at = 0;
    while at < N {
        ids[at] = figures[at].id;
        at += 1;
    }
    ids
}

/// Chooses figures by name; without names, all whose needs are met.
#[must_use]
pub fn chosen<F>(
    figures: &'static [Figure<F>],
    only: &[String],
    lab: &impl Measuring,
) -> Vec<&'static Figure<F>> {
    let wanted = |figure: &&Figure<F>| match only {
        [] => lab.has(figure.needs),
        only => only.iter().any(|id| id == figure.id),
    };
    figures.iter().filter(wanted).collect()
}

/// Hears of each figure before it is measured: what it is, the seconds behind and the seconds in all.
pub type BenchProgress<'p> = &'p mut dyn FnMut(&str, u32, u32);

/// Measures `figures` one after another until the user wants to end.
pub fn measure<F, L: Measuring>(
    figures: &[&'static Figure<F>],
    mut rows: impl FnMut(&Figure<F>) -> Result<Vec<FigureRow>, BenchError>,
    lab: &L,
    setting: BenchSetting,
    provenance: Provenance,
    progress: BenchProgress<'_>,
) -> Run {
    let ids: Vec<&str> = figures.iter().map(|figure| figure.id).collect();
    let (rows_measured, missing, terms) = (Vec::new(), Vec::new(), L::names(&ids));
    let mut run =
        Run { rows: rows_measured, missing, interrupted: false, setting, provenance, terms };
    let whole = figures.iter().map(|figure| figure.seconds).sum();
    let mut done = 0;
    for figure in figures {
        progress(figure.about, done, whole);
        done += figure.seconds;
        match rows(figure) {
            Ok(rows) => run.rows.extend(rows),
            // A call that was cut off by the signal that ended the run says nothing about the program.
            Err(_) if lab.go_on().is_err() => {
                run.interrupted = true;
                break;
            }
            Err(error) => run.missing.push((figure.id, chain(&error))),
        }
    }
    run
}

/// Returns the program's path with the version of the package that holds it, where there is one.
#[must_use]
pub fn versioned(program: &Path) -> String {
    let ask = |arguments: &[&str]| {
        let output = Command::new("dpkg-query").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let path = program.display().to_string();
    let version = ask(&["-S", &path]).and_then(|owner| {
        let package = owner.split(": ").next()?.to_owned();
        ask(&["-W", "-f", "${Package} ${Version}", &package])
    });
    version.map_or(path.clone(), |version| format!("{path} ({version})"))
}
