//! Programs: instructions that the kernel checks, compiles and runs at a place in itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{Attribute, Command, SharedMap, types_of};
use crate::perf::PausedEvent;

/// The code of a 64-bit constant.
const LOAD_CONSTANT: u8 = 0x18;
/// What marks a constant as the address of a function of the program.
const FUNCTION: u8 = 4;

/// One instruction as the kernel reads it: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Instruction {
    /// The operation.
    pub code: u8,
    /// The register that it changes, 0 to 10.
    pub to: u8,
    /// The register that it reads, 0 to 10; or what a 64-bit constant is.
    pub from: u8,
    /// An offset in memory or in instructions.
    pub offset: i16,
    /// A constant.
    pub constant: i32,
}

impl Instruction {
    /// Returns the two instructions that put the address of `map` into the register `to`.
    #[must_use]
    pub fn address_of_map(to: u8, map: SharedMap) -> [Instruction; 2] {
        const MAP: u8 = 1;
        Instruction::wide(to, MAP, map.0, 0)
    }

    /// Returns the two instructions that put the address of byte `at` of an array's first value into the register `to`.
    #[must_use]
    pub fn address_in_array(to: u8, map: SharedMap, at: i32) -> [Instruction; 2] {
        const MAP_VALUE: u8 = 2;
        Instruction::wide(to, MAP_VALUE, map.0, at)
    }

    /// Returns the two instructions that put the address of a function of the program into the register `to`; the constant of
    /// the first one is filled in later.
    pub(super) fn address_of_function(to: u8) -> [Instruction; 2] {
        Instruction::wide(to, FUNCTION, 0, 0)
    }

    /// Returns where the functions of a program begin, the first one at 0.
    pub(super) fn functions(program: &[Instruction]) -> Vec<u32> {
        let called = (0_i64..).zip(program).filter_map(|(at, one)| {
            let is_address = one.code == LOAD_CONSTANT && one.from == FUNCTION;
            is_address.then(|| u32::try_from(at + 1 + i64::from(one.constant)).ok())?
        });
        let mut functions: Vec<u32> = std::iter::once(0).chain(called).collect();
        functions.sort_unstable();
        functions.dedup();
        functions
    }

    /// Returns the two instructions that put a 64-bit constant into the register `to`; `from` says what the constant is.
    #[must_use]
    pub fn wide(to: u8, from: u8, low: i32, high: i32) -> [Instruction; 2] {
        [
            Instruction { code: LOAD_CONSTANT, to, from, offset: 0, constant: low },
            Instruction { constant: high, ..Instruction::default() },
        ]
    }

    fn bytes(self) -> [u8; 8] {
        let registers = if cfg!(target_endian = "little") {
            self.to & 15 | self.from << 4
        } else {
            self.to << 4 | self.from & 15
        };
        let [o0, o1] = self.offset.to_ne_bytes();
        let [c0, c1, c2, c3] = self.constant.to_ne_bytes();
        [self.code, registers, o0, o1, c0, c1, c2, c3]
    }
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProgramKind {
    /// At the tracepoint whose typedef has this number in the kernel's own types; its arguments have types.
    TypedTracepoint(u32),
    /// Where a page that a thread needed has been read from a disk, on every processor.
    MajorFault,
    /// At the samples of events that it is given; those for which it returns 0 are dropped.
    Sample,
    /// Nowhere by itself: it is run when we say so.
    OnDemand,
}

/// Why the kernel did not take a program.
#[derive(Debug)]
pub struct Refused {
    /// What `bpf(2)` reported: `EACCES` and `EINVAL` of the verifier, `EPERM` without the right to load.
    pub error: io::Error,
    /// What the verifier said, the last lines of it.
    pub log: String,
}

/// A program that the kernel has taken.
#[derive(Debug)]
pub struct BpfProgram(OwnedFd);

/// A program at work; it stops when this is dropped.
#[derive(Debug)]
struct AttachedProgram(
    #[expect(dead_code, reason = "held: closing it takes the program off")] OwnedFd,
);

/// Programs at work, in the order in which they began; they stop when this is dropped.
#[derive(Debug, Default)]
pub struct AttachedPrograms {
    // The links go first: what the others hold is in use as long as they are there.
    links: Vec<AttachedProgram>,
    programs: Vec<(ProgramKind, BpfProgram)>,
}

/// Why a program is not at work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The kernel did not take the program.
    #[error("cannot load the program {name}; the kernel says:\n{log}")]
    Refused {
        /// Its name.
        name: String,
        /// What the verifier said.
        log: String,
        /// What `bpf(2)` reported.
        source: io::Error,
    },
    /// The kernel did not start the program at its place.
    #[error("cannot attach the program {name}")]
    NotAttached {
        /// Its name.
        name: String,
        /// What `bpf(2)` reported.
        source: io::Error,
    },
}

