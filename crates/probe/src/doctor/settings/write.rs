//! What a write costs through the installed service and through ours, each on a private bus with a copy of the database.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use session::settings::changeset::Changeset;
use store::table::gvariant::Variant;

use super::database::{SLOW_DIRECTORY, largest_directory};
use super::{NAME, UserDatabase};
use crate::bench::run::chain;
use crate::bench::session::{Program, SERVICE, Session, SessionError};
use crate::doctor::Tools;
use crate::doctor::finding::{Finding, Outcome};
use crate::doctor::machine::{Machine, existing};
use crate::report::figure::ratio;
use crate::report::grade::Grade;
use crate::report::samples::Samples;

/// Where the usual service is if no D-Bus service file says it.
const USUAL: &str = "/usr/libexec/dconf-service";
/// The time for each service; the least number of writes may take longer.
const BUDGET: Duration = Duration::from_millis(1200);
const LEAST_WRITES: usize = 2;
/// Fewer than make our service slow a single program down.
const MOST_WRITES: usize = 60;
/// A service that is slower than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// A key that no program has.
const KEY: &str = "/unjank/doctor/probe";

/// Measures both services.
pub(super) fn measure(
    database: &UserDatabase,
    machine: &Machine,
    tools: &Tools<'_>,
) -> Vec<Finding> {
    let installed = match installed(machine) {
        Some(program) => service("write a setting, installed", &program, database, machine, tools),
        None => {
            skipped("write a setting, installed", "no settings service is installed".to_owned())
        }
    };
    if tools.stopped() {
        return vec![];
    }
    let beside =
        machine.program_dir.as_ref().map(|dir| dir.join("unjankd")).filter(|path| path.exists());
    let ours = match beside {
        Some(path) => {
            service("write a setting, unjank", &Program::unjankd(&path), database, machine, tools)
        }
        None => skipped("write a setting, unjank", "unjankd is not beside this program".to_owned()),
    };
    let comparison = compare(&installed, &ours);
    let slow =
        |finding: &Finding| finding.grade(tools.frame).is_some_and(|grade| grade != Grade::Fits);
    let ours = match slow(&ours) {
        true => ours.because(
            "it waits for the sync of a file and of its directory, as `replace a file` does",
        ),
        false => ours,
    };
    let mut installed = installed;
    if slow(&installed) {
        installed = explain(installed, database);
    }
    [installed, ours].into_iter().chain(comparison).collect()
}

/// Finds the service that the session bus would start.
fn installed(machine: &Machine) -> Option<Program> {
    let file = format!("dbus-1/services/{SERVICE}.service");
    let named = machine.data_dirs.iter().find_map(|dir| {
        let text = fs::read_to_string(dir.join(&file)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Exec="))?;
        let command: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        Path::new(command.first()?).exists().then(|| Program { command, environment: Vec::new() })
    });
    let usual = Path::new(USUAL);
    named.or_else(|| usual.exists().then(|| Program::plain(usual)))
}

fn service(
    name: &str,
    program: &Program,
    database: &UserDatabase,
    machine: &Machine,
    tools: &Tools<'_>,
) -> Finding {
    let how = format!(
        "{} on a private bus with a copy of the database: change one key and wait until it is durable",
        program.command.join(" ")
    );
    match writes(program, database, machine, tools) {
        Ok(samples) if samples.is_empty() => skipped(name, "stopped".to_owned()),
        Ok(samples) => Finding::new(NAME, name, how, Outcome::Time(samples)),
        Err(error) => Finding::new(NAME, name, how, Outcome::Skipped(chain(&error))),
    }
}

fn writes(
    program: &Program,
    database: &UserDatabase,
    machine: &Machine,
    tools: &Tools<'_>,
) -> Result<Samples, SessionError> {
    let not_prepared = |path: &Path| {
        let path = path.to_owned();
        move |source| SessionError::NotPrepared { path, source }
    };
    // The copy stands on the file system of the original, where the sync costs what it costs.
    let durable = database.path.parent().and_then(existing).unwrap_or(Path::new("/"));
    let session = Session::start(program, durable, &volatile(machine))?;
    match fs::read(&database.path) {
        Ok(image) => session.seed(&database.name, &image)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(not_prepared(&database.path)(error)),
    }
    let object = format!("/ca/desrt/dconf/Writer/{}", database.name);
    let mut client = session.connect()?;
    client.set_timeout(PATIENCE);
    let write = |number: usize| {
        let mut set = Changeset::default();
        set.change(KEY, Some(Variant::from(i64::try_from(number).unwrap_or(i64::MAX))));
        client.change(&object, &set.encode()).map_err(|source| session.unreachable(source))
    };
    // The first makes the service read the file; and the usual one does not sync a file that is new.
    write(0)?;
    let start = tools.clock.monotonic();
    let mut samples = Samples::default();
    for number in 1..=MOST_WRITES {
        let (time, result) = tools.time(|| write(number));
        if tools.stopped() {
            break;
        }
        result?;
        samples.push(time);
        if samples.len() >= LEAST_WRITES && tools.spent(start, BUDGET) {
            break;
        }
    }
    Ok(samples)
}

/// Finds a directory with a short path for the socket, in memory if there is one.
fn volatile(machine: &Machine) -> PathBuf {
    // A socket's address has room for 108 bytes, of which our own names take about 40.
    let fits = |dir: &&PathBuf| {
        dir.as_os_str().len() < 60
            && rustix::fs::access(&***dir, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let memory = PathBuf::from("/dev/shm");
    [machine.runtime_dir.as_ref(), Some(&memory), Some(&machine.temp_dir)]
        .into_iter()
        .flatten()
        .find(fits)
        .unwrap_or(&machine.temp_dir)
        .clone()
}

fn skipped(name: &str, why: String) -> Finding {
    Finding::new(NAME, name, "a write on a private bus", Outcome::Skipped(why))
}

fn explain(finding: Finding, database: &UserDatabase) -> Finding {
    let largest = largest_directory(database).filter(|(_, keys)| *keys >= SLOW_DIRECTORY);
    let cause = match largest {
        Some((dir, keys)) => format!(
            "it rebuilds the whole database for each write, and its time grows with the square of the largest \
             directory: {dir} has {keys} keys"
        ),
        None => "it rebuilds and syncs the whole database for each write".to_owned(),
    };
    finding.because(cause).advise("let unjankd serve the settings instead; programs need no change")
}

/// Says how ours stands to the installed one.
fn compare(installed: &Finding, ours: &Finding) -> Option<Finding> {
    let (Outcome::Time(installed), Outcome::Time(ours)) = (&installed.outcome, &ours.outcome)
    else {
        return None;
    };
    let text = format!(
        "a write through unjankd takes {} of one through the installed service",
        ratio(ours.median(), installed.median())
    );
    Some(Finding::new(NAME, "unjank", "the medians above", Outcome::Note(text)))
}
