//! The bytes of a record: its kind, the version of its fields, the fields. docs/hangs.md describes them.
//!
//! Every length is bounded, so that a record from a damaged or hostile file costs little memory, and every byte has to be
//! accounted for: a record with bytes behind its end is not read.

use std::sync::Arc;

use trace::report::account::TimeParts;

use crate::model::{
    CallObject, CallShare, CountedProcesses, DiskUse, DiskUser, Hang, HangCause, HangChain,
    HangFrame, HangHop, HangRecord, ObjectKind, ProgramSteps, StepHistogram, UnseenParts,
    WatchedPeriod,
};

/// The version of the fields that is written. The one before has no functions of the kernel, the third one does not say what disks did,
/// the second one does not tell the processes of a program apart, the first one has hangs without chains.
const VERSION: u8 = 5;
/// The first version that has functions of the kernel, and says which processes were looked at for what disks did.
const OF_KERNEL: u8 = 5;
/// The first version that says what disks did.
const OF_DISKS: u8 = 4;
/// The first version that tells processes apart.
const OF_PROCESSES: u8 = 3;
/// The first version of the fields.
const FIRST_VERSION: u8 = 1;
/// The kinds of records.
const HANG: u8 = b'h';
const WATCHED: u8 = b'w';

/// The longest text, in bytes; a longer one is cut when it is written, and ends with an ellipsis.
pub const MAX_TEXT: usize = 1024;
/// The end of a text that was cut.
const CUT: &str = "…";
/// The most frames of a stack that are kept.
pub const MAX_FRAMES: usize = 64;
/// The most calls of a hang that are kept.
pub const MAX_CALLS: usize = 8;
/// The most threads of a chain.
pub const MAX_HOPS: usize = 16;
/// The most programs that used disks during a hang.
pub const MAX_DISK_USERS: usize = 3;
/// The most functions of the kernel.
pub const MAX_KERNEL_FUNCTIONS: usize = 16;
/// The most programs of a period.
pub const MAX_PROGRAMS: usize = 512;
/// The most bytes of a record.
pub const MAX_RECORD: usize = 512 << 10;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HangRecordError {
    /// The bytes end too early, have more than the record, or a value that no record has.
    #[error("the record is damaged")]
    Damaged,
    /// A later version wrote it.
    #[error("the record has the unknown version {0}")]
    UnknownVersion(u8),
}

/// Returns the bytes of a record. Texts and lists beyond the bounds are cut.
#[must_use]
pub fn encode(record: &HangRecord) -> Vec<u8> {
    let mut out = RecordWriter(Vec::with_capacity(512));
    match record {
        HangRecord::Hang(hang) => {
            out.0.extend([HANG, VERSION]);
            write_hang(&mut out, hang);
        }
        HangRecord::Watched(period) => {
            out.0.extend([WATCHED, VERSION]);
            write_period(&mut out, period);
        }
    }
    out.0
}

/// Reads a record.
///
/// # Errors
///
/// [`HangRecordError`]; nothing of the record counts.
pub fn decode(bytes: &[u8]) -> Result<HangRecord, HangRecordError> {
    let (kind, version, fields) = match bytes {
        [kind @ (HANG | WATCHED), version, fields @ ..] if bytes.len() <= MAX_RECORD => {
            (*kind, *version, fields)
        }
        _ => return Err(HangRecordError::Damaged),
    };
    if !(FIRST_VERSION..=VERSION).contains(&version) {
        return Err(HangRecordError::UnknownVersion(version));
    }
    let mut reader = RecordReader(fields);
    let record = match kind {
        HANG => read_hang(&mut reader, version).map(|hang| HangRecord::Hang(Box::new(hang))),
        _ => read_period(&mut reader, version).map(HangRecord::Watched),
    };
    record.filter(|_| reader.0.is_empty()).ok_or(HangRecordError::Damaged)
}

/// Writes fields one after the other.
struct RecordWriter(Vec<u8>);

