//! How the judged program ended: one that crashed, or may run still, has not shown all that it does.

use trace::report::TraceReport;
use trace::report::schema::ProcessRow;

/// Signals that say that something is wrong, by number; others may be sent on purpose, such as by a script that ends the program.
const CRASHES: [(&str, &str); 9] = [
    ("4", "SIGILL"),
    ("5", "SIGTRAP"),
    ("6", "SIGABRT"),
    ("7", "SIGBUS"),
    ("8", "SIGFPE"),
    ("11", "SIGSEGV"),
    ("24", "SIGXCPU"),
    ("25", "SIGXFSZ"),
    ("31", "SIGSYS"),
];

/// Returns how the judged program or the command failed, if one of them did.
pub(crate) fn failure(report: &TraceReport) -> Option<String> {
    let crash = |process: &ProcessRow| {
        let signal = process.exit.as_deref()?.strip_prefix("signal ")?;
        let (_, name) = CRASHES.into_iter().find(|(number, _)| *number == signal)?;
        Some(format!("{} was ended by {name}", report.program(process.id)))
    };
    let status = |process: &ProcessRow| {
        let status = process.exit.as_deref()?.strip_prefix("exit ")?;
        let fails = status != "0";
        fails.then(|| format!("{} failed with status {status}", report.program(process.id)))
    };
    let command = || command(report).and_then(|process| status(process).or_else(|| crash(process)));
    judged(report).and_then(crash).or_else(command)
}

/// Says that the judged program was not seen to end, if the command, which should have waited for it, was.
pub(crate) fn runs_still(report: &TraceReport) -> Option<String> {
    // Looks at intervals need not see an end.
    if report.watch.backend == "peek" || command(report)?.end_ns.is_none() {
        return None;
    }
    let process = judged(report)?;
    let program = report.program(process.id);
    process.end_ns.is_none().then(|| format!("{program} was not seen to end, and may run still"))
}

/// Returns the process of the main thread.
fn judged(report: &TraceReport) -> Option<&ProcessRow> {
    let main = report.main()?.process;
    report.processes.iter().find(|process| process.id == main)
}

/// Returns the process that the recording began with.
fn command(report: &TraceReport) -> Option<&ProcessRow> {
    let is_known = |id: u32| report.processes.iter().any(|process| process.id == id);
    let first = report.processes.iter().filter(|process| !process.parent.is_some_and(is_known));
    first.min_by_key(|process| process.start_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::traced;

    /// Returns a report of a script that ran an editor, which its main thread is of, each with its end.
    fn script(of_script: Option<&str>, of_editor: Option<&str>) -> TraceReport {
        let mut report = traced(&[]);
        let end = |process: &mut ProcessRow, exit: Option<&str>| {
            process.exit = exit.map(str::to_owned);
            process.end_ns = exit.map(|_| 9_000_000_000);
        };
        let mut shell = ProcessRow { id: 5, ..report.processes[0].clone() };
        shell.executable = "/bin/sh".to_owned();
        end(&mut shell, of_script);
        let editor = &mut report.processes[0];
        editor.parent = Some(5);
        end(editor, of_editor);
        report.processes.insert(0, shell);
        report
    }

    #[test]
    fn a_crash_is_a_failure_and_an_end_on_purpose_is_none() {
        let of = |exit: &str| failure(&script(Some("exit 0"), Some(exit)));
        assert_eq!(of("signal 11").as_deref(), Some("editor was ended by SIGSEGV"));
        assert_eq!(of("signal 6").as_deref(), Some("editor was ended by SIGABRT"));
        // A script may end it by a signal, and not care for its status.
        for exit in ["exit 0", "exit 3", "signal 15", "signal 9", "signal 2", "signal 1"] {
            assert_eq!(of(exit), None, "{exit}");
        }
    }

    #[test]
    fn a_command_that_failed_is_one_in_its_report_too() {
        let of = |exit: &str| failure(&script(Some(exit), Some("exit 0")));
        assert_eq!(of("exit 3").as_deref(), Some("sh failed with status 3"));
        assert_eq!(of("signal 11").as_deref(), Some("sh was ended by SIGSEGV"));
        assert_eq!(of("exit 0"), None);
        // An attached program goes on.
        assert_eq!(failure(&script(None, None)), None);
    }

    #[test]
    fn a_program_that_outlives_its_command_is_not_seen_whole() {
        let mut left = script(Some("exit 0"), None);
        let said = runs_still(&left);
        assert_eq!(said.as_deref(), Some("editor was not seen to end, and may run still"));
        "peek".clone_into(&mut left.watch.backend);
        assert_eq!(runs_still(&left), None);
        assert_eq!(runs_still(&script(Some("exit 0"), Some("signal 15"))), None);
        // The recording ended before the command.
        assert_eq!(runs_still(&script(None, None)), None);
    }
}
