//! Replays the bodies of the fuzz targets for plugins and applications over the committed corpus, and over small changes to it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

#[path = "../../../fuzz/src/catalogue.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod catalogue;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use unjank_session::apps::place::Places;
use unjank_session::index::build::{Look, build};
use unjank_session::index::sources::Sources;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs `body` over the corpus and over changed copies; returns the number of inputs, or what was wrong.
fn replay(target: &str, body: fn(&[u8])) -> Result<usize, String> {
    let mut inputs = 0;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for entry in fs::read_dir(corpus(target)).unwrap() {
        let path = entry.unwrap().path();
        let original = fs::read(&path).unwrap();
        for round in 0..100_usize {
            let mut data = original.clone();
            for _ in 0..round.min(4) {
                // An xorshift generator: the same changes in each run.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [a, b, c, kind, ..] = state.to_le_bytes();
                let at = usize::from(u16::from_le_bytes([a, c])) % (data.len() + 1);
                match kind % 5 {
                    0 => data.truncate(at),
                    1 => data.insert(at, b),
                    2 if at < data.len() => data[at] = b % 4,
                    3 if at < data.len() => data[at] ^= 1 << (b % 8),
                    _ if at < data.len() => data[at] = b,
                    _ => data.push(0),
                }
            }
            inputs += 1;
            catch_unwind(|| body(&data))
                .map_err(|_| format!("{} in round {round}: {data:?}", path.display()))?;
        }
    }
    Ok(inputs)
}

#[test]
fn the_corpus_passes() {
    type Body = fn(&[u8]);
    let targets: [(&str, Body); 5] = [
        ("plugin_elf", catalogue::plugin_elf),
        ("plugin_metadata", catalogue::plugin_metadata),
        ("desktop_file", catalogue::desktop_file),
        ("mimeapps_list", catalogue::mimeapps_list),
        ("catalogue_index", catalogue::index),
    ];
    for (target, body) in targets {
        let inputs = replay(target, body).unwrap_or_else(|why| panic!("{target}: {why}"));
        assert!(inputs >= 100, "{target}");
    }
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(data.len() < 100, "planted");
    assert!(replay("desktop_file", wrong).is_err());
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
    let places = Places { data_dirs: vec![at("share")], ..Places::default() };
    let sources = Sources { plugin_roots: vec![at("plugins")], places, ..Sources::default() };
    let built = build(&sources, None, Look::Files).unwrap();
    assert_eq!((built.plugins, built.applications, built.faults.len()), (2, 1, 1));
    if std::env::var_os("WRITE_CORPUS").is_some() {
        fs::write(corpus("catalogue_index").join("small"), &built.image).unwrap();
    }
    assert!(catch_unwind(|| catalogue::index(&built.image)).is_ok());
}
