//! `unjank apps`: which applications there are and which of them opens what, from one mapped index.

mod default;
mod explain;

use std::io::{self, Write};
use std::path::Path;

use ::catalogue::index::Index;
use ::catalogue::index::input::IndexPart;
use ::catalogue::index::json::flatten;
use ::catalogue::index::layout::AppKey;
use ::catalogue::index::opener::Openers;
use ::catalogue::index::query::{Basis, QuestionAnswer};
use ::catalogue::index::record::IndexRecord;
use ::catalogue::index::sources::IndexSources;
use clap::{Args, Subcommand};
use report::table::{Align, TextTable};
use serde_json::{Value as Json, json};

use super::catalogue::{self, Question, Selection, shown};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Find applications, and show which of them opens a file and why.
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
        /// Include those that are hidden, deleted, masked or cannot be started.
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
        /// A word; case is ignored.
        word: String,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Print all data about an application.
    Show {
        /// An identifier, such as org.kde.kate or org.kde.kate.desktop.
        app: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
    /// List the applications that open a MIME type, the default first.
    For {
        /// A MIME type, or a scheme such as x-scheme-handler/https.
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
    /// Make an application the default for MIME types.
    ///
    /// Changes ~/.config/mimeapps.list; comments and order stay. Exits with 1 and prints the reason if another file takes precedence, so that the change has no effect.
    SetDefault {
        /// An identifier, such as org.kde.kate.desktop.
        app: String,
        /// MIME types.
        #[arg(required = true)]
        mime_types: Vec<String>,
        #[command(flatten)]
        question: Question,
    },
    /// Explain which line of which file makes an application the default for a MIME type.
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

/// Returns a file or directory that decides what opens what and that is no longer what it was.
fn changed_input(index: &Index) -> Option<&Path> {
    index.stale(&IndexPart::OF_OPENERS)
}

/// Returns an identifier with its ending.
fn with_ending(id: &str) -> String {
    if id.ends_with(".desktop") { id.to_owned() } else { format!("{id}.desktop") }
}

impl Apps {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        if let Command::SetDefault { app, mime_types, question } = &self.command {
            return default::choose(question, app, mime_types);
        }
        let Output { text, verdict, is_nothing } = self.command.answer()?;
        let mut out = if self.command.prints_json() { screen::json() } else { screen::stdout() };
        out.write_all(&text)?;
        out.flush()?;
        if is_nothing {
            catalogue::nothing("application");
        }
        Ok(verdict)
    }
}

/// What is printed, and the answer that the exit code gives.
struct Output {
    text: Vec<u8>,
    verdict: Verdict,
    /// Whether a person is told that there is nothing.
    is_nothing: bool,
}

impl Command {
    /// Says whether one JSON document is asked for.
    fn prints_json(&self) -> bool {
        match self {
            Command::List { selection, .. }
            | Command::Find { selection, .. }
            | Command::For { selection, .. } => selection.json,
            Command::Show { json, .. }
            | Command::Default { json, .. }
            | Command::Explain { json, .. } => *json,
            Command::SetDefault { .. } => false,
        }
    }

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

    fn answer(&self) -> Result<Output, Error> {
        self.question().answer(changed_input, |index, sources| {
            let openers = Openers::new(index, &sources.places.path);
            let value = self.tell(index, &openers, sources);
            let is_search = matches!(self, Command::List { .. } | Command::Find { .. });
            let is_found = matches!(value, Ok(Output { verdict: Verdict::Yes, .. }));
            let basis = if is_found && !is_search { Basis::FilesRead } else { Basis::Applications };
            QuestionAnswer { value, basis }
        })?
    }

    fn tell<'a>(
        &self,
        index: &'a Index,
        openers: &Openers<'a>,
        sources: &IndexSources,
    ) -> Result<Output, Error> {
        match self {
            Command::List { all: true, selection, .. } => print(selection, index.apps().collect()),
            Command::List { selection, .. } => {
                let desktops = &sources.places.desktops;
                let shown = index.apps().filter(|app| openers.is_in_menu(*app, desktops));
                print(selection, shown.collect())
            }
            Command::Find { word, selection, .. } => print(selection, find(index, openers, word)),
            Command::Show { app, json, .. } => show(index, app, *json),
            Command::For { mime_type, selection, .. } => {
                print(selection, openers.all_for(mime_type))
            }
            Command::Default { mime_types, json, .. } => default::print(*json, openers, mime_types),
            Command::Explain { mime_type, json, .. } => {
                explain::explain(*json, index, openers, mime_type)
            }
            Command::SetDefault { .. } => Ok(Output::of(Vec::new(), Verdict::Yes)),
        }
    }
}

impl Output {
    fn of(text: Vec<u8>, verdict: Verdict) -> Output {
        Output { text, verdict, is_nothing: false }
    }
}

/// Says whether a desktop file is the one that is used for its identifier.
fn is_used(openers: &Openers<'_>, app: IndexRecord<'_>) -> bool {
    let used = app.text(".id").and_then(|id| openers.app(id));
    used.is_some_and(|used| used.path() == app.path())
}

/// Returns the applications in which a word is found, those that are called so first.
fn find<'a>(index: &'a Index, openers: &Openers<'a>, word: &str) -> Vec<IndexRecord<'a>> {
    let wanted = word.to_lowercase();
    let exact = [AppKey::Id, AppKey::BusName, AppKey::Program, AppKey::Category, AppKey::Keyword];
    let mut found: Vec<IndexRecord<'a>> = Vec::new();
    let mut add = |record: IndexRecord<'a>| {
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

fn print(selection: &Selection, records: Vec<IndexRecord<'_>>) -> Result<Output, Error> {
    let records = selection.matching(records);
    let mut out = Vec::new();
    if selection.json {
        let apps: Vec<Json> = records.iter().map(|record| record.to_json()).collect();
        let document = json!({ "schema": "unjank.apps/1", "applications": apps });
        catalogue::print_json(&mut out, &document)?;
    } else if !records.is_empty() {
        let mut table = TextTable::new(&[
            ("identifier", Align::Text),
            ("name", Align::Text),
            ("command", Align::Text),
        ]);
        for record in &records {
            let text = |name| shown(record.text(name).unwrap_or_default()).into_owned().into();
            table.row(vec![text(".id"), text("Name"), text("Exec")]);
        }
        catalogue::print_table(&mut out, &table)?;
    }
    let verdict = if records.is_empty() { Verdict::No } else { Verdict::Yes };
    Ok(Output { is_nothing: out.is_empty(), text: out, verdict })
}

fn show(index: &Index, app: &str, as_json: bool) -> Result<Output, Error> {
    let id = with_ending(app);
    let all: Vec<Json> = index.apps_by(AppKey::Id, &id).map(IndexRecord::to_json).collect();
    if all.is_empty() {
        return Err(Error::new(
            FailureCategory::User,
            format!("show the application {}", shown(&id)),
        )
        .because(io::Error::other("no application has this identifier"))
        .hint("list all applications with: unjank apps list --all"));
    }
    let mut out = Vec::new();
    if as_json {
        let document = json!({ "schema": "unjank.apps/1", "applications": all });
        catalogue::print_json(&mut out, &document)?;
    } else {
        for (number, application) in all.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            let mut members = Vec::new();
            flatten("", application, &mut members);
            catalogue::print_members(&mut out, &members)?;
        }
    }
    Ok(Output::of(out, Verdict::Yes))
}
