//! `unjank plugins`: which plugins there are, from one mapped index.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use probe::bench::run::chain;
use probe::report::table::{Align, Table};
use rustix::fs::OFlags;
use serde_json::{Value as Json, json};
use session::index::ask::{Answer, Basis};
use session::index::build::Look;
use session::index::input::Part;
use session::index::layout::PluginKey;
use session::index::record::Record;
use session::index::refresh::{Done, Location};
use session::index::{Index, IndexError};
use session::plugins::metadata;

use crate::daemon::index::places::SYSTEM;

use super::catalogue::{self, Question, Selection, shown, shown_path};
use crate::cli::screen;
use crate::error::{Error, Kind, Verdict};

/// Find plugins of Qt and KDE without opening them.
///
/// Answers come from an index that is made once and shared by all programs; it is made current first where something changed.
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
    /// Find plugins by what they are for.
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
    /// Print all that a plugin says of itself, read from its file.
    Show {
        /// An identifier or a path.
        plugin: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: Question,
    },
    /// Make the index current, and say what is in it.
    Index {
        /// Look at every file, not only at the directories.
        #[arg(long)]
        full: bool,
        /// Read the checksum and every file's times, say whether it is whole and current, and change nothing: exits with 1 if it is not.
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
    /// The plugins of this identifier, the one that is used first.
    #[arg(long)]
    id: Option<String>,
    /// The plugins that implement this interface (IID).
    #[arg(long, value_name = "IID")]
    interface: Option<String>,
    /// The plugins in this directory below a root, for example kf5/kio.
    #[arg(long, value_name = "DIR")]
    namespace: Option<String>,
    /// The plugins for this MIME type; those for the types that it is a kind of after them.
    #[arg(long, value_name = "TYPE")]
    mime: Option<String>,
    /// The plugins of this service type.
    #[arg(long, value_name = "TYPE")]
    service_type: Option<String>,
    /// The plugins for this protocol, for example sftp.
    #[arg(long)]
    protocol: Option<String>,
    /// The plugins that Qt's factories know by this name, for example xcb or png.
    #[arg(long)]
    key: Option<String>,
}

impl By {
    /// Returns the first directory or file that matters for the answer and has changed.
    fn changed<'a>(&self, index: &'a Index) -> Option<&'a Path> {
        match (&self.namespace, &self.mime) {
            (Some(namespace), _) => index.stale_namespace(namespace),
            (_, Some(_)) => index.stale(&Part::OF_PLUGINS),
            _ => index.stale(&[Part::Plugins]),
        }
    }

    /// Returns the plugins, each once, the best first.
    fn find<'a>(&self, index: &'a Index) -> Vec<Record<'a>> {
        if let Some(mime_type) = &self.mime {
            let mut found: Vec<Record<'a>> = Vec::new();
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
        out.write_all(&text)?;
        out.flush()?;
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
                |index| index.stale(&Part::OF_PLUGINS),
                |index, _| {
                    let value = print(&selection, index.plugins().collect());
                    Answer { value, basis: Basis::Plugins }
                },
            )?,
            Command::Find { by, selection, question } => question.answer(
                |index| by.changed(index),
                |index, _| {
                    let value = print(&selection, by.find(index));
                    let is_found = matches!(value, Ok((_, Verdict::Yes)));
                    Answer {
                        value,
                        basis: if is_found { Basis::FilesRead } else { Basis::Plugins },
                    }
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
                make(&location, if full { Look::Files } else { Look::Directories }, json)
            }
        }
    }
}

/// Prints plugins, a line each; no plugin is the answer no.
fn print(selection: &Selection, records: Vec<Record<'_>>) -> Output {
    let records = selection.matching(records);
    let mut out = Vec::new();
    if selection.json {
        let plugins: Vec<Json> = records.iter().map(|record| catalogue::to_json(*record)).collect();
        let document = json!({ "schema": "unjank.plugins/1", "plugins": plugins });
        catalogue::print_json(&mut out, &document)?;
    } else if !records.is_empty() {
        let mut table = Table::new(&[
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
                let basis = if value.is_some() { Basis::FilesRead } else { Basis::Plugins };
                Answer { value, basis }
            },
        )?;
        found.ok_or_else(|| {
            Error::new(Kind::User, format!("show the plugin {}", shown(plugin)))
                .because(io::Error::other("no plugin has this identifier"))
                .hint("unjank plugins list names them all; a file is given by a path with a slash")
        })?
    };
    let failed = || Error::new(Kind::User, format!("show the plugin {}", shown_path(&path)));
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
        catalogue::flatten("", &found.root.to_json(), &mut members);
        catalogue::print_members(&mut out, &members)?;
    }
    Ok((out, Verdict::Yes))
}

