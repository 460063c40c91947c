//! What the programs in the kernel report, and what they keep of each marked thread.

use trace::backend::blocked::BlockedSyscall;
use trace::syscall::{call_name, sleeps};

use crate::model::StepHistogram;

use super::layout::{place, record, subject, thread};

/// Where a wait is made: the stack pointer, and the instruction.
pub type WaitPlace = (u64, u64);

/// A wait for events, as it is told from others.
///
/// Different functions can make waits at one place. `PyGObject` calls those of GLib through libffi, which aligns the stack: the waits of
/// `g_main_loop_run` and of `g_spawn_sync` have the same stack pointer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EventWait {
    /// Where it is made.
    pub place: WaitPlace,
    /// What it waits for: where its descriptors stand, and how many there are. Equal for equal waits.
    pub subject: u64,
}

/// So many waits at one place are told from each other, if one of them is that of the main loop.
pub(crate) const WAITS_AT_PLACE: usize = 8;
/// The second argument of a wait is shifted to the left by so many bits and added to the first one: a number is small, and the lower
/// bits of an address tell enough.
pub(super) const SECOND_SHIFT: u32 = 48;

impl EventWait {
    /// Returns the wait that a call is.
    #[must_use]
    pub fn of(call: &BlockedSyscall) -> EventWait {
        let [first, second, ..] = call.arguments;
        let (first, second) = match call_name(call.number) {
            // The second one is how many operations are submitted.
            Some("io_uring_enter") => (first, 0),
            // A condition variable has two places.
            Some("futex") => (subject::LOCK, 0),
            _ if is_sleep(call) => (subject::SLEEP, 0),
            _ => (first, second),
        };
        let subject = first.wrapping_add(second << SECOND_SHIFT);
        EventWait { place: (call.sp, call.ip), subject }
    }

    /// Returns the first argument of the call, which says what it waits for: an array of descriptors, an `epoll`, or of `select` how many.
    pub(crate) fn first_argument(&self) -> u64 {
        self.subject & ((1 << SECOND_SHIFT) - 1)
    }

    /// Returns whether it is one for a lock: of the others something is known that is waited for.
    pub(crate) fn is_of_lock(&self) -> bool {
        self.subject == subject::LOCK
    }

    /// Returns whether it waits for nothing but a moment.
    pub(crate) fn is_sleep(&self) -> bool {
        self.subject == subject::SLEEP
    }
}

impl From<[u64; 3]> for EventWait {
    fn from([sp, ip, subject]: [u64; 3]) -> EventWait {
        EventWait { place: (sp, ip), subject }
    }
}

impl From<EventWait> for [u64; 3] {
    fn from(EventWait { place: (sp, ip), subject }: EventWait) -> [u64; 3] {
        [sp, ip, subject]
    }
}

/// The calls that sleep, apart from waits for events without a descriptor.
pub(super) const PLAIN_SLEEPS: [&str; 2] = ["nanosleep", "clock_nanosleep"];

/// Returns whether a call waits for nothing but a moment.
pub(crate) fn is_sleep(call: &BlockedSyscall) -> bool {
    call_name(call.number).is_some_and(|name| PLAIN_SLEEPS.contains(&name))
        || sleeps(call.number, &call.arguments)
}

/// What a wait for events is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventWaitKind {
    /// The main loop waits for something to do.
    Loop,
    /// Something is waited for inside of a step of the main loop.
    Nested,
}

impl EventWaitKind {
    pub(super) fn number(self) -> i32 {
        match self {
            EventWaitKind::Loop => place::LOOP,
            EventWaitKind::Nested => place::NESTED,
        }
    }
}

/// What a thread was in when it was marked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MarkedAs {
    /// It is not known.
    Unknown,
    /// A wait for events, which counts as that of its main loop until it is classified.
    Waiting(EventWait),
    /// A step of its main loop, whose wait is made here. The step begins with the mark.
    Away(WaitPlace),
}

/// What is known of the time of an absence at a moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AbsenceAccount {
    /// The moment, of the monotonic clock in nanoseconds.
    pub at_ns: u64,
    /// How long the thread was off the processors, in nanoseconds.
    pub off_ns: u64,
    /// How long of that it could have run, in nanoseconds.
    pub ready_ns: u64,
    /// How often it waited for a page from a disk.
    pub faults: u64,
    /// Waits that were not reported because they came too fast.
    pub dropped: u64,
}

