//! Which format a record has, as its first bytes tell.

use crate::bus::{lines, log, pcap, pcapng, wire};

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// pcapng, as we and `busctl capture` write it.
    Pcapng,
    /// Classic pcap, as `dbus-monitor --pcap`, Bustle and older `busctl` write it.
    Pcap,
    /// Messages one after the other, as `dbus-monitor --binary` writes them; nothing says when they came.
    Binary,
    /// Lines of JSON, as we write them; with the bytes of the messages.
    Lines,
    /// A text log, as `dbus-monitor --profile` and early Bustle write it: headers without bodies.
    Log,
}

impl Format {
    /// Recognises a format; none if it is no record.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Format> {
        if pcapng::is_one(bytes) {
            Some(Format::Pcapng)
        } else if pcap::is_one(bytes) {
            Some(Format::Pcap)
        } else if lines::is_one(bytes) {
            Some(Format::Lines)
        } else if wire::length(bytes).is_ok() {
            Some(Format::Binary)
        } else {
            log::is_one(bytes).then_some(Format::Log)
        }
    }
}
