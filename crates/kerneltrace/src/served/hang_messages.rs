//! The messages of a session that records hangs: kinds from 64 on.
//!
//! The service knows no more of a hang than these: which thread is marked, and what the waits at a place are. Crate `hangs`
//! has the programs, and reads their reports and what they keep.

use std::time::Duration;

use sys::perf::{CopiedStack, SamplerEvent};

use super::fields::{Fields, NotAMessage, Reader};

/// The first kind of these messages.
pub(super) const FIRST: u8 = 64;

/// The most bytes of records about waits in a message.
pub const WAITS_AT_ONCE: usize = 48 << 10;

/// The most bytes that the programs keep of a thread.
const STATE: usize = 4096;

/// A request of a client that records hangs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HangRequest {
    /// Begins a session.
    Open,
    /// Marks the first thread of a process.
    Mark {
        /// The process.
        process: u32,
        /// The stack pointer, the instruction and the subject of the wait for events that it is in, if it is in one; in place of
        /// the subject stands `u64::MAX - 2` where it is away from the wait of its main loop, which it makes there.
        wait: Option<[u64; 3]>,
    },
    /// Ends a mark.
    Unmark {
        /// The process.
        process: u32,
    },
    /// Says what a wait of a marked process is.
    Classify {
        /// The process.
        process: u32,
        /// The stack pointer, the instruction and the subject of the wait.
        wait: [u64; 3],
        /// Whether it is that of its main loop.
        is_loop: bool,
    },
    /// What is kept of a marked process. Reports that were made before come before the answer.
    State {
        /// The process.
        process: u32,
    },
    /// How many reports were lost.
    Lost,
    /// Records who wakes whom from now on, or does not any more.
    Follow {
        /// Whether it is to be recorded.
        is_on: bool,
    },
    /// The waits that were recorded since the last time.
    Waits,
    /// Opens an event of the first thread of a marked process. Its descriptor comes with the answer.
    Event {
        /// The process.
        process: u32,
        /// The event.
        event: SamplerEvent,
    },
    /// Records operations of `io_uring` of marked processes from now on, or does not any more.
    FollowOperations {
        /// Whether they are to be recorded.
        is_on: bool,
    },
    /// The operations that were recorded since the last time.
    Operations,
}

/// An answer to one of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HangReply {
    /// What the programs keep of the process, as they wrote it; none if it is not marked.
    State(Option<Vec<u8>>),
    /// How many reports were lost.
    Lost(u64),
    /// Some waits or operations; the last message of them says so.
    Waits {
        /// Records, each with its length before it.
        records: Vec<u8>,
        /// How many were lost until now.
        lost: u64,
        /// Whether no more follow.
        is_last: bool,
    },
    /// An event was opened: this message brings its descriptor.
    Event,
}

fn longs(fields: Fields, longs: [u64; 3]) -> Fields {
    longs.into_iter().fold(fields, Fields::long)
}

/// Returns the kind of an event, and its period in nanoseconds or its address.
fn event_fields(event: SamplerEvent) -> (u8, u64) {
    match event {
        SamplerEvent::Clock(period) => (0, u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)),
        SamplerEvent::Fault => (1, 0),
        SamplerEvent::FaultWithStack => (2, 0),
        SamplerEvent::Execution(address, CopiedStack::Nothing) => (3, address),
        SamplerEvent::Execution(address, CopiedStack::Callers) => (4, address),
        SamplerEvent::Execution(address, CopiedStack::Whole) => (5, address),
    }
}

fn read_event(kind: u8, number: u64) -> Result<SamplerEvent, NotAMessage> {
    Ok(match kind {
        0 => SamplerEvent::Clock(Duration::from_nanos(number)),
        1 => SamplerEvent::Fault,
        2 => SamplerEvent::FaultWithStack,
        3 => SamplerEvent::Execution(number, CopiedStack::Nothing),
        4 => SamplerEvent::Execution(number, CopiedStack::Callers),
        5 => SamplerEvent::Execution(number, CopiedStack::Whole),
        _ => return Err(NotAMessage),
    })
}

