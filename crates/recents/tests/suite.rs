//! Recent documents beside the programs of GTK and KDE.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

// The bodies of the fuzz targets name the crate so, too.
extern crate unjank_recents as recents;

#[path = "recents_projection/peers.rs"]
mod peers;

#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
#[expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]
mod replay;

mod recents_clock;
mod recents_damage;
mod recents_glib;
#[path = "recents.rs"]
mod recents_list;
mod recents_policy;
mod recents_projection;
mod recents_texts;
