//! The watch that only looks, as any user may at their own programs: the half that unwinds, names and tells.
//!
//! A thread of its own looks (`eye.rs`). Finding the names of a stack for the first time reads large files; looking must
//! not wait for that, or what the program stays in meanwhile is never seen.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use session::clock::{Clock, SystemClock};

use super::eye::{self, Copied, Stay, Word};
use super::teller::Teller;
use super::{Event, Options, Subject, Summary};
use crate::trace::backend::TraceError;
use crate::trace::call::{Call, StackId};
use crate::trace::recording::Backend;

/// Watches until `stop` is set or what was given by its number has ended.
pub(super) fn watch(
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Event),
) -> Result<Summary, TraceError> {
    if let Subject::Process(process) = options.subject {
        let cannot = |source| TraceError::Attach { process, source };
        // Whoever may read this may look at everything that we look at.
        std::fs::read(format!("/proc/{process}/syscall")).map_err(cannot)?;
    }
    let clock = SystemClock::start();
    let teller = Teller::new(Backend::Peek, &options.sources, clock.now());
    let mut voice = Voice { teller, stacks: HashMap::new(), each };
    let (say, heard) = mpsc::sync_channel(eye::WORDS);
    let lost = std::thread::scope(|scope| {
        let looking = std::thread::Builder::new().name("eye".to_owned());
        let looking = looking.spawn_scoped(scope, || eye::watch(options, stop, &clock, say));
        let looking = looking.map_err(TraceError::Trace)?;
        for word in heard {
            voice.hear(word);
        }
        let gone = || TraceError::Trace(std::io::Error::other("the thread that looks is gone"));
        looking.join().map_err(|_| gone())?.map_err(TraceError::Trace)
    })?;
    voice.teller.summary.lost = lost;
    Ok(voice.teller.summary)
}

/// Tells what the eye saw.
struct Voice<'a> {
    teller: Teller,
    /// Of threads that stay somewhere, the number of the copy of their stack, and the stack that was found in it.
    stacks: HashMap<u32, (u32, StackId)>,
    each: &'a mut dyn FnMut(Event),
}

impl Voice<'_> {
    fn hear(&mut self, word: Word) {
        match word {
            Word::Found { process, executable } => {
                (self.each)(Event::Found { process, executable, backend: Backend::Peek });
            }
            Word::Reached(copied) => self.unwind(&copied),
            Word::Left(stay) => self.tell(*stay),
            Word::Changed { process } => {
                self.stacks.remove(&process);
                self.teller.forget(process);
            }
            Word::Refused { process } => (self.each)(Event::Refused { process }),
            Word::Ended { process } => {
                self.stacks.remove(&process);
                self.teller.forget(process);
                (self.each)(Event::Ended { process });
            }
        }
    }

    /// The stay goes on: there is time to find out who called.
    fn unwind(&mut self, copied: &Copied) {
        // Numbers of stacks are in use while a thread stays somewhere.
        if self.stacks.is_empty() {
            self.teller.tidy();
        }
        let Teller { unwinder, recorder, .. } = &mut self.teller;
        let stack = unwinder.offline(copied.process, &copied.registers, &copied.bytes, recorder);
        self.teller.prepare(copied.process, stack);
        self.stacks.insert(copied.thread, (copied.number, stack));
    }

    fn tell(&mut self, stay: Stay) {
        let Stay { block, outcome, copy, goal } = stay;
        let stack = self.stacks.remove(&block.thread);
        let call = Call {
            process: block.process,
            thread: block.thread,
            number: block.glance.number,
            arguments: block.glance.arguments,
            outcome,
            start_ns: block.first_ns,
            wall_ns: block.wall_ns(),
            cpu_ns: Some(block.cpu_ns()),
            queued_ns: Some(block.queued_ns()),
            // Another number is that of an earlier stay.
            stack: stack.filter(|(number, _)| Some(*number) == copy).map(|(_, stack)| stack),
            target: None,
        };
        if let Some(event) = self.teller.tell_of(call, goal) {
            (self.each)(event);
        }
    }
}
