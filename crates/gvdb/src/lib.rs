//! gvdb files, the hash tables of dconf databases: read in place, written, patched and salvaged, with a codec for GVariant.
//!
//! Begin with [`GvdbTable::open`], which reads bytes without trusting any, [`write()`], which makes a file of sorted entries, and
//! [`Variant`](gvariant::Variant), the values in it. [`salvage()`] takes out what is left of a damaged file, [`stamp()`] says whether
//! a file is as it was written, and [`patch()`] changes single values.
//!
//! README.md has an example; `docs/gvdb.md` of the repository has the format byte by byte.

mod byte_order;
mod check;
pub mod gvariant;
mod layout;
mod linear_crc;
mod names;
mod patch;
mod read;
mod salvage;
mod stamp;
mod write;

pub use byte_order::ByteOrder;
pub use check::TableDamage;
pub use layout::hash;
pub use patch::{PatchableImage, patch};
pub use read::{GvdbTable, Layout, OpenError};
pub use salvage::{Salvaged, salvage};
pub use stamp::{Stamp, stamp};
pub use write::{Image, TableWriteError, write, write_in};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
