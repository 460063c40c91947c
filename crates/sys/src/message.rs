//! Messages between two processes of ours: one JSON text a packet.

use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use crate::socket::{self, Full};

/// The longest message.
const MESSAGE: usize = 16 * 1024;

/// Sends one message.
///
/// # Errors
///
/// As `sendmsg(2)`: the other one is gone, or does not read.
pub fn send(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    socket::send(socket, &text, None, Full::Fail)
}

/// Takes the next message, without waiting; `None` is the end.
///
/// # Errors
///
/// `WouldBlock`: there is none; `InvalidData`: it is none of ours.
pub fn receive<T: for<'de> Deserialize<'de>>(socket: impl AsFd) -> io::Result<Option<T>> {
    let mut text = [0; MESSAGE];
    let received = socket::receive(socket, &mut text)?;
    if received.length == 0 {
        return Ok(None);
    }
    let text = text.get(..received.length).unwrap_or_default();
    serde_json::from_slice(text).map(Some).map_err(io::Error::from)
}
