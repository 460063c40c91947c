//! Resolves the addresses of a recording to symbols, for reports.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use regex_lite::Regex;

use super::call::StackId;
use super::recording::Recording;
use super::report::names::{Confidence, Frame, Frames, Names};
use super::stack::blame::{FrameRole, blame, name_builtin, role, runs_script};
use super::stack::interpreters;
use super::stack::names::{self, NameCertainty, SymbolSources};
use super::stack::packages;
use super::stack::waits::{asks, is_idle, rests_for, waits_for_answer};
use super::syscall;
use super::timeline::ShortCallSample;
use report::advice::Advice;

/// The most modules without symbols for which the package with the symbols is looked up.
const MODULES: usize = 3;

/// Resolves symbols of a recording, and chooses the frame to blame.
#[derive(Debug)]
pub struct Symbolizer {
    names: RefCell<names::Names>,
    /// For each stack, a process that had it and the call in which it was captured.
    users: HashMap<StackId, (u32, u32)>,
    wanted: Option<Regex>,
    packages: PathBuf,
    /// The number of the program's frames without a symbol, by module.
    nameless: RefCell<BTreeMap<u32, u64>>,
    seen: RefCell<BTreeSet<StackId>>,
    /// The languages of which only functions of the interpreter are known.
    languages: RefCell<BTreeSet<&'static str>>,
    /// Whether a program named what it compiled.
    names_compiled: Cell<bool>,
    paths: Vec<Vec<u8>>,
}

impl Symbolizer {
    /// Creates a symbolizer for `recording`, which searches in `sources` and prefers to blame files that match `wanted`.
    #[must_use]
    pub fn new(recording: &Recording, sources: SymbolSources, wanted: Option<Regex>) -> Symbolizer {
        let mut users = HashMap::new();
        for call in &recording.slow {
            if let Some(stack) = call.stack {
                users.entry(stack).or_insert((call.process, call.number));
            }
        }
        for (process, timeline) in &recording.timelines {
            let faults = timeline.faults.iter().map(|fault| fault.stack);
            for stack in timeline.samples.iter().map(|(_, stack)| *stack).chain(faults) {
                users.entry(stack).or_insert((*process, u32::MAX));
            }
            for ShortCallSample { call, .. } in &timeline.short_calls {
                let stack = call.stack.into_iter();
                stack.for_each(|stack| _ = users.entry(stack).or_insert((*process, call.number)));
            }
        }
        let mut names = names::Names::new(sources);
        let stack = |id: &StackId| recording.stacks.get(usize::try_from(id.0).ok()?);
        names.read_files(recording, users.keys().filter_map(stack));
        Symbolizer {
            names: RefCell::new(names),
            users,
            wanted,
            packages: "/var/lib/dpkg/info".into(),
            nameless: RefCell::default(),
            seen: RefCell::default(),
            languages: RefCell::default(),
            names_compiled: Cell::default(),
            paths: recording.modules.iter().map(|module| module.path.clone()).collect(),
        }
    }

    /// Counts the frames that would have a name if debug symbols were installed.
    fn count(&self, id: StackId, frames: &[names::Frame]) {
        if !self.seen.borrow_mut().insert(id) {
            return;
        }
        let mut nameless = self.nameless.borrow_mut();
        for frame in frames {
            let without = matches!(frame.trust, NameCertainty::Start | NameCertainty::Offset);
            if let (true, Some(module)) = (without, frame.address.module) {
                *nameless.entry(module).or_default() += 1;
            }
        }
    }
}

/// Returns a frame in the form for reports.
fn shown(frame: &names::Frame) -> Frame {
    Frame {
        name: frame.text(),
        module: Some(frame.module.clone()).filter(|module| !module.is_empty()),
        confidence: match frame.trust {
            NameCertainty::Symbol | NameCertainty::Exported | NameCertainty::Compiled => {
                Confidence::Exact
            }
            NameCertainty::Start => Confidence::Start,
            NameCertainty::Offset => Confidence::Address,
        },
        line: frame.line.as_ref().map(|line| format!("{}:{}", line.file, line.line)),
        folded: matches!(role(frame), FrameRole::Libc | FrameRole::Runtime(_)),
        object: frame.address.module,
        address: frame.address.address,
    }
}