impl HangRequest {
    pub(super) fn fields(self) -> Fields {
        match self {
            HangRequest::Open => Fields::new(FIRST),
            HangRequest::Mark { process, wait } => {
                let fields = Fields::new(FIRST + 1).word(process).byte(wait.is_some().into());
                longs(fields, wait.unwrap_or_default())
            }
            HangRequest::Unmark { process } => Fields::new(FIRST + 2).word(process),
            HangRequest::Classify { process, wait, is_loop } => {
                longs(Fields::new(FIRST + 3).word(process), wait).byte(is_loop.into())
            }
            HangRequest::State { process } => Fields::new(FIRST + 4).word(process),
            HangRequest::Lost => Fields::new(FIRST + 5),
            HangRequest::Follow { is_on } => Fields::new(FIRST + 6).byte(is_on.into()),
            HangRequest::Waits => Fields::new(FIRST + 7),
            HangRequest::Event { process, event } => {
                let (kind, number) = event_fields(event);
                Fields::new(FIRST + 8).word(process).byte(kind).long(number)
            }
            HangRequest::FollowOperations { is_on } => Fields::new(FIRST + 9).byte(is_on.into()),
            HangRequest::Operations => Fields::new(FIRST + 10),
        }
    }

    pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Result<HangRequest, NotAMessage> {
        Ok(match kind - FIRST {
            0 => HangRequest::Open,
            1 => {
                let (process, is_waiting) = (reader.word()?, reader.flag()?);
                let wait = [reader.long()?, reader.long()?, reader.long()?];
                HangRequest::Mark { process, wait: is_waiting.then_some(wait) }
            }
            2 => HangRequest::Unmark { process: reader.word()? },
            3 => HangRequest::Classify {
                process: reader.word()?,
                wait: [reader.long()?, reader.long()?, reader.long()?],
                is_loop: reader.flag()?,
            },
            4 => HangRequest::State { process: reader.word()? },
            5 => HangRequest::Lost,
            6 => HangRequest::Follow { is_on: reader.flag()? },
            7 => HangRequest::Waits,
            8 => HangRequest::Event {
                process: reader.word()?,
                event: read_event(reader.byte()?, reader.long()?)?,
            },
            9 => HangRequest::FollowOperations { is_on: reader.flag()? },
            10 => HangRequest::Operations,
            _ => return Err(NotAMessage),
        })
    }
}

impl HangReply {
    pub(super) fn fields(&self) -> Fields {
        match self {
            HangReply::State(state) => {
                let bytes = state.as_deref().unwrap_or_default();
                let bytes = bytes.get(..STATE).unwrap_or(bytes);
                let length = u32::try_from(bytes.len()).unwrap_or(0);
                let mut fields = Fields::new(FIRST).byte(state.is_some().into()).word(length);
                fields.0.extend(bytes);
                fields
            }
            HangReply::Lost(lost) => Fields::new(FIRST + 1).long(*lost),
            HangReply::Waits { records, lost, is_last } => {
                let records = records.get(..WAITS_AT_ONCE).unwrap_or(records);
                let length = u32::try_from(records.len()).unwrap_or(0);
                let fields = Fields::new(FIRST + 2).byte((*is_last).into()).long(*lost);
                let mut fields = fields.word(length);
                fields.0.extend(records);
                fields
            }
            HangReply::Event => Fields::new(FIRST + 3),
        }
    }

    pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Result<HangReply, NotAMessage> {
        Ok(match kind - FIRST {
            0 => {
                let (is_marked, length) = (reader.flag()?, reader.count(STATE)?);
                let bytes = reader.bytes(length)?.to_vec();
                HangReply::State(is_marked.then_some(bytes))
            }
            1 => HangReply::Lost(reader.long()?),
            2 => {
                let (is_last, lost) = (reader.flag()?, reader.long()?);
                let length = reader.count(WAITS_AT_ONCE)?;
                HangReply::Waits { records: reader.bytes(length)?.to_vec(), lost, is_last }
            }
            3 => HangReply::Event,
            _ => return Err(NotAMessage),
        })
    }
}
