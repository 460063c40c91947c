//! The protocol between the two processes: one socket message for each item, texts as JSON, chunks as numbers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use sys::shared::Passed;
use sys::socket::{self, Full};

use crate::capture::{CapturedBus, Dropped, PeerRecord, RecordingEnd};

/// Longer items are passed in shared memory.
const SHORT: usize = 48 << 10;
/// The length of the longest message, in bytes.
pub(super) const LONGEST: usize = SHORT + 64;

/// A message from the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromChild {
    /// The recording has begun.
    Begun,
    /// The recording could not begin.
    Refused {
        text: String,
        /// The `errno` of a system call that failed.
        code: Option<i32>,
    },
    Bus(CapturedBus),
    Peers(Vec<PeerRecord>),
    Dropped(Dropped),
    End(RecordingEnd),
    /// A chunk. The parent owns its memory until it returns it.
    Chunk(ChunkFrame),
    /// The end of the recording, with the reasons of the buses that ended by themselves.
    Over(Vec<(u16, EndFrame)>),
}

/// A chunk of messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ChunkFrame {
    /// The number with which the parent returns it.
    pub(super) number: u64,
    /// Its slot in the shared memory; `None` if its memory comes with the message.
    pub(super) slot: Option<usize>,
    pub(super) bus: u16,
    pub(super) dropped: Option<Dropped>,
    /// How many messages arrived at each time. The header of each message has its length.
    pub(super) runs: Vec<(u64, u32)>,
}

/// Why a bus ended by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndFrame {
    Closed,
    Broken(String),
}

/// A message from the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromParent {
    /// The memory of this chunk is free again.
    GiveBack(u64),
    /// The child stops reading.
    Stop,
}

/// Sends an item, with the memory of a chunk that has memory of its own.
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

/// A received item, with its memory.
#[derive(Debug)]
pub(super) struct ReceivedItem<F> {
    pub(super) frame: F,
    pub(super) memory: Option<Passed>,
}

/// Receives the next item, which must be readable already; `None` if the other process has ended.
pub(super) fn receive<F: for<'f> Deserialize<'f>>(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<Option<ReceivedItem<F>>> {
    let received = socket::receive(socket, buffer)?;
    let memory = received.descriptor.map(Passed::of).transpose()?;
    match (received.length, memory) {
        (0, None) => Ok(None),
        (0, Some(text)) => {
            Ok(Some(ReceivedItem { frame: serde_json::from_slice(&text)?, memory: None }))
        }
        (length, memory) => {
            let frame = serde_json::from_slice(buffer.get(..length).unwrap_or_default())?;
            Ok(Some(ReceivedItem { frame, memory }))
        }
    }
}
