//! `unjank trace check --baseline` as a test run meets it: a program that syncs, one sync more, one less.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stands for other programs"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::fixture::skip;
use serde_json::Value;

/// Syncs its settings at the start, marks two phases, and does in the second what it is told.
///
/// What it syncs is so much that every disk takes longer than a call that counts as slow. It rests before it ends, so that it
/// is looked at on a busy machine, too.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static char data[1 << 20];

__attribute__((noinline)) void save_settings(void) {
    int file = open("settings", O_WRONLY | O_CREAT, 0600);
    if (write(file, data, sizeof data) == sizeof data) fsync(file);
    close(file);
}

__attribute__((noinline)) void planted_sync(void) {
    int file = open("planted", O_WRONLY | O_CREAT, 0600);
    if (write(file, data, sizeof data) == sizeof data) fsync(file);
    close(file);
}

int main(int count, char **words) {
    int is_planted = count > 1 && !strcmp(words[1], "planted");
    if (count == 1 || is_planted) save_settings();
    access("/unjank-mark/shown", F_OK);
    if (is_planted) planted_sync();
    access("/unjank-mark/quit", F_OK);
    usleep(300 * 1000);
    if (count > 1 && !strcmp(words[1], "crash")) raise(SIGSEGV);
    if (count > 1 && !strcmp(words[1], "term")) raise(SIGTERM);
    return 0;
}
"#;

struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Project {
        // On a disk, which memory need not be.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(dir.path().join("app.c"), SOURCE).unwrap();
        let built = Command::new("gcc")
            .args(["-g", "-O1", "-fno-optimize-sibling-calls", "-o", "app", "app.c"])
            .current_dir(dir.path())
            .status();
        assert!(built.unwrap().success(), "gcc");
        Project { dir }
    }

    fn check(&self, options: &[&str], command: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .args(["trace", "check", "--baseline", "app.baseline"])
            .args(options)
            .arg("--")
            .args(command)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

#[test]
fn a_planted_sync_fails_with_its_file_its_line_and_its_function() {
    let project = Project::new();
    let (status, _, said) = project.check(&[], &["./app"]);
    assert!(status == 2 && said.contains("make it with --update-baseline"), "{status} {said}");

    let (status, told, said) = project.check(&["--update-baseline", "--runs", "2"], &["./app"]);
    assert_eq!(status, 0, "{said}");
    assert!(told.contains("added    start: fsync of ") && told.contains("save_settings"), "{told}");
    assert!(project.read("app.baseline").contains(r#""phase":"quit","short""#));

    let outputs = ["--sarif", "app.sarif", "--junit", "app.xml"];
    let (status, told, said) = project.check(&outputs, &["./app"]);
    assert_eq!(status, 0, "{told}{said}");
    let results = |log: &str| {
        let log: Value = serde_json::from_str(log).unwrap();
        log["runs"][0]["results"].as_array().unwrap().clone()
    };
    assert!(results(&project.read("app.sarif")).is_empty());

    let options = [&outputs[..], &["--annotations", "github"]].concat();
    let (status, commands, said) = project.check(&options, &["./app", "planted"]);
    assert_eq!(status, 1, "{commands}{said}");
    assert!(said.contains("new wait: shown: fsync of ") && said.contains("planted_sync"), "{said}");
    let found = results(&project.read("app.sarif"));
    // On a busy disk the write before it may wait, too.
    let planted = |result: &&Value| result["properties"]["call"] == "fsync";
    let results: Vec<&Value> = found.iter().filter(planted).collect();
    let [result] = results[..] else { panic!("{found:?}") };
    assert_eq!(result["ruleId"], "unjank/new-wait");
    let place = &result["locations"][0];
    assert_eq!(place["physicalLocation"]["artifactLocation"]["uri"], "app.c");
    let line = place["physicalLocation"]["region"]["startLine"].as_u64().unwrap();
    assert!((17..=18).contains(&line), "{place}");
    assert!(commands.contains(&format!("::error file=app.c,line={line},title=")), "{commands}");
    let stack = result["stacks"][0]["frames"].to_string();
    assert!(stack.contains("planted_sync"), "{stack}");
    let junit = project.read("app.xml");
    assert!(junit.contains("errors=\"0\"") && !junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn a_sync_that_is_gone_is_a_note_and_an_update_removes_its_line() {
    let project = Project::new();
    assert_eq!(project.check(&["--update-baseline", "--runs", "2"], &["./app"]).0, 0);
    let lines = project.read("app.baseline");
    let reason = |line: &str| match line.strip_suffix('}') {
        Some(open) if line.contains("\"call\"") => format!("{open},\"reason\":\"kept\"}}\n"),
        _ => format!("{line}\n"),
    };
    let reasoned: String = lines.lines().map(reason).collect();
    fs::write(project.path().join("app.baseline"), reasoned).unwrap();
    let (status, told, said) = project.check(&[], &["./app", "none"]);
    assert!(status == 0 && told.contains("could go: start: fsync of "), "{status} {told}{said}");
    let (status, told, _) =
        project.check(&["--update-baseline", "--runs", "2"], &["./app", "none"]);
    assert!(status == 0 && told.contains("removed  start: fsync of "), "{told}");
    assert!(told.contains("(its reason was: kept)"), "{told}");
    assert!(!project.read("app.baseline").contains("fsync"));
}

#[test]
fn a_run_that_does_not_see_what_the_baseline_is_about_fails() {
    let project = Project::new();
    assert_eq!(project.check(&["--update-baseline", "--runs", "2"], &["./app"]).0, 0);
    let (status, told, _) = project.check(&["--calls", "sync"], &["./app"]);
    assert!(status == 1 && told.contains("calls: sync were watched"), "{told}");
    assert!(told.contains("phase quit: it never came"), "{told}");
    let (status, told, _) = project.check(&["--stacks", "none"], &["./app"]);
    assert!(status == 1 && told.contains("functions: no stacks were recorded"), "{told}");
    fs::write(project.path().join("app.baseline"), "{\"schema\":\"\u{1b}[31m\"}\n").unwrap();
    let (status, told, said) = project.check(&[], &["./app"]);
    assert!(status == 2 && said.contains("line 1 is not a header"), "{told}{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_mark_is_set_by_a_child_of_the_program() {
    let project = Project::new();
    let unjank = env!("CARGO_BIN_EXE_unjank");
    let script = format!("'{unjank}' trace mark shown; ./app none");
    let (status, _, said) =
        project.check(&["--update-baseline", "--runs", "1"], &["sh", "-c", &script]);
    assert_eq!(status, 0, "{said}");
    assert!(project.read("app.baseline").contains(r#"{"phase":"shown","#));
    let refused = Command::new(unjank).args(["trace", "mark", "a/b"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("up to 64 letters"));
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_command_runs() {
    let project = Project::new();
    assert_eq!(project.check(&["--update-baseline", "--runs", "1"], &["./app"]).0, 0);
    let ran = project.path().join("ran");
    let touch = ["sh", "-c", "touch ran"];
    for options in [["--junit", "no/x.xml"], ["--sarif", "no/x.sarif"], ["--sarif", "."]] {
        let (status, told, said) = project.check(&options, &touch);
        assert!(status == 2 && said.contains("cannot write"), "{options:?}: {told}{said}");
        assert!(!ran.exists(), "{options:?}");
    }
    let nowhere = ["--baseline", "/proc/nowhere/b", "--update-baseline"];
    let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["trace", "check"])
        .args(nowhere)
        .args(["--", "sh", "-c", "touch ran"])
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(output.status.code() == Some(2) && !ran.exists(), "{output:?}");
}

#[test]
fn a_file_that_a_check_needs_is_not_emptied_for_its_verdict() {
    let project = Project::new();
    assert_eq!(project.check(&["--update-baseline", "--runs", "3"], &["./app"]).0, 0);
    let at = |name: &str| project.path().join(name);
    let kept = ["app.baseline", "app", "record.html"];
    let (status, told, said) = project.check(&["-o", "record.html"], &["./app"]);
    assert_eq!(status, 0, "{told}{said}");
    let before = kept.map(|name| fs::read(at(name)).unwrap());
    std::os::unix::fs::symlink("app.baseline", at("link.xml")).unwrap();
    for (options, target, why) in [
        (&["--junit", "app.baseline"][..], "./app", "--baseline"),
        (&["--sarif", "link.xml"], "./app", "--baseline"),
        (&["--junit", "app"], "./app", "what is checked"),
        (&["--sarif", "record.html"], "./record.html", "what is checked"),
        (&["--junit", "record.html", "-o", "record.html", "--force"], "./app", "--output"),
        (&["--junit", "new.xml", "--sarif", "./new.xml"], "./app", "--sarif"),
        (&["--junit", "new.xml", "-o", "new.xml"], "./app", "--output"),
    ] {
        let (status, told, said) = project.check(options, &[target]);
        assert!(status == 2 && said.contains(why), "{options:?} {target}: {told}{said}");
        assert!(!at("new.xml").exists(), "{options:?}");
    }
    assert!(kept.map(|name| fs::read(at(name)).unwrap()) == before, "a file is not what it was");
    // What is no file can take both.
    let (status, told, said) =
        project.check(&["--junit", "/dev/null", "--sarif", "/dev/null"], &["./app"]);
    assert_eq!(status, 0, "{told}{said}");
}

#[test]
fn a_check_that_cannot_judge_leaves_no_verdict_of_an_earlier_one() {
    let project = Project::new();
    let files = ["old.xml", "old.sarif"];
    let results = ["--junit", "old.xml", "--sarif", "old.sarif"];
    let of_last_run = || {
        for name in files {
            fs::write(project.path().join(name), "of the last run").unwrap();
        }
    };
    let is_gone = |why: &str| {
        for name in files {
            assert!(!project.path().join(name).exists(), "{why}: {name}");
        }
    };
    of_last_run();
    let (status, _, said) = project.check(&results, &["./app"]);
    assert!(status == 2 && said.contains("--update-baseline"), "no baseline: {said}");
    is_gone("no baseline");
    assert_eq!(project.check(&["--update-baseline", "--runs", "1"], &["./app"]).0, 0);
    let failing = ["sh", "-c", "cat old.xml old.sarif; exit 3"];
    for (command, why) in [
        (&failing[..], "status 3"),
        (&["sh", "-c", "kill -9 $$"], "signal 9"),
        (&["./no-such-command"], "no-such-command"),
    ] {
        of_last_run();
        let (status, told, said) = project.check(&results, command);
        assert!(status == 2 && said.contains(why), "{status} {said}");
        assert_eq!(told, "", "a check that is killed during the command leaves none either");
        is_gone(why);
    }
    of_last_run();
    fs::write(project.path().join("app.baseline"), "damaged\n").unwrap();
    assert_eq!(project.check(&results, &["./app"]).0, 2);
    is_gone("a damaged baseline");
}

#[test]
fn an_update_refuses_limits_and_results_which_it_would_ignore() {
    let project = Project::new();
    for options in [
        &["--max", "fsync=0"][..],
        &["--max-main-block", "1ms"],
        &["--max-frames", "0"],
        &["--max-wall", "fsync=0ms"],
        &["--max-errors", "openat=0"],
        &["--junit", "x.xml"],
        &["--sarif", "x.sarif"],
        &["--annotations", "github"],
        &["--json"],
    ] {
        let options = [&["--update-baseline", "--runs", "1"], options].concat();
        let (status, told, said) = project.check(&options, &["sh", "-c", "touch ran"]);
        assert_eq!(status, 2, "{options:?}: {told}{said}");
        let refused = format!("cannot use {} with --update-baseline", options[3]);
        assert!(said.contains(&refused) && said.contains("hint: "), "{said}");
        for name in ["ran", "app.baseline", "x.xml", "x.sarif"] {
            assert!(!project.path().join(name).exists(), "{options:?}: {name}");
        }
    }
}

#[test]
fn what_the_program_prints_is_in_no_document_and_no_command_is_behind_it() {
    let project = Project::new();
    assert_eq!(project.check(&["--update-baseline", "--runs", "1"], &["./app"]).0, 0);
    // The shell is another program than that of the baseline, which is a finding.
    let prints = ["sh", "-c", "printf hello"];
    let (_, told, said) = project.check(&["--annotations", "gitlab"], &prints);
    let issues: Value =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error} {told}"));
    assert!(!issues.as_array().unwrap().is_empty() && said.contains("hello"), "{told}{said}");
    let (_, told, _) = project.check(&["--json"], &prints);
    serde_json::from_str::<Value>(&told).unwrap_or_else(|error| panic!("{error} {told}"));
    let (_, told, _) = project.check(&["--annotations", "github"], &prints);
    assert!(told.starts_with("hello") && told.contains("\n::error "), "{told}");
    assert!(told.lines().all(|line| !line.contains("hello::")), "{told}");
}

#[test]
fn two_updates_at_once_are_one_after_the_other_and_a_reason_of_meanwhile_stays() {
    let project = Project::new();
    let update = ["--update-baseline", "--runs", "1"];
    assert_eq!(project.check(&update, &["./app", "planted"]).0, 0);
    // A person writes a reason while the command runs.
    let script = "sed -i 's/}$/,\"reason\":\"meanwhile\"}/; 1s/,\"reason\":\"meanwhile\"//; /short/s/,\"reason\":\"meanwhile\"//' app.baseline; exec ./app planted";
    let (status, told, said) = project.check(&update, &["sh", "-c", script]);
    assert_eq!(status, 0, "{told}{said}");
    let lines = project.read("app.baseline");
    assert!(lines.contains(r#""reason":"meanwhile""#), "{lines}");
    std::thread::scope(|scope| {
        let one = scope.spawn(|| project.check(&update, &["./app"]));
        let two = scope.spawn(|| project.check(&update, &["./app", "planted"]));
        for (status, told, said) in [one, two].map(|check| check.join().unwrap()) {
            assert_eq!(status, 0, "{told}{said}");
        }
    });
    // The last one's runs are what is allowed, and it says what it took away.
    let lines = project.read("app.baseline");
    assert!(lines.contains("save_settings") && lines.lines().count() >= 5, "{lines}");
}

#[test]
fn a_limit_is_not_kept_by_a_backend_that_samples() {
    let project = Project::new();
    let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["trace", "check", "--max", "fsync=0", "--backend", "peek", "--", "./app"])
        .current_dir(project.path())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && told.contains("fsync was called"), "{told}");
}

/// Syncs in 32-bit code, whose numbers of calls are others; it has no library, which may be missing for such code.
const SOURCE_32: &str = r#"
__attribute__((noreturn)) void _start(void) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(118), "b"(1));
    __asm__ volatile("int $0x80" : : "a"(1), "b"(0));
    __builtin_unreachable();
}
"#;

#[test]
fn a_limit_is_not_kept_where_a_program_made_32_bit_calls_whatever_the_backend() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sync32.c"), SOURCE_32).unwrap();
    let built = Command::new("gcc")
        .args(["-m32", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-fno-stack-protector"])
        .args(["-o", "sync32", "sync32.c"])
        .current_dir(dir.path())
        .status();
    let runs = Command::new(dir.path().join("sync32")).status();
    if !built.unwrap().success() || !runs.is_ok_and(|status| status.success()) {
        return skip("this machine builds or runs no 32-bit programs");
    }
    // Among few calls most of those of 32 bits look like calls that are not watched.
    let few = &["--calls", "sync"][..];
    for backend in [&[][..], few, &["--backend", "seccomp"], &["--backend", "ptrace"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .args(["trace", "check", "--max", "fsync=0"])
            .args(backend)
            .args(["--", "./sync32"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(1) && told.contains("(32-bit: "), "{output:?}");
    }
}

#[test]
fn a_check_that_fails_says_so_by_its_status_and_its_files_when_nobody_reads_its_output() {
    let project = Project::new();
    let check = |options: &[&str], closes_stderr: bool| {
        let closed = || std::io::pipe().unwrap().1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_unjank"));
        command.args(["trace", "check", "--max", "fsync=0"]).args(options).args(["--", "./app"]);
        command.current_dir(project.path());
        if closes_stderr {
            command.stderr(closed());
        } else {
            command.stdout(closed());
        }
        command.output().unwrap()
    };
    for options in [&[][..], &["--json"], &["--annotations", "gitlab"]] {
        let results = ["--junit", "u.xml", "--sarif", "u.sarif"];
        let output = check(&[options, &results].concat(), false);
        assert_eq!(output.status.code(), Some(1), "{options:?}: {output:?}");
        for name in ["u.xml", "u.sarif"] {
            assert!(project.read(name).contains("fsync was called"), "{options:?}: {name}");
            fs::remove_file(project.path().join(name)).unwrap();
        }
    }
    // Who reads the annotations gets them, whoever reads the rest.
    let output = check(&["--annotations", "github"], true);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && told.contains("::error "), "{output:?}");
    // A result that nobody takes is an error, as one that cannot be written.
    let output = check(&["--junit", "/dev/stdout"], false);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("/dev/stdout"), "{output:?}");
}

#[test]
fn a_program_that_crashes_keeps_nothing_whatever_the_script_around_it_says() {
    let project = Project::new();
    let script = |how: &str| ["sh".to_owned(), "-c".to_owned(), format!("./app {how}; exit 0")];
    let check = |options: &[&str], command: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .args(["trace", "check"])
            .args(options)
            .args(command)
            .current_dir(project.path())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    let update = ["--baseline", "app.baseline", "--update-baseline", "--runs", "1", "--"];
    let [crash, term] = ["crash", "term"].map(script);
    let [crash, term] = [&crash, &term].map(|words| words.each_ref().map(String::as_str));
    let (status, said) = check(&update, &crash);
    assert!(status == 2 && said.contains("app was ended by SIGSEGV"), "{status} {said}");
    assert_eq!(check(&update, &term).0, 0, "a script may end the program by a signal");
    let limit = ["--max", "syncfs=0", "--"];
    let baseline = ["--baseline", "app.baseline", "--"];
    for options in [&limit, &baseline] {
        let (status, said) = check(options, &crash);
        assert!(status == 1 && said.contains("app was ended by SIGSEGV"), "{status} {said}");
    }
    assert_eq!(check(&limit, &term).0, 0);
    // Nor does the report of a program that crashed.
    let record = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["trace", "-o", "r.html", "--", "./app", "crash"])
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(project.path().join("r.html").exists(), "{record:?}");
    let (status, said) = check(&["--max", "syncfs=0"], &["r.html"]);
    assert!(status == 1 && said.contains("app was ended by SIGSEGV"), "{status} {said}");
}
