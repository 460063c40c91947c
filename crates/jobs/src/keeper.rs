//! The process beside a job that watches the others, holds the job while they wait, and tidies up when the supervisor is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use sys::message::{receive, send};
use sys::sched::RealtimeGuard;
use sys::socket;

use super::cgroup::{Cgroup, Freezer};
use super::claim::DirectoryClaim;
use super::controller::{AWAKE, ControlDecision, Controller, ControllerLimits};
use super::pressure::{ForeignReads, OtherCgroups, PressureCause, PressureTimes};
use super::report::Watched;
use super::request_trace::RequestTrace;
use super::tree::{Counted, Processes, StoppedProcess, StoppedProcesses};
use super::writeback::{WAITING, Writeback};
use sys::clock::Clock;

/// How often the waiting of other programs is measured.
const PERIOD: Duration = Duration::from_millis(25);
/// How often cgroups that came and the job's own counters are looked for.
const SLOW: Duration = Duration::from_secs(1);

/// How much of a message the command line may take: `unjank jobs` reads no longer one than 16 KiB.
const COMMAND: usize = 12 * 1024;

/// A message of the supervisor to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeeperCommand {
    /// The command runs as this process.
    Started(u32),
    /// A signal came for it: it has to run to get it.
    Wake,
    /// It has ended: the last [`KeeperEvent::Watched`] is asked for.
    Ended,
}

/// A message of the keeper to the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeeperEvent {
    /// The keeper sees what the command does from now on; the first word.
    Ready,
    /// These processes are about to be stopped by signals, which their parent sees. Whoever outlives the keeper continues them.
    Stopping(Vec<StoppedProcess>),
    /// They run again.
    Released,
    /// What was seen.
    Watched(Watched),
}

/// A request of `unjank jobs` to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// How it goes.
    Status,
    /// Hold the job until [`ControlRequest::Resume`].
    Pause,
    /// Let it run again, and hold it when others wait as before.
    Resume,
}

/// How a keeper answers `unjank jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobStatus {
    /// The command line; of a long one the beginning, with `…` as its last word.
    pub command: Vec<String>,
    /// The process that the command runs as; 0 before it has started.
    pub process: u32,
    /// How long it has run, in milliseconds.
    pub age_ms: f64,
    /// Whether a person has paused it.
    pub paused: bool,
    /// What was seen.
    pub watched: Watched,
}

/// Whether a job is ever held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPolicy {
    /// While others wait.
    WhileOthersWait,
    /// When a person asks for it only.
    WhenAsked,
}

/// Which processes a job is.
#[derive(Clone, Debug)]
pub enum JobProcesses {
    /// What is started in a cgroup that was made for it, which is removed at the end.
    Made(Cgroup),
    /// All that this supervisor starts.
    Supervised(u32),
    /// What was there before us.
    Found(Processes),
}

impl JobProcesses {
    /// Returns the processes; those of a supervisor are without this one.
    fn processes(&self) -> Processes {
        match self {
            JobProcesses::Made(cgroup) => Processes::Cgroup(cgroup.clone()),
            JobProcesses::Found(processes) => processes.clone(),
            JobProcesses::Supervised(top) => {
                let except = std::process::id();
                Processes::Below { top: *top, counted: Counted::No, except }
            }
        }
    }
}

/// The configuration of a keeper.
#[derive(Debug)]
pub struct KeeperOptions {
    /// The command line, for `unjank jobs`.
    pub command: Vec<String>,
    /// Which processes they are.
    pub subject: JobProcesses,
    /// When it is held.
    pub limits: ControllerLimits,
    /// Whether it is.
    pub pauses: HoldPolicy,
    /// The disks that the others are watched on, as sysfs calls them.
    pub disks: Vec<String>,
    /// A trace of what is written in which class, where it may be read.
    pub issued: Option<RequestTrace>,
    /// Where a program works that does not load our library, if that is known before.
    pub outside: Option<PathBuf>,
    /// Where programs of the job say what they have written, if they load our library; it is there before the job starts.
    pub mailbox: Option<PrivateSocket>,
    /// Where each launch of a program is a message, if somebody tells.
    pub launches: Option<OwnedFd>,
    /// Where `unjank jobs` asks; it is there before the job starts.
    pub control_socket: Option<PrivateSocket>,
}

/// A socket that listens at a path, in a directory of this user alone. Dropping it removes the path.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: OwnedFd,
    path: PathBuf,
}

