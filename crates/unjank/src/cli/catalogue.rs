//! The index of plugins and applications for this user, from the environment; `plugins` and `apps` ask it.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use catalogue::index::Index;
use catalogue::index::build::CheckDepth;
use catalogue::index::constraint::Constraint;
use catalogue::index::query::QuestionAnswer;
use catalogue::index::record::IndexRecord;
use catalogue::index::refresh::{self, Location, RefreshError};
use catalogue::index::sources::IndexSources;
use clap::{Args, ValueEnum};
use report::text::{Charset, visible, visible_bytes};
use serde_json::Value as Json;

use daemon::index::places;
pub(super) use daemon::index::places::program_path;

use super::screen::{self, sayln};
use crate::error::{Error, FailureCategory};

// What all questions have in common; as a doc comment it would stand in the help in place of what a command is for.
#[derive(Debug, Args)]
pub(super) struct Question {
    /// Use texts in this language, for example de_DE, instead of the session's.
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
    /// What to do with an index that is out of date.
    #[arg(long, value_name = "WHAT", default_value = "refresh")]
    stale: Stale,
}

// How what was found is chosen and printed.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// List only those that match, for example "'text/plain' in MimeTypes" (docs/index.md).
    #[arg(long = "where", value_name = "CONSTRAINT", value_parser = Constraint::parse)]
    constraint: Option<Constraint>,
    /// Print one JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// What to do with an index that is out of date.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Stale {
    /// Update it first
    Refresh,
    /// Use it without an update
    Use,
}

/// Returns where this user's index is.
pub(super) fn location(locale: Option<&str>) -> Result<Location, Error> {
    places::location(locale).ok_or_else(|| {
        Error::new(FailureCategory::Config, "find the cache directory")
            .because(io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))
            .hint("set HOME")
    })
}

/// Makes the index current until no change can go unnoticed, and opens it.
pub(super) fn make_settled(
    location: &Location,
    look: CheckDepth,
) -> Result<(Index, refresh::RefreshOutcome), Error> {
    location.refresh_until_settled(&*store::disk::real(), look).map_err(not_made)
}

fn not_made(error: RefreshError) -> Error {
    Error::new(FailureCategory::Config, "build the index of plugins and applications")
        .because(error)
}

impl Question {
    /// Returns what an index is made of; a package manager may have no home.
    pub(super) fn sources(&self) -> IndexSources {
        places::sources(self.locale.as_deref())
    }

    /// Returns the question as it is asked after something was changed: an old answer is of no use then.
    pub(super) fn current(&self) -> Question {
        Question { locale: self.locale.clone(), stale: Stale::Refresh }
    }

    /// Returns where the index of this question is.
    pub(super) fn location(&self) -> Result<Location, Error> {
        location(self.locale.as_deref())
    }

    /// Answers a question from the index, which is made current first where `changed` finds a change that matters, and where a file that the answer rests on was overwritten, unless the user wants it as it is.
    ///
    /// `question` may be asked several times; the last answer counts.
    pub(super) fn answer<T>(
        &self,
        changed: impl Fn(&Index) -> Option<&Path>,
        mut question: impl FnMut(&Index, &IndexSources) -> QuestionAnswer<T>,
    ) -> Result<T, Error> {
        let Some(location) = places::location(self.locale.as_deref()) else {
            let sources = self.sources();
            let index = refresh::make_unstored(&sources, None).map_err(not_made)?;
            return Ok(question(&index, &sources).value);
        };
        if self.stale == Stale::Use
            && let Ok(index) = location.open()
        {
            let answer = question(&index, location.sources());
            if !index.is_damaged() {
                return Ok(answer.value);
            }
        }
        let question = |index: &Index| question(index, location.sources());
        let asked = location.ask(&*store::disk::real(), changed, question).map_err(not_made)?;
        if asked.was_damaged {
            tell_damage(&location);
        }
        Ok(asked.value)
    }
}

/// Says that the index was damaged; the answer is right all the same.
pub(super) fn tell_damage(location: &Location) {
    let path = location.path();
    let path = shown_path(&path);
    // Nobody is left to be told when stderr is gone.
    let _ = sayln!(screen::stderr(), "unjank: the index {path} was damaged; a new one was made");
}

impl Selection {
    /// Keeps the records that match the constraint.
    pub(super) fn matching<'a>(&self, records: Vec<IndexRecord<'a>>) -> Vec<IndexRecord<'a>> {
        let Some(constraint) = &self.constraint else { return records };
        constraint.select(records)
    }
}

/// Writes a JSON document and a line end.
pub(super) fn print_json(out: &mut dyn io::Write, document: &Json) -> Result<(), Error> {
    serde_json::to_writer_pretty(&mut *out, &SchemaFirst(document)).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// A document whose `schema` is written first; the other members follow in the order of their names.
struct SchemaFirst<'a>(&'a Json);

impl serde::Serialize for SchemaFirst<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Json::Object(members) = self.0 else { return self.0.serialize(serializer) };
        let schema = members.iter().filter(|(name, _)| *name == "schema");
        let others = members.iter().filter(|(name, _)| *name != "schema");
        serializer.collect_map(schema.chain(others))
    }
}

/// Says on stderr that nothing was found; stdout stays empty for who reads it.
pub(super) fn nothing(what: &str) {
    // Nobody is left to be told when stderr is gone; the exit status tells the same.
    let _ = writeln!(screen::stderr(), "unjank: no {what} matches");
}

/// Writes a sentence in lines as wide as the screen; a pipe gets one.
pub(super) fn print_sentence(out: &mut dyn io::Write, sentence: &str) -> Result<(), Error> {
    let is_screen = screen::is_terminal();
    let width = if is_screen { screen::width() } else { usize::MAX };
    write!(out, "{}", report::paragraph::wrap(sentence, width, ""))?;
    Ok(())
}

/// Writes a table as wide as the screen; a pipe gets whole lines.
pub(super) fn print_table(
    out: &mut dyn io::Write,
    table: &report::table::TextTable,
) -> Result<(), Error> {
    let is_screen = screen::is_terminal();
    let width = if is_screen { screen::width() } else { 1000 };
    write!(out, "{}", table.render(width, screen::paint()))?;
    Ok(())
}

/// Returns text of others as a terminal may show it.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    visible(text, Charset::Unicode)
}

/// Returns a path as a terminal may show it.
pub(super) fn shown_path(path: &Path) -> Cow<'_, str> {
    visible_bytes(path.as_os_str().as_bytes(), Charset::Unicode)
}

/// Writes names and values in two columns.
pub(super) fn print_members(
    out: &mut dyn io::Write,
    members: &[(String, String)],
) -> Result<(), Error> {
    let widest = members.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in members {
        let gap = " ".repeat(widest - name.chars().count() + 2);
        writeln!(out, "{}{gap}{}", shown(name), shown(value))?;
    }
    Ok(())
}
