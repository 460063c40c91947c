//! Rules that a report has to keep, so that a test run notices when a wait comes back.

use serde::Serialize;

use super::calls::Set;
use super::report::Report;
use super::report::verdict::{frames_of, time};

/// What a report may at most hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No stall of the main thread is longer than this, in nanoseconds.
    MainBlock(u64),
    /// The main thread misses no more frames than this.
    FramesMissed(u64),
    /// A call is made at most so often.
    Count(String, u64),
    /// A call takes at most so long in all, idle waits apart, in nanoseconds.
    Wall(String, u64),
    /// A call fails at most so often.
    Errors(String, u64),
}

/// Why a text is no rule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot read {text:?} as a rule: {why}")]
pub struct RuleError {
    text: String,
    why: &'static str,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether the report keeps it.
    pub kept: bool,
    /// Whether the calls that it is about were watched at all; where they were not, it cannot be kept.
    pub seen: bool,
    /// What was found, in a sentence.
    pub text: String,
}

/// Takes `CALL=VALUE` apart.
fn parts(text: &str) -> Result<(String, &str), RuleError> {
    let wrong = |why| RuleError { text: text.to_owned(), why };
    let (call, value) = text.split_once('=').ok_or(wrong("it has to be CALL=VALUE"))?;
    if !is_call(call) {
        return Err(wrong("there is no such call"));
    }
    Ok((call.to_owned(), value.trim()))
}

fn is_call(name: &str) -> bool {
    super::kernel::call_number(name).is_some()
}

impl Rule {
    /// Reads `fsync=0`: at most so many calls.
    ///
    /// # Errors
    ///
    /// A [`RuleError`] that says what is wrong with the text.
    pub fn count(text: &str) -> Result<Rule, RuleError> {
        let (call, value) = parts(text)?;
        Ok(Rule::Count(call, number(text, value)?))
    }

    /// Reads `openat=10`: at most so many failures.
    ///
    /// # Errors
    ///
    /// A [`RuleError`] that says what is wrong with the text.
    pub fn errors(text: &str) -> Result<Rule, RuleError> {
        let (call, value) = parts(text)?;
        Ok(Rule::Errors(call, number(text, value)?))
    }

    /// Reads `fdatasync=20ms`: at most so long in all.
    ///
    /// # Errors
    ///
    /// A [`RuleError`] that says what is wrong with the text.
    pub fn wall(text: &str) -> Result<Rule, RuleError> {
        let (call, value) = parts(text)?;
        Ok(Rule::Wall(call, duration_ns(text, value)?))
    }

    /// Reads `50ms`: no stall of the main thread is longer.
    ///
    /// # Errors
    ///
    /// A [`RuleError`] that says what is wrong with the text.
    pub fn main_block(text: &str) -> Result<Rule, RuleError> {
        Ok(Rule::MainBlock(duration_ns(text, text)?))
    }

