//! Plugins: what a Qt plugin says of itself, read from its file without loading its code.

pub mod cbor;
pub mod elf;
pub mod kplugin;
pub mod metadata;
pub mod qbjs;
pub mod value;
