//! What the two processes say to each other: a message of a socket for each thing, texts as JSON, chunks as numbers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use sys::shared::Passed;
use sys::socket::{self, Full};

use crate::bus::capture::{Bus, Dropped, Peer, RecordingEnd};

/// What is longer travels in memory of its own.
const SHORT: usize = 48 << 10;
/// The longest message that is sent.
pub(super) const LONGEST: usize = SHORT + 64;

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromChild {
    /// It records.
    Begun,
    /// It cannot.
    Refused {
        text: String,
        /// The number of the system's error, if it was one.
        code: Option<i32>,
    },
    Bus(Bus),
    Peers(Vec<Peer>),
    Dropped(Dropped),
    End(RecordingEnd),
    /// A chunk, whose memory is the parent's until it gives it back.
    Chunk(ChunkFrame),
    /// Nothing will come any more; why buses ended by themselves.
    Over(Vec<(u16, EndFrame)>),
}

/// A chunk of messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ChunkFrame {
    /// By which it is given back.
    pub(super) number: u64,
    /// Where it lies; none is memory that comes with it.
    pub(super) slot: Option<usize>,
    pub(super) bus: u16,
    pub(super) dropped: Option<Dropped>,
    /// How many messages came at the same time, and when; how long each is it says itself.
    pub(super) runs: Vec<(u64, u32)>,
}

/// Why a bus ended by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndFrame {
    Closed,
    Broken(String),
}

/// What the parent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromParent {
    /// The memory of this chunk is not used any more.
    GiveBack(u64),
    /// Nothing is to be read any more.
    Stop,
}

/// Sends a thing; with memory if it is a chunk's that has its own.
pub(super) fn send(
    socket: &OwnedFd,
    frame: &impl Serialize,
    memory: Option<&Passed>,
) -> io::Result<()> {
    let text = serde_json::to_vec(frame)?;
    if let Some(memory) = memory {
        return socket::send(socket, &text, Some(memory.as_fd()), Full::Wait);
    }
    if text.len() <= SHORT {
        return socket::send(socket, &text, None, Full::Wait);
    }
    let mut passed = Passed::new(text.len())?;
    passed.copy_from_slice(&text);
    socket::send(socket, &[], Some(passed.as_fd()), Full::Wait)
}

/// A thing that came, and the memory with it.
#[derive(Debug)]
pub(super) struct Arrived<F> {
    pub(super) frame: F,
    pub(super) memory: Option<Passed>,
}

/// Takes the next thing, which must be there; none if the other process has ended.
pub(super) fn receive<F: for<'f> Deserialize<'f>>(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<Option<Arrived<F>>> {
    let received = socket::receive(socket, buffer)?;
    let memory = received.descriptor.map(Passed::of).transpose()?;
    match (received.length, memory) {
        (0, None) => Ok(None),
        (0, Some(text)) => {
            Ok(Some(Arrived { frame: serde_json::from_slice(&text)?, memory: None }))
        }
        (length, memory) => {
            let frame = serde_json::from_slice(buffer.get(..length).unwrap_or_default())?;
            Ok(Some(Arrived { frame, memory }))
        }
    }
}
