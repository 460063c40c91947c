//! Reading the names of a directory, and giving them out in growing parts.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use store::stream::{Chunk, StreamBuilder};
use sys::dir::OpenDirectory;

use super::connection::Connection;
use super::entry::{Attributes, EntryId, EntryKind};
use super::error::{Failure, ListingStep};
use super::fields::AttributeSet;
use super::record::{AttributeRows, FORMAT, NameRows, NameView, failure};
use super::request::ListingRequest;
use super::unique_names::{Name, Repeats};
use sys::clock::Clock;

/// The first call asks for about a screenful; each later one for twice as much, up to the last of these.
const BUFFER: std::ops::RangeInclusive<usize> = 2 << 10..=512 << 10;
/// Names are given out when there are this many …
const FIRST: usize = 64;
/// … or after this time, whichever comes first; both double from part to part.
const PATIENCE: Duration = Duration::from_millis(2);
/// No part has more names.
const MOST: usize = 1 << 16;

/// Names that were given out, for those who read attributes.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) first: EntryId,
    pub(super) count: u32,
    chunk: Arc<Chunk>,
    /// The inodes as the directory has them: not sent, but the order in which a slow disk is best read.
    inodes: Vec<u64>,
    /// Whether the directory did not tell the type of some.
    pub(super) has_unknown: bool,
}

impl Names {
    /// The number of the inode of a row, as the directory has it.
    pub(super) fn inode(&self, row: u32) -> u64 {
        self.inodes.get(index(row)).copied().unwrap_or(0)
    }

    /// The record.
    pub(super) fn view(&self) -> Option<NameView<'_>> {
        let record = self.chunk.records().ok()?.next()?;
        NameView::of(record.payload).ok()
    }
}

/// Names that came again, and none that was new, before a directory is said to repeat itself.
const REPEATED: usize = 100_000;

/// What reads the names.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) directory: &'a OpenDirectory,
    pub(super) request: &'a ListingRequest,
    pub(super) connection: &'a Connection,
    pub(super) clock: &'a dyn Clock,
}

impl Scan<'_> {
    /// Reads all names and gives each part to the client and to `each`. Returns how many there are.
    ///
    /// # Errors
    ///
    /// The client is gone. What goes wrong with the directory is told to the client.
    pub(super) fn run(&self, mut each: impl FnMut(Arc<Names>)) -> io::Result<u32> {
        let mut buffer = vec![MaybeUninit::uninit(); *BUFFER.end()];
        let (mut size, mut target, mut patience) = (*BUFFER.start(), FIRST, PATIENCE);
        let mut repeats = Repeats::of(self.directory, self.clock.now());
        let mut repeated = 0;
        let mut rows = NameRows::default();
        let mut inodes = Vec::new();
        let mut given: Vec<Arc<Names>> = Vec::new();
        let mut total = 0u32;
        let mut since = self.clock.monotonic();
        let failed = loop {
            let before = rows.len();
            let mut pushed = Ok(());
            let read = self.directory.read(&mut buffer[..size], |name| {
                if pushed.is_ok() {
                    pushed = rows.push(name.name, EntryKind::from_number(name.kind));
                    inodes.push(name.inode);
                }
            });
            pushed?;
            size = size.saturating_mul(2).min(*BUFFER.end());
            if repeats.begin(self.directory) {
                remember(&mut repeats, &given, &rows, before, total);
            }
            if repeats.is_watching() {
                let again =
                    self.without_repeats(&mut repeats, &mut rows, &mut inodes, before, total)?;
                repeated = if rows.len() > before { 0 } else { repeated + again };
            }
            // Whoever asked takes no more names than it allows: one more, and this would be no lister to be trusted.
            let room = index(self.request.limits.entries.saturating_sub(total));
            let is_cut = rows.len() > room;
            if is_cut {
                rows.retain_from(room, |_, _, _| false);
                inodes.truncate(room);
            }
            let more = matches!(read, Ok(true)) && !is_cut;
            let late = self.clock.monotonic().saturating_sub(since) >= patience;
            if !rows.is_empty() && (!more || late || rows.len() >= target) {
                let inodes = std::mem::take(&mut inodes);
                let names = Arc::new(give(&mut rows, inodes, total, self.connection)?);
                total += names.count;
                given.push(Arc::clone(&names));
                each(names);
                since = self.clock.monotonic();
                target = target.saturating_mul(2).min(MOST);
                patience = patience.saturating_mul(2).min(Duration::from_millis(100));
            }
            match read {
                _ if is_cut => break Some((ListingStep::TooLarge, 0)),
                Ok(true) if repeated > REPEATED.max(2 * index(total)) => {
                    break Some((ListingStep::Repeats, 0));
                }
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some((ListingStep::Read, error.raw_os_error().unwrap_or(0))),
            }
        };
        if let Some((step, number)) = failed {
            let mut builder = StreamBuilder::new(FORMAT);
            failure(&Failure { path: self.request.path.clone(), step, number }, &mut builder)?;
            self.connection.send(&builder)?;
        }
        Ok(total)
    }

    /// Leaves out of the names from `before` on what came earlier; returns how many did.
    fn without_repeats(
        &self,
        repeats: &mut Repeats,
        rows: &mut NameRows,
        inodes: &mut Vec<u64>,
        before: usize,
        total: u32,
    ) -> io::Result<usize> {
        let mut kinds = AttributeRows::new(AttributeSet::KIND);
        let mut again = 0;
        let mut kept = inodes.split_off(before.min(inodes.len())).into_iter();
        rows.retain_from(before, |name, kind, index| {
            let id = total.saturating_add(u32::try_from(index).unwrap_or(u32::MAX));
            let came = repeats.add(name, kind, id);
            again += usize::from(came != Name::New);
            if let Name::OtherKind(id) = came {
                // A name that was not given out yet is looked at later anyway, or keeps the first type.
                if id < total {
                    kinds.push(id, &Attributes { kind, ..Attributes::default() });
                }
            }
            inodes.extend(kept.next().filter(|_| came == Name::New));
            came == Name::New
        });
        if !kinds.is_empty() {
            let mut builder = StreamBuilder::new(FORMAT);
            kinds.write(&mut builder)?;
            self.connection.send(&builder)?;
        }
        Ok(again)
    }
}

/// Remembers the names that came while nothing had changed.
fn remember(
    repeats: &mut Repeats,
    given: &[Arc<Names>],
    rows: &NameRows,
    before: usize,
    total: u32,
) {
    for names in given {
        let Some(view) = names.view() else { continue };
        for (index, id) in (0..view.len()).zip(names.first..) {
            repeats.add(view.name(index), EntryKind::from_number(view.kinds[index]), id);
        }
    }
    for (index, id) in (0..before).zip(total..) {
        if let Some((name, kind)) = rows.get(index) {
            repeats.add(name, kind, id);
        }
    }
}

fn index(id: EntryId) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// Sends the names and keeps them for ourselves, with their inodes if they are known.
pub(super) fn give(
    rows: &mut NameRows,
    inodes: Vec<u64>,
    first: EntryId,
    connection: &Connection,
) -> io::Result<Names> {
    let has_unknown = rows.has_unknown();
    let count = u32::try_from(rows.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut builder = StreamBuilder::new(FORMAT);
    rows.write(first, &mut builder)?;
    connection.send(&builder)?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let chunk = Chunk::own(builder.into_bytes(), FORMAT).map_err(invalid)?;
    Ok(Names { first, count, chunk: Arc::new(chunk), inodes, has_unknown })
}
