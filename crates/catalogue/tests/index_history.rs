//! Whatever happened before, an answer is the one that an index made from nothing gives.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

use crate::index_machine;

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use unjank_catalogue::index::Index;
use unjank_catalogue::index::build::{CheckDepth, build};
use unjank_catalogue::index::input::IndexPart;
use unjank_catalogue::index::query::{Basis, QuestionAnswer};
use unjank_catalogue::index::refresh::Location;
use unjank_catalogue::index::sources::IndexSources;

use index_machine::{Machine, tick};

/// How many changes are made; more with `INDEX_CHANGES`.
const CHANGES: usize = 150;

/// A generator that is the same for the same seed.
struct Dice(fastrand::Rng);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0.usize(..count)
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Overwrites a file in place with as many bytes and the same time, as a careless restore does.
fn overwrite(path: &Path, bytes: &[u8]) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// What all questions together say: plugins and applications in their order, and what was left out.
type Everything =
    (Vec<(PathBuf, String, String)>, Vec<(PathBuf, String, String)>, Vec<(PathBuf, String)>);

fn everything(index: &Index) -> Everything {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let plugins = index.plugins().map(|plugin| {
        let path = plugin.path().unwrap().to_owned();
        (path, text(plugin.text("Id")), text(plugin.text(".namespace")))
    });
    let apps = index
        .apps()
        .map(|app| (app.path().unwrap().to_owned(), text(app.text(".id")), text(app.text("Name"))));
    let faults = index.faults().map(|(path, why)| (path.to_owned(), why.to_owned()));
    (plugins.collect(), apps.collect(), faults.collect())
}

fn asked(location: &Location, basis: Basis) -> Everything {
    let question = |index: &Index| QuestionAnswer { value: everything(index), basis };
    let asked = location.ask(&*store::disk::real(), |index| index.stale(&IndexPart::ALL), question);
    let asked = asked.unwrap();
    assert!(!asked.was_damaged);
    asked.value
}

fn from_nothing(sources: &IndexSources) -> Everything {
    everything(&Index::from_bytes(build(sources, None, CheckDepth::Files).unwrap().image).unwrap())
}

#[test]
fn of_two_plugins_of_one_identifier_the_same_one_wins_whatever_was_there_before() {
    let machine = Machine::new();
    machine.plugin("z.so", 1);
    machine.refresh();
    // By name the directory comes first, by what counts the file beside it.
    machine.plugin("a/same.so", 1);
    let (index, _) = machine.refresh();
    let winner = |index: &Index| index.plugin("plugin-0001").unwrap().path().unwrap().to_owned();
    let fresh = build(machine.location().sources(), None, CheckDepth::Files).unwrap();
    assert_eq!(winner(&index), winner(&Index::from_bytes(fresh.image).unwrap()));
    assert!(winner(&index).ends_with("plugins/z.so"));
    machine.plugin("b.so", 3);
    assert!(winner(&machine.refresh().0).ends_with("plugins/z.so"));
}

#[test]
fn after_any_changes_the_answer_is_the_one_of_an_index_from_nothing() {
    let changes: usize =
        std::env::var("INDEX_CHANGES").map_or(CHANGES, |text| text.parse().unwrap());
    let machine = Machine::new();
    let at = |name: &str| machine.root.path().join(name);
    fs::create_dir(at("elsewhere")).unwrap();
    let mut sources = machine.location().sources().clone();
    sources.plugin_roots = vec![at("plugins"), at("roots/second"), at("plugins/kf5")];
    sources.places.data_home = Some(at("home"));
    let user = Location::new(at("cache"), sources.clone(), Some(at("system")));
    let mut of_system = sources.clone();
    of_system.plugin_roots.reverse();
    of_system.places.data_home = None;
    let system = Location::of_system(at("system"), &of_system);
    let mut dice = Dice(fastrand::Rng::with_seed(0x1234_5678_9abc_def1));
    let mut done = Vec::new();
    for change in 0..changes {
        let what = match dice.below(3) {
            0 => app_change(&machine, &mut dice, change),
            _ => plugin_change(&machine, &mut dice, change),
        };
        done.push(what);
        if dice.below(8) == 0 {
            system.refresh(&*store::disk::real(), CheckDepth::Directories).unwrap();
            done.push("the system's index is made".to_owned());
        }
        if dice.below(12) == 0 {
            let _ = fs::remove_file(user.path());
            done.push("the user's index is removed".to_owned());
        }
        if dice.below(3) == 0 {
            continue;
        }
        let expected = from_nothing(&sources);
        let story = &done[done.len().saturating_sub(12)..];
        for basis in [Basis::Plugins, Basis::Applications] {
            let answer = asked(&user, basis);
            if basis == Basis::Plugins {
                assert_eq!(answer.0, expected.0, "{story:#?}");
            } else {
                assert_eq!(answer.1, expected.1, "{story:#?}");
            }
        }
        assert_eq!(asked(&user, Basis::Plugins).2, expected.2, "{story:#?}");
    }
}

const DIRECTORIES: [&str; 8] = [
    "plugins",
    "plugins/kf5",
    "plugins/kf5/kio",
    "plugins/a",
    "plugins/z",
    "plugins/kf5/kio.so",
    "roots/second",
    "elsewhere",
];
const NAMES: [&str; 4] = ["a.so", "m.so", "kio.so", "z.so"];

