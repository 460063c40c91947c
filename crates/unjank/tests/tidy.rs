//! Rules of the workspace: floors, file lengths, where unsafe may be, and documents that tell the truth.
#![expect(clippy::unwrap_used, reason = "a rule that cannot be read is a rule that fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// A crate's floor: it may depend on lower floors only.
const FLOORS: [(&str, u8); 10] = [
    ("unjank-preload", 0),
    ("unjank-relax", 1),
    ("unjank-writeback", 1),
    ("unjank-sys", 0),
    ("unjank-report", 1),
    ("unjank-store", 1),
    ("unjank-session", 2),
    ("unjank-bus", 3),
    ("unjank-probe", 4),
    ("unjank", 5),
];

/// Crates that one floor keeps to itself, and who that is.
const KEPT: [(&str, &[&str]); 6] = [
    ("zbus", &["unjank-bus"]),
    ("clap", &["unjank"]),
    ("tokio", &["unjank-bus", "unjank"]),
    ("memmap2", &["unjank-sys"]),
    ("ratatui", &["unjank"]),
    ("crossterm", &["unjank"]),
];

const LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files that git knows below `dir`, or would know, with this ending.
fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", dir])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files failed");
    let names = str::from_utf8(&output.stdout).unwrap();
    let found: Vec<PathBuf> =
        names.lines().filter(|name| name.ends_with(ending)).map(|n| root().join(n)).collect();
    found.into_iter().filter(|path| path.exists()).collect()
}

/// Every workspace crate with the names of what it depends on when it is built.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let uses = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let built = all.filter(|dependency| dependency["kind"] != "dev");
        built.map(|d| d["name"].as_str().unwrap().to_owned()).collect()
    };
    packages.iter().map(|p| (p["name"].as_str().unwrap().to_owned(), uses(p))).collect()
}

/// What is wrong with these dependencies, a sentence each.
fn floor_faults(dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let floors: BTreeMap<&str, u8> = FLOORS.into();
    let mut faults = Vec::new();
    for (name, uses) in dependencies {
        let Some(floor) = floors.get(&**name) else {
            faults.push(format!("{name} has no floor"));
            continue;
        };
        for used in uses {
            if floors.get(&**used).is_some_and(|lower| lower >= floor) {
                faults.push(format!("{name} (floor {floor}) uses {used}"));
            }
            let keepers = KEPT.iter().find(|(kept, _)| kept == used).map(|(_, who)| who);
            if keepers.is_some_and(|who| !who.contains(&&**name)) {
                faults.push(format!("{name} uses {used}, which is not for it"));
            }
        }
    }
    faults
}

#[test]
fn a_crate_uses_lower_floors_only() {
    assert_eq!(floor_faults(&dependencies()), Vec::<String>::new());
}

#[test]
fn a_crate_on_the_wrong_floor_is_noticed() {
    let mut planted = dependencies();
    planted.get_mut("unjank-store").unwrap().insert("unjank-bus".into());
    planted.get_mut("unjank-session").unwrap().insert("zbus".into());
    planted.insert("unjank-attic".into(), BTreeSet::new());
    assert_eq!(floor_faults(&planted).len(), 3);
}

#[test]
fn no_file_is_over_800_lines() {
    let long: Vec<_> = files("crates", ".rs")
        .into_iter()
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES)
        .collect();
    assert!(long.is_empty(), "over {LINES} lines: {long:?}");
}

/// Whether code (not a comment, not a text in quotes) says `unsafe`.
fn has_unsafe(source: &str) -> bool {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split('"').step_by(2))
        .flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .any(|word| word == "unsafe")
}

#[test]
fn unsafe_code_is_in_sys_and_what_is_preloaded_only() {
    let allowed =
        ["sys", "preload", "relax", "writeback"].map(|name| root().join("crates").join(name));
    let outside: Vec<_> = files("crates", ".rs")
        .into_iter()
        .filter(|path| !allowed.iter().any(|allowed| path.starts_with(allowed)))
        .filter(|path| has_unsafe(&fs::read_to_string(path).unwrap()))
        .collect();
    assert!(outside.is_empty(), "unsafe where it may not be: {outside:?}");
}

