//! Writes the events of a recorder into a file or a pipe, which may be full or blocked for any time.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::scheduling::yield_to_others;
use super::{BusRecorder, NextRecord};
use crate::capture::{CaptureEvent, EncodeError, Encoder, RecordFormat};

/// The length from which on messages are not copied.
const LONG: usize = 1024;
/// The most pieces of one write: the kernel's `IOV_MAX`.
const PIECES: usize = 1024;
/// The interval between two attempts to write to a full disk.
const AGAIN: Duration = Duration::from_millis(200);
/// At the end of the recording: how long the writer waits for a pipe that nobody reads.
const GRACE: Duration = Duration::from_secs(1);
/// A time limit that never passes.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// The output of a recording.
#[derive(Debug)]
pub struct Output {
    file: File,
    format: RecordFormat,
    kind: CaptureFormat,
    encoder: Encoder,
    /// Bytes that are not written yet, apart from long messages, which are written from their chunks.
    out: Vec<u8>,
    /// The end of each event, long messages included, and the number of messages up to it.
    ends: Vec<(usize, u64)>,
    /// The length of the file, in bytes.
    length: u64,
    messages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureFormat {
    /// A file, which can be truncated after an incomplete write.
    File,
    /// A pipe, for which the writer can wait.
    Pipe,
}

/// The limits at which a recording ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordingLimits {
    /// The greatest length of the file, in bytes.
    pub size: Option<u64>,
}

/// How a recording ended, and what is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Messages that are in the file.
    pub messages: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why it ended.
    pub why: Why,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The user ended it, or all buses ended.
    Over,
    /// The file has reached its greatest length.
    Size,
    /// The reader of the pipe has ended.
    Closed,
}

/// Why a recording is not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordWriteError {
    /// The output was full or blocked at the end of the recording; the file is complete up to there.
    #[error("cannot write the last messages")]
    Unfinished {
        /// How many messages are in the file.
        messages: u64,
        /// The error of the system call.
        source: io::Error,
    },
    /// The output cannot be written; the file may end within a message.
    #[error("cannot write the recording")]
    Failed(#[source] io::Error),
    /// The format cannot represent an event.
    #[error("cannot write the recording")]
    EncodeError(#[from] EncodeError),
}

/// Whether writing continues.
enum Go {
    On,
    Closed,
}

impl Output {
    /// Writes into `file` from its present position.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn new(file: File, format: RecordFormat) -> io::Result<Output> {
        let is_file = file.metadata()?.is_file();
        Ok(Output {
            file,
            format,
            kind: if is_file { CaptureFormat::File } else { CaptureFormat::Pipe },
            encoder: Encoder::new(format),
            out: Vec::new(),
            ends: Vec::new(),
            length: 0,
            messages: 0,
        })
    }

    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> RecordFormat {
        self.format
    }

    /// Encodes an event. A long message is not copied; `long` says where it belongs.
    fn add<'b>(
        &mut self,
        event: &CaptureEvent<'b>,
        long: &mut Vec<(usize, &'b [u8])>,
    ) -> Result<(), EncodeError> {
        let before = self.out.len();
        let mut elsewhere = 0;
        match event {
            CaptureEvent::Message(message) if message.bytes.len() >= LONG => {
                let place = self.encoder.around(&mut self.out, message)?;
                long.push((place, message.bytes));
                elsewhere = message.bytes.len();
            }
            event => self.encoder.event(&mut self.out, event)?,
        }
        let length = self.out.len() - before + elsewhere;
        if matches!(event, CaptureEvent::Message(_)) {
            self.messages += 1;
        }
        self.ends.push((self.gathered() + length, self.messages));
        Ok(())
    }

    /// Returns the length of the bytes up to the last event.
    fn gathered(&self) -> usize {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    /// Returns the length of the file when everything is written.
    fn planned(&self) -> u64 {
        self.length.saturating_add(u64::try_from(self.gathered()).unwrap_or(u64::MAX))
    }

    /// Writes the encoded events.
    fn flush(
        &mut self,
        long: &[(usize, &[u8])],
        recorder: &BusRecorder,
    ) -> Result<Go, RecordWriteError> {
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
                _ => return Err(RecordWriteError::Failed(error.into())),
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

    /// Waits until the pipe takes more bytes; returns whether to continue.
    fn wait(&self, recorder: &BusRecorder) -> bool {
        let stop = recorder.stop.as_fd();
        let mut polled = [
            PollFd::new(&self.file, PollFlags::OUT),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut polled, None);
        if !polled[0].revents().is_empty() || polled[1].revents().is_empty() {
            return true;
        }
        let grace = Timespec { tv_sec: i64::try_from(GRACE.as_secs()).unwrap_or(1), tv_nsec: 0 };
        let mut last = [PollFd::new(&self.file, PollFlags::OUT)];
        poll(&mut last, Some(&grace)).is_ok_and(|ready| ready > 0)
    }

    /// Truncates the file after the last complete event; `at` bytes of the encoded events are written.
    fn give_up(&mut self, at: usize, error: Errno) -> RecordWriteError {
        let whole = self.ends.partition_point(|(end, _)| *end <= at);
        let before = self.messages.saturating_sub(u64::try_from(self.ends.len()).unwrap_or(0));
        let (end, messages) = match whole.checked_sub(1) {
            Some(last) => self.ends[last],
            None => (0, before),
        };
        if self.kind == CaptureFormat::File {
            let cut = u64::try_from(at - end).unwrap_or(0);
            // If that fails, readers notice the incomplete event.
            let _ = self.file.set_len(self.length.saturating_sub(cut));
        }
        RecordWriteError::Unfinished { messages, source: error.into() }
    }

    fn ended(&self, why: Why) -> RecordingSummary {
        RecordingSummary { messages: self.messages, bytes: self.length, why }
    }
}

/// Writes the events of `recorder` until it ends or a limit is reached. The calling thread gets a lower priority.
///
/// # Errors
///
/// [`RecordWriteError`]. A full disk is no error: the writer waits for it until the end of the recording.
pub fn write(
    recorder: &BusRecorder,
    mut output: Output,
    limits: &RecordingLimits,
) -> Result<RecordingSummary, RecordWriteError> {
    yield_to_others();
    let most = limits.size.unwrap_or(u64::MAX);
    output.encoder.begin(&mut output.out);
    output.ends.push((output.out.len(), 0));
    loop {
        let batch = match recorder.next(FOR_EVER) {
            NextRecord::Batch(batch) => batch,
            NextRecord::Quiet => continue,
            NextRecord::Over => break,
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
