//! pcapng: blocks with options, an interface for each bus, times in nanoseconds (draft-ietf-opsawg-pcapng).
//!
//! What a plain reader does not know, connections and lost messages in detail, is in comments of interface
//! statistics, which every reader passes over or shows; [docs/bus-files.md] has the bytes.
//!
//! [docs/bus-files.md]: https://github.com/unjank/unjank/blob/main/docs/bus-files.md

mod block;
mod read;
mod write;

pub(super) use read::Reader;
pub(super) use write::{
    write_around, write_begin, write_bus, write_dropped, write_end, write_message, write_peer,
};

use super::event::{Dropped, PeerRecord};

/// The begin of each section, the same in both orders of bytes.
const SECTION: u32 = 0x0a0d_0d0a;
/// Tells the order of bytes of a section.
const ORDER: u32 = 0x1a2b_3c4d;
/// An interface.
const INTERFACE: u32 = 1;
/// A packet, as older writers wrote it.
const OLD_PACKET: u32 = 2;
/// A packet without a time.
const SIMPLE_PACKET: u32 = 3;
/// Statistics of an interface.
const STATISTICS: u32 = 5;
/// A packet.
const PACKET: u32 = 6;
/// The option of statistics that says when the recording ended.
const END_TIME: u16 = 3;

/// The prefix of unjank's comments; JSON follows.
const NOTE: &str = "unjank ";

/// The contents of unjank's comments.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Note {
    Peer(PeerRecord),
    Dropped(Dropped),
}

/// Returns whether this begins as pcapng does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&SECTION.to_le_bytes()) && block::section_order(bytes).is_some()
}
