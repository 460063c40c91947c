//! `unjank bench hangs` in few rounds: real toolkits, a real display and the real recorder.
//!
//! `HANGS_TOOLKITS=1` plants in the programs of all toolkits; else in those of a loop of GLib and of a loop of its own.
#![expect(clippy::disallowed_methods, reason = "a test reads whether anything may be skipped")]

use std::process::{Command, Stdio};

use serde_json::Value;

/// What can be planted by whom: `REQUIRE_ALL` asks for these.
const EVERYBODY: [&str; 11] = [
    "sync",
    "cold-read",
    "mapped",
    "io-uring",
    "lock",
    "computing",
    "dbus-call",
    "dbus-start",
    "resolver",
    "child",
    "stopped",
];

#[test]
fn every_figure_is_measured_and_nothing_is_left() {
    let place = tempfile::Builder::new().prefix("bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let place = place.unwrap();
    let has_toolkits = std::env::var_os("HANGS_TOOLKITS").is_some();
    let toolkits = if has_toolkits { "gtk3,gtk4,qt5,x,gtk4-wayland" } else { "gtk3,x" };
    let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["bench", "hangs", "--quick", "--json", "--toolkit", toolkits, "--dir"])
        .arg(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let has_all = std::env::var_os("REQUIRE_ALL").is_some();
    if !output.status.success() && said.contains("cannot make programs that hang") && !has_all {
        println!("SKIPPED: {said}");
        return;
    }
    let document: Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(document["schema"], "unjank.bench.hangs/1");
    assert_eq!(document["missing"].as_array().unwrap().len(), 0, "{}", document["missing"]);
    let places = document["setting"]["places"].as_array().unwrap();
    let programs =
        places.iter().filter_map(Value::as_str).find(|line| line.starts_with("programs"));
    let programs = programs.unwrap();
    if has_all {
        let wanted: &[_] = &["GTK 3", "Xlib", "GTK 4", "Qt 5"];
        for toolkit in &wanted[..if has_toolkits { 4 } else { 2 }] {
            assert!(programs.contains(toolkit), "{places:#?}");
        }
    }
    let figures = document["figures"].as_array().unwrap();
    let of = |id: &str| figures.iter().find(|figure| figure["id"] == id);
    for id in [
        "recall",
        "precision",
        "class",
        "function",
        "length",
        "traced-recall",
        "traced-unexplained",
        "idle-processor",
        "idle-wake-ups",
        "idle-memory",
        "idle-false",
        "python",
        "find",
    ] {
        let figure = of(id).unwrap_or_else(|| panic!("no {id} in {figures:#?}"));
        assert!(figure["ours"]["median"].is_number(), "{figure}");
        // Few rounds on a busy machine are no proof, and say so.
        assert!(
            ["not-judged", "no-target"].contains(&figure["verdict"].as_str().unwrap()),
            "{figure}"
        );
    }
    // What each program says that it could not plant is said with the others.
    let failures = of("recall").unwrap()["note"].as_str().unwrap();
    for id in EVERYBODY {
        assert!(of(id).is_some() || !has_all, "no {id}: {places:#?} {failures}");
    }
    // A recorder that saw nothing, or a truth that nobody told, would show here however busy the machine is.
    let recall = of("recall").unwrap()["ours"]["median"].as_f64().unwrap();
    assert!(recall >= 50.0, "{failures}: {figures:#?}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn the_recorder_of_an_ordinary_user_is_measured_through_the_service_and_the_rows_say_so() {
    let has_all = std::env::var_os("REQUIRE_ALL").is_some();
    let is_root = rustix::process::geteuid().is_root();
    let user = Command::new("setpriv").args(["--reuid", "nobody", "true"]).status();
    if !is_root || !user.is_ok_and(|status| status.success()) {
        assert!(!has_all, "REQUIRE_ALL: only root can be another user");
        println!("SKIPPED: only root can be another user");
        return;
    }
    // In a directory that others can reach.
    let place = tempfile::Builder::new().prefix("bench").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let programs = ["unjank", "unjank-recorder"].map(|name| place.path().join(name));
    let built = [env!("CARGO_BIN_EXE_unjank"), env!("CARGO_BIN_EXE_unjank-recorder")];
    for (to, from) in programs.iter().zip(built) {
        // Another process copies it: what is open for writing anywhere cannot be run.
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    }
    let output = Command::new(&programs[0])
        .args(["bench", "hangs", "--through-service", "--quick", "--json", "--toolkit", "x"])
        .args(["--cause", "computing,lock,sync", "--only", "planted,idle", "--dir"])
        .arg(place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let own = format!("unjank-scratch-{}-", output.id());
    let output = output.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("cannot make programs that hang") && !has_all {
        println!("SKIPPED: {said}");
        return;
    }
    let document: Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(document["missing"].as_array().unwrap().len(), 0, "{}", document["missing"]);
    let through = "through the recorder service, all as user nobody";
    let ours = document["setting"]["ours"].as_str().unwrap();
    assert!(ours.contains(through), "{ours}");
    let figures = document["figures"].as_array().unwrap();
    for figure in figures {
        assert!(figure["note"].as_str().unwrap().starts_with(through), "{figure}");
    }
    for id in ["recall", "class", "idle-processor", "idle-memory"] {
        let figure = figures.iter().find(|figure| figure["id"] == id);
        let figure = figure.unwrap_or_else(|| panic!("no {id} in {figures:#?}"));
        assert!(figure["ours"]["median"].is_number(), "{figure}");
    }
    // Nothing is left of the service.
    let left = std::fs::read_dir("/run").unwrap().flatten();
    let is_own = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(&own);
    assert_eq!(left.map(|entry| entry.file_name()).filter(is_own).count(), 0);
}