impl PrivateSocket {
    /// Listens at `path`, from which whatever is there is removed first.
    ///
    /// # Errors
    ///
    /// As `bind(2)`; `InvalidInput` if the path is too long for a socket.
    pub fn listen_at(path: PathBuf) -> io::Result<PrivateSocket> {
        // Of somebody with our number who was killed.
        let _ = std::fs::remove_file(&path);
        let listener = socket::listen_privately(&path, WAITING)?;
        Ok(PrivateSocket { listener, path })
    }
}

impl AsFd for PrivateSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        // Somebody tidied up before us.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Keeps a job until it and its supervisor have ended.
///
/// `channel` is the way to the supervisor. The job is never left held, whatever error there is.
pub fn keep(options: KeeperOptions, channel: &OwnedFd, clock: &dyn Clock) {
    let KeeperOptions {
        command,
        subject,
        limits,
        pauses,
        disks,
        issued,
        outside,
        mailbox,
        launches,
        control_socket,
    } = options;
    let processes = subject.processes();
    let _claim = match &subject {
        JobProcesses::Made(cgroup) => DirectoryClaim::of(cgroup.path()),
        JobProcesses::Supervised(_) | JobProcesses::Found(_) => None,
    };
    let others = match &processes {
        Processes::Cgroup(cgroup) if !cgroup.is_root() => {
            Some(OtherCgroups::beside(cgroup.root(), cgroup.path()))
        }
        Processes::Cgroup(_) | Processes::Below { .. } => None,
    };
    let listener = mailbox.as_ref().map(|mailbox| mailbox.listener.try_clone());
    let writeback =
        Writeback::start(listener.and_then(Result::ok), outside.as_deref(), processes.clone());
    // Without the threads nobody listens: programs find no mailbox, and start their own write-back.
    let (writeback, mailbox) = writeback.map_or((None, None), |some| (Some(some), mailbox));
    if let JobProcesses::Found(Processes::Cgroup(cgroup)) = &subject {
        // One before us may have been killed together with the process that it kept for.
        let _ = cgroup.freeze(Freezer::Thawed);
    }
    // Who holds the job is not to wait for a processor himself; where it is refused, he does.
    let realtime = RealtimeGuard::begin();
    let start = clock.monotonic();
    let mut keeper = Keeper {
        channel: channel.as_fd(),
        clock,
        start,
        command: beginning(command),
        process: 0,
        processes,
        others,
        reads: disks.iter().filter_map(|disk| ForeignReads::of(disk).ok()).collect(),
        counters: Counters::default(),
        controller: Controller::new(limits),
        pauses,
        paused: false,
        awake_until: Duration::ZERO,
        hold: None,
        stopped: StoppedProcesses::default(),
        is_hold_announced: false,
        release_is_unreported: false,
        watched: Watched::default(),
        writeback: writeback.as_ref(),
        issued,
        launches,
        last: Duration::ZERO,
        slow: Duration::ZERO,
        visitors: Vec::new(),
    };
    // It is gone: the loop sees it, too.
    let _ = send(channel, &KeeperEvent::Ready);
    keeper.run(control_socket.as_ref().map(AsFd::as_fd));
    keeper.release();
    drop(keeper);
    // From here on it only waits.
    drop(realtime);
    drop(control_socket);
    // A job may have left processes that run on, as it may without us. They are no longer held, but their files are still taken:
    // nobody else is to have the mailbox's name while they use it.
    if let JobProcesses::Made(cgroup) = &subject {
        cgroup.wait_until_empty();
    }
    drop(mailbox);
    drop(writeback);
    if let JobProcesses::Made(cgroup) = subject {
        remove(&cgroup);
    }
}

/// Removes a cgroup as soon as it is empty.
fn remove(cgroup: &Cgroup) {
    // Somebody may come in again behind the last one.
    for _ in 0..100 {
        cgroup.wait_until_empty();
        if cgroup.remove_soon().is_ok() {
            return;
        }
    }
}

