//! Replays the bodies of the fuzz targets for plugins and applications over the committed corpus, and over small changes to it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

#[path = "../../../fuzz/src/catalogue.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bodies;
#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
mod replay;

use std::fs;
use std::panic::catch_unwind;

use replay::{corpus, replay};
use unjank_catalogue::apps::place::ApplicationDirectories;
use unjank_catalogue::index::build::{CheckDepth, build};
use unjank_catalogue::index::sources::IndexSources;

#[test]
fn the_corpus_passes() {
    type Body = fn(&[u8]);
    let targets: [(&str, Body); 5] = [
        ("plugin_elf", bodies::plugin_elf),
        ("plugin_metadata", bodies::plugin_metadata),
        ("desktop_file", bodies::desktop_file),
        ("mimeapps_list", bodies::mimeapps_list),
        ("catalogue_index", bodies::index),
    ];
    for (target, body) in targets {
        let inputs = replay(target, 100, &[0, 1, 2, 3], body)
            .unwrap_or_else(|why| panic!("{target}: {why}"));
        assert!(inputs >= 100, "{target}");
    }
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(data.len() < 100, "planted");
    assert!(replay("desktop_file", 100, &[0, 1, 2, 3], wrong).is_err());
}

/// The seed of the index: it holds times and numbers of files, so it is never the same twice.
#[test]
fn the_seeds_are_read_as_what_they_are() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for (seed, name) in [
        ("plugin_elf/five", "plugins/kf5/five.so"),
        ("plugin_elf/six", "plugins/six.so"),
        ("desktop_file/application", "share/applications/files.desktop"),
        ("mimeapps_list/choices", "share/applications/mimeapps.list"),
        ("mimeapps_list/cache", "share/applications/mimeinfo.cache"),
    ] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::copy(corpus(seed), at(name)).unwrap();
    }
    fs::create_dir(at("share/mime")).unwrap();
    fs::write(at("share/mime/subclasses"), "text/x-a text/plain\n").unwrap();
    fs::write(at("plugins/bad.so"), "no plugin").unwrap();
    let places = ApplicationDirectories {
        data_dirs: vec![at("share")],
        ..ApplicationDirectories::default()
    };
    let sources =
        IndexSources { plugin_roots: vec![at("plugins")], places, ..IndexSources::default() };
    let built = build(&sources, None, CheckDepth::Files).unwrap();
    assert_eq!((built.plugins, built.applications, built.faults.len()), (2, 1, 1));
    if std::env::var_os("WRITE_CORPUS").is_some() {
        fs::write(corpus("catalogue_index").join("small"), &built.image).unwrap();
    }
    assert!(catch_unwind(|| bodies::index(&built.image)).is_ok());
}
