//! Limits for a report, so that a test run detects regressions.

use ::report::duration::{self, DurationError};
use serde::Serialize;
use trace::report::TraceReport;
use trace::report::account::TimeAccount;
use trace::report::schema::Thread;
use trace::report::verdict::{block_text, frames_of, time};
use trace::syscall_set::Set;

use super::baseline::unseen_calls;
use super::ending;

/// A limit for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRule {
    /// No stall of the main thread is longer than this, in nanoseconds.
    MainBlock(u64),
    /// The main thread misses no more frames than this.
    FramesMissed(u64),
    /// The number of calls is limited.
    Count(String, u64),
    /// The total time of a call is limited, without idle waits, in nanoseconds.
    Wall(String, u64),
    /// The number of failures of a call is limited.
    Errors(String, u64),
}

/// Why a text is not a valid rule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot read {text:?} as a rule: {why}")]
pub struct CheckRuleError {
    text: String,
    why: String,
}

/// The outcome of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckOutcome {
    /// Whether the report keeps it.
    pub kept: bool,
    /// Whether what the rule is about was recorded, of a program that came to its end; if not, the rule counts as broken.
    pub seen: bool,
    /// The limit without its value: `max fsync`.
    pub rule: String,
    /// The finding, in a sentence.
    pub text: String,
}

/// Splits `CALL=VALUE`.
fn parts(text: &str) -> Result<(String, &str), CheckRuleError> {
    let wrong = |why: &str| CheckRuleError { text: text.to_owned(), why: why.to_owned() };
    let (call, value) =
        text.split_once('=').ok_or(wrong("it does not have the form CALL=VALUE"))?;
    if !is_call(call) {
        return Err(wrong("unknown system call"));
    }
    Ok((call.to_owned(), value.trim()))
}

fn is_call(name: &str) -> bool {
    trace::syscall::call_number(name).is_some()
}

impl CheckRule {
    /// Reads `fsync=0`: at most so many calls.
    ///
    /// # Errors
    ///
    /// A [`CheckRuleError`] that says what is wrong with the text.
    pub fn count(text: &str) -> Result<CheckRule, CheckRuleError> {
        let (call, value) = parts(text)?;
        Ok(CheckRule::Count(call, number(text, value)?))
    }

    /// Reads `openat=10`: at most so many failures.
    ///
    /// # Errors
    ///
    /// A [`CheckRuleError`] that says what is wrong with the text.
    pub fn errors(text: &str) -> Result<CheckRule, CheckRuleError> {
        let (call, value) = parts(text)?;
        Ok(CheckRule::Errors(call, number(text, value)?))
    }

    /// Reads `fdatasync=20ms`: at most so long in all.
    ///
    /// # Errors
    ///
    /// A [`CheckRuleError`] that says what is wrong with the text.
    pub fn wall(text: &str) -> Result<CheckRule, CheckRuleError> {
        let (call, value) = parts(text)?;
        Ok(CheckRule::Wall(call, duration_ns(text, value)?))
    }

    /// Reads `50ms`: no stall of the main thread is longer.
    ///
    /// # Errors
    ///
    /// A [`CheckRuleError`] that says what is wrong with the text.
    pub fn main_block(text: &str) -> Result<CheckRule, CheckRuleError> {
        Ok(CheckRule::MainBlock(duration_ns(text, text)?))
    }

    /// Returns the option that makes the rule, without its value: `max fsync`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            CheckRule::MainBlock(_) => "max-main-block".to_owned(),
            CheckRule::FramesMissed(_) => "max-frames".to_owned(),
            CheckRule::Count(call, _) => format!("max {call}"),
            CheckRule::Wall(call, _) => format!("max-wall {call}"),
            CheckRule::Errors(call, _) => format!("max-errors {call}"),
        }
    }

    /// Returns whether a report keeps the rule.
    #[must_use]
    pub fn check(&self, report: &TraceReport) -> CheckOutcome {
        let kind = |call: &str| report.calls.iter().find(|kind| kind.name == call);
        let was_watched = |call: &str| watched(report, call) && unseen_calls(report).is_none();
        let ended_otherwise = ending_fault(report).is_some();
        let outcome = |kept: bool, seen: bool, text: String| {
            let seen = seen && !ended_otherwise;
            CheckOutcome { kept: kept && seen, seen, rule: self.name(), text }
        };
        match self {
            CheckRule::MainBlock(most) => {
                let (kept, seen, text) = main_block(report, *most);
                outcome(kept, seen, text)
            }
            CheckRule::FramesMissed(most) => {
                let found = report.main().map_or(0, Thread::frames);
                outcome(
                    found <= *most,
                    sees_functions(report),
                    format!("the main thread missed {found} frames, {most} allowed"),
                )
            }
            CheckRule::Count(call, most) => {
                let found = kind(call).map_or(0, |kind| kind.count);
                outcome(
                    found <= *most,
                    was_watched(call),
                    format!("{call} was called {found} times, {most} allowed"),
                )
            }
            CheckRule::Errors(call, most) => {
                let found = kind(call).map_or(0, |kind| kind.errors);
                outcome(
                    found <= *most,
                    was_watched(call),
                    format!("{call} failed {found} times, {most} allowed"),
                )
            }
            CheckRule::Wall(call, most) => {
                let found = kind(call).map_or(0, |kind| kind.wall_ns.saturating_sub(kind.idle_ns));
                outcome(
                    found <= *most,
                    was_watched(call),
                    format!("{call} took {} in all, {} allowed", time(found), time(*most)),
                )
            }
        }
        .explained(report)
    }
}

