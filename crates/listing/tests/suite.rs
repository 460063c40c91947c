//! Listings of directories that change, and hostile streams.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

// The bodies of the fuzz targets name the crate so, too.
extern crate unjank_listing as listing;

mod fuzz_listing;
mod listing_changes;
mod listing_hostile;
