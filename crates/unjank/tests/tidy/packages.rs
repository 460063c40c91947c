//! Each library crate can be published by itself: what its manifest says, what its README has, and that it is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{files, root};

/// Libraries that programs load and no Rust program links: their examples are command lines.
const LOADED: [&str; 4] = ["unjank-capi", "unjank-gio", "unjank-relax", "unjank-writeback"];

/// The sections that every README has.
const SECTIONS: [&str; 3] = ["\n## Limits\n", "\n## How it is tested\n", "\n## Versions\n"];

/// What `cargo metadata` says of every package with a library, apart from that of the programs.
fn libraries() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| package["name"] != "unjank").cloned().collect()
}

/// What is missing in a package's manifest, a sentence each.
fn manifest_faults(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let count = |key: &str| package[key].as_array().map_or(0, Vec::len);
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("{name} {what}"));
        }
    };
    expect(name.starts_with("unjank-"), "lacks the prefix");
    expect((40..=140).contains(&text("description").len()), "has no sentence as description");
    expect(!text("license").is_empty(), "has no license");
    expect(!text("rust_version").is_empty(), "has no rust-version");
    expect(text("readme") == "README.md", "has no README.md");
    expect((2..=5).contains(&count("keywords")), "has not two to five keywords");
    expect(count("categories") > 0, "has no category");
    expect(package["publish"].is_null(), "is not to be published");
    for dependency in package["dependencies"].as_array().unwrap() {
        let is_open = dependency["req"] == "*";
        expect(!is_open, &format!("depends on any version of {}", dependency["name"]));
    }
    faults
}

/// Which texts of the licences a package does not hold, a sentence each.
fn licence_faults(directory: &Path) -> Vec<String> {
    let is_other =
        |name: &&str| fs::read(directory.join(name)).ok() != fs::read(root().join(name)).ok();
    let missing = ["LICENSE-MIT", "LICENSE-APACHE"].into_iter().filter(is_other);
    missing.map(|name| format!("{} has not our {name}", directory.display())).collect()
}

/// What is missing in the README of a package, a sentence each.
fn readme_faults(package: &Value, readme: &str) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("the README of {name} {what}"));
        }
    };
    expect(readme.starts_with(&format!("# {name}\n")), "does not begin with its name");
    for section in SECTIONS {
        expect(readme.contains(section), &format!("has no section {:?}", section.trim()));
    }
    let rust = package["rust_version"].as_str().unwrap_or_default();
    expect(readme.contains(&format!("Rust {rust} ")), "names another version of Rust");
    let example = if LOADED.contains(&name) { "```sh\n" } else { "```rust" };
    expect(readme.contains(example), "has no example");
    faults
}

