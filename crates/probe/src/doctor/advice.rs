//! What to do about all findings together: the same advice is given once.

use super::Diagnosis;
use super::finding::Finding;
use crate::report::advice::Advice;
use crate::report::grade::Grade;

/// A cause, the steps that it slows down, and what helps.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The findings' names and the cause: `sync (home): the disk turns`.
    pub reason: String,
    /// What helps; nothing if only the cause is known.
    pub advice: &'a [Advice],
}

/// Returns what to do: first what is broken, then the slowest step, and so on. A step that fits needs nothing done.
#[must_use]
pub fn entries(diagnosis: &Diagnosis) -> Vec<Entry<'_>> {
    let frame = diagnosis.frame;
    let untimed = || diagnosis.findings.iter().filter(|finding| finding.grade(frame).is_none());
    let order = untimed()
        .filter(|finding| finding.is_bad(frame))
        .chain(
            diagnosis
                .slowest_first()
                .into_iter()
                .filter(|finding| finding.grade(frame) != Some(Grade::Fits)),
        )
        .chain(untimed().filter(|finding| !finding.is_bad(frame)));
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in order.filter(|finding| finding.cause.is_some() || !finding.advice.is_empty()) {
        let alike = |group: &&mut Vec<&Finding>| {
            group.iter().all(|one| one.cause == finding.cause && one.advice == finding.advice)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
        .into_iter()
        .filter_map(|group| {
            let names: Vec<&str> = group.iter().map(|finding| &*finding.name).collect();
            let names = names.join("; ");
            let first = group.first()?;
            let reason =
                first.cause.as_ref().map_or(names.clone(), |cause| format!("{names}: {cause}"));
            Some(Entry { reason, advice: &first.advice })
        })
        .collect()
}
