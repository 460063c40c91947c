//! gvdb: a hash table of values in one file, read in place (the format of dconf databases).
//!
//! `docs/gvdb.md` has the bytes. A [`Table`] reads them without trusting any, [`write()`] makes them, [`patch()`] changes values in
//! them, [`stamp()`] says
//! whether they are the ones that were written, and [`salvage()`] takes out what is left of them.

mod check;
mod layout;
mod names;
mod patch;
mod read;
mod salvage;
mod stamp;
mod write;

pub use check::Damage;
pub use layout::{hash, hash_extend};
pub use patch::patch;
pub use read::{Layout, OpenError, Table};
pub use salvage::{Salvaged, salvage};
pub use stamp::{Stamp, stamp};
pub use write::{Image, WriteError, write, write_in};
