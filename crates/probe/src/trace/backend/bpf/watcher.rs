//! Empties the ring into a recording: names processes, follows stacks, and reads the totals at the end.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::clock::{Clock, SystemClock};

use super::super::peek::{Glance, look};
use super::super::{Choice, Options, Stacks, Until, procfs};
use super::record::{CallRecord, Record};
use super::session::{Seen, Session, Standing, descriptor};
use crate::trace::call::{Call, Outcome, StackId};
use crate::trace::kernel::{call_name, runs_program};
use crate::trace::place::{Made, Places};
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Backend, Exit, Recording};
use crate::trace::stack::{Registers, Unwinder};

/// How long records may lie in the ring before they are read, when no program in the kernel says that it is time.
const REST: Duration = Duration::from_millis(20);

/// How often it is checked that what is watched still lives, lest a lost record keeps us for ever.
const CHECK: Duration = Duration::from_millis(500);

/// The most records that are read before time and `stop` are looked at again.
const AT_ONCE: usize = 4096;

/// The ended threads whose totals stay in the kernel: reading them one by one costs more than all at the end.
const ENDED: usize = 512;

/// Reads what the programs tell until the end.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    session: Session,
    options: &'a Options,
    root: u32,
    clock: SystemClock,
    /// The monotonic clock, in nanoseconds, when the recording began.
    began_ns: u64,
    sight: Sight,
    /// Threads that ended, with the calls that they have totals of.
    ended: Vec<(u32, Seen)>,
    has_ended: bool,
}

/// What is known of the watched processes.
#[derive(Debug)]
struct Sight {
    recorder: Recorder,
    unwinder: Unwinder,
    places: Places,
    /// Processes alive, and whether what they have mapped was looked at since they run their program.
    alive: HashMap<u32, Looked>,
    stacks: Stacks,
}

/// Whether a process's mappings are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Looked {
    Yes,
    No,
}

