//! The cost of a read through unjank's API, on a copy of the user's database.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gvdb::GvdbTable;
use settings::client::{NoBus, SettingsClient};
use settings::profile::{SettingsEnvironment, SettingsProfile};

use super::{NAME, UserDatabase};
use crate::StepContext;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use report::samples::Samples;
use sys::scratch::{self, TempDir};

const BUDGET: Duration = Duration::from_millis(300);
const MOST_ROUNDS: usize = 200;
/// A database without keys is asked for this one.
const SOME_KEY: &str = "/org/gnome/desktop/interface/font-name";

/// Measures the first read of a program, and a read among many.
pub(super) fn measure(
    profile: &SettingsProfile,
    environment: &SettingsEnvironment,
    database: &UserDatabase,
    machine: &Machine,
    tools: &StepContext<'_>,
) -> Vec<Finding> {
    let how = "our settings API on a copy of the database, system databases as they are";
    let skipped = |error: io::Error| {
        let outcome = MeasurementOutcome::Skipped(format!("cannot copy the database: {error}"));
        vec![Finding::new(NAME, "read a setting", how, outcome)]
    };
    // Readers make a flag file. They shall make it here, not in the user's runtime directory.
    let (_scratch, copy) = match copy_somewhere(environment, database, machine) {
        Ok(made) => made,
        Err(error) => return skipped(error),
    };
    let open = || SettingsClient::open(profile, &copy, Arc::new(NoBus)).reader();
    let names = names(&database.path);
    let some = names.first().map_or(SOME_KEY, String::as_str);
    let first = rounds(tools, || {
        let _ = black_box(open().get(some).map(|value| value.ty().as_str().len()));
    });
    let mut reader = open();
    #[expect(clippy::cast_precision_loss, reason = "a number of keys")]
    let count = names.len().max(1) as f64;
    let asked = if names.is_empty() { vec![SOME_KEY.to_owned()] } else { names.clone() };
    let pass = rounds(tools, || {
        for name in &asked {
            let _ = black_box(reader.get(name).is_some());
        }
    });
    let each: Samples = pass.values().iter().map(|time| time / count).collect();
    [("first read of a program", first), ("read a setting, unjank", each)]
        .into_iter()
        .filter(|(_, samples)| !samples.is_empty())
        .map(|(name, samples)| {
            Finding::new(NAME, name, how, MeasurementOutcome::Time(samples)).compared()
        })
        .collect()
}

/// Copies the database into a directory of ours: in memory if there is room.
fn copy_somewhere(
    environment: &SettingsEnvironment,
    database: &UserDatabase,
    machine: &Machine,
) -> io::Result<(TempDir, SettingsEnvironment)> {
    let dirs = machine.runtime_dir.iter().chain([&machine.temp_dir]).chain(&machine.config_home);
    let mut last = io::ErrorKind::NotFound.into();
    for dir in dirs {
        let scratch = scratch::within(dir);
        let made = scratch.and_then(|scratch| {
            let copy = copy(environment, database, scratch.path())?;
            Ok((scratch, copy))
        });
        match made {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn copy(
    environment: &SettingsEnvironment,
    database: &UserDatabase,
    scratch: &Path,
) -> io::Result<SettingsEnvironment> {
    let directory =
        |name: &str| fs::DirBuilder::new().recursive(true).mode(0o700).create(scratch.join(name));
    directory("config/dconf")?;
    directory("run")?;
    match fs::copy(&database.path, scratch.join("config/dconf").join(&database.name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    Ok(SettingsEnvironment {
        config_home: scratch.join("config"),
        runtime_dir: scratch.join("run"),
        ..environment.clone()
    })
}

fn names(path: &Path) -> Vec<String> {
    let Ok(bytes) = sys::regular_file::read(path) else { return Vec::new() };
    GvdbTable::open(&bytes)
        .map_or(Vec::new(), |table| table.entries().map(|(name, _)| name).collect())
}

fn rounds(tools: &StepContext<'_>, mut round: impl FnMut()) -> Samples {
    let start = tools.clock.monotonic();
    let mut samples = Samples::default();
    round();
    while samples.len() < MOST_ROUNDS && !tools.stopped() && !tools.spent(start, BUDGET) {
        samples.push(tools.time(&mut round).0);
    }
    samples
}
