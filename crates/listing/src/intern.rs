//! Strings that many entries share: each is sent once, before anything that speaks of it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::stream::StreamBuilder;

use super::connection::Connection;
use super::entry::StringId;
use super::record::{FORMAT, Owner, OwnerKind, StringRows, owners};

/// What the client knows of strings.
#[derive(Debug)]
pub(super) struct Strings<'a> {
    connection: &'a Connection,
    known: Mutex<InternedText>,
}

#[derive(Debug, Default)]
struct InternedText {
    numbers: HashMap<Box<[u8]>, StringId>,
    /// Users and groups whose names were sent, or that have none.
    owners: HashSet<(OwnerKind, u32)>,
}

impl Strings<'_> {
    pub(super) fn new(connection: &Connection) -> Strings<'_> {
        Strings { connection, known: Mutex::new(InternedText::default()) }
    }

    /// Returns the number of a string.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn number(&self, string: &[u8]) -> io::Result<StringId> {
        let mut known = self.known();
        let mut builder = StreamBuilder::new(FORMAT);
        let (number, is_new) = known.number(string, &mut builder)?;
        if is_new {
            // Sent before others can get the number.
            self.connection.send(&builder)?;
        }
        Ok(number)
    }

    /// Makes sure that the client knows the name of a user or group.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn owner(&self, kind: OwnerKind, number: u32) -> io::Result<()> {
        if self.known().owners.contains(&(kind, number)) {
            return Ok(());
        }
        // Not under the lock: the answer may come from another machine.
        let name = match kind {
            OwnerKind::User => sys::account::user_name(number),
            OwnerKind::Group => sys::account::group_name(number),
        };
        let mut known = self.known();
        let Some(name) = name.filter(|_| known.owners.insert((kind, number))) else {
            known.owners.insert((kind, number));
            return Ok(());
        };
        let mut builder = StreamBuilder::new(FORMAT);
        let (name, _) = known.number(&name, &mut builder)?;
        owners(&[Owner { kind, number, name }], &mut builder)?;
        self.connection.send(&builder)
    }

    fn known(&self) -> MutexGuard<'_, InternedText> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InternedText {
    /// The number of a string, and whether it is new: then `to` has a record of it.
    fn number(&mut self, string: &[u8], to: &mut StreamBuilder) -> io::Result<(StringId, bool)> {
        if let Some(number) = self.numbers.get(string) {
            return Ok((*number, false));
        }
        let number =
            u32::try_from(self.numbers.len() + 1).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.numbers.insert(string.into(), number);
        let mut rows = StringRows::default();
        rows.push(string)?;
        rows.write(number, to)?;
        Ok((number, true))
    }
}
