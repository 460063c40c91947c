//! What a write costs through the installed service and through ours, each on a private bus with a copy of the database.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use session::settings::changeset::Changeset;
use store::table::gvariant::Variant;

use super::around::{self, Serving};
use super::database::{SLOW_DIRECTORY, largest_directory};
use super::{NAME, UserDatabase};
use crate::bench::run::chain;
use crate::bench::session::{Program, SERVICE, Session, SessionError};
use crate::doctor::Tools;
use crate::doctor::finding::{Finding, Outcome};
use crate::doctor::machine::{Machine, existing};
use crate::doctor::remedy::Remedy;
use crate::report::figure::ratio;
use crate::report::grade::Grade;
use crate::report::samples::Samples;

/// Where the usual service is if no D-Bus service file says it.
const USUAL: &str = "/usr/libexec/dconf-service";
/// The time for each service; the least number of writes may take longer.
const BUDGET: Duration = Duration::from_millis(1200);
const LEAST_WRITES: usize = 2;
/// Fewer than make our service hold a single program back that changes one key again and again.
const MOST_WRITES: usize = 30;
/// A service that is slower than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Why our own service takes long where it does.
const WAITS: &str =
    "it waits for the sync of a file and of its directory, as `replace a file` does";
/// A key that no program has.
const KEY: &str = "/unjank/doctor/probe";

/// Measures both services.
pub(super) fn measure(
    database: &UserDatabase,
    machine: &Machine,
    tools: &Tools<'_>,
) -> Vec<Finding> {
    // `cargo run` builds the command alone, which can serve as well.
    let beside = |name: &str| machine.program_dir.as_ref().map(|dir| dir.join(name));
    let there = |path: &PathBuf| path.exists();
    let ours = beside("unjankd").filter(there).map(|path| Program::unjankd(&path));
    let ours = ours.or_else(|| beside("unjank").filter(there).map(|path| Program::unjank(&path)));
    let installed = installed(machine);
    let serving = around::serving(machine).ok().flatten();
    let judged = in_effect(installed.as_ref(), serving.as_ref());
    // Where ours is installed it stands beside the usual one.
    let usual = Path::new(USUAL).exists().then(|| Program::plain(Path::new(USUAL)));
    let (other_name, other) = match &installed {
        Some(program) if is_ours(program) => ("write a setting, dconf-service", usual),
        _ => ("write a setting, unjank", ours),
    };
    let measure = |name: &str, program: Option<&Program>, none: &str| {
        let Some(program) = program else { return skipped(name, none.to_owned()) };
        let found = service(name, program, database, machine, tools);
        if is_ours(program) != (judged == Service::Ours) {
            return found.compared();
        }
        let slow = found.grade(tools.frame).is_some_and(|grade| grade != Grade::Fits);
        match slow {
            true if is_ours(program) => found.because(WAITS),
            true => explain(found, database),
            false => found,
        }
    };
    let first = measure(
        "write a setting, installed",
        installed.as_ref(),
        "no settings service is installed",
    );
    if tools.stopped() {
        return vec![first];
    }
    let second = measure(other_name, other.as_ref(), "the program was not found");
    let comparison = match (&installed, &other) {
        (Some(installed), Some(_)) if is_ours(installed) => compare(&first, &second),
        (Some(_), Some(_)) => compare(&second, &first),
        _ => None,
    };
    let is_helped = match judged {
        Service::Ours => false,
        Service::Other => {
            let (other, ours) =
                if first.is_comparison { (&second, &first) } else { (&first, &second) };
            other.cause.is_some() && saves(ours, other)
        }
    };
    let helped = |finding: Finding| {
        if finding.is_comparison || !is_helped {
            return finding;
        }
        help(finding, installed.as_ref(), serving.as_ref(), machine)
    };
    [first, second].map(helped).into_iter().chain(comparison).collect()
}

/// Says whether the other service would take clearly less time.
fn saves(other: &Finding, judged: &Finding) -> bool {
    let (Outcome::Time(other), Outcome::Time(judged)) = (&other.outcome, &judged.outcome) else {
        return false;
    };
    other.median() < judged.median() * 0.8
}

/// A settings service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Ours,
    Other,
}

/// Returns which service programs write through: the one that runs, else the one that the first write would start.
fn in_effect(installed: Option<&Program>, serving: Option<&Serving>) -> Service {
    let running = serving.and_then(|serving| serving.program.as_deref());
    let is_ours = running.map_or_else(|| installed.is_some_and(is_ours), is_our_program);
    if is_ours { Service::Ours } else { Service::Other }
}

fn is_ours(program: &Program) -> bool {
    is_our_program(Path::new(program.name()))
}

