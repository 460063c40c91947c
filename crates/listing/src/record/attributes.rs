//! Attributes: a column for each field that was asked for, and lists of what does not fit into columns.
//!
//! A time is one number: seconds since 1901-12-13 in the upper 34 bits, nanoseconds in the lower 30. That is what ext4
//! can keep, and until 2446; other moments are in a list behind the columns.

use std::io;

use store::stream::StreamBuilder;

use super::bytes::{Parts, pad, put_u32, put_u64, u16_of, u32_of, u64_of};
use super::tag;
use crate::entry::{Attributes, EntryId, EntryKind, FileTime};
use crate::error::StreamFault;
use crate::fields::AttributeSet;

const RECORD: &str = "attributes";
/// The record's flag for ids in a column of their own.
const LISTED: u32 = 1;
/// The columns in their order, with their widths.
const COLUMNS: [(AttributeSet, usize); COUNT] = [
    (AttributeSet::SIZE, 8),
    (AttributeSet::MODE, 2),
    (AttributeSet::OWNER, 8),
    (AttributeSet::MODIFIED, 8),
    (AttributeSet::ACCESSED, 8),
    (AttributeSet::CHANGED, 8),
    (AttributeSet::BORN, 8),
    (AttributeSet::INODE, 8),
    (AttributeSet::LINKS, 4),
    (AttributeSet::BLOCKS, 8),
    (AttributeSet::DEVICE, 8),
    (AttributeSet::FILE_SYSTEM, 8),
    (AttributeSet::TARGET, 8),
    (AttributeSet::MIME_TYPE, 4),
    (AttributeSet::KIND, 1),
];
const COUNT: usize = 15;
/// Where the times are in [`COLUMNS`].
const TIMES: std::ops::Range<usize> = 3..7;

/// A time that is not known.
const ABSENT: u64 = u64::MAX;
/// A time that is in the list behind the columns.
const ELSEWHERE: u64 = u64::MAX - 1;
/// What is added to the seconds.
const EPOCH: i64 = 1 << 31;
const NANOSECONDS: u64 = (1 << 30) - 1;

fn packed(time: FileTime) -> Option<u64> {
    let seconds = u64::try_from(time.seconds.checked_add(EPOCH)?).ok()?;
    let fits = seconds < 1 << 34 && time.nanoseconds < 1_000_000_000;
    fits.then(|| seconds << 30 | u64::from(time.nanoseconds))
}

fn unpacked(number: u64) -> Option<FileTime> {
    let nanoseconds = u32::try_from(number & NANOSECONDS).ok()?;
    let seconds = i64::try_from(number >> 30).ok()? - EPOCH;
    (nanoseconds < 1_000_000_000).then_some(FileTime { seconds, nanoseconds })
}

fn pair((first, second): (u32, u32)) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

fn halves(number: u64) -> (u32, u32) {
    let half = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
    (half(number >> 32), half(number))
}

/// Attributes that are gathered to be one record.
#[derive(Clone, Debug)]
pub struct AttributeRows {
    fields: AttributeSet,
    ids: Vec<EntryId>,
    columns: [Vec<u8>; COUNT],
    /// Row, column, and the time that did not fit.
    times: Vec<(u32, u32, FileTime)>,
    /// Row and error number.
    failures: Vec<(u32, i32)>,
}

