//! The indexes of plugins and applications beside KDE, and damaged.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

// The bodies of the fuzz targets name the crate so, too.
extern crate unjank_catalogue as catalogue;

mod index_machine;

mod fuzz_index;
mod index;
mod index_damage;
mod index_history;
#[path = "index_peers/main.rs"]
mod index_peers;
