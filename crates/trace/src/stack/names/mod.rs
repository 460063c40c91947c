//! Names of functions, looked up after the run: the best that is certain, and never a wrong one.
//!
//! A symbol names an address only if its size reaches that far and the unwind tables agree that no other function began
//! in between. Where there is no such symbol the function is named by where it begins, `fn@0xab050`, which is the same in
//! every run and can be grouped by; and where not even that is known, the offset is shown.

mod demangle;
mod files;
mod jit;
mod lines;
mod symbols;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sys::file_worker::FileWorker;

use self::files::{Files, device_of, path_of};
use self::jit::Compiled;
pub use self::lines::SourceLine;
use super::FILE_TIME_LIMIT;
use super::cfi::Function;
use crate::recording::{CodeAddress, Module, Recording, Stack};

/// The most processes whose compiled functions are remembered.
const PROCESSES: usize = 256;

/// The most threads that read files at a time.
const READERS: usize = 4;

/// Where names are looked for, apart from the files themselves.
#[derive(Clone, Debug)]
pub struct SymbolSources {
    /// Directories of separate debug files: `/usr/lib/debug`.
    pub debug_directories: Vec<PathBuf>,
    /// Where debuginfod's client keeps what it fetched; nothing is fetched by us.
    pub debuginfod_cache: Option<PathBuf>,
    /// Where programs that compile at run time say what they compiled: `/tmp`.
    pub compiled: Option<PathBuf>,
}

impl Default for SymbolSources {
    fn default() -> SymbolSources {
        SymbolSources {
            debug_directories: vec!["/usr/lib/debug".into()],
            debuginfod_cache: None,
            compiled: Some(super::space::COMPILED.into()),
        }
    }
}

/// The name of what a signal's handler returns to: the frame below was not called but interrupted the one above.
pub const SIGNAL: &str = "<signal handler called>";

/// How much a frame's name can be trusted, and what it means; the best first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum NameCertainty {
    /// A symbol that covers the address, or debug information.
    Symbol,
    /// A symbol that the file shows to others and that covers the address.
    Exported,
    /// The program itself named the code that it compiled.
    Compiled,
    /// Where the function begins is certain, its name is not known.
    Start,
    /// Only the place in the file is known.
    Offset,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its name without parameters: `KConfig::sync`, `fn@0xab050`, `+0x1234`.
    pub name: String,
    /// The file that it is in, by its last component: `libKF5ConfigCore.so.5`; empty where there is none.
    pub module: String,
    /// How certain the name is.
    pub trust: NameCertainty,
    /// How far from the beginning of the function the address is, where that is known.
    pub offset: Option<u64>,
    /// Where in its source it is, where debug information says so.
    pub line: Option<SourceLine>,
    /// Whether the compiler put it into the function that follows.
    pub is_inlined: bool,
    /// The address that was recorded.
    pub address: CodeAddress,
}

impl Frame {
    /// Returns the name with the file where the name alone says too little: `libfoo.so.1!fn@0xab050`, `libfoo.so.1+0x1234`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.trust {
            NameCertainty::Start => format!("{}!{}", self.module, self.name),
            NameCertainty::Offset => format!("{}{}", self.module, self.name),
            _ => self.name.clone(),
        }
    }
}

/// Looks names up, and remembers what it read.
#[derive(Debug)]
pub struct Names {
    sources: SymbolSources,
    files: HashMap<Module, Files>,
    worker: FileWorker,
    compiled: HashMap<u32, Compiled>,
    named: HashMap<(Module, u64, bool), Vec<Frame>>,
}

impl Names {
    /// Creates one that looks in `sources`.
    #[must_use]
    pub fn new(sources: SymbolSources) -> Names {
        Names::with_worker(sources, FileWorker::new(FILE_TIME_LIMIT))
    }

    /// Creates one that looks in `sources`, whose files are read by `worker`.
    #[must_use]
    pub fn with_worker(sources: SymbolSources, worker: FileWorker) -> Names {
        Names {
            sources,
            files: HashMap::new(),
            worker,
            compiled: HashMap::new(),
            named: HashMap::new(),
        }
    }