#[test]
fn each_library_crate_can_be_published() {
    let libraries = libraries();
    assert!(libraries.len() > 20, "{} packages", libraries.len());
    let mut faults = Vec::new();
    for package in &libraries {
        let directory = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let readme = fs::read_to_string(directory.join("README.md")).unwrap_or_default();
        faults.extend(manifest_faults(package));
        faults.extend(licence_faults(directory));
        faults.extend(readme_faults(package, &readme));
        let front = fs::read_to_string(directory.join("src/lib.rs")).unwrap();
        let is_tested = front.contains("#[doc = include_str!(\"../README.md\")]");
        if !is_tested && !LOADED.contains(&package["name"].as_str().unwrap()) {
            faults.push(format!("the examples of {} are not tested", package["name"]));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_package_that_cannot_be_published_is_noticed() {
    let mut package = libraries().into_iter().find(|p| p["name"] == "unjank-gvdb").unwrap();
    package["description"] = "Tables".into();
    package["keywords"] = serde_json::json!(["a", "b", "c", "d", "e", "f"]);
    package["dependencies"][0]["req"] = "*".into();
    assert_eq!(manifest_faults(&package).len(), 3);
    let directory = tempfile::tempdir().unwrap();
    fs::copy(root().join("LICENSE-MIT"), directory.path().join("LICENSE-MIT")).unwrap();
    assert_eq!(licence_faults(directory.path()).len(), 1);
    let faults = readme_faults(&package, "# unjank-gvdb\n\nRust 1.0 or later.\n\n## Limits\n");
    assert_eq!(faults.len(), 4, "{faults:?}");
}

/// Returns the files that a source includes from outside of its crate, as they are written there.
fn outside(crate_dir: &Path, path: &Path, source: &str) -> Vec<String> {
    let included = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];
    let begins = included.iter().flat_map(|include| source.match_indices(include));
    let named = begins.map(|(at, include)| {
        let rest = &source[at + include.len()..];
        rest.split('"').next().unwrap_or_default().to_owned()
    });
    let depth = path.parent().unwrap().strip_prefix(crate_dir).unwrap().components().count();
    named.filter(|name| name.split('/').filter(|part| *part == "..").count() > depth).collect()
}

#[test]
fn a_package_holds_what_its_code_includes() {
    let mut faults = Vec::new();
    for path in files("crates", ".rs") {
        let crate_dir = root()
            .join("crates")
            .join(path.strip_prefix(root().join("crates")).unwrap().components().next().unwrap());
        // The fuzz targets' bodies, which tests replay, are in a workspace of their own.
        if path.starts_with(crate_dir.join("tests")) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        faults.extend(
            outside(&crate_dir, &path, &source).into_iter().map(|name| (path.clone(), name)),
        );
    }
    assert!(faults.is_empty(), "not in the package: {faults:?}");
    let source = "const A: &str = include_str!(\"../../a.c\"); include_str!(\"../b.c\")";
    let planted = outside(Path::new("/c"), Path::new("/c/src/lib.rs"), source);
    assert_eq!(planted, ["../../a.c"]);
}

/// Adds the public types of a source to those that are known, each with the crates that have one of that name.
fn note_types(types: &mut BTreeMap<String, BTreeSet<String>>, crate_name: &str, source: &str) {
    let code = source.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    for line in code.lines() {
        let mut words = line.split_whitespace();
        let is_type = words.next() == Some("pub")
            && matches!(words.next(), Some("struct" | "enum" | "trait" | "type" | "union"));
        let name = words.next().filter(|_| is_type).unwrap_or_default();
        let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
        if !name.is_empty() {
            types.entry(name).or_default().insert(crate_name.to_owned());
        }
    }
}

#[test]
fn the_name_of_a_public_type_means_one_thing_in_the_workspace() {
    let mut types = BTreeMap::new();
    for path in files("crates", ".rs") {
        let below = path.strip_prefix(root().join("crates")).unwrap().to_str().unwrap();
        let (crate_name, rest) = below.split_once('/').unwrap();
        if rest.starts_with("src/") && !rest.ends_with("tests.rs") {
            note_types(&mut types, crate_name, &fs::read_to_string(&path).unwrap());
        }
    }
    assert!(types.len() > 500, "{} types", types.len());
    let shared: Vec<_> = types.iter().filter(|(_, crates)| crates.len() > 1).collect();
    assert!(shared.is_empty(), "in more than one crate: {shared:?}");
    note_types(&mut types, "planted", "    pub enum GvdbTable<'a> {\n");
    assert_eq!(types["GvdbTable"].len(), 2);
}

/// The versions that these texts name, each with the file that it stands in.
fn versions(read: impl Fn(&str) -> String) -> Vec<(&'static str, String)> {
    let after = |text: &str, begin: &str| {
        let found =
            text.lines().find_map(|line| line.trim().strip_prefix(begin).map(str::to_owned));
        let rest = found.unwrap_or_default();
        let rest = rest.trim_start().trim_start_matches('"');
        rest.split(['"', ' ']).next().unwrap_or_default().to_owned()
    };
    let files = [
        ("Cargo.toml", "version ="),
        ("fleet/Cargo.toml", "version ="),
        ("CHANGELOG.md", "## "),
        ("packaging/org.unjank.unjank.metainfo.xml", "<release version="),
        ("packaging/rpm/unjank.spec", "Version:"),
        ("packaging/arch/PKGBUILD", "pkgver="),
    ];
    let mut found: Vec<_> =
        files.into_iter().map(|(file, begin)| (file, after(&read(file), begin))).collect();
    // Of each crate that another one of ours depends on.
    for line in read("Cargo.toml").lines().filter(|line| line.contains("path = \"crates/")) {
        let version = line.split("version = \"").nth(1).and_then(|rest| rest.split('"').next());
        found.push(("Cargo.toml", version.unwrap_or_default().to_owned()));
    }
    found
}

#[test]
fn there_is_one_version() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let found = versions(read);
    assert!(
        found.iter().all(|(_, version)| *version == found[0].1),
        "packaging/set-version sets it: {found:?}"
    );
    let nix = read("packaging/nix/package.nix");
    assert!(nix.contains("workspace.package.version"), "{nix}");
    // The entry of the last version in the changelog of the spec.
    let spec = read("packaging/rpm/unjank.spec");
    let last =
        spec.lines().skip_while(|line| *line != "%changelog").find(|line| line.starts_with('*'));
    assert!(last.is_some_and(|line| line.ends_with(&format!(" - {}-1", found[0].1))), "{last:?}");
}

#[test]
fn a_version_that_differs_is_found() {
    let read = |file: &str| match file {
        "packaging/arch/PKGBUILD" => "pkgver=9.9.9\n".to_owned(),
        _ => fs::read_to_string(root().join(file)).unwrap(),
    };
    let found = versions(read);
    assert!(found.contains(&("packaging/arch/PKGBUILD", "9.9.9".to_owned())));
    assert_ne!(found[0].1, "9.9.9");
}
