//! Names from a log of strace, which may be wrong and are marked as such.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::line::StackFrame;
use sys::syscall;
use trace::call::{StackId, TracedCall};
use trace::recording::{CodeAddress, Recording};
use trace::report::names::{Confidence, Frame, Frames, Names, last_component};
use trace::report::spelling::spell;
use trace::stack::blame::{self, FrameRole};
use trace::stack::names::{self, NameCertainty};
use trace::stack::waits;

/// Names from a log.
#[derive(Debug, Default)]
pub struct LogNames {
    symbols: HashMap<CodeAddress, String>,
    /// Names of calls that the kernel's table does not have, from [`super::STRANGER`] on.
    pub(super) calls: Vec<String>,
    arguments: HashMap<(u32, u64), String>,
    calls_of_stacks: OnceCell<HashMap<StackId, u32>>,
}

impl LogNames {
    pub(super) fn learn(&mut self, address: CodeAddress, frame: &StackFrame<'_>) {
        self.symbols
            .entry(address)
            .or_insert_with(|| String::from_utf8_lossy(frame.symbol).into_owned());
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.symbols.is_empty()
    }

    pub(super) fn keep_arguments(&mut self, call: &TracedCall, name: &str, arguments: &[u8]) {
        let cut = arguments.len() > super::ARGUMENTS;
        let text = String::from_utf8_lossy(&arguments[..arguments.len().min(super::ARGUMENTS)]);
        let text = format!("{name}({}{})", text.trim_end(), if cut { "…" } else { "" });
        self.arguments.insert((call.thread, call.start_ns), text);
    }
}

/// Returns the symbol of a frame without its offset and its parameters, as names are compared.
fn function(symbol: &str) -> &str {
    let name = symbol.rsplit_once('+').map_or(symbol, |(name, _)| name);
    // `operator()(int)` keeps its own parentheses.
    let from = name.find("operator()").map_or(0, |at| at + "operator()".len());
    name[from..].find('(').map_or(name, |at| &name[..from + at])
}

impl Names for LogNames {
    fn frames(&self, recording: &Recording, id: StackId) -> Frames {
        let Some(stack) = super::stack_of(recording, id) else { return Frames::default() };
        let mut known = Vec::with_capacity(stack.frames.len());
        for place in &stack.frames {
            let module =
                place.module.and_then(|at| recording.modules.get(usize::try_from(at).ok()?));
            let module = module.map(|module| spell(last_component(&module.path)));
            let symbol = self.symbols.get(place).map_or("", String::as_str);
            let is_named = !function(symbol).is_empty();
            known.push(names::Frame {
                name: if is_named {
                    function(symbol).to_owned()
                } else {
                    format!("+{:#x}", place.address)
                },
                module: module.unwrap_or_default(),
                trust: if is_named { NameCertainty::Exported } else { NameCertainty::Offset },
                offset: None,
                line: None,
                is_inlined: false,
                address: *place,
            });
        }
        let calls = self.calls_of_stacks.get_or_init(|| {
            let calls = recording.slow.iter().filter_map(|call| Some((call.stack?, call.number)));
            calls.collect()
        });
        let call = calls.get(&id).map(|number| self.call(*number)).unwrap_or_default();
        let (blamed, is_idle) = (blame::blame(&known, None), waits::is_idle(&call, &known));
        let waits_for_answer = known.iter().any(waits::waits_for_answer);
        let asks = waits::asks(&known);
        let frames = known.into_iter().map(|frame| Frame {
            name: frame.text(),
            confidence: match frame.trust {
                NameCertainty::Offset => Confidence::Address,
                _ => Confidence::Hearsay,
            },
            folded: matches!(blame::role(&frame), FrameRole::Libc | FrameRole::Runtime(_)),
            module: Some(frame.module).filter(|module| !module.is_empty()),
            line: None,
            object: frame.address.module,
            address: frame.address.address,
        });
        Frames {
            frames: frames.collect(),
            blamed,
            is_idle,
            waits_for_answer,
            asks,
            ..Frames::default()
        }
    }

    fn call(&self, number: u32) -> String {
        let stranger = number.checked_sub(super::STRANGER).and_then(|at| usize::try_from(at).ok());
        let stranger = stranger.and_then(|at| self.calls.get(at)).cloned();
        stranger
            .or_else(|| syscall::call_name(number).map(str::to_owned))
            .unwrap_or_else(|| "?".to_owned())
    }

    fn arguments(&self, call: &TracedCall) -> Option<String> {
        self.arguments.get(&(call.thread, call.start_ns)).cloned()
    }
}
