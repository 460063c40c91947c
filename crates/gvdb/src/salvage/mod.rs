//! Taking out of a damaged file what an intact part still proves.
//!
//! A name is proved by the hash of its own item, whatever happened to the tables around it. A value is proved by its
//! sum in the stamp; in a file without one nothing proves a value, and only what contradicts the rest is left out.

mod items;
mod proof;
mod values;

use crate::ByteOrder;
use crate::gvariant::Variant;

use super::layout::{header_order, signature};

/// What was left of a damaged file.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// Keys and values, in byte order of the keys.
    pub entries: Vec<(String, Variant)>,
    /// The keys of `entries` whose value nothing proves, in byte order: the name is proved by its hash, but the value
    /// may have been changed into another well-formed one.
    pub unproven: Vec<String>,
    /// The number of items that could not be read.
    pub suspect: usize,
}

impl Salvaged {
    /// Says whether name and value of `key` are proved to be what was written.
    #[must_use]
    pub fn is_proven(&self, key: &str) -> bool {
        let has = self.entries.binary_search_by(|(name, _)| (**name).cmp(key)).is_ok();
        has && self.unproven.binary_search_by(|name| (**name).cmp(key)).is_err()
    }
}

/// Takes out of a damaged file what an intact part still proves.
///
/// It needs neither the header nor the buckets nor the lists: only an item, the names of its directories and its value.
/// An intact file gives all of its keys, so this can be called without a check.
#[must_use]
pub fn salvage(bytes: &[u8]) -> Salvaged {
    let order = order(bytes);
    let found = match items::find(bytes, order) {
        Ok(found) => found,
        Err(suspect) => return Salvaged { suspect, ..Salvaged::default() },
    };
    let names = proof::prove(found.table);
    let mut values = values::take(found.table, names);
    values.kept.sort_unstable_by(|a, b| (&a.name, !a.is_proven).cmp(&(&b.name, !b.is_proven)));
    let n_kept = values.kept.len();
    values.kept.dedup_by(|next, first| next.name == first.name);
    Salvaged {
        suspect: found.n_missing + values.n_suspect + (n_kept - values.kept.len()),
        unproven: values
            .kept
            .iter()
            .filter(|kept| !kept.is_proven)
            .map(|kept| kept.name.clone())
            .collect(),
        entries: values.kept.into_iter().map(|kept| (kept.name, kept.value)).collect(),
    }
}

/// Returns the byte order of the values; of a damaged signature, the order that it is nearer to.
fn order(bytes: &[u8]) -> ByteOrder {
    let distance = |order| {
        let flipped = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
        bytes.iter().zip(signature(order)).map(flipped).sum::<u32>()
    };
    let nearer = || {
        let other =
            if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
        if distance(other) < distance(ByteOrder::NATIVE) { other } else { ByteOrder::NATIVE }
    };
    header_order(bytes).unwrap_or_else(nearer)
}
