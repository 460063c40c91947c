//! Plugins: what a Qt plugin says of itself, read from its file without loading its code.

pub(crate) mod cbor;
#[doc(hidden)] // For tests and fuzz targets.
pub mod elf;
pub mod kplugin;
pub mod metadata;
pub(crate) mod qbjs;
pub mod value;
