//! Stacks: who called the system call, found while the thread waits, named after the run.
//!
//! While a thread is stopped or blocked only addresses are collected: [`Unwinder`] copies the part of the stack that it
//! needs and follows the unwind tables of the files that are mapped. It guesses nothing: where there are no tables the
//! stack ends, and says so.

pub mod blame;
mod cfi;
mod frame_pointer;
pub(crate) mod image;
pub(crate) mod interpreters;
pub mod maps;
mod memory;
pub mod names;
pub(crate) mod packages;
mod rule;
pub(crate) mod space;
pub mod waits;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use gimli::UnwindContext;
use sys::file_worker::FileWorker;

use self::image::Image;
use self::maps::Mapping;
use self::memory::{RemoteStack, Scratch, StackCopy};
pub use self::rule::KnownRegisters;
use self::rule::{MemoryReader, Rule, UnwindStop};
use self::space::{AddressSpace, ImageId, Images};
use super::call::StackId;
use super::recorder::TraceRecorder;
use super::recording::{CodeAddress, FileIdentity, Module, Stack, StackEnd};

/// The most frames of one stack; deeper ones are cut at the outer end.
pub const FRAMES: usize = 512;

/// The most processes whose mappings are remembered at a time.
const PROCESSES: usize = 4096;

/// The most functions of one stack whose instructions are read to find their frames.
const FUNCTIONS: u32 = 4;

/// Of so many of the innermost frames it is told where on the stack they begin.
const INNER_FRAMES: usize = 16;

/// The most rules that are remembered: some 20 MB.
const RULES: usize = 1 << 17;

/// How long reading one file may take. A slow disk takes some seconds for the largest library; a later attempt finds what was read in
/// memory.
pub const FILE_TIME_LIMIT: Duration = Duration::from_secs(5);

/// Collects the stacks of threads that are stopped or blocked.
#[derive(Debug, Default)]
pub struct Unwinder {
    spaces: HashMap<u32, AddressSpace>,
    tables: Tables,
    scratch: Scratch,
    lacked_a_register: bool,
    inner: Vec<(u64, u64)>,
    /// The process of the mapping that was last asked for, and the mapping.
    mapped: Option<(u32, Mapping)>,
}

/// What is known of files, whichever process maps them.
#[derive(Debug)]
struct Tables {
    images: Images,
    rules: HashMap<(ImageId, u64), Option<Rule>>,
    /// How far above the stack pointer the frame pointer is, by address of code; `None` where the code does not say. A process may
    /// change its own code, and no other one's.
    frames: HashMap<(u32, ImageId, u64), Option<u64>>,
    context: UnwindContext<usize>,
}

impl Unwinder {
    /// Creates one that knows no process yet.
    #[must_use]
    pub fn new() -> Unwinder {
        Unwinder::default()
    }

    /// Creates one whose files are read by `worker`.
    #[must_use]
    pub fn with_worker(worker: FileWorker) -> Unwinder {
        Unwinder { tables: Tables::read_by(worker), ..Unwinder::default() }
    }

    /// Collects the stack of a thread of `process` that is stopped or blocked with `registers`, reading its memory.
    ///
    /// Nothing of it is an error: what cannot be read ends the stack, and the stack says so.
    pub fn capture(
        &mut self,
        process: u32,
        registers: &KnownRegisters,
        recorder: &mut TraceRecorder,
    ) -> StackId {
        let Unwinder { spaces, tables, scratch, inner, .. } = self;
        let mut stack = RemoteStack::new(process, registers.sp(), scratch);
        let found = walk(FRAMES, process, registers, &mut stack, (spaces, inner), tables, recorder);
        self.lacked_a_register = found.lacked_a_register;
        recorder.stack(found.stack)
    }

    /// Finds the stack of a thread of `process` in `bytes`, a copy of its stack from the stack pointer on.
    pub fn offline(
        &mut self,
        process: u32,
        registers: &KnownRegisters,
        bytes: &[u8],
        recorder: &mut TraceRecorder,
    ) -> StackId {
        self.offline_up_to(FRAMES, process, registers, bytes, recorder)
    }

    /// As [`Unwinder::offline`], but no more than `most` frames, of which there are [`FRAMES`] at most: files of outer ones are not read.
    pub fn offline_up_to(
        &mut self,
        most: usize,
        process: u32,
        registers: &KnownRegisters,
        bytes: &[u8],
        recorder: &mut TraceRecorder,
    ) -> StackId {
        let Unwinder { spaces, tables, inner, .. } = self;
        let mut stack = StackCopy { start: registers.sp(), bytes };
        let found = walk(most, process, registers, &mut stack, (spaces, inner), tables, recorder);
        self.lacked_a_register = found.lacked_a_register;
        recorder.stack(found.stack)
    }

    /// Returns the stack pointers and addresses of the innermost frames of the last stack.
    #[must_use]
    pub fn inner_frames(&self) -> &[(u64, u64)] {
        &self.inner
    }

