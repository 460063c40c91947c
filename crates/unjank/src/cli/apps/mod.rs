//! `unjank apps`: which applications there are and which of them opens what, from one mapped index.

use std::io::{self, BufWriter, Write};

use clap::{Args, Subcommand};
use probe::report::table::{Align, Table};
use serde_json::{Value as Json, json};
use session::apps::associations::{Reason, Step, Verdict as Fate};
use session::apps::choose;
use session::apps::installed::Usable;
use session::apps::place::Places;
use session::index::Index;
use session::index::input::Part;
use session::index::layout::AppKey;
use session::index::opener::Openers;
use session::index::record::Record;

use super::catalogue::{self, Question, Selection};
use crate::error::{Error, Kind, Verdict};

/// Find applications, and say which of them opens what and why.
#[derive(Debug, Args)]
#[command(after_help = "Example: unjank apps explain text/html")]
pub(crate) struct Apps {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// List the applications that a menu would show; --all lists every desktop file.
    List {
        /// Also those that are hidden, deleted, masked or cannot be started.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Find applications by identifier, name, keyword, category, program or bus name.
    ///
    /// Example: unjank apps find editor
    Find {
        /// A word; letters may be small or capital.
        word: String,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Print all that is kept of an application.
    Show {
        /// An identifier, such as org.kde.kate or org.kde.kate.desktop.
        app: String,
        #[command(flatten)]
        question: Question,
    },
    /// List the applications that open a MIME type, the default first.
    For {
        /// A MIME type, or a scheme as x-scheme-handler/https.
        mime_type: String,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Print the application that opens each MIME type.
    Default {
        /// MIME types.
        #[arg(required = true)]
        mime_types: Vec<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
    /// Make an application the one that opens MIME types.
    ///
    /// Changes ~/.config/mimeapps.list; comments and order stay.
    SetDefault {
        /// An identifier, such as org.kde.kate.desktop.
        app: String,
        /// MIME types.
        #[arg(required = true)]
        mime_types: Vec<String>,
        #[command(flatten)]
        question: Question,
    },
    /// Say which line of which file decides what opens a MIME type, and what became of all others.
    Explain {
        /// A MIME type.
        mime_type: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
}

/// Returns an identifier with its ending.
fn with_ending(id: &str) -> String {
    if id.ends_with(".desktop") { id.to_owned() } else { format!("{id}.desktop") }
}

impl Apps {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let mut out = BufWriter::new(io::stdout().lock());
        let verdict = self.command.run(&mut out)?;
        out.flush()?;
        Ok(verdict)
    }
}

impl Command {
    fn question(&self) -> &Question {
        match self {
            Command::List { question, .. }
            | Command::Find { question, .. }
            | Command::Show { question, .. }
            | Command::For { question, .. }
            | Command::Default { question, .. }
            | Command::SetDefault { question, .. }
            | Command::Explain { question, .. } => question,
        }
    }

    fn run(&self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let question = self.question();
        let (index, sources) = question.index(&Part::OF_OPENERS)?;
        let openers = Openers::new(&index, &sources.places.path);
        match self {
            Command::List { all: true, selection, .. } => {
                print(out, selection, index.apps().collect())
            }
            Command::List { selection, .. } => {
                let shown = |app: &Record<'_>| !app.is_true("NoDisplay") && is_used(&openers, *app);
                print(out, selection, index.apps().filter(shown).collect())
            }
            Command::Find { word, selection, .. } => {
                print(out, selection, find(&index, &openers, word))
            }
            Command::Show { app, .. } => show(out, &index, app),
            Command::For { mime_type, selection, .. } => {
                print(out, selection, openers.all_for(mime_type))
            }
            Command::Default { mime_types, json, .. } => {
                print_defaults(out, *json, &openers, mime_types)
            }
            Command::SetDefault { app, mime_types, .. } => {
                set_default(&openers, &sources.places, app, mime_types)
            }
            Command::Explain { mime_type, json, .. } => {
                explain(out, *json, &index, &openers, mime_type)
            }
        }
    }
}

/// Says whether a desktop file is the one that is used for its identifier.
fn is_used(openers: &Openers<'_>, app: Record<'_>) -> bool {
    let used = app.text(".id").and_then(|id| openers.app(id));
    used.is_some_and(|used| used.path() == app.path())
}

/// Returns the applications in which a word is found, those that are called so first.
fn find<'a>(index: &'a Index, openers: &Openers<'a>, word: &str) -> Vec<Record<'a>> {
    let wanted = word.to_lowercase();
    let exact = [AppKey::Id, AppKey::BusName, AppKey::Program, AppKey::Category, AppKey::Keyword];
    let mut found: Vec<Record<'a>> = Vec::new();
    let mut add = |record: Record<'a>| {
        if is_used(openers, record) && !found.iter().any(|known| known.path() == record.path()) {
            found.push(record);
        }
    };
    for key in exact {
        let value = if key == AppKey::Id { with_ending(word) } else { word.to_owned() };
        index.apps_by(key, &value).for_each(&mut add);
        index.apps_by(key, &wanted).for_each(&mut add);
    }
    let contains =
        |text: Option<&str>| text.is_some_and(|text| text.to_lowercase().contains(&wanted));
    let texts = ["Name", "GenericName", "Comment", ".id"];
    index.apps().filter(|app| texts.iter().any(|name| contains(app.text(name)))).for_each(&mut add);
    index
        .apps()
        .filter(|app| {
            ["Keywords", "Categories"]
                .iter()
                .any(|name| app.list(name).any(|item| contains(Some(item))))
        })
        .for_each(&mut add);
    found
}

fn print(
    out: &mut dyn Write,
    selection: &Selection,
    records: Vec<Record<'_>>,
) -> Result<Verdict, Error> {
    let records = selection.matching(records);
    if selection.json {
        let apps: Vec<Json> = records.iter().map(|record| catalogue::to_json(*record)).collect();
        catalogue::print_json(out, &json!({ "version": 1, "applications": apps }))?;
    } else if !records.is_empty() {
        let mut table = Table::new(&[
            ("identifier", Align::Text),
            ("name", Align::Text),
            ("command", Align::Text),
        ]);
        for record in &records {
            let text = |name| record.text(name).unwrap_or_default().into();
            table.row(vec![text(".id"), text("Name"), text("Exec")]);
        }
        catalogue::print_table(out, &table)?;
    } else {
        catalogue::nothing("application");
    }
    Ok(if records.is_empty() { Verdict::No } else { Verdict::Yes })
}

fn show(out: &mut dyn Write, index: &Index, app: &str) -> Result<Verdict, Error> {
    let id = with_ending(app);
    let all: Vec<Json> = index.apps_by(AppKey::Id, &id).map(catalogue::to_json).collect();
    if all.is_empty() {
        return Err(Error::new(Kind::User, format!("show the application {id}"))
            .because(io::Error::other("no application has this identifier"))
            .hint("unjank apps list --all names them all"));
    }
    catalogue::print_json(out, &json!({ "version": 1, "applications": all }))?;
    Ok(Verdict::Yes)
}

fn print_defaults(
    out: &mut dyn Write,
    as_json: bool,
    openers: &Openers<'_>,
    mime_types: &[String],
) -> Result<Verdict, Error> {
    let found: Vec<(&str, Option<&str>)> = mime_types
        .iter()
        .map(|mime_type| (&**mime_type, openers.default_for(mime_type).map(|(_, claim)| claim.id)))
        .collect();
    if as_json {
        let defaults: serde_json::Map<String, Json> =
            found.iter().map(|(mime_type, id)| ((*mime_type).to_owned(), json!(id))).collect();
        catalogue::print_json(out, &json!({ "version": 1, "defaults": defaults }))?;
    } else {
        for (mime_type, id) in &found {
            match (id, mime_types.len()) {
                (Some(id), 1) => writeln!(out, "{id}")?,
                (Some(id), _) => writeln!(out, "{mime_type}: {id}")?,
                (None, 1) => catalogue::nothing("application"),
                (None, _) => writeln!(out, "{mime_type}: none")?,
            }
        }
    }
    Ok(if found.iter().all(|(_, id)| id.is_some()) { Verdict::Yes } else { Verdict::No })
}

/// Writes the choice into the user's `mimeapps.list`.
fn set_default(
    openers: &Openers<'_>,
    places: &Places,
    app: &str,
    mime_types: &[String],
) -> Result<Verdict, Error> {
    let id = with_ending(app);
    if openers.app(&id).is_none() {
        return Err(Error::new(Kind::User, format!("make {id} a default"))
            .because(io::Error::other("no application of this identifier can be started"))
            .hint("unjank apps find WORD finds identifiers"));
    }
    let wrong = mime_types.iter().find(|mime_type| mime_type.matches('/').count() != 1);
    if let Some(wrong) = wrong {
        return Err(Error::new(Kind::User, format!("make {id} a default"))
            .because(io::Error::other(format!("{wrong:?} is no MIME type"))));
    }
    let path = places.user_choices().ok_or_else(|| {
        Error::new(Kind::Config, "find mimeapps.list")
            .because(io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))
    })?;
    let failed = || Error::new(Kind::Config, format!("change {}", path.display()));
    let mut text = match std::fs::read(&path) {
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
    Ok(Verdict::Yes)
}

/// Says what decides, then everything that was considered.
fn explain<'a>(
    out: &mut dyn Write,
    as_json: bool,
    index: &'a Index,
    openers: &Openers<'a>,
    mime_type: &str,
) -> Result<Verdict, Error> {
    let lineage = index.lineage(mime_type);
    let steps = openers.explain(&lineage);
    let place = |step: &Step<'_>| {
        let file =
            index.association_file(step.claim.file).map(|path| path.to_string_lossy().into_owned());
        (file.unwrap_or_default(), step.claim.line)
    };
    let of = |step: &Step<'_>| lineage.get(step.of).copied().unwrap_or_default();
    let decided = steps.iter().find(|step| step.verdict == Fate::Chosen);
    let verdict = if decided.is_some() { Verdict::Yes } else { Verdict::No };
    if as_json {
        let steps: Vec<Json> = steps.iter().map(|step| {
            let (file, line) = place(step);
            json!({ "type": of(step), "application": step.claim.id, "says": says(step.claim.reason), "file": file, "line": line, "verdict": fate(step.verdict) })
        }).collect();
        catalogue::print_json(
            out,
            &json!({ "version": 1, "type": mime_type, "default": decided.map(|step| step.claim.id), "steps": steps }),
        )?;
        return Ok(verdict);
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
            catalogue::print_sentence(out, &sentence)?;
        }
        None => writeln!(out, "No application opens {mime_type}.")?,
    }
    if !steps.is_empty() {
        writeln!(out)?;
        let mut table = Table::new(&[
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
                step.claim.id.into(),
                of(step).into(),
                says(step.claim.reason).into(),
                result.into(),
                format!("{file}:{line}").into(),
            ]);
        }
        catalogue::print_table(out, &table)?;
    }
    Ok(verdict)
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

fn says(reason: Reason) -> &'static str {
    match reason {
        Reason::Default => "the default",
        Reason::Added => "an added opener",
        Reason::Declared => "a declared opener",
        Reason::Removed => "no opener",
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
