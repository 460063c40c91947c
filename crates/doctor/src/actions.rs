//! The recommendations for all findings: a few commands that can be run, the most useful first, and the causes of the rest.

use super::Diagnosis;
use super::finding::{Finding, Help};
use super::remedy::Remedy;
use report::grade::Grade;
use setup::SetupPart;

/// A person does no more than this at a time.
pub const MOST: usize = 3;

/// A command, what it does, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What it does, in a sentence without a full stop.
    pub text: String,
    /// The command, ready to be pasted.
    pub command: String,
    /// The findings that it helps and the cause: `sync (home): the disk turns`.
    pub reason: String,
}

/// Why a step is slow or something is broken, where no command of the first few helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingCause {
    /// The findings' names and the cause.
    pub reason: String,
    /// What helps and is no command, or none that runs here.
    pub hints: Vec<String>,
}

/// Findings of one cause, for which the same helps.
struct Group<'a>(Vec<&'a Finding>);

impl Group<'_> {
    fn reason(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|finding| &*finding.name).collect();
        let cause = self.0.first().and_then(|finding| finding.cause.as_deref());
        let names = names.join("; ");
        cause.map_or(names.clone(), |cause| format!("{names}: {cause}"))
    }

    fn remedies(&self) -> impl Iterator<Item = &Remedy> {
        self.0.first().into_iter().flat_map(|finding| &finding.help).filter_map(|help| match help {
            Help::Remedy(remedy) => Some(remedy),
            Help::Hint(_) => None,
        })
    }

    fn hints(&self) -> impl Iterator<Item = &str> {
        self.0.first().into_iter().flat_map(|finding| &finding.help).filter_map(|help| match help {
            Help::Hint(hint) => Some(&**hint),
            Help::Remedy(_) => None,
        })
    }
}

/// Returns what to do: first what is broken, then the slowest step, and so on; and the causes of what is left. A step that fits needs nothing done, and neither does one that nothing of the user's goes through.
#[must_use]
pub fn ranked(diagnosis: &Diagnosis) -> (Vec<Action>, Vec<FindingCause>) {
    let (mut actions, mut causes) = (Vec::new(), Vec::new());
    for group in groups(diagnosis) {
        let command = group.remedies().find_map(|remedy| {
            let command = diagnosis.shell.command(remedy)?;
            Some(Action { text: remedy.text(), command, reason: group.reason() })
        });
        let hints: Vec<String> = group.hints().map(str::to_owned).collect();
        // What is only worth knowing is told with its cause where it stands.
        let is_note = group.0.first().is_some_and(|finding| finding.is_note());
        match command {
            None if is_note => {}
            Some(_) if is_note && actions.len() >= MOST => {}
            Some(action)
                if actions.iter().any(|known: &Action| known.command == action.command) =>
            {
                causes.push(FindingCause { reason: action.reason, hints });
            }
            Some(action) if actions.len() < MOST => actions.push(action),
            _ => causes.push(FindingCause { reason: group.reason(), hints }),
        }
    }
    (actions, causes)
}

/// Returns the parts of ours that help, the most useful first, each with the command that switches it on: at most [`MOST`].
#[must_use]
pub fn parts(diagnosis: &Diagnosis) -> Vec<(SetupPart, String)> {
    let mut parts: Vec<(SetupPart, String)> = Vec::new();
    let groups = groups(diagnosis);
    for remedy in groups.iter().flat_map(Group::remedies) {
        let Remedy::SetUp(part) = remedy else { continue };
        if parts.len() < MOST
            && !parts.iter().any(|(known, _)| known == part)
            && let Some(command) = diagnosis.shell.command(remedy)
        {
            parts.push((*part, command));
        }
    }
    parts
}

fn groups(diagnosis: &Diagnosis) -> Vec<Group<'_>> {
    let frame = diagnosis.frame;
    let untimed = || diagnosis.findings.iter().filter(|finding| finding.grade(frame).is_none());
    let slow = diagnosis
        .slowest_first()
        .into_iter()
        .filter(|finding| !finding.is_comparison && finding.grade(frame) != Some(Grade::Fits));
    let order = untimed()
        .filter(|finding| finding.is_bad(frame))
        .chain(slow)
        .chain(untimed().filter(|finding| !finding.is_bad(frame)));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in order.filter(|finding| finding.cause.is_some() || !finding.help.is_empty()) {
        let alike = |group: &&mut Group<'_>| {
            group.0.iter().all(|one| one.cause == finding.cause && one.help == finding.help)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.0.push(finding),
            None => groups.push(Group(vec![finding])),
        }
    }
    groups
}
