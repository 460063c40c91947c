//! `unjank bench recents` in few rounds, beside the real programs of KDE and GTK.
#![expect(clippy::disallowed_methods, reason = "a test reads whether anything may be skipped")]

use std::process::Command;

#[test]
fn every_figure_is_measured_and_nothing_is_left() {
    let place = tempfile::Builder::new().prefix("bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let place = place.unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_unjank-bench"))
        .args(["bench", "recents", "--quick", "--json", "--peer", "echo=echo {dir}", "--dir"])
        .arg(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(document["schema"], "unjank.bench.recents/1");
    let missing = document["missing"].as_array().unwrap();
    // Without the libraries of KDE or GTK there are no figures that need them.
    let has_all = std::env::var_os("REQUIRE_ALL").is_some();
    assert!(missing.is_empty() || !has_all, "{missing:#?}");
    let figures = document["figures"].as_array().unwrap();
    let of = |id: &str| figures.iter().find(|figure| figure["id"] == id);
    for id in [
        "add-0",
        "add-1000",
        "add-5000",
        "process",
        "syncs",
        "kept-0",
        "kept-1000",
        "bytes",
        "peers",
    ] {
        assert!(of(id).is_some(), "no {id} in {figures:#?}");
    }
    // What is counted, not timed, holds however busy the machine is.
    for id in ["syncs", "kept-0", "kept-1000", "mixed"] {
        let ours = of(id).map(|figure| figure["ours"]["median"].as_f64().unwrap());
        assert!(ours.is_none_or(|ours| ours == 0.0), "{id}: {ours:?}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
