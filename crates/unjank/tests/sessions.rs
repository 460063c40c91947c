//! What a person sees of `gsettings` and `dconf` is the same, byte for byte, on our service and on dconf's own.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::fixture;

use std::path::Path;

use fixture::{Bus, OURS, REAL, skip};

/// Runs a script of `tests/sessions` in a session of its own and returns what it printed.
fn transcript(session: &Bus, script: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions").join(script);
    let output = session.command("sh").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dir = session.dir().to_str().unwrap();
    String::from_utf8(output.stdout).unwrap().replace(dir, "DIR")
}

fn same(script: &str) {
    if !Path::new(REAL).exists() {
        return skip("no dconf-service");
    }
    let Some(peers) = Bus::start() else { return };
    let Some(mine) = Bus::start() else { return };
    let _peer = peers.serve(REAL, &[]);
    let theirs = transcript(&peers, script);
    assert!(theirs.lines().count() > 40, "the session hardly ran: {theirs}");
    let _daemon = mine.serve(OURS, &["--names", "dconf"]);
    assert_eq!(transcript(&mine, script), theirs, "{script}");
}

#[test]
fn a_gsettings_session_is_the_same() {
    same("gsettings.sh");
}

#[test]
fn a_dconf_session_is_the_same() {
    same("dconf.sh");
}

#[test]
fn watchers_see_the_same() {
    same("watch.sh");
}

#[test]
fn locks_and_other_kinds_of_database_are_the_same() {
    same("locks.sh");
}