    /// Returns whether the last stack ended because a register was not given that its code is followed by.
    ///
    /// That is so of programs built with frame pointers when `/proc/PID/syscall` is all that is asked: with the registers
    /// of a stopped thread the stack goes further.
    #[must_use]
    pub fn lacked_a_register(&self) -> bool {
        self.lacked_a_register
    }

    /// Reads the mappings of `process`, for stacks that are unwound after its end.
    pub fn read_mappings(&mut self, process: u32) {
        space(&mut self.spaces, process);
    }

    /// Reads the mappings of `process` again, for stacks that are unwound after its end; what is known stays if it has ended.
    pub(crate) fn refresh_mappings(&mut self, process: u32) {
        let known = space(&mut self.spaces, process);
        known.refresh();
    }

    /// Returns the file that `process` has mapped at `address`; `None` for memory of no file.
    pub(crate) fn mapped_file(&mut self, process: u32, address: u64) -> Option<Vec<u8>> {
        let path = &self.mapping(process, address)?.path;
        path.starts_with(b"/").then(|| path.clone())
    }

    /// Returns whether the memory of `process` at an address is its own, and no file's; `None` if the process has ended.
    pub(crate) fn is_own_memory(&mut self, process: u32, address: u64) -> Option<bool> {
        self.mapping(process, address).map(|mapping| !mapping.path.starts_with(b"/"))
    }

    fn mapping(&mut self, process: u32, address: u64) -> Option<&Mapping> {
        let holds = |mapping: &Mapping| (mapping.start..mapping.end).contains(&address);
        if !self.mapped.as_ref().is_some_and(|(of, mapping)| *of == process && holds(mapping)) {
            let found = maps::read(process).into_iter().find(holds)?;
            self.mapped = Some((process, found));
        }
        self.mapped.as_ref().map(|(_, mapping)| mapping)
    }

    /// Gives `child` the mappings that are known of `parent`, which it was made from: nothing is read.
    pub fn inherit(&mut self, parent: u32, child: u32) {
        if self.spaces.len() < PROCESSES
            && let Some(space) = self.spaces.get(&parent)
        {
            self.spaces.insert(child, space.of_child(child));
        }
    }

    /// Forgets the mappings of `process`, which runs another program now or has ended.
    pub fn forget(&mut self, process: u32) {
        self.spaces.remove(&process);
        self.tables.frames.retain(|(of, ..), _| *of != process);
        self.mapped = None;
    }
}

/// Describes the ELF file at `path` as a module of a recording; none for what is no x86-64 ELF file.
#[must_use]
pub fn module(path: &Path) -> Option<Module> {
    let (file, stat) = space::open(path)?;
    let Image { build_id, .. } = Image::of_file(file).ok()?;
    let path = path.as_os_str().as_bytes().to_vec();
    let file = build_id.is_none().then(|| FileIdentity::of(&stat));
    Some(Module { path, build_id, file, reached_by: None })
}

/// Follows a stack within one ELF file, by the file's own numbering, and returns the addresses that it goes through.
///
/// `stack` holds the bytes from the stack pointer on. It ends at the first address without a rule in the file.
#[must_use]
pub fn follow(file: Vec<u8>, registers: &KnownRegisters, stack: &[u8]) -> Vec<u64> {
    let Ok(image) = Image::of_bytes(file.clone()) else { return Vec::new() };
    let mut stack = StackCopy { start: registers.sp(), bytes: stack };
    let mut context = UnwindContext::new();
    let mut registers = *registers;
    let mut addresses = vec![registers.ip()];
    while addresses.len() < FRAMES {
        let lookup = registers.ip().wrapping_sub(u64::from(addresses.len() > 1));
        let rule = image.tables.iter().find_map(|table| table.rule(lookup, &mut context));
        let Some(rule) = rule else { break };
        if let Some(setup) = &rule.setup
            && !registers.knows_bp()
            && let Some(code) = image.code(&file, setup.set_at, setup.code_len())
            && let Some(distance) = frame_pointer::distance(setup, code)
        {
            registers = registers.bp(registers.sp().wrapping_add(distance));
        }
        let Ok(caller) = rule.step(&registers, &mut stack) else { break };
        registers = caller;
        addresses.push(registers.ip());
    }
    addresses
}

/// Copies memory of a process; `None` if not all of it can be read.
fn remote_bytes(process: u32, address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = sys::remote::read(process, address, &mut bytes).ok()?;
    (read == len).then_some(bytes)
}

/// Returns the mappings of `process`, read now if they are not known.
fn space(spaces: &mut HashMap<u32, AddressSpace>, process: u32) -> &mut AddressSpace {
    if spaces.len() >= PROCESSES && !spaces.contains_key(&process) {
        spaces.clear();
    }
    spaces.entry(process).or_insert_with(|| AddressSpace::read(process))
}

/// A stack, and whether it could have gone further with more registers.
struct UnwindResult {
    stack: Stack,
    lacked_a_register: bool,
}