fn is_our_program(program: &Path) -> bool {
    // The kernel says of a program that was replaced while it runs that it is deleted.
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name.trim_end_matches(" (deleted)"), "unjankd" | "unjank")
}

/// Adds what makes ours serve.
fn help(
    finding: Finding,
    installed: Option<&Program>,
    serving: Option<&Serving>,
    machine: &Machine,
) -> Finding {
    if installed.is_some_and(is_ours) {
        let Some(serving) = serving else { return finding };
        let (name, effect) = ("dconf-service".to_owned(), "; the next write starts unjankd");
        return finding.remedy(Remedy::EndProcess { name, pids: vec![serving.pid], effect });
    }
    let finding = match installer(machine) {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    };
    finding.hint("let unjankd serve the settings instead (`packaging/install`, without root); programs need no change")
}

/// Finds the script that installs our service from where the running program was built.
fn installer(machine: &Machine) -> Option<Remedy> {
    let built = machine.program_dir.as_deref()?;
    let needed = [
        "unjank",
        "unjankd",
        "unjank-index",
        "deps/libunjank_relax.so",
        "deps/libunjank_writeback.so",
    ];
    if !needed.iter().all(|name| built.join(name).exists()) {
        return None;
    }
    let source = built.parent()?.parent()?;
    let script = source.join("packaging/install");
    let from = (built != source.join("target/release")).then(|| built.to_owned());
    script.exists().then_some(Remedy::InstallService { script, from })
}

/// Finds the service that the session bus would start.
pub(in crate::doctor) fn installed(machine: &Machine) -> Option<Program> {
    let file = format!("dbus-1/services/{SERVICE}.service");
    // In the order in which a session bus looks.
    let dirs = machine.runtime_dir.iter().chain(&machine.data_home).chain(&machine.data_dirs);
    let named = dirs.into_iter().find_map(|dir| {
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
    let session = start(program, durable, machine)?;
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

/// Starts the session with its socket in memory, or wherever there is room.
fn start(program: &Program, durable: &Path, machine: &Machine) -> Result<Session, SessionError> {
    // A socket's address has room for 108 bytes, of which our own names take about 40.
    let fits = |dir: &&PathBuf| dir.as_os_str().len() < 60;
    let memory = PathBuf::from("/dev/shm");
    let dirs = [machine.runtime_dir.as_ref(), Some(&memory)].into_iter().flatten().filter(fits);
    for dir in dirs {
        match Session::start(program, durable, dir) {
            // Full, read-only or not there: the next may be better.
            Err(SessionError::NotPrepared { .. }) => (),
            done => return done,
        }
    }
    Session::start(program, durable, &machine.temp_dir)
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
    finding.because(cause)
}

/// Says how ours stands to the other one.
fn compare(ours: &Finding, other: &Finding) -> Option<Finding> {
    let (Outcome::Time(ours), Outcome::Time(other)) = (&ours.outcome, &other.outcome) else {
        return None;
    };
    let ratio = ratio(ours.median(), other.median());
    let text =
        format!("a write through unjankd takes {ratio} of the time of one through dconf-service");
    Some(Finding::new(NAME, "unjank", "the medians above", Outcome::Note(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Help;

    #[test]
    fn what_programs_write_through_is_what_runs_and_else_what_would_be_started() {
        let program = |name: &str| Program::plain(Path::new(name));
        let (ours, usual) = (program("/home/ana/.local/bin/unjankd"), program(USUAL));
        let runs = |name: &str| Serving { pid: 7, program: Some(name.into()) };
        let unknown = Serving { pid: 7, program: None };
        for (installed, serving, expected) in [
            (Some(&ours), None, Service::Ours),
            (Some(&usual), None, Service::Other),
            (None, None, Service::Other),
            (Some(&ours), Some(runs(USUAL)), Service::Other),
            (Some(&usual), Some(runs("/opt/unjankd")), Service::Ours),
            (Some(&usual), Some(runs("/opt/unjankd (deleted)")), Service::Ours),
            (Some(&ours), Some(unknown), Service::Ours),
        ] {
            assert_eq!(in_effect(installed, serving.as_ref()), expected, "{serving:?}");
        }
        let finding = || skipped("write", String::new());
        let machine = Machine::default();
        let serving = runs(USUAL);
        let help = |installed| help(finding(), Some(installed), Some(&serving), &machine).help;
        assert!(matches!(&help(&ours)[..], [Help::Remedy(Remedy::EndProcess { .. })]));
        assert!(matches!(&help(&usual)[..], [Help::Hint(_)]), "nothing to install from is known");
    }
}
