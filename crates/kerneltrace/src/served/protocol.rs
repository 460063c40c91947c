//! The messages between a client of the recorder service and the service.
//!
//! Each message is one packet of a `SOCK_SEQPACKET` socket, of at most [`LONGEST`] bytes: its kind, then its fields in the
//! machine's order. docs/recorder.md has the table. Both ends take nothing for granted: what cannot be read is an error.

pub use super::fields::NotAMessage;
use super::fields::{Fields, Reader};
use super::hang_messages::{FIRST, HangReply, HangRequest};
use crate::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use crate::record::ThreadTotals;
use crate::session::{LossCounters, ThreadState, WatchStart};
use crate::totals::{Total, total, total_bytes};

/// Where the service listens.
pub const SOCKET: &str = "/run/unjank/recorder.sock";

/// The version of the messages, of the records in them and of the totals: both ends must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The longest message, in bytes.
pub const LONGEST: usize = 64 << 10;

/// The most calls that a session can name; a bit for each.
const CALL_BITS: usize = 1024;
/// The most calls that are reported however short they are.
const KEPT: usize = 64;

/// What a client wants a session for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceOrder {
    /// The numbers of the calls that are counted.
    pub calls: Vec<u32>,
    /// The threshold in nanoseconds from which calls are reported individually.
    pub threshold_ns: u64,
    /// Calls that are reported individually however short they are.
    pub kept: Vec<u32>,
    /// Which threads are watched.
    pub threads: WatchedThreads,
    /// Whether slow calls come with a copy of the stack.
    pub stacks: KernelStacks,
    /// Bytes of the ring that the client would like.
    pub ring_bytes: u32,
    /// How soon the client is woken.
    pub wakes: WakeupPolicy,
}

/// Whether a person may be asked for a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AuthorizationPrompt {
    /// Yes, by the agent of the session.
    Allowed,
    /// No: what needs one is refused.
    Unwanted,
}

/// A request of a client. Each has one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// The first: the client's version. [`Reply::Done`] or [`Reply::Refused`].
    Hello {
        /// [`VERSION`] of the client.
        version: String,
        /// Whether a person may be asked.
        prompt: AuthorizationPrompt,
    },
    /// Begins a session of `trace`.
    OpenTrace(TraceOrder),
    /// As [`BpfSession::watch`](crate::session::BpfSession::watch).
    Watch {
        /// The process.
        process: u32,
        /// From when on.
        from: WatchStart,
    },
    /// As [`BpfSession::unwatch`](crate::session::BpfSession::unwatch).
    Unwatch {
        /// The process.
        process: u32,
    },
    /// As [`BpfSession::adopt`](crate::session::BpfSession::adopt).
    Adopt {
        /// The thread.
        thread: u32,
        /// Its process, which is watched.
        process: u32,
        /// The call that it is in.
        number: u32,
        /// The time, and how long the thread has waited for CPUs.
        times: [u64; 2],
    },
    /// The processes that are watched.
    Watched,
    /// The call in which a thread is.
    ThreadState {
        /// The thread.
        thread: u32,
    },
    /// As [`BpfSession::take_totals`](crate::session::BpfSession::take_totals).
    TakeTotals {
        /// The thread.
        thread: u32,
        /// The calls that it has totals of.
        seen: ThreadTotals,
    },
    /// Detaches the programs; what they reported comes before the answer.
    Detach,
    /// All totals.
    Totals,
    /// Failures by call and error.
    Errors,
    /// The counters of losses.
    Losses,
    /// Of a session that records hangs, or to begin one.
    Hangs(HangRequest),
}

/// Why the service does not do it, for programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalKind {
    /// The caller may not use the service.
    NotAllowed,
    /// The process is not one that the caller could trace.
    NotYours,
    /// There are too many sessions, or the caller began too many in a short time.
    TooMany,
    /// The two programs are of different versions.
    OtherVersion,
    /// The kernel did not take the programs.
    Kernel,
    /// The message makes no sense, here or at all.
    Misunderstood,
}

