//! One disk with all that is needed on it: takes single measurements.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{Timespec, poll};
use sys::clock::Clock;
use sys::mounts::Mounts;
use sys::sched::{CpuClass, ExecScheduling, IoClass, Orphaned, before_exec};

use super::background::Prepared;
use super::cell::{LoadClass, MatrixCell};
use super::cgroups::Groups;
use super::disturbance::{self, Elsewhere, Meter};
use super::foreground::{Foreground, Launch};
use super::ground::{Ground, Site, said};
use super::guardian::Guardian;
use super::sample::{Context, Sample};
use super::teardown::put;
use super::{LaunchError, step};
use fastrand::Rng;
use slowdisk::{Queue, Traffic};
use sys::process::MeasuredProcess;

/// After this time a launch is given up; the time itself is the sample.
const LONGEST: Duration = Duration::from_secs(120);
/// A background that has not begun to write after this time is taken as it is.
const WARM_UP: Duration = Duration::from_secs(15);
/// How much it has written when it counts as begun.
const BEGUN: u64 = 1 << 20;

/// How long a calm machine is waited for in a visit of a cell.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long is looked each time.
const LOOK: Duration = Duration::from_millis(500);

/// What a measurement needs from the one who wants it.
#[derive(Debug)]
pub struct Lab<'l> {
    /// The command that is a guardian: see [`super::guardian`].
    pub guardian: Vec<String>,
    /// The command before a job that is run without being felt: `unjank run --`.
    pub run: Vec<String>,
    /// Where directories to mount on are made.
    pub temporary: PathBuf,
    /// Where the kernel's traces are.
    pub tracefs: PathBuf,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Set when the user wants to end.
    pub stop: &'l AtomicBool,
}

impl Lab<'_> {
    /// Lets time pass.
    ///
    /// # Errors
    ///
    /// The user wants to end.
    fn pass(&self, time: Duration) -> Result<(), LaunchError> {
        let end = self.clock.monotonic() + time;
        loop {
            self.check()?;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return Ok(());
            }
            let slice = left.min(Duration::from_millis(100));
            let slice = Timespec { tv_sec: 0, tv_nsec: i64::from(slice.subsec_nanos()) };
            let _ = poll(&mut [], Some(&slice));
        }
    }

    fn check(&self) -> Result<(), LaunchError> {
        if self.stop.load(Ordering::Relaxed) { Err(LaunchError::Stopped) } else { Ok(()) }
    }
}

/// A disk with all that is needed on it.
pub(super) struct Scene<'s> {
    lab: &'s Lab<'s>,
    // Those that use the disk end before it is taken away.
    groups: Groups,
    pub(super) ground: Ground,
    launch: Option<Launch>,
    elsewhere: Elsewhere,
    meter: Meter,
    others: OtherPrograms,
    random: Rng,
    issued: (u64, u64),
    _guardian: Guardian,
}

/// A background that works.
struct Running<'r> {
    background: &'r Prepared,
    child: Child,
}

/// What is done about other programs that work while launches are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPrograms {
    /// Launches wait a while until it is calm, and those that were disturbed are taken again, once each at most.
    Avoided,
    /// Nothing.
    LetBe,
}

/// How much of the time launches take while a rate is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing is launched.
    Never,
    /// Launches and pauses, half of the time each.
    Half,
}

