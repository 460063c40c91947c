//! `unjank plugins`: which plugins there are, from one mapped index.

use report::error::chain;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::catalogue::index::Index;
use ::catalogue::index::build::CheckDepth;
use ::catalogue::index::input::IndexPart;
use ::catalogue::index::json::flatten;
use ::catalogue::index::layout::PluginKey;
use ::catalogue::index::query::{Basis, QuestionAnswer};
use ::catalogue::index::record::IndexRecord;
use ::catalogue::index::refresh::{Location, RefreshOutcome};
use ::catalogue::index::state::IndexState;
use ::catalogue::plugins::metadata;
use clap::{Args, Subcommand};
use report::table::{Align, TextTable};
use rustix::fs::OFlags;
use serde_json::{Value as Json, json};

use daemon::index::places::SYSTEM;

use super::catalogue::{self, Question, Selection, shown, shown_path};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Find plugins of Qt and KDE without opening them.
///
/// Answers come from an index that all programs share; it is updated first if something changed.
#[derive(Debug, Args)]
#[command(after_help = "Example: unjank plugins find --mime text/html")]
pub(crate) struct Plugins {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// List all plugins.
    List {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Find plugins by their purpose.
    ///
    /// Example: unjank plugins find --protocol sftp
    #[command(
        override_usage = "unjank plugins find [OPTIONS] --id ID | --interface IID | --namespace DIR |\n                           --mime TYPE | --service-type TYPE | --protocol NAME |\n                           --key KEY"
    )]
    Find {
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        question: Question,
    },
    /// Print the metadata of a plugin, read from its file.
    Show {
        /// An identifier or a path.
        plugin: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
    /// Update the index, and print how many entries it has.
    Index {
        /// Check every file, not only the directories.
        #[arg(long)]
        full: bool,
        /// Verify the checksums and every file, and change nothing; exits with 1 if the index is damaged or out of date.
        #[arg(long, conflicts_with_all = ["full"])]
        check: bool,
        /// Make the index for all users in this directory, for package managers.
        #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = SYSTEM)]
        system: Option<PathBuf>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct By {
    /// The plugins with this identifier, the one in use first.
    #[arg(long)]
    id: Option<String>,
    /// The plugins that implement this interface (IID).
    #[arg(long, value_name = "IID")]
    interface: Option<String>,
    /// The plugins in this directory below a root, for example kf5/kio.
    #[arg(long, value_name = "DIR")]
    namespace: Option<String>,
    /// The plugins for this MIME type, then those for its parent types.
    #[arg(long, value_name = "TYPE")]
    mime: Option<String>,
    /// The plugins of this service type.
    #[arg(long, value_name = "TYPE")]
    service_type: Option<String>,
    /// The plugins for this protocol, for example sftp.
    #[arg(long)]
    protocol: Option<String>,
    /// The plugins with this key of Qt's factories, for example xcb or png.
    #[arg(long)]
    key: Option<String>,
}

impl By {
    /// Returns the first directory or file that matters for the answer and has changed.
    fn changed<'a>(&self, index: &'a Index) -> Option<&'a Path> {
        match (&self.namespace, &self.mime) {
            (Some(namespace), _) => index.stale_namespace(namespace),
            (_, Some(_)) => index.stale(&IndexPart::OF_PLUGINS),
            _ => index.stale(&[IndexPart::Plugins]),
        }
    }

    /// Returns the plugins, each once, the best first.
    fn find<'a>(&self, index: &'a Index) -> Vec<IndexRecord<'a>> {
        if let Some(mime_type) = &self.mime {
            let mut found: Vec<IndexRecord<'a>> = Vec::new();
            for kind in index.lineage(mime_type) {
                for record in index.plugins_by(PluginKey::MimeType, kind) {
                    if !found.iter().any(|known| known.path() == record.path()) {
                        found.push(record);
                    }
                }
            }
            return found;
        }
        let given = [
            (PluginKey::Id, &self.id),
            (PluginKey::Interface, &self.interface),
            (PluginKey::Namespace, &self.namespace),
            (PluginKey::ServiceType, &self.service_type),
            (PluginKey::Protocol, &self.protocol),
            (PluginKey::Key, &self.key),
        ];
        let given = given.into_iter().find_map(|(key, value)| Some((key, value.as_deref()?)));
        given.map_or_else(Vec::new, |(key, value)| index.plugins_by(key, value).collect())
    }
}

