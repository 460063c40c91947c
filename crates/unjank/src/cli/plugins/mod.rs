//! `unjank plugins`: which plugins there are, from one mapped index.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use probe::report::table::{Align, Table};
use serde_json::{Value as Json, json};
use session::index::Index;
use session::index::build::Look;
use session::index::input::Part;
use session::index::layout::PluginKey;
use session::index::record::Record;
use session::index::refresh::{Done, Location};
use session::plugins::metadata;

use unjank::daemon::index::places::SYSTEM;

use super::catalogue::{self, Question, Selection};
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
        #[command(flatten)]
        question: Question,
    },
    /// Make the index current, and say what is in it.
    Index {
        /// Look at every file, not only at the directories.
        #[arg(long)]
        full: bool,
        /// Say whether it is current and change nothing: exits with 1 if it is not.
        #[arg(long, conflicts_with_all = ["full", "json"])]
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
        let mut out = BufWriter::new(io::stdout().lock());
        let verdict = match self.command {
            Command::List { selection, question } => {
                let (index, _) = question.index(&Part::OF_PLUGINS)?;
                print(&mut out, &selection, index.plugins().collect())
            }
            Command::Find { by, selection, question } => {
                let (index, _) = question.index_unless(|index| by.changed(index))?;
                print(&mut out, &selection, by.find(&index))
            }
            Command::Show { plugin, question } => show(&mut out, &question, &plugin),
            Command::Index { full, check, system, json, question } => {
                let location = match system {
                    Some(directory) => Location::of_system(directory, &question.sources()),
                    None => question.location()?,
                };
                if check {
                    return check_index(&mut out, &location);
                }
                make(&mut out, &location, if full { Look::Files } else { Look::Directories }, json)
            }
        }?;
        out.flush()?;
        Ok(verdict)
    }
}

/// Prints plugins, a line each; no plugin is the answer no.
fn print(
    out: &mut dyn Write,
    selection: &Selection,
    records: Vec<Record<'_>>,
) -> Result<Verdict, Error> {
    let records = selection.matching(records);
    if selection.json {
        let plugins: Vec<Json> = records.iter().map(|record| catalogue::to_json(*record)).collect();
        catalogue::print_json(out, &json!({ "version": 1, "plugins": plugins }))?;
    } else if !records.is_empty() {
        let mut table = Table::new(&[
            ("identifier", Align::Text),
            ("name", Align::Text),
            ("file", Align::Text),
        ]);
        table.ends_in_paths();
        for record in &records {
            let path = record.path().map(|path| path.to_string_lossy().into_owned());
            let text = |name| record.text(name).unwrap_or_default().into();
            table.row(vec![text("Id"), text("Name"), path.unwrap_or_default().into()]);
        }
        catalogue::print_table(out, &table)?;
    } else {
        catalogue::nothing("plugin");
    }
    Ok(if records.is_empty() { Verdict::No } else { Verdict::Yes })
}

/// Prints the whole metadata of a plugin, from its file.
fn show(out: &mut dyn Write, question: &Question, plugin: &str) -> Result<Verdict, Error> {
    let path = if plugin.contains('/') {
        PathBuf::from(plugin)
    } else {
        let (index, _) = question.index_unless(|index| index.stale_plugin(plugin))?;
        let record = index.plugin(plugin).and_then(|record| Some(record.path()?.to_owned()));
        record.ok_or_else(|| {
            Error::new(Kind::User, format!("show the plugin {plugin}"))
                .because(io::Error::other("no plugin has this identifier"))
                .hint("unjank plugins list names them all; a file is given by a path with a slash")
        })?
    };
    let failed = || Error::new(Kind::User, format!("show the plugin {}", path.display()));
    let file = File::open(&path).map_err(|error| failed().because(error))?;
    let raw = metadata::read(&file).map_err(|error| failed().because(error))?;
    let found = metadata::decode(&raw).map_err(|error| failed().because(error))?;
    let built = found.built;
    let document = json!({
        "version": 1,
        "file": path.to_string_lossy(),
        "qt": [built.major, built.minor],
        "requirements": built.requirements,
        "metadata": found.root.to_json(),
    });
    catalogue::print_json(out, &document)?;
    Ok(Verdict::Yes)
}

/// Says whether the index is current.
fn check_index(out: &mut dyn Write, location: &Location) -> Result<Verdict, Error> {
    let path = location.path();
    let verdict = match location.open() {
        Err(error) => {
            writeln!(out, "{}: {error}", path.display())?;
            Verdict::No
        }
        Ok(index) => match index.stale(&Part::ALL) {
            Some(changed) => {
                writeln!(
                    out,
                    "{}: out of date, because {} changed",
                    path.display(),
                    changed.display()
                )?;
                Verdict::No
            }
            None => {
                writeln!(out, "{}: current", path.display())?;
                Verdict::Yes
            }
        },
    };
    out.flush()?;
    Ok(verdict)
}

/// Makes the index current and says what was done.
fn make(
    out: &mut dyn Write,
    location: &Location,
    look: Look,
    as_json: bool,
) -> Result<Verdict, Error> {
    let (index, done) = catalogue::make_current(location, look)?;
    let faults: Vec<(String, &str)> = index
        .faults()
        .map(|(path, reason)| (path.to_string_lossy().into_owned(), reason))
        .collect();
    let (plugins, applications) = (index.plugins().count(), index.apps().count());
    let opened = if let Done::Made { opened, .. } = done { opened } else { 0 };
    if as_json {
        let faults: Vec<Json> =
            faults.iter().map(|(path, reason)| json!({ "file": path, "reason": reason })).collect();
        let document = json!({
            "version": 1, "file": location.path().to_string_lossy(), "bytes": index.len_bytes(), "plugins": plugins,
            "applications": applications, "opened": opened, "made": done != Done::Current, "faults": faults,
        });
        catalogue::print_json(out, &document)?;
        return Ok(Verdict::Yes);
    }
    let what = match done {
        Done::Current => "nothing had changed".to_owned(),
        Done::Made { opened, .. } => format!("{opened} files were read"),
    };
    writeln!(
        out,
        "{plugins} plugins and {applications} applications in {} KiB; {what}",
        index.len_bytes().div_ceil(1024)
    )?;
    writeln!(out, "{}", location.path().display())?;
    for (path, reason) in faults {
        writeln!(out, "left out {path}: {reason}")?;
    }
    Ok(Verdict::Yes)
}
