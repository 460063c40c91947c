//! Listings by a worker process and by the daemon, which are killed and stopped meanwhile: errors or the next way, never a wait without an end.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::built::{compile, install, library, run};

/// Returns a program of the workspace, which tests of the whole workspace have built; `UNJANK_PROGRAMS` names another directory.
fn program(name: &str) -> Option<PathBuf> {
    let built = || library().parent()?.parent().map(PathBuf::from);
    let program = std::env::var_os("UNJANK_PROGRAMS").map(PathBuf::from).or_else(built)?.join(name);
    program.exists().then_some(program)
}

#[test]
fn a_worker_or_a_daemon_that_ends_or_stops_is_told_and_nobody_hangs() {
    let (Some(worker), Some(daemon)) = (program("unjank"), program("unjankd")) else {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "unjank and unjankd are needed");
        println!("SKIPPED: unjank and unjankd are not built");
        return;
    };
    const COUNT: usize = 5000;
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    let listed = prefix.join("listed");
    fs::create_dir(&listed).unwrap();
    for number in 0..COUNT {
        fs::write(listed.join(number.to_string()), "x").unwrap();
    }
    let source = compile(prefix, &["gcc", "-std=c11", "-g"], "tests/sources.c");
    let mut daemon = Command::new(daemon)
        .args(["--names", "session", "--idle-exit", "0", "--verbose"])
        .env_clear()
        .env("HOME", prefix)
        .env("XDG_RUNTIME_DIR", prefix)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("serving listings")), "the daemon ended");
    // Nobody may be kept waiting by a full pipe.
    let rest = thread::spawn(move || lines.for_each(drop));
    let mut command = run(prefix, &source);
    command.arg(&listed).arg(COUNT.to_string()).arg(&worker);
    command.arg(prefix.join("unjank/listing.sock")).arg(daemon.id().to_string());
    let output = command.output().unwrap();
    // It is killed already if all went well.
    let _ = daemon.kill();
    daemon.wait().unwrap();
    rest.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "good\n");
}
