//! While nothing changes, reading makes no system call.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::print_stderr, reason = "a skip is said aloud")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test that runs itself under strace; its files are fixtures"
)]

use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use gvdb::gvariant::Variant;
use gvdb::{self, Image};
use unjank_settings::client::{Key, NoBus, SettingsClient, ValueChoice};
use unjank_settings::profile::{SettingsEnvironment, SettingsProfile};

/// Set in the child; its value is the profile.
const CHILD: &str = "UNJANK_TEST_READER";
const KEYS: usize = 300;

fn key(n: usize) -> String {
    format!("/org/example/group{}/key{n}", n % 7)
}

fn write(path: &Path, locks: &[&str]) {
    let mut keys: Vec<_> =
        (0..KEYS).map(|n| (key(n), Variant::from(u64::try_from(n).unwrap()))).collect();
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    let entries = keys.iter().map(|(key, value)| (&**key, value.as_bytes()));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, gvdb::write(entries, &Image { locks, generation: None }).unwrap())
        .unwrap();
}

/// What the child does: reads everything once, then again and again between two calls that can be told apart.
fn child(profile: &str) {
    let dir = tempfile::tempdir().unwrap();
    let environment = SettingsEnvironment {
        profile: None,
        config_home: dir.path().join("config"),
        runtime_dir: dir.path().join("run"),
        data_dirs: Vec::new(),
        sysconf_dir: dir.path().join("etc"),
        mandatory_dir: dir.path().join("mandatory"),
        uid: 0,
    };
    std::fs::create_dir(&environment.runtime_dir).unwrap();
    write(&dir.path().join("config/dconf/user"), &[]);
    write(&dir.path().join("etc/dconf/db/site"), &["/org/example/group0/key0"]);
    let profile = SettingsProfile::parse(profile.as_bytes());
    let mut reader = SettingsClient::open(&profile, &environment, Arc::new(NoBus)).reader();
    let names: Vec<String> = (0..KEYS).map(key).chain(["/not/there".to_owned()]).collect();
    let mut read_all = || {
        let found = names.iter().filter(|name| reader.get(name).is_some()).count();
        assert_eq!(found, KEYS);
        for which in [ValueChoice::User, ValueChoice::Default] {
            assert!(reader.read(&Key::new("/not/there"), which).is_none());
        }
    };
    read_all();
    let _mark = parent_id();
    for _ in 0..100 {
        read_all();
    }
    let _mark = parent_id();
}

/// Returns the system calls of the child between its two marks; `None` without strace.
fn calls(profile: &str) -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "client_quiet::a_reader_is_quiet", "--test-threads=1", "--nocapture"])
        .env(CHILD, profile)
        .output();
    let Ok(output) = output else {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: no strace");
        eprintln!("SKIPPED: no strace");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = std::fs::read_to_string(trace).unwrap();
    let marks: Vec<&str> = trace.split("getppid()").collect();
    assert_eq!(marks.len(), 3, "the two marks of the child");
    Some(marks[1].lines().skip(1).filter(|line| line.contains('(')).map(str::to_owned).collect())
}

#[test]
fn a_reader_is_quiet() {
    if let Ok(profile) = std::env::var(CHILD) {
        return child(&profile);
    }
    for profile in ["user-db:user", "user-db:user\nsystem-db:site"] {
        let Some(calls) = calls(profile) else { return };
        assert_eq!(calls, Vec::<String>::new(), "{profile}");
    }
}

#[test]
fn a_call_would_be_noticed() {
    // A system database that is missing is looked for at every read, as dconf's own readers do.
    let Some(calls) = calls("user-db:user\nsystem-db:gone") else { return };
    let opens = |call: &String| call.contains("open(") || call.contains("openat(");
    assert!(calls.iter().any(opens), "{} calls: {:?}", calls.len(), calls.first());
}
