//! The image of a database, as readers map it.

use gvdb::{self, Image};

use super::answer::{ChangeError, ErrorKind};
use crate::database::KeyTable;

/// Writes a table as an image, in one pass.
pub(super) fn image_of(table: &KeyTable, generation: u64) -> Result<Vec<u8>, ChangeError> {
    let entries = table.iter().map(|(key, value)| (key, value.as_bytes()));
    gvdb::write(entries, &Image { locks: &[], generation: Some(generation) }).map_err(|error| {
        let text = format!("cannot make an image of the database: {error}; nothing was changed");
        ChangeError { kind: ErrorKind::Invalid, text }
    })
}
