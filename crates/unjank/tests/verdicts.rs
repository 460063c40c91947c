//! A verdict is told by the exit status, also to somebody who does not read the rest.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test drives other programs")]

use std::path::Path;
use std::process::Command;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// Runs a command whose output nobody reads, in a home of its own, and returns its exit status.
fn status(home: &Path, words: &[&str]) -> Option<i32> {
    let mut command = Command::new(UNJANK);
    command.args(words).current_dir(home).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", home).env("TMPDIR", home);
    // The other end is closed at once.
    command.stdout(std::io::pipe().unwrap().1).output().unwrap().status.code()
}

#[test]
fn a_failed_check_says_so_when_nobody_reads_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    std::fs::write(home.join("damaged"), "GVariant and then nothing").unwrap();
    std::fs::write(home.join("rules"), "called org.example.Never\n").unwrap();
    let traffic = |name: &str, serial: u32| {
        let call = wire::write::Draft {
            path: "/o",
            interface: "org.example.I",
            member: if serial == 1 { "Say" } else { "Sing" },
            sender: ":1.1",
            destination: ":1.2",
            ..wire::write::Draft::new(wire::MessageType::Call, serial)
        };
        std::fs::write(home.join(name), call.bytes()).unwrap();
    };
    traffic("one", 1);
    traffic("other", 2);
    let commands: [&[&str]; 9] = [
        &["bus", "expect", "-f", "rules", "one"],
        &["bus", "expect", "-f", "rules", "one", "--json"],
        &["bus", "diff", "one", "other"],
        &["bus", "diff", "one", "other", "--json"],
        &["settings", "check", "damaged"],
        &["settings", "check", "damaged", "--json"],
        &["plugins", "index", "--check"],
        &["doctor", "--only", "storage", "--frame", "1us"],
        &["doctor", "--only", "storage", "--frame", "1us", "--json"],
    ];
    for words in commands {
        assert_eq!(status(home, words), Some(1), "{words:?}");
    }
}
