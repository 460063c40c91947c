//! Whoever traces: no program is said to have never waited while its main thread could not go on.
#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use crate::fixture;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fixture::{copy_program, has, skip};
use serde_json::Value;

/// A directory that everybody may read, with `unjank` and the planted program.
struct Planted {
    dir: tempfile::TempDir,
}

impl Planted {
    fn new() -> Option<Planted> {
        if !has(&["gcc", "setpriv"]) {
            skip("gcc or setpriv is missing");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), all).unwrap();
        copy_program(env!("CARGO_BIN_EXE_unjank"), &dir.path().join("unjank"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/victims/time.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-g", "-pthread", "-o"]).arg(dir.path().join("time")).arg(source);
        assert!(compiler.status().unwrap().success());
        Some(Planted { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `unjank trace` as this user, or as one without any rights.
    fn trace(&self, is_ordinary: bool, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        if is_ordinary && rustix::process::geteuid().is_root() {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        command.arg(self.path("unjank")).arg("trace").args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }
}

#[test]
fn every_user_is_told_of_a_loop_and_of_a_lock_and_the_limit_is_broken() {
    let Some(planted) = Planted::new() else { return };
    for is_ordinary in [false, true] {
        for (how, part, words) in
            [("loop", "processor_ns", "spin"), ("mutex", "lock_ns", "take_lock")]
        {
            let program = planted.path("time");
            let command = ["--json", "--", program.to_str().unwrap(), how];
            let output = planted.trace(is_ordinary, &command);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
            let main = usize::try_from(report["main_thread"].as_u64().unwrap()).unwrap();
            let account = &report["threads"][main]["account"];
            assert!(account[part].as_u64().unwrap() > 200_000_000, "{how}: {account}");
            let verdict = report["verdict"].as_str().unwrap();
            // On a busy machine most of the time is that without a processor, and the verdict says so.
            let functions = account["functions"].as_array().into_iter().flatten();
            let names = functions.filter_map(|share| {
                let frame = usize::try_from(share["frame"].as_u64()?).ok()?;
                report["frames"][frame]["name"].as_str()
            });
            let is_named = verdict.contains(words)
                || names.into_iter().any(|name| name.contains(words))
                || account["unseen"][0].is_string();
            let context = format!("{how}, ordinary {is_ordinary}: {verdict} {}", report["slow"]);
            assert!(is_named && verdict.contains("Not explained: "), "{context}");

            let limit = ["check", "--max-main-block", "50ms", "--", program.to_str().unwrap(), how];
            let output = planted.trace(is_ordinary, &limit);
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(1), "{how}: {said}");
            assert!(said.contains("broken") && said.contains("not explained"), "{how}: {said}");
        }
    }
}

#[test]
fn a_recording_ends_with_its_command_and_follows_what_that_started_only_if_it_is_told_to() {
    let Some(planted) = Planted::new() else { return };
    for (follow, seconds) in [(None, "4"), (Some("--follow"), "1")] {
        let left = format!("sleep {seconds} >/dev/null 2>&1 &");
        let mut arguments = vec!["--json"];
        arguments.extend(follow);
        arguments.extend(["--", "sh", "-c", &left]);
        let output = planted.trace(false, &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
        let length = report["length_ns"].as_u64().unwrap();
        let is_followed = length >= 1_000_000_000 * seconds.parse::<u64>().unwrap();
        assert_eq!(is_followed, follow.is_some(), "{follow:?}: {length} ns, {said}");
        // What goes on beside the command is not what the user waits for.
        let main = usize::try_from(report["main_thread"].as_u64().unwrap()).unwrap();
        let process = &report["threads"][main]["process"];
        let processes = report["processes"].as_array().unwrap();
        let first = processes.iter().find(|process| process["parent"].is_null()).unwrap();
        assert_eq!(process, &first["id"], "{}", report["verdict"]);
    }
}

#[test]
fn an_asyncio_loop_at_rest_is_idle_and_no_stall() {
    let Some(planted) = Planted::new() else { return };
    if !has(&["python3"]) {
        skip("python3 is missing");
        return;
    }
    let program = "import asyncio\nasyncio.run(asyncio.sleep(0.6))";
    for is_ordinary in [false, true] {
        let output = planted.trace(is_ordinary, &["--json", "--", "python3", "-c", program]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
        let main = usize::try_from(report["main_thread"].as_u64().unwrap()).unwrap();
        let thread = &report["threads"][main];
        assert!(thread["account"]["idle_ns"].as_u64().unwrap() > 500_000_000, "{thread}");
    }
}