struct Keeper<'k> {
    channel: BorrowedFd<'k>,
    clock: &'k dyn Clock,
    start: Duration,
    command: Vec<String>,
    process: u32,
    processes: Processes,
    others: Option<OtherCgroups>,
    reads: Vec<ForeignReads>,
    counters: Counters,
    controller: Controller,
    pauses: HoldPolicy,
    paused: bool,
    /// Until when a job that is paused runs, to handle a signal.
    awake_until: Duration,
    /// Why and since when the job is held.
    hold: Option<(PressureCause, Duration)>,
    /// What this hold has stopped by signals.
    stopped: StoppedProcesses,
    /// Whether the supervisor was told of this hold: it then waits for the end of it, also if nothing was left to be stopped.
    is_hold_announced: bool,
    /// Whether the supervisor does not know yet that they run again: its socket was full.
    release_is_unreported: bool,
    watched: Watched,
    writeback: Option<&'k Writeback>,
    issued: Option<RequestTrace>,
    launches: Option<OwnedFd>,
    last: Duration,
    slow: Duration,
    visitors: Vec<OwnedFd>,
}

impl Keeper<'_> {
    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.start)
    }

    /// Keeps until the command has ended or the supervisor is gone. The command ends with its supervisor: the kernel kills it, see `sys::sched::Orphaned`.
    fn run(&mut self, control_socket: Option<BorrowedFd<'_>>) {
        loop {
            let ready = self.wait(control_socket);
            match receive::<KeeperCommand>(self.channel) {
                Ok(Some(KeeperCommand::Started(process))) => {
                    self.process = process;
                    if self.paused {
                        self.hold(PressureCause::Asked);
                    }
                }
                Ok(Some(KeeperCommand::Wake)) => {
                    self.release();
                    self.controller.wake(self.now());
                    self.awake_until = self.now() + AWAKE;
                }
                Ok(Some(KeeperCommand::Ended)) => {
                    self.release();
                    if let Some(writeback) = self.writeback {
                        // What was written last counts, too.
                        writeback.flush();
                    }
                    self.count();
                    // Whoever unmounts the command's directory as soon as it has ended is not to find us there.
                    let _ = rustix::process::chdir("/");
                    // It is gone, too: nobody wants to know.
                    let _ = send(self.channel, &KeeperEvent::Watched(self.watched.clone()));
                    return;
                }
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Err(_) => return,
            }
            if ready.control_socket
                && let Some(control_socket) = control_socket
                && let Ok(visitor) = socket::accept_at(control_socket)
                && is_of_this_user(&visitor)
            {
                self.visitors.push(visitor);
            }
            self.serve();
            self.sample();
            if ready.launches {
                self.launch();
            }
        }
    }

    /// Waits for a message, a visitor or the next look at the others.
    fn wait(&self, control_socket: Option<BorrowedFd<'_>>) -> Ready {
        let mut polled = vec![PollFd::new(&self.channel, PollFlags::IN)];
        polled.extend(
            control_socket
                .as_ref()
                .map(|control_socket| PollFd::new(control_socket, PollFlags::IN)),
        );
        polled.extend(self.launches.as_ref().map(|told| PollFd::new(told, PollFlags::IN)));
        polled.extend(self.visitors.iter().map(|visitor| PollFd::new(visitor, PollFlags::IN)));
        let period = Timespec { tv_sec: 0, tv_nsec: i64::from(PERIOD.subsec_nanos()) };
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut polled, Some(&period));
        let is_ready = |at: usize| polled.get(at).is_some_and(|one| !one.revents().is_empty());
        let launches = 1 + usize::from(control_socket.is_some());
        Ready {
            control_socket: control_socket.is_some() && is_ready(1),
            launches: self.launches.is_some() && is_ready(launches),
        }
    }

    /// Answers visitors, who are gone when they have their answer.
    fn serve(&mut self) {
        for visitor in std::mem::take(&mut self.visitors) {
            match receive::<ControlRequest>(&visitor) {
                Ok(Some(asked)) => {
                    self.answer(asked);
                    let status = self.status();
                    // He did not wait for it.
                    let _ = send(&visitor, &status);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Somebody who says nothing does not keep others out.
                    if self.visitors.len() < 16 {
                        self.visitors.push(visitor);
                    }
                }
                Ok(None) | Err(_) => (),
            }
        }
    }

    fn answer(&mut self, asked: ControlRequest) {
        match asked {
            ControlRequest::Status => (),
            ControlRequest::Pause => {
                self.paused = true;
                self.release();
                // Before it is the command, it is not held: its maker waits for it.
                if self.process != 0 {
                    self.hold(PressureCause::Asked);
                }
            }
            ControlRequest::Resume => {
                self.paused = false;
                self.release();
            }
        }
    }

    fn status(&self) -> JobStatus {
        let mut watched = self.watched.clone();
        if let Some((cause, since)) = self.hold {
            watched.release(cause, self.now().saturating_sub(since));
            watched.held = true;
        }
        JobStatus {
            command: self.command.clone(),
            process: self.process,
            age_ms: self.now().as_secs_f64() * 1e3,
            paused: self.paused,
            watched,
        }
    }

    /// Holds the job because a program starts.
    fn launch(&mut self) {
        let Some(launches) = &self.launches else { return };
        let mut message = [0; 64];
        let told = loop {
            match socket::receive(launches, &mut message) {
                Ok(received) if received.length > 0 => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                // Nobody tells any more.
                Ok(_) | Err(_) => break false,
            }
        };
        if !told {
            self.launches = None;
        }
        if self.pauses == HoldPolicy::WhenAsked || self.paused || self.process == 0 {
            return;
        }
        if let ControlDecision::Hold(cause) = self.controller.expect_launch(self.now()) {
            self.hold(cause);
        }
    }

    /// Measures the waiting of other programs, and holds or resumes the job.
    fn sample(&mut self) {
        let now = self.now();
        let elapsed = now.saturating_sub(self.last);
        if elapsed < PERIOD / 2 {
            return;
        }
        self.last = now;
        self.report_release();
        if now.saturating_sub(self.slow) >= SLOW {
            let before = (self.watched.read_bytes, self.watched.written_bytes);
            self.count();
            let lapsed = now.saturating_sub(self.slow).as_secs_f64();
            self.watched.read_rate = rate(before.0, self.watched.read_bytes, lapsed);
            self.watched.write_rate = rate(before.1, self.watched.written_bytes, lapsed);
            self.slow = now;
            if let Some(others) = &mut self.others {
                others.refresh();
            }
        }
        let mut stalled =
            self.others.as_mut().map_or_else(PressureTimes::default, OtherCgroups::stalled);
        if !self.reads.is_empty() {
            let own = self.counters.update(&self.processes.list()).read_bytes;
            for reads in &mut self.reads {
                stalled.io = stalled.io.max(reads.stalled(own, elapsed));
            }
        }
        self.watched.others_waited_ms += stalled.io.as_secs_f64() * 1e3;
        if self.paused && self.process != 0 && now >= self.awake_until {
            self.hold(PressureCause::Asked);
        }
        if self.pauses == HoldPolicy::WhenAsked || self.paused || self.process == 0 {
            return;
        }
        match self.controller.sample(now, stalled) {
            ControlDecision::Stay => (),
            ControlDecision::Hold(cause) => self.hold(cause),
            ControlDecision::Release => self.release(),
        }
    }

    fn hold(&mut self, cause: PressureCause) {
        if self.hold.is_some() {
            return;
        }
        // A person may want it all the same.
        if cause != PressureCause::Asked && self.processes.is_in_foreground() {
            return;
        }
        self.report_release();
        if self.release_is_unreported {
            // The supervisor is stopped: it could neither tell these stops from others nor continue the job.
            return;
        }
        let (channel, is_hold_announced) = (self.channel, &mut self.is_hold_announced);
        let mut announce = |some: &[StoppedProcess]| {
            send(channel, &KeeperEvent::Stopping(some.to_vec()))?;
            *is_hold_announced = true;
            Ok(())
        };
        if self.processes.hold(&mut self.stopped, &mut announce).is_err() {
            // The cgroup is gone with its job, or is not this user's any more, or the supervisor does not read: nothing is held.
            self.continue_stopped();
            return;
        }
        if let Some(writeback) = self.writeback {
            writeback.progress().held.store(true, Ordering::Relaxed);
        }
        self.hold = Some((cause, self.now()));
        self.watched.hold(cause);
    }

    fn release(&mut self) {
        let Some((cause, since)) = self.hold.take() else { return };
        if let Processes::Cgroup(cgroup) = &self.processes {
            // It fails if the cgroup is gone with its job.
            let _ = cgroup.freeze(Freezer::Thawed);
        }
        self.continue_stopped();
        if let Some(writeback) = self.writeback {
            writeback.progress().held.store(false, Ordering::Relaxed);
        }
        self.watched.release(cause, self.now().saturating_sub(since));
    }

    /// Continues what was stopped by signals, and says so.
    fn continue_stopped(&mut self) {
        self.stopped.resume();
        self.stopped.clear();
        if std::mem::take(&mut self.is_hold_announced) {
            self.release_is_unreported = true;
            self.report_release();
        }
    }

    /// Says that the job runs again, if that could not be said before.
    fn report_release(&mut self) {
        if self.release_is_unreported {
            let sent = send(self.channel, &KeeperEvent::Released);
            self.release_is_unreported =
                sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        }
    }

    /// Brings the counters up to date.
    fn count(&mut self) {
        let used = self.counters.update(&self.processes.list());
        self.watched.read_bytes = used.read_bytes;
        self.watched.written_bytes = used.written_bytes;
        self.watched.issued = self.issued.as_mut().map(RequestTrace::written);
        if let Some(writeback) = self.writeback {
            let progress = writeback.progress();
            self.watched.handed_over = progress.handed_over.load(Ordering::Relaxed);
            self.watched.found = progress.found.load(Ordering::Relaxed);
            self.watched.started_bytes = progress.bytes.load(Ordering::Relaxed);
        }
    }
}