impl Plugins {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let is_question = matches!(self.command, Command::List { .. } | Command::Find { .. });
        let prints_json = match &self.command {
            Command::List { selection, .. } | Command::Find { selection, .. } => selection.json,
            Command::Show { json, .. } | Command::Index { json, .. } => *json,
        };
        let (text, verdict) = self.command.run()?;
        let mut out = if prints_json { screen::json() } else { screen::stdout() };
        let written = out.write_all(&text).and_then(|()| out.flush());
        screen::verdict_stays(written.map_err(Error::from))?;
        if is_question && text.is_empty() {
            catalogue::nothing("plugin");
        }
        Ok(verdict)
    }
}

/// What is printed, and the answer that the exit code gives.
type Output = Result<(Vec<u8>, Verdict), Error>;

impl Command {
    fn run(self) -> Output {
        match self {
            Command::List { selection, question } => question.answer(
                |index| index.stale(&IndexPart::OF_PLUGINS),
                |index, _| {
                    let value = print(&selection, index.plugins().collect());
                    QuestionAnswer { value, basis: Basis::Plugins }
                },
            )?,
            Command::Find { by, selection, question } => question.answer(
                |index| by.changed(index),
                |index, _| {
                    let value = print(&selection, by.find(index));
                    let is_found = matches!(value, Ok((_, Verdict::Yes)));
                    // A plugin cannot come into a directory without a change of it; whatever else it is found by is in its file.
                    let by_directory = is_found && by.namespace.is_some();
                    let basis = if by_directory { Basis::FilesRead } else { Basis::Plugins };
                    QuestionAnswer { value, basis }
                },
            )?,
            Command::Show { plugin, json, question } => show(&question, &plugin, json),
            Command::Index { full, check, system, json, question } => {
                let location = match system {
                    Some(directory) => Location::of_system(directory, &question.sources()),
                    None => question.location()?,
                };
                if check {
                    return check_index(&location, json);
                }
                make(
                    &location,
                    if full { CheckDepth::Files } else { CheckDepth::Directories },
                    json,
                )
            }
        }
    }
}

/// Prints plugins, a line each; no plugin is the answer no.
fn print(selection: &Selection, records: Vec<IndexRecord<'_>>) -> Output {
    let records = selection.matching(records);
    let mut out = Vec::new();
    if selection.json {
        let plugins: Vec<Json> = records.iter().map(|record| record.to_json()).collect();
        let document = json!({ "schema": "unjank.plugins/1", "plugins": plugins });
        catalogue::print_json(&mut out, &document)?;
    } else if !records.is_empty() {
        let mut table = TextTable::new(&[
            ("identifier", Align::Text),
            ("name", Align::Text),
            ("file", Align::Text),
        ]);
        table.ends_in_paths();
        for record in &records {
            let path = record.path().map(|path| shown_path(path).into_owned());
            let text = |name| shown(record.text(name).unwrap_or_default()).into_owned().into();
            table.row(vec![text("Id"), text("Name"), path.unwrap_or_default().into()]);
        }
        catalogue::print_table(&mut out, &table)?;
    }
    Ok((out, if records.is_empty() { Verdict::No } else { Verdict::Yes }))
}

