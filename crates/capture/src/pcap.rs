//! Classic pcap: a header of 24 bytes, and before each message one of 16 (draft-ietf-opsawg-pcap).

use super::event::{CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, DamagedSection};
use wire::{self, Endian};

/// The link type of D-Bus messages without the authentication before them.
pub(super) const LINK_TYPE: u32 = 231;
/// The mark of times in microseconds, as a number in the writer's order of bytes.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
/// The mark of times in nanoseconds.
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const HEADER: usize = 24;
const RECORD: usize = 16;

/// Returns whether this begins as pcap does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    mark(bytes).is_some()
}

/// Returns the order of bytes, and how many nanoseconds a unit of the second half of times has.
fn mark(bytes: &[u8]) -> Option<(Endian, u64)> {
    let mark: [u8; 4] = *bytes.first_chunk()?;
    [Endian::Little, Endian::Big].into_iter().find_map(|endian| match endian.u32(mark) {
        MICROSECONDS => Some((endian, 1000)),
        NANOSECONDS => Some((endian, 1)),
        _ => None,
    })
}

/// Reads the records of a file.
#[derive(Debug)]
pub(super) struct Reader<'c> {
    bytes: &'c [u8],
    at: usize,
    endian: Endian,
    unit: u64,
}

/// One record, or a candidate for one.
struct Record<'c> {
    message: CapturedMessage<'c>,
    end: usize,
}

impl<'c> Reader<'c> {
    /// Reads `bytes`, which begin as pcap does.
    pub(super) fn new(bytes: &'c [u8]) -> Reader<'c> {
        let (endian, unit) = mark(bytes).unwrap_or((Endian::Little, 1));
        Reader { bytes, at: 0, endian, unit }
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(self.endian.u32(*bytes))
    }

    /// Reads the file's header and returns the bus.
    fn begin(&mut self) -> CaptureEvent<'c> {
        self.at = HEADER;
        let link_type = self.word(20).map(|word| word & 0xffff);
        if link_type == Some(LINK_TYPE) {
            return CaptureEvent::Bus(Box::new(CapturedBus::numbered(0)));
        }
        self.at = self.bytes.len();
        damaged(
            20,
            match link_type {
                Some(link_type) => format!("its link type is {link_type}, not that of D-Bus"),
                None => wire::DecodeFault::Cut.to_string(),
            },
        )
    }

    /// Reads the record at `at` if there can be one.
    fn record(&self, at: usize) -> Option<Record<'c>> {
        let [seconds, part] = [self.word(at)?, self.word(at + 4)?];
        let [stored, length] = [self.word(at + 8)?, self.word(at + 12)?];
        if stored > length || length > wire::LONGEST {
            return None;
        }
        let begin = at + RECORD;
        let end = begin.checked_add(usize::try_from(stored).ok()?)?;
        let bytes = self.bytes.get(begin..end)?;
        let at = u64::from(seconds) * 1_000_000_000 + u64::from(part).saturating_mul(self.unit);
        Some(Record {
            message: CapturedMessage { at: CaptureTime(at), bus: 0, length, bytes },
            end,
        })
    }

    /// Finds the next record after damage: one that contains a message of the declared length.
    fn find_next(&self, from: usize) -> usize {
        let holds = |at: &usize| {
            self.record(*at).is_some_and(|record| {
                wire::length(record.message.bytes) == Ok(record.message.length)
            })
        };
        (from..self.bytes.len()).find(holds).unwrap_or(self.bytes.len())
    }
}

impl<'c> Iterator for Reader<'c> {
    type Item = CaptureEvent<'c>;

    fn next(&mut self) -> Option<CaptureEvent<'c>> {
        if self.at == 0 {
            return Some(self.begin());
        }
        if self.at >= self.bytes.len() {
            return None;
        }
        if let Some(record) = self.record(self.at) {
            self.at = record.end;
            return Some(CaptureEvent::Message(record.message));
        }
        let at = self.at;
        self.at = self.find_next(at + 1);
        let rest = if self.at == self.bytes.len() {
            "the file is cut off or damaged"
        } else {
            "a damaged record"
        };
        Some(damaged(at, rest.to_owned()))
    }
}

fn damaged<'c>(at: usize, what: String) -> CaptureEvent<'c> {
    CaptureEvent::Damaged(Box::new(DamagedSection {
        at: u64::try_from(at).unwrap_or(u64::MAX),
        what,
    }))
}

/// Writes the file's header, as `dbus-monitor --pcap` does: microseconds, messages of any length.
pub(super) fn write_header(out: &mut Vec<u8>) {
    for word in [MICROSECONDS, 2 | 4 << 16, 0, 0, wire::LONGEST, LINK_TYPE] {
        out.extend(word.to_le_bytes());
    }
}

/// Writes one record.
pub(super) fn write_message(out: &mut Vec<u8>, message: &CapturedMessage<'_>) {
    write_before(out, message);
    out.extend(message.bytes);
}

/// Writes what stands before a message; nothing stands behind it.
pub(super) fn write_before(out: &mut Vec<u8>, message: &CapturedMessage<'_>) {
    let (seconds, rest) = (message.at.0 / 1_000_000_000, message.at.0 % 1_000_000_000);
    let stored = u32::try_from(message.bytes.len()).unwrap_or(u32::MAX);
    // The format has seconds of 32 bits, until 2106.
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let part = u32::try_from(rest / 1000).unwrap_or(0);
    for word in [seconds, part, stored, message.length] {
        out.extend(word.to_le_bytes());
    }
}
