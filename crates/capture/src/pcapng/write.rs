//! Writes pcapng in little-endian order, with nanoseconds, and with additional data in comments.

use super::{END_TIME, INTERFACE, NOTE, Note, ORDER, PACKET, SECTION, STATISTICS};
use crate::event::{CaptureTime, CapturedBus, CapturedMessage, Dropped, PeerRecord, RecordingEnd};
use crate::pcap::LINK_TYPE;

/// A block that is being written: its length is put in when it is whole.
struct Writing<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> Writing<'o> {
    fn begin(out: &'o mut Vec<u8>, kind: u32) -> Writing<'o> {
        let begin = out.len();
        out.extend(kind.to_le_bytes());
        out.extend([0; 4]);
        Writing { out, begin }
    }

    fn u32(&mut self, number: u32) {
        self.out.extend(number.to_le_bytes());
    }

    fn time(&mut self, at: CaptureTime) {
        self.u32(u32::try_from(at.0 >> 32).unwrap_or(u32::MAX));
        self.out.extend(&at.0.to_le_bytes()[..4]);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.extend(&[0; 3][..padding]);
    }

    /// Writes an option; what is longer than options may be is cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.out.extend(code.to_le_bytes());
        self.out.extend(length.to_le_bytes());
        self.padded(&value[..length.into()]);
    }

    fn end_of_options(&mut self) {
        self.u32(0);
    }

    fn end(self) {
        let length = self.out.len() - self.begin + 4;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        self.out.extend(length);
        self.out[self.begin + 4..self.begin + 8].copy_from_slice(&length);
    }
}

/// Writes the begin of a file that `program` makes.
pub(crate) fn write_begin(out: &mut Vec<u8>, program: &str) {
    let mut block = Writing::begin(out, SECTION);
    block.u32(ORDER);
    // Version 1.0; nobody knows how long the section will be.
    block.u32(1);
    block.out.extend(u64::MAX.to_le_bytes());
    block.option(4, program.as_bytes());
    block.end_of_options();
    block.end();
}

/// Writes the interface of a bus. Their numbers are those of the buses, so they are written in order.
pub(crate) fn write_bus(out: &mut Vec<u8>, bus: &CapturedBus) {
    let mut block = Writing::begin(out, INTERFACE);
    block.u32(LINK_TYPE);
    block.u32(wire::LONGEST);
    if !bus.name.is_empty() {
        block.option(2, bus.name.as_bytes());
    }
    if !bus.address.is_empty() {
        block.option(3, bus.address.as_bytes());
    }
    block.option(9, &[9]);
    if !bus.rules.is_empty() {
        let mut rules = vec![0];
        rules.extend(bus.rules.join("\n").bytes());
        block.option(11, &rules);
    }
    block.end_of_options();
    block.end();
}

/// Writes a message.
pub(crate) fn write_message(out: &mut Vec<u8>, message: &CapturedMessage<'_>) {
    let length = begin_message(out, message);
    out.extend(message.bytes);
    end_message(out, message, length);
}

/// Writes what stands around a message, and returns where in `out` its bytes belong.
pub(crate) fn write_around(out: &mut Vec<u8>, message: &CapturedMessage<'_>) -> usize {
    let length = begin_message(out, message);
    let place = out.len();
    end_message(out, message, length);
    place
}

/// Writes what stands before a message, and returns the length of its block.
fn begin_message(out: &mut Vec<u8>, message: &CapturedMessage<'_>) -> u32 {
    // No message is longer than 2^27 bytes.
    let stored = u32::try_from(message.bytes.len()).unwrap_or(wire::LONGEST);
    let length = 32 + stored.next_multiple_of(4);
    for word in [PACKET, length, message.bus.into()] {
        out.extend(word.to_le_bytes());
    }
    let at = message.at.0.to_le_bytes();
    out.extend(&at[4..]);
    out.extend(&at[..4]);
    out.extend(stored.to_le_bytes());
    out.extend(message.length.to_le_bytes());
    length
}

/// Writes what stands behind a message.
fn end_message(out: &mut Vec<u8>, message: &CapturedMessage<'_>, length: u32) {
    let padding = message.bytes.len().next_multiple_of(4) - message.bytes.len();
    out.extend(&[0; 3][..padding]);
    out.extend(length.to_le_bytes());
}

/// Writes what is known of a connection.
pub(crate) fn write_peer(out: &mut Vec<u8>, peer: &PeerRecord) {
    let note = Note::Peer(peer.clone());
    write_note(out, peer.bus, CaptureTime(peer.at), &note, None);
}

/// Writes that messages are missing; `total` is how many of this bus by now, these among them.
pub(crate) fn write_dropped(out: &mut Vec<u8>, dropped: &Dropped, total: u64) {
    let note = Note::Dropped(*dropped);
    write_note(out, dropped.bus, CaptureTime(dropped.to), &note, Some(total));
}

/// Writes when the recording of a bus ended, as other programs do, too.
pub(crate) fn write_end(out: &mut Vec<u8>, end: &RecordingEnd) {
    let mut block = Writing::begin(out, STATISTICS);
    block.u32(end.bus.into());
    block.time(CaptureTime(end.at));
    let [upper, lower] = [end.at >> 32, end.at & u64::from(u32::MAX)];
    let halves = [upper, lower].map(|half| u32::try_from(half).unwrap_or(u32::MAX).to_le_bytes());
    block.option(END_TIME, &halves.concat());
    block.end_of_options();
    block.end();
}

fn write_note(out: &mut Vec<u8>, bus: u16, at: CaptureTime, note: &Note, lost: Option<u64>) {
    // Numbers and texts always have a JSON form.
    let Ok(text) = serde_json::to_string(note) else { return };
    let mut block = Writing::begin(out, STATISTICS);
    block.u32(bus.into());
    block.time(at);
    block.option(1, format!("{NOTE}{text}").as_bytes());
    if let Some(lost) = lost {
        block.option(5, &lost.to_le_bytes());
    }
    block.end_of_options();
    block.end();
}