impl RecordWriter {
    /// Writes a number in as few bytes as it needs, seven bits each, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    fn text(&mut self, text: &str) {
        let (mut end, mark) = match text.len() {
            end @ 0..=MAX_TEXT => (end, ""),
            _ => (MAX_TEXT - CUT.len(), CUT),
        };
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        self.number((text.len() + mark.len()) as u64);
        self.0.extend(text.as_bytes());
        self.0.extend(mark.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], most: usize, mut write: impl FnMut(&mut Self, &T)) {
        let items = &items[..items.len().min(most)];
        self.number(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }
}

/// Reads fields one after the other; `None` where the bytes end or say what cannot be.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// Reads a number; only the shortest form of it is one.
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let is_too_large = shift > 63 || bits.checked_shl(shift)? >> shift != bits;
            if is_too_large || (byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok().filter(|length| *length <= MAX_TEXT)?;
        let (text, rest): (&'a [u8], &'a [u8]) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn list<T>(&mut self, most: usize, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= most)?;
        (0..count).map(|_| read(self)).collect()
    }
}

/// The parts of an account in the order in which they are stored.
fn parts_of(parts: &mut TimeParts) -> [&mut u64; 10] {
    [
        &mut parts.processor_ns,
        &mut parts.ready_ns,
        &mut parts.fault_ns,
        &mut parts.call_ns,
        &mut parts.lock_ns,
        &mut parts.stopped_ns,
        &mut parts.idle_ns,
        &mut parts.child_ns,
        &mut parts.tracer_ns,
        &mut parts.unknown_ns,
    ]
}

fn write_hang(out: &mut RecordWriter, hang: &Hang) {
    out.number(hang.number);
    out.number(hang.started_ns);
    out.number(hang.length_ns);
    out.number(hang.uncertain_ns);
    out.0.push(u8::from(hang.goes_on));
    out.number(hang.process.into());
    out.number(hang.process_began_ns);
    out.text(&hang.program);
    out.text(&hang.unit);
    let cause = HangCause::ALL.iter().position(|cause| *cause == hang.cause);
    out.number(cause.unwrap_or(0) as u64);
    let mut parts = hang.parts;
    parts_of(&mut parts).into_iter().for_each(|part| out.number(*part));
    out.list(&hang.calls, MAX_CALLS, |out, share| {
        out.text(&share.call);
        out.number(share.blocked_ns);
        out.number(share.seen.into());
        out.0.push(u8::from(share.object.is_some()));
        if let Some(object) = &share.object {
            let kind = ObjectKind::ALL.iter().position(|kind| *kind == object.kind);
            out.number(kind.unwrap_or(0) as u64);
            for text in [&object.name, &object.file_system, &object.device] {
                out.text(text);
            }
        }
    });
    // Few files stand for many frames: each is written once.
    let frames = &hang.frames[..hang.frames.len().min(MAX_FRAMES)];
    let mut modules: Vec<&str> = frames.iter().map(|frame| &*frame.module).collect();
    modules.sort_unstable();
    modules.dedup();
    out.list(&modules, MAX_FRAMES, |out, module| out.text(module));
    out.list(frames, MAX_FRAMES, |out, frame| {
        out.text(&frame.function);
        out.number(modules.binary_search(&&*frame.module).unwrap_or(0) as u64);
    });
    let blamed = hang.blamed.filter(|at| usize::try_from(*at).is_ok_and(|at| at < frames.len()));
    out.number(blamed.map_or(0, |at| u64::from(at) + 1));
    out.0.push(u8::from(hang.pressure.is_some()));
    hang.pressure.into_iter().flatten().for_each(|share| out.number(share.into()));
    out.0.push(hang.unseen.0);
    out.0.push(u8::from(hang.chain.is_some()));
    if let Some(chain) = &hang.chain {
        write_chain(out, chain);
    }
    out.0.push(u8::from(hang.disk_use.is_some()));
    if let Some(used) = &hang.disk_use {
        for number in [used.counted_ns, used.read_bytes, used.written_bytes] {
            out.number(number);
        }
        out.list(&used.programs, MAX_DISK_USERS, |out, user| {
            out.text(&user.program);
            for number in [user.process.into(), user.read_bytes, user.written_bytes] {
                out.number(number);
            }
        });
        let counted = CountedProcesses::ALL.iter().position(|known| *known == used.processes);
        out.number(counted.unwrap_or(0) as u64);
    }
    out.list(&hang.kernel_functions, MAX_KERNEL_FUNCTIONS, |out, name| out.text(name));
}

