//! Reads the records of the programs.

use sys::bpf::record::{field, long, word};

use crate::event::{InterruptKind, ThreadIdentity, ThreadWait, WakeupContext, WakeupSource};

use super::layout::{FUNCTIONS, SOURCES, record, source};

/// Set in the state of a thread that signals cannot wake.
const UNINTERRUPTIBLE: u32 = 2;
/// Set in the state of a thread of the kernel that waits for work.
const IDLE: u32 = 0x400;

/// Calls have lower numbers; what is not a call has -1 or the code of an error.
const CALLS: u64 = 1024;

/// The name of threads of the kernel that are not told.
const HIDDEN_KERNEL: &[u8] = b"kernel";

fn read_source(bytes: &[u8], begin: i16) -> Option<WakeupSource> {
    let context = match word(bytes, begin + source::CONTEXT)?.cast_signed() {
        source::PROGRAM => WakeupContext::Program,
        source::KERNEL => WakeupContext::Kernel,
        source::TIMER => WakeupContext::Interrupt(InterruptKind::Timer),
        source::NETWORK => WakeupContext::Interrupt(InterruptKind::Network),
        source::DISK => WakeupContext::Interrupt(InterruptKind::Disk),
        source::OTHER => WakeupContext::Interrupt(InterruptKind::Other),
        source::BIRTH => WakeupContext::Birth,
        _ => return None,
    };
    let mut source = WakeupSource {
        who: ThreadIdentity {
            thread: word(bytes, begin + source::THREAD)?,
            began: word(bytes, begin + source::BEGAN)?,
        },
        process: word(bytes, begin + source::PROCESS)?,
        name: field(bytes, begin + source::NAME)?,
        context,
        at_ns: long(bytes, begin + source::AT)?,
    };
    if source.is_hidden() && context == WakeupContext::Kernel {
        source.name[..HIDDEN_KERNEL.len()].copy_from_slice(HIDDEN_KERNEL);
    }
    Some(source)
}

/// Reads a record of the programs, also of those in another process; none for bytes that are none.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<ThreadWait> {
    let state = word(bytes, record::STATE)?;
    let call = long(bytes, record::CALL)?;
    let begins = (0..SOURCES).map(|index| record::SOURCES + index * source::SIZE);
    let sources: Vec<WakeupSource> = begins.map_while(|begin| read_source(bytes, begin)).collect();
    let functions = (0..FUNCTIONS).map_while(|index| long(bytes, record::FUNCTIONS + 8 * index));
    let mut wait = ThreadWait {
        who: ThreadIdentity {
            thread: word(bytes, record::THREAD)?,
            began: word(bytes, record::BEGAN)?,
        },
        process: word(bytes, record::PROCESS)?,
        name: field(bytes, record::NAME)?,
        from_ns: long(bytes, record::FROM)?,
        to_ns: long(bytes, record::TO)?,
        call: u32::try_from(call).ok().filter(|_| call < CALLS),
        functions: functions.take_while(|address| *address != 0).collect(),
        uninterruptible: state & UNINTERRUPTIBLE != 0 && state & IDLE == 0,
        processor_ns: long(bytes, record::PROCESSOR)?,
        ready_ns: long(bytes, record::READY)?,
        sources,
        source_counters: Some([
            long(bytes, record::SOURCE_PROCESSOR)?,
            long(bytes, record::SOURCE_READY)?,
        ]),
    };
    // Of who is another user's nothing is known.
    if wait.sources.first().is_some_and(WakeupSource::is_hidden) {
        wait.source_counters = None;
    }
    if wait.is_birth() {
        (wait.processor_ns, wait.ready_ns, wait.call) = (0, 0, None);
    }
    Some(wait)
}