/// A message of the service.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Done.
    Done,
    /// Not done.
    Refused(Refusal),
    /// Not done, because the kernel failed with this error number.
    Failed(i32),
    /// Records: comes by itself, at any time.
    Records(Vec<u8>),
    /// Processes.
    Processes(Vec<u32>),
    /// The state of a thread.
    State(ThreadState),
    /// Some totals, by thread and call; the last message of them says so.
    Totals {
        /// Thread, call and total.
        totals: Vec<(u32, u32, Total)>,
        /// Whether no more follow.
        is_last: bool,
    },
    /// Some failures; the last message of them says so.
    Errors {
        /// Call, error and count.
        errors: Vec<(u32, i32, u64)>,
        /// Whether no more follow.
        is_last: bool,
    },
    /// The counters of losses.
    Losses(LossCounters),
    /// Of a session that records hangs.
    Hangs(HangReply),
}

/// Why the service does not do something.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people: a sentence without its full stop.
    pub text: String,
}

/// The most totals, failures and processes in a message.
pub const TOTALS_AT_ONCE: usize = 80;
/// See [`TOTALS_AT_ONCE`].
pub const ERRORS_AT_ONCE: usize = 4_000;
/// See [`TOTALS_AT_ONCE`].
pub const PROCESSES_AT_ONCE: usize = 16_000;

impl TraceOrder {
    fn write(&self) -> Vec<u8> {
        let mut bits = [0_u8; CALL_BITS / 8];
        for number in &self.calls {
            let byte = usize::try_from(number / 8).ok().and_then(|at| bits.get_mut(at));
            if let Some(byte) = byte {
                *byte |= 1 << (number % 8);
            }
        }
        let mut fields = Fields::new(2)
            .long(self.threshold_ns)
            .word(self.ring_bytes)
            .byte((self.threads == WatchedThreads::First).into())
            .byte((self.stacks == KernelStacks::Copied).into())
            .byte((self.wakes == WakeupPolicy::Each).into())
            .words(&self.kept[..self.kept.len().min(KEPT)]);
        fields.0.extend(bits);
        fields.0
    }

    fn read(reader: &mut Reader<'_>) -> Result<TraceOrder, NotAMessage> {
        let (threshold_ns, ring_bytes) = (reader.long()?, reader.word()?);
        let threads = if reader.flag()? { WatchedThreads::First } else { WatchedThreads::All };
        let stacks = if reader.flag()? { KernelStacks::Copied } else { KernelStacks::LeftOut };
        let wakes = if reader.flag()? { WakeupPolicy::Each } else { WakeupPolicy::Paced };
        let kept = reader.words(KEPT)?;
        let bits = reader.bytes(CALL_BITS / 8)?;
        let numbers = (0_u32..).zip(bits).flat_map(|(at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        });
        let calls = numbers.collect();
        Ok(TraceOrder { calls, threshold_ns, kept, threads, stacks, ring_bytes, wakes })
    }
}

