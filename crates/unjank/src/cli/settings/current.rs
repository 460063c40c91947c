//! What databases hold now, and changing them to an earlier state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use bus::client::ClientError;
use bus::client::blocking::BlockingClient;
use gvdb::gvariant::{Variant, VariantView};
use report::table::{Align, TableCell, TextTable, cut};
use settings::changeset::Changeset;
use settings::database::KeyTable as Database;
use settings::engine::{DatabaseId, DatabaseKind};
use settings::path::PathKind;
use settings::profile::Description;
use settings::source::ProfileDatabase;

use super::environment;
use super::session::{MessageStyle, Session};
use crate::cli::screen;
use crate::error::{Error, FailureCategory};

/// No value takes more columns of a table than this.
const VALUE_COLUMNS: usize = 32;

/// Databases as they are on disk, each opened once, and the administrator's locks.
#[derive(Debug)]
pub(super) struct Current {
    sources: BTreeMap<DatabaseId, ProfileDatabase>,
    locked: BTreeSet<String>,
    is_writable: bool,
}

impl Current {
    /// Opens databases, and the profile of this session for its locks.
    pub(super) fn open<'a>(databases: impl Iterator<Item = &'a DatabaseId>) -> Current {
        let environment = environment::read();
        let mut sources = BTreeMap::new();
        for id in databases {
            sources.entry(id.clone()).or_insert_with(|| {
                let description = match id.kind() {
                    DatabaseKind::User => Description::User(id.name().to_owned()),
                    kind => Description::Service(format!("{}/{}", kind.segment(), id.name())),
                };
                let mut source = ProfileDatabase::new(description, &environment);
                source.refresh(&mut |_| (), &mut |_| ());
                source
            });
        }
        let mut session = Session::open(MessageStyle::Unjank);
        let is_writable = session.profile.is_writable();
        let locked = if is_writable { session.reader.list_locks("/") } else { BTreeSet::new() };
        Current { sources, locked, is_writable }
    }

    /// Returns the user's value of a key.
    pub(super) fn get(&self, id: &DatabaseId, key: &str) -> Option<Variant> {
        let table = self.sources.get(id)?.table()?;
        Some(VariantView::inside(table.value(key)?, table.order()).to_variant())
    }

    /// Returns the file of a database if it is damaged: the service may know more of its keys.
    pub(super) fn damaged_file(&self, id: &DatabaseId) -> io::Result<Option<&std::path::Path>> {
        let Some(path) = self.sources.get(id).map(ProfileDatabase::path) else { return Ok(None) };
        let unread = |error| io::Error::other(format!("cannot read {}: {error}", path.display()));
        let is_damaged = settings::inspection::is_damaged(&*store::disk::real(), path);
        Ok(is_damaged.map_err(unread)?.then_some(path))
    }

    /// Returns all of the user's keys.
    pub(super) fn table(&self, id: &DatabaseId) -> Database {
        let Some(table) = self.sources.get(id).and_then(ProfileDatabase::table) else {
            return Database::default();
        };
        let keys = table.entries().filter(|(key, _)| PathKind::Key.check(key).is_ok());
        keys.map(|(key, v)| (key, VariantView::inside(v, table.order()).to_variant())).collect()
    }

    /// Says whether the administrator keeps a key from being changed.
    pub(super) fn locks(&self, key: &str) -> bool {
        !self.is_writable || self.locked.contains(key)
    }
}

/// Writes what changes make of which keys, as a table.
pub(super) fn plan(
    changes: &BTreeMap<DatabaseId, Changeset>,
    current: &Current,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table =
        TextTable::new(&[("key", Align::Text), ("now", Align::Text), ("then", Align::Text)]);
    let mut is_empty = true;
    for (id, changes) in changes {
        for (key, value) in changes.iter() {
            let now = current.get(id, key).map_or_else(|| "unset".into(), |value| value.print());
            let then = value.map_or_else(|| "unset".into(), Variant::print);
            let short = |text: &str| TableCell::from(cut(text, VALUE_COLUMNS));
            table.row(vec![TableCell::from(key), short(&now), short(&then)]);
            is_empty = false;
        }
    }
    if !is_empty {
        writeln!(out)?;
        write!(out, "{}", table.render(screen::width(), screen::paint()))?;
    }
    Ok(())
}

/// Has the settings service make changes; `what` is what is being done.
pub(super) fn apply(what: &str, changes: &BTreeMap<DatabaseId, Changeset>) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let failed = |error| {
        let kind = match error {
            ClientError::TimedOut { .. } => FailureCategory::Busy,
            _ => FailureCategory::Config,
        };
        Error::new(kind, what)
            .because(MessageStyle::Unjank.bus_error(&error))
            .hint("changes need the settings service on the session bus")
    };
    let client = BlockingClient::connect(None).map_err(failed)?;
    for (id, changes) in changes {
        client.change(&id.object_path(), &changes.encode()).map_err(failed)?;
    }
    Ok(())
}
