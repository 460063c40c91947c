//! The table format and GVariant, beside GLib and dconf, and with hostile bytes.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

// The bodies of the fuzz targets name the crate so, too.
extern crate unjank_gvdb as gvdb;

mod fuzz_gvariant;
#[path = "glib/main.rs"]
mod glib;
mod gvariant_hostile;
mod gvariant_properties;
mod gvdb_dconf;
mod gvdb_hostile;
mod gvdb_patch;
mod gvdb_patch_attacks;
mod gvdb_read;
mod gvdb_salvage;
mod gvdb_write;
