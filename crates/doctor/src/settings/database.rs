//! The user's database on disk: its size, its structure, its integrity, and the files beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gvdb::{GvdbTable, OpenError, Stamp, stamp};
use sys::map::Map;
use sys::regular_file;

use super::{NAME, UserDatabase};
use crate::StepContext;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;
use report::figure::Quantity;
use report::paragraph::counted;

/// Directories with fewer keys than this are not worth a word.
const LARGE_DIRECTORY: usize = 100;
/// From this many keys on, one directory makes the usual service's writes slow.
pub(super) const SLOW_DIRECTORY: usize = 2_000;
/// A temporary file that has not changed for so long belongs to no writer.
const STALE: Duration = Duration::from_secs(3600);

/// Looks at the file, at what lies beside it, and at the flag of its readers.
pub(super) fn look(
    database: &UserDatabase,
    machine: &Machine,
    tools: &StepContext<'_>,
) -> Vec<Finding> {
    let mut findings = file(database, machine);
    findings.extend(beside(database, machine, tools.clock.now()));
    findings.extend(flag(database, machine));
    findings
}

/// Returns the directory with the most keys of its own, and their number.
pub(super) fn largest_directory(database: &UserDatabase) -> Option<(String, usize)> {
    let map = Map::of(&regular_file::open(&database.path).ok()?).ok()?;
    directories(GvdbTable::open(map.bytes()).ok()?).into_iter().next()
}

fn file(database: &UserDatabase, machine: &Machine) -> Vec<Finding> {
    let at = machine.short(&database.path);
    let how = format!("read {at}");
    let finding = |outcome| Finding::new(NAME, "database", how.clone(), outcome);
    let map = regular_file::open(&database.path).and_then(|file| Map::of(&file));
    let map = match map {
        Ok(map) => map,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{at} does not exist: nothing was ever set");
            return vec![finding(MeasurementOutcome::Note(text))];
        }
        Err(error) => {
            return vec![
                finding(MeasurementOutcome::Wrong(format!("cannot read {at}: {error}")))
                    .because("programs see the defaults alone"),
            ];
        }
    };
    let bytes = map.bytes();
    let table = match GvdbTable::open(bytes) {
        Ok(table) => table,
        Err(OpenError::NoTable) if bytes.len() <= 32 => {
            return vec![finding(MeasurementOutcome::Note(format!("{at} is empty")))];
        }
        Err(error) => {
            let text = format!("{at} is no database: {error}");
            return vec![damaged(finding(MeasurementOutcome::Wrong(text)), &database.path)];
        }
    };
    let keys = table.entries().count();
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let size = Quantity::Size.show(bytes.len() as f64);
    let mut text = format!("{at}: {size}, {}", counted(keys, "key"));
    let large: Vec<String> = directories(table)
        .into_iter()
        .take(3)
        .filter(|(_, keys)| *keys >= LARGE_DIRECTORY)
        .map(|(dir, keys)| format!("{dir} ({keys})"))
        .collect();
    if !large.is_empty() {
        text.push_str(&format!("; most in {}", large.join(", ")));
    }
    let mut findings = Vec::new();
    match stamp(bytes) {
        Stamp::Good { generation } => {
            text.push_str(&format!("; as it was written, generation {generation}"));
        }
        Stamp::None => text.push_str("; without a checksum, as dconf writes it"),
        Stamp::Bad => {
            let text = format!("{at} is not as it was written: its checksum is wrong");
            findings.push(damaged(finding(MeasurementOutcome::Wrong(text)), &database.path));
        }
    }
    if let (true, Err(damage)) = (findings.is_empty(), table.check()) {
        let text = format!("{at} is damaged: {damage}");
        findings.push(damaged(finding(MeasurementOutcome::Wrong(text)), &database.path));
    }
    findings.insert(0, finding(MeasurementOutcome::Note(text)));
    findings
}

fn damaged(finding: Finding, path: &Path) -> Finding {
    finding
        .because("programs see only what can still be read, and the next write through dconf-service drops the rest")
        .remedy(Remedy::SalvageDatabase(path.to_owned()))
}

/// Counts the keys that each directory has itself, most first.
fn directories(table: GvdbTable<'_>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (key, _) in table.entries() {
        let end = key.rfind('/').map_or(0, |at| at + 1);
        *counts.entry(key[..end].to_owned()).or_default() += 1;
    }
    let mut directories: Vec<(String, usize)> = counts.into_iter().collect();
    directories.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    directories
}

/// Finds temporary files of writers that died, and files that were set aside as damaged.
fn beside(database: &UserDatabase, machine: &Machine, now: SystemTime) -> Vec<Finding> {
    let Some(dir) = database.path.parent() else { return Vec::new() };
    let mut stale = Vec::new();
    let mut aside = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(&database.name) else { continue };
        let old = || {
            let changed = entry.metadata().and_then(|data| data.modified()).ok();
            changed.and_then(|time| now.duration_since(time).ok()).is_some_and(|age| age > STALE)
        };
        if is_temporary(rest) && old() {
            stale.push(dir.join(&name));
        } else if rest.strip_prefix('~').is_some_and(|number| number.parse::<u32>().is_ok()) {
            aside.push(dir.join(&name));
        }
    }
    let list = |paths: &[PathBuf]| {
        paths.iter().map(|path| machine.short(path)).collect::<Vec<_>>().join(", ")
    };
    let how = format!("list {}", machine.short(dir));
    let mut findings = Vec::new();
    if !stale.is_empty() {
        let count = counted(stale.len(), "temporary file");
        findings.push(
            Finding::new(
                NAME,
                "leftovers",
                how.clone(),
                MeasurementOutcome::Note(format!("{count}: {}", list(&stale))),
            )
            .because("a settings service was killed while it wrote; nothing reads these files")
            .remedy(Remedy::RemoveFiles(stale.clone())),
        );
    }
    if !aside.is_empty() {
        let text = format!(
            "{} was set aside as damaged: {}",
            counted(aside.len(), "database"),
            list(&aside)
        );
        findings.push(Finding::new(NAME, "set aside", how, MeasurementOutcome::Note(text)));
    }
    findings
}

