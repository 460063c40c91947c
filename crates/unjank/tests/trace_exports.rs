//! What a trace is exported as is opened by the programs that it is for.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stands for other programs"
)]

use crate::fixture;

use std::path::Path;
use std::process::{Command, Output};

use fixture::{has, in_time, skip};

/// Traces a program that syncs a file, and returns what it was exported as.
fn exported(dir: &Path, kind: &str) -> std::path::PathBuf {
    let file = dir.join(kind);
    let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["trace", "--export"])
        .arg(format!("{kind}={}", file.display()))
        .args(["--", "dd", "if=/dev/zero", "bs=1M", "count=8", "conv=fsync"])
        .arg(format!("of={}", dir.join("synced").display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    file
}

fn count(bytes: &[u8], word: &[u8]) -> usize {
    bytes.windows(word.len()).filter(|window| *window == word).count()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn sysprof_reads_every_frame_of_a_capture() {
    if !has(&["sysprof-cli"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let capture = exported(dir.path(), "sysprof");
        let before = std::fs::read(&capture).unwrap();
        assert!(count(&before, b"fsync\0") > 0);
        let merge = |capture: &Path| {
            run(Command::new("sysprof-cli").arg("--merge").args([capture, capture])).stdout
        };
        let both = merge(&capture);
        for word in [&b"fsync\0"[..], b"stall\0"] {
            assert!(count(&both, word) >= 2 * count(&before, word), "a mark is lost");
        }
        // It does look at frames: it refuses one that ends too early.
        let mut damaged = before;
        damaged[256..258].copy_from_slice(&8_u16.to_le_bytes());
        std::fs::write(&capture, damaged).unwrap();
        let refused =
            Command::new("sysprof-cli").arg("--merge").args([&capture, &capture]).output();
        assert!(!refused.unwrap().status.success());
    });
}

#[test]
fn pprof_reads_a_profile() {
    let Some(pprof) = std::env::var_os("PPROF") else {
        eprintln!("SKIPPED: set PPROF to github.com/google/pprof, as ci/slow does");
        return;
    };
    if !Path::new(&pprof).exists() {
        return skip("PPROF names no program");
    }
    in_time(move || {
        let dir = tempfile::tempdir().unwrap();
        let profile = exported(dir.path(), "pprof");
        let top = run(Command::new(&pprof).arg("-top").arg(&profile)).stdout;
        let top = String::from_utf8(top).unwrap();
        assert!(top.contains("File: dd\n") && top.contains("Type: wall\n"), "{top}");
        assert!(top.lines().any(|line| line.ends_with(" fsync")), "{top}");
        let focus = ["-tagfocus", "target=.*/synced", "-sample_index=stalls", "-top"];
        let top = run(Command::new(&pprof).args(focus).arg(&profile)).stdout;
        assert!(String::from_utf8(top).unwrap().contains("Type: stalls"));
    });
}