/// Says whether the index is whole and current.
fn check_index(location: &Location, as_json: bool) -> Output {
    let (state, changed) = state_of(location);
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
            (State::Unusable(error), _) => writeln!(out, "{path}: {}", chain(error))?,
            (State::OutOfDate, Some(changed)) => {
                writeln!(out, "{path}: out of date, because {} changed", shown_path(changed))?;
            }
            (State::OutOfDate, None) => writeln!(out, "{path}: out of date")?,
            (State::Current, _) => writeln!(out, "{path}: current")?,
        }
    }
    let is_current = matches!(state, State::Current);
    Ok((out, if is_current { Verdict::Yes } else { Verdict::No }))
}

/// What an index is worth.
enum State {
    Current,
    OutOfDate,
    Unusable(IndexError),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            State::Current => "current",
            State::OutOfDate => "out of date",
            State::Unusable(IndexError::Damaged) => "damaged",
            State::Unusable(IndexError::OtherVersion) => "of another version",
            State::Unusable(IndexError::Foreign) => "of another user",
            State::Unusable(_) => "missing",
        }
    }
}

/// Looks at the whole index, and at everything that it was made of; returns also what changed.
fn state_of(location: &Location) -> (State, Option<PathBuf>) {
    let index = match location.open() {
        Ok(index) => index,
        Err(error) => return (State::Unusable(error), None),
    };
    if !index.is_whole() {
        return (State::Unusable(IndexError::Damaged), None);
    }
    match index.stale(&Part::ALL).or_else(|| index.stale_file()) {
        Some(changed) => (State::OutOfDate, Some(changed.to_owned())),
        None => (State::Current, None),
    }
}

/// How often the index is made again until no change could go unnoticed: the kernel dates changes by a clock that ticks every few milliseconds, and what was changed in this tick is looked at again after it.
const SETTLING: usize = 20;

/// How long to wait before the next look.
const TICK: Duration = Duration::from_millis(2);

/// Makes the index current and says what was done.
fn make(location: &Location, look: Look, as_json: bool) -> Output {
    let (mut index, done) = catalogue::make_current(location, look)?;
    for _ in 0..SETTLING {
        if index.stale(&Part::ALL).or_else(|| index.stale_file()).is_none() {
            break;
        }
        std::thread::park_timeout(TICK);
        index = catalogue::make_current(location, Look::Files)?.0;
    }
    let faults: Vec<_> = index.faults().map(|(path, reason)| (path.to_owned(), reason)).collect();
    let (plugins, applications) = (index.plugins().count(), index.apps().count());
    let (opened, was_damaged) = match done {
        Done::Made { opened, was_damaged, .. } => (opened, was_damaged),
        Done::Current => (0, false),
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
            "opened": opened, "made": done != Done::Current, "damaged": was_damaged, "faults": faults,
        });
        catalogue::print_json(&mut out, &document)?;
        return Ok((out, Verdict::Yes));
    }
    let what = match done {
        Done::Current => "nothing had changed".to_owned(),
        Done::Made { opened, was_damaged: true, .. } => {
            format!("the old index was damaged, and {opened} files were read")
        }
        Done::Made { opened, .. } => format!("{opened} files were read"),
    };
    let size = index.len_bytes().div_ceil(1024);
    writeln!(out, "{plugins} plugins and {applications} applications in {size} KiB; {what}")?;
    writeln!(out, "{}", shown_path(&location.path()))?;
    for (path, reason) in faults {
        writeln!(out, "left out {}: {}", shown_path(&path), shown(reason))?;
    }
    Ok((out, Verdict::Yes))
}
