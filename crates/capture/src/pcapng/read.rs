//! Reads pcapng of anybody: several sections and interfaces, either order of bytes, any unit of time.

use std::collections::VecDeque;

use super::block::Block;
use super::{
    END_TIME, INTERFACE, NOTE, Note, OLD_PACKET, PACKET, SECTION, SIMPLE_PACKET, STATISTICS,
};
use crate::event::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, DamagedSection, Dropped, RecordingEnd,
};
use crate::pcap::LINK_TYPE;
use wire::Endian;

/// The most interfaces of a file that are read.
const MOST_INTERFACES: usize = 1024;

/// Reads the blocks of a file.
#[derive(Debug)]
pub(crate) struct Reader<'c> {
    bytes: &'c [u8],
    at: usize,
    endian: Endian,
    /// Those of the section.
    interfaces: Vec<Interface>,
    /// How many buses all sections had by now.
    buses: u16,
    /// What the last block said and was not told yet.
    told: VecDeque<CaptureEvent<'c>>,
}

#[derive(Clone, Debug)]
struct Interface {
    /// None is an interface of something else.
    bus: Option<u16>,
    unit: Unit,
    /// How many bytes of a packet are stored at most; 0 is all.
    most: u32,
    /// What times begin at, in seconds since 1970.
    begin: u64,
    /// The last time that was read.
    last: CaptureTime,
    /// How many messages were lost by now.
    lost: u64,
}

/// The unit of times.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// So many of them are a second.
    PerSecond(u64),
}

impl Unit {
    /// Reads option `if_tsresol`: a power of ten, or with the highest bit of two.
    fn of(byte: u8) -> Option<Unit> {
        let power = u32::from(byte & 0x7f);
        let per_second =
            if byte & 0x80 == 0 { 10_u64.checked_pow(power) } else { 2_u64.checked_pow(power) };
        per_second.map(Unit::PerSecond)
    }

