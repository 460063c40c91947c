//! Taking out of a damaged file what an intact part still proves.

use crate::table::gvariant::Variant;

/// What was left of a damaged file.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// Keys and values, in byte order of the keys.
    pub entries: Vec<(String, Variant)>,
    /// The keys of `entries` whose value nothing proves: the name is proved by its hash, the value may have been
    /// changed into another well-formed one. In byte order.
    pub unproven: Vec<String>,
    /// The number of items that could not be read.
    pub suspect: usize,
}

/// Takes out of a damaged file what an intact part still proves.
#[must_use]
pub fn salvage(bytes: &[u8]) -> Salvaged {
    let _ = bytes;
    todo!()
}