/// Returns as many words of a command line as a message has room for, whatever characters are in them.
fn beginning(mut command: Vec<String>) -> Vec<String> {
    let mut left = COMMAND;
    let fits = command.iter().take_while(|word| {
        // The quotes and the comma. A control character becomes six.
        let room = 3 + word.bytes().map(|byte| if byte < b' ' { 6 } else { 2 }).sum::<usize>();
        let fits = room <= left;
        left = left.saturating_sub(room);
        fits
    });
    let fitting = fits.count();
    if fitting < command.len() {
        command.truncate(fitting);
        command.push("…".to_owned());
    }
    command
}

/// Returns by how much a counter has grown in a second.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn rate(before: u64, after: u64, seconds: f64) -> f64 {
    after.saturating_sub(before) as f64 / seconds.max(1e-3)
}

struct Ready {
    control_socket: bool,
    launches: bool,
}

/// What the processes of a job have read and written, ended ones included as far as they were seen.
#[derive(Debug, Default)]
struct Counters {
    last: std::collections::HashMap<u32, Used>,
    ended: Used,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    read_bytes: u64,
    written_bytes: u64,
}

impl Counters {
    fn update(&mut self, processes: &[u32]) -> Used {
        let gone: Vec<u32> =
            self.last.keys().filter(|pid| !processes.contains(pid)).copied().collect();
        for pid in gone {
            if let Some(used) = self.last.remove(&pid) {
                self.ended.read_bytes += used.read_bytes;
                self.ended.written_bytes += used.written_bytes;
            }
        }
        for &pid in processes {
            if let Ok(io) = sys::usage::Io::of(pid) {
                let used =
                    Used { read_bytes: io.storage_read_bytes, written_bytes: io.storage_bytes };
                self.last.insert(pid, used);
            }
        }
        self.last.values().fold(self.ended, |sum, used| Used {
            read_bytes: sum.read_bytes + used.read_bytes,
            written_bytes: sum.written_bytes + used.written_bytes,
        })
    }
}

