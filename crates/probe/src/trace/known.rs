//! The names that a report asks for, from the files that a recording names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use regex_lite::Regex;

use super::call::StackId;
use super::kernel;
use super::recording::Recording;
use super::report::names::{Confidence, Frame, Frames, Names};
use super::stack::blame::{Role, blame, is_idle, role};
use super::stack::names::{self, Sources, Trust};
use super::stack::packages;
use crate::report::advice::Advice;

/// For at most so many nameless modules the package with the symbols is looked up.
const MODULES: usize = 3;

/// Knows the names of a recording's functions, and whose fault a stack is.
#[derive(Debug)]
pub struct Known {
    names: RefCell<names::Names>,
    /// For each stack a process that had it and the call that it was taken in.
    users: HashMap<StackId, (u32, u32)>,
    wanted: Option<Regex>,
    packages: PathBuf,
    /// How many frames of the program's own lack a name, by module.
    nameless: RefCell<BTreeMap<u32, u64>>,
    seen: RefCell<BTreeSet<StackId>>,
    paths: Vec<Vec<u8>>,
}

impl Known {
    /// Makes one for `recording`, which looks in `sources` and blames files that match `wanted` before others.
    #[must_use]
    pub fn new(recording: &Recording, sources: Sources, wanted: Option<Regex>) -> Known {
        let mut users = HashMap::new();
        for call in &recording.slow {
            if let Some(stack) = call.stack {
                users.entry(stack).or_insert((call.process, call.number));
            }
        }
        Known {
            names: RefCell::new(names::Names::new(sources)),
            users,
            wanted,
            packages: "/var/lib/dpkg/info".into(),
            nameless: RefCell::default(),
            seen: RefCell::default(),
            paths: recording.modules.iter().map(|module| module.path.clone()).collect(),
        }
    }

    /// Counts the frames that would have a name if somebody had the symbols.
    fn count(&self, id: StackId, frames: &[names::Frame]) {
        if !self.seen.borrow_mut().insert(id) {
            return;
        }
        let mut nameless = self.nameless.borrow_mut();
        for frame in frames {
            let without = matches!(frame.trust, Trust::Start | Trust::Offset);
            if let (true, Some(module)) = (without, frame.address.module) {
                *nameless.entry(module).or_default() += 1;
            }
        }
    }
}

/// Returns a frame as reports show it.
fn shown(frame: &names::Frame) -> Frame {
    Frame {
        name: frame.text(),
        module: Some(frame.module.clone()).filter(|module| !module.is_empty()),
        confidence: match frame.trust {
            Trust::Symbol | Trust::Exported | Trust::Compiled => Confidence::Exact,
            Trust::Start => Confidence::Start,
            Trust::Offset => Confidence::Address,
        },
        line: frame.line.as_ref().map(|line| format!("{}:{}", line.file, line.line)),
        folded: matches!(role(frame), Role::Libc | Role::Runtime(_)),
        object: frame.address.module,
        address: frame.address.address,
    }
}

/// Returns the frame to show for the blamed one: itself, or the nearest caller in the same file that has a name.
///
/// Without debug symbols the innermost function of a library is often one that the file keeps to itself; the one that it was called
/// through is what a person can look up.
fn named_caller(frames: &[names::Frame], blamed: usize) -> usize {
    let nameless = |frame: &names::Frame| matches!(frame.trust, Trust::Start | Trust::Offset);
    let Some(first) = frames.get(blamed) else { return blamed };
    let mut same_file =
        frames.iter().enumerate().skip(blamed).take_while(|(_, one)| one.module == first.module);
    same_file.find(|(_, one)| !nameless(one)).map_or(blamed, |(at, _)| at)
}

impl Names for Known {
    fn frames(&self, recording: &Recording, id: StackId) -> Frames {
        let stack = usize::try_from(id.0).ok().and_then(|at| recording.stacks.get(at));
        let Some(stack) = stack else { return Frames::default() };
        let (process, number) = self.users.get(&id).copied().unwrap_or((0, u32::MAX));
        let named = self.names.borrow_mut().frames(recording, process, stack);
        self.count(id, &named);
        Frames {
            blamed: blame(&named, self.wanted.as_ref()).map(|at| named_caller(&named, at)),
            is_idle: is_idle(kernel::call_name(number).unwrap_or_default(), &named),
            frames: named.iter().map(shown).collect(),
        }
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
            // What no package brought has symbols where it was built, if anywhere.
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
    use crate::trace::recording::Address;

    fn frame(name: &str, module: &str, trust: Trust) -> names::Frame {
        names::Frame {
            name: name.to_owned(),
            module: module.to_owned(),
            trust,
            offset: None,
            line: None,
            is_inlined: false,
            address: Address { module: None, address: 0 },
        }
    }

    #[test]
    fn a_nameless_function_is_shown_by_the_one_that_it_was_called_through() {
        let config = |name, trust| frame(name, "libKF5ConfigCore.so.5", trust);
        let frames = [
            frame("fdatasync", "libc.so.6", Trust::Exported),
            config("fn@0x3aa90", Trust::Start),
            config("fn@0x3bb00", Trust::Start),
            config("KConfig::sync", Trust::Exported),
            frame("main", "kde-open5", Trust::Symbol),
        ];
        assert_eq!(named_caller(&frames, 1), 3);
        assert_eq!(named_caller(&frames, 3), 3);
        assert_eq!(named_caller(&frames[..3], 1), 1, "nobody has a name");
        let other = [frames[1].clone(), frames[4].clone()];
        assert_eq!(named_caller(&other, 0), 0, "another file's function did not do it");
        assert_eq!(named_caller(&[], 0), 0);
    }
}