fn read_disk_use(reader: &mut RecordReader<'_>, version: u8) -> Option<DiskUse> {
    Some(DiskUse {
        counted_ns: reader.number()?,
        read_bytes: reader.number()?,
        written_bytes: reader.number()?,
        programs: reader.list(MAX_DISK_USERS, |reader| {
            Some(DiskUser {
                program: reader.text()?,
                process: reader.small()?,
                read_bytes: reader.number()?,
                written_bytes: reader.number()?,
            })
        })?,
        processes: match version < OF_KERNEL {
            true => CountedProcesses::All,
            false => *CountedProcesses::ALL.get(usize::try_from(reader.number()?).ok()?)?,
        },
    })
}

fn write_chain(out: &mut RecordWriter, chain: &HangChain) {
    out.list(&chain.hops, MAX_HOPS, |out, hop| {
        out.text(&hop.program);
        out.number(hop.process.into());
        for text in [&hop.unit, &hop.call, &hop.function] {
            out.text(text);
        }
        out.number(hop.waited_ns);
    });
    out.text(&chain.end);
    out.number(chain.end_ns);
    out.0.push(u8::from(chain.has_losses));
}

fn read_chain(reader: &mut RecordReader<'_>) -> Option<HangChain> {
    let hops = reader.list(MAX_HOPS, |reader| {
        Some(HangHop {
            program: reader.text()?,
            process: reader.small()?,
            unit: reader.text()?,
            call: reader.text()?,
            function: reader.text()?,
            waited_ns: reader.number()?,
        })
    })?;
    Some(HangChain {
        hops,
        end: reader.text()?,
        end_ns: reader.number()?,
        has_losses: reader.flag()?,
    })
}

fn read_hang(reader: &mut RecordReader<'_>, version: u8) -> Option<Hang> {
    let number = reader.number()?;
    let started_ns = reader.number()?;
    let length_ns = reader.number()?;
    let uncertain_ns = reader.number()?;
    let goes_on = reader.flag()?;
    let process = reader.small()?;
    let process_began_ns = if version < OF_PROCESSES { 0 } else { reader.number()? };
    let program = reader.text()?;
    let unit = reader.text()?;
    let cause = *HangCause::ALL.get(usize::try_from(reader.number()?).ok()?)?;
    let mut parts = TimeParts::default();
    for part in parts_of(&mut parts) {
        *part = reader.number()?;
    }
    let calls = reader.list(MAX_CALLS, |reader| {
        Some(CallShare {
            call: reader.text()?,
            blocked_ns: reader.number()?,
            seen: reader.small()?,
            object: match reader.flag()? {
                true => Some(CallObject {
                    kind: *ObjectKind::ALL.get(usize::try_from(reader.number()?).ok()?)?,
                    name: reader.text()?,
                    file_system: reader.text()?,
                    device: reader.text()?,
                }),
                false => None,
            },
        })
    })?;
    let modules: Vec<Arc<str>> = reader.list(MAX_FRAMES, |reader| Some(reader.text()?.into()))?;
    let frames = reader.list(MAX_FRAMES, |reader| {
        let function = reader.text()?;
        let module = Arc::clone(modules.get(usize::try_from(reader.number()?).ok()?)?);
        Some(HangFrame { function, module })
    })?;
    let blamed = match reader.small()? {
        0 => None,
        at => Some(at - 1).filter(|at| usize::try_from(*at).is_ok_and(|at| at < frames.len())),
    };
    let pressure = match reader.flag()? {
        true => {
            let mut shares = [0_u16; 3];
            for share in &mut shares {
                *share = u16::try_from(reader.number()?).ok()?;
            }
            Some(shares)
        }
        false => None,
    };
    let unseen = UnseenParts(reader.byte()?);
    let chain = match version != FIRST_VERSION && reader.flag()? {
        true => Some(read_chain(reader)?),
        false => None,
    };
    let disk_use = match version >= OF_DISKS && reader.flag()? {
        true => Some(read_disk_use(reader, version)?),
        false => None,
    };
    let kernel_functions = match version < OF_KERNEL {
        true => Vec::new(),
        false => reader.list(MAX_KERNEL_FUNCTIONS, RecordReader::text)?,
    };
    Some(Hang {
        number,
        started_ns,
        length_ns,
        uncertain_ns,
        goes_on,
        process,
        process_began_ns,
        program,
        unit,
        cause,
        parts,
        calls,
        frames,
        blamed,
        pressure,
        unseen,
        chain,
        disk_use,
        kernel_functions,
    })
}

