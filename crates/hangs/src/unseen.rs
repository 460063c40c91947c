//! What a record of a hang does not contain, and how that is said.

/// What a record does not contain.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UnseenParts(pub u8);

impl UnseenParts {
    /// The functions that ran on a processor: the kernel allows no samples.
    pub const FUNCTIONS: UnseenParts = UnseenParts(1);
    /// The stack, as it was not read before the hang ended; of a hang with frames, what is beyond them.
    pub const STACK: UnseenParts = UnseenParts(1 << 1);
    /// The files and peers of calls.
    pub const OBJECTS: UnseenParts = UnseenParts(1 << 2);
    /// A time in which the recorder itself did not run.
    pub const GAP: UnseenParts = UnseenParts(1 << 3);
    /// Whether it is one step or several: the kernel allows no breakpoint at the wait of the main loop.
    pub const STEPS: UnseenParts = UnseenParts(1 << 4);
    /// Some of the waits: they came faster than the kernel could report them.
    pub const WAITS: UnseenParts = UnseenParts(1 << 5);
    /// What came before its first wait, which was taken for that of the main loop.
    pub const START: UnseenParts = UnseenParts(1 << 6);
    /// Whether it is one step or several: the looks for events in it were not known in time, or not seen because others use the
    /// breakpoints of the processor.
    pub const LOOKS: UnseenParts = UnseenParts(1 << 7);

    /// Returns whether a part is missing.
    #[must_use]
    pub fn has(self, part: UnseenParts) -> bool {
        self.0 & part.0 != 0
    }

    /// Returns whether it may have been longer than what was seen of it.
    #[must_use]
    pub fn has_unseen_time(self) -> bool {
        self.has(UnseenParts::GAP) || self.has(UnseenParts::START)
    }

    /// Returns whether it may be several steps.
    #[must_use]
    pub fn may_be_several(self) -> bool {
        self.has(UnseenParts::STEPS) || self.has(UnseenParts::LOOKS)
    }

    /// Returns this without what is missing before it began.
    #[must_use]
    pub(crate) fn of_later_step(self) -> UnseenParts {
        UnseenParts(self.0 & !(UnseenParts::START.0 | UnseenParts::GAP.0))
    }

    /// Adds a part.
    pub fn add(&mut self, part: UnseenParts) {
        self.0 |= part.0;
    }

    /// Returns a sentence for each part that is missing of a hang with or without frames.
    #[must_use]
    pub fn sentences(self, has_frames: bool) -> Vec<&'static str> {
        let all = [
            (
                UnseenParts::FUNCTIONS,
                "The functions that ran are not known: kernel.perf_event_paranoid is above 2, and allows no samples.",
            ),
            (
                UnseenParts::STACK,
                if has_frames {
                    "The outer callers are not known: the stack could not be followed further."
                } else {
                    "The callers are not known: no wait lasted until they were read."
                },
            ),
            (
                UnseenParts::OBJECTS,
                "The file or peer is not known: it could not be read, or not before the wait ended.",
            ),
            (
                UnseenParts::STEPS,
                "It may be several steps, each shorter, with looks for events in between that took no time: kernel.perf_event_paranoid is above 2, and allows no breakpoint at the wait of the main loop.",
            ),
            (
                UnseenParts::LOOKS,
                "It may be several steps, each shorter: looks for events that took no time could not all be seen, or what they were was not known in time.",
            ),
            (
                UnseenParts::WAITS,
                "Some calls are not known by name: they came faster than the kernel could report them.",
            ),
            (
                UnseenParts::START,
                "It may have begun earlier, or be several steps: its first wait was taken for that of the main loop.",
            ),
            (UnseenParts::GAP, "The recorder itself did not run for a part of this time."),
        ];
        all.into_iter().filter(|(part, _)| self.has(*part)).map(|(_, text)| text).collect()
    }
}