    /// Reads the files of the modules that these stacks go through, on all processors; what is not read is read when it is needed.
    pub fn read_files<'recording>(
        &mut self,
        recording: &'recording Recording,
        stacks: impl Iterator<Item = &'recording Stack>,
    ) {
        let addresses = stacks.flat_map(|stack| &stack.frames);
        let modules: BTreeSet<u32> = addresses.filter_map(|address| address.module).collect();
        let module = |at: &u32| recording.modules.get(usize::try_from(*at).ok()?);
        let unread = |module: &&Module| !self.files.contains_key(*module);
        let mut modules: Vec<&Module> = modules.iter().filter_map(module).filter(unread).collect();
        // The largest is taken first: nobody waits for it at the end.
        modules.sort_by_cached_key(|module| len_bytes(module, &mut self.worker));
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let count = count.min(modules.len()).min(READERS);
        let queue = Mutex::new(modules);
        let (sources, known_worker) = (&self.sources, &self.worker);
        let read = || {
            let (mut read, mut worker) = (Vec::new(), known_worker.clone());
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(module) = next else { return read };
                read.extend(
                    Files::of(module, sources, &mut worker).map(|files| (module.clone(), files)),
                );
            }
        };
        let files: Vec<(Module, Files)> = std::thread::scope(|scope| {
            let other = |_| sys::thread::spawn_scoped(scope, "symbols", read).ok();
            let others: Vec<_> = (1..count).map_while(other).collect();
            let own = read();
            let others = others.into_iter().filter_map(|other| other.join().ok());
            own.into_iter().chain(others.flatten()).collect()
        });
        self.files.extend(files);
    }

    /// Returns the frames of `stack`, which `process` had, the innermost first; an inlined function is a frame of its own.
    pub fn frames(&mut self, recording: &Recording, process: u32, stack: &Stack) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(stack.frames.len());
        // The innermost is where the thread is; the others are where it will return to, which is behind the call.
        let mut is_exact = true;
        for address in &stack.frames {
            let index = address.module.and_then(|index| usize::try_from(index).ok());
            let Some(module) = index.and_then(|index| recording.modules.get(index)) else {
                frames.push(self.without_file(process, *address));
                is_exact = false;
                continue;
            };
            let (named, is_signal_frame) = self.in_file(module, *address, is_exact);
            frames.extend(named);
            // What a signal interrupted did not call.
            is_exact = is_signal_frame;
        }
        frames
    }

    fn without_file(&mut self, process: u32, address: CodeAddress) -> Frame {
        let at = address.address;
        let mut frame = Frame {
            name: format!("0x{at:x}"),
            module: String::new(),
            trust: NameCertainty::Offset,
            offset: None,
            line: None,
            is_inlined: false,
            address,
        };
        if let Some(directory) = &self.sources.compiled {
            if self.compiled.len() >= PROCESSES {
                self.compiled.clear();
            }
            let read = || Compiled::read(directory, process);
            let compiled = self.compiled.entry(process).or_insert_with(read);
            if let Some((name, start)) = compiled.find(at) {
                frame.name = name.to_owned();
                frame.trust = NameCertainty::Compiled;
                frame.offset = Some(at - start);
            }
        }
        frame
    }

    /// Names an address of a file, and returns whether a signal's handler returns there.
    fn in_file(
        &mut self,
        module: &Module,
        address: CodeAddress,
        is_exact: bool,
    ) -> (Vec<Frame>, bool) {
        let Names { sources, files, named, worker, .. } = self;
        if !files.contains_key(module) {
            let Some(read) = Files::of(module, sources, worker) else {
                let unread = name(&Files::default(), module, address, address.address, None);
                return (unread, false);
            };
            files.insert(module.clone(), read);
        }
        let Some(files) = files.get(module) else { return (Vec::new(), false) };
        let lookup = if is_exact { address.address } else { address.address.wrapping_sub(1) };
        let function = files.image.function(lookup);
        let is_signal_frame = function.as_ref().is_some_and(|function| function.is_signal_frame);
        // A handler returns to the first instruction of the trampoline.
        let lookup = if is_signal_frame { address.address } else { lookup };
        let key = (module.clone(), address.address, is_exact);
        let mut frames = named
            .entry(key)
            .or_insert_with(|| name(files, module, address, lookup, function.as_ref()))
            .clone();
        for frame in &mut frames {
            frame.address = address;
        }
        (frames, is_signal_frame)
    }
}

/// Returns how long the file of a module is; 0 if there is none, or it is not told in time.
fn len_bytes(module: &Module, worker: &mut FileWorker) -> u64 {
    let path = path_of(module);
    let of_file = path.clone();
    let asked = move || std::fs::metadata(of_file).map_or(0, |file| file.len());
    worker.run(|| device_of(&path), asked).unwrap_or_default()
}

/// Climbs down the ladder of names.
fn name(
    files: &Files,
    module: &Module,
    address: CodeAddress,
    lookup: u64,
    function: Option<&Function>,
) -> Vec<Frame> {
    let short = short(&module.path);
    let mut frames = Vec::new();
    let mut frame = Frame {
        name: format!("+0x{lookup:x}"),
        module: short.clone(),
        trust: NameCertainty::Offset,
        offset: None,
        line: None,
        is_inlined: false,
        address,
    };
    let full = files.full.iter().find_map(|symbols| symbols.find(lookup, function));
    let found = full.map(|found| (found, NameCertainty::Symbol)).or_else(|| {
        files.exported.find(lookup, function).map(|found| (found, NameCertainty::Exported))
    });
    if let Some((found, trust)) = found {
        frame.name = demangle::demangled(found.name);
        frame.trust = trust;
        frame.offset = address.address.checked_sub(found.start);
    } else if function.is_some_and(|function| function.is_signal_frame) {
        // The tables say so; the few instructions there have no name of their own.
        frame.name = SIGNAL.to_owned();
        frame.trust = NameCertainty::Symbol;
    } else if let Some(function) = function {
        frame.name = format!("fn@0x{:x}", function.range.start);
        frame.trust = NameCertainty::Start;
        frame.offset = address.address.checked_sub(function.range.start);
    }
    let mut sources = files.lines.as_ref().map(|lines| lines.find(lookup)).unwrap_or_default();
    // The last is the function itself: its symbol has the better name, of several names the public one.
    if let Some(own) = sources.pop() {
        // Compilers say of some functions that they are inlined into themselves.
        sources.retain(|inlined| inlined.name != own.name);
        frame.line = own.line;
        if frame.trust > NameCertainty::Exported
            && let Some(name) = own.name
        {
            frame.name = demangle::demangled(&name);
            frame.trust = NameCertainty::Symbol;
        }
    }
    for inlined in sources {
        let Some(name) = inlined.name else { continue };
        frames.push(Frame {
            name: demangle::demangled(&name),
            trust: NameCertainty::Symbol,
            offset: None,
            line: inlined.line,
            is_inlined: true,
            module: short.clone(),
            address,
        });
    }
    frames.push(frame);
    frames
}

/// Returns the last component of a path: `libc.so.6`.
fn short(path: &[u8]) -> String {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(last).into_owned()
}