/// A wait of a thread that is away from its main loop's wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ThreadBlock {
    /// When it left its processor, of the monotonic clock in nanoseconds.
    pub from_ns: u64,
    /// When it got one again.
    pub to_ns: u64,
    /// How long it had waited for processors in the absence, before this wait's own wait for one.
    pub ready_ns: u64,
    /// For how much blocked time it stands, with that of shorter waits before it that are reported by none of their own.
    pub blocked_ns: u64,
    /// How long it had been off the processors in the absence before this wait.
    pub off_before_ns: u64,
    /// Whether it could run, and had no processor.
    pub could_run: bool,
    /// Whether it was stopped by a signal or a debugger, or frozen.
    pub is_stopped: bool,
    /// The system call that it is in; none outside of calls, as when it waits for a page.
    pub call: Option<u32>,
    /// The arguments of the call.
    pub arguments: [u64; 6],
    /// Where the call is made.
    pub place: WaitPlace,
}

/// What a program in the kernel reports of a marked thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ThreadEvent {
    /// It has been away from its main loop's wait for 30 ms, and still is.
    Late {
        /// When it left, of the monotonic clock in nanoseconds.
        started_ns: u64,
    },
    /// An absence has ended that was reported, or is as long as a hang.
    Ended {
        /// When it began, of the monotonic clock in nanoseconds.
        started_ns: u64,
        /// What its time went to; the moment is its end.
        account: AbsenceAccount,
    },
    /// It is in a wait that is not classified for 50 ms, or for 2 ms while none is or where another one at the same place is that of the
    /// main loop.
    Asks {
        /// The wait.
        wait: EventWait,
    },
    /// It has waited in an absence.
    Waited {
        /// When the absence began.
        started_ns: u64,
        /// The wait.
        block: ThreadBlock,
    },
    /// A process has begun to run a program, whether it is marked or not. Of many one is told each two seconds.
    Started,
    /// A process has connected to a display, whether it is marked or not.
    Connected,
    /// It runs another program, or has ended. Nothing is recorded of it any more.
    Gone {
        /// The absence that this ends.
        absence: Option<(u64, AbsenceAccount)>,
    },
}

/// What is kept of a marked thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MarkedThread {
    /// When the absence began that goes on, of the monotonic clock in nanoseconds.
    pub away_since_ns: Option<u64>,
    /// What its time went to until the thread last left its processor; the moment is 0.
    pub account: AbsenceAccount,
    /// Since when it is off the processors, and whether it could run.
    pub off_since_ns: Option<(u64, bool)>,
    /// The wait for events that goes on, and the account when it began.
    pub wait: Option<(EventWait, AbsenceAccount)>,
    /// Whether that counts as the wait of its main loop.
    pub is_waiting: bool,
    /// The stack pointer of the shallowest wait that was seen.
    pub shallowest: u64,
    /// When it was first seen in a wait that is known to be that of its main loop, of the monotonic clock in nanoseconds.
    pub known_since_ns: Option<u64>,
    /// The place of the main loop's last wait.
    pub main_place: WaitPlace,
    /// How long it had waited for processors when the absence began, in nanoseconds.
    pub ready_before_ns: u64,
    /// Whether it runs another program, or has ended, so that nothing is recorded of it any more.
    pub is_gone: bool,
    /// Its steps since it was marked.
    pub steps: StepHistogram,
}

/// Calls have lower numbers; what is not a call has -1 or the code of an error.
const CALLS: u64 = 1024;
/// The states of a thread that a signal or a debugger has stopped.
const STOPPED: u64 = 4 | 8;
/// The state of a thread that signals can wake.
const INTERRUPTIBLE: u64 = 1;