impl Request {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            Request::Hello { version, prompt } => {
                Fields::new(1).byte((*prompt == AuthorizationPrompt::Allowed).into()).text(version)
            }
            Request::OpenTrace(order) => return order.write(),
            Request::Watch { process, from } => {
                Fields::new(3).word(*process).byte((*from == WatchStart::Exec).into())
            }
            Request::Unwatch { process } => Fields::new(4).word(*process),
            Request::Adopt { thread, process, number, times: [now_ns, queued_ns] } => {
                let fields = Fields::new(5).word(*thread).word(*process).word(*number);
                fields.long(*now_ns).long(*queued_ns)
            }
            Request::Watched => Fields::new(6),
            Request::ThreadState { thread } => Fields::new(7).word(*thread),
            Request::TakeTotals { thread, seen } => {
                let fields = Fields::new(8).word(*thread);
                seen.0.iter().fold(fields, |fields, word| fields.long(*word))
            }
            Request::Detach => Fields::new(9),
            Request::Totals => Fields::new(10),
            Request::Errors => Fields::new(11),
            Request::Losses => Fields::new(12),
            Request::Hangs(request) => request.fields(),
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`NotAMessage`].
    pub fn read(bytes: &[u8]) -> Result<Request, NotAMessage> {
        let mut reader = Reader(bytes);
        let request = match reader.byte()? {
            1 => {
                let prompt = match reader.flag()? {
                    true => AuthorizationPrompt::Allowed,
                    false => AuthorizationPrompt::Unwanted,
                };
                Request::Hello { version: reader.text()?, prompt }
            }
            2 => Request::OpenTrace(TraceOrder::read(&mut reader)?),
            3 => {
                let process = reader.word()?;
                let from = if reader.flag()? { WatchStart::Exec } else { WatchStart::Now };
                Request::Watch { process, from }
            }
            4 => Request::Unwatch { process: reader.word()? },
            5 => Request::Adopt {
                thread: reader.word()?,
                process: reader.word()?,
                number: reader.word()?,
                times: [reader.long()?, reader.long()?],
            },
            6 => Request::Watched,
            7 => Request::ThreadState { thread: reader.word()? },
            8 => {
                let thread = reader.word()?;
                let mut seen = ThreadTotals::default();
                for word in &mut seen.0 {
                    *word = reader.long()?;
                }
                Request::TakeTotals { thread, seen }
            }
            9 => Request::Detach,
            10 => Request::Totals,
            11 => Request::Errors,
            12 => Request::Losses,
            kind if kind >= FIRST => Request::Hangs(HangRequest::read(kind, &mut reader)?),
            _ => return Err(NotAMessage),
        };
        reader.end(request)
    }
}

const REFUSALS: [RefusalKind; 6] = [
    RefusalKind::NotAllowed,
    RefusalKind::NotYours,
    RefusalKind::TooMany,
    RefusalKind::OtherVersion,
    RefusalKind::Kernel,
    RefusalKind::Misunderstood,
];

/// The kind of a message of records, which the service puts together by itself.
pub const RECORDS: u8 = 4;

/// Reads the records of a message of [`RECORDS`], each of which has its length before it.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::try_from(Reader(bytes).word().ok()?).ok()?;
        let record = bytes.get(4..)?.get(..length)?;
        bytes = &bytes[4 + length..];
        Some(record)
    })
}