/// Changes something about plugins, and says what.
fn plugin_change(machine: &Machine, dice: &mut Dice, change: usize) -> String {
    let root = machine.root.path();
    let directory = root.join(dice.of(&DIRECTORIES));
    let name = dice.of(&NAMES);
    let path = directory.join(name);
    // Few identifiers, so that most have several files.
    let number = dice.below(3);
    let bytes = machine.plugin_bytes(number);
    let what = dice.below(10);
    let is_file = path.is_file();
    match what {
        0..=2 if !path.exists() && directory.is_dir() => {
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes).unwrap();
        }
        3 if is_file => overwrite(&path, &bytes),
        4 if is_file => overwrite(&path, &vec![b'x'; bytes.len()]),
        5 if is_file => {
            let new = root.join(format!("new-{change}"));
            fs::write(&new, bytes).unwrap();
            fs::rename(new, &path).unwrap();
        }
        6 if is_file => fs::remove_file(&path).unwrap(),
        7 if directory.parent().unwrap().is_dir() && !directory.exists() => {
            fs::create_dir(&directory).unwrap();
        }
        8 if path.symlink_metadata().is_err() && directory.is_dir() => {
            // To a file, a directory, a pipe's place, or to nothing yet.
            let to = dice.of(&["elsewhere/a.so", "elsewhere", "elsewhere/missing", "plugins/z"]);
            symlink(root.join(to), &path).unwrap();
        }
        9 if directory.is_dir() && !directory.ends_with("plugins") && change.is_multiple_of(3) => {
            fs::remove_dir_all(&directory).unwrap();
            if directory.ends_with("elsewhere") {
                // A link that led there leads nowhere now, and to a file a moment later.
                fs::write(&directory, machine.plugin_bytes(number)).unwrap();
                fs::remove_file(&directory).unwrap();
                fs::create_dir(&directory).unwrap();
            }
        }
        _ => return "nothing".to_owned(),
    }
    format!("{what} of {} with {number}", path.display())
}

/// Changes something about applications, and says what.
fn app_change(machine: &Machine, dice: &mut Dice, change: usize) -> String {
    let root = machine.root.path();
    let directory = root.join(dice.of(&["share/applications", "home/applications"]));
    let below = directory.join(dice.of(&[".", "kde"]));
    let path = below.join(dice.of(&["a.desktop", "b.desktop", "kde-a.desktop"]));
    // `directory/.` can be made only where the directory is.
    fs::create_dir_all(&directory).unwrap();
    fs::create_dir_all(&below).unwrap();
    let text = format!("[Desktop Entry]\nType=Application\nName=name{change:04}\nExec=sh\n");
    let what = dice.below(4);
    match what {
        0 | 1 if path.exists() => overwrite(&path, text.as_bytes()),
        2 if path.exists() => fs::remove_file(&path).unwrap(),
        3 if path.exists() => overwrite(&path, &vec![0xff; text.len()]),
        _ => fs::write(&path, text).unwrap(),
    }
    format!("{what} of {}", path.display())
}

#[test]
fn what_is_overwritten_in_place_is_read_again_before_its_record_is_used() {
    let machine = Machine::new();
    let path = machine.plugin("kf5/one.so", 1);
    machine.app("a.desktop", "Comment=old\n");
    machine.refresh();
    let app = machine.root.path().join("share/applications/a.desktop");
    tick();
    assert!(machine.refresh().0.stale_file().is_none());
    // Neither size, nor time, nor directory says so.
    overwrite(&path, &machine.plugin_bytes(3));
    let text = fs::read_to_string(&app).unwrap().replace("old", "new");
    overwrite(&app, text.as_bytes());
    let index = machine.location().open().unwrap();
    assert!(index.stale(&IndexPart::ALL).is_none());
    assert_eq!(index.overwritten(), None, "no record was read yet");
    assert!(index.plugin("plugin-0001").is_some());
    assert_eq!(index.overwritten(), Some(&*path));
    let ask = |id: &str| {
        let question = |index: &Index| {
            let value = index.plugin(id).is_some();
            QuestionAnswer { value, basis: if value { Basis::FilesRead } else { Basis::Plugins } }
        };
        let location = machine.location();
        location.ask(&*store::disk::real(), |index| index.stale_plugin(id), question).unwrap().value
    };
    // That there is none is said only after a look at every file.
    assert!(ask("plugin-0003"));
    assert!(!ask("plugin-0001"));
    let comments = |index: &Index| -> Vec<String> {
        index.apps().map(|app| app.text("Comment").unwrap().to_owned()).collect()
    };
    let question =
        |index: &Index| QuestionAnswer { value: comments(index), basis: Basis::FilesRead };
    let said = machine.location().ask(&*store::disk::real(), |_| None, question).unwrap();
    assert_eq!(said.value, ["new"]);
}

#[test]
fn a_file_that_changes_all_the_time_is_answered_as_it_was_a_moment_ago() {
    let machine = Machine::new();
    let path = machine.plugin("one.so", 1);
    machine.refresh();
    let mut asked = 0;
    let question = |index: &Index| {
        asked += 1;
        let value: Vec<_> =
            index.plugins().map(|plugin| plugin.text("Id").unwrap().to_owned()).collect();
        overwrite(&path, &machine.plugin_bytes(asked % 2 * 2 + 1));
        QuestionAnswer { value, basis: Basis::FilesRead }
    };
    let answer = machine.location().ask(&*store::disk::real(), |_| None, question).unwrap();
    assert_eq!(answer.value.len(), 1);
    assert!(asked < 10, "{asked}");
}
