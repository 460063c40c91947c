//! Rules of the workspace: floors, file lengths, where unsafe may be, and documents that tell the truth.
#![expect(clippy::unwrap_used, reason = "a rule that cannot be read is a rule that fails")]

#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/sizes.rs"]
mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// A crate's floor: it may depend on lower floors only.
const FLOORS: &[(&str, u8)] = &[
    ("unjank-preload", 0),
    ("unjank-sys", 0),
    ("unjank-relax", 1),
    ("unjank-writeback", 1),
    ("unjank-report", 1),
    ("unjank-gvdb", 1),
    ("unjank-store", 1),
    ("unjank-xdg", 1),
    ("unjank-wire", 1),
    ("unjank-wakeups", 1),
    ("unjank-kernelwork", 1),
    ("unjank-kerneltrace", 1),
    ("unjank-settings", 2),
    ("unjank-listing", 2),
    ("unjank-catalogue", 2),
    ("unjank-recents", 2),
    ("unjank-host", 2),
    ("unjank-jobs", 2),
    ("unjank-trace", 2),
    ("unjank-capture", 2),
    ("unjank-slowdisk", 2),
    ("unjank-strace", 3),
    ("unjank-check", 3),
    ("unjank-forget", 3),
    ("unjank-hangs", 3),
    ("unjank-bus", 3),
    ("unjank-lab", 4),
    ("unjank-views", 4),
    ("unjank-setup", 4),
    ("unjank-bench", 5),
    ("unjank-doctor", 5),
    ("unjank-daemon", 5),
    ("unjank-recorder", 5),
    ("unjank-ls", 5),
    ("unjank-capi", 5),
    ("unjank-gio", 5),
    ("unjank", 6),
];

