//! Takes what a recorder has and writes it into a file or a pipe, which may be full or blocked for as long as it likes.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pace::yield_to_others;
use super::{Next, Recorder};
use crate::bus::capture::{Encoder, Event, Format, Unwritable};

/// Messages from this length on are not copied.
const LONG: usize = 1024;
/// The most pieces that are written at once, as the kernel has it.
const PIECES: usize = 1024;
/// How often a full disk is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a pipe that nobody reads is waited for when the recording is to end.
const GRACE: Duration = Duration::from_secs(1);
/// Without end, as far as anybody can tell.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Where a record goes.
#[derive(Debug)]
pub struct Output {
    file: File,
    format: Format,
    kind: Kind,
    encoder: Encoder,
    /// What is not written yet, but for long messages, which are written from where they lie.
    out: Vec<u8>,
    /// Where each event ends, long messages included, and how many messages there are by then.
    ends: Vec<(usize, u64)>,
    /// How many bytes the file has.
    length: u64,
    messages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It can be cut where a write stopped midway.
    File,
    /// It can be waited for.
    Pipe,
}

/// When a recording ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// How many bytes the file may have.
    pub size: Option<u64>,
}

/// How a recording ended, and what is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Messages that are in the file.
    pub messages: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why no more came.
    pub why: Why,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked for it, or all buses ended.
    Over,
    /// The file is as long as it may be.
    Size,
    /// Nobody reads the pipe any more.
    Closed,
}

