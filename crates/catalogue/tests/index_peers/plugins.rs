//! Plugins: the metadata of every plugin of this machine equals what Qt reads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use unjank_catalogue::plugins::metadata;

use super::{compiled, has, skip};

/// The plugins below a directory of this machine.
fn plugins(below: &str) -> Vec<PathBuf> {
    let root = format!("/usr/lib/{}-linux-gnu/{below}", std::env::consts::ARCH);
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::from(root)]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ending| ending == "so") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn told(program: &Path, what: &str, files: &[PathBuf]) -> Vec<Json> {
    let output = Command::new(program).arg(what).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Makes every number the same kind: Qt's JSON knows fractions only, and writes whole ones without a point.
fn plain(json: Json) -> Json {
    match json {
        Json::Number(number) => serde_json::json!(number.as_f64().unwrap()),
        Json::Array(items) => items.into_iter().map(plain).collect(),
        Json::Object(members) => {
            members.into_iter().map(|(name, value)| (name, plain(value))).collect()
        }
        other => other,
    }
}

/// What we read, as Qt 5's `QPluginLoader::metaData` gives it; nothing for a library that is no plugin.
fn ours(path: &Path) -> Option<Json> {
    let raw = metadata::read(&File::open(path).unwrap()).ok()?;
    let found = metadata::decode(&raw).unwrap();
    let mut json = found.root.to_json();
    let members = json.as_object_mut().unwrap();
    let built = found.built;
    let version = u32::from(built.major) << 16 | u32::from(built.minor) << 8;
    members.insert("version".into(), version.into());
    members.insert("debug".into(), (built.requirements & 1 == 1).into());
    members.insert("archreq".into(), built.requirements.into());
    Some(json)
}

#[test]
fn every_plugin_of_qt_5_says_what_qt_reads() {
    if !has(&["g++", "pkg-config", "qmake"]) {
        return;
    }
    let files = plugins("qt5/plugins");
    if files.len() < 10 {
        return skip("there are no plugins of Qt 5");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("tests/index_peers/qt_metadata.cpp", &[], dir.path());
    let theirs = told(&program, "plugin", &files);
    assert_eq!(theirs.len(), files.len());
    let mut compared = 0;
    for (path, theirs) in files.iter().zip(theirs) {
        let ours = ours(path).unwrap_or_else(|| serde_json::json!({}));
        compared += usize::from(ours.as_object().is_some_and(|members| !members.is_empty()));
        assert_eq!(plain(ours), plain(theirs), "{}", path.display());
    }
    assert!(compared >= 10, "{compared} of {}", files.len());
}

#[test]
fn every_plugin_of_qt_6_says_what_is_in_its_note() {
    if !has(&["g++", "pkg-config", "qmake", "objcopy"]) {
        return;
    }
    let files = plugins("qt6/plugins");
    if files.is_empty() {
        // Nothing that the tests install brings any.
        eprintln!("SKIPPED: there are no plugins of Qt 6");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("tests/index_peers/qt_metadata.cpp", &[], dir.path());
    let mut maps = Vec::new();
    let mut compared = Vec::new();
    for (number, path) in files.iter().enumerate() {
        // Found by binutils, whatever we think of where it is.
        let section = dir.path().join(format!("{number}.note"));
        let dump = format!("--dump-section=.note.qt.metadata={}", section.display());
        let copy = Command::new("objcopy").arg(dump).arg(path).arg("/dev/null").output().unwrap();
        let Ok(note) = fs::read(&section) else {
            assert!(ours(path).is_none(), "{}: {copy:?}", path.display());
            continue;
        };
        // Three numbers, the name with its zero, and four bytes of versions.
        let map = dir.path().join(format!("{number}.cbor"));
        fs::write(&map, &note[12 + 12 + 4..]).unwrap();
        maps.push(map);
        compared.push((path, note[12 + 12 + 1..12 + 12 + 4].to_vec()));
    }
    for ((path, built), theirs) in compared.iter().zip(told(&program, "cbor", &maps)) {
        let raw = metadata::read(&File::open(path).unwrap()).unwrap();
        let found = metadata::decode(&raw).unwrap();
        assert_eq!([found.built.major, found.built.minor, found.built.requirements], built[..]);
        let mut ours = found.root.to_json();
        for (name, number) in [("IID", "2"), ("className", "3"), ("MetaData", "4"), ("URI", "5")] {
            let members = ours.as_object_mut().unwrap();
            if let Some(value) = members.remove(name) {
                members.insert(number.into(), value);
            }
        }
        assert_eq!(plain(ours), plain(theirs), "{}", path.display());
    }
    assert!(!compared.is_empty());
}