fn write_period(out: &mut RecordWriter, period: &WatchedPeriod) {
    let WatchedPeriod { from_ns, to_ns, recorder_ns, watched_ns, interval_ns, .. } = period;
    for number in [from_ns, to_ns, recorder_ns, watched_ns, interval_ns] {
        out.number(*number);
    }
    for number in [period.over_limit, period.refused, period.lost] {
        out.number(number.into());
    }
    out.list(&period.programs, MAX_PROGRAMS, |out, program| {
        out.text(&program.program);
        out.number(program.watched_ns);
        out.number(program.present_ns);
        out.number(program.processes.into());
        out.number(program.without_loop.into());
        out.number(program.late_ns);
        let used = program.steps.0.iter().rposition(|count| *count > 0).map_or(0, |at| at + 1);
        let classes = program.steps.0.len();
        out.list(&program.steps.0[..used], classes, |out, count| out.number(*count));
    });
}

fn read_period(reader: &mut RecordReader<'_>, version: u8) -> Option<WatchedPeriod> {
    let mut numbers = [0_u64; 5];
    for number in &mut numbers {
        *number = reader.number()?;
    }
    let [from_ns, to_ns, recorder_ns, watched_ns, interval_ns] = numbers;
    let [over_limit, refused, lost] = [reader.small()?, reader.small()?, reader.small()?];
    let programs = reader.list(MAX_PROGRAMS, |reader| {
        let program = reader.text()?;
        let watched_ns = reader.number()?;
        let mut of_processes = (watched_ns, 1, u32::from(watched_ns == 0), 0);
        if version >= OF_PROCESSES {
            of_processes = (reader.number()?, reader.small()?, reader.small()?, reader.number()?);
        }
        let (present_ns, processes, without_loop, late_ns) = of_processes;
        let mut steps = StepHistogram::default();
        let counts = reader.list(steps.0.len(), RecordReader::number)?;
        steps.0.iter_mut().zip(counts).for_each(|(class, count)| *class = count);
        Some(ProgramSteps {
            program,
            watched_ns,
            present_ns,
            processes,
            without_loop,
            late_ns,
            steps,
        })
    })?;
    Some(WatchedPeriod {
        from_ns,
        to_ns,
        recorder_ns,
        watched_ns,
        interval_ns,
        programs,
        over_limit,
        refused,
        lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_cut_says_so() {
        let written = |text: &str| {
            let mut out = RecordWriter(Vec::new());
            out.text(text);
            RecordReader(&out.0).text().unwrap()
        };
        let longest = "x".repeat(MAX_TEXT);
        assert_eq!(written(&longest), longest);
        assert_eq!(written(&(longest.clone() + "y")), longest[..MAX_TEXT - 3].to_owned() + "…");
        let wide = written(&"é".repeat(MAX_TEXT));
        assert!(wide.len() <= MAX_TEXT && wide.ends_with("é…"), "{wide}");
    }

    #[test]
    fn numbers_are_read_as_they_were_written_and_in_no_other_form() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = RecordWriter(Vec::new());
            out.number(number);
            let mut reader = RecordReader(&out.0);
            assert_eq!(reader.number(), Some(number));
            assert!(reader.0.is_empty());
        }
        for wrong in [&[0x80, 0][..], &[0xff; 10], &[0x80; 11], &[0x80]] {
            assert_eq!(RecordReader(wrong).number(), None, "{wrong:?}");
        }
    }
}