/// Returns whether `.XXXXXX` is what mkstemp puts behind a name.
fn is_temporary(rest: &str) -> bool {
    let letters = rest.strip_prefix('.').unwrap_or_default();
    letters.len() == 6 && letters.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Finds a flag, or its directory, that belongs to somebody else.
fn flag(database: &UserDatabase, machine: &Machine) -> Vec<Finding> {
    let mut paths: Vec<&Path> = vec![&database.flag];
    paths.extend(database.flag.parent());
    // The directory first: if it is foreign, so is all that is in it.
    paths.reverse();
    let foreign = paths.into_iter().find_map(|path| {
        let owner = fs::symlink_metadata(path).ok()?.uid();
        (owner != machine.uid).then_some((path, owner))
    });
    let Some((path, owner)) = foreign else { return Vec::new() };
    let at = machine.short(path);
    let who = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    let finding = Finding::new(NAME, "flag of readers", "lstat", MeasurementOutcome::Wrong(format!("{at} belongs to {who}")))
        .because("a program ran as another user with your XDG_RUNTIME_DIR; every read opens the database again");
    // A file in a directory of ours is ours to remove, whoever it belongs to.
    let (path, needs_root) = (path.to_owned(), path != database.flag);
    vec![finding.remedy(Remedy::RemoveForeign { path, needs_root })]
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use sys::clock::SystemClock;

    use super::*;

    use crate::finding::Help;
    use lab::keys;
    use std::fs::File;

    struct Home {
        _dir: tempfile::TempDir,
        database: UserDatabase,
        machine: Machine,
    }

    fn home(image: Option<&[u8]>) -> Home {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("dconf");
        fs::create_dir(&config).unwrap();
        let path = config.join("user");
        if let Some(image) = image {
            File::options()
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap()
                .write_all(image)
                .unwrap();
        }
        let flag = dir.path().join("run/dconf/user");
        let machine = Machine {
            home: Some(dir.path().to_owned()),
            uid: rustix::process::geteuid().as_raw(),
            ..Machine::default()
        };
        let database = UserDatabase { name: "user".to_owned(), path, flag };
        Home { _dir: dir, database, machine }
    }

    fn look_at(home: &Home) -> Vec<Finding> {
        let clock = SystemClock::start();
        let stop = AtomicBool::new(false);
        let tools = StepContext { clock: &clock, frame: report::grade::FRAME, stop: &stop };
        look(&home.database, &home.machine, &tools)
    }

    fn texts(findings: &[Finding]) -> Vec<String> {
        findings
            .iter()
            .map(|finding| match &finding.outcome {
                MeasurementOutcome::Note(text) => text.clone(),
                MeasurementOutcome::Wrong(text) => format!("WRONG {text}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_sound_database_is_described() {
        let image = keys::image(&keys::flat(150)).unwrap();
        let found = texts(&look_at(&home(Some(&image))));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("~/dconf/user: "), "{}", found[0]);
        assert!(found[0].contains("150 keys; most in /flat/ (150)"), "{}", found[0]);
        assert_eq!(
            texts(&look_at(&home(None))),
            ["~/dconf/user does not exist: nothing was ever set"]
        );
    }

    #[test]
    fn a_database_that_is_cut_or_overwritten_is_wrong() {
        let image = keys::image(&keys::flat(150)).unwrap();
        let cut = &image[..image.len() / 2];
        let mut zeroed = image.clone();
        let third = zeroed.len() / 3;
        zeroed[third..].fill(0);
        for broken in [cut, &zeroed, b"not a database at all, but longer than a header"] {
            let findings = look_at(&home(Some(broken)));
            assert!(
                findings.iter().any(|finding| finding.is_bad(Duration::from_secs(1))),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn leftovers_of_dead_writers_are_found_and_young_ones_are_left_alone() {
        let home = home(None);
        let dir = home.database.path.parent().unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (name, time) in [
            ("user.AB12cd", Some(old)),
            ("user.young1", None),
            ("user.txt", Some(old)),
            ("user~0", None),
        ] {
            let file = File::options().write(true).create_new(true).open(dir.join(name)).unwrap();
            if let Some(time) = time {
                file.set_modified(time).unwrap();
            }
        }
        let findings = look_at(&home);
        let found = texts(&findings);
        assert_eq!(found[1], "1 temporary file: ~/dconf/user.AB12cd");
        assert_eq!(found[2], "1 database was set aside as damaged: ~/dconf/user~0");
        let stale = vec![dir.join("user.AB12cd")];
        assert_eq!(findings[1].help, [Help::Remedy(Remedy::RemoveFiles(stale))]);
    }

    #[test]
    fn a_flag_of_another_user_is_wrong() {
        let mut home = home(None);
        fs::create_dir_all(home.database.flag.parent().unwrap()).unwrap();
        File::options().write(true).create_new(true).open(&home.database.flag).unwrap();
        assert_eq!(look_at(&home).len(), 1, "our own flag is as it should be");
        home.machine.uid += 1;
        let findings = look_at(&home);
        assert!(texts(&findings)[1].starts_with("WRONG ~/run/dconf belongs to "), "{findings:?}");
    }
}
