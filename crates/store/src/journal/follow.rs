//! Reads what is appended to a journal, beside its writer: each record once, in memory that does not grow with the file.

use std::io;
use std::path::Path;

use super::format::{self, FRAME_HEADER_LEN, FRAMES_AT, FrameHeader, Header, Unreadable};
use super::{JournalError, unreadable};
use crate::disk::{AppendFile, Disk};

/// So many bytes are read at a time.
const WINDOW: u64 = 64 << 10;
/// How many times as many bytes as the file has are read for checksums in one look; a file that writers left needs one.
const READS: u64 = 4;

/// What a look at a journal finds, in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JournalNews<'a> {
    /// It is another file than at the last look, or was emptied: records come from its first one on, also those that were read before it
    /// was written anew. The number is that of its last reset or restart.
    Begun {
        /// The number.
        base: u64,
    },
    /// A record.
    Record(&'a [u8]),
}

/// How far a journal was read.
#[derive(Debug)]
pub struct JournalFollower {
    /// Longer records are left out.
    most_bytes: usize,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    /// The device and the inode of the file.
    identity: (u64, u64),
    header: Header,
    /// Where the next frame may start.
    at: u64,
    /// The least sequence number of the next frame.
    next: u64,
}

impl JournalFollower {
    /// Begins with the first record of whatever journal is there at the first look. Records of more than `most_bytes` are left out.
    #[must_use]
    pub fn new(most_bytes: usize) -> JournalFollower {
        JournalFollower { most_bytes, place: None }
    }

    /// Returns whether a journal was read.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.place.is_some()
    }

    /// Gives `each` what was appended to the journal at `path` since the last look. A record that is being appended meanwhile is given now
    /// or at a later look. Records behind damage are given, too; those of a journal whose header is lost are not: nobody appends to it.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`], also if there is none; [`JournalError::NotAJournal`] and [`JournalError::UnknownVersion`]. What was
    /// given is not given again.
    pub fn look(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        each: &mut dyn FnMut(JournalNews<'_>),
    ) -> Result<(), JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        let file = disk.open_appended(path).map_err(not_opened)?;
        let about = file.stat().map_err(not_opened)?;
        let start = file.read_start(FRAMES_AT).map_err(not_opened)?;
        let header = format::newest_header(&start)
            .and_then(|newest| newest.ok_or(Unreadable::NotAJournal))
            .map_err(|why| unreadable(path, why))?
            .0;
        let is_same = |place: &Place| {
            (place.identity, place.header) == (about.identity, header) && place.at <= about.len
        };
        if !self.place.as_ref().is_some_and(is_same) {
            let identity = about.identity;
            self.place = Some(Place { identity, header, at: FRAMES_AT, next: 0 });
            each(JournalNews::Begun { base: header.base });
        }
        match &mut self.place {
            Some(place) => place.read(&*file, about.len, self.most_bytes, each).map_err(not_opened),
            None => Ok(()),
        }
    }
}

impl Place {
    /// Gives the records of the frames from here on.
    fn read(
        &mut self,
        file: &dyn AppendFile,
        len: u64,
        most_bytes: usize,
        each: &mut dyn FnMut(JournalNews<'_>),
    ) -> io::Result<()> {
        // A hostile file begins a frame everywhere, each of which says that it takes the rest.
        let mut left = len.saturating_mul(READS);
        let mut from = self.at;
        loop {
            let window = file.read_part(from, WINDOW)?;
            let found = format::find_frame(&window, &self.header, self.next);
            let Some((offset, frame)) = found else {
                if (window.len() as u64) < WINDOW {
                    return Ok(());
                }
                // A header may begin in this window and end behind it.
                from += WINDOW - FRAME_HEADER_LEN.next_multiple_of(8) as u64;
                continue;
            };
            let at = from + offset as u64;
            // Until it is written whole its checksum is wrong: what stands behind it decides whether it ever will be.
            from = at + 8;
            if at + frame.len() > len {
                continue;
            }
            left = match left.checked_sub(frame.len()) {
                Some(left) => left,
                None => return Ok(()),
            };
            if checksum(file, at, &frame)? != Some(frame.crc) {
                continue;
            }
            give_records(file, at, &frame, most_bytes, each)?;
            (self.at, self.next) = (at + frame.len(), frame.sequence.saturating_add(1));
            from = self.at;
        }
    }
}

/// Returns the checksum of a frame; `None` if the file ends in it.
fn checksum(file: &dyn AppendFile, at: u64, frame: &FrameHeader) -> io::Result<Option<u32>> {
    let (mut sum, mut from) = (frame.own_crc, at + FRAME_HEADER_LEN as u64);
    let mut left = u64::from(frame.payload);
    while left > 0 {
        let part = file.read_part(from, left.min(WINDOW))?;
        if part.is_empty() {
            return Ok(None);
        }
        sum = crc32c::crc32c_append(sum, &part);
        (from, left) = (from + part.len() as u64, left.saturating_sub(part.len() as u64));
    }
    Ok(Some(sum))
}

/// Gives the records of a frame whose checksum is right.
fn give_records(
    file: &dyn AppendFile,
    at: u64,
    frame: &FrameHeader,
    most_bytes: usize,
    each: &mut dyn FnMut(JournalNews<'_>),
) -> io::Result<()> {
    let mut at = at + FRAME_HEADER_LEN as u64;
    let end = at + u64::from(frame.payload);
    for _ in 0..frame.records {
        let length = file.read_part(at, 4)?;
        let Ok(length) = <[u8; 4]>::try_from(&*length) else { return Ok(()) };
        let length = u32::from_le_bytes(length);
        at += 4;
        if at + u64::from(length) > end {
            return Ok(());
        }
        if format::usize_of(length.into()) <= most_bytes {
            let record = file.read_part(at, length.into())?;
            // It was cut since.
            if record.len() as u64 != u64::from(length) {
                return Ok(());
            }
            each(JournalNews::Record(&record));
        }
        at += u64::from(length);
    }
    Ok(())
}