impl AttachedPrograms {
    /// Has the kernel check and compile `instructions`, and starts them at their place.
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the programs before are still at work.
    pub fn attach(
        &mut self,
        kind: ProgramKind,
        name: &str,
        instructions: &[Instruction],
    ) -> Result<(), AttachError> {
        let program = BpfProgram::load(kind, name, instructions).map_err(|refused| {
            let Refused { error: source, log } = refused;
            AttachError::Refused { name: name.to_owned(), log, source }
        })?;
        let links = program.attach(kind);
        let links =
            links.map_err(|source| AttachError::NotAttached { name: name.to_owned(), source })?;
        self.links.extend(links);
        self.programs.push((kind, program));
        Ok(())
    }

    /// Returns how often the kernel ran none of them, because one already ran on that CPU.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn missed(&self) -> io::Result<u64> {
        let missed: io::Result<Vec<u64>> =
            self.programs.iter().map(|(_, program)| program.missed()).collect();
        Ok(missed?.iter().sum())
    }

    /// Starts those again that were stopped, in the order in which they were attached.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; none of them is at work then.
    pub fn attach_again(&mut self) -> io::Result<()> {
        self.links.clear();
        let links: io::Result<Vec<_>> =
            self.programs.iter().map(|(kind, program)| program.attach(*kind)).collect();
        self.links = links?.into_iter().flatten().collect();
        Ok(())
    }

    /// Stops them. How often they did not run can still be asked for.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

/// The number of the first function's type in [`function_types`].
const FIRST_FUNCTION: u32 = 3;

/// Gives the kernel the types of `count` functions that return an `int`, without which it calls none.
fn function_types(count: usize) -> io::Result<OwnedFd> {
    const KIND_INT: u32 = 1 << 24;
    const KIND_FUNCTION: u32 = 12 << 24;
    const KIND_PROTOTYPE: u32 = 13 << 24;
    const SIGNED: u32 = 1 << 24;
    let mut types = vec![1, KIND_INT, 4, SIGNED | 32, 0, KIND_PROTOTYPE, 1];
    for _ in 0..count {
        types.extend([5, KIND_FUNCTION, 2]);
    }
    types_of(&types, b"\0int\0function\0")
}

/// The kernel lends some of its functions only to programs under a license that it counts as compatible with its own.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

impl BpfProgram {
    /// Has the kernel check and compile `instructions`.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the verifier's reasons when there are any.
    pub fn load(
        kind: ProgramKind,
        name: &str,
        instructions: &[Instruction],
    ) -> Result<BpfProgram, Refused> {
        match BpfProgram::load_with_log(kind, name, instructions, &mut []) {
            Ok(program) => Ok(program),
            // The log costs time, so it is asked for only when there is something to read.
            Err(error) => {
                let mut log = vec![0; 1 << 20];
                let again = BpfProgram::load_with_log(kind, name, instructions, &mut log);
                let error = again.err().unwrap_or(error);
                Err(Refused { error, log: tail(&log) })
            }
        }
    }

