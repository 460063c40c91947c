//! Load generators for benchmarks of recorders: a service that answers, a client that calls, and a sender of signals.

use std::time::Duration;

use sys::clock::Clock;

use super::record::RecordError;
use super::record::connection::Connection;
use wire::write::{Draft, Marshal};
use wire::{self, Endian, MessageType};

/// The name of the program that answers.
pub const NAME: &str = "org.unjank.Traffic";
const PATH: &str = "/org/unjank/Traffic";
/// Answers are gathered up to here before they are sent.
const PIECE: usize = 1 << 16;

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPattern {
    /// How many.
    pub count: u32,
    /// How many of them wait for their answer at the same time at most.
    pub window: u32,
    /// How many bytes each carries, and its answer too.
    pub size: usize,
}

/// Answers each call with what it carried, until the bus ends.
///
/// # Errors
///
/// There is no bus, or its connection broke, as it does when the bus ends.
pub fn answer(address: &str) -> Result<(), RecordError> {
    let mut connection = Connection::open(address)?;
    let mut arguments = Marshal::new(Endian::Little);
    arguments.text(NAME);
    arguments.u32(0);
    let arguments = arguments.bytes();
    connection.call(&Draft {
        signature: "su",
        body: &arguments,
        ..Draft::to_bus(0, "RequestName")
    })?;
    connection.wait_for_ever().map_err(RecordError::NotBegun)?;
    let mut answers = Vec::new();
    let mut serial = 100;
    loop {
        let bytes = connection.receive()?;
        if let Ok(call) = wire::message(bytes)
            && call.kind == MessageType::Call
        {
            serial += 1;
            let answer = Draft {
                destination: call.sender.unwrap_or_default(),
                reply_serial: call.serial.get(),
                flags: 1,
                signature: call.signature,
                body: call.body,
                ..Draft::new(MessageType::Return, serial)
            };
            answers.extend(answer.bytes());
        }
        // What waits already is answered together.
        if !answers.is_empty() && (answers.len() >= PIECE || connection.whole()?.is_none()) {
            connection.send_bytes(&answers)?;
            answers.clear();
        }
    }
}

fn body(size: usize) -> Vec<u8> {
    let mut body = Marshal::new(Endian::Little);
    body.array(1, |bytes| bytes.raw(&vec![b'x'; size]));
    body.bytes()
}

/// Calls who answers, and returns how long each call took, in their order.
///
/// # Errors
///
/// There is no bus, nobody answers, or the connection broke.
pub fn call(
    address: &str,
    calls: &CallPattern,
    clock: &dyn Clock,
) -> Result<(Duration, Vec<Duration>), RecordError> {
    let mut connection = Connection::open(address)?;
    let body = body(calls.size);
    let mut pending = Vec::new();
    let mut began = std::collections::HashMap::new();
    let mut took = Vec::new();
    let mut sent = 0;
    let start = clock.monotonic();
    let count = usize::try_from(calls.count).unwrap_or(usize::MAX);
    while took.len() < count {
        while sent < calls.count && began.len() < usize::try_from(calls.window).unwrap_or(1) {
            sent += 1;
            let serial = sent + 100;
            let draft = Draft {
                path: PATH,
                interface: NAME,
                member: "Echo",
                destination: NAME,
                signature: "ay",
                body: &body,
                ..Draft::new(MessageType::Call, serial)
            };
            pending.extend(draft.bytes());
            began.insert(serial, clock.monotonic());
            if pending.len() >= PIECE {
                connection.send_bytes(&pending)?;
                pending.clear();
            }
        }
        if !pending.is_empty() {
            connection.send_bytes(&pending)?;
            pending.clear();
        }
        loop {
            let bytes = connection.receive()?;
            let end = clock.monotonic();
            if let Ok(answer) = wire::message(bytes)
                && let Some(serial) = answer.reply_serial
                && let Some(begin) = began.remove(&serial.get())
            {
                took.push(end.saturating_sub(begin));
            }
            if connection.whole()?.is_none() {
                break;
            }
        }
    }
    Ok((clock.monotonic().saturating_sub(start), took))
}

/// Sends signals that nobody asked for, and returns when the bus has got them all.
///
/// # Errors
///
/// There is no bus, or the connection broke.
pub fn signal(address: &str, count: u32, size: usize) -> Result<(), RecordError> {
    let mut connection = Connection::open(address)?;
    let body = body(size);
    for number in 0..count {
        let draft = Draft {
            path: PATH,
            interface: NAME,
            member: "Flood",
            signature: "ay",
            body: &body,
            ..Draft::new(MessageType::Signal, number.saturating_add(100))
        };
        connection.send_bytes(&draft.bytes())?;
    }
    connection.call(&Draft::to_bus(0, "GetId")).map(|_| ())
}
