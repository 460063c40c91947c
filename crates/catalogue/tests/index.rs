//! The index is what its directories are: every kind of change is noticed, readers see whole ones only, one process makes it for all.
#![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

use crate::index_machine;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use unjank_catalogue::apps::associations::{Associations, ClaimVerdict, explain};
use unjank_catalogue::apps::installed::Installed;
use unjank_catalogue::apps::place::ApplicationDirectories;
use unjank_catalogue::index::Index;
use unjank_catalogue::index::build::{CheckDepth, build};
use unjank_catalogue::index::constraint::Constraint;
use unjank_catalogue::index::input::IndexPart;
use unjank_catalogue::index::layout::{AppKey, PluginKey};
use unjank_catalogue::index::opener::Openers;
use unjank_catalogue::index::refresh::{Location, RefreshOutcome};
use unjank_catalogue::index::sources::IndexSources;
use xdg::mime_types::MimeTypes;

use index_machine::{Machine, set_old, tick};

/// How many read while the index is made again and again.
const READERS: usize = 200;

#[test]
fn both_forms_of_metadata_are_found_by_all_their_names() {
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    machine.plugin("two.so", 2);
    fs::write(machine.root.path().join("plugins/three.so"), "no ELF").unwrap();
    fs::write(machine.root.path().join("plugins/readme.txt"), "x").unwrap();
    let (index, done) = machine.refresh();
    assert_eq!(
        done,
        RefreshOutcome::Made { plugins: 2, applications: 0, opened: 3, was_damaged: false }
    );
    for (id, namespace, qt) in [("plugin-0001", "kf5", 6), ("plugin-0002", "", 5)] {
        let plugin = index.plugin(id).unwrap();
        assert_eq!(plugin.text(".class"), Some("Class"));
        assert_eq!(plugin.text(".namespace"), Some(namespace));
        assert_eq!(plugin.bytes(".qt").unwrap()[0], qt);
        assert!(plugin.is_current());
    }
    let count = |key, value: &str| index.plugins_by(key, value).count();
    assert_eq!(count(PluginKey::Interface, "org.example.I"), 2);
    assert_eq!(count(PluginKey::MimeType, "text/plain"), 2);
    assert_eq!(count(PluginKey::Namespace, "kf5"), 1);
    assert_eq!(count(PluginKey::Id, "kf5/../x"), 0);
    let constraint =
        Constraint::parse("'text/plain' in MimeTypes and Id == 'plugin-0002'").unwrap();
    assert_eq!(index.plugins().filter(|plugin| constraint.matches(plugin, &|_| None)).count(), 1);
    let faults: Vec<_> = index.faults().collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].0.ends_with("three.so"));
}

#[test]
fn every_change_makes_the_index_stale() {
    let machine = Machine::new();
    let plugins = machine.root.path().join("plugins");
    machine.plugin("kf5/one.so", 1);
    assert_eq!(machine.ids(), ["plugin-0001"]);
    assert_eq!(machine.refresh().1, RefreshOutcome::Current);

    machine.plugin("kf5/two.so", 2);
    assert!(machine.location().open().unwrap().stale(&IndexPart::ALL).is_some());
    let (_, done) = machine.refresh();
    assert_eq!(
        done,
        RefreshOutcome::Made { plugins: 2, applications: 0, opened: 1, was_damaged: false }
    );

    // A rollback: an older file comes in the place of a newer one.
    let older = plugins.join("older");
    fs::write(&older, machine.plugin_bytes(3)).unwrap();
    set_old(&older);
    fs::rename(older, plugins.join("kf5/two.so")).unwrap();
    set_old(&plugins.join("kf5"));
    assert_eq!(machine.ids(), ["plugin-0001", "plugin-0003"]);

    // Another generation of a store where all times are the same: a link leads elsewhere.
    for (generation, number) in [("a", 4), ("b", 5)] {
        fs::create_dir(machine.root.path().join(generation)).unwrap();
        let path = machine.root.path().join(generation).join("x.so");
        fs::write(&path, machine.plugin_bytes(number)).unwrap();
        set_old(&path);
        set_old(&machine.root.path().join(generation));
    }
    let link = plugins.join("link");
    std::os::unix::fs::symlink("../a", &link).unwrap();
    assert_eq!(machine.ids(), ["plugin-0001", "plugin-0003", "plugin-0004"]);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../b", &link).unwrap();
    set_old(&plugins);
    assert_eq!(machine.ids(), ["plugin-0001", "plugin-0003", "plugin-0005"]);

    fs::remove_file(plugins.join("kf5/one.so")).unwrap();
    fs::create_dir(plugins.join("new")).unwrap();
    machine.plugin("new/six.so", 6);
    assert_eq!(machine.ids(), ["plugin-0003", "plugin-0005", "plugin-0006"]);
}