impl<'s> Scene<'s> {
    /// Makes it, with nothing on the disk yet.
    pub(super) fn make(
        site: &Site,
        lab: &'s Lab<'s>,
        others: OtherPrograms,
    ) -> Result<Scene<'s>, LaunchError> {
        let guardian = Guardian::start(&lab.guardian);
        let mut guardian = guardian.map_err(step("start the guardian"))?;
        let mounts = Mounts::read().map_err(step("read the mounts"))?;
        let groups = Groups::make(&mounts, &mut guardian)?;
        let clock = Arc::clone(&lab.clock);
        let ground = Ground::make(site, &lab.temporary, &lab.tracefs, clock, &mut guardian)?;
        Ok(Scene {
            lab,
            meter: Meter::new(groups.path()),
            groups,
            ground,
            launch: None,
            elsewhere: Elsewhere::default(),
            others,
            random: Rng::with_seed(u64::from(std::process::id())),
            issued: (0, 0),
            _guardian: guardian,
        })
    }

    /// Brings what is launched to the disk, and launches it once without measuring.
    pub(super) fn furnish(
        &mut self,
        foreground: &Foreground,
        more: &[PathBuf],
    ) -> Result<(), LaunchError> {
        let launch = foreground.prepare(&mut self.ground, more)?;
        // It makes what it keeps for its next start, and shows what it uses of other disks.
        let mut command = launch.command();
        self.enter(&mut command)?;
        let has_ended = AtomicBool::new(false);
        let (disk, elsewhere) = (self.ground.path(), &mut self.elsewhere);
        std::thread::scope(|scope| {
            let watched = sys::thread::spawn_scoped(scope, "elsewhere", || {
                while !has_ended.load(Ordering::Relaxed) {
                    elsewhere.look(&self.groups.foreground, &disk);
                    let time = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                    let _ = poll(&mut [], Some(&time));
                }
            });
            watched.map_err(step("watch what a launch reads"))?;
            let done = said(&mut command);
            has_ended.store(true, Ordering::Relaxed);
            done
        })?;
        self.launch = Some(launch);
        Ok(())
    }

    /// Sets the queue, and makes the disk as it is before any background: what was begun is undone, nothing waits to be written.
    fn begin(
        &mut self,
        cell: &MatrixCell,
        background: Option<&Prepared>,
    ) -> Result<Queue, LaunchError> {
        self.lab.check()?;
        self.ground.set_delays(false);
        if let Some(background) = background {
            background.undo()?;
        }
        self.ground.settle()?;
        let queue = self.ground.set(&cell.scheduler, cell.wbt.wbt_lat_usec())?;
        self.ground.set_delays(true);
        self.classes();
        Ok(queue)
    }

    /// Takes `count` launches of `cell`, each told to `take` at once.
    pub(super) fn launches(
        &mut self,
        cell: &MatrixCell,
        background: Option<&Prepared>,
        count: usize,
        take: &mut dyn FnMut(Sample) -> Result<(), LaunchError>,
    ) -> Result<(), LaunchError> {
        let queue = self.begin(cell, background)?;
        let mut running = background.map(|background| self.start(background, cell)).transpose()?;
        let taken = self.repeat(cell, &queue, &mut running, count, take);
        self.finish(running)?;
        taken
    }

    fn repeat(
        &mut self,
        cell: &MatrixCell,
        queue: &Queue,
        running: &mut Option<Running<'_>>,
        count: usize,
        take: &mut dyn FnMut(Sample) -> Result<(), LaunchError>,
    ) -> Result<(), LaunchError> {
        if running.is_some() {
            self.warm_up()?;
        }
        let mut patience = match self.others {
            OtherPrograms::Avoided => PATIENCE,
            OtherPrograms::LetBe => Duration::ZERO,
        };
        for _ in 0..count {
            // Launches fall into all phases of the background.
            let most = if running.is_some() { 1800 } else { 300 };
            let pause = 700 + u64::try_from(self.random.usize(..most)).unwrap_or(0);
            self.pause(Duration::from_millis(pause), &mut patience)?;
            let sample = self.launched(cell, queue, running)?;
            self.works(running)?;
            take(sample)?;
        }
        Ok(())
    }

    /// Lets time pass, and more of it while others use the processors and `patience` lasts.
    fn pause(&self, time: Duration, patience: &mut Duration) -> Result<(), LaunchError> {
        let mut before = self.meter.read();
        self.lab.pass(time)?;
        while !patience.is_zero() {
            let now = self.meter.read();
            let share = now.zip(before).map(|(now, before)| now.share_since(before));
            if share.is_none_or(|share| share <= disturbance::MOST) {
                break;
            }
            before = now;
            *patience = patience.saturating_sub(LOOK);
            self.lab.pass(LOOK)?;
        }
        Ok(())
    }

    /// Has what `command` starts be in the foreground.
    fn enter(&self, command: &mut Command) -> Result<(), LaunchError> {
        let entrance = self.groups.foreground.entrance().map_err(step("enter a cgroup"))?;
        before_exec(command, manners(IoClass::Unset, entrance));
        Ok(())
    }

    /// Measures what the background writes in `window`, in bytes a second.
    pub(super) fn rate(
        &mut self,
        cell: &MatrixCell,
        background: &Prepared,
        duty: Duty,
        window: Duration,
    ) -> Result<Sample, LaunchError> {
        let queue = self.begin(cell, Some(background))?;
        let mut running = Some(self.start(background, cell)?);
        let rate = self.warm_up().and_then(|()| {
            let start = self.lab.clock.monotonic();
            let before = self.ground.traffic();
            let end = start + window;
            while self.lab.clock.monotonic() < end {
                match duty {
                    Duty::Half => {
                        let begun = self.lab.clock.monotonic();
                        self.launched(cell, &queue, &running)?;
                        let took = self.lab.clock.monotonic().saturating_sub(begun);
                        self.lab.pass(took)?;
                    }
                    Duty::Never => self.lab.pass(Duration::from_millis(500))?,
                }
                self.works(&mut running)?;
            }
            let written = self.ground.traffic().written_bytes - before.written_bytes;
            let took = self.lab.clock.monotonic().saturating_sub(start).as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let rate = written as f64 / took.max(1e-3);
            let context = self.context(&queue, &running, Traffic::default());
            Ok(Sample::new(cell.clone(), rate, context))
        });
        self.finish(running)?;
        rate
    }

    /// Measures one whole job, with nothing else on the machine.
    pub(super) fn whole(
        &mut self,
        cell: &MatrixCell,
        job: &Prepared,
    ) -> Result<Sample, LaunchError> {
        let queue = self.begin(cell, Some(job))?;
        forget()?;
        let before = self.ground.traffic();
        let mut context = self.context(&queue, &None, before);
        let start = self.lab.clock.monotonic();
        let mut child = self.spawn(job, cell.class, job.once())?;
        let process = MeasuredProcess::open(child.id()).map_err(step("watch the job"))?;
        let ended = self.wait(&process, LONGEST * 5);
        let took = self.lab.clock.monotonic().saturating_sub(start);
        self.groups.end_background();
        let status = child.wait().map_err(step("wait for the job"))?;
        ended?;
        if !status.success() {
            return Err(LaunchError::Program { program: job.name.clone(), said: job.last_words() });
        }
        // What it left to the kernel is part of what it wrote.
        self.ground.set_delays(false);
        self.ground.settle()?;
        context.ended = "0".to_owned();
        self.complete(&mut context, before);
        Ok(Sample::new(cell.clone(), took.as_secs_f64() * 1e3, context))
    }

    /// Starts a background as the class of `cell` says.
    fn start<'r>(
        &self,
        background: &'r Prepared,
        cell: &MatrixCell,
    ) -> Result<Running<'r>, LaunchError> {
        let child = self.spawn(background, cell.class, &background.endless())?;
        Ok(Running { background, child })
    }

    fn spawn(
        &self,
        background: &Prepared,
        class: LoadClass,
        script: &str,
    ) -> Result<Child, LaunchError> {
        let before: &[String] = if class == LoadClass::Run { &self.lab.run } else { &[] };
        let io = if class == LoadClass::Idle { IoClass::Idle } else { IoClass::Unset };
        let mut command = background.shell(before, script);
        let entrance = self.groups.background.entrance().map_err(step("enter a cgroup"))?;
        before_exec(&mut command, manners(io, entrance));
        command.spawn().map_err(step(format!("start {}", background.name)))
    }

    /// Waits until the background writes.
    fn warm_up(&self) -> Result<(), LaunchError> {
        let start = self.lab.clock.monotonic();
        let before = self.ground.traffic().written_bytes;
        while self.ground.traffic().written_bytes < before + BEGUN
            && self.lab.clock.monotonic().saturating_sub(start) < WARM_UP
        {
            self.lab.pass(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Fails if the background has ended: it has to work without end.
    fn works(&self, running: &mut Option<Running<'_>>) -> Result<(), LaunchError> {
        let Some(running) = running else { return Ok(()) };
        match running.child.try_wait() {
            Ok(Some(_)) => Err(LaunchError::Program {
                program: running.background.name.clone(),
                said: format!("it ended: {}", running.background.last_words()),
            }),
            _ => Ok(()),
        }
    }

    /// Ends the background.
    fn finish(&mut self, running: Option<Running<'_>>) -> Result<(), LaunchError> {
        let Some(mut running) = running else { return Ok(()) };
        self.ground.set_delays(false);
        self.groups.end_background();
        running.child.wait().map(drop).map_err(step("wait for the background"))
    }

    /// Drops the kernel's caches, and measures a launch.
    fn launched(
        &mut self,
        cell: &MatrixCell,
        queue: &Queue,
        running: &Option<Running<'_>>,
    ) -> Result<Sample, LaunchError> {
        let Some(launch) = &self.launch else { return Err(LaunchError::Stopped) };
        forget()?;
        self.elsewhere.read();
        disturbance::touch_memory();
        let mut command = launch.command();
        command.stderr(Stdio::null());
        self.enter(&mut command)?;
        let before = self.ground.traffic();
        let mut context = self.context(queue, running, before);
        let waited = self.groups.waited_ms();
        let busy = self.meter.read();
        let start = self.lab.clock.monotonic();
        let (took, ended) = self.run(&mut command, start)?;
        context.ended = ended;
        let now = self.meter.read();
        context.others_share = now.zip(busy).map(|(now, before)| now.share_since(before));
        context.waited_ms =
            self.groups.waited_ms().zip(waited).map(|(after, before)| after - before);
        self.complete(&mut context, before);
        Ok(Sample::new(cell.clone(), took.as_secs_f64() * 1e3, context))
    }

    fn run(
        &self,
        command: &mut Command,
        start: Duration,
    ) -> Result<(Duration, String), LaunchError> {
        let mut child = command.spawn().map_err(step("launch"))?;
        let process = MeasuredProcess::open(child.id()).map_err(step("watch what was launched"))?;
        let ended = self.wait(&process, LONGEST);
        let took = self.lab.clock.monotonic().saturating_sub(start);
        if !matches!(ended, Ok(true)) {
            // It ends when the disk has served it.
            let _ = child.kill();
        }
        let status = child.wait().map_err(step("wait for what was launched"))?;
        let text = match (ended?, status.code()) {
            (false, _) => "timeout".to_owned(),
            (true, Some(code)) => code.to_string(),
            (true, None) => status.to_string(),
        };
        Ok((took, text))
    }

    /// Waits until `process` has ended, no longer than `longest`; returns whether it has.
    fn wait(&self, process: &MeasuredProcess, longest: Duration) -> Result<bool, LaunchError> {
        let end = self.lab.clock.monotonic() + longest;
        loop {
            self.lab.check()?;
            let slice = Duration::from_millis(500);
            if process.wait(slice).map_err(step("wait"))? {
                return Ok(true);
            }
            if self.lab.clock.monotonic() >= end {
                return Ok(false);
            }
        }
    }

    fn context(&self, queue: &Queue, running: &Option<Running<'_>>, before: Traffic) -> Context {
        let phase = running.as_ref().map(|running| running.background.phase());
        let now = jiff::Timestamp::try_from(self.lab.clock.now());
        Context {
            at: now.map_or_else(|_| String::new(), |now| format!("{now:.3}")),
            scheduler_seen: queue.scheduler.clone(),
            wbt_lat_usec: queue.wbt_lat_usec,
            order: self.ground.order().map(str::to_owned),
            phase: phase.unwrap_or_default(),
            dirty_kib: dirty_kib(),
            read_bytes: before.read_bytes,
            written_bytes: before.written_bytes,
            flushes: before.flushes,
            ..Context::default()
        }
    }

    /// Adds what the disk has moved since `before`.
    fn complete(&mut self, context: &mut Context, before: Traffic) {
        let after = self.ground.traffic();
        context.read_bytes = after.read_bytes.saturating_sub(before.read_bytes);
        context.written_bytes = after.written_bytes.saturating_sub(before.written_bytes);
        context.flushes = after.flushes.saturating_sub(before.flushes);
        if let Some((idle, other)) = self.classes() {
            context.idle_bytes = Some(idle);
            context.other_bytes = Some(other);
        }
    }

    /// Returns what went out in the idle class and in others since the last call.
    fn classes(&mut self) -> Option<(u64, u64)> {
        let written = self.ground.issued.as_mut()?.written();
        let (idle, other) = self.issued;
        self.issued = (written.idle_bytes, written.other_bytes);
        Some((written.idle_bytes - idle, written.other_bytes - other))
    }
}

fn manners(io: IoClass, cgroup: std::os::fd::OwnedFd) -> ExecScheduling {
    let cgroup = Some(cgroup);
    ExecScheduling { io, cpu: CpuClass::Normal, cgroup, mask: None, orphaned: Orphaned::Killed }
}

/// Drops all that the kernel has in caches and that is clean.
fn forget() -> Result<(), LaunchError> {
    put("/proc/sys/vm/drop_caches".as_ref(), "3").map_err(step("drop the kernel's caches"))
}

/// Returns how much memory waits to be written.
fn dirty_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let number = rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
        ["Dirty", "Writeback"].contains(&name).then_some(number)
    });
    lines.sum()
}
