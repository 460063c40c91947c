//! The cost of a write through the installed service and through unjank's, each on a private bus with a copy of the database.

use report::error::chain;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::client::blocking::BlockingClient;
use gvdb::gvariant::Variant;
use settings::changeset::Changeset;

use super::database::{SLOW_DIRECTORY, largest_directory};
use super::environment::{self, SettingsOwner};
use super::{NAME, UserDatabase};
use crate::StepContext;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::{Machine, existing};
use crate::remedy::Remedy;
use lab::session::{BenchSession, SERVICE, ServiceProgram, SessionError};
use report::figure::ratio;
use report::grade::Grade;
use report::provenance::Provenance;
use report::samples::Samples;
use setup::SetupPart;

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
    tools: &StepContext<'_>,
) -> Vec<Finding> {
    // `cargo run` builds the command alone, which can serve as well.
    let beside = |name: &str| machine.program_dir.as_ref().map(|dir| dir.join(name));
    let there = |path: &PathBuf| path.exists();
    let ours = beside("unjankd").filter(there).map(|path| ServiceProgram::unjankd(&path));
    let ours =
        ours.or_else(|| beside("unjank").filter(there).map(|path| ServiceProgram::unjank(&path)));
    let installed = installed(machine);
    let serving = environment::serving(machine).ok().flatten();
    let judged = in_effect(installed.as_ref(), serving.as_ref());
    // Where ours is installed it stands beside the usual one.
    let usual = Path::new(USUAL).exists().then(|| ServiceProgram::plain(Path::new(USUAL)));
    let (other_name, other) = match &installed {
        Some(program) if is_ours(program) => ("write a setting, dconf-service", usual),
        _ => ("write a setting, unjank", ours),
    };
    let [first, second] = [installed.as_ref(), other.as_ref()]
        .map(|program| program.map(|program| Writer::start(program, database, machine)));
    let (first, second) = in_turn(first, second, tools);
    let measured =
        |name: &str, program: Option<&ServiceProgram>, samples: Option<_>, none: &str| {
            let (Some(program), Some(samples)) = (program, samples) else {
                return skipped(name, none.to_owned());
            };
            let found = service(name, program, samples);
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
    let first = measured(
        "write a setting, installed",
        installed.as_ref(),
        first,
        "no settings service is installed",
    );
    let second = measured(other_name, other.as_ref(), second, "the program was not found");
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

/// Returns whether the other service would take clearly less time.
fn saves(other: &Finding, judged: &Finding) -> bool {
    let (MeasurementOutcome::Time(other), MeasurementOutcome::Time(judged)) =
        (&other.outcome, &judged.outcome)
    else {
        return false;
    };
    other.median() < judged.median() * 0.8 && is_mostly_less(other, judged)
}

/// Returns whether most of the writes that were made in turn took less time through the first service.
///
/// A disk that other programs write to takes a fraction of a millisecond for one sync and fifty for the next one, and the
/// medians then say who had luck.
fn is_mostly_less(samples: &Samples, others: &Samples) -> bool {
    let pairs = samples.values().iter().zip(others.values());
    let (less, all) =
        pairs.fold((0, 0), |(less, all), (one, other)| (less + usize::from(one < other), all + 1));
    less * 3 >= all * 2 && all > 0
}

/// A settings service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Ours,
    Other,
}

/// Returns which service programs write through: the one that runs, else the one that the first write would start.
fn in_effect(installed: Option<&ServiceProgram>, serving: Option<&SettingsOwner>) -> Service {
    let running = serving.and_then(|serving| serving.program.as_deref());
    let is_ours = running.map_or_else(|| installed.is_some_and(is_ours), is_our_program);
    if is_ours { Service::Ours } else { Service::Other }
}

fn is_ours(program: &ServiceProgram) -> bool {
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
    installed: Option<&ServiceProgram>,
    serving: Option<&SettingsOwner>,
    machine: &Machine,
) -> Finding {
    if installed.is_some_and(is_ours) {
        let Some(serving) = serving else { return finding };
        let (name, effect) = ("dconf-service".to_owned(), "; the next write starts unjankd");
        return finding.remedy(Remedy::EndProcess { name, pids: vec![serving.pid], effect });
    }
    if machine.can_set_up() {
        return finding.remedy(Remedy::SetUp(SetupPart::Settings));
    }
    finding.hint("let unjankd serve the settings instead (`unjank setup settings`, without root); programs need no change")
}

/// Finds the service that the session bus would start.
pub(crate) fn installed(machine: &Machine) -> Option<ServiceProgram> {
    let file = format!("dbus-1/services/{SERVICE}.service");
    // In the order in which a session bus looks.
    let dirs = machine.runtime_dir.iter().chain(&machine.data_home).chain(&machine.data_dirs);
    let named = dirs.into_iter().find_map(|dir| {
        let text = fs::read_to_string(dir.join(&file)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Exec="))?;
        let command: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        Path::new(command.first()?)
            .exists()
            .then(|| ServiceProgram { command, environment: Vec::new() })
    });
    let usual = Path::new(USUAL);
    named.or_else(|| usual.exists().then(|| ServiceProgram::plain(usual)))
}

fn service(
    name: &str,
    program: &ServiceProgram,
    measured: Result<Samples, SessionError>,
) -> Finding {
    let how = format!(
        "{} on a private bus with a copy of the database: change one key and wait until it is durable",
        program.command.join(" ")
    );
    match measured {
        Ok(samples) if samples.is_empty() => skipped(name, "stopped".to_owned()),
        Ok(samples) => Finding::new(NAME, name, how, MeasurementOutcome::Time(samples)),
        Err(error) => Finding::new(NAME, name, how, MeasurementOutcome::Skipped(chain(&error))),
    }
}

/// A service on a private bus, with a client that writes one key.
struct Writer {
    session: BenchSession,
    client: BlockingClient,
    object: String,
    samples: Samples,
}

impl Writer {
    /// Starts the service with a copy of the database and makes a first write.
    fn start(
        program: &ServiceProgram,
        database: &UserDatabase,
        machine: &Machine,
    ) -> Result<Writer, SessionError> {
        let not_prepared = |path: &Path| {
            let path = path.to_owned();
            move |source| SessionError::NotPrepared { path, source }
        };
        // The copy stands on the file system of the original, where the sync costs what it costs.
        let durable = database.path.parent().and_then(existing).unwrap_or(Path::new("/"));
        let session = start(program, durable, machine)?;
        match sys::regular_file::read(&database.path) {
            Ok(image) => session.seed(&database.name, &image)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(not_prepared(&database.path)(error)),
        }
        let object = format!("/ca/desrt/dconf/Writer/{}", database.name);
        let mut client = session.connect()?;
        client.set_timeout(PATIENCE);
        let mut writer = Writer { session, client, object, samples: Samples::default() };
        // The first makes the service read the file; and the usual one does not sync a file that is new.
        writer.write(0)?;
        Ok(writer)
    }

    fn write(&mut self, number: usize) -> Result<(), SessionError> {
        let mut set = Changeset::default();
        set.change(KEY, Some(Variant::from(i64::try_from(number).unwrap_or(i64::MAX))));
        let written = self.client.change(&self.object, &set.encode());
        written.map(drop).map_err(|source| self.session.unreachable(source))
    }
}

type Measured = Option<Result<Samples, SessionError>>;

/// Writes through the services in turn, so that what other programs do to the disk meets both.
fn in_turn(
    first: Option<Result<Writer, SessionError>>,
    second: Option<Result<Writer, SessionError>>,
    tools: &StepContext<'_>,
) -> (Measured, Measured) {
    let mut writers = [first, second];
    let start = tools.clock.monotonic();
    let budget = if writers.iter().all(|writer| matches!(writer, Some(Ok(_)))) {
        BUDGET * 2
    } else {
        BUDGET
    };
    'turns: for number in 1..=MOST_WRITES {
        for place in &mut writers {
            let Some(Ok(writer)) = place else { continue };
            let (time, result) = tools.time(|| writer.write(number));
            if tools.stopped() {
                break 'turns;
            }
            match result {
                Ok(()) => writer.samples.push(time),
                Err(error) => *place = Some(Err(error)),
            }
        }
        if number >= LEAST_WRITES && tools.spent(start, budget) {
            break;
        }
    }
    let [first, second] =
        writers.map(|writer| writer.map(|writer| writer.map(|writer| writer.samples)));
    (first, second)
}

/// Starts the session with its socket in memory, or wherever there is room.
fn start(
    program: &ServiceProgram,
    durable: &Path,
    machine: &Machine,
) -> Result<BenchSession, SessionError> {
    // A socket's address has room for 108 bytes, of which our own names take about 40.
    let fits = |dir: &&PathBuf| dir.as_os_str().len() < 60;
    let memory = PathBuf::from("/dev/shm");
    let dirs = [machine.runtime_dir.as_ref(), Some(&memory)].into_iter().flatten().filter(fits);
    for dir in dirs {
        match BenchSession::start(program, durable, dir) {
            // Full, read-only or not there: the next may be better.
            Err(SessionError::NotPrepared { .. }) => (),
            done => return done,
        }
    }
    BenchSession::start(program, durable, &machine.temp_dir)
}

fn skipped(name: &str, why: String) -> Finding {
    Finding::new(NAME, name, "a write on a private bus", MeasurementOutcome::Skipped(why))
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
    let (MeasurementOutcome::Time(ours), MeasurementOutcome::Time(other)) =
        (&ours.outcome, &other.outcome)
    else {
        return None;
    };
    let ratio = ratio(ours.median(), other.median());
    let less = is_mostly_less(ours, other);
    let text = if less || is_mostly_less(other, ours) {
        let build = if Provenance::is_built_as_packaged() {
            ""
        } else {
            "; this build of ours is not optimised as a package is"
        };
        format!(
            "a write through unjankd takes {ratio} of the time of one through dconf-service{build}"
        )
    } else {
        let n = ours.len().min(other.len());
        format!(
            "no clear difference from dconf-service: of {n} writes in turn neither service was quicker in two thirds"
        )
    };
    Some(Finding::new(NAME, "unjank", "the medians above", MeasurementOutcome::Note(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Help;

    #[test]
    fn a_service_saves_time_if_most_writes_in_turn_do_and_not_if_two_were_lucky() {
        let time = |values: &[f64]| {
            let mut samples = Samples::default();
            values.iter().for_each(|value| samples.push(*value));
            Finding::new(NAME, "write", "", MeasurementOutcome::Time(samples))
        };
        let said = |ours: &Finding, other: &Finding| match compare(ours, other).unwrap().outcome {
            MeasurementOutcome::Note(text) => text,
            other => panic!("{other:?}"),
        };
        let quick = time(&[1.0, 1.0, 1.0, 9.0, 1.0, 1.0]);
        let slow = time(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
        assert!(saves(&quick, &slow) && !saves(&slow, &quick));
        assert!(said(&quick, &slow).contains("takes 1/5.0 of"), "{}", said(&quick, &slow));
        assert!(said(&slow, &quick).contains("takes x 5.0 of"), "{}", said(&slow, &quick));
        // The medians differ by 20, and each of the two was quicker in half of the pairs.
        let early = time(&[1.0, 1.0, 20.0, 20.0, 20.0, 1.1]);
        let late = time(&[20.0, 20.0, 1.0, 1.0, 1.0, 1.2]);
        assert!(!saves(&late, &early) && !saves(&early, &late));
        assert!(said(&late, &early).starts_with("no clear difference"), "{}", said(&late, &early));
    }

    #[test]
    fn what_programs_write_through_is_what_runs_and_else_what_would_be_started() {
        let program = |name: &str| ServiceProgram::plain(Path::new(name));
        let (ours, usual) = (program("/home/ana/.local/bin/unjankd"), program(USUAL));
        let runs = |name: &str| SettingsOwner { pid: 7, program: Some(name.into()) };
        let unknown = SettingsOwner { pid: 7, program: None };
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
