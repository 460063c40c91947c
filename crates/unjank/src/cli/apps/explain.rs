//! Why an application opens a type: every line that was considered, and what became of it.

use std::io::Write;

use ::catalogue::apps::associations::{AssociationReason, ClaimStep, ClaimVerdict as Fate};
use ::catalogue::apps::installed::Usable;
use ::catalogue::index::Index;
use ::catalogue::index::layout::AppKey;
use ::catalogue::index::opener::Openers;
use report::table::{Align, TextTable};
use serde_json::{Value as Json, json};

use super::super::catalogue::{self, shown};
use super::Output;
use crate::error::{Error, Verdict};

/// Says what decides, then everything that was considered.
pub(super) fn explain<'a>(
    as_json: bool,
    index: &'a Index,
    openers: &Openers<'a>,
    mime_type: &str,
) -> Result<Output, Error> {
    let mut out = Vec::new();
    let lineage = index.lineage(mime_type);
    let steps = openers.explain(&lineage);
    let place = |step: &ClaimStep<'_>| {
        let file =
            index.association_file(step.claim.file).map(|path| path.to_string_lossy().into_owned());
        (file.unwrap_or_default(), step.claim.line)
    };
    let of = |step: &ClaimStep<'_>| lineage.get(step.of).copied().unwrap_or_default();
    let decided = steps.iter().find(|step| step.verdict == Fate::Chosen);
    let verdict = if decided.is_some() { Verdict::Yes } else { Verdict::No };
    if as_json {
        let steps: Vec<Json> = steps.iter().map(|step| {
            let (file, line) = place(step);
            json!({ "type": of(step), "application": step.claim.id, "says": says(step.claim.reason), "file": file, "line": line, "verdict": fate(step.verdict) })
        }).collect();
        let default = decided.map(|step| step.claim.id);
        let document = json!({ "schema": "unjank.apps.explain/1", "type": mime_type, "default": default, "steps": steps });
        catalogue::print_json(&mut out, &document)?;
        return Ok(Output::of(out, verdict));
    }
    match decided {
        Some(step) => {
            let (file, line) = place(step);
            let parent = if step.of == 0 {
                String::new()
            } else {
                format!(", which {mime_type} is a kind of,")
            };
            let sentence = format!(
                "{} opens {mime_type}: line {line} of {file} makes it {} of {}{parent}.",
                step.claim.id,
                says(step.claim.reason),
                of(step)
            );
            catalogue::print_sentence(&mut out, &shown(&sentence))?;
        }
        None => writeln!(out, "No application opens {}.", shown(mime_type))?,
    }
    if !steps.is_empty() {
        writeln!(out)?;
        let mut table = TextTable::new(&[
            ("application", Align::Text),
            ("type", Align::Text),
            ("is", Align::Text),
            ("result", Align::Text),
            ("where", Align::Text),
        ]);
        table.ends_in_paths();
        for step in &steps {
            let (file, line) = place(step);
            let result = match step.verdict {
                Fate::NotInstalled => reason_of(index, openers, step.claim.id),
                other => fate(other),
            };
            table.row(vec![
                shown(step.claim.id).into_owned().into(),
                shown(of(step)).into_owned().into(),
                says(step.claim.reason).into(),
                result.into(),
                format!("{}:{line}", shown(&file)).into(),
            ]);
        }
        catalogue::print_table(&mut out, &table)?;
    }
    Ok(Output::of(out, verdict))
}

/// Says why an application cannot be used.
fn reason_of<'a>(index: &'a Index, openers: &Openers<'a>, id: &str) -> &'static str {
    let state = index.apps_by(AppKey::Id, id).next().map(|record| openers.state(record));
    match state {
        None | Some(Usable::Yes) => "not installed",
        Some(Usable::Hidden) => "deleted (Hidden)",
        Some(Usable::NoProgram) => "its program is missing",
        Some(Usable::NotAnApplication) => "no application",
    }
}

fn says(reason: AssociationReason) -> &'static str {
    match reason {
        AssociationReason::Default => "the default",
        AssociationReason::Added => "an added opener",
        AssociationReason::Declared => "a declared opener",
        AssociationReason::Removed => "no opener",
    }
}

fn fate(verdict: Fate) -> &'static str {
    match verdict {
        Fate::Chosen => "decides",
        Fate::Later => "comes later",
        Fate::NotInstalled => "not installed",
        Fate::RemovedBefore => "was removed",
        Fate::Masked => "another file of its name is used",
        Fate::Removes => "is removed from here on",
    }
}
