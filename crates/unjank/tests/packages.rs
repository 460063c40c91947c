//! What packages install is what their table lists, and it is what a distribution expects: manual pages without faults, completions that know values and the words of other commands.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::{OURS, has};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn built() -> &'static Path {
    Path::new(OURS).parent().unwrap()
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn stage() -> Command {
    let mut stage = Command::new(top().join("packaging/stage"));
    stage.env("SOURCE_DATE_EPOCH", "86400");
    stage
}

/// The packages that these tables have.
fn packages(tables: &[&str]) -> BTreeSet<String> {
    let text = |name: &&str| std::fs::read_to_string(top().join("packaging").join(name)).unwrap();
    let tables: String = tables.iter().map(text).collect();
    let rows = tables.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The files below `dir`, as paths from there.
fn files(dir: &Path) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(format!("/{}", path.strip_prefix(dir).unwrap().display()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_a_package_installs_is_what_the_table_lists() {
    if !has(&["/usr/bin/lowdown"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut places = BTreeSet::new();
    for package in packages(&["files", "files.python"]) {
        let dest = dir.path().join(&package);
        done(
            stage()
                .arg("--from")
                .arg(built())
                .args(["--package", &package])
                .arg("--dest")
                .arg(&dest),
        );
        let listed = done(stage().args(["--list", "--package", &package]));
        let (installed, listed) = (files(&dest), listed.lines().collect::<Vec<_>>());
        let covers = |place: &str, file: &str| match place.strip_suffix('/') {
            Some(dir) => Path::new(file).starts_with(dir),
            None => place == file,
        };
        for file in &installed {
            assert!(listed.iter().any(|place| covers(place, file)), "{package} lists no {file}");
            assert!(places.insert(file.clone()), "two packages install {file}");
        }
        for place in listed {
            let is_there = installed.iter().any(|file| covers(place, file));
            assert!(is_there, "{package} installs no {place}: {installed:?}");
        }
    }
    assert!(places.contains("/usr/share/man/man1/unjankd.1"), "{places:?}");
    assert!(places.contains("/usr/share/man/man5/unjank-journal.5"), "{places:?}");
}

#[test]
fn every_kind_of_package_is_made_of_the_table() {
    let text = |name: &str| std::fs::read_to_string(top().join("packaging").join(name)).unwrap();
    for (name, lists) in [
        ("rpm/unjank.spec", "%install"),
        ("arch/PKGBUILD", "stage "),
        ("nix/package.nix", "--package $name"),
    ] {
        let text = text(name);
        assert!(text.contains(lists), "{name}");
        let tables = ["files", "files.gio", "files.libunjank", "files.gir", "files.python"];
        for package in packages(&tables) {
            assert!(text.contains(&package), "{name} has no {package}");
        }
    }
    for name in ["rpm/unjank.spec", "arch/PKGBUILD", "nix/export.nix"] {
        assert!(text(name).contains("unjank-export"), "{name} has no unjank-export");
    }
    for (control, table) in [
        ("control", "files"),
        ("control.gio", "files.gio"),
        ("control.libunjank", "files.libunjank"),
        ("control.python", "files.python"),
        ("control.export", "files.export"),
        ("control.gir", "files.gir"),
    ] {
        let text = text(&format!("debian/{control}"));
        let named = text.lines().filter_map(|line| line.strip_prefix("Package: "));
        let named: BTreeSet<String> = named.map(str::to_owned).collect();
        assert_eq!(named, packages(&[table]), "debian/{control}");
    }
    for name in
        ["debian/rules", "rpm/unjank.spec", "arch/PKGBUILD", "nix/package.nix", "nix/export.nix"]
    {
        assert!(text(name).contains("packaging/stage"), "{name} does not use packaging/stage");
    }
    // A path that stands in one of them would be one more table.
    for (name, lists) in [
        ("rpm/unjank.spec", "%files"),
        ("arch/PKGBUILD", ""),
        ("nix/package.nix", ""),
        ("nix/export.nix", ""),
    ] {
        let text = text(name);
        let (_, part) = text.split_once(lists).unwrap();
        let has_paths = part.lines().any(|line| line.trim_start().starts_with("/usr/"));
        assert!(!has_paths, "{name} lists files of its own");
    }
}

#[test]
fn no_package_switches_a_unit_on_and_each_kind_takes_back_what_is_on_before_it_goes() {
    let text = |name: &str| std::fs::read_to_string(top().join("packaging").join(name)).unwrap();
    let rules = text("debian/rules");
    for line in
        ["\tdh_installsystemduser --no-enable\n", "\tdh_installsystemd --no-enable --no-start\n"]
    {
        assert!(rules.contains(line), "debian/rules has no {line:?}");
    }
    for name in ["debian/unjank.prerm", "rpm/unjank.spec", "arch/unjank.install"] {
        assert!(text(name).contains("/lib/unjank/before-removal"), "{name}");
    }
    assert!(text("arch/PKGBUILD").contains("install=unjank.install\n"));
}

/// The rows of all tables: package, kind, source.
fn rows() -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(top().join("packaging")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name != "files" && !name.starts_with("files.") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace().map(str::to_owned);
            rows.push([(); 3].map(|()| words.next().unwrap_or_default()));
        }
    }
    rows
}

/// The packages without which `package` is never installed, as Debian's control files name them.
fn needed(package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(top().join("packaging/debian")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name != "control" && !name.starts_with("control.") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let about = text.split("\n\n").find(|about| {
            about.lines().any(|line| line.strip_prefix("Package: ") == Some(package))
        });
        let mut field = "";
        for line in about.unwrap_or_default().lines() {
            if !line.starts_with(' ') {
                field = line.split(':').next().unwrap_or_default();
            } else if field == "Depends" {
                let needed = line.trim().strip_suffix(" (= ${binary:Version}),");
                found.extend(needed.map(str::to_owned));
            }
        }
    }
    found
}

#[test]
fn whatever_package_has_crates_in_it_has_their_notices_or_needs_one_that_has() {
    let rows = rows();
    let has = |package: &str, kinds: &[&str]| {
        rows.iter().any(|[of, kind, source]| {
            // The library for introspection is C of ours alone.
            let of_crates = !source.contains("-gi.so.") && !source.starts_with("Unjank-0.");
            of == package && kinds.contains(&kind.as_str()) && of_crates
        })
    };
    let packages: BTreeSet<&String> = rows.iter().map(|[package, ..]| package).collect();
    assert!(needed("unjank").contains("unjank-session"), "control files are not understood");
    for package in packages {
        let brings = |name: &str| has(name, &["notices"]);
        let is_right = !has(package, &["program", "library"])
            || brings(package)
            || needed(package).iter().any(|name| brings(name));
        assert!(is_right, "{package} is distributed without the notices of its crates");
    }
}

/// A machine on which no export was built does not have the crates of the exports.
#[test]
fn packages_without_the_exports_are_made_without_their_crates() {
    let dir = tempfile::tempdir().unwrap();
    let cargo = Command::new("sh").args(["-c", "command -v cargo"]).output().unwrap();
    let cargo = String::from_utf8(cargo.stdout).unwrap();
    let refuses =
        "#!/bin/sh\ncase \"$PWD\" in */fleet) echo 'no crates of fleet' >&2; exit 101 ;; esac\n";
    fixture::script(&dir.path().join("cargo"), &format!("{refuses}exec {} \"$@\"\n", cargo.trim()));
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let (built, tree) = (dir.path().join("built"), dir.path().join("tree"));
    std::fs::create_dir(&built).unwrap();
    let debianize = |built: &Path| {
        let mut debianize = Command::new(top().join("packaging/debianize"));
        debianize.args(["--version", "1"]).arg(&tree).env("PATH", &path);
        debianize.env("UNJANK_BUILT", built).env("SOURCE_DATE_EPOCH", "86400").output().unwrap()
    };
    let made = debianize(&built);
    assert!(made.status.success(), "{made:?}");
    let copyright = std::fs::read_to_string(tree.join("debian/copyright")).unwrap();
    assert!(copyright.contains("Files: vendor/zbus-"), "{copyright}");
    std::fs::write(built.join("unjank-export"), "").unwrap();
    assert!(
        !debianize(&built).status.success(),
        "an export is packaged with the licences of its crates"
    );
}

#[test]
fn every_kind_of_package_has_the_version_of_the_programs() {
    let version = env!("CARGO_PKG_VERSION");
    for (name, line) in [
        ("packaging/rpm/unjank.spec", format!("Version:        {version}\n")),
        ("packaging/rpm/unjank.spec", format!("%global source_version {version}}}\n")),
        ("packaging/arch/PKGBUILD", format!("\npkgver={version}\n")),
        ("packaging/org.unjank.unjank.metainfo.xml", format!("<release version=\"{version}\"")),
        ("python/src/unjank/__init__.py", format!("\n__version__ = \"{version}\"\n")),
        ("CHANGELOG.md", format!("\n## {version}")),
    ] {
        let text = std::fs::read_to_string(top().join(name)).unwrap();
        assert!(text.contains(&line), "{name} has no {line:?}");
    }
}

#[test]
fn manual_pages_have_a_date_and_what_to_read_next_and_mandoc_finds_no_fault() {
    if !has(&["/usr/bin/lowdown", "/usr/bin/mandoc"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for what in ["commands", "daemon", "formats"] {
        let mut manuals = Command::new(top().join("packaging/manuals"));
        manuals.env("SOURCE_DATE_EPOCH", "86400").arg("--unjank").arg(built().join("unjank"));
        done(manuals.arg(what).arg(dir.path()));
    }
    let pages = files(dir.path());
    assert!(pages.len() > 100, "{pages:?}");
    let names: BTreeSet<&str> =
        pages.iter().filter_map(|page| Some(page.rsplit_once('/')?.1)).collect();
    for page in &pages {
        let path = dir.path().join(&page[1..]);
        let text = std::fs::read_to_string(&path).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.contains("1970-01-02") && title.contains("unjank"), "{page}: {title}");
        let (_, related) = text.rsplit_once(".SH \"SEE ALSO\"\n").unwrap();
        assert!(related.starts_with(".BR "), "{page}: {related}");
        // What it refers to of ours is there.
        for line in related.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words[1].replace("\\-", "-");
            let file = format!("{name}.{}", words[2].trim_matches(['(', ')', ',']));
            let is_ours = name.starts_with("unjank");
            assert!(!is_ours || names.contains(&*file), "{page} refers to {file}");
        }
        let output =
            Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn completions_know_values_and_the_words_of_a_command_that_another_runs() {
    let library = "/usr/share/bash-completion/bash_completion";
    if !has(&[library]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unjank = built().join("unjank");
    let script = done(Command::new(&unjank).args(["generate", "completions", "bash"]));
    std::fs::write(dir.path().join("completions"), script).unwrap();
    let tool = dir.path().join("unjank-test-tool");
    std::fs::write(&tool, "#!/bin/sh\n").unwrap();
    done(Command::new("chmod").arg("755").arg(&tool));
    let asked = format!(
        "source {library}; source ./completions
        compopt() {{ :; }}
        complete -W 'first second' unjank-test-tool
        ask() {{
            COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=()
            _unjank_whole unjank \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[*]}}\"
        }}
        ask unjank run --class ''
        ask unjank run -- unjank-test-t
        ask unjank run --class low -- unjank-test-tool f
        ask unjank host -- unjank-test-tool ''"
    );
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.current_dir(dir.path()).env("PATH", path).env("HOME", dir.path());
    let said = done(bash.args(["--norc", "-c", &asked]));
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(lines, ["idle low", "unjank-test-tool", "first", "first second"]);
}

#[test]
fn the_small_program_of_the_host_needs_no_shared_library() {
    if !has(&["/usr/bin/readelf"]) {
        return;
    }
    let said = done(Command::new("readelf").args(["-d", "-l"]).arg(built().join("unjank-host")));
    assert!(!said.contains("(NEEDED)"), "{said}");
    assert!(!said.contains("INTERP"), "{said}");
}

#[test]
fn what_shells_read_has_no_fault_of_syntax() {
    if !has(&["bash", "dash"]) {
        return;
    }
    done(Command::new("bash").arg("-n").arg(top().join("packaging/arch/PKGBUILD")));
    for dir in ["packaging", "packaging/debian", "packaging/debian/tests", "ci"] {
        for entry in std::fs::read_dir(top().join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let is_script = std::fs::read(&path).is_ok_and(|text| text.starts_with(b"#!/bin/sh\n"));
            if path.is_file() && is_script {
                done(Command::new("dash").arg("-n").arg(&path));
            }
        }
    }
}
