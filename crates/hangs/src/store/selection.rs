//! Which records are erased, and what is left of one.

use crate::model::{ERASED_PROGRAM, HangRecord, ProgramSteps, without_helper};

/// What the kernel keeps of the name of a thread, in bytes.
const THREAD_NAME: usize = 15;

/// Which records are erased.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EraseSelection {
    /// Only what ended after this moment, in nanoseconds since 1970.
    pub since_ns: Option<u64>,
    /// Only what began before this moment.
    pub until_ns: Option<u64>,
    /// Only what is about this program; hangs of others stay without its name.
    pub program: Option<String>,
}

impl EraseSelection {
    /// Returns whether everything is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == EraseSelection::default()
    }

    fn meets(&self, from_ns: u64, to_ns: u64) -> bool {
        self.since_ns.is_none_or(|since| to_ns >= since)
            && self.until_ns.is_none_or(|until| from_ns <= until)
    }

    /// Returns what is left of a record, and whether that is less than it was.
    pub(super) fn rest(&self, record: HangRecord) -> (Option<HangRecord>, bool) {
        let meets = |from_ns, to_ns| self.meets(from_ns, to_ns);
        let Some(meant) = self.program.as_deref() else { return rest(record, &meets, None) };
        let names = names_of(meant);
        let is_it = |program: &str| program == meant || without_helper(program) == meant;
        let is_named = |program: &str| is_it(program) || names.contains(&program);
        rest(record, &meets, Some(&MeantProgram { is_it: &is_it, is_named: &is_named }))
    }
}

/// The program that is meant.
pub(super) struct MeantProgram<'a> {
    /// Says whether this is its name, or that of a helper of it.
    pub(super) is_it: &'a dyn Fn(&str) -> bool,
    /// The same, also for what the kernel keeps of its name as that of a thread: others may be called so, too.
    pub(super) is_named: &'a dyn Fn(&str) -> bool,
}

/// Returns by which names a program may be mentioned: its own first, and what the kernel keeps of that as the name of a thread.
pub(super) fn names_of(program: &str) -> Vec<&str> {
    let cut = program.get(..THREAD_NAME).filter(|cut| cut.len() < program.len());
    std::iter::once(program).chain(cut).collect()
}

/// Returns what is left of a record, and whether that is less than it was. `meets` gets the beginning and the end of what it is about;
/// without `meant` all programs are.
pub(super) fn rest(
    record: HangRecord,
    meets: &dyn Fn(u64, u64) -> bool,
    meant: Option<&MeantProgram<'_>>,
) -> (Option<HangRecord>, bool) {
    match record {
        HangRecord::Hang(hang) if !meets(hang.started_ns, hang.ended_ns()) => {
            (Some(HangRecord::Hang(hang)), false)
        }
        HangRecord::Watched(period) if !meets(period.from_ns, period.to_ns) => {
            (Some(HangRecord::Watched(period)), false)
        }
        HangRecord::Hang(mut hang) => match meant {
            Some(meant) if !(meant.is_it)(&hang.program) => {
                let is_less = hang.erase_mentions(meant.is_named);
                (Some(HangRecord::Hang(hang)), is_less)
            }
            _ => (None, true),
        },
        HangRecord::Watched(mut period) => {
            let Some(meant) = meant else { return (None, true) };
            let before = period.programs.len();
            let is_erased = |steps: &ProgramSteps| steps.program == ERASED_PROGRAM;
            period.programs.retain(|steps| is_erased(steps) || !(meant.is_it)(&steps.program));
            let is_less = period.programs.len() < before;
            if is_less && !period.programs.iter().any(is_erased) {
                // Without its hangs the rate of this time is too low, which a comparison has to know.
                let program = ERASED_PROGRAM.to_owned();
                period.programs.push(ProgramSteps { program, ..ProgramSteps::default() });
            }
            (Some(HangRecord::Watched(period)), is_less)
        }
    }
}