impl AttributeRows {
    /// Starts with no rows, for these fields.
    #[must_use]
    pub fn new(fields: AttributeSet) -> AttributeRows {
        AttributeRows {
            fields: fields.without(AttributeSet::OWNER_NAMES),
            ids: Vec::new(),
            columns: Default::default(),
            times: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Returns how many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds what is known of an entry.
    pub fn push(&mut self, id: EntryId, known: &Attributes) {
        let row = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        self.ids.push(id);
        let fields = self.fields;
        let times = [known.modified, known.accessed, known.changed, known.born];
        for (index, ((field, _), column)) in COLUMNS.iter().zip(&mut self.columns).enumerate() {
            if !fields.contains(*field) {
                continue;
            }
            if TIMES.contains(&index) {
                let time = times[index - TIMES.start];
                let number = if known.fields.contains(*field) {
                    packed(time).unwrap_or_else(|| {
                        self.times.push((row, u32::try_from(index).unwrap_or(0), time));
                        ELSEWHERE
                    })
                } else {
                    ABSENT
                };
                put_u64(column, number);
                continue;
            }
            match *field {
                AttributeSet::SIZE => put_u64(column, known.size),
                AttributeSet::MODE => column.extend_from_slice(&known.mode.to_le_bytes()),
                AttributeSet::OWNER => put_u64(column, pair((known.user, known.group))),
                AttributeSet::INODE => put_u64(column, known.inode),
                AttributeSet::LINKS => put_u32(column, known.links),
                AttributeSet::BLOCKS => put_u64(column, known.blocks),
                AttributeSet::DEVICE => put_u64(column, pair(known.device)),
                AttributeSet::FILE_SYSTEM => put_u64(column, pair(known.file_system)),
                AttributeSet::TARGET => {
                    put_u64(column, pair((known.target, u32::from(known.target_mode))));
                }
                AttributeSet::MIME_TYPE => put_u32(column, known.mime_type),
                _ => column.push(known.kind.number()),
            }
        }
    }

    /// Adds that an entry could not be looked at, with the system's error number.
    pub fn push_failure(&mut self, id: EntryId, kind: EntryKind, number: i32) {
        let row = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        self.failures.push((row, number));
        self.push(id, &Attributes { kind, ..Attributes::default() });
    }

    /// Adds the record of all rows and forgets them.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if it would be over 4 GiB.
    pub fn write(&mut self, to: &mut StreamBuilder) -> io::Result<()> {
        let narrow = |length| u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge);
        let first = self.ids.first().copied().unwrap_or(0);
        let in_order = self.ids.iter().zip(first..).all(|(id, expected)| *id == expected);
        let count = narrow(self.ids.len())?;
        let (times, failures) = (narrow(self.times.len())?, narrow(self.failures.len())?);
        to.record(tag::ATTRIBUTES, |bytes| {
            put_u32(bytes, first);
            put_u32(bytes, count);
            put_u32(bytes, self.fields.bits());
            put_u32(bytes, if in_order { 0 } else { LISTED });
            put_u32(bytes, times);
            put_u32(bytes, failures);
            if !in_order {
                self.ids.iter().for_each(|id| put_u32(bytes, *id));
            }
            for column in &self.columns {
                pad(bytes);
                bytes.extend_from_slice(column);
            }
            pad(bytes);
            for (row, column, time) in &self.times {
                put_u32(bytes, *row);
                put_u32(bytes, *column);
                bytes.extend_from_slice(&time.seconds.to_le_bytes());
                put_u64(bytes, u64::from(time.nanoseconds));
            }
            for (row, number) in &self.failures {
                put_u32(bytes, *row);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        })?;
        self.ids.clear();
        self.columns.iter_mut().for_each(Vec::clear);
        self.times.clear();
        self.failures.clear();
        Ok(())
    }
}

/// An attributes record where it is: places of its columns in the payload.
#[derive(Clone, Debug)]
pub(crate) struct AttributeView {
    pub(crate) first: EntryId,
    pub(crate) count: u32,
    pub(crate) fields: AttributeSet,
    /// Where the ids begin, if they are listed.
    ids: Option<usize>,
    columns: [usize; COUNT],
    times: (usize, usize),
    failures: (usize, usize),
}

impl AttributeView {
    /// Takes the record apart and checks its numbers, but not whether its ids are entries.
    pub(crate) fn of(payload: &[u8]) -> Result<AttributeView, StreamFault> {
        let mut parts = Parts::of(payload, RECORD);
        let first = parts.number()?;
        let count = parts.number()?;
        let wrong = |what| StreamFault::Value { record: RECORD, what };
        let fields = AttributeSet::from_bits(parts.number()?).ok_or(wrong("field"))?;
        if first.checked_add(count).is_none() {
            return Err(wrong("count"));
        }
        let listed = match parts.number()? {
            0 => false,
            LISTED => true,
            _ => return Err(wrong("flag")),
        };
        let (times, failures) = (parts.length()?, parts.length()?);
        let rows = usize::try_from(count).map_err(|_| wrong("count"))?;
        let ids = if listed { Some(parts.column(rows, 4)?.0) } else { None };
        let mut columns = [0; COUNT];
        for (place, (field, width)) in columns.iter_mut().zip(COLUMNS) {
            if fields.contains(field) {
                *place = parts.column(rows, width)?.0;
            }
        }
        let (times_at, listed_times) = parts.column(times, 24)?;
        let (failures_at, listed_failures) = parts.column(failures, 8)?;
        parts.end()?;
        rising(listed_times.chunks_exact(24).map(|row| pair((u32_of(row, 0), u32_of(row, 1)))))?;
        rising(listed_failures.chunks_exact(8).map(|row| pair((u32_of(row, 0), 0))))?;
        if listed_failures.chunks_exact(8).next_back().is_some_and(|row| u32_of(row, 0) >= count) {
            return Err(wrong("row"));
        }
        let (times, failures) = ((times_at, times), (failures_at, failures));
        Ok(AttributeView { first, count, fields, ids, columns, times, failures })
    }

    /// Returns whether the ids are a list.
    pub(crate) fn is_listed(&self) -> bool {
        self.ids.is_some()
    }

    /// Where the ids begin, if they are a list.
    pub(crate) fn ids_at(&self) -> Option<usize> {
        self.ids
    }

    /// Where the column of a field begins.
    pub(crate) fn column_at(&self, field: AttributeSet) -> Option<usize> {
        let place = COLUMNS.iter().position(|(known, _)| *known == field)?;
        self.fields.contains(field).then(|| self.columns[place])
    }

    /// Where the rows that could not be looked at begin, and how many there are.
    pub(crate) fn failures_at(&self) -> (usize, usize) {
        self.failures
    }

    /// The id of a row.
    pub(crate) fn id(&self, payload: &[u8], row: u32) -> EntryId {
        match self.ids {
            Some(at) => u32_of(&payload[at..], index(row)),
            None => self.first.saturating_add(row),
        }
    }

    /// Rows that could not be looked at, with their error numbers.
    pub(crate) fn failures<'a>(&self, payload: &'a [u8]) -> impl Iterator<Item = (u32, i32)> + 'a {
        let (at, count) = self.failures;
        let rows = payload.get(at..at + 8 * count).unwrap_or_default();
        rows.chunks_exact(8).map(|row| (u32_of(row, 0), u32_of(row, 1).cast_signed()))
    }

