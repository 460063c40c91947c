//! The default application of a type: what it is, and choosing another one.

use std::io::{self, Write};

use ::catalogue::apps::associations::ClaimVerdict as Fate;
use ::catalogue::apps::choose;
use ::catalogue::index::opener::Openers;
use ::catalogue::index::query::{Basis, QuestionAnswer};
use serde_json::{Value as Json, json};

use super::super::catalogue::{self, Question, shown, shown_path};
use super::{Output, changed_input, with_ending};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Prints the application that opens each type.
pub(super) fn print(
    as_json: bool,
    openers: &Openers<'_>,
    mime_types: &[String],
) -> Result<Output, Error> {
    let mut out = Vec::new();
    let mut is_nothing = false;
    let found: Vec<(&str, Option<&str>)> = mime_types
        .iter()
        .map(|mime_type| (&**mime_type, openers.default_for(mime_type).map(|(_, claim)| claim.id)))
        .collect();
    if as_json {
        let defaults: serde_json::Map<String, Json> =
            found.iter().map(|(mime_type, id)| ((*mime_type).to_owned(), json!(id))).collect();
        let document = json!({ "schema": "unjank.apps.default/1", "defaults": defaults });
        catalogue::print_json(&mut out, &document)?;
    } else {
        for (mime_type, id) in &found {
            match (id, mime_types.len()) {
                (Some(id), 1) => writeln!(out, "{}", shown(id))?,
                (Some(id), _) => writeln!(out, "{}: {}", shown(mime_type), shown(id))?,
                (None, 1) => is_nothing = true,
                (None, _) => writeln!(out, "{}: none", shown(mime_type))?,
            }
        }
    }
    let is_each_found = found.iter().all(|(_, id)| id.is_some());
    let verdict = if is_each_found { Verdict::Yes } else { Verdict::No };
    Ok(Output { text: out, verdict, is_nothing })
}

/// Writes the choice into the user's `mimeapps.list`, and says where it has no effect.
pub(super) fn choose(
    question: &Question,
    app: &str,
    mime_types: &[String],
) -> Result<Verdict, Error> {
    let id = with_ending(app);
    let failed = || Error::new(FailureCategory::User, format!("make {} the default", shown(&id)));
    let wrong = mime_types.iter().find(|mime_type| mime_type.matches('/').count() != 1);
    if let Some(wrong) = wrong {
        let why = format!("{} is no MIME type", shown(wrong));
        return Err(failed().because(io::Error::other(why)));
    }
    let (is_there, path) = question.answer(changed_input, |index, sources| {
        let is_there = Openers::new(index, &sources.places.path).app(&id).is_some();
        let basis = if is_there { Basis::FilesRead } else { Basis::Applications };
        QuestionAnswer { value: (is_there, sources.places.user_choices()), basis }
    })?;
    if !is_there {
        let why = "no application of this identifier can be started";
        let hint = "unjank apps find WORD finds identifiers";
        return Err(failed().because(io::Error::other(why)).hint(hint));
    }
    let path = path.ok_or_else(|| {
        Error::new(FailureCategory::Config, "find mimeapps.list")
            .because(io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))
    })?;
    let failed = || Error::new(FailureCategory::Config, format!("change {}", shown_path(&path)));
    let mut text = match sys::regular_file::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed().because(error)),
    };
    for mime_type in mime_types {
        text = choose::set_default(&text, mime_type, &id)
            .map_err(|error| failed().because(error).hint("nothing was changed"))?;
    }
    store::publish::publish(&*store::disk::real(), &path, &text)
        .map_err(|error| failed().because(error))?;
    let void = void_choices(&question.current(), mime_types, &id)?;
    let mut told = screen::stderr();
    for (mime_type, deciding) in &void {
        // Nobody is left to be told when stderr is gone; the exit status tells the same.
        let _ = writeln!(
            told,
            "unjank: the change is in {} and has no effect on {}: {deciding}",
            shown_path(&path),
            shown(mime_type)
        );
    }
    if let Some((mime_type, _)) = void.first() {
        let _ = writeln!(
            told,
            "hint: see which lines count with: unjank apps explain {}",
            shown(mime_type)
        );
    }
    Ok(if void.is_empty() { Verdict::Yes } else { Verdict::No })
}

/// Returns the types that another application opens all the same, with what decides so.
fn void_choices<'t>(
    question: &Question,
    mime_types: &'t [String],
    id: &str,
) -> Result<Vec<(&'t str, String)>, Error> {
    question.answer(changed_input, |index, sources| {
        let openers = Openers::new(index, &sources.places.path);
        let void = mime_types.iter().filter_map(|mime_type| {
            let steps = openers.explain(&index.lineage(mime_type));
            let decided = steps.iter().find(|step| step.verdict == Fate::Chosen);
            if decided.is_some_and(|step| step.claim.id == id) {
                return None;
            }
            let deciding = decided.map_or_else(
                || "no application opens it".to_owned(),
                |step| {
                    let file = index.association_file(step.claim.file).unwrap_or("".as_ref());
                    let (id, line) = (shown(step.claim.id), step.claim.line);
                    format!("line {line} of {} counts more, for {id}", shown_path(file))
                },
            );
            Some((&**mime_type, deciding))
        });
        QuestionAnswer { value: void.collect(), basis: Basis::FilesRead }
    })
}
