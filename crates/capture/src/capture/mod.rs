//! Recorded traffic of any recorder: the events of one or more buses, in the order of the recording.

mod encode;
mod file;
mod sniff;

pub use crate::event::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, ConnectionRole, DamagedSection,
    Dropped, PeerRecord, RecordingEnd,
};
pub use encode::{EncodeError, Encoder};
pub use file::{Capture, CaptureError, Events};
pub use sniff::RecordFormat;

#[cfg(test)]
mod tests;
