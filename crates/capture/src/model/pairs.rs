//! Matches replies with calls, by the caller's unique name and the call's serial, for each bus.

use foldhash::HashMap;

use super::texts::Text;

/// Calls that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    waiting: HashMap<(u16, Text, u32), u32>,
}

impl Pairs {
    /// Notes the call `number` of this caller; one with the same serial before it gets no answer any more.
    pub(super) fn call(&mut self, bus: u16, caller: Text, serial: u32, number: u32) {
        self.waiting.insert((bus, caller, serial), number);
    }

    /// Returns the call that an answer to this caller belongs to; a second answer belongs to none.
    pub(super) fn answer(&mut self, bus: u16, caller: Text, serial: u32) -> Option<u32> {
        if let Some(number) = self.waiting.remove(&(bus, caller, serial)) {
            return Some(number);
        }
        // Between two programs without a bus nobody has a name.
        self.waiting.remove(&(bus, Text::NONE, serial))
    }

    /// Returns the calls without an answer, in no order.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> {
        self.waiting.values().copied()
    }

    /// Forgets calls before the message `first`.
    pub(super) fn forget(&mut self, first: u32) {
        self.waiting.retain(|_, number| *number >= first);
    }
}
