//! The names that a log of strace says: hearsay, and marked as that.

use std::collections::HashMap;

use super::line::StackFrame;
use crate::trace::call::{Call, StackId};
use crate::trace::kernel;
use crate::trace::recording::{Address, Recording};
use crate::trace::report::names::{Confidence, Frame, Frames, Names, last_component};
use crate::trace::report::spelling::spell;

/// Names from a log.
#[derive(Debug, Default)]
pub struct LogNames {
    symbols: HashMap<Address, String>,
    /// Names of calls that the kernel's table does not have, from [`super::STRANGER`] on.
    pub(super) calls: Vec<String>,
    arguments: HashMap<(u32, u64), String>,
}

impl LogNames {
    pub(super) fn learn(&mut self, address: Address, frame: &StackFrame<'_>) {
        self.symbols
            .entry(address)
            .or_insert_with(|| String::from_utf8_lossy(frame.symbol).into_owned());
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.symbols.is_empty()
    }

    pub(super) fn keep_arguments(&mut self, call: &Call, name: &str, arguments: &[u8]) {
        let cut = arguments.len() > super::ARGUMENTS;
        let text = String::from_utf8_lossy(&arguments[..arguments.len().min(super::ARGUMENTS)]);
        let text = format!("{name}({}{})", text.trim_end(), if cut { "…" } else { "" });
        self.arguments.insert((call.thread, call.start_ns), text);
    }
}

/// Whether a library stands between a program and its calls, and is folded.
fn is_runtime(module: &str) -> bool {
    const RUNTIME: [&str; 12] = [
        "libc.",
        "libc-",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "libglib-2.0",
        "libgio-2.0",
        "libgobject-2.0",
        "libQt5Core",
        "libQt6Core",
        "libstdc++",
        "libsqlite3",
    ];
    RUNTIME.iter().any(|runtime| module.starts_with(runtime)) || module.starts_with('[')
}

/// Whether a function is an event loop's.
fn is_loop(symbol: &str) -> bool {
    const LOOPS: [&str; 12] = [
        "g_main_context_iterate",
        "g_main_context_iteration",
        "g_main_loop_run",
        "g_main_context_poll",
        "QEventDispatcher",
        "wl_display_dispatch",
        "uv__io_poll",
        "uv_run",
        "event_base_loop",
        "ev_run",
        "sd_event_wait",
        "epoll_dispatch",
    ];
    LOOPS.iter().any(|name| symbol.contains(name))
}

impl Names for LogNames {
    fn frames(&self, recording: &Recording, stack: StackId) -> Frames {
        let Some(stack) = super::stack_of(recording, stack) else { return Frames::default() };
        let mut is_idle = false;
        let mut frames = Vec::with_capacity(stack.frames.len());
        for (depth, place) in stack.frames.iter().enumerate() {
            let module =
                place.module.and_then(|at| recording.modules.get(usize::try_from(at).ok()?));
            let module = module.map(|module| spell(last_component(&module.path)));
            let base = module.as_deref().unwrap_or_default();
            let symbol = self.symbols.get(place).map_or("", String::as_str);
            // Only directly above the call: a stall in a callback has a loop further up too.
            is_idle |= depth < 4 && is_loop(symbol);
            // The offset says nothing to a person, and keeps one function's frames apart.
            let name = symbol.rsplit_once('+').map_or(symbol, |(name, _)| name);
            let (name, confidence) = if name.is_empty() {
                (format!("{base}+{:#x}", place.address), Confidence::Address)
            } else {
                (name.to_owned(), Confidence::Hearsay)
            };
            frames.push(Frame {
                name,
                confidence,
                folded: is_runtime(base),
                module,
                line: None,
                object: place.module,
                address: place.address,
            });
        }
        Frames { blamed: None, frames, is_idle }
    }

    fn call(&self, number: u32) -> String {
        let stranger = number.checked_sub(super::STRANGER).and_then(|at| usize::try_from(at).ok());
        let stranger = stranger.and_then(|at| self.calls.get(at)).cloned();
        stranger
            .or_else(|| kernel::call_name(number).map(str::to_owned))
            .unwrap_or_else(|| "?".to_owned())
    }

    fn arguments(&self, call: &Call) -> Option<String> {
        self.arguments.get(&(call.thread, call.start_ns)).cloned()
    }
}