    /// The type as this record has it, if it does.
    pub(crate) fn kind(&self, payload: &[u8], row: u32) -> Option<EntryKind> {
        if self.fields.contains(AttributeSet::MODE) {
            let mode = u16_of(&payload[self.columns[1]..], index(row));
            return Some(EntryKind::from_mode(mode)).filter(|kind| *kind != EntryKind::Unknown);
        }
        if self.fields.contains(AttributeSet::KIND) {
            let number = payload.get(self.columns[COUNT - 1] + index(row));
            return Some(EntryKind::from_number(*number?))
                .filter(|kind| *kind != EntryKind::Unknown);
        }
        None
    }

    /// Everything in a row but the type.
    pub(crate) fn row(&self, payload: &[u8], row: u32) -> Attributes {
        let at = index(row);
        let mut known = Attributes { fields: self.fields, ..Attributes::default() };
        known.fields = known.fields.without(AttributeSet::KIND);
        let column = |number: usize| payload.get(self.columns[number]..).unwrap_or_default();
        let has = |number: usize| self.fields.contains(COLUMNS[number].0);
        let wide = |number: usize| if has(number) { u64_of(column(number), at) } else { 0 };
        known.size = wide(0);
        known.mode = if has(1) { u16_of(column(1), at) } else { 0 };
        (known.user, known.group) = halves(wide(2));
        let mut times = [FileTime::default(); 4];
        for (number, time) in TIMES.zip(&mut times) {
            if !has(number) {
                continue;
            }
            match self.time(payload, row, number, wide(number)) {
                Some(found) => *time = found,
                None => known.fields = known.fields.without(COLUMNS[number].0),
            }
        }
        [known.modified, known.accessed, known.changed, known.born] = times;
        known.inode = wide(7);
        known.links = if has(8) { u32_of(column(8), at) } else { 0 };
        known.blocks = wide(9);
        known.device = halves(wide(10));
        known.file_system = halves(wide(11));
        let (target, mode) = halves(wide(12));
        (known.target, known.target_mode) = (target, u16::try_from(mode).unwrap_or(0));
        known.mime_type = if has(13) { u32_of(column(13), at) } else { 0 };
        known
    }

    fn time(&self, payload: &[u8], row: u32, column: usize, number: u64) -> Option<FileTime> {
        if number != ELSEWHERE {
            return unpacked(number);
        }
        let (at, count) = self.times;
        let (rows, _) = payload.get(at..at.checked_add(24 * count)?)?.as_chunks::<24>();
        let wanted = pair((row, u32::try_from(column).ok()?));
        let key = |row: &[u8; 24]| pair((u32_of(row, 0), u32_of(row, 1)));
        let found = &rows[rows.binary_search_by_key(&wanted, key).ok()?];
        let nanoseconds = u32_of(found, 4);
        let seconds = u64_of(&found[8..], 0).cast_signed();
        (nanoseconds < 1_000_000_000).then_some(FileTime { seconds, nanoseconds })
    }
}

fn index(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

fn rising(mut keys: impl Iterator<Item = u64>) -> Result<(), StreamFault> {
    let Some(mut last) = keys.next() else { return Ok(()) };
    for key in keys {
        if key <= last {
            return Err(StreamFault::Value { record: RECORD, what: "row" });
        }
        last = key;
    }
    Ok(())
}
