//! Recognises the format of a recording by its first bytes.

use crate::{lines, log, pcap, pcapng};

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFormat {
    /// pcapng, as we and `busctl capture` write it.
    Pcapng,
    /// Classic pcap, as `dbus-monitor --pcap`, Bustle and older `busctl` write it.
    Pcap,
    /// Concatenated messages, as `dbus-monitor --binary` writes them, without times.
    Binary,
    /// Lines of JSON, as we write them; with the bytes of the messages.
    Lines,
    /// A text log, as `dbus-monitor --profile` and early Bustle write it: headers without bodies.
    Log,
}

impl RecordFormat {
    /// Recognises a format; `None` if it is not a recording.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<RecordFormat> {
        if pcapng::is_one(bytes) {
            Some(RecordFormat::Pcapng)
        } else if pcap::is_one(bytes) {
            Some(RecordFormat::Pcap)
        } else if lines::is_one(bytes) {
            Some(RecordFormat::Lines)
        } else if wire::length(bytes).is_ok() {
            Some(RecordFormat::Binary)
        } else {
            log::is_one(bytes).then_some(RecordFormat::Log)
        }
    }
}