/// Checks the longest time in which the main thread could not go on, whatever that time went to.
fn main_block(report: &TraceReport, most: u64) -> (bool, bool, String) {
    let main = report.main();
    let account = main.and_then(|main| main.account.as_ref());
    let found = main.map_or(0, Thread::longest_ns);
    let mut text = format!(
        "the longest stall of the main thread took {} ({} frames)",
        time(found),
        frames_of(found, report)
    );
    let block = account.and_then(TimeAccount::longest);
    if let Some(block) = block.filter(|block| block.wall_ns == found) {
        text.push_str(&format!(": {}", block_text(report, block)));
    }
    text.push_str(&format!("; {} allowed", time(most)));
    if let Some(account) = account {
        let unknown = account.parts.unknown_ns;
        text.push_str(&format!("; {} of its time are not explained", time(unknown)));
    }
    (found <= most, sees_functions(report), text)
}

/// Returns whether the time of the main thread is accounted for, and is that of the program's functions.
fn sees_functions(report: &TraceReport) -> bool {
    let account = report.main().and_then(|main| main.account.as_ref());
    account.is_some_and(|account| account.runtime.is_none())
}

impl CheckOutcome {
    fn explained(mut self, report: &TraceReport) -> CheckOutcome {
        if !self.seen {
            self.text.push_str(&format!("; but {}", self.why_unseen(report)));
        } else if report.watch.lost > 0 && self.kept {
            self.text.push_str(&format!("; {} events were lost", report.watch.lost));
        }
        self
    }

    /// Returns what keeps a rule from being judged.
    fn why_unseen(&self, report: &TraceReport) -> String {
        if let Some(fault) = ending_fault(report) {
            return fault;
        }
        if matches!(&*self.rule, "max-main-block" | "max-frames") {
            let account = report.main().and_then(|main| main.account.as_ref());
            return account.and_then(TimeAccount::elsewhere).unwrap_or_else(|| {
                "what the thread did between its calls was not recorded".to_owned()
            });
        }
        match unseen_calls(report) {
            Some(why) => format!("not every call was seen ({why})"),
            None => format!("it was not watched (only: {})", report.watch.calls),
        }
    }
}

/// Returns why a program did not end as one that shows all that it does, if so.
fn ending_fault(report: &TraceReport) -> Option<String> {
    ending::failure(report).or_else(|| ending::runs_still(report))
}

/// Returns whether the recording covers a call.
fn watched(report: &TraceReport, call: &str) -> bool {
    let set = report.watch.calls.parse::<Set>();
    let is_in = |set: Set| trace::syscall::call_number(call).is_some_and(|call| set.contains(call));
    // The options of a log are not known; the calls in it were recorded.
    set.map_or(true, is_in) || report.calls.iter().any(|kind| kind.name == call)
}

fn number(text: &str, value: &str) -> Result<u64, CheckRuleError> {
    value.parse().map_err(|_| CheckRuleError {
        text: text.to_owned(),
        why: "the limit is not a number".to_owned(),
    })
}

