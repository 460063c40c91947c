//! A run of a benchmark: its figures one after another, and what came of them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::lab::BenchError;
use super::row::{Reached, Row};
use crate::report::paragraph::without_error_numbers;
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
    /// What the benchmark and its sides are called.
    pub terms: Terms,
}

/// What a benchmark and its sides are called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// The benchmark: `settings`.
    pub bench: &'static str,
    /// Our side.
    pub ours: &'static str,
    /// The side that is compared with.
    pub peer: &'static str,
    /// What stands under the picture of all ratios.
    pub caption: &'static str,
}

/// The terms of most benchmarks: two programs that do the same.
pub const SETTINGS: Terms = Terms {
    bench: "settings",
    ours: "ours",
    peer: "peer",
    caption: "How many times better than the peer, by medians: a dot for what was reached, an upright stroke for what was promised. Less is better for times and sizes, more for rates.",
};

/// The terms where one program runs twice: traced and by itself.
pub const TRACE: Terms = Terms {
    bench: "trace",
    ours: "traced",
    peer: "untraced",
    caption: "How fast a traced program is beside itself untraced, by medians: a dot for what was reached, an upright stroke for what was promised. Further right is better; 1 is as fast as untraced.",
};

/// The terms of listing: the peer is the bare calls, a program, or what was promised.
pub const LISTING: Terms = Terms { bench: "listing", ..SETTINGS };

/// The terms of host commands: the peer is another service, or the command by itself.
pub const HOST: Terms = Terms { bench: "host", ..SETTINGS };

/// The terms of plugins and applications: the peer is KDE's cache, Qt's own search or GLib.
pub const PLUGINS: Terms = Terms { bench: "plugins", ..SETTINGS };

/// The terms of recording a bus: the peer is another program that does, or nobody.
pub const BUS: Terms = Terms { bench: "bus", ..SETTINGS };

/// The terms of recent documents: the peers are KDE's and GTK's own classes.
pub const RECENTS: Terms = Terms { bench: "recents", ..SETTINGS };

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
    /// Returns the line that says what was compared: `ours /p · peer /q`.
    #[must_use]
    pub fn sides(&self) -> String {
        let Terms { ours, peer, .. } = self.terms;
        format!("{ours} {} · {peer} {}", self.setting.ours, self.setting.peer)
    }

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

/// What a figure needs that not everybody has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The right to drop the kernel's caches.
    Cold,
    /// A program that the user names.
    Peers,
}

impl<F> std::fmt::Debug for Figure<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Chooses figures by name; without names, all whose needs are met.
#[must_use]
pub fn chosen<F>(
    figures: &'static [Figure<F>],
    only: &[String],
    has: impl Fn(Needs) -> bool,
) -> Vec<&'static Figure<F>> {
    let wanted = |figure: &&Figure<F>| match only {
        [] => figure.needs == Needs::Nothing || has(figure.needs),
        only => only.iter().any(|id| id == figure.id),
    };
    figures.iter().filter(wanted).collect()
}

/// Hears of each figure before it is measured: what it is, the seconds behind and the seconds in all.
pub type Progress<'p> = &'p mut dyn FnMut(&str, u32, u32);

/// Measures `figures` one after another until the user wants to end.
pub fn measure<F>(
    figures: &[&'static Figure<F>],
    mut rows: impl FnMut(&Figure<F>) -> Result<Vec<Row>, BenchError>,
    stop: &AtomicBool,
    (setting, provenance, terms): (Setting, Provenance, Terms),
    progress: Progress<'_>,
) -> Run {
    let (measured, missing) = (Vec::new(), Vec::new());
    let mut run = Run { rows: measured, missing, interrupted: false, setting, provenance, terms };
    let whole = figures.iter().map(|figure| figure.seconds).sum();
    let mut done = 0;
    for figure in figures {
        progress(figure.about, done, whole);
        done += figure.seconds;
        match rows(figure) {
            Ok(rows) => run.rows.extend(rows),
            // A call that was cut off by the signal that ended the run says nothing about the program.
            Err(_) if stop.load(Ordering::Relaxed) => {
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
    without_error_numbers(&text)
}
