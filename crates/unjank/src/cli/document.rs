//! The one JSON document that a command prints with `--json`.
//!
//! It is an object that begins with `schema`, the name and version of its fields: `unjank.<command>/<version>` (docs/json.md).

use std::io::{self, Write};

use serde::Serialize;

use super::screen;
use crate::error::Error;

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    fields: &'a T,
}

/// Prints a document of these fields, which are those of a structure or a map.
pub(super) fn print(schema: &'static str, fields: &impl Serialize) -> Result<(), Error> {
    print_whole(&Envelope { schema, fields })
}

/// Prints a document that has its schema already.
pub(super) fn print_whole(document: &impl Serialize) -> Result<(), Error> {
    let mut text = serde_json::to_vec_pretty(document).map_err(io::Error::from)?;
    text.push(b'\n');
    print_bytes(&text)
}

/// Prints the text of a document that has its schema already.
pub(super) fn print_text(text: &str) -> Result<(), Error> {
    print_bytes(text.as_bytes())
}

fn print_bytes(text: &[u8]) -> Result<(), Error> {
    let mut out = screen::json();
    out.write_all(text)?;
    out.flush()?;
    Ok(())
}