    fn load_with_log(
        kind: ProgramKind,
        name: &str,
        instructions: &[Instruction],
        log: &mut [u8],
    ) -> io::Result<BpfProgram> {
        const TRACING: u32 = 26;
        const AT_TRACEPOINT: u32 = 23;
        const PERF_EVENT: u32 = 7;
        const ON_DEMAND: u32 = 31;
        const MAY_SLEEP: u32 = 1 << 4;
        let (number, flags, place, type_id) = match kind {
            ProgramKind::TypedTracepoint(type_id) => (TRACING, 0, AT_TRACEPOINT, type_id),
            ProgramKind::MajorFault | ProgramKind::Sample => (PERF_EVENT, 0, 0, 0),
            ProgramKind::OnDemand => (ON_DEMAND, MAY_SLEEP, 0, 0),
        };
        let functions = Instruction::functions(instructions);
        // Only functions that the kernel calls need types.
        let types = (functions.len() > 1).then(|| function_types(functions.len())).transpose()?;
        // Of each function, where it begins and the number of its type.
        let described: Vec<u8> = (FIRST_FUNCTION..)
            .zip(&functions)
            .flat_map(|(number, at)| [*at, number].map(u32::to_ne_bytes))
            .flatten()
            .collect();
        let described_count =
            u32::try_from(functions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let code: Vec<u8> = instructions.iter().flat_map(|one| one.bytes()).collect();
        let count = u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let log_bytes = u32::try_from(log.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut attribute = Attribute::new()
            .word(0, number)
            .word(4, count)
            .reads(8, &code)
            .reads(16, LICENSE)
            .word(44, flags)
            .name(48, name)
            .word(68, place)
            .word(108, type_id);
        if let Some(types) = &types {
            attribute = attribute
                .descriptor(72, types.as_raw_fd())
                .word(76, 8)
                .reads(80, &described)
                .word(88, described_count);
        }
        if log_bytes > 0 {
            attribute = attribute.word(24, 1).word(28, log_bytes).writes(32, log);
        }
        attribute.open(Command::ProgramLoad).map(BpfProgram)
    }

    /// Starts it at its place, which may be one on each processor.
    ///
    /// # Errors
    ///
    /// As `bpf(2)` and `perf_event_open(2)`; it is not at work then.
    fn attach(&self, kind: ProgramKind) -> io::Result<Vec<AttachedProgram>> {
        let links = match kind {
            ProgramKind::MajorFault => crate::perf::run_at_major_faults(self.0.as_fd())?,
            ProgramKind::Sample => return Err(io::ErrorKind::InvalidInput.into()),
            ProgramKind::TypedTracepoint(_) | ProgramKind::OnDemand => {
                let mut attribute = Attribute::new().descriptor(8, self.0.as_raw_fd());
                vec![attribute.open(Command::RawTracepointOpen)?]
            }
        };
        Ok(links.into_iter().map(AttachedProgram).collect())
    }

    /// Begins to sample an event, of which a program of [`ProgramKind::Sample`] lets samples through; the program is there as long as
    /// the event.
    ///
    /// # Errors
    ///
    /// As `ioctl(2)`: nothing is sampled.
    pub fn begin(&self, event: PausedEvent) -> io::Result<OwnedFd> {
        event.begin(self.0.as_fd())
    }

    /// Runs a program of [`ProgramKind::OnDemand`] once.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn run(&self) -> io::Result<()> {
        Attribute::new().descriptor(0, self.0.as_raw_fd()).run(Command::ProgramRun).map(|_| ())
    }

    /// Returns how often the kernel did not run it, because it already ran on that CPU.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn missed(&self) -> io::Result<u64> {
        // `recursion_misses` in `struct bpf_prog_info`.
        const MISSED: usize = 208;
        let mut info = [0; 216];
        let length = u32::try_from(info.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let attribute = Attribute::new().descriptor(0, self.0.as_raw_fd()).word(4, length);
        attribute.writes(8, &mut info).run(Command::InfoByDescriptor)?;
        let mut missed = [0; 8];
        missed.copy_from_slice(&info[MISSED..]);
        Ok(u64::from_ne_bytes(missed))
    }
}

/// Returns the last lines of a log that ends at the first zero byte.
fn tail(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(24)..].join("\n")
}
