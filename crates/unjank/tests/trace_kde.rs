//! A document opened by KDE's own programs, without debug symbols: the report names the syncs, their files and whose code made them.
#![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

use crate::fixture;

use std::process::Command;

use fixture::{Bus, has, setting};
use serde_json::Value;

/// KDE's libraries are large: `KDE=1` asks for this, `ci/slow` does where they are installed.
#[test]
fn the_syncs_of_kde_open_are_named_with_their_files_and_code_paths() {
    if !std::path::Path::new("/usr/bin/kde-open5").exists() {
        if setting("KDE").is_some() {
            has(&["kde-open5"]);
        }
        return;
    }
    let Some(bus) = Bus::start() else { return };
    let dir = bus.dir();
    std::fs::create_dir(dir.join("data/applications")).unwrap();
    std::fs::create_dir(dir.join("tmp")).unwrap();
    // Documents in hidden directories are remembered by half only, and those of a bus are hidden.
    let documents = tempfile::Builder::new().prefix("documents").tempdir().unwrap();
    let document = documents.path().join("page.html");
    std::fs::write(&document, "<!DOCTYPE html><title>page</title>\n").unwrap();
    std::fs::write(
        dir.join("data/applications/viewer.desktop"),
        "[Desktop Entry]\nType=Application\nName=Viewer\nExec=/bin/true %f\nMimeType=text/html;\n",
    )
    .unwrap();
    std::fs::write(
        dir.join("config/mimeapps.list"),
        "[Default Applications]\ntext/html=viewer.desktop\n",
    )
    .unwrap();
    let mut command = bus.command(env!("CARGO_BIN_EXE_unjank"));
    // Documents in the temporary directory are not remembered, so that is elsewhere.
    command.env("QT_QPA_PLATFORM", "offscreen").env("TMPDIR", dir.join("tmp"));
    command.args(["trace", "--threshold", "0ns", "--calls", "sync", "--json", "--"]);
    let output = command.args(["kde-open5"]).arg(document).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let json = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let name = |table: &str, at: &Value| {
        let entry = &report[table][usize::try_from(at.as_u64().unwrap()).unwrap()];
        entry["name"].as_str().unwrap().to_owned()
    };
    let mut blamed = Vec::new();
    let mut callers = Vec::new();
    let mut files = Vec::new();
    for call in report["slow"].as_array().unwrap() {
        files.push(name("targets", &call["target"]));
        let at = usize::try_from(call["stack"].as_u64().unwrap()).unwrap();
        let stack = &report["stacks"][at];
        let frames: Vec<String> =
            stack["frames"].as_array().unwrap().iter().map(|at| name("frames", at)).collect();
        blamed.push(frames[usize::try_from(stack["blamed"].as_u64().unwrap()).unwrap()].clone());
        callers.extend(frames);
    }
    assert!(blamed.iter().any(|frame| frame == "KConfig::sync"), "{blamed:?}");
    assert!(blamed.iter().any(|frame| frame == "KRecentDocument::add"), "{blamed:?}");
    assert!(callers.iter().any(|frame| frame == "KIO::OpenUrlJob::start"), "{callers:?}");
    for file in ["recently-used.xbel", "RecentDocuments/page.html.desktop"] {
        assert!(files.iter().any(|path| path.contains(file)), "{file}: {files:?}");
    }
    // Nothing here has debug symbols, or the test shows less than it says.
    let symbols = Command::new("dpkg").args(["-s", "libkf5configcore5-dbgsym"]).output().unwrap();
    assert!(!symbols.status.success());
}
