//! A program while it runs: its system calls that sync, and the bytes that it wrote.

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{Lab, cannot};
use crate::lab::{BenchError, Measuring};

/// The calls that wait for a disk.
const SYNCS: [&str; 6] = ["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"];

/// Runs a program and returns what it printed.
pub(super) fn output(mut command: Command) -> Result<String, BenchError> {
    let program = command.get_program().to_owned();
    let output = command.output().map_err(|error| cannot(&program, error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(cannot(&program, output.status))
    }
}

/// Runs a program and returns how many bytes it, and what it waited for, gave to `write` and the like.
pub(super) fn written(mut command: Command) -> Result<f64, BenchError> {
    let program = command.get_program().to_owned();
    let failed = |error: std::io::Error| cannot(&program, error);
    let mut child = command.spawn().map_err(failed)?;
    // Its pipe is read to the end, so that it never waits for us.
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_end(&mut said).map_err(failed)?;
    }
    // Ended, and not yet gone: then its counters are complete and can be read.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), options).map_err(|error| failed(error.into()))?;
    let counters = std::fs::read_to_string(format!("/proc/{}/io", child.id())).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(cannot(&program, status));
    }
    let value = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
    let value = value.and_then(|value| value.parse::<u32>().ok()).map(f64::from);
    Ok(value.unwrap_or(0.0) - f64::from(u32::try_from(said.len()).unwrap_or(0)))
}

/// Runs a program under `unjank trace` and returns how many of its calls sync. What it starts and does not wait for is left
/// out: how far that gets until the program ends depends on who gets a processor.
pub(super) fn syncs(lab: &Lab<'_>, command: &Command) -> Result<f64, BenchError> {
    lab.go_on()?;
    let mut traced = Command::new(&lab.program);
    // What the program prints is not the report.
    traced.args(["trace", "--json", "--calls", &SYNCS.join(","), "--"]);
    traced.args(["/bin/sh", "-c", "exec \"$@\" >/dev/null", "sh"]);
    traced.arg(command.get_program()).args(command.get_args()).env_clear();
    traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    traced.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let text = output(traced)?;
    count(&text).ok_or_else(|| cannot(&lab.program, "its report cannot be read"))
}

/// Returns how many calls a report has of the program itself.
fn count(report: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    let processes = report.get("processes")?.as_array()?;
    let first = processes.iter().find(|process| process["parent"].is_null());
    let first = first.and_then(|process| process.get("id"));
    let threads = report.get("threads")?.as_array()?;
    let own = threads.iter().filter(|thread| thread.get("process") == first);
    Some(own.filter_map(|thread| thread.get("count")?.as_f64()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_the_first_process_of_a_report_are_counted() {
        let report = r#"{"processes":[{"id":7},{"id":8,"parent":7}],"threads":[
            {"process":7,"count":2},{"process":7,"count":3},{"process":8,"count":1}]}"#;
        assert_eq!(count(report), Some(5.0));
        assert_eq!(count(r#"{"processes":[],"threads":[]}"#), Some(0.0));
        assert_eq!(count("none"), None);
    }
}