/// Returns whether the other end of a socket is this user's.
fn is_of_this_user(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    sys::peer::credentials(socket).is_ok_and(|peer| peer.user == own)
}

/// Asks the keeper that listens at `control_socket` and waits for its answer, a second at most.
///
/// # Errors
///
/// `ConnectionRefused` or `NotFound`: the job has ended; `TimedOut` or `WouldBlock`: its keeper does not answer; `PermissionDenied`: it is another user's.
pub fn ask(control_socket: &Path, asked: ControlRequest) -> io::Result<JobStatus> {
    let socket = socket::connect_now(control_socket)?;
    if !is_of_this_user(&socket) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    send(&socket, &asked)?;
    if !socket::wait_readable(&socket, Some(Duration::from_secs(1)))? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    receive(&socket)?.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
}

/// Returns the path of the socket at which the keeper of the job under `supervisor` listens, in the runtime directory's folder for jobs.
#[must_use]
pub fn control_socket(jobs: &Path, supervisor: u32) -> PathBuf {
    jobs.join(format!("{supervisor}.sock"))
}

/// Returns the path of the socket at which programs of the job under `supervisor` say what they have written, in the same folder.
#[must_use]
pub fn mailbox(jobs: &Path, supervisor: u32) -> PathBuf {
    jobs.join(format!("{supervisor}.files"))
}

#[cfg(test)]
mod tests;