/// Prints the whole metadata of a plugin, from its file.
fn show(question: &Question, plugin: &str, as_json: bool) -> Output {
    let path = if plugin.contains('/') {
        PathBuf::from(plugin)
    } else {
        let found = question.answer(
            |index| index.stale_plugin(plugin),
            |index, _| {
                let value = index.plugin(plugin).and_then(|record| Some(record.path()?.to_owned()));
                // Any other plugin may have come to have this identifier.
                QuestionAnswer { value, basis: Basis::Plugins }
            },
        )?;
        found.ok_or_else(|| {
            Error::new(FailureCategory::User, format!("show the plugin {}", shown(plugin)))
                .because(io::Error::other("no plugin has this identifier"))
                .hint(
                    "list all plugins with: unjank plugins list; a file needs a path with a slash",
                )
        })?
    };
    let failed =
        || Error::new(FailureCategory::User, format!("show the plugin {}", shown_path(&path)));
    // A pipe of that name does not make us wait.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
    let file = file.map_err(|error| failed().because(error))?;
    let raw = metadata::read(&file).map_err(|error| failed().because(error))?;
    let found = metadata::decode(&raw).map_err(|error| failed().because(error))?;
    let built = found.built;
    let mut out = Vec::new();
    if as_json {
        let document = json!({
            "schema": "unjank.plugins.show/1",
            "file": path.to_string_lossy(),
            "qt": [built.major, built.minor],
            "requirements": built.requirements,
            "metadata": found.root.to_json(),
        });
        catalogue::print_json(&mut out, &document)?;
    } else {
        let mut members = vec![
            ("file".to_owned(), path.to_string_lossy().into_owned()),
            ("built for".to_owned(), format!("Qt {}.{}", built.major, built.minor)),
        ];
        flatten("", &found.root.to_json(), &mut members);
        catalogue::print_members(&mut out, &members)?;
    }
    Ok((out, Verdict::Yes))
}

/// Says whether the index is whole and current.
fn check_index(location: &Location, as_json: bool) -> Output {
    let (state, changed) = location.state();
    let mut out = Vec::new();
    let path = location.path();
    if as_json {
        let document = json!({
            "schema": "unjank.plugins.check/1",
            "file": path.to_string_lossy(),
            "state": state.word(),
            "changed": changed.as_ref().map(|path| path.to_string_lossy()),
        });
        catalogue::print_json(&mut out, &document)?;
    } else {
        let path = shown_path(&path);
        match (&state, &changed) {
            (IndexState::Unusable(error), _) => writeln!(out, "{path}: {}", chain(error))?,
            (IndexState::OutOfDate, Some(changed)) => {
                writeln!(out, "{path}: out of date, because {} changed", shown_path(changed))?;
            }
            (IndexState::OutOfDate, None) => writeln!(out, "{path}: out of date")?,
            (IndexState::Current, _) => writeln!(out, "{path}: current")?,
        }
    }
    let is_current = matches!(state, IndexState::Current);
    Ok((out, if is_current { Verdict::Yes } else { Verdict::No }))
}

/// Makes the index current and says what was done.
fn make(location: &Location, look: CheckDepth, as_json: bool) -> Output {
    let (index, done) = catalogue::make_settled(location, look)?;
    let faults: Vec<_> = index.faults().map(|(path, reason)| (path.to_owned(), reason)).collect();
    let (plugins, applications) = (index.plugins().count(), index.apps().count());
    let (opened, was_damaged) = match done {
        RefreshOutcome::Made { opened, was_damaged, .. } => (opened, was_damaged),
        RefreshOutcome::Current => (0, false),
    };
    let mut out = Vec::new();
    if as_json {
        let faults: Vec<Json> = faults
            .iter()
            .map(|(path, reason)| json!({ "file": path.to_string_lossy(), "reason": reason }))
            .collect();
        let document = json!({
            "schema": "unjank.plugins.index/1", "file": location.path().to_string_lossy(),
            "bytes": index.len_bytes(), "plugins": plugins, "applications": applications,
            "opened": opened, "made": done != RefreshOutcome::Current, "damaged": was_damaged, "faults": faults,
        });
        catalogue::print_json(&mut out, &document)?;
        return Ok((out, Verdict::Yes));
    }
    let what = match done {
        RefreshOutcome::Current => "nothing had changed".to_owned(),
        RefreshOutcome::Made { opened, was_damaged: true, .. } => {
            format!("the old index was damaged, and {opened} files were read")
        }
        RefreshOutcome::Made { opened, .. } => format!("{opened} files were read"),
    };
    let size = index.len_bytes().div_ceil(1024);
    writeln!(out, "{plugins} plugins and {applications} applications in {size} KiB; {what}")?;
    writeln!(out, "{}", shown_path(&location.path()))?;
    for (path, reason) in faults {
        writeln!(out, "left out {}: {}", shown_path(&path), shown(reason))?;
    }
    Ok((out, Verdict::Yes))
}