#[test]
fn a_file_that_is_overwritten_in_place_is_noticed_when_it_is_used() {
    let machine = Machine::new();
    let path = machine.plugin("one.so", 1);
    let (index, _) = machine.refresh();
    let mut file = File::options().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, &machine.plugin_bytes(3)).unwrap();
    drop(file);
    assert!(index.stale(&IndexPart::ALL).is_none());
    assert!(!index.plugin("plugin-0001").unwrap().is_current());
    tick();
    let (index, done) =
        machine.location().refresh(&*store::disk::real(), CheckDepth::Files).unwrap();
    assert_eq!(
        done,
        RefreshOutcome::Made { plugins: 1, applications: 0, opened: 1, was_damaged: false }
    );
    assert!(index.plugin("plugin-0003").unwrap().is_current());
}

#[test]
fn applications_are_found_by_everything_that_is_asked_of_them() {
    let machine = Machine::new();
    machine.app("a.desktop", "MimeType=text/plain;\nCategories=Qt;Editor;\nKeywords=Write;Text;\nDBusActivatable=true\nActions=new;\n[Desktop Action new]\nName=New\nExec=a --new\n");
    machine.app("kde/b.desktop", "MimeType=text/plain;image/png;\nTerminal=true\n");
    let (index, _) = machine.refresh();
    let found = |key, value: &str| -> Vec<String> {
        index.apps_by(key, value).map(|app| app.text(".id").unwrap().to_owned()).collect()
    };
    assert_eq!(found(AppKey::MimeType, "text/plain"), ["a.desktop", "kde-b.desktop"]);
    assert_eq!(found(AppKey::Category, "Editor"), ["a.desktop"]);
    assert_eq!(found(AppKey::Keyword, "write"), ["a.desktop"]);
    assert_eq!(found(AppKey::Program, "sh"), ["a.desktop", "kde-b.desktop"]);
    assert_eq!(found(AppKey::BusName, "a"), ["a.desktop"]);
    let app = index.apps_by(AppKey::Id, "a.desktop").next().unwrap();
    assert_eq!(app.list(".actions").collect::<Vec<_>>(), ["new", "New", "a --new"]);
}

#[test]
fn the_index_decides_as_the_files_do() {
    // This machine's own applications and associations.
    let share: Vec<PathBuf> = vec!["/usr/local/share".into(), "/usr/share".into()];
    let path = vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")];
    let places = ApplicationDirectories {
        data_dirs: share,
        path,
        desktops: vec!["kde".into()],
        ..ApplicationDirectories::default()
    };
    let sources = IndexSources { places, ..IndexSources::default() };
    let index = Index::from_bytes(build(&sources, None, CheckDepth::Files).unwrap().image).unwrap();
    let openers = Openers::new(&index, &sources.places.path);
    let types = MimeTypes::read(sources.places.data());
    let associations = Associations::read(&sources.places, &types);
    let installed = Installed::scan(&sources.places);
    for mime_type in associations.types() {
        let lineage = types.lineage(mime_type);
        let steps = explain(&lineage, |name| associations.claims(name), &installed);
        assert_eq!(openers.explain(&index.lineage(mime_type)), steps, "{mime_type}");
        let chosen = steps.iter().find(|step| step.verdict == ClaimVerdict::Chosen);
        let id = openers.default_for(mime_type).map(|(_, claim)| claim.id);
        assert_eq!(id, chosen.map(|step| step.claim.id), "{mime_type}");
    }
}