/// Returns the frame to show for the blamed one: itself, or the nearest caller in the same file that has a name.
///
/// Without debug symbols, the innermost function of a library is often a private one; the exported function through which it was
/// called is more informative.
fn named_caller(frames: &[names::Frame], blamed: usize) -> usize {
    let nameless =
        |frame: &names::Frame| matches!(frame.trust, NameCertainty::Start | NameCertainty::Offset);
    let Some(first) = frames.get(blamed) else { return blamed };
    let mut same_file =
        frames.iter().enumerate().skip(blamed).take_while(|(_, one)| one.module == first.module);
    same_file.find(|(_, one)| !nameless(one)).map_or(blamed, |(at, _)| at)
}

impl Names for Symbolizer {
    fn frames(&self, recording: &Recording, id: StackId) -> Frames {
        let stack = usize::try_from(id.0).ok().and_then(|at| recording.stacks.get(at));
        let Some(stack) = stack else { return Frames::default() };
        let (process, number) = self.users.get(&id).copied().unwrap_or((0, u32::MAX));
        let mut named = self.names.borrow_mut().frames(recording, process, stack);
        self.count(id, &named);
        let is_compiled = |frame: &names::Frame| frame.trust == NameCertainty::Compiled;
        self.names_compiled.set(self.names_compiled.get() || named.iter().any(is_compiled));
        let is_idle = is_idle(syscall::call_name(number).unwrap_or_default(), &named);
        let (waits, asks) = (named.iter().any(waits_for_answer), asks(&named));
        let mut blamed = blame(&named, self.wanted.as_ref());
        match name_builtin(&mut named, blamed) {
            Some(language) if language == "Java" || runs_script(&named) => {
                self.languages.borrow_mut().insert(language);
            }
            Some(_) => (),
            None => blamed = blamed.map(|at| named_caller(&named, at)),
        };
        let frames = named.iter().map(shown).collect();
        let rests_for = rests_for(&named);
        Frames { blamed, is_idle, rests_for, waits_for_answer: waits, asks, frames }
    }

    fn script_advice(&self) -> Vec<Advice> {
        // Who has switched it on needs no advice.
        let languages = if self.names_compiled.get() {
            BTreeSet::new()
        } else {
            self.languages.borrow().clone()
        };
        languages.into_iter().filter_map(interpreters::advice).collect()
    }

    fn advice(&self) -> Vec<Advice> {
        let mut modules: Vec<(u32, u64)> =
            self.nameless.borrow().iter().map(|(module, count)| (*module, *count)).collect();
        modules.sort_by_key(|(module, count)| (std::cmp::Reverse(*count), *module));
        let path = |module: u32| {
            let path = self.paths.get(usize::try_from(module).ok()?)?;
            std::str::from_utf8(path).ok()
        };
        let mut advice: Vec<Advice> = Vec::new();
        for path in modules.iter().filter_map(|(module, _)| path(*module)).take(MODULES) {
            // A file that belongs to no package has symbols only where it was built.
            let Some(package) = packages::owner(&self.packages, path) else { continue };
            let name = path.rsplit('/').next().unwrap_or(path);
            let one = Advice {
                text: format!("gives the functions of {name} their names"),
                command: Some(packages::command(&package)),
            };
            if !advice.iter().any(|other| other.command == one.command) {
                advice.push(one);
            }
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::CodeAddress;

    fn frame(name: &str, module: &str, trust: NameCertainty) -> names::Frame {
        names::Frame {
            name: name.to_owned(),
            module: module.to_owned(),
            trust,
            offset: None,
            line: None,
            is_inlined: false,
            address: CodeAddress { module: None, address: 0 },
        }
    }

    #[test]
    fn a_nameless_function_is_shown_by_the_one_that_it_was_called_through() {
        let config = |name, trust| frame(name, "libKF5ConfigCore.so.5", trust);
        let frames = [
            frame("fdatasync", "libc.so.6", NameCertainty::Exported),
            config("fn@0x3aa90", NameCertainty::Start),
            config("fn@0x3bb00", NameCertainty::Start),
            config("KConfig::sync", NameCertainty::Exported),
            frame("main", "kde-open5", NameCertainty::Symbol),
        ];
        assert_eq!(named_caller(&frames, 1), 3);
        assert_eq!(named_caller(&frames, 3), 3);
        assert_eq!(named_caller(&frames[..3], 1), 1, "nobody has a name");
        let other = [frames[1].clone(), frames[4].clone()];
        assert_eq!(named_caller(&other, 0), 0, "another file's function did not do it");
        assert_eq!(named_caller(&[], 0), 0);
    }
}
