//! `unjank trace ab`: what it predicts is what is won when the calls are really gone.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stands for other programs"
)]

use crate::fixture;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fixture::{has, setting};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank");

/// Saves forty files; with `SYNCS` it syncs each.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%d", i);
        int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
        if (file < 0 || write(file, name, sizeof name) < 0) return 1;
#ifdef SYNCS
        if (fdatasync(file)) return 1;
#endif
        close(file);
    }
    return 0;
}
"#;

/// Builds the program with and without its syncs.
fn build(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    if !has(&["gcc"]) {
        return None;
    }
    let source = dir.join("saves.c");
    std::fs::write(&source, SOURCE).unwrap();
    let compile = |name: &str, options: &[&str]| {
        let program = dir.join(name);
        let mut compiler = Command::new("gcc");
        compiler.arg("-O").args(options).arg(&source).arg("-o").arg(&program);
        assert!(compiler.status().unwrap().success());
        program
    };
    Some((compile("syncs", &["-DSYNCS"]), compile("plain", &[])))
}

fn ab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(["trace", "ab"]).args(arguments).current_dir(dir).output().unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// Times of many runs, in nanoseconds.
#[derive(Default)]
struct Samples {
    without: Vec<f64>,
    with: Vec<f64>,
}

impl Samples {
    fn take(&mut self, document: &Value) {
        for (times, side) in [(&mut self.without, "without"), (&mut self.with, "with")] {
            let samples = document[side]["samples_ns"].as_array().unwrap();
            times.extend(samples.iter().map(|time| time.as_f64().unwrap()));
        }
    }

    /// The difference of the medians.
    fn gain(self) -> f64 {
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        median(self.without) - median(self.with)
    }
}

#[test]
fn skipping_is_refused_on_files_that_matter() {
    let dir = tempfile::tempdir().unwrap();
    let Some((syncs, _)) = build(dir.path()) else { return };
    let syncs = syncs.to_str().unwrap();
    let output = ab(dir.path(), &["--skip", "fdatasync", "--", syncs]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--copy PATH") && said.contains("--yes"), "{said}");
    assert!(!dir.path().join("file-0").exists(), "nothing ran");
    for (arguments, why) in [
        (&["--skip", "write", "--yes"][..], "cannot skip write"),
        (&["--skip", "nonsense", "--yes"], "cannot find a call \"nonsense\""),
        (&[], "cannot compare a command with itself"),
        (&["--under", "*", "--env", "A=b"], "cannot restrict calls"),
        (&["--env", "A"], "NAME=VALUE"),
        (&["--runs", "3"], "unexpected argument '--runs'"),
    ] {
        let output = ab(dir.path(), &[arguments, &["--", syncs]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

#[test]
fn forty_syncs_are_counted_and_skipped_in_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let Some((syncs, _)) = build(dir.path()) else { return };
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let output = ab(
        &files,
        &[
            "-n",
            "3",
            "--json",
            "--skip",
            "fsync,fdatasync",
            "--copy",
            ".",
            "--",
            syncs.to_str().unwrap(),
        ],
    );
    let document = document(&output);
    assert_eq!(document["calls_matched"], 40, "{document:#}");
    assert_eq!(document["with"]["n"], 3);
    assert_eq!(document["files"].as_array().unwrap().len(), 40);
    assert!(document["warnings"][0].as_str().unwrap().contains("Durability was off"));
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "only copies were written");
}

/// Timed, so not for a busy machine: `AB_PROOF=1` asks for it, `ci/slow` does.
#[test]
fn the_predicted_gain_is_the_one_that_is_measured() {
    let Some(rounds) = setting("AB_PROOF") else { return };
    // A disk is wanted: on a file system in memory a sync costs nothing.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((syncs, plain)) = build(dir.path()) else { return };
    let [syncs, plain] = [syncs, plain].map(|path| path.to_str().unwrap().to_owned());
    // The same measurement of a build without the calls: the variable chooses which runs.
    let choose = format!("exec \"${{CHOSEN:-{syncs}}}\"");
    let chosen = format!("CHOSEN={plain}");
    let skip = ["-n", "10", "--json", "--skip", "fdatasync", "--yes", "--", &*syncs];
    let remove = ["-n", "10", "--json", "--env", &*chosen, "--", "sh", "-c", &*choose];
    // In turn, a few pairs each: a disk is faster in one minute than in the next.
    let (mut skipped, mut removed) = (Samples::default(), Samples::default());
    for _ in 0..rounds * 8 {
        skipped.take(&document(&ab(dir.path(), &skip)));
        removed.take(&document(&ab(dir.path(), &remove)));
    }
    let (predicted, measured) = (skipped.gain(), removed.gain());
    eprintln!("predicted {:.3} ms, measured {:.3} ms", predicted / 1e6, measured / 1e6);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} {measured}");
}
