//! Writes a record into memory, piece by piece, in the format that is wanted.

use std::collections::BTreeMap;

use super::{CaptureEvent, CapturedMessage, RecordFormat};
use crate::{lines, pcap, pcapng};

/// Writes events as one format has them.
#[derive(Debug)]
pub struct Encoder {
    format: RecordFormat,
    began: bool,
    /// How many messages of a bus were lost by now.
    lost: BTreeMap<u16, u64>,
    /// The one bus of a format that has one.
    bus: Option<u16>,
}

/// Why an event cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The format has one bus.
    #[error("the format holds one bus only")]
    AnotherBus,
}

/// The name of the writing program, which the beginning of a file contains.
const PROGRAM: &str = concat!("unjank ", env!("CARGO_PKG_VERSION"));

impl Encoder {
    /// Begins a record. A text log cannot be written; it becomes messages one after the other.
    #[must_use]
    pub fn new(format: RecordFormat) -> Encoder {
        Encoder { format, began: false, lost: BTreeMap::new(), bus: None }
    }

    /// Writes the header, unless it is already written.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        match self.format {
            RecordFormat::Pcapng => pcapng::write_begin(out, PROGRAM),
            RecordFormat::Pcap => pcap::write_header(out),
            RecordFormat::Binary | RecordFormat::Lines | RecordFormat::Log => {}
        }
    }

    /// Writes an event. Events that the format cannot represent are omitted: in classic pcap all except messages.
    ///
    /// # Errors
    ///
    /// Nothing was written.
    pub fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &CaptureEvent<'_>,
    ) -> Result<(), EncodeError> {
        self.begin(out);
        if self.format == RecordFormat::Lines {
            lines::write(out, event, lines::Bytes::Included);
            return Ok(());
        }
        if self.format == RecordFormat::Pcapng {
            match event {
                CaptureEvent::Bus(bus) => pcapng::write_bus(out, bus),
                CaptureEvent::Peer(peer) => pcapng::write_peer(out, peer),
                CaptureEvent::Message(message) => pcapng::write_message(out, message),
                CaptureEvent::Dropped(dropped) => {
                    let total = self.lost.entry(dropped.bus).or_default();
                    *total = total.saturating_add(dropped.count);
                    pcapng::write_dropped(out, dropped, *total);
                }
                CaptureEvent::End(end) => pcapng::write_end(out, end),
                CaptureEvent::Damaged(_) => {}
            }
            return Ok(());
        }
        if let CaptureEvent::Message(message) = event {
            if *self.bus.get_or_insert(message.bus) != message.bus {
                return Err(EncodeError::AnotherBus);
            }
            match self.format {
                RecordFormat::Pcap => pcap::write_message(out, message),
                _ => out.extend(message.bytes),
            }
        }
        Ok(())
    }

    /// Writes the framing of a message, and returns the position in `out` of the message's bytes.
    ///
    /// # Errors
    ///
    /// Nothing was written.
    pub(crate) fn around(
        &mut self,
        out: &mut Vec<u8>,
        message: &CapturedMessage<'_>,
    ) -> Result<usize, EncodeError> {
        self.begin(out);
        match self.format {
            RecordFormat::Pcapng => Ok(pcapng::write_around(out, message)),
            RecordFormat::Pcap if *self.bus.get_or_insert(message.bus) == message.bus => {
                pcap::write_before(out, message);
                Ok(out.len())
            }
            RecordFormat::Pcap => Err(EncodeError::AnotherBus),
            RecordFormat::Binary | RecordFormat::Lines | RecordFormat::Log => Ok(out.len()),
        }
    }
}
