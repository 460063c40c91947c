//! A run of a benchmark: its figures one after another, and what came of them.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::lab::{BenchError, Lab};
use super::row::{Reached, Row};
use super::settings::{FIGURES, Figure};
use crate::report::provenance::Provenance;

/// What a run found, and what is needed to judge it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The figures that were measured.
    pub rows: Vec<Row>,
    /// The figures that were not, and why.
    pub missing: Vec<(&'static str, String)>,
    /// The user ended it early.
    pub interrupted: bool,
    /// What was compared, and where.
    pub setting: Setting,
    /// The machine and the date.
    pub provenance: Provenance,
}

/// What was compared, and where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
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
    /// Says whether every figure with a target was measured and reaches it.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.missing.is_empty()
            && self
                .rows
                .iter()
                .all(|row| matches!(row.reached(), Reached::Pass | Reached::NoTarget))
    }
}

/// Chooses figures by name; all of them if `only` is empty.
#[must_use]
pub fn chosen(only: &[String]) -> Vec<&'static Figure> {
    FIGURES
        .iter()
        .filter(|figure| only.is_empty() || only.iter().any(|id| id == figure.id))
        .collect()
}

/// Measures `figures`; `progress` hears of each before it begins, with the seconds behind and the seconds in all.
pub fn measure(
    figures: &[&'static Figure],
    lab: &Lab<'_>,
    setting: Setting,
    provenance: Provenance,
    progress: &mut dyn FnMut(&str, u32, u32),
) -> Run {
    let mut run =
        Run { rows: Vec::new(), missing: Vec::new(), interrupted: false, setting, provenance };
    let whole = figures.iter().map(|figure| figure.seconds).sum();
    let mut done = 0;
    for figure in figures {
        progress(figure.about, done, whole);
        done += figure.seconds;
        match (figure.run)(lab) {
            Ok(rows) => run.rows.extend(rows),
            Err(BenchError::Interrupted) => {
                run.interrupted = true;
                break;
            }
            // A call that was cut off by the signal that ended the run says nothing about the service.
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

/// Writes an error with its causes.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