impl Reply {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            Reply::Done => Fields::new(1),
            Reply::Refused(Refusal { kind, text }) => {
                let number = REFUSALS.iter().position(|known| known == kind);
                let number = number.and_then(|number| u8::try_from(number).ok());
                Fields::new(2).byte(number.unwrap_or(u8::MAX)).text(text)
            }
            Reply::Failed(error) => Fields::new(3).word(error.cast_unsigned()),
            Reply::Records(records) => {
                let mut fields = Fields::new(RECORDS);
                fields.0.extend(records);
                fields
            }
            Reply::Processes(processes) => Fields::new(5).words(processes),
            Reply::State(state) => match *state {
                ThreadState::Unknown => Fields::new(6).byte(0),
                ThreadState::Outside => Fields::new(6).byte(1),
                ThreadState::Inside { number, start_ns } => {
                    Fields::new(6).byte(2).word(number).long(start_ns)
                }
            },
            Reply::Totals { totals, is_last } => {
                let count = u32::try_from(totals.len()).unwrap_or(u32::MAX);
                let mut fields = Fields::new(7).byte((*is_last).into()).word(count);
                for (thread, number, total) in totals {
                    fields = fields.word(*thread).word(*number);
                    fields.0.extend(total_bytes(total));
                }
                fields
            }
            Reply::Errors { errors, is_last } => {
                let count = u32::try_from(errors.len()).unwrap_or(u32::MAX);
                let fields = Fields::new(8).byte((*is_last).into()).word(count);
                errors.iter().fold(fields, |fields, (number, error, count)| {
                    fields.word(*number).word(error.cast_unsigned()).long(*count)
                })
            }
            Reply::Losses(losses) => {
                losses.numbers().iter().fold(Fields::new(9), |fields, number| fields.long(*number))
            }
            Reply::Hangs(reply) => reply.fields(),
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`NotAMessage`].
    pub fn read(bytes: &[u8]) -> Result<Reply, NotAMessage> {
        let mut reader = Reader(bytes);
        let reply = match reader.byte()? {
            1 => Reply::Done,
            2 => {
                let kind = REFUSALS.get(usize::from(reader.byte()?)).copied();
                Reply::Refused(Refusal { kind: kind.ok_or(NotAMessage)?, text: reader.text()? })
            }
            3 => Reply::Failed(reader.word()?.cast_signed()),
            RECORDS => {
                let rest = reader.0;
                reader.0 = &[];
                Reply::Records(rest.to_vec())
            }
            5 => Reply::Processes(reader.words(PROCESSES_AT_ONCE)?),
            6 => Reply::State(match reader.byte()? {
                0 => ThreadState::Unknown,
                1 => ThreadState::Outside,
                2 => ThreadState::Inside { number: reader.word()?, start_ns: reader.long()? },
                _ => return Err(NotAMessage),
            }),
            7 => {
                let (is_last, count) = (reader.flag()?, reader.count(TOTALS_AT_ONCE)?);
                let mut totals = Vec::with_capacity(count);
                for _ in 0..count {
                    let (thread, number) = (reader.word()?, reader.word()?);
                    totals.push((thread, number, total(reader.bytes(total_bytes_len())?)));
                }
                Reply::Totals { totals, is_last }
            }
            8 => {
                let (is_last, count) = (reader.flag()?, reader.count(ERRORS_AT_ONCE)?);
                let mut errors = Vec::with_capacity(count);
                for _ in 0..count {
                    let (number, error) = (reader.word()?, reader.word()?.cast_signed());
                    errors.push((number, error, reader.long()?));
                }
                Reply::Errors { errors, is_last }
            }
            9 => {
                let mut numbers = [0; LossCounters::COUNT];
                for number in &mut numbers {
                    *number = reader.long()?;
                }
                Reply::Losses(LossCounters::from_numbers(numbers))
            }
            kind if kind >= FIRST => Reply::Hangs(HangReply::read(kind, &mut reader)?),
            _ => return Err(NotAMessage),
        };
        reader.end(reply)
    }
}

