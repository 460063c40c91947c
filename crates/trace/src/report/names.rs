//! The interface between a report and a symbolizer: the frames of a stack, a call, its arguments.

use serde::{Deserialize, Serialize};

use crate::call::{StackId, TracedCall};
use crate::recording::Recording;
use crate::syscall;
use report::advice::Advice;

/// How sure a function's name is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// From a symbol whose size covers the address, or from debug information.
    Exact,
    /// The function's start is known, its name is not: `libfoo.so!fn@0xab050`.
    Start,
    /// Only the module and the address are known.
    #[default]
    Address,
    /// From a log of strace: the nearest exported symbol, which may be wrong.
    Hearsay,
}

/// A frame as it is shown.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, or the most precise description that is certain.
    pub name: String,
    /// The file that it is in, by its last component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// How sure the name is.
    pub confidence: Confidence,
    /// The source file and line, where debug information has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Whether it belongs to a runtime library between the program and the call, and is folded away at first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folded: bool,
    /// An index into the report's modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<u32>,
    /// The address in that module's own numbering, so that it can be named later.
    #[serde(default)]
    pub address: u64,
}

/// A stack as it is shown, the innermost frame first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The frames.
    pub frames: Vec<Frame>,
    /// Which of them is to blame.
    pub blamed: Option<usize>,
    /// Whether it is an event loop that waits for something to do.
    pub is_idle: bool,
    /// The language whose runtime has the thread rest while the program's functions wait elsewhere.
    pub rests_for: Option<&'static str>,
    /// Whether a function in it waits for an answer.
    pub waits_for_answer: bool,
    /// Whether the call itself is made by such a function, and not by the program's own.
    pub asks: bool,
}

/// Knows names.
pub trait Names {
    /// Returns a stack's frames with their names.
    fn frames(&self, recording: &Recording, stack: StackId) -> Frames;

    /// Returns the name of a call by its number.
    fn call(&self, number: u32) -> String {
        syscall::call_name(number).map_or_else(|| format!("call {number}"), str::to_owned)
    }

    /// Returns the arguments of a call as text where more is known than the registers say.
    fn arguments(&self, _call: &TracedCall) -> Option<String> {
        None
    }

    /// Returns what shows the functions of scripts of which only the interpreter's are known.
    fn script_advice(&self) -> Vec<Advice> {
        Vec::new()
    }

    /// Returns the commands that install the missing symbols.
    fn advice(&self) -> Vec<Advice> {
        Vec::new()
    }
}

/// Knows no name: every frame is its module and address.
#[derive(Clone, Copy, Debug)]
pub struct Unnamed;

impl Names for Unnamed {
    fn frames(&self, recording: &Recording, stack: StackId) -> Frames {
        let Some(stack) = usize::try_from(stack.0).ok().and_then(|at| recording.stacks.get(at))
        else {
            return Frames::default();
        };
        let frames = stack.frames.iter().map(|place| {
            let module =
                place.module.and_then(|at| recording.modules.get(usize::try_from(at).ok()?));
            let module = module.map(|module| super::spelling::spell(last_component(&module.path)));
            let base = module.as_deref().unwrap_or_default();
            Frame {
                name: format!("{base}+{:#x}", place.address),
                module: module.clone(),
                object: place.module,
                address: place.address,
                ..Frame::default()
            }
        });
        Frames { frames: frames.collect(), ..Frames::default() }
    }
}

/// Returns what stands behind the last slash of a path.
pub fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
