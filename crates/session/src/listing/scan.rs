//! Reading the names of a directory, and giving them out in growing parts.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use store::stream::{Builder, Chunk};
use sys::dir::Directory;

use super::connection::Connection;
use super::entry::{EntryId, Kind};
use super::error::{Failure, Step};
use super::record::{FORMAT, NameRows, NameView, failure};
use super::request::Request;
use crate::clock::Clock;

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
    /// Whether the directory did not tell the type of some.
    pub(super) has_unknown: bool,
}

impl Names {
    /// The record.
    pub(super) fn view(&self) -> Option<NameView<'_>> {
        let record = self.chunk.records().ok()?.next()?;
        NameView::of(record.payload).ok()
    }
}

/// Reads all names and gives each part to the client and to `each`. Returns how many there are.
///
/// # Errors
///
/// The client is gone. What goes wrong with the directory is told to the client.
pub(super) fn scan(
    directory: &Directory,
    request: &Request,
    connection: &Connection,
    clock: &dyn Clock,
    mut each: impl FnMut(Names),
) -> io::Result<u32> {
    let mut buffer = vec![MaybeUninit::uninit(); *BUFFER.end()];
    let (mut size, mut target, mut patience) = (*BUFFER.start(), FIRST, PATIENCE);
    let mut rows = NameRows::default();
    let mut given = 0u32;
    let mut since = clock.monotonic();
    let mut failed = None;
    loop {
        let mut pushed = Ok(());
        let more = directory.read(&mut buffer[..size], |name| {
            if pushed.is_ok() {
                pushed = rows.push(name.name, Kind::from_number(name.kind));
            }
        });
        pushed?;
        size = size.saturating_mul(2).min(*BUFFER.end());
        let more = more.unwrap_or_else(|error| {
            failed = Some((Step::Read, error.raw_os_error().unwrap_or(0)));
            false
        });
        let late = clock.monotonic().saturating_sub(since) >= patience;
        if !rows.is_empty() && (!more || late || rows.len() >= target) {
            let names = give(&mut rows, given, connection)?;
            given += names.count;
            each(names);
            since = clock.monotonic();
            target = target.saturating_mul(2).min(MOST);
            patience = patience.saturating_mul(2).min(Duration::from_millis(100));
        }
        if !more {
            break;
        }
        if given >= request.limits.entries {
            failed = Some((Step::TooLarge, 0));
            break;
        }
    }
    if let Some((step, number)) = failed {
        let mut builder = Builder::new(FORMAT);
        failure(&Failure { path: request.path.clone(), step, number }, &mut builder)?;
        connection.send(&builder)?;
    }
    Ok(given)
}

/// Sends the names and keeps them for ourselves.
fn give(rows: &mut NameRows, first: EntryId, connection: &Connection) -> io::Result<Names> {
    let has_unknown = rows.has_unknown();
    let count = u32::try_from(rows.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut builder = Builder::new(FORMAT);
    rows.write(first, &mut builder)?;
    connection.send(&builder)?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let chunk = Chunk::own(builder.into_bytes(), FORMAT).map_err(invalid)?;
    Ok(Names { first, count, chunk: Arc::new(chunk), has_unknown })
}
