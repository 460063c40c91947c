//! Reads the records of the programs.

use sys::bpf::file_names::CopiedFile;
use sys::bpf::record::{long, word};

use super::layout::{flight, key, record, total};
use super::memory_programs::{stands_for, work};
use super::{MemoryRecord, NewRing, OperationRecord, WorkRecord};
use crate::memory::{MemoryWait, MemoryWork};
use crate::operation::{OperationTotal, RingOperation, WorkFile};

/// Returns what follows a record's fields from `offset` on.
fn data(bytes: &[u8], offset: i16) -> Option<&[u8]> {
    let length = usize::try_from(word(bytes, record::LENGTH)?).ok()?;
    bytes.get(usize::try_from(offset).ok()?..)?.get(..length)
}

/// Returns the bytes before the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Reads a record; none for bytes that are none.
pub(super) fn read(bytes: &[u8]) -> Option<WorkRecord<'_>> {
    let process = word(bytes, record::PROCESS)?;
    let ring = long(bytes, record::RING)?;
    match word(bytes, record::KIND)?.cast_signed() {
        record::OPERATION => operation(bytes).map(WorkRecord::Operation),
        record::CREATED => Some(WorkRecord::Created(NewRing {
            process,
            ring,
            descriptor: word(bytes, record::DESCRIPTOR)?.cast_signed(),
            flags: word(bytes, record::SUBMITTED)?,
            at_ns: long(bytes, record::START)?,
        })),
        record::COUNTER => Some(WorkRecord::Counter { process, ring }),
        record::MEMORY => memory(bytes).map(WorkRecord::Memory),
        _ => None,
    }
}

fn operation(bytes: &[u8]) -> Option<OperationRecord> {
    let flags = word(bytes, record::FLAGS)?;
    let has = |flag: u32| flags & flag != 0;
    let how = word(bytes, record::HOW)?.cast_signed();
    let data = data(bytes, record::DATA)?;
    let file =
        WorkFile { inode: long(bytes, record::INODE)?, device: word(bytes, record::DEVICE)? };
    let result = long(bytes, record::RESULT)?.cast_signed();
    let copied = CopiedFile {
        names: data,
        is_whole: has(record::WHOLE),
        is_deleted: has(record::DELETED),
        mode: word(bytes, record::MODE).unwrap_or(0),
        inode: file.inode,
    };
    Some(OperationRecord {
        is_slow: has(record::SLOW),
        link: has(record::NAMED).then(|| copied.link()),
        mount: word(bytes, record::MOUNT)?,
        operation: RingOperation {
            process: word(bytes, record::PROCESS)?,
            thread: word(bytes, record::THREAD)?,
            opcode: u8::try_from(word(bytes, record::OPCODE)?).ok()?,
            descriptor: word(bytes, record::DESCRIPTOR)?.cast_signed(),
            is_registered: word(bytes, record::SUBMITTED)? & flight::REGISTERED != 0,
            ring: long(bytes, record::RING)?,
            start_ns: long(bytes, record::START)?,
            wall_ns: long(bytes, record::WALL)?,
            result: i32::try_from(result).ok(),
            file: has(record::FILE).then_some(file),
            path: has(record::ASKED).then(|| text(data).to_vec()),
            by_worker: how & flight::WORKER != 0,
            awaited_readiness: how & flight::READINESS != 0,
        },
    })
}

fn memory(bytes: &[u8]) -> Option<MemoryRecord<'_>> {
    let kind = match word(bytes, record::OPCODE)?.cast_signed() {
        work::RECLAIM => MemoryWork::Reclaim,
        work::COMPACTION => MemoryWork::Compaction,
        work::FAULT => MemoryWork::SwapIn,
        _ => return None,
    };
    let (is_fault, amount) = (kind == MemoryWork::SwapIn, long(bytes, record::RESULT)?);
    let stack = data(bytes, record::STACK)?;
    // ip, sp, bp, bx, r12, r13, r14, r15 in `struct pt_regs`.
    let mut registers = [128, 152, 32, 40, 24, 16, 8, 0];
    for register in &mut registers {
        *register = long(bytes, record::REGISTERS + i16::try_from(*register).ok()?)?;
    }
    let wall_ns = long(bytes, record::WALL)?;
    Some(MemoryRecord {
        process: word(bytes, record::PROCESS)?,
        thread: word(bytes, record::THREAD)?,
        wait: MemoryWait {
            work: kind,
            start_ns: long(bytes, record::START)?,
            wall_ns,
            // The clocks of processors differ a little.
            processor_ns: u64::try_from(long(bytes, record::INODE)?.cast_signed()).unwrap_or(0),
            ready_ns: u64::try_from(long(bytes, record::RING)?.cast_signed()).unwrap_or(0),
        },
        pages: if is_fault { 0 } else { amount },
        address: is_fault.then_some(amount),
        registers: (!stack.is_empty()).then_some(registers),
        stack,
        stands_for: stands_for(wall_ns),
    })
}

/// Reads a sum.
pub(super) fn sum(key: &[u8], value: &[u8]) -> Option<OperationTotal> {
    let file = WorkFile { inode: long(key, key::INODE)?, device: word(key, key::DEVICE)? };
    Some(OperationTotal {
        process: word(key, key::PROCESS)?,
        opcode: u8::try_from(word(key, key::OPCODE)?).ok()?,
        file: (file != WorkFile::default()).then_some(file),
        count: long(value, total::COUNT)?,
        errors: long(value, total::ERRORS)?,
        wall_ns: long(value, total::WALL)?,
        longest_ns: long(value, total::LONGEST)?,
        results: long(value, total::RESULTS)?,
    })
}

/// Reads an operation in flight, `now_ns` of its clock.
pub(super) fn flight(value: &[u8], now_ns: u64) -> Option<RingOperation> {
    let start_ns = long(value, flight::START)?;
    let how = word(value, flight::HOW)?.cast_signed();
    let path = value.get(usize::try_from(flight::PATH).ok()?..).map(|path| text(path).to_vec());
    let has_path = word(value, flight::PATH_LENGTH)? > 0;
    Some(RingOperation {
        process: word(value, flight::PROCESS)?,
        thread: word(value, flight::THREAD)?,
        opcode: u8::try_from(word(value, flight::OPCODE)?).ok()?,
        descriptor: word(value, flight::DESCRIPTOR)?.cast_signed(),
        is_registered: word(value, flight::FLAGS)? & flight::REGISTERED != 0,
        ring: long(value, flight::RING)?,
        start_ns,
        wall_ns: now_ns.saturating_sub(start_ns),
        result: None,
        file: None,
        path: path.filter(|_| has_path),
        by_worker: how & flight::WORKER != 0,
        awaited_readiness: how & flight::READINESS != 0,
    })
}
