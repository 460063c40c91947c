//! Holds rules against a capture.

use std::collections::HashSet;

use serde::Serialize;

use super::rules::{CountPeriod, CountedQuantity, ExpectRules, Expectation, Rule};
use crate::model::{Model, Row};
use crate::stats::time;
use wire::MessageType;

const SECOND_NS: u64 = 1_000_000_000;
/// So many messages that break a rule are named.
const EXAMPLES: usize = 3;

/// Whether a rule is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleOutcome {
    /// The line of the rule.
    pub line: usize,
    /// The rule as it was written.
    pub rule: String,
    /// Whether the rule is kept.
    pub kept: bool,
    /// The finding.
    pub found: String,
    /// The first messages that break it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Checks a recording against all rules, without the recorder's own messages.
#[must_use]
pub fn check(rules: &ExpectRules, model: &Model) -> Vec<RuleOutcome> {
    let astray: HashSet<u32> = model.astray().into_iter().collect();
    rules.0.iter().map(|rule| Checker { model, astray: &astray, rule }.check()).collect()
}

struct Checker<'a> {
    model: &'a Model,
    astray: &'a HashSet<u32>,
    rule: &'a Rule,
}

impl Checker<'_> {
    fn check(&self) -> RuleOutcome {
        match self.rule.wanted {
            Expectation::Called(within) => self.called(within),
            Expectation::AtMost(limit, what, per) => {
                let (count, numbers) = self.count(what, per);
                let found = format!("{}{}", count, per_second(per));
                let examples = if count > limit { self.examples(&numbers) } else { Vec::new() };
                self.outcome(count <= limit, found, examples)
            }
            Expectation::AtLeast(limit, what, per) => {
                let (count, _) = self.count(what, per);
                self.outcome(count >= limit, format!("{}{}", count, per_second(per)), Vec::new())
            }
        }
    }

    fn outcome(&self, kept: bool, found: String, examples: Vec<String>) -> RuleOutcome {
        RuleOutcome { line: self.rule.line, rule: self.rule.text.clone(), kept, found, examples }
    }

    fn chosen(&self) -> impl Iterator<Item = (u32, &Row)> {
        self.model.rows().filter(|(number, _)| {
            !self.model.is_recorders(*number) && self.rule.of.chooses(self.model, *number)
        })
    }

    fn called(&self, within: Option<u64>) -> RuleOutcome {
        let calls: Vec<(u32, &Row)> = self.chosen().collect();
        if calls.is_empty() {
            return self.outcome(false, "it was not called".to_owned(), Vec::new());
        }
        let latency = |row: &Row| self.model.latency_ns(row);
        let is_late = |row: &Row| match latency(row) {
            Some(took) => within.is_some_and(|within| took > within),
            None => !row.flags.no_reply_expected(),
        };
        let late: Vec<u32> =
            calls.iter().filter(|(_, row)| is_late(row)).map(|(number, _)| *number).collect();
        let longest = calls.iter().filter_map(|(_, row)| latency(row)).max();
        let open = calls.iter().filter(|(_, row)| self.model.is_unanswered(row)).count();
        let mut found = format!("called {} times", calls.len());
        if let Some(longest) = longest {
            found.push_str(&format!(", the longest took {}", time(longest)));
        }
        if open > 0 {
            found.push_str(&format!(", {open} without an answer"));
        }
        self.outcome(late.is_empty(), found, self.examples(&late))
    }

    /// Counts the selected messages: in all, or in the busiest second.
    fn count(&self, what: CountedQuantity, per: CountPeriod) -> (u64, Vec<u32>) {
        if what == CountedQuantity::Lost {
            return (self.model.losses.iter().map(|loss| loss.count).sum(), Vec::new());
        }
        let counted: Vec<(u32, u64)> = self
            .chosen()
            .filter(|(number, row)| self.is(what, *number, row))
            .map(|(number, row)| (number, row.at_ns))
            .collect();
        let all = || counted.iter().map(|(number, _)| *number).collect();
        if per == CountPeriod::Whole {
            return (counted.len() as u64, all());
        }
        // The window slides with its last message: no second has more than the fullest of these.
        let (mut most, mut first) = (0..0, 0);
        for (last, (_, at_ns)) in counted.iter().enumerate() {
            while counted[first].1.saturating_add(SECOND_NS) <= *at_ns {
                first += 1;
            }
            if last + 1 - first > most.len() {
                most = first..last + 1;
            }
        }
        let numbers = counted[most].iter().map(|(number, _)| *number).collect::<Vec<u32>>();
        (numbers.len() as u64, numbers)
    }

    fn is(&self, what: CountedQuantity, number: u32, row: &Row) -> bool {
        match what {
            CountedQuantity::Messages => true,
            CountedQuantity::Calls => row.kind == MessageType::Call,
            CountedQuantity::Signals => row.kind == MessageType::Signal,
            CountedQuantity::Errors => row.kind == MessageType::Error,
            CountedQuantity::Unanswered => self.model.is_unanswered(row),
            CountedQuantity::Unowned => self.astray.contains(&number),
            CountedQuantity::Refused => {
                let error = self.model.texts.get(row.error);
                row.kind == MessageType::Error
                    && self.model.is_from_bus(row)
                    && error == "org.freedesktop.DBus.Error.AccessDenied"
            }
            CountedQuantity::Lost => false,
        }
    }

    fn examples(&self, numbers: &[u32]) -> Vec<String> {
        let start_ns = self.model.rows().next().map_or(0, |(_, row)| row.at_ns);
        let example = |number: &u32| {
            let row = self.model.row(*number)?;
            let named = self.model.named(row);
            let (texts, peers) = (&self.model.texts, &self.model.peers);
            let mut text = format!(
                "{} {}.{} from {} to {}",
                time(row.at_ns.saturating_sub(start_ns)),
                texts.get(named.interface),
                texts.get(named.member),
                peers.label(row.sender, texts),
                peers.label(row.receiver, texts),
            );
            if row.error.is_some() {
                text.push_str(&format!(": {}", texts.get(row.error)));
            } else if let Some(took) = self.model.latency_ns(row) {
                text.push_str(&format!(" took {}", time(took)));
            } else if let Some(waited) = self.model.waited_ns(row) {
                text.push_str(&format!(" had no answer in {}", time(waited)));
            }
            Some(text)
        };
        numbers.iter().filter_map(example).take(EXAMPLES).collect()
    }
}

fn per_second(per: CountPeriod) -> &'static str {
    match per {
        CountPeriod::Whole => "",
        CountPeriod::Second => " in the fullest second",
    }
}