    /// Says whether a report keeps the rule.
    #[must_use]
    pub fn check(&self, report: &Report) -> Outcome {
        let kind = |call: &str| report.calls.iter().find(|kind| kind.name == call);
        let was_watched = |call: &str| watched(report, call);
        let outcome =
            |kept: bool, seen: bool, text: String| Outcome { kept: kept && seen, seen, text };
        match self {
            Rule::MainBlock(most) => {
                let longest = report.main().map(|main| main.stalls.longest_ns);
                let found = longest.unwrap_or(0);
                outcome(
                    found <= *most,
                    longest.is_some(),
                    format!(
                        "the longest stall of the main thread took {} ({} frames), {} allowed",
                        time(found),
                        frames_of(found, report),
                        time(*most)
                    ),
                )
            }
            Rule::FramesMissed(most) => {
                let frames = report.main().map(|main| main.stalls.frames);
                let found = frames.unwrap_or(0);
                outcome(
                    found <= *most,
                    frames.is_some(),
                    format!("the main thread missed {found} frames, {most} allowed"),
                )
            }
            Rule::Count(call, most) => {
                let found = kind(call).map_or(0, |kind| kind.count);
                outcome(
                    found <= *most,
                    was_watched(call),
                    format!("{call} was called {found} times, {most} allowed"),
                )
            }
            Rule::Errors(call, most) => {
                let found = kind(call).map_or(0, |kind| kind.errors);
                outcome(
                    found <= *most,
                    was_watched(call),
                    format!("{call} failed {found} times, {most} allowed"),
                )
            }
            Rule::Wall(call, most) => {
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

impl Outcome {
    fn explained(mut self, report: &Report) -> Outcome {
        if !self.seen {
            self.text.push_str(&format!("; but it was not watched (only: {})", report.watch.calls));
        } else if report.watch.lost > 0 && self.kept {
            self.text.push_str(&format!("; {} events were lost", report.watch.lost));
        }
        self
    }
}

/// Whether a call would have been seen if it had been made.
fn watched(report: &Report, call: &str) -> bool {
    let set = report.watch.calls.parse::<Set>();
    let is_in = |set: Set| super::kernel::call_number(call).is_some_and(|call| set.contains(call));
    // What a log was made with is not known; what is in it was watched.
    set.map_or(true, is_in) || report.calls.iter().any(|kind| kind.name == call)
}

fn number(text: &str, value: &str) -> Result<u64, RuleError> {
    value.parse().map_err(|_| RuleError { text: text.to_owned(), why: "the limit is no number" })
}

/// Reads a duration with its unit, in nanoseconds.
fn duration_ns(text: &str, value: &str) -> Result<u64, RuleError> {
    let wrong =
        || RuleError { text: text.to_owned(), why: "a time is a number and s, ms, us or ns" };
    let value = value.trim();
    let split = value.find(|letter: char| letter.is_alphabetic()).ok_or_else(wrong)?;
    let (digits, unit) = value.split_at(split);
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(wrong()),
    };
    let seconds: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let time = std::time::Duration::try_from_secs_f64(seconds * scale).map_err(|_| wrong())?;
    u64::try_from(time.as_nanos()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::report::tests::report;

    #[test]
    fn a_rule_is_kept_or_broken_and_says_by_how_much() {
        let report = report();
        let check = |rule: Rule| {
            let outcome = rule.check(&report);
            format!("{} {}", outcome.kept, outcome.text)
        };
        insta::assert_snapshot!(check(Rule::main_block("150ms").unwrap()), @"true the longest stall of the main thread took 134 ms (8.0 frames), 150 ms allowed");
        insta::assert_snapshot!(check(Rule::main_block("0.05 s").unwrap()), @"false the longest stall of the main thread took 134 ms (8.0 frames), 50.0 ms allowed");
        insta::assert_snapshot!(check(Rule::count("fsync=0").unwrap()), @"false fsync was called 1 times, 0 allowed");
        insta::assert_snapshot!(check(Rule::count("syncfs=0").unwrap()), @"true syncfs was called 0 times, 0 allowed");
        insta::assert_snapshot!(check(Rule::errors("access=1375").unwrap()), @"true access failed 1375 times, 1375 allowed");
        insta::assert_snapshot!(check(Rule::wall("ppoll=1us").unwrap()), @"true ppoll took 0 ns in all, 1.00 µs allowed");
        insta::assert_snapshot!(check(Rule::FramesMissed(11)), @"false the main thread missed 12 frames, 11 allowed");
    }

    #[test]
    fn a_rule_about_what_was_not_watched_is_not_kept() {
        let mut report = report();
        report.watch.calls = "fdatasync,openat".to_owned();
        let outcome = Rule::count("syncfs=0").unwrap().check(&report);
        assert!(
            !outcome.kept && !outcome.seen && outcome.text.contains("was not watched"),
            "{outcome:?}"
        );
        assert!(Rule::count("openat=0").unwrap().check(&report).kept);
    }

    #[test]
    fn a_set_of_calls_has_the_calls_that_its_name_says() {
        let mut report = report();
        for (set, seen) in [("sync", true), ("disk", true), ("all", true), ("openat", false)] {
            set.clone_into(&mut report.watch.calls);
            assert_eq!(Rule::count("syncfs=0").unwrap().check(&report).seen, seen, "{set}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for wrong in ["fsync", "fsync=", "fsync=-1", "=3", "fsnyc=0", "fsync=1.5"] {
            assert!(Rule::count(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "ms", "-1ms", "infs", "1e300s", "5 parsecs"] {
            assert!(Rule::main_block(wrong).is_err(), "{wrong}");
        }
        insta::assert_snapshot!(Rule::count("fsnyc=0").unwrap_err(), @r#"cannot read "fsnyc=0" as a rule: there is no such call"#);
    }
}
