//! A damaged index never gives a wrong answer: damage is told, and the index made again; what lies beside it stays.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

use crate::index_machine;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use unjank_catalogue::index::build::CheckDepth;
use unjank_catalogue::index::input::IndexPart;
use unjank_catalogue::index::layout::PluginKey;
use unjank_catalogue::index::opener::Openers;
use unjank_catalogue::index::query::{Basis, IndexAnswer, QuestionAnswer};
use unjank_catalogue::index::refresh::{Location, RefreshError, RefreshOutcome};
use unjank_catalogue::index::{Index, IndexError};

use index_machine::{Machine, tick};

/// How many damages are made; more with `INDEX_DAMAGES`.
const DAMAGES: usize = 300;

/// Asks for one thing of each kind, with what each needs to be current.
fn told(location: &Location) -> Vec<IndexAnswer<Vec<String>>> {
    let disk = store::disk::real();
    let ask = |parts: &[IndexPart], basis, question: &dyn Fn(&Index) -> Vec<String>| {
        let answer = |index: &Index| QuestionAnswer { value: question(index), basis };
        location.ask(&*disk, |index| index.stale(parts), answer).unwrap()
    };
    let plugin = |index: &Index| {
        let found = index.plugin("plugin-0007").into_iter();
        found.map(|plugin| plugin.path().unwrap().display().to_string()).collect()
    };
    let by_type = |index: &Index| {
        let found = index.plugins_by(PluginKey::MimeType, "text/plain");
        found.map(|plugin| plugin.text("Id").unwrap_or("none").to_owned()).collect()
    };
    let default = |index: &Index| {
        let openers = Openers::new(index, &location.sources().places.path);
        let found = openers.all_for("text/x-child").into_iter();
        found.map(|app| format!("{:?} {:?}", app.text(".id"), app.text("Exec"))).collect()
    };
    let list = |index: &Index| {
        let all = index.plugins().chain(index.apps());
        let faults = index.faults().map(|(path, why)| format!("{} {why}", path.display()));
        all.map(|record| format!("{:?}", record.members().collect::<Vec<_>>()))
            .chain(faults)
            .collect()
    };
    vec![
        ask(&[IndexPart::Plugins], Basis::FilesRead, &plugin),
        ask(&IndexPart::OF_PLUGINS, Basis::FilesRead, &by_type),
        ask(&IndexPart::OF_OPENERS, Basis::FilesRead, &default),
        ask(&IndexPart::ALL, Basis::Plugins, &list),
    ]
}

/// A machine with something of everything.
fn machine() -> Machine {
    let machine = Machine::new();
    (0..30).for_each(|number| drop(machine.plugin(&format!("kf5/{number:02}.so"), number)));
    machine.app("a.desktop", "MimeType=text/plain;\n");
    machine.app("b.desktop", "MimeType=text/x-child;\n");
    let share = machine.root.path().join("share");
    let cache = "[MIME Cache]\ntext/plain=a.desktop;\ntext/x-child=b.desktop;\n";
    fs::write(share.join("applications/mimeinfo.cache"), cache).unwrap();
    fs::create_dir(share.join("mime")).unwrap();
    fs::write(share.join("mime/subclasses"), "text/x-child text/plain\n").unwrap();
    fs::write(machine.root.path().join("plugins/bad.so"), "no plugin").unwrap();
    tick();
    machine
}

