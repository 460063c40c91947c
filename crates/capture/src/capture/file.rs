//! A record in a file or from a pipe, opened and read from its begin.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sys::map::Map;

use super::{CaptureEvent, CaptureTime, CapturedMessage, DamagedSection, Encoder, RecordFormat};
use crate::{lines, log, pcap, pcapng};

/// A record.
#[derive(Debug)]
pub struct Capture {
    bytes: Bytes,
    format: RecordFormat,
    /// The most leading lines of a text that may be unrecognised.
    missed: u64,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Map),
    Read(Vec<u8>),
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It cannot be opened or read.
    #[error("cannot read {path:?}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has another format.
    #[error("{path:?} is not a recording of D-Bus messages")]
    NotACapture {
        /// Which file.
        path: PathBuf,
    },
}

impl Capture {
    /// Opens the recording at `path`. A file is mapped, which takes no time whatever its length; a pipe is read to its end.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no record.
    pub fn open(path: &Path) -> Result<Capture, CaptureError> {
        let cannot = |source| CaptureError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        let bytes = if metadata.is_file() && metadata.len() > 0 {
            Bytes::Mapped(Map::of(&file).map_err(cannot)?)
        } else {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(cannot)?;
            Bytes::Read(bytes)
        };
        Capture::over(bytes).ok_or_else(|| CaptureError::NotACapture { path: path.to_owned() })
    }

    /// Opens a recording in memory; `None` if it has another format.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Option<Capture> {
        Capture::over(Bytes::Read(bytes))
    }

    fn over(bytes: Bytes) -> Option<Capture> {
        let format = RecordFormat::of(bytes.all())?;
        // Text logs are converted to the form that the other readers read.
        let (bytes, missed) = match format {
            RecordFormat::Lines => repacked(|write| lines::events(bytes.all(), write)),
            RecordFormat::Log => repacked(|write| log::events(bytes.all(), write)),
            RecordFormat::Pcapng | RecordFormat::Pcap | RecordFormat::Binary => (bytes, 0),
        };
        Some(Capture { bytes, format, missed })
    }

    /// Returns the format that was recognised.
    #[must_use]
    pub fn format(&self) -> RecordFormat {
        self.format
    }

    /// Returns how many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.all().len()
    }

    /// Reads it from its begin.
    #[must_use]
    pub fn events(&self) -> Events<'_> {
        let bytes = self.bytes.all();
        let reader = match self.format {
            RecordFormat::Pcapng | RecordFormat::Lines | RecordFormat::Log => {
                Reader::Pcapng(Box::new(pcapng::Reader::new(bytes)))
            }
            RecordFormat::Pcap => Reader::Pcap(pcap::Reader::new(bytes)),
            RecordFormat::Binary => Reader::Binary { bytes, at: 0, began: false },
        };
        Events { reader, missed: self.missed }
    }
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map.bytes(),
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// The events of a recording, in its order.
#[derive(Debug)]
pub struct Events<'c> {
    reader: Reader<'c>,
    /// Events to return at the end.
    missed: u64,
}

/// Returns the record that the events of a text are, as pcapng, and how many of its lines are not in it.
fn repacked(events: impl FnOnce(&mut dyn FnMut(&CaptureEvent<'_>) -> bool) -> u64) -> (Bytes, u64) {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(RecordFormat::Pcapng);
    encoder.begin(&mut out);
    let missed = events(&mut |event| encoder.event(&mut out, event).is_ok());
    (Bytes::Read(out), missed)
}

#[derive(Debug)]
enum Reader<'c> {
    Pcapng(Box<pcapng::Reader<'c>>),
    Pcap(pcap::Reader<'c>),
    Binary { bytes: &'c [u8], at: usize, began: bool },
}

impl<'c> Iterator for Events<'c> {
    type Item = CaptureEvent<'c>;

    fn next(&mut self) -> Option<CaptureEvent<'c>> {
        let event = match &mut self.reader {
            Reader::Pcapng(reader) => reader.next(),
            Reader::Pcap(reader) => reader.next(),
            Reader::Binary { began: began @ false, .. } => {
                *began = true;
                Some(CaptureEvent::Bus(Box::default()))
            }
            Reader::Binary { bytes, at, .. } => binary(bytes, at),
        };
        event.or_else(|| match std::mem::take(&mut self.missed) {
            0 => None,
            missed => {
                let what = format!("{missed} lines say nothing");
                Some(CaptureEvent::Damaged(Box::new(DamagedSection { at: 0, what })))
            }
        })
    }
}

/// Takes the next message of a row of messages.
fn binary<'c>(bytes: &'c [u8], at: &mut usize) -> Option<CaptureEvent<'c>> {
    let rest = bytes.get(*at..).filter(|rest| !rest.is_empty())?;
    let began = *at;
    *at = bytes.len();
    let damaged = |what: String| {
        let at = u64::try_from(began).unwrap_or(u64::MAX);
        Some(CaptureEvent::Damaged(Box::new(DamagedSection { at, what })))
    };
    let length = match wire::length(rest) {
        Ok(length) => length,
        Err(error) => return damaged(error.to_string()),
    };
    let Some(message) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return damaged(wire::DecodeFault::Cut.to_string());
    };
    *at = began + message.len();
    Some(CaptureEvent::Message(CapturedMessage {
        at: CaptureTime(0),
        bus: 0,
        length,
        bytes: message,
    }))
}