/// Follows the callers from `registers` on, and notes where the innermost ones are.
fn walk(
    most: usize,
    process: u32,
    registers: &KnownRegisters,
    stack: &mut impl MemoryReader,
    (spaces, inner): (&mut HashMap<u32, AddressSpace>, &mut Vec<(u64, u64)>),
    tables: &mut Tables,
    recorder: &mut TraceRecorder,
) -> UnwindResult {
    inner.clear();
    let mut lacked_a_register = false;
    let space = space(spaces, process);
    let mut may_read_again = true;
    // From the first frame whose pointer is known on the stack tells the others, but for functions that do not keep it.
    let mut unread = FUNCTIONS;
    let mut registers = *registers;
    let mut frames = Vec::new();
    // The first address was not called from: the instruction itself counts, not the one before it.
    let mut is_exact = true;
    let end = loop {
        let ip = registers.ip();
        let lookup = if is_exact { ip } else { ip.wrapping_sub(1) };
        let mut code = space.code(lookup, &mut tables.images, recorder);
        if code.is_none() && may_read_again && ip != 0 {
            // A library that was loaded since.
            may_read_again = false;
            let now = AddressSpace::read(process);
            if !now.is_empty() {
                *space = now;
                code = space.code(lookup, &mut tables.images, recorder);
            }
        }
        let Some(code) = code else {
            if frames.is_empty() {
                frames.push(CodeAddress { module: None, address: ip });
            }
            // Some starts of threads have a caller at 0.
            break if ip == 0 { StackEnd::Whole } else { StackEnd::Lost };
        };
        if frames.len() >= most.min(FRAMES) {
            break StackEnd::Cut;
        }
        frames.push(CodeAddress { module: code.module, address: ip.wrapping_sub(code.bias) });
        if inner.len() < INNER_FRAMES {
            inner.push((registers.sp(), ip));
        }
        if !registers.knows_bp()
            && let Some(image) = code.image
        {
            let mut code_at = |address: u64, len: usize| {
                unread = unread.checked_sub(1)?;
                remote_bytes(process, address.wrapping_add(code.bias), len)
            };
            let address = lookup.wrapping_sub(code.bias);
            let distance = tables.frame_distance((process, image, address), &mut code_at);
            let frame = distance.and_then(|distance| registers.sp().checked_add(distance));
            registers = frame.map_or(registers, |frame| registers.bp(frame));
        }
        let rule = match code.image {
            Some(image) => tables.rule(image, lookup.wrapping_sub(code.bias)),
            None => None,
        };
        let step = match rule {
            Some(rule) => {
                is_exact = rule.is_signal_frame;
                rule.step(&registers, stack)
            }
            // Code that was compiled at run time has no tables; who names it keeps frame pointers, too.
            None if space.names_compiled_code() => {
                is_exact = false;
                registers.follow_frame_pointer(stack)
            }
            None => break StackEnd::Lost,
        };
        match step {
            Ok(caller) => registers = caller,
            Err(UnwindStop::First) => break StackEnd::Whole,
            Err(UnwindStop::Missing) => break StackEnd::Cut,
            Err(UnwindStop::Nowhere) => break StackEnd::Lost,
            Err(UnwindStop::Unknown) => {
                lacked_a_register = true;
                break StackEnd::Lost;
            }
        }
    };
    UnwindResult { stack: Stack { frames, end }, lacked_a_register }
}

impl Default for Tables {
    fn default() -> Tables {
        Tables::read_by(FileWorker::new(FILE_TIME_LIMIT))
    }
}

impl Tables {
    fn read_by(worker: FileWorker) -> Tables {
        Tables {
            images: Images::read_by(worker),
            rules: HashMap::new(),
            frames: HashMap::new(),
            context: UnwindContext::new(),
        }
    }

    /// Returns the rule for `address` in an image, worked out once.
    fn rule(&mut self, image: ImageId, address: u64) -> Option<&Rule> {
        if self.rules.len() >= RULES && !self.rules.contains_key(&(image, address)) {
            self.rules.clear();
        }
        let Tables { images, rules, context, .. } = self;
        rules
            .entry((image, address))
            .or_insert_with(|| {
                let tables = &images.get(image)?.tables;
                tables.iter().find_map(|table| table.rule(address, context))
            })
            .as_ref()
    }

    /// Returns how far above the stack pointer the frame pointer of the code at an address in an image of a process is, if the caller is found by it
    /// and the code says so.
    fn frame_distance(
        &mut self,
        place: (u32, ImageId, u64),
        code_at: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<u64> {
        let (_, image, address) = place;
        let setup = self.rule(image, address)?.setup.as_deref()?.clone();
        if let Some(known) = self.frames.get(&place) {
            return *known;
        }
        let code = code_at(setup.set_at, setup.code_len())?;
        let distance = frame_pointer::distance(&setup, &code);
        if self.frames.len() >= RULES {
            self.frames.clear();
        }
        self.frames.insert(place, distance);
        distance
    }
}
