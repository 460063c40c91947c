//! What the package has: its table, manual pages without faults, completions, and units that export each day under the systemd of a user.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::fixture::{Place, files, stdout};
use crate::otlp_metrics::receive;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns whether these programs are here; without them a test is skipped, which `REQUIRE_ALL` takes for a failure.
fn has(programs: &[&str]) -> bool {
    let is_there = |name: &&&str| {
        let paths = std::env::var_os("PATH").unwrap();
        std::env::split_paths(&paths).any(|dir| dir.join(name).exists())
    };
    let missing: Vec<_> = programs.iter().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        skip(&format!("{missing:?} are missing"));
    }
    missing.is_empty()
}

fn skip(reason: &str) {
    println!("SKIPPED: {reason}");
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "{reason}");
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The package, as `packaging/stage` makes it of the program that is tested.
fn staged(dest: &Path) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_unjank-export"));
    let stage = || {
        let mut stage = Command::new(top().join("packaging/stage"));
        stage.env("SOURCE_DATE_EPOCH", "86400").args(["--package", "unjank-export"]);
        stage
    };
    done(stage().arg("--from").arg(program.parent().unwrap()).arg("--dest").arg(dest));
    let listed = stdout(&done(stage().arg("--list")));
    let installed: Vec<String> = files(dest)
        .iter()
        .map(|path| format!("/{}", path.strip_prefix(dest).unwrap().display()))
        .collect();
    let covers = |place: &str, file: &str| match place.strip_suffix('/') {
        Some(dir) => Path::new(file).starts_with(dir),
        None => place == file,
    };
    for file in &installed {
        assert!(listed.lines().any(|place| covers(place, file)), "{file} is not listed");
    }
    for place in listed.lines() {
        assert!(installed.iter().any(|file| covers(place, file)), "{place} is not installed");
    }
    installed
}

#[test]
fn the_package_has_what_its_table_lists_and_pages_and_completions_without_faults() {
    if !has(&["mandoc", "bash", "python3"]) {
        return;
    }
    let dest = tempfile::tempdir().unwrap();
    let installed = staged(dest.path());
    let pages: Vec<_> = installed.iter().filter(|file| file.contains("/man1/")).collect();
    let names: Vec<_> = pages.iter().map(|page| page.rsplit('/').next().unwrap()).collect();
    let wanted = [
        "unjank-export-openmetrics.1",
        "unjank-export-otlp.1",
        "unjank-export-parquet.1",
        "unjank-export-perfetto.1",
        "unjank-export-pprof.1",
        "unjank-export.1",
    ];
    assert_eq!(names, wanted);
    for page in pages {
        let path = dest.path().join(&page[1..]);
        done(Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(&path));
        let text = std::fs::read_to_string(&path).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.contains("1970-01-02"), "{page}: {title}");
        let (_, related) = text.rsplit_once(".SH \"SEE ALSO\"\n").unwrap();
        assert!(related.contains("unjank\\-hangs (1)"), "{page}: {related}");
    }
    let completions = dest.path().join("usr/share/bash-completion/completions/unjank-export");
    done(Command::new("bash").arg("-n").arg(&completions));
    let asked = "source \"$0\"; COMP_WORDS=(unjank-export parquet --f); COMP_CWORD=2
        _unjank__export unjank-export --f parquet; echo \"${COMPREPLY[*]}\"";
    let answer = stdout(&done(Command::new("bash").args(["-c", asked]).arg(&completions)));
    assert_eq!(answer.trim(), "--facts --fact --facts-from");
    let notices = dest.path().join("usr/share/doc/unjank-export/THIRD-PARTY-NOTICES");
    let notices = std::fs::read_to_string(notices).unwrap();
    // In C, with a licence of its own.
    assert!(notices.contains("\nzstd-sys ") && notices.contains("Meta Platforms"), "{notices}");
}

/// The drop-in of `docs/fleet.md` for systems whose users may not make a namespace.
fn drop_in() -> String {
    let page = std::fs::read_to_string(top().join("docs/fleet.md")).unwrap();
    let (_, part) = page.split_once("```ini\n").unwrap();
    part.split_once("```").unwrap().0.to_owned()
}

#[test]
fn a_user_who_switches_units_on_gets_what_they_write_and_send_and_nothing_else_is_written() {
    if !rustix::process::geteuid().is_root() {
        return skip("namespaces need root");
    }
    if !has(&["systemctl", "systemd-escape", "dbus-daemon", "setpriv", "unshare", "curl"]) {
        return;
    }
    let place = Place::new();
    place.record_hangs(1..8);
    // A cgroup of its own, which the manager of the user has below it.
    let enter = r#"
        at=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
        [ -n "$at" ] && mkdir "$at/unjank-export-$$" || exit 77
        ( echo 0 >"$at/unjank-export-$$/cgroup.procs" && exec unshare --mount --cgroup --pid --fork --mount-proc --kill-child sh -c "$@" )
        status=$?
        echo 1 >"$at/unjank-export-$$/cgroup.kill"
        until grep -q 'populated 0' "$at/unjank-export-$$/cgroup.events"; do :; done
        find "$at/unjank-export-$$" -depth -type d -exec rmdir {} +
        exit $status"#;
    let mut inside = Command::new("timeout");
    inside.args(["300", "sh", "-c", enter, "sh", include_str!("daily.sh"), "daily"]);
    inside.arg(env!("CARGO_BIN_EXE_unjank-export")).arg(place.path("store"));
    inside.arg(top().join("packaging/systemd")).arg(drop_in());
    let (url, requests) = receive("200");
    inside.arg(&url);
    let output = inside.output().unwrap();
    if output.status.code() == Some(77) {
        return skip("no cgroup can be made here");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    if said.starts_with("no user namespaces") {
        return skip("users may not make a namespace here");
    }
    let wanted = [
        "success",
        "a lake/hangs/day=2026-11-24/M-U.parquet",
        "a lake/stacks/M-U.parquet",
        "./a lake/within",
        "desk-1-U.parquet",
        "active",
        "1",
        "inactive",
        "missing is not made",
        "success",
        // In namespaces, and without them.
        "unjank_hangs_total{program=\"nautilus\",cause=\"sync\"} 7",
        " 7 hangs",
        "active",
        "active",
        "the socket is gone",
        "unjank_hangs_total{program=\"nautilus\",cause=\"sync\"} 7",
        " 7 hangs",
        "active",
        "active",
        "./.local/state/unjank/hangs/outside-openmetrics",
        "./.local/state/unjank/hangs/outside-otlp",
        "./outside-openmetrics",
        "./outside-otlp",
        "the socket is gone",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{output:?}");
    let mut paths: Vec<String> = requests.try_iter().map(|(path, _)| path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/v1/logs", "/v1/logs", "/v1/metrics", "/v1/metrics"]);
}
