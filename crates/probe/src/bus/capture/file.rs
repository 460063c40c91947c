//! A record in a file or from a pipe, opened and read from its begin.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sys::map::Map;

use super::{Bus, Damaged, Event, Format, Message, Timestamp};
use crate::bus::{lines, log, pcap, pcapng, wire};

/// A record.
#[derive(Debug)]
pub struct Capture {
    bytes: Bytes,
    format: Format,
    /// How many lines of a text say nothing.
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
        /// What the system says.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path:?} is no record of D-Bus messages")]
    NotACapture {
        /// Which file.
        path: PathBuf,
    },
}

impl Capture {
    /// Opens the record at `path`. A file is mapped, which costs no time however long it is; a pipe is read to its end.
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

    /// Takes a record that is in memory; none if it is something else.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Option<Capture> {
        Capture::over(Bytes::Read(bytes))
    }

    fn over(bytes: Bytes) -> Option<Capture> {
        let format = Format::of(bytes.all())?;
        // Texts are read into what the other readers read.
        let (bytes, missed) = match format {
            Format::Lines => read(lines::rewritten(bytes.all())),
            Format::Log => read(log::rewritten(bytes.all())),
            Format::Pcapng | Format::Pcap | Format::Binary => (bytes, 0),
        };
        Some(Capture { bytes, format, missed })
    }

    /// Returns the format that was recognised.
    #[must_use]
    pub fn format(&self) -> Format {
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
            Format::Pcapng | Format::Lines | Format::Log => {
                Reader::Pcapng(Box::new(pcapng::Reader::new(bytes)))
            }
            Format::Pcap => Reader::Pcap(pcap::Reader::new(bytes)),
            Format::Binary => Reader::Binary { bytes, at: 0, began: false },
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

/// What a record says, in its order.
#[derive(Debug)]
pub struct Events<'c> {
    reader: Reader<'c>,
    /// What is to be said at the end.
    missed: u64,
}

fn read((bytes, missed): (Vec<u8>, u64)) -> (Bytes, u64) {
    (Bytes::Read(bytes), missed)
}

#[derive(Debug)]
enum Reader<'c> {
    Pcapng(Box<pcapng::Reader<'c>>),
    Pcap(pcap::Reader<'c>),
    Binary { bytes: &'c [u8], at: usize, began: bool },
}

impl<'c> Iterator for Events<'c> {
    type Item = Event<'c>;

    fn next(&mut self) -> Option<Event<'c>> {
        let event = match &mut self.reader {
            Reader::Pcapng(reader) => reader.next(),
            Reader::Pcap(reader) => reader.next(),
            Reader::Binary { began: began @ false, .. } => {
                *began = true;
                Some(Event::Bus(Box::default()))
            }
            Reader::Binary { bytes, at, .. } => binary(bytes, at),
        };
        event.or_else(|| match std::mem::take(&mut self.missed) {
            0 => None,
            missed => {
                let what = format!("{missed} lines say nothing");
                Some(Event::Damaged(Box::new(Damaged { at: 0, what })))
            }
        })
    }
}

/// Takes the next message of a row of messages.
fn binary<'c>(bytes: &'c [u8], at: &mut usize) -> Option<Event<'c>> {
    let rest = bytes.get(*at..).filter(|rest| !rest.is_empty())?;
    let began = *at;
    *at = bytes.len();
    let damaged = |what: String| {
        let at = u64::try_from(began).unwrap_or(u64::MAX);
        Some(Event::Damaged(Box::new(Damaged { at, what })))
    };
    let length = match wire::length(rest) {
        Ok(length) => length,
        Err(error) => return damaged(error.to_string()),
    };
    let Some(message) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return damaged(wire::Fault::Cut.to_string());
    };
    *at = began + message.len();
    Some(Event::Message(Message { at: Timestamp(0), bus: 0, length, bytes: message }))
}

impl Bus {
    /// A bus of which a record says nothing but that it is one.
    pub(crate) fn numbered(bus: u16) -> Bus {
        Bus { bus, ..Bus::default() }
    }
}