impl ThreadEvent {
    /// Reads a record: the thread, and what is reported of it; `None` for bytes that are no record.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(u32, ThreadEvent)> {
        let long = |offset: i16| sys::bpf::record::long(bytes, offset);
        let thread = u32::try_from(long(record::THREAD)?).ok()?;
        let started_ns = long(record::START)?;
        let account = AbsenceAccount {
            at_ns: long(record::AT)?,
            off_ns: long(record::OFF_TOTAL)?,
            ready_ns: long(record::READY)?,
            faults: long(record::FAULTS)?,
            dropped: long(record::DROPPED)?,
        };
        let place = (long(record::SP)?, long(record::IP)?);
        let event = match i32::try_from(long(record::KIND)?).ok()? {
            record::LATE => ThreadEvent::Late { started_ns },
            record::STARTED => ThreadEvent::Started,
            record::CONNECTED => ThreadEvent::Connected,
            record::ENDED => ThreadEvent::Ended { started_ns, account },
            record::ASKS => {
                let subject = long(record::ARGUMENTS)?;
                ThreadEvent::Asks { wait: EventWait { place, subject } }
            }
            record::GONE => {
                ThreadEvent::Gone { absence: (started_ns != 0).then_some((started_ns, account)) }
            }
            record::WAITED => {
                let mut arguments = [0; 6];
                for (offset, argument) in (record::ARGUMENTS..).step_by(8).zip(&mut arguments) {
                    *argument = long(offset)?;
                }
                let call = long(record::CALL)?;
                let call = u32::try_from(call).ok().filter(|_| call < CALLS);
                let state = long(record::STATE)?;
                let block = ThreadBlock {
                    from_ns: long(record::FROM)?,
                    to_ns: account.at_ns,
                    ready_ns: account.ready_ns,
                    blocked_ns: long(record::OWED)?,
                    off_before_ns: account
                        .off_ns
                        .saturating_sub(account.at_ns.saturating_sub(long(record::FROM)?)),
                    could_run: state == 0,
                    // Outside of calls only the freezer has a thread wait so that signals end it.
                    is_stopped: state & STOPPED != 0
                        || (state & INTERRUPTIBLE != 0 && call.is_none()),
                    call,
                    arguments,
                    place,
                };
                ThreadEvent::Waited { started_ns, block }
            }
            _ => return None,
        };
        Some((thread, event))
    }
}

impl MarkedThread {
    /// Reads what the programs keep of a thread; `None` for bytes of another length.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<MarkedThread> {
        let long = |offset: i16| sys::bpf::record::long(bytes, offset);
        let phase = i32::try_from(long(thread::PHASE)?).ok()?;
        let is_away = phase == thread::AWAY;
        let dropped = long(thread::DROPPED)?;
        let mut steps = StepHistogram::default();
        for (offset, count) in (thread::STEPS..).step_by(8).zip(&mut steps.0) {
            *count = long(offset)?;
        }
        let off = long(thread::OFF)?;
        let wait_ns = long(thread::WAIT)?;
        let wait = AbsenceAccount {
            at_ns: wait_ns,
            off_ns: long(thread::WAIT_OFF_TOTAL)?,
            ready_ns: long(thread::WAIT_READY)?,
            faults: long(thread::WAIT_FAULTS)?,
            dropped,
        };
        let place = (long(thread::WAIT_SP)?, long(thread::WAIT_IP)?);
        let event_wait = EventWait { place, subject: long(thread::WAIT_SUBJECT)? };
        let known = long(thread::KNOWN)?;
        Some(MarkedThread {
            away_since_ns: is_away.then_some(long(thread::START)?),
            account: AbsenceAccount {
                at_ns: 0,
                off_ns: long(thread::OFF_TOTAL)?,
                ready_ns: 0,
                faults: 0,
                dropped,
            },
            off_since_ns: (off != 0).then_some((off, long(thread::OFF_STATE)? == 0)),
            wait: (wait_ns != 0).then_some((event_wait, wait)),
            is_waiting: phase == thread::WAITING,
            shallowest: long(thread::SHALLOWEST)?,
            main_place: (long(thread::LOOP_SP)?, long(thread::LOOP_IP)?),
            ready_before_ns: long(thread::START_READY)?,
            is_gone: phase == thread::GONE,
            known_since_ns: (known != 0).then_some(known),
            steps,
        })
    }
}

impl From<Option<[u64; 3]>> for MarkedAs {
    fn from(words: Option<[u64; 3]>) -> MarkedAs {
        match words {
            None => MarkedAs::Unknown,
            Some([sp, ip, subject::AWAY]) => MarkedAs::Away((sp, ip)),
            Some(wait) => MarkedAs::Waiting(wait.into()),
        }
    }
}

impl From<MarkedAs> for Option<[u64; 3]> {
    fn from(marked: MarkedAs) -> Option<[u64; 3]> {
        match marked {
            MarkedAs::Unknown => None,
            MarkedAs::Waiting(wait) => Some(wait.into()),
            MarkedAs::Away((sp, ip)) => Some([sp, ip, subject::AWAY]),
        }
    }
}

