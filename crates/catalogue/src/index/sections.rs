//! Reading an index's sections and records: each is verified when it is read first, and what was read is remembered.
//!
//! So an answer says of itself whether it can be believed: nothing that it rests on was damaged, and the files whose
//! records it read are still the ones that were read.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gvdb::{GvdbTable, Layout};

use super::array::Array;
use super::layout::{APP_RECORDS, APPS, PLUGIN_RECORDS, PLUGINS, SECTIONS, Section, all_sections};
use super::record::{IndexRecord, RECORD_SEED};
use super::{TYPE, checksum};

/// Which list a record is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RecordList {
    Plugins,
    Apps,
}

impl RecordList {
    pub(super) const ALL: [RecordList; 2] = [RecordList::Plugins, RecordList::Apps];

    /// Returns whether a file of this name can be in the list.
    pub(super) fn may_have(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        match self {
            RecordList::Plugins => {
                name.ends_with(b".so") || name.windows(4).any(|part| part == b".so.")
            }
            RecordList::Apps => name.ends_with(b".desktop"),
        }
    }

    /// Returns the section with the ends of the records, and the one with the records.
    pub(super) fn sections(self) -> (Section, Section) {
        match self {
            RecordList::Plugins => (PLUGINS, PLUGIN_RECORDS),
            RecordList::Apps => (APPS, APP_RECORDS),
        }
    }
}

/// Where a section begins and ends in the file; none for a damaged one.
type SectionRange = OnceLock<Option<(u32, u32)>>;

/// What has been read of an index.
#[derive(Debug)]
pub(super) struct Sections {
    layout: Layout,
    /// Where each section is, once it was verified.
    places: Box<[SectionRange; SECTIONS]>,
    /// A bit for each record that was read.
    records: [OnceLock<Box<[AtomicU64]>>; RecordList::ALL.len()],
    is_damaged: AtomicBool,
}

impl Sections {
    pub(super) fn new(layout: Layout) -> Sections {
        Sections {
            layout,
            places: Box::new([const { OnceLock::new() }; SECTIONS]),
            records: [const { OnceLock::new() }; RecordList::ALL.len()],
            is_damaged: AtomicBool::new(false),
        }
    }

    /// Returns whether anything that was read was not as it was written.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn note_damage(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Returns whether every section and every record is as it was written; nothing is remembered as read.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        let sections = all_sections().map(|section| self.look_up(bytes, section));
        let is_each_there = sections.into_iter().all(|place| place.is_some());
        let is_each_record_whole = RecordList::ALL.into_iter().all(|list| {
            let (ends, records) = list.sections();
            let (ends, records) =
                (Array::of(self.section(bytes, ends)), self.section(bytes, records));
            (0..ends.count()).all(|number| {
                let record = ends.range(number).and_then(|range| records.get(range));
                record.is_some_and(|record| checksum::opened(RECORD_SEED, record).is_some())
            })
        });
        is_each_there && is_each_record_whole
    }

    /// Returns a section without its sum; nothing of a damaged one.
    pub(super) fn section<'a>(&self, bytes: &'a [u8], section: Section) -> &'a [u8] {
        let place = self.places[section.at].get_or_init(|| {
            let place = self.look_up(bytes, section);
            if place.is_none() {
                self.note_damage();
            }
            place
        });
        let place = place.and_then(|(start, end)| bytes.get(start as usize..end as usize));
        place.unwrap_or_default()
    }

    fn look_up(&self, bytes: &[u8], section: Section) -> Option<(u32, u32)> {
        let mut place = raw_value(self.layout, bytes, section)?;
        if !has_sums_inside(section) {
            place.end =
                place.start + checksum::opened(section.seed(), bytes.get(place.clone())?)?.len();
        }
        Some((u32::try_from(place.start).ok()?, u32::try_from(place.end).ok()?))
    }

    /// Returns how many records a list has.
    pub(super) fn count(&self, bytes: &[u8], list: RecordList) -> u32 {
        Array::of(self.section(bytes, list.sections().0)).count()
    }

    /// Returns the record of this number, and remembers that it was read.
    pub(super) fn record<'a>(
        &self,
        bytes: &'a [u8],
        list: RecordList,
        number: u32,
    ) -> Option<IndexRecord<'a>> {
        let (ends, records) = list.sections();
        let range = Array::of(self.section(bytes, ends)).range(number);
        let record = range.and_then(|range| self.section(bytes, records).get(range));
        let Some(record) = record else {
            // Whoever names a record has read the number in a section that was as it was written.
            self.note_damage();
            return None;
        };
        let read = self.read(bytes, list);
        let word = read.get(number as usize / 64)?;
        let bit = 1 << (number % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            if checksum::opened(RECORD_SEED, record).is_none() {
                self.note_damage();
                return None;
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Some(IndexRecord(record))
    }

    fn read(&self, bytes: &[u8], list: RecordList) -> &[AtomicU64] {
        self.records[list as usize].get_or_init(|| {
            let words = (self.count(bytes, list) as usize).div_ceil(64);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        })
    }

    /// Returns the numbers of the records that were read.
    pub(super) fn records_read(&self, list: RecordList) -> impl Iterator<Item = u32> {
        let words = self.records[list as usize].get().map_or(&[][..], |words| words);
        words.iter().zip((0_u32..).step_by(64)).flat_map(|(word, first)| {
            let word = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| first + bit)
        })
    }
}

/// Gives every part of an image the sum of the bytes that it has: for tests, which change what sums protect.
pub(super) fn reseal(image: &mut [u8]) {
    let Ok(layout) = GvdbTable::open(image).map(GvdbTable::layout) else { return };
    for section in all_sections() {
        if let Some(value) = raw_value(layout, image, section)
            && !has_sums_inside(section)
        {
            set_sum(section.seed(), image, value);
        }
    }
    let sections = Sections::new(layout);
    for list in RecordList::ALL {
        let (ends, records) = list.sections();
        let Some(records) = raw_value(layout, image, records) else { continue };
        let ends: Vec<u8> = sections.section(image, ends).to_vec();
        let ends = Array::of(&ends);
        for range in (0..ends.count()).filter_map(|number| ends.range(number)) {
            let (start, end) = (records.start + range.start, records.start + range.end);
            if end <= records.end {
                set_sum(RECORD_SEED, image, start..end);
            }
        }
    }
}

fn set_sum(seed: u64, image: &mut [u8], part: Range<usize>) {
    let part = image.get_mut(part).unwrap_or_default();
    if let Some((bytes, known)) = part.split_last_chunk_mut::<{ checksum::LEN }>() {
        *known = checksum::sum(seed, bytes).to_le_bytes();
    }
}

fn has_sums_inside(section: Section) -> bool {
    RecordList::ALL.iter().any(|list| list.sections().1 == section)
}

/// Returns where the bytes of a section are, with its sum.
fn raw_value(layout: Layout, bytes: &[u8], section: Section) -> Option<Range<usize>> {
    let value = layout.attach(bytes)?.value(section.name)?.strip_suffix(TYPE)?;
    let start = (value.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    Some(start..start + value.len())
}