/// Damages bytes in one of the ways in which disks, memory and people do.
fn damage(bytes: &mut Vec<u8>, dice: &mut impl FnMut(usize) -> usize) -> String {
    let (at, len) = (dice(bytes.len()), dice(600) + 1);
    let end = (at + len).min(bytes.len());
    match dice(7) {
        0 | 1 => {
            let bit = dice(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        2 => {
            bytes[at..end].fill(0);
            format!("zeros from {at} to {end}")
        }
        3 => {
            bytes.truncate(at);
            format!("cut to {at}")
        }
        4 => {
            bytes[at..end].iter_mut().for_each(|byte| *byte = u8::try_from(dice(256)).unwrap());
            format!("other bytes from {at} to {end}")
        }
        5 => {
            let from = dice(bytes.len() - (end - at));
            bytes.copy_within(from..from + (end - at), at);
            format!("{} bytes at {at} are those from {from}", end - at)
        }
        _ => {
            bytes.drain(at..end);
            format!("no bytes from {at} to {end}")
        }
    }
}

#[test]
fn however_an_index_is_damaged_the_answers_are_right_and_what_lies_beside_it_stays() {
    let damages: usize =
        std::env::var("INDEX_DAMAGES").map_or(DAMAGES, |text| text.parse().unwrap());
    let machine = machine();
    let location = machine.location();
    let expected: Vec<_> = told(&location).into_iter().map(|asked| asked.value).collect();
    assert!(expected.iter().all(|answer| !answer.is_empty()), "{expected:?}");
    let whole = fs::read(location.path()).unwrap();
    // The index of another language, and something that is nobody's.
    let beside =
        ["index-0123456789abcdef.gvdb", "notes"].map(|name| location.path().with_file_name(name));
    beside.iter().for_each(|path| fs::write(path, &whole).unwrap());
    let mut random = fastrand::Rng::with_seed(1);
    let mut dice = |count: usize| random.usize(..count.max(1));
    let (mut noticed, mut unread) = (0, 0);
    for number in 0..damages {
        let mut bytes = whole.clone();
        let what = damage(&mut bytes, &mut dice);
        let is_damaged = bytes != whole;
        // A new file: the disk is waited for when an old one is written over.
        fs::remove_file(location.path()).unwrap();
        fs::write(location.path(), &bytes).unwrap();
        let answers = told(&location);
        for (answer, expected) in answers.iter().zip(&expected) {
            assert_eq!(&answer.value, expected, "damage {number}: {what}");
        }
        let is_told = answers.iter().any(|answer| answer.was_damaged);
        assert!(!is_told || is_damaged, "damage {number} was told of a whole index: {what}");
        noticed += usize::from(is_told);
        // What nobody read is told by who reads everything.
        let left = location.open();
        if !left.is_ok_and(|index| index.is_whole()) {
            assert!(!is_told, "damage {number} was told and is still there: {what}");
            let (_, done) = location.refresh(&*store::disk::real(), CheckDepth::Files).unwrap();
            assert!(
                matches!(done, RefreshOutcome::Made { was_damaged: true, .. }),
                "{number}: {what}"
            );
            unread += 1;
        }
    }
    // A few change nothing, or only bytes between the parts.
    assert!((noticed + unread) * 10 > damages * 9, "{noticed} and {unread} of {damages}");
    assert!(noticed > unread, "{noticed} and {unread} of {damages}");
    beside.iter().for_each(|path| assert_eq!(fs::read(path).unwrap(), whole));
}

#[test]
fn an_index_that_another_user_could_have_written_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give a file to somebody else");
    }
    let machine = machine();
    let location = machine.location();
    machine.refresh();
    let planted = |change: &dyn Fn(&Path)| {
        let path = location.path();
        let mut bytes = fs::read(&path).unwrap();
        // As one who knows the format would.
        let at = bytes.windows(11).position(|window| window == b"plugin-0007").unwrap();
        bytes[at] = b'P';
        fs::write(&path, bytes).unwrap();
        change(&path);
        assert!(matches!(location.open().unwrap_err(), IndexError::Foreign));
        let answers = told(&location);
        assert!(answers[0].value[0].ends_with("kf5/07.so"), "{:?}", answers[0]);
        assert!(location.open().is_ok(), "one of our own is in its place");
    };
    planted(&|path| chown(path, Some(65534), None).unwrap());
    planted(&|path| fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap());
    planted(&|path| fs::set_permissions(path, Permissions::from_mode(0o620)).unwrap());
}

#[test]
fn nothing_is_written_where_another_user_may_place_links() {
    let is_root = rustix::process::geteuid().is_root();
    let machine = machine();
    let at = |name: &str| machine.root.path().join(name);
    let location = |name: &str| Location::new(at(name), machine.location().sources().clone(), None);
    let refused = |name: &str| {
        let location = location(name);
        let refused = location.refresh(&*store::disk::real(), CheckDepth::Directories);
        let answers = told(&location);
        assert!(answers[0].value[0].ends_with("kf5/07.so"), "who asks is answered all the same");
        refused.unwrap_err()
    };
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(refused("open"), RefreshError::NotOurs { .. }));
    assert_eq!(fs::read_dir(at("open")).unwrap().count(), 0);

    // A lock that is a link to something that is not there.
    fs::create_dir(at("linked")).unwrap();
    symlink(at("made-by-us"), at("linked/index.lock")).unwrap();
    assert!(matches!(refused("linked"), RefreshError::NotLocked { .. }));
    assert!(!at("made-by-us").exists());

    if is_root {
        fs::create_dir(at("foreign")).unwrap();
        chown(at("foreign"), Some(65534), None).unwrap();
        assert!(matches!(refused("foreign"), RefreshError::NotOurs { .. }));
        assert!(matches!(refused("foreign/below"), RefreshError::NotOurs { .. }));
        assert_eq!(fs::read_dir(at("foreign")).unwrap().count(), 0);
    } else {
        eprintln!("SKIPPED: only root can give a directory to somebody else");
    }
}

#[test]
fn who_makes_the_index_and_was_stopped_holds_nobody_up() {
    let machine = machine();
    let lock = File::create(machine.root.path().join("cache/index.lock")).unwrap();
    lock.lock().unwrap();
    let start = Instant::now();
    let question =
        |index: &Index| QuestionAnswer { value: index.plugins().count(), basis: Basis::Plugins };
    let location = machine.location();
    let asked = location.ask(&*store::disk::real(), |index| index.stale(&IndexPart::ALL), question);
    assert_eq!(asked.unwrap().value, 30);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(!location.path().exists());
}
