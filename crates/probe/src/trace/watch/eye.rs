//! The half of the watch by looking that looks: it never waits for names, nor for whoever is told.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use session::clock::{Clock, SystemClock};

use super::Options;
use super::find::Finder;
use super::teller::{Goal, STACKS};
use crate::trace::backend::peek::pace::Pace;
use crate::trace::backend::peek::sampler::{Block, Found, Sampler, Scope, Witness};
use crate::trace::backend::procfs;
use crate::trace::call::{Outcome, StackId};
use crate::trace::kernel::runs_program;
use crate::trace::place::{Made, Places};
use crate::trace::recorder::Recorder;
use crate::trace::recording::Backend;
use crate::trace::stack::Registers;

/// The share of a CPU that it may take all day.
const BUDGET: f64 = 0.003;

/// The most periods between looks, also where they cost more than that: stays shall be seen.
const PERIODS: u32 = 4;

/// The most of a stack that is copied.
const STACK: usize = 256 << 10;

/// The most words that wait to be told, some of them with a copy of a stack.
pub(super) const WORDS: usize = 128;

/// What the eye says.
#[derive(Debug)]
pub(super) enum Word {
    /// A process is looked at from now on, which runs this program.
    Found { process: u32, executable: Vec<u8> },
    /// A thread has stayed for the threshold, and still does.
    Reached(Box<Copied>),
    /// A thread left, or the watch ends.
    Left(Box<Stay>),
    /// A process runs another program, or its thread could not be found.
    Changed { process: u32 },
    /// A process may not be looked at.
    Refused { process: u32 },
    /// A process is gone.
    Ended { process: u32 },
}

/// The stack of a thread that stays in a call.
#[derive(Debug)]
pub(super) struct Copied {
    /// The number of the copy.
    pub(super) number: u32,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) registers: Registers,
    /// The stack from its pointer on.
    pub(super) bytes: Vec<u8>,
}

/// A stay.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) block: Block,
    pub(super) outcome: Outcome,
    /// The number of the copy of its stack, if it did not move while that was made.
    pub(super) copy: Option<u32>,
    pub(super) goal: Option<Goal>,
}

/// How often it looks: five times in the length of a stay that is told.
fn period(threshold: Duration) -> Duration {
    (threshold / 5).clamp(Duration::from_millis(2), Duration::from_millis(50))
}

/// Looks until `stop` is set, what was given by its number has ended, or nobody hears; returns how many stays were lost.
pub(super) fn watch(
    options: &Options,
    stop: &AtomicBool,
    clock: &SystemClock,
    say: SyncSender<Word>,
) -> io::Result<u64> {
    let now = || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let mut eye = Eye::new(say, clock);
    let mut finder = Finder::new(options.subject.clone());
    let mut samplers: BTreeMap<u32, Sampler> = BTreeMap::new();
    let mut pace = Pace::new(period(options.threshold), BUDGET).at_most(PERIODS);
    while !stop.load(Ordering::Relaxed) && !eye.is_alone {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            samplers.insert(process, Sampler::new(process, Scope::First, threshold));
            eye.say(Word::Found { process, executable: procfs::executable(process) });
        }
        for process in change.gone {
            if let Some(mut sampler) = samplers.remove(&process) {
                // It may have gone out of a call that it stayed in.
                sampler.end(&mut eye);
            }
            eye.programs.remove(&process);
            eye.say(Word::Ended { process });
        }
        if finder.is_over() {
            break;
        }
        samplers.retain(|process, sampler| {
            sampler.round(now, &mut eye);
            if !sampler.may_look() {
                eye.say(Word::Refused { process: *process });
            }
            sampler.may_look()
        });
        pace.rest()?;
    }
    for block in samplers.values().flat_map(Sampler::staying) {
        eye.left_with(&block, Outcome::Running);
    }
    Ok(eye.lost)
}

/// Hears of stays, and says them on.
struct Eye {
    say: SyncSender<Word>,
    recorder: Recorder,
    places: Places,
    /// What threads that stay somewhere work on, by the thread.
    goals: HashMap<u32, Goal>,
    /// What processes run.
    programs: HashMap<u32, Vec<u8>>,
    copies: u32,
    lost: u64,
    is_alone: bool,
}

impl Eye {
    fn new(say: SyncSender<Word>, clock: &SystemClock) -> Eye {
        Eye {
            say,
            recorder: Recorder::new(Backend::Peek, Vec::new(), clock.now()),
            places: Places::new(),
            goals: HashMap::new(),
            programs: HashMap::new(),
            copies: 0,
            lost: 0,
            is_alone: false,
        }
    }

    /// Says what is rare, and must arrive.
    fn say(&mut self, word: Word) {
        self.is_alone |= self.say.send(word).is_err();
    }

    /// Says what can be lost where stays come faster than they can be told; says whether it arrived.
    fn try_to_say(&mut self, word: Word) -> bool {
        match self.say.try_send(word) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                self.is_alone = true;
                false
            }
        }
    }

    fn left_with(&mut self, block: &Block, outcome: Outcome) {
        let copy = block.found.and_then(|found| found.stack).map(|StackId(number)| number);
        let goal = self.goals.remove(&block.thread);
        // Not known to be of this call if it moved meanwhile.
        let goal = goal.filter(|_| block.found.is_some_and(|found| found.stack.is_some()));
        let stay = Stay { block: *block, outcome, copy, goal };
        if !self.try_to_say(Word::Left(Box::new(stay))) {
            self.lost += 1;
        }
    }
}

impl Witness for Eye {
    fn wants(&self, _number: u32) -> bool {
        true
    }

    /// Copies the stack; the number of the copy stands for that of the stack.
    fn reached(&mut self, block: &Block) -> Found {
        let Block { process, thread, glance, .. } = *block;
        let (number, arguments) = (glance.number, glance.arguments);
        self.copies = self.copies.wrapping_add(1);
        // Of a call that runs another program the stack may be the new one's already.
        if !runs_program(number) {
            let mut bytes = vec![0; STACK];
            let read = sys::remote::read(process, glance.sp, &mut bytes).unwrap_or(0);
            bytes.truncate(read);
            bytes.shrink_to_fit();
            let registers = Registers::new(glance.ip, glance.sp);
            let copied = Copied { number: self.copies, process, thread, registers, bytes };
            // Without it the stay is told without its callers.
            self.try_to_say(Word::Reached(Box::new(copied)));
        }
        if self.recorder.recording().targets.len() > STACKS {
            let began = self.recorder.recording().began;
            self.recorder = Recorder::new(Backend::Peek, Vec::new(), began);
        }
        let made = Made { process, thread, number, arguments, returned: None };
        let target = self.places.target(&made, &mut self.recorder);
        self.goals.remove(&thread);
        if let Some(goal) = target.and_then(|target| Goal::of(target, &mut self.recorder)) {
            self.goals.insert(thread, goal);
        }
        Found { stack: Some(StackId(self.copies)), target: None }
    }

    fn left(&mut self, block: &Block) {
        self.left_with(block, Outcome::Unknown);
    }

    fn met(&mut self, process: u32, _thread: u32) {
        self.programs.insert(process, procfs::executable(process));
    }

    fn again(&mut self, process: u32) {
        let runs = procfs::executable(process);
        if !runs.is_empty() && self.programs.get(&process) != Some(&runs) {
            self.programs.insert(process, runs);
            self.places.forget(process);
            self.say(Word::Changed { process });
        }
    }

    fn lost(&mut self, process: u32, thread: u32) {
        self.places.forget(process);
        self.goals.remove(&thread);
        self.say(Word::Changed { process });
    }
}