fn total_bytes_len() -> usize {
    usize::try_from(crate::layout::total::SIZE).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sys::perf::{CopiedStack, SamplerEvent};

    use super::*;

    fn requests() -> Vec<Request> {
        let order = TraceOrder {
            calls: vec![0, 7, 8, 511, 1023],
            threshold_ns: 100_000,
            kept: vec![74, 75],
            threads: WatchedThreads::First,
            stacks: KernelStacks::Copied,
            ring_bytes: 1 << 20,
            wakes: WakeupPolicy::Each,
        };
        vec![
            Request::Hello { version: VERSION.to_owned(), prompt: AuthorizationPrompt::Allowed },
            Request::OpenTrace(order),
            Request::Watch { process: 4711, from: WatchStart::Exec },
            Request::Unwatch { process: u32::MAX },
            Request::Adopt { thread: 1, process: 2, number: 3, times: [u64::MAX, 5] },
            Request::Watched,
            Request::ThreadState { thread: 9 },
            Request::TakeTotals { thread: 9, seen: ThreadTotals([3; 16]) },
            Request::Detach,
            Request::Totals,
            Request::Errors,
            Request::Losses,
            Request::Hangs(HangRequest::Open),
            Request::Hangs(HangRequest::Mark { process: 4711, wait: None }),
            Request::Hangs(HangRequest::Mark { process: 4711, wait: Some([u64::MAX, 3, 4]) }),
            Request::Hangs(HangRequest::Unmark { process: 1 }),
            Request::Hangs(HangRequest::Classify { process: 1, wait: [9, 8, 7], is_loop: true }),
            Request::Hangs(HangRequest::State { process: u32::MAX }),
            Request::Hangs(HangRequest::Lost),
            Request::Hangs(HangRequest::Follow { is_on: true }),
            Request::Hangs(HangRequest::Waits),
            Request::Hangs(HangRequest::FollowOperations { is_on: true }),
            Request::Hangs(HangRequest::Operations),
        ]
        .into_iter()
        .chain(events())
        .collect()
    }

    fn events() -> impl Iterator<Item = Request> {
        let copied = [CopiedStack::Nothing, CopiedStack::Callers, CopiedStack::Whole];
        let breakpoints = copied.map(|copied| SamplerEvent::Execution(0x7fff_0000, copied));
        let period = Duration::from_millis(7);
        let others =
            [SamplerEvent::Clock(period), SamplerEvent::Fault, SamplerEvent::FaultWithStack];
        let all = breakpoints.into_iter().chain(others);
        all.map(|event| Request::Hangs(HangRequest::Event { process: 9, event }))
    }

    fn replies() -> Vec<Reply> {
        let mut sum =
            Total { count: 3, errors: 1, wall_ns: 900, longest_ns: 400, ..Total::default() };
        sum.cpu_ns = Some(12);
        sum.histogram.add_many(7, 3);
        vec![
            Reply::Done,
            Reply::Refused(Refusal { kind: RefusalKind::TooMany, text: "it is ö".to_owned() }),
            Reply::Failed(-1),
            Reply::Records(vec![1, 2, 3]),
            Reply::Processes(vec![1, 2]),
            Reply::State(ThreadState::Unknown),
            Reply::State(ThreadState::Inside { number: 7, start_ns: 1 << 60 }),
            Reply::Totals { totals: vec![(1, 2, sum); TOTALS_AT_ONCE], is_last: true },
            Reply::Errors { errors: vec![(1, -2, 3); ERRORS_AT_ONCE], is_last: false },
            Reply::Losses(LossCounters { lost_calls: 1, ..LossCounters::default() }),
            Reply::Hangs(HangReply::State(None)),
            Reply::Hangs(HangReply::State(Some(vec![7; 288]))),
            Reply::Hangs(HangReply::Lost(u64::MAX)),
            Reply::Hangs(HangReply::Event),
            Reply::Hangs(HangReply::Waits { records: vec![3; 48 << 10], lost: 4, is_last: true }),
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written_and_fits() {
        for request in requests() {
            let bytes = request.write();
            assert!(bytes.len() <= LONGEST, "{request:?}");
            assert_eq!(Request::read(&bytes), Ok(request));
        }
        for reply in replies() {
            let bytes = reply.write();
            assert!(bytes.len() <= LONGEST, "{} bytes", bytes.len());
            assert_eq!(Reply::read(&bytes), Ok(reply));
        }
        assert!(Reply::Processes(vec![7; PROCESSES_AT_ONCE]).write().len() <= LONGEST);
    }

    #[test]
    fn a_message_that_is_cut_or_has_more_than_it_needs_is_none() {
        for bytes in requests().iter().map(Request::write) {
            for end in 0..bytes.len() {
                assert_eq!(Request::read(&bytes[..end]), Err(NotAMessage), "{bytes:?} to {end}");
            }
            assert_eq!(Request::read(&[&bytes[..], &[0]].concat()), Err(NotAMessage));
        }
        for bytes in replies().iter().map(Reply::write).filter(|bytes| bytes[0] != RECORDS) {
            for end in (0..bytes.len()).step_by(bytes.len().div_ceil(64)) {
                assert_eq!(Reply::read(&bytes[..end]), Err(NotAMessage));
            }
            assert_eq!(Reply::read(&[&bytes[..], &[0]].concat()), Err(NotAMessage));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_a_fault(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = (Request::read(&bytes), Reply::read(&bytes));
            proptest::prop_assert!(records(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn records_end_where_a_length_is_wrong() {
        let bytes = [&2_u32.to_ne_bytes()[..], b"ab", &9_u32.to_ne_bytes(), b"short"].concat();
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [b"ab"]);
    }
}