/// Crates that one floor keeps to itself, and who that is.
const KEPT: [(&str, &[&str]); 6] = [
    ("zbus", &["unjank-bus"]),
    ("clap", &["unjank", "unjank-daemon", "unjank-ls"]),
    ("tokio", &["unjank-bus", "unjank-daemon", "unjank-views", "unjank"]),
    ("memmap2", &["unjank-sys"]),
    ("ratatui", &["unjank-views"]),
    ("crossterm", &["unjank-views"]),
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
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
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
    planted.get_mut("unjank-settings").unwrap().insert("zbus".into());
    planted.insert("unjank-attic".into(), BTreeSet::new());
    assert_eq!(floor_faults(&planted).len(), 3);
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let mut crates: BTreeMap<String, modules::CrateSources> = BTreeMap::new();
    for path in files("crates", ".rs") {
        let below = path.strip_prefix(root().join("crates")).unwrap();
        let (name, rest) = below.to_str().unwrap().split_once('/').unwrap();
        if let Some(file) = rest.strip_prefix("src/") {
            let source = fs::read_to_string(&path).unwrap();
            crates.entry(name.to_owned()).or_default().add(file, &source);
        }
    }
    let mut circles = Vec::new();
    for (name, sources) in &crates {
        let all = sources.circles().into_iter();
        circles.extend(all.map(|circle| format!("{name}: {circle}")));
    }
    assert!(circles.is_empty(), "modules in a circle:\n{}", circles.join("\n"));
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
fn unsafe_code_is_in_sys_the_c_libraries_and_what_is_preloaded_only() {
    let allowed = ["sys", "capi", "gio", "preload", "relax", "writeback"]
        .map(|name| root().join("crates").join(name));
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
    let measured = ["doctor", "bench"].map(|name| root().join("crates").join(name).join("src"));
    let is_measured = |path: &PathBuf| measured.iter().any(|dir| path.starts_with(dir));
    let others: Vec<_> = renamers().into_iter().filter(|path| !is_measured(path)).collect();
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
fn each_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let pages = files("docs/*.md", ".md").iter().map(name).collect::<BTreeSet<_>>();
    let missing: Vec<_> = pages
        .iter()
        .filter(|page| *page != "SUMMARY.md" && !summary.contains(&format!("{page})")))
        .collect();
    assert!(pages.len() > 20 && missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

/// Returns the paths from the root that a document names in backticks and that do not exist; `<…>` and `*` stand for one name.
fn missing_paths(document: &str) -> (usize, Vec<String>) {
    let names = document.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| {
        // Others are commands, and paths of the machine.
        name.contains('/') && !name.contains(' ') && !name.starts_with(['/', '~', '$'])
    };
    let paths: BTreeSet<&str> = names.filter(is_path).collect();
    let missing = |path: &&&str| {
        let mut found = vec![root()];
        for part in path.split('/').filter(|part| !part.is_empty()) {
            found = match part.contains(['<', '*']) {
                true => found
                    .iter()
                    .flat_map(|at| fs::read_dir(at).into_iter().flatten())
                    .map(|entry| entry.unwrap().path())
                    .collect(),
                false => found.iter().map(|at| at.join(part)).filter(|at| at.exists()).collect(),
            };
        }
        found.is_empty()
    };
    (paths.len(), paths.iter().filter(missing).map(|path| (*path).to_owned()).collect())
}

#[test]
fn each_path_that_the_map_names_exists() {
    let (paths, missing) =
        missing_paths(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    assert!(paths > 50 && missing.is_empty(), "of {paths} paths, ARCHITECTURE.md has {missing:?}");
}

#[test]
fn a_path_that_does_not_exist_is_noticed() {
    let document = "`docs/no.md`, `docs/` and `crates/*/no`: `crates/<one>/src`, `/usr/no`, `~/no`, `crates/sys/src x`, `src/cli`";
    let missing = ["crates/*/no", "docs/no.md", "src/cli"].map(str::to_owned);
    assert_eq!(missing_paths(document), (5, missing.to_vec()));
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    let found = commands("Run `unjank settings frobnicate /a`.\n```sh\n$ unjank wish\n```\n");
    assert_eq!(found, [vec!["settings".to_owned(), "frobnicate".into()], vec!["wish".into()]]);
    assert!(found.iter().all(|words| !exists(words)));
}

/// The files of tests that no manifest and no `suite.rs` beside them names, which nothing would run.
fn forgotten(manifest: &str, suite: &str, files: &[&str]) -> Vec<String> {
    let named = |file: &str| {
        let stem = file.trim_end_matches(".rs");
        manifest.contains(&format!("path = \"tests/{file}\""))
            || suite.contains(&format!("\nmod {stem};"))
            || suite.contains(&format!("#[path = \"{file}\"]"))
    };
    let lost = files.iter().filter(|file| !named(file));
    lost.map(|file| (*file).to_owned()).collect()
}

#[test]
fn each_file_of_tests_is_run() {
    for manifest in files("crates", "Cargo.toml") {
        let text = fs::read_to_string(&manifest).unwrap();
        if !text.contains("autotests = false") {
            continue;
        }
        let tests = manifest.parent().unwrap().join("tests");
        let suite = fs::read_to_string(tests.join("suite.rs")).unwrap();
        let names = fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        let names: Vec<&str> =
            names.iter().map(|name| &**name).filter(|name| name.ends_with(".rs")).collect();
        assert_eq!(forgotten(&text, &suite, &names), Vec::<String>::new(), "{manifest:?}");
    }
}

#[test]
fn a_file_of_tests_that_nobody_runs_is_noticed() {
    let manifest = "[[test]]\nname = \"alone\"\npath = \"tests/alone.rs\"\n";
    let suite = "//! A suite.\n\nmod one;\n#[path = \"two.rs\"]\nmod other;\n";
    let files = ["alone.rs", "one.rs", "two.rs", "three.rs", "on.rs"];
    assert_eq!(forgotten(manifest, suite, &files), ["three.rs", "on.rs"]);
}

/// The tests that a list of groups leaves out, by a part of their names, and that are in no file.
fn left_out_in_vain(groups: &str, sources: &str) -> Vec<String> {
    let parts = groups.lines().filter_map(|line| line.strip_prefix("test "));
    let is_there = |part: &&str| match part.rsplit("::").next() {
        Some("") => part.split("::").all(|module| sources.contains(module)),
        Some(name) => sources.contains(&format!("fn {name}")),
        None => false,
    };
    parts.filter(|part| !is_there(part)).map(str::to_owned).collect()
}

#[test]
fn what_is_left_out_without_a_desktop_is_a_test_or_a_package() {
    let groups = fs::read_to_string(root().join("ci/desktop")).unwrap();
    let packages = fs::read_to_string(root().join("ci/packages")).unwrap();
    let in_tests = |path: &PathBuf| path.to_string_lossy().contains("/tests/");
    let tests = files("crates", ".rs").into_iter().filter(in_tests);
    let sources: String = tests.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(left_out_in_vain(&groups, &sources), Vec::<String>::new());
    let named = groups.lines().filter_map(|line| line.strip_prefix("package "));
    let unknown: Vec<_> =
        named.filter(|name| !packages.lines().any(|line| line == *name)).collect();
    assert!(unknown.is_empty(), "not in ci/packages: {unknown:?}");
}

#[test]
fn a_test_that_is_left_out_and_does_not_exist_is_noticed() {
    let groups = "group A\ntest one::it_works\ntest one::it_worked\ntest two::\n";
    let found = left_out_in_vain(groups, "mod one;\nfn it_works_well() {}\n");
    assert_eq!(found, ["one::it_worked", "two::"]);
}
