//! Writes a record into memory, piece by piece, in the format that is wanted.

use std::collections::BTreeMap;

use super::{Event, Format, Message};
use crate::bus::{lines, pcap, pcapng};

/// Writes events as one format has them.
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    began: bool,
    /// How many messages of a bus were lost by now.
    lost: BTreeMap<u16, u64>,
    /// The one bus of a format that has one.
    bus: Option<u16>,
}

/// Why an event cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// The format has one bus.
    #[error("the format holds one bus, and this is another")]
    AnotherBus,
}

/// What the begin of a file says that it was made by.
const PROGRAM: &str = concat!("unjank ", env!("CARGO_PKG_VERSION"));

impl Encoder {
    /// Begins a record. A text log cannot be written; it becomes messages one after the other.
    #[must_use]
    pub fn new(format: Format) -> Encoder {
        Encoder { format, began: false, lost: BTreeMap::new(), bus: None }
    }

    /// Writes what comes before all events, unless it is written.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        match self.format {
            Format::Pcapng => pcapng::write_begin(out, PROGRAM),
            Format::Pcap => pcap::write_header(out),
            Format::Binary | Format::Lines | Format::Log => {}
        }
    }

    /// Writes an event. What the format has no place for is left out: in classic pcap all but messages.
    ///
    /// # Errors
    ///
    /// Nothing was written.
    pub fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) -> Result<(), Unwritable> {
        self.begin(out);
        if self.format == Format::Lines {
            lines::write(out, event, lines::Bytes::Included);
            return Ok(());
        }
        if self.format == Format::Pcapng {
            match event {
                Event::Bus(bus) => pcapng::write_bus(out, bus),
                Event::Peer(peer) => pcapng::write_peer(out, peer),
                Event::Message(message) => pcapng::write_message(out, message),
                Event::Dropped(dropped) => {
                    let total = self.lost.entry(dropped.bus).or_default();
                    *total = total.saturating_add(dropped.count);
                    pcapng::write_dropped(out, dropped, *total);
                }
                Event::End(end) => pcapng::write_end(out, end),
                Event::Damaged(_) => {}
            }
            return Ok(());
        }
        if let Event::Message(message) = event {
            if *self.bus.get_or_insert(message.bus) != message.bus {
                return Err(Unwritable::AnotherBus);
            }
            match self.format {
                Format::Pcap => pcap::write_message(out, message),
                _ => out.extend(message.bytes),
            }
        }
        Ok(())
    }

    /// Writes what the format has around a message, and returns where in `out` the message's bytes belong.
    ///
    /// # Errors
    ///
    /// Nothing was written.
    pub(in crate::bus) fn around(
        &mut self,
        out: &mut Vec<u8>,
        message: &Message<'_>,
    ) -> Result<usize, Unwritable> {
        self.begin(out);
        match self.format {
            Format::Pcapng => Ok(pcapng::write_around(out, message)),
            Format::Pcap if *self.bus.get_or_insert(message.bus) == message.bus => {
                pcap::write_before(out, message);
                Ok(out.len())
            }
            Format::Pcap => Err(Unwritable::AnotherBus),
            Format::Binary | Format::Lines | Format::Log => Ok(out.len()),
        }
    }
}