    fn nanoseconds(self, time: u64) -> u64 {
        match self {
            Unit::PerSecond(1_000_000_000) => time,
            Unit::PerSecond(1_000_000) => time.saturating_mul(1000),
            Unit::PerSecond(per_second) => {
                let nanoseconds = u128::from(time) * 1_000_000_000 / u128::from(per_second);
                u64::try_from(nanoseconds).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Interface {
    fn time(&mut self, time: u64) -> CaptureTime {
        let begin = self.begin.saturating_mul(1_000_000_000);
        let at = CaptureTime(begin.saturating_add(self.unit.nanoseconds(time)));
        self.last = at;
        at
    }
}

impl<'c> Reader<'c> {
    /// Reads `bytes`, which begin as pcapng does.
    pub(crate) fn new(bytes: &'c [u8]) -> Reader<'c> {
        let told = VecDeque::new();
        Reader { bytes, at: 0, endian: Endian::Little, interfaces: Vec::new(), buses: 0, told }
    }

    fn rest(&self) -> &'c [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Processes a block, and returns the message in it; `None` if it cannot be read.
    fn block(&mut self, block: Block<'c>) -> Option<Option<CaptureEvent<'c>>> {
        match block.kind {
            SECTION => {
                self.endian = block.endian;
                self.interfaces.clear();
            }
            INTERFACE => self.interface(block)?,
            PACKET => {
                let interface = usize::try_from(block.u32(0)?).ok()?;
                let (stored, length) = (block.u32(12)?, block.u32(16)?);
                let (bytes, options) = block.data(20, stored)?;
                let lost = block.options(options).find_map(|(code, value)| match code {
                    4 => Some(block.endian.u64(value.try_into().ok()?)),
                    _ => None,
                });
                return self.packet(
                    interface,
                    Some(block.time(4)?),
                    length,
                    bytes,
                    lost.unwrap_or(0),
                );
            }
            OLD_PACKET => {
                let (interface, lost) = (usize::from(block.u16(0)?), block.u16(2)?);
                let (stored, length) = (block.u32(12)?, block.u32(16)?);
                let (bytes, _) = block.data(20, stored)?;
                // All bits set is that nobody counted.
                let lost = if lost == u16::MAX { 0 } else { lost.into() };
                return self.packet(interface, Some(block.time(4)?), length, bytes, lost);
            }
            SIMPLE_PACKET => {
                let length = block.u32(0)?;
                let most = self.interfaces.first()?.most;
                let stored = if most == 0 { length } else { length.min(most) };
                let (bytes, _) = block.data(4, stored)?;
                return self.packet(0, None, length, bytes, 0);
            }
            STATISTICS => self.statistics(block)?,
            _ => {}
        }
        Some(None)
    }

    fn interface(&mut self, block: Block<'c>) -> Option<()> {
        if self.interfaces.len() >= MOST_INTERFACES {
            return None;
        }
        let link_type = u32::from(block.u16(0)?);
        let mut interface = Interface {
            bus: None,
            unit: Unit::PerSecond(1_000_000),
            most: block.u32(4)?,
            begin: 0,
            last: CaptureTime(0),
            lost: 0,
        };
        let mut bus = CapturedBus::numbered(self.buses);
        for (code, value) in block.options(8) {
            match (code, value) {
                (2, name) => bus.name = String::from_utf8_lossy(name).into_owned(),
                (3, address) => bus.address = String::from_utf8_lossy(address).into_owned(),
                (9, [unit]) => interface.unit = Unit::of(*unit)?,
                // The first byte says that it is text.
                (11, [0, rules @ ..]) => {
                    let rules = String::from_utf8_lossy(rules);
                    bus.rules = rules.lines().map(str::to_owned).collect();
                }
                (14, begin) => interface.begin = block.endian.u64(begin.try_into().ok()?),
                _ => {}
            }
        }
        if link_type == LINK_TYPE {
            interface.bus = Some(self.buses);
            self.buses = self.buses.checked_add(1)?;
            self.told.push_back(CaptureEvent::Bus(Box::new(bus)));
        } else {
            let what = format!("the link type of an interface is {link_type}, not that of D-Bus");
            self.damaged(self.at - block.length, what);
        }
        self.interfaces.push(interface);
        Some(())
    }

    fn packet(
        &mut self,
        interface: usize,
        time: Option<u64>,
        length: u32,
        bytes: &'c [u8],
        lost: u64,
    ) -> Option<Option<CaptureEvent<'c>>> {
        let interface = self.interfaces.get_mut(interface)?;
        let from = interface.last;
        let at = time.map_or(from, |time| interface.time(time));
        let Some(bus) = interface.bus else { return Some(None) };
        if lost > 0 {
            interface.lost = interface.lost.saturating_add(lost);
            self.told.push_back(CaptureEvent::Dropped(Dropped {
                bus,
                count: lost,
                bytes: 0,
                from: from.0,
                to: at.0,
            }));
        }
        Some(Some(CaptureEvent::Message(CapturedMessage { at, bus, length, bytes })))
    }

    fn statistics(&mut self, block: Block<'c>) -> Option<()> {
        let interface = self.interfaces.get_mut(usize::try_from(block.u32(0)?).ok()?)?;
        let from = interface.last;
        let at = interface.time(block.time(4)?);
        let Some(bus) = interface.bus else { return Some(()) };
        let (mut lost, mut ended) = (None, None);
        for (code, value) in block.options(12) {
            match code {
                1 => match note(value) {
                    Some(Note::Peer(peer)) => {
                        self.told.push_back(CaptureEvent::Peer(Box::new(peer.on(bus))));
                    }
                    Some(Note::Dropped(dropped)) => {
                        interface.lost = interface.lost.saturating_add(dropped.count);
                        self.told.push_back(CaptureEvent::Dropped(Dropped { bus, ..dropped }));
                    }
                    None => {}
                },
                END_TIME => {
                    let ([upper, lower], []) = value.as_chunks::<4>() else { return None };
                    let half = |bytes: &[u8; 4]| u64::from(block.endian.u32(*bytes));
                    ended = Some(interface.time(half(upper) << 32 | half(lower)));
                }
                5 | 7 => {
                    let count = block.endian.u64(value.try_into().ok()?);
                    lost = Some(lost.unwrap_or(0_u64).saturating_add(count));
                }
                _ => {}
            }
        }
        // The number is that of all since the begin.
        let more = lost.unwrap_or(0).saturating_sub(interface.lost);
        if more > 0 {
            interface.lost += more;
            let dropped = Dropped { bus, count: more, bytes: 0, from: from.0, to: at.0 };
            self.told.push_back(CaptureEvent::Dropped(dropped));
        }
        if let Some(CaptureTime(at)) = ended {
            self.told.push_back(CaptureEvent::End(RecordingEnd { bus, at }));
        }
        Some(())
    }

    fn damaged(&mut self, at: usize, what: String) {
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        self.told.push_back(CaptureEvent::Damaged(Box::new(DamagedSection { at, what })));
    }

    /// Finds the next block of a kind that we know, behind something that is none.
    fn find_next(&self) -> usize {
        let begins = |at: &usize| {
            let rest = self.bytes.get(*at..).unwrap_or_default();
            Block::of(rest, self.endian)
                .is_some_and(|block| block.kind == SECTION || (1..=PACKET).contains(&block.kind))
        };
        (self.at + 4..self.bytes.len()).step_by(4).find(begins).unwrap_or(self.bytes.len())
    }
}

impl super::PeerRecord {
    fn on(self, bus: u16) -> super::PeerRecord {
        super::PeerRecord { bus, ..self }
    }
}

/// Reads a comment if it is ours.
fn note(comment: &[u8]) -> Option<Note> {
    let text = std::str::from_utf8(comment).ok()?.strip_prefix(NOTE)?;
    serde_json::from_str(text).ok()
}

impl<'c> Iterator for Reader<'c> {
    type Item = CaptureEvent<'c>;

    fn next(&mut self) -> Option<CaptureEvent<'c>> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Some(event);
            }
            if self.rest().is_empty() {
                return None;
            }
            let at = self.at;
            match Block::of(self.rest(), self.endian) {
                Some(block) => {
                    self.at += block.length;
                    match self.block(block) {
                        Some(Some(message)) if self.told.is_empty() => return Some(message),
                        // What was lost before it comes first.
                        Some(message) => self.told.extend(message),
                        None => self.damaged(at, "a damaged block".to_owned()),
                    }
                }
                None => {
                    self.at = self.find_next();
                    let is_end = self.at == self.bytes.len();
                    let what =
                        if is_end { "the file is cut off or damaged" } else { "what is no block" }
                            .to_owned();
                    self.damaged(at, what);
                }
            }
        }
    }
}