/// The files outside `store::publish` whose code, tests apart, renames something.
fn renamers() -> Vec<PathBuf> {
    let may = ["crates/store/src/publish/", "crates/store/src/disk/", "crates/store/src/sim/"];
    let code = |path: &PathBuf| {
        let source = fs::read_to_string(path).unwrap();
        source.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
    };
    let sources =
        files("crates", ".rs").into_iter().filter(|path| path.to_string_lossy().contains("/src/"));
    let sources = sources
        .filter(|path| !path.ends_with("tests.rs"))
        .filter(|path| !may.iter().any(|dir| path.starts_with(root().join(dir))));
    sources
        .filter(|path| code(path).contains(".rename(") || code(path).contains("::rename("))
        .collect()
}

#[test]
fn only_publish_renames() {
    // The doctor measures what a replaced file costs, in a directory of its own.
    let measured = root().join("crates/probe/src");
    let others: Vec<_> =
        renamers().into_iter().filter(|path| !path.starts_with(&measured)).collect();
    assert!(others.is_empty(), "renames outside store::publish: {others:?}");
}

#[test]
fn unsafe_code_is_told_from_the_word() {
    assert!(has_unsafe("fn f() { unsafe { g() } }"));
    assert!(!has_unsafe("// unsafe\nlet s = \"unsafe\"; unsafe_code();"));
}

#[test]
fn each_crate_opens_with_its_reason() {
    for path in files("crates", "/src/lib.rs").into_iter().chain(files("crates", "/src/main.rs")) {
        let source = fs::read_to_string(&path).unwrap();
        let first = source.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.ends_with('.'), "{path:?}: {first:?}");
    }
}

#[test]
fn each_dependency_has_its_reason_beside_it() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let table = table.split("\n[").next().unwrap();
    let mut previous = "";
    for line in table.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with('#') && !line.contains("path = ") {
            assert!(previous.starts_with("# "), "no reason above: {line}");
        }
        previous = line;
    }
}

/// The `unjank …` command lines in the shell blocks and code spans of a document.
fn commands(document: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut shell = None;
    for line in document.lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            shell = if shell.is_some() { None } else { Some(kind.trim() == "sh") };
            continue;
        }
        let texts: Vec<&str> = match shell {
            Some(true) => vec![line.trim_start_matches("$ ")],
            Some(false) => Vec::new(),
            None => line.split('`').skip(1).step_by(2).collect(),
        };
        for text in texts {
            let text = text
                .trim()
                .strip_prefix("cargo run --release -- ")
                .map_or(text.trim().strip_prefix("unjank ").map(str::to_owned), |rest| {
                    Some(rest.to_owned())
                });
            let words: Vec<String> = text
                .unwrap_or_default()
                .split_whitespace()
                .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
                .take_while(|word| !word.starts_with('-'))
                .map(str::to_owned)
                .collect();
            if !words.is_empty() {
                found.push(words);
            }
        }
    }
    found
}

/// Whether the command has this chain of subcommands: its help is asked, nothing is done.
fn exists(words: &[String]) -> bool {
    let help = |words: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_unjank")).arg("help").args(words).output();
        output.unwrap().status.success()
    };
    // What follows the last subcommand is an argument, so the longest chain that is known counts,
    // but the first word must be one and a group must be followed by one of its own.
    if !help(&words[..1]) {
        return false;
    }
    let groups = ["settings", "bench", "generate"];
    words.len() == 1 || !groups.contains(&&*words[0]) || help(&words[..2])
}

#[test]
fn every_command_in_the_documents_exists() {
    let documents = files(".", ".md");
    let mut asked = BTreeSet::new();
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        // The table of parts names what is planned too; it marks those rows.
        let text: String = text
            .lines()
            .filter(|line| !line.contains("not yet"))
            .map(|l| format!("{l}\n"))
            .collect();
        for words in commands(&text) {
            assert!(
                !asked.insert(words.clone()) || exists(&words),
                "{path:?} names `unjank {}`, which does not exist",
                words.join(" ")
            );
        }
    }
    assert!(!asked.is_empty(), "no document names a command");
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    let found = commands("Run `unjank settings frobnicate /a`.\n```sh\n$ unjank wish\n```\n");
    assert_eq!(found, [vec!["settings".to_owned(), "frobnicate".into()], vec!["wish".into()]]);
    assert!(found.iter().all(|words| !exists(words)));
}
