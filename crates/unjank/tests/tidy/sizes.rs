//! How large a crate may be: one that is larger holds more than one subject.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{files, root};

/// The most lines of a crate, tests apart.
const CRATE_LINES: usize = 22_000;
/// The most lines of the command, which reads arguments and the environment, and prints: some 900 for each of its subjects.
const COMMAND_LINES: usize = 16_600;

/// Counts the lines of a source without the items that are for tests alone.
fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut count, mut at) = (0, 0);
    while let Some(line) = lines.get(at) {
        if !line.trim_start().starts_with("#[cfg(test)]") {
            (count, at) = (count + 1, at + 1);
            continue;
        }
        // The formatter closes an item at the indentation of its first line.
        let depth = indent(line);
        let is_end = |line: &&str| {
            let line = line.trim_end();
            indent(line) == depth
                && line.ends_with(['}', ';', ','])
                && !line.trim_start().starts_with("#[")
        };
        at += lines[at..].iter().position(is_end).map_or(lines.len(), |length| length + 1);
    }
    count
}

/// Returns the files of the modules that the file at `path` declares for tests alone.
fn test_files(path: &Path, source: &str) -> Vec<PathBuf> {
    let is_root = path.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs");
    let below = if is_root { path.parent().unwrap().to_owned() } else { path.with_extension("") };
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
    let names = declared.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
    names.map(|name| below.join(format!("{name}.rs"))).collect()
}

/// Returns the crates that are too large, a sentence each.
fn size_faults(sizes: &BTreeMap<String, usize>) -> Vec<String> {
    let limit = |name: &str| if name == "unjank" { COMMAND_LINES } else { CRATE_LINES };
    let large = sizes.iter().filter(|(name, lines)| **lines > limit(name));
    large.map(|(name, lines)| format!("{name}: {lines} of {}", limit(name))).collect()
}

#[test]
fn a_crate_is_small_enough_for_one_subject() {
    let mut sizes = BTreeMap::new();
    let sources = files("crates", ".rs").into_iter();
    let sources: Vec<_> = sources.map(|path| (fs::read_to_string(&path).unwrap(), path)).collect();
    let tests: BTreeSet<PathBuf> =
        sources.iter().flat_map(|(source, path)| test_files(path, source)).collect();
    for (source, path) in &sources {
        let below = path.strip_prefix(root().join("crates")).unwrap().to_str().unwrap();
        let (name, rest) = below.split_once('/').unwrap();
        let is_test = tests.contains(path) || rest.contains("/tests/");
        if rest.starts_with("src/") && !is_test {
            *sizes.entry(name.to_owned()).or_default() += lines_without_tests(source);
        }
    }
    assert!(sizes.len() > 20, "{sizes:?}");
    assert_eq!(size_faults(&sizes), Vec::<String>::new());
}

#[test]
fn a_crate_that_is_too_large_is_noticed() {
    let sizes = [("trace", 22_001), ("unjank", 16_601), ("bus", 22_000)];
    let sizes = sizes.map(|(name, lines)| (name.to_owned(), lines)).into();
    assert_eq!(size_faults(&sizes), ["trace: 22001 of 22000", "unjank: 16601 of 16600"]);
    let declared = "mod a;\n#[cfg(test)]\nmod b;\n";
    assert_eq!(test_files(Path::new("/c/mod.rs"), declared), [Path::new("/c/b.rs")]);
    assert_eq!(test_files(Path::new("/c/d.rs"), declared), [Path::new("/c/d/b.rs")]);
    let source = "fn a() {}\n\n#[cfg(test)]\nuse x;\nfn b() {\n}\n#[cfg(test)]\n#[path = \"t.rs\"]\nmod tests {\n    fn c() {\n    }\n}\nfn d() {}\n";
    assert_eq!(lines_without_tests(source), 5);
}