/// Reads a duration, in nanoseconds.
fn duration_ns(text: &str, value: &str) -> Result<u64, CheckRuleError> {
    let wrong = || CheckRuleError { text: text.to_owned(), why: DurationError.to_string() };
    let time = duration::parse(value).map_err(|_| wrong())?;
    u64::try_from(time.as_nanos()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::report;

    #[test]
    fn a_rule_is_kept_or_broken_and_says_by_how_much() {
        let report = report();
        let check = |rule: CheckRule| {
            let outcome = rule.check(&report);
            format!("{} {}", outcome.kept, outcome.text)
        };
        insta::assert_snapshot!(check(CheckRule::main_block("170ms").unwrap()), @"true the longest stall of the main thread took 166 ms (10 frames): 132 ms blocked in calls, 18.0 ms on a processor, 16.2 ms not explained; 170 ms allowed; 68.6 ms of its time are not explained");
        insta::assert_snapshot!(check(CheckRule::main_block("0.05 s").unwrap()), @"false the longest stall of the main thread took 166 ms (10 frames): 132 ms blocked in calls, 18.0 ms on a processor, 16.2 ms not explained; 50.0 ms allowed; 68.6 ms of its time are not explained");
        insta::assert_snapshot!(check(CheckRule::count("fsync=0").unwrap()), @"false fsync was called 1 times, 0 allowed");
        insta::assert_snapshot!(check(CheckRule::count("syncfs=0").unwrap()), @"true syncfs was called 0 times, 0 allowed");
        insta::assert_snapshot!(check(CheckRule::errors("access=1375").unwrap()), @"true access failed 1375 times, 1375 allowed");
        insta::assert_snapshot!(check(CheckRule::wall("ppoll=1us").unwrap()), @"true ppoll took 0 ns in all, 1.00 µs allowed");
        insta::assert_snapshot!(check(CheckRule::FramesMissed(11)), @"false the main thread missed 17 frames, 11 allowed");
    }

    #[test]
    fn a_rule_about_what_was_not_watched_is_not_kept() {
        let mut report = report();
        report.watch.calls = "fdatasync,openat".to_owned();
        let outcome = CheckRule::count("syncfs=0").unwrap().check(&report);
        assert!(
            !outcome.kept && !outcome.seen && outcome.text.contains("was not watched"),
            "{outcome:?}"
        );
        assert!(CheckRule::count("openat=0").unwrap().check(&report).kept);
    }

    #[test]
    fn a_report_without_an_account_keeps_no_limit_on_stalls() {
        let mut old = report();
        old.threads.iter_mut().for_each(|thread| thread.account = None);
        let outcome = CheckRule::main_block("10s").unwrap().check(&old);
        assert!(!outcome.kept && !outcome.seen, "{}", outcome.text);
        assert!(outcome.text.contains("was not recorded"), "{}", outcome.text);
    }

    #[test]
    fn a_limit_on_the_main_thread_is_not_kept_where_a_runtime_has_the_functions_wait_elsewhere() {
        let mut report = report();
        let keeps = |report: &TraceReport| {
            ["3s", "9"].map(|most| match most {
                "3s" => CheckRule::main_block(most).unwrap().check(report),
                _ => CheckRule::FramesMissed(1000).check(report),
            })
        };
        assert!(keeps(&report).iter().all(|outcome| outcome.kept), "{:?}", keeps(&report));
        for account in report.threads.iter_mut().filter_map(|thread| thread.account.as_mut()) {
            account.runtime = Some("Go".to_owned());
        }
        for outcome in keeps(&report) {
            let is_told = outcome.text.contains("; but Go runs the program's functions in threads");
            assert!(!outcome.kept && !outcome.seen && is_told, "{outcome:?}");
        }
    }

    #[test]
    fn a_limit_on_calls_is_not_kept_where_not_every_call_was_seen() {
        let mut sampled = report();
        sampled.watch.backend = "peek".to_owned();
        let mut foreign = report();
        foreign.watch.foreign_calls = 3;
        let mut left = report();
        (left.watch.lost, left.watch.not_counted) = (3, 3);
        for report in [sampled, foreign, left] {
            for rule in ["syncfs=0", "fdatasync=1000"].map(|rule| CheckRule::count(rule).unwrap()) {
                let outcome = rule.check(&report);
                assert!(!outcome.kept && !outcome.seen, "{outcome:?}");
                assert!(outcome.text.contains("not every call was seen"), "{outcome:?}");
            }
            assert!(!CheckRule::wall("ppoll=1s").unwrap().check(&report).kept);
            assert!(!CheckRule::errors("access=9999").unwrap().check(&report).kept);
            // Stalls are measured beside the backend.
            assert!(CheckRule::main_block("10s").unwrap().check(&report).kept);
        }
    }

    #[test]
    fn what_was_lost_of_slow_calls_alone_is_in_the_sums() {
        let mut report = report();
        report.watch.lost = 3;
        let outcome = CheckRule::count("syncfs=0").unwrap().check(&report);
        assert!(outcome.kept && outcome.text.ends_with("; 3 events were lost"), "{outcome:?}");
    }

    #[test]
    fn no_limit_is_kept_by_a_program_that_crashed_or_may_run_still() {
        let mut crashed = report();
        let main = crashed.main().unwrap().process;
        let process = crashed.processes.iter_mut().find(|process| process.id == main).unwrap();
        process.exit = Some("signal 11".to_owned());
        for rule in [CheckRule::count("syncfs=0").unwrap(), CheckRule::main_block("10s").unwrap()] {
            assert!(rule.check(&report()).kept);
            let outcome = rule.check(&crashed);
            let is_told = outcome.text.ends_with("; but kde-open5 was ended by SIGSEGV");
            assert!(!outcome.kept && !outcome.seen && is_told, "{outcome:?}");
        }
    }

    #[test]
    fn a_set_of_calls_has_the_calls_that_its_name_says() {
        let mut report = report();
        for (set, seen) in [("sync", true), ("disk", true), ("all", true), ("openat", false)] {
            set.clone_into(&mut report.watch.calls);
            assert_eq!(CheckRule::count("syncfs=0").unwrap().check(&report).seen, seen, "{set}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for wrong in ["fsync", "fsync=", "fsync=-1", "=3", "fsnyc=0", "fsync=1.5"] {
            assert!(CheckRule::count(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "ms", "-1ms", "infs", "1e300s", "5 parsecs"] {
            assert!(CheckRule::main_block(wrong).is_err(), "{wrong}");
        }
        insta::assert_snapshot!(CheckRule::count("fsnyc=0").unwrap_err(), @r#"cannot read "fsnyc=0" as a rule: unknown system call"#);
    }
}