/// What the kernel had counted of a thread when it was marked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedBefore {
    /// How long it had waited for processors, in nanoseconds.
    pub(super) ready_ns: u64,
    /// How often it had waited for a page from a disk.
    pub(super) faults: u64,
}

/// Returns what is kept of a thread at first.
pub(super) fn first_state(marked: MarkedAs, before: CountedBefore, now_ns: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(thread::SIZE).unwrap_or(0)];
    let mut put = |offset: i16, value: u64| {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            *place = value.to_ne_bytes();
        }
    };
    put(thread::ARMED, 1);
    if let MarkedAs::Waiting(EventWait { place: (sp, ip), subject }) = marked {
        put(thread::PHASE, thread::WAITING.unsigned_abs().into());
        put(thread::WAIT, now_ns);
        put(thread::WAIT_SP, sp);
        put(thread::WAIT_IP, ip);
        put(thread::WAIT_SUBJECT, subject);
        put(thread::LOOP_SP, sp);
        put(thread::LOOP_IP, ip);
        put(thread::SHALLOWEST, sp);
    }
    if let MarkedAs::Away((sp, ip)) = marked {
        put(thread::PHASE, thread::AWAY.unsigned_abs().into());
        put(thread::START, now_ns);
        put(thread::START_READY, before.ready_ns);
        put(thread::START_FAULTS, before.faults);
        put(thread::KNOWN, now_ns);
        put(thread::LOOP_SP, sp);
        put(thread::LOOP_IP, ip);
        put(thread::SHALLOWEST, sp);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with a number of its own in each word.
    fn record_of(kind: i32) -> Vec<u8> {
        let words = 0..u64::try_from(record::SIZE / 8).unwrap();
        let mut bytes: Vec<u8> = words.flat_map(|word| (word + 100).to_ne_bytes()).collect();
        bytes[..8].copy_from_slice(&u64::from(kind.unsigned_abs()).to_ne_bytes());
        bytes
    }

    #[test]
    fn records_are_read_and_torn_ones_are_none() {
        let account =
            AbsenceAccount { at_ns: 102, off_ns: 104, ready_ns: 105, faults: 106, dropped: 107 };
        let ended = ThreadEvent::Ended { started_ns: 103, account };
        assert_eq!(ThreadEvent::read(&record_of(record::ENDED)), Some((101, ended)));
        let gone = ThreadEvent::Gone { absence: Some((103, account)) };
        assert_eq!(ThreadEvent::read(&record_of(record::GONE)), Some((101, gone)));
        let waited = record_of(record::WAITED);
        let Some((101, ThreadEvent::Waited { started_ns: 103, block })) =
            ThreadEvent::read(&waited)
        else {
            panic!("a wait");
        };
        assert_eq!((block.from_ns, block.to_ns, block.ready_ns), (108, 102, 105));
        assert_eq!((block.blocked_ns, block.off_before_ns), (119, 104));
        assert_eq!((block.call, block.place, block.is_stopped), (Some(110), (111, 112), true));
        assert_eq!(block.arguments, [113, 114, 115, 116, 117, 118]);
        for length in 0..waited.len() {
            assert_eq!(ThreadEvent::read(&waited[..length]), None, "{length}");
        }
        assert_eq!(ThreadEvent::read(&record_of(99)), None);
    }

    #[test]
    fn a_thread_that_is_marked_in_a_wait_is_in_it() {
        let (none, wait) = (CountedBefore::default(), EventWait { place: (9000, 1), subject: 7 });
        let marked = MarkedThread::read(&first_state(MarkedAs::Waiting(wait), none, 5)).unwrap();
        assert_eq!((marked.away_since_ns, marked.shallowest), (None, 9000));
        assert_eq!(marked.known_since_ns, None, "the place may be another one");
        assert_eq!(marked.wait.map(|(wait, _)| wait), Some(wait));
        let counted = CountedBefore { ready_ns: 3, faults: 4 };
        let away = MarkedThread::read(&first_state(MarkedAs::Away((9000, 1)), counted, 5)).unwrap();
        assert_eq!((away.away_since_ns, away.known_since_ns), (Some(5), Some(5)));
        assert_eq!((away.main_place, away.ready_before_ns), ((9000, 1), 3));
        assert_eq!((away.is_waiting, away.wait), (false, None));
        let unknown = first_state(MarkedAs::Unknown, none, 5);
        assert_eq!(MarkedThread::read(&unknown), Some(MarkedThread::default()));
        assert_eq!(MarkedThread::read(&unknown[..100]), None);
    }
}