#[test]
fn one_of_many_makes_the_index_for_all() {
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    let made = AtomicUsize::new(0);
    tick();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let (index, done) = machine.refresh();
                assert!(index.plugin("plugin-0001").is_some());
                made.fetch_add(usize::from(done != RefreshOutcome::Current), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn readers_see_whole_indexes_only() {
    let rebuilds: usize = std::env::var("REBUILDS").map_or(100, |text| text.parse().unwrap());
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    machine.refresh();
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Barrier::new(READERS + 1);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                begin.wait();
                loop {
                    let index = machine.location().open().unwrap();
                    assert!(index.is_whole());
                    let ids: Vec<_> =
                        index.plugins().filter_map(|plugin| plugin.text("Id")).collect();
                    assert!(
                        matches!(ids[..], ["plugin-0001"] | ["plugin-0001", "plugin-0002"]),
                        "{ids:?}"
                    );
                    reads.fetch_add(1, Ordering::Relaxed);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
        }
        begin.wait();
        for _ in 0..rebuilds {
            let other = machine.root.path().join("plugins/two.so");
            if other.exists() {
                fs::remove_file(other).unwrap()
            } else {
                drop(machine.plugin("two.so", 2))
            }
            machine.refresh();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(reads.into_inner() >= READERS);
}

#[test]
fn a_directory_that_leads_to_itself_and_what_is_no_file_are_left_out() {
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    let at = |name: &str| machine.root.path().join(name);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
    link("/", "plugins/kf5/everything");
    link("..", "plugins/kf5/above");
    link("/dev/zero", "plugins/kf5/zero.so");
    link("/dev/null", "share/applications/null.desktop");
    link("nowhere", "share/applications/gone.desktop");
    // One that leads elsewhere is followed.
    fs::create_dir(at("elsewhere")).unwrap();
    fs::rename(machine.plugin("two.so", 2), at("elsewhere/two.so")).unwrap();
    link("../elsewhere", "plugins/linked");
    assert_eq!(machine.ids(), ["plugin-0001", "plugin-0002"]);
    let (index, done) = machine.refresh();
    assert_eq!(done, RefreshOutcome::Current);
    let mut faults: Vec<_> = index
        .faults()
        .map(|(path, why)| (path.strip_prefix(machine.root.path()).unwrap(), why))
        .collect();
    faults.sort_unstable();
    assert_eq!(
        faults,
        [
            (Path::new("plugins/kf5/above"), "a link to a directory that it is in"),
            (Path::new("plugins/kf5/everything"), "a link to a directory that it is in"),
            (Path::new("plugins/kf5/zero.so"), "not a regular file"),
            (Path::new("share/applications/gone.desktop"), "not a regular file"),
            (Path::new("share/applications/null.desktop"), "not a regular file"),
        ]
    );
}

#[test]
fn directories_beyond_the_most_are_left_out_also_where_another_list_of_them_follows() {
    let dir = tempfile::tempdir().unwrap();
    let roots = ["a", "b"].map(|name| dir.path().join(name));
    for number in 0..4_005 {
        fs::create_dir_all(roots[0].join(number.to_string())).unwrap();
    }
    fs::create_dir(&roots[1]).unwrap();
    let sources = IndexSources { plugin_roots: roots.to_vec(), ..IndexSources::default() };
    let built = build(&sources, None, CheckDepth::Files).unwrap();
    assert_eq!(built.faults.len(), 1, "{:?}", built.faults);
    assert!(Index::from_bytes(built.image).is_ok());
}

#[test]
fn large_files_of_nothing_but_groups_keys_or_actions_take_no_longer_than_reading_them() {
    let machine = Machine::new();
    let many = |text: &dyn Fn(usize) -> String| (0..100_000).map(text).collect::<String>();
    machine.app("groups.desktop", &many(&|number| format!("[Group {number}]\n")));
    machine.app("keys.desktop", &many(&|number| format!("X-Key{number}=1\n")));
    let actions = many(&|number| format!("a{number};"));
    let groups = many(&|number| format!("[Desktop Action a{number}]\nName=x\n"));
    machine.app("actions.desktop", &format!("Actions={actions}\n{groups}"));
    let again = format!("Actions={}\n[Desktop Action a]\nExec=", "a;".repeat(500_000));
    machine.app("again.desktop", &format!("{again}{}\n", "x".repeat(1_000_000)));
    let start = std::time::Instant::now();
    let (index, _) = machine.refresh();
    assert_eq!(index.apps().count(), 4);
    // Squares of these numbers take minutes, even where everything else is quick.
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(index.len_bytes() < 40_000_000, "{}", index.len_bytes());
}

#[test]
fn who_can_store_nothing_has_a_current_index_all_the_same() {
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    let sources = machine.location().sources().clone();
    // A file where a directory has to be: not even root can make one there.
    let file = machine.root.path().join("file");
    fs::write(&file, "").unwrap();
    let location = Location::new(file.join("cache"), sources, None);
    assert!(location.refresh(&*store::disk::real(), CheckDepth::Directories).is_err());
    assert!(
        location.make_unstored(CheckDepth::Directories).unwrap().plugin("plugin-0001").is_some()
    );
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_change() {
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    machine.refresh();
    let path = machine.location().path();
    let name = format!(".{}.unjank-0123456789abcdef", path.file_name().unwrap().display());
    fs::write(path.with_file_name(&name), "half of an index").unwrap();
    machine.plugin("two.so", 2);
    machine.refresh();
    let left = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [path.file_name().unwrap(), "index.lock".as_ref()]);
}

#[test]
fn a_damaged_index_is_made_again_when_every_file_is_looked_at() {
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    machine.refresh();
    let path = machine.location().path();
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(machine.location().open().is_err(), "a pipe that nobody writes to");
    machine.refresh();
    for damage in 0..40 {
        let mut bytes = whole.clone();
        let at = bytes.len() * damage / 40;
        if damage % 2 == 0 {
            bytes.truncate(at)
        } else {
            bytes[at] ^= 0x40
        }
        fs::write(&path, bytes).unwrap();
        // Whoever reads it now is told, and gets nothing that was not written.
        if let Ok(index) = machine.location().open() {
            let ids: Vec<_> = index.plugins().filter_map(|plugin| plugin.text("Id")).collect();
            let is_right = ids == ["plugin-0001"];
            assert!(is_right || index.is_damaged(), "damage at {at}: {ids:?}");
            assert!(is_right || !index.is_whole(), "damage at {at}");
        }
        let disk = store::disk::real();
        let (index, done) = machine.location().refresh(&*disk, CheckDepth::Files).unwrap();
        assert!(index.plugin("plugin-0001").is_some());
        assert!(matches!(done, RefreshOutcome::Made { opened: 0 | 1, .. }));
        assert!(machine.location().open().unwrap().is_whole());
    }
}

#[test]
fn nothing_of_a_damaged_index_gets_into_a_new_one() {
    let machine = Machine::new();
    machine.plugin("one.so", 1);
    machine.refresh();
    let path = machine.location().path();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(11).position(|window| window == b"plugin-0001").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    machine.plugin("kf5/two.so", 2);
    let (index, done) = machine.refresh();
    assert!(index.plugin("plugin-0001").is_some());
    assert!(matches!(done, RefreshOutcome::Made { opened: 2, .. }));
}

#[test]
fn what_a_power_cut_took_of_an_index_is_noticed() {
    let machine = Machine::new();
    (0..40).for_each(|number| drop(machine.plugin(&format!("{number:02}.so"), number)));
    machine.refresh();
    let path = machine.location().path();
    let whole = fs::read(&path).unwrap();
    // Pages that never reached the disk.
    for page in 0..whole.len().div_ceil(4096) {
        let mut bytes = whole.clone();
        let end = bytes.len().min((page + 1) * 4096);
        bytes[page * 4096..end].fill(0);
        fs::write(&path, bytes).unwrap();
        let answer = machine.ids_asked();
        assert_eq!((answer.value.len(), answer.was_damaged), (40, true), "page {page}");
        assert!(machine.location().open().unwrap().is_whole());
    }
}

#[test]
fn who_asks_for_applications_is_not_told_of_plugins() {
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    machine.app("a.desktop", "");
    let (index, _) = machine.refresh();
    machine.plugin("kf5/two.so", 2);
    assert!(index.stale(&IndexPart::OF_OPENERS).is_none());
    assert!(index.stale(&[IndexPart::Plugins]).unwrap().ends_with("kf5"));
    let (index, _) = machine.refresh();
    machine.app("kde/b.desktop", "");
    assert!(index.stale(&[IndexPart::Plugins]).is_none());
    assert!(index.stale(&[IndexPart::Applications]).is_some());
}

#[test]
fn who_asks_for_a_namespace_is_told_of_what_is_on_the_way_to_it() {
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    fs::create_dir_all(machine.root.path().join("plugins/kf5/kio")).unwrap();
    fs::create_dir_all(machine.root.path().join("plugins/kf50")).unwrap();
    let (index, _) = machine.refresh();
    for namespace in ["kf5", "kf5/kio", "kf5/new", "none", ""] {
        assert_eq!(index.stale_namespace(namespace), None, "{namespace}");
    }
    machine.plugin("kf50/two.so", 2);
    assert_eq!(index.stale_namespace("kf5/kio"), None, "another directory of a like name");
    machine.plugin("kf5/kio/three.so", 3);
    assert!(index.stale_namespace("kf5/kio").unwrap().ends_with("kf5/kio"));
    assert_eq!(index.stale_namespace("kf5"), None);
    fs::create_dir(machine.root.path().join("plugins/kf5/new")).unwrap();
    assert!(index.stale_namespace("kf5/new").unwrap().ends_with("kf5"));
    fs::create_dir(machine.root.path().join("plugins/none")).unwrap();
    assert!(index.stale_namespace("none").unwrap().ends_with("plugins"));
}

#[test]
fn who_asks_for_a_plugin_is_told_of_what_counts_as_much_or_more() {
    let machine = Machine::new();
    machine.plugin("a/early.so", 1);
    machine.plugin("b/below/deep.so", 2);
    machine.plugin("b/one.so", 3);
    machine.plugin("c/late.so", 4);
    let (index, _) = machine.refresh();
    let id = |name: &str| {
        let mut all = index.plugins();
        let record = all.find(|record| record.path().unwrap().ends_with(name)).unwrap();
        record.text("Id").unwrap().to_owned()
    };
    let one = id("b/one.so");
    assert_eq!(index.stale_plugin(&one), None);
    machine.plugin("c/later.so", 5);
    assert_eq!(index.stale_plugin(&one), None, "it does not change which one is the first");
    assert!(index.stale_plugin("nobody").unwrap().ends_with("c"));
    assert!(index.stale_plugin(&id("c/late.so")).unwrap().ends_with("c"));
    machine.plugin("b/below/deeper.so", 6);
    assert_eq!(index.stale_plugin(&one), None, "what is below a directory counts less");
    let (index, _) = machine.refresh();
    machine.plugin("b/another.so", 7);
    assert!(index.stale_plugin(&one).unwrap().ends_with("b"));
    let (index, _) = machine.refresh();
    machine.plugin("a/earlier.so", 8);
    assert!(index.stale_plugin(&one).unwrap().ends_with("a"));
}

#[test]
fn files_that_come_where_nothing_was_are_noticed() {
    let machine = Machine::new();
    let share = machine.root.path().join("share");
    let (index, _) = machine.refresh();
    fs::create_dir(share.join("mime")).unwrap();
    assert!(index.stale(&[IndexPart::Types]).is_some(), "the directory came");
    let (index, _) = machine.refresh();
    fs::write(share.join("mime/aliases"), "a/b c/d\n").unwrap();
    assert!(index.stale(&[IndexPart::Types]).is_some(), "the file came");
    // A link that leads nowhere, and then somewhere: its directory does not change.
    let list = share.join("applications/mimeapps.list");
    std::os::unix::fs::symlink("../elsewhere", list).unwrap();
    let (index, _) = machine.refresh();
    assert!(index.stale(&IndexPart::ALL).is_none());
    fs::write(share.join("elsewhere"), "[Default Applications]\n").unwrap();
    assert!(index.stale(&[IndexPart::Openers]).is_some(), "what a link leads to came");
}

#[test]
fn an_index_on_the_systems_one_is_the_same_as_one_from_nothing() {
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    machine.app("a.desktop", "MimeType=text/plain;\n");
    let list = machine.root.path().join("share/applications/mimeinfo.cache");
    fs::write(list, "[MIME Cache]\ntext/plain=a.desktop;\n").unwrap();
    let system = machine.location().sources().clone();
    tick();
    let base = Index::from_bytes(build(&system, None, CheckDepth::Files).unwrap().image).unwrap();
    // A user's directories come before the system's, which moves those on; a root inside of another changes namespaces.
    let mut user = system.clone();
    user.places.data_home = Some(machine.root.path().join("home"));
    user.plugin_roots.insert(0, machine.root.path().join("plugins/kf5"));
    let on_base = build(&user, Some(&base), CheckDepth::Directories).unwrap();
    assert_eq!(on_base.image, build(&user, None, CheckDepth::Files).unwrap().image);
    let index = Index::from_bytes(on_base.image).unwrap();
    let openers = Openers::new(&index, &user.places.path);
    assert_eq!(openers.default_for("text/plain").unwrap().1.id, "a.desktop");
}

#[test]
fn a_sessions_first_index_takes_over_the_systems_whatever_its_desktop_and_its_own_directories() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    machine.plugin("kf5/one.so", 1);
    let at = |name: &str| machine.root.path().join(name);
    // As a package manager: no desktop, no home, a spelling of its own of the same language.
    let mut sources = machine.location().sources().clone();
    sources.locale = "de_DE".into();
    let system = Location::of_system(at("system"), &sources);
    tick();
    system.refresh(&*store::disk::real(), CheckDepth::Directories).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&system.path()), mode(&at("system"))), (0o644, 0o755));
    let session = |locale: &str| {
        let mut sources = sources.clone();
        sources.places.desktops = vec!["kde".into()];
        sources.places.data_home = Some(at("home"));
        sources.places.data_dirs.insert(0, at("flatpak"));
        sources.locale = locale.into();
        let location = Location::new(at("cache"), sources, Some(at("system")));
        location.refresh(&*store::disk::real(), CheckDepth::Directories).unwrap()
    };
    let (index, done) = session("de_DE.UTF-8");
    assert!(matches!(done, RefreshOutcome::Made { opened: 0, plugins: 1, .. }), "{done:?}");
    assert!(index.plugin("plugin-0001").is_some());
    // Its texts are of no use to another language.
    assert!(matches!(session("sv_SE.UTF-8").1, RefreshOutcome::Made { opened: 1, .. }));
}