/// Why a record is not whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// It was full or blocked when the recording was to end; what is in the file is whole up to there.
    #[error("cannot write the last messages")]
    Unfinished {
        /// How many messages are in the file.
        messages: u64,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot be written; what is in the file may end within a message.
    #[error("cannot write the record")]
    Failed(#[source] io::Error),
    /// The format has no place for it.
    #[error("cannot write the record")]
    Unwritable(#[from] Unwritable),
}

/// Whether to go on.
enum Go {
    On,
    Closed,
}

impl Output {
    /// Writes into `file`, from where it is.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn new(file: File, format: Format) -> io::Result<Output> {
        let is_file = file.metadata()?.is_file();
        Ok(Output {
            file,
            format,
            kind: if is_file { Kind::File } else { Kind::Pipe },
            encoder: Encoder::new(format),
            out: Vec::new(),
            ends: Vec::new(),
            length: 0,
            messages: 0,
        })
    }

    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Takes an event; a long message is left where it is and `long` says where it belongs.
    fn add<'b>(
        &mut self,
        event: &Event<'b>,
        long: &mut Vec<(usize, &'b [u8])>,
    ) -> Result<(), Unwritable> {
        let before = self.out.len();
        let mut elsewhere = 0;
        match event {
            Event::Message(message) if message.bytes.len() >= LONG => {
                let place = self.encoder.around(&mut self.out, message)?;
                long.push((place, message.bytes));
                elsewhere = message.bytes.len();
            }
            event => self.encoder.event(&mut self.out, event)?,
        }
        let length = self.out.len() - before + elsewhere;
        if matches!(event, Event::Message(_)) {
            self.messages += 1;
        }
        self.ends.push((self.gathered() + length, self.messages));
        Ok(())
    }

    /// Returns how many bytes were gathered by the last event.
    fn gathered(&self) -> usize {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    /// Returns how long the file will be when all is written.
    fn planned(&self) -> u64 {
        self.length.saturating_add(u64::try_from(self.gathered()).unwrap_or(u64::MAX))
    }

    /// Writes what was gathered.
    fn flush(&mut self, long: &[(usize, &[u8])], recorder: &Recorder) -> Result<Go, WriteError> {
        let mut slices = Vec::with_capacity(2 * long.len() + 1);
        let mut from = 0;
        for (place, bytes) in long {
            slices.push(IoSlice::new(&self.out[from..*place]));
            slices.push(IoSlice::new(bytes));
            from = *place;
        }
        slices.push(IoSlice::new(&self.out[from..]));
        let mut rest = &mut slices[..];
        let mut at = 0;
        while at < self.gathered() {
            let pieces = rest.len().min(PIECES);
            let error = match rustix::io::writev(&self.file, &rest[..pieces]) {
                Ok(count) => {
                    at += count;
                    self.length += u64::try_from(count).unwrap_or(0);
                    IoSlice::advance_slices(&mut rest, count);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::PIPE) => return Ok(Go::Closed),
                Err(error) => error,
            };
            let again = match error {
                Errno::NOSPC | Errno::DQUOT => !recorder.stopped_within(AGAIN),
                Errno::AGAIN => self.wait(recorder),
                _ => return Err(WriteError::Failed(error.into())),
            };
            if !again {
                drop(slices);
                return Err(self.give_up(at, error));
            }
        }
        drop(slices);
        self.out.clear();
        self.ends.clear();
        Ok(Go::On)
    }

    /// Waits until the pipe takes more; says whether to go on.
    fn wait(&self, recorder: &Recorder) -> bool {
        let stop = recorder.stop.as_fd();
        let mut polled = [
            PollFd::new(&self.file, PollFlags::OUT),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        // A signal ends the wait early, which is no more than that.
        let _ = poll(&mut polled, None);
        if !polled[0].revents().is_empty() || polled[1].revents().is_empty() {
            return true;
        }
        let grace = Timespec { tv_sec: i64::try_from(GRACE.as_secs()).unwrap_or(1), tv_nsec: 0 };
        let mut last = [PollFd::new(&self.file, PollFlags::OUT)];
        poll(&mut last, Some(&grace)).is_ok_and(|ready| ready > 0)
    }

    /// Leaves a file that ends with a whole event, of which `at` bytes of what was gathered are written.
    fn give_up(&mut self, at: usize, error: Errno) -> WriteError {
        let whole = self.ends.partition_point(|(end, _)| *end <= at);
        let before = self.messages.saturating_sub(u64::try_from(self.ends.len()).unwrap_or(0));
        let (end, messages) = match whole.checked_sub(1) {
            Some(last) => self.ends[last],
            None => (0, before),
        };
        if self.kind == Kind::File {
            let cut = u64::try_from(at - end).unwrap_or(0);
            // What cannot be cut is found by readers as what it is.
            let _ = self.file.set_len(self.length.saturating_sub(cut));
        }
        WriteError::Unfinished { messages, source: error.into() }
    }

    fn ended(&self, why: Why) -> Ended {
        Ended { messages: self.messages, bytes: self.length, why }
    }
}

/// Writes what `recorder` has until it is over, or a limit is reached. The calling thread yields to others from then on.
///
/// # Errors
///
/// [`WriteError`]; a full disk is none, it is waited for until the recording is to end.
pub fn write(
    recorder: &Recorder,
    mut output: Output,
    limits: &Limits,
) -> Result<Ended, WriteError> {
    yield_to_others();
    let most = limits.size.unwrap_or(u64::MAX);
    output.encoder.begin(&mut output.out);
    output.ends.push((output.out.len(), 0));
    loop {
        let batch = match recorder.next(FOR_EVER) {
            Next::Batch(batch) => batch,
            Next::Quiet => continue,
            Next::Over => break,
        };
        let mut long = Vec::new();
        let mut why = None;
        for event in batch.events() {
            let before = (output.out.len(), long.len(), output.messages);
            output.add(&event, &mut long)?;
            if output.planned() > most {
                output.out.truncate(before.0);
                output.ends.pop();
                long.truncate(before.1);
                output.messages = before.2;
                why = Some(Why::Size);
                break;
            }
        }
        if let Go::Closed = output.flush(&long, recorder)? {
            why = Some(Why::Closed);
        }
        if let Some(why) = why {
            recorder.stop();
            return Ok(output.ended(why));
        }
    }
    let why = match output.flush(&[], recorder)? {
        Go::On => Why::Over,
        Go::Closed => Why::Closed,
    };
    Ok(output.ended(why))
}