impl<'a> Watcher<'a> {
    /// Begins a recording of `root` by `session`, which watches it already.
    pub(super) fn new(
        session: Session,
        options: &'a Options,
        choice: &Choice,
        command: Vec<Vec<u8>>,
        root: u32,
    ) -> Watcher<'a> {
        let clock = SystemClock::start();
        let mut recorder = Recorder::new(Backend::Bpf, command, clock.now());
        let began_ns = sys::bpf::clock_ns();
        let recording = recorder.recording();
        recording.watched = options.calls.to_string();
        recording.threshold_ns = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
        recording.notes.push(choice.reason.clone());
        let process = recorder.process(root);
        process.executable = procfs::executable(root);
        process.command = procfs::command_line(root);
        recorder.thread(root, root, 0);
        let sight = Sight {
            recorder,
            unwinder: Unwinder::new(),
            places: Places::new(),
            alive: HashMap::from([(root, Looked::No)]),
            stacks: options.stacks,
        };
        Watcher {
            session,
            options,
            root,
            clock,
            began_ns,
            sight,
            ended: Vec::new(),
            has_ended: false,
        }
    }

    /// Notes the threads that the program has already.
    pub(super) fn know_threads(&mut self) {
        for thread in procfs::threads(self.root).unwrap_or_default() {
            let name = procfs::thread_name(self.root, thread);
            self.sight.recorder.thread(thread, self.root, 0).name = name;
        }
        self.sight.look(self.root);
    }

    /// Reads until what is watched has ended, or `stop` is set; says whether the first process has ended.
    ///
    /// # Errors
    ///
    /// As `poll(2)` and `bpf(2)`.
    pub(super) fn watch(&mut self, stop: &AtomicBool) -> io::Result<bool> {
        let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
        let mut checked = self.clock.monotonic();
        loop {
            let taken = self.take()?;
            if self.is_over() || stop.load(Ordering::Relaxed) {
                return Ok(self.has_ended);
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(checked) >= CHECK {
                checked = now;
                self.forget_the_dead()?;
            }
            if taken < AT_ONCE {
                let mut wanted = [PollFd::from_borrowed_fd(self.session.as_fd(), PollFlags::IN)];
                match poll(&mut wanted, Some(&rest)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.options.until {
            Until::ProgramEnded => self.has_ended,
            Until::AllEnded => self.sight.alive.is_empty(),
        }
    }

    /// Reads what is in the ring.
    fn take(&mut self) -> io::Result<usize> {
        let Watcher { session, sight, ended, root, has_ended, began_ns, .. } = self;
        let taken = session.take(AT_ONCE, |record| match record {
            Record::Call(call) => sight.call(&call, *began_ns),
            Record::Fork { thread, process, parent, at_ns } => {
                sight.born(thread, process, parent, at_ns.saturating_sub(*began_ns));
            }
            Record::Exec { process, path, command, .. } => sight.exec(process, path, command),
            Record::Exit { thread, process, at_ns, status, is_last, inside, seen } => {
                let at_ns = at_ns.saturating_sub(*began_ns);
                ended.push((thread, seen));
                sight.ended_inside(thread, process, inside, at_ns, *began_ns);
                sight.recorder.thread_ended(thread, at_ns);
                if is_last {
                    sight.died(process, exit(status), at_ns);
                    *has_ended |= process == *root;
                }
            }
        });
        if self.ended.len() > ENDED {
            self.read_totals_of_ended()?;
        }
        Ok(taken)
    }

    /// Takes the totals of ended threads out of the kernel, so that there is always room for new ones.
    fn read_totals_of_ended(&mut self) -> io::Result<()> {
        for (thread, seen) in self.ended.drain(..) {
            for (number, total) in self.session.take_totals(thread, &seen)? {
                self.sight.recorder.total(thread, number, &total);
            }
        }
        Ok(())
    }

    /// Drops processes that the filter does not hold any more: the record of their end was lost.
    fn forget_the_dead(&mut self) -> io::Result<()> {
        let watched = self.session.watched()?;
        let alive = self.sight.alive.keys().copied();
        let gone: Vec<u32> = alive.filter(|process| !watched.contains(process)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // Their records may have come since.
        self.take()?;
        for process in gone {
            self.has_ended |= process == self.root;
            self.sight.alive.remove(&process);
        }
        Ok(())
    }

    /// Ends the recording: takes the programs off, and reads what they counted.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub(super) fn finish(mut self) -> io::Result<Recording> {
        self.keep_running_calls();
        self.session.detach();
        while self.take()? > 0 {}
        let length_ns = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        for (thread, number, total) in self.session.totals()? {
            self.sight.recorder.total(thread, number, &total);
        }
        let errors = self.session.errors()?;
        let faults = self.session.faults()?;
        let recording = self.sight.recorder.recording();
        for (number, error, count) in errors {
            *recording.errors.entry((number, error)).or_default() += count;
        }
        recording.lost = faults.lost_calls + faults.lost_lives + faults.not_counted;
        recording.notes.extend(super::notes::of(&faults));
        Ok(self.sight.recorder.finish(length_ns))
    }

    /// Keeps the calls that have not ended, with what can be seen of them from outside.
    fn keep_running_calls(&mut self) {
        let now = sys::bpf::clock_ns();
        let processes: Vec<u32> = self.sight.alive.keys().copied().collect();
        for process in processes {
            for thread in procfs::threads(process).unwrap_or_default() {
                let seen = look(process, thread);
                let (number, start_ns) = match standing(&self.session, thread) {
                    Standing::Inside { number, start_ns } => (number, start_ns),
                    Standing::Outside => continue,
                    // It has been in its call since before it was watched.
                    Standing::Unknown => match seen {
                        Some(seen) if self.options.calls.contains(seen.number) => {
                            (seen.number, self.began_ns)
                        }
                        _ => continue,
                    },
                };
                let seen = seen.filter(|seen| seen.number == number);
                let start = start_ns.saturating_sub(self.began_ns);
                let wall_ns = now.saturating_sub(start_ns);
                self.sight.running(Running { process, thread, number, seen }, start, wall_ns);
            }
        }
    }
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct Running {
    process: u32,
    thread: u32,
    number: u32,
    /// What can be seen of it from outside, if it is blocked.
    seen: Option<Glance>,
}

/// Returns what is known of the call that a thread is in.
fn standing(session: &Session, thread: u32) -> Standing {
    descriptor(thread).map_or(Standing::Outside, |descriptor| session.standing(descriptor.as_fd()))
}

/// Reads a status as of `wait(2)`.
fn exit(status: u32) -> Exit {
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    if signal == 0 { Exit::Code(code.cast_signed()) } else { Exit::Signal(signal.cast_signed()) }
}

impl Sight {
    fn look(&mut self, process: u32) {
        if self.stacks != Stacks::None {
            self.unwinder.look(process);
            self.alive.insert(process, Looked::Yes);
        }
    }

    fn born(&mut self, thread: u32, process: u32, parent: u32, at_ns: u64) {
        if process != parent {
            let of_parent = self.recorder.process(parent);
            let (executable, command) = (of_parent.executable.clone(), of_parent.command.clone());
            let born = self.recorder.process(process);
            born.parent = Some(parent);
            born.start_ns = at_ns;
            born.executable = executable;
            born.command = command;
            // It may be gone, or run another program, before we could ask what it has mapped.
            self.unwinder.inherit(parent, process);
            self.alive.insert(process, Looked::No);
        }
        self.recorder.thread(thread, process, at_ns);
    }

    fn exec(&mut self, process: u32, path: &[u8], command: &[u8]) {
        self.unwinder.forget(process);
        self.places.forget(process);
        self.alive.insert(process, Looked::No);
        let known = self.recorder.process(process);
        known.executable = path.to_vec();
        let command = command.strip_suffix(&[0]).unwrap_or(command);
        known.command = command.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // The kernel keeps fifteen bytes of it.
        let name = name.get(..15).unwrap_or(name).to_vec();
        self.recorder.thread(process, process, 0).name = name;
    }

    fn died(&mut self, process: u32, exit: Exit, at_ns: u64) {
        self.alive.remove(&process);
        self.recorder.process_ended(process, Some(exit), at_ns);
        self.unwinder.forget(process);
    }

    /// A thread ended in a call: it has no result.
    fn ended_inside(
        &mut self,
        thread: u32,
        process: u32,
        inside: Option<(u32, u64)>,
        at_ns: u64,
        began_ns: u64,
    ) {
        let Some((number, start)) = inside else { return };
        let start_ns = start.saturating_sub(began_ns);
        let wall_ns = at_ns.saturating_sub(start_ns);
        if self.recorder.is_slow(wall_ns)
            && !matches!(call_name(number), Some("exit" | "exit_group"))
        {
            self.recorder.keep(Call {
                process,
                thread,
                number,
                arguments: [0; 6],
                outcome: Outcome::Unknown,
                start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack: None,
                target: None,
            });
        }
    }

    fn call(&mut self, call: &CallRecord<'_>, began_ns: u64) {
        let stack = self.stack(call);
        let target = super::target::recorded(call, &mut self.places, &mut self.recorder);
        self.recorder.thread(call.thread, call.process, 0);
        self.recorder.keep(Call {
            process: call.process,
            thread: call.thread,
            number: call.number,
            arguments: call.arguments,
            outcome: outcome(call.result),
            start_ns: call.start_ns.saturating_sub(began_ns),
            wall_ns: call.wall_ns,
            cpu_ns: Some(call.cpu_ns),
            queued_ns: Some(call.queued_ns),
            stack,
            target,
        });
    }

    fn stack(&mut self, call: &CallRecord<'_>) -> Option<StackId> {
        let [ip, sp, bp, kept @ ..] = call.registers?;
        let registers = Registers::new(ip, sp).bp(bp).kept(kept);
        let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
        let stack = unwinder.offline(call.process, &registers, call.stack, recorder);
        self.alive.entry(call.process).and_modify(|looked| *looked = Looked::Yes);
        Some(stack)
    }

    fn running(&mut self, running: Running, start_ns: u64, wall_ns: u64) {
        let Running { process, thread, number, seen } = running;
        let wants =
            self.stacks != Stacks::None && self.recorder.is_slow(wall_ns) && !runs_program(number);
        let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
        let stack = seen
            .filter(|_| wants)
            .map(|seen| unwinder.capture(process, &Registers::new(seen.ip, seen.sp), recorder));
        let arguments = seen.map_or([0; 6], |seen| seen.arguments);
        let made = Made { process, thread, number, arguments, returned: None };
        let target = seen.and_then(|_| self.places.target(&made, &mut self.recorder));
        self.recorder.keep(Call {
            process,
            thread,
            number,
            arguments,
            outcome: Outcome::Running,
            start_ns,
            wall_ns,
            cpu_ns: None,
            queued_ns: None,
            stack,
            target,
        });
    }
}

fn outcome(result: i64) -> Outcome {
    match i32::try_from(result) {
        Ok(error @ -4095..=-1) => Outcome::Failed(-error),
        _ => Outcome::Returned(result),
    }
}
