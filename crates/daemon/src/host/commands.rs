//! The life of a command: its admission, its start, its signals and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bus::request::ReplyTo;
use host::admission;
use host::command::{CommandRequest, StartError};
use host::environment::SessionEnvironment;
use host::log::{CommandOutcome, End, EndedBy, LogEntry, LoggedProcess};
use host::process::job_in_front_of;
use rustix::process::{Pid, Signal, kill_process_group};
use sys::launch::Child;
use sys::pidfd::{ProcessEnd, SignalScope};

use super::callers::{Call, Identity, weight_of};
use super::event::Event;
use super::keepers::{Starting, watched};
use super::owner::{Job, ServiceOwner};
use super::running::Running;
use super::start::{Start, Started};

const SIGINT: i32 = 2;
/// The size of a terminal has changed.
const SIGWINCH: i32 = 28;

impl ServiceOwner {
    /// Starts a command, or refuses it; both are logged. Returns the call and its application if the application has too many
    /// running commands: the call waits until one of them has ended.
    pub(super) fn command(
        &mut self,
        reply_to: ReplyTo,
        request: Box<CommandRequest>,
        identity: Identity,
        environment: Arc<SessionEnvironment>,
    ) -> Option<(Call, Arc<str>)> {
        let began = self.options.clock.monotonic();
        let mut entry = LogEntry::asked(self.options.clock.now(), &request);
        let command = request.name();
        let known = match identity {
            Ok(known) => known,
            Err(why) => {
                let application = "an unknown program".to_owned();
                let error = StartError::Refused { command, application, why };
                self.refused(&reply_to, entry, error);
                return None;
            }
        };
        let caller = &known.caller;
        entry.application = caller.application.policy_name();
        let (client, exe) = known.client();
        (entry.caller, entry.exe) = (client, exe.map(Path::to_owned));
        let policy = Arc::clone(self.policy.now());
        let rules = policy.as_ref().as_ref().map_err(String::as_str);
        if let Err(error) = admission::screen(rules, &caller.application, &request) {
            self.refused(&reply_to, entry, error);
            return None;
        }
        let application: Arc<str> = entry.application.as_str().into();
        if !self.quota.begin(&application) {
            return Some((Call::Command(reply_to, request), application));
        }
        let weight = weight_of(&request);
        self.callers.hold(&application, weight);
        let whose = Arc::clone(&application);
        let starting = Starting { reply_to, entry, began, application, weight, caller_gone: false };
        let start = Start {
            request: *request,
            known,
            host: self.options.host.clone(),
            bus: self.bus,
            policy,
            environment,
            keeper: self.options.keeper.clone(),
            open_files: self.options.bounds.open_files,
        };
        let tell = self.tell.clone();
        let work = move |job| {
            let result = start.run();
            // It fails only when the service ends: the command continues, or its keeper ends it.
            let _ = tell.send(Event::Started { job, result });
        };
        match self.starters.begin(whose, work) {
            Ok(job) => {
                self.callers.set_starting(starting.reply_to.sender(), true);
                self.jobs.insert(job, Job::Start(Box::new(starting)));
            }
            Err(source) => {
                self.callers.release(&starting.application, weight);
                self.not_started(starting, StartError::Program { command, source });
            }
        }
        None
    }

    /// Handles the result of a thread that started a command.
    pub(super) fn started(&mut self, job: u64, result: Result<Started, StartError>) {
        self.starters.finish(job);
        let Some(Job::Start(starting)) = self.jobs.remove(&job) else {
            // It took so long that the caller has received an error.
            if let Ok(started) = result {
                self.reap_unseen(started.abandon());
            }
            return;
        };
        self.callers.release(&starting.application, starting.weight);
        let sender = starting.reply_to.sender().to_owned();
        match result {
            Ok(Started::Runs(child)) => self.began(*starting, child, None),
            Ok(Started::Kept(keeper, socket)) => {
                let now = self.options.clock.monotonic();
                self.keepers.add(keeper, socket, *starting, now, &self.tell);
            }
            Err(error) => self.not_started(*starting, error),
        }
        self.callers.set_starting(&sender, false);
        self.advance(&sender);
    }

    /// Records that a command runs.
    pub(super) fn began(&mut self, starting: Starting, child: Child, keeper: Option<u64>) {
        let Starting { reply_to, mut entry, began, application, .. } = starting;
        let sender = reply_to.sender().to_owned();
        tracing::debug!(sender, pid = child.pid, command = ?entry.command, "HostCommand");
        self.server.began(&reply_to, child.pid);
        entry.outcome = CommandOutcome::Began(LoggedProcess { pid: child.pid, began: 0 });
        let id = self.log.begin(entry);
        let pidfd = Arc::new(child.pidfd);
        if keeper.is_none() {
            self.await_end(child.pid, Arc::clone(&pidfd));
        }
        self.running.insert(child.pid, Running { sender, pidfd, id, began, application, keeper });
    }

    /// Records that an admitted command will not run.
    pub(super) fn not_started(&mut self, starting: Starting, error: StartError) {
        self.quota.end(&starting.application);
        self.refused(&starting.reply_to, starting.entry, error);
    }

    /// Replies that a command will not run, and logs it.
    fn refused(&mut self, reply_to: &ReplyTo, mut entry: LogEntry, error: StartError) {
        tracing::debug!(sender = reply_to.sender(), ?error, "refused a command");
        self.server.not_started(reply_to, &error);
        entry.outcome = match error {
            StartError::Refused { why, .. } => CommandOutcome::Refused(why),
            error => CommandOutcome::NotStarted(error.to_string()),
        };
        self.log.begin(entry);
    }

    /// Waits on a task until a process has ended.
    fn await_end(&self, pid: u32, pidfd: Arc<OwnedFd>) {
        let tell = self.tell.clone();
        tokio::spawn(async move {
            if let Err(error) = ended(pidfd).await {
                tracing::error!(%error, pid, "cannot wait for a command");
            }
            // It fails only when the service ends.
            let _ = tell.send(Event::Ended(pid));
        });
    }

    /// Waits for the end of a process that belongs to no caller.
    fn reap_unseen(&self, child: Child) {
        tokio::spawn(async move {
            let pidfd = Arc::new(child.pidfd);
            let waited = ended(Arc::clone(&pidfd)).await;
            if let Err(error) = waited.and_then(|()| sys::pidfd::reap(pidfd.as_fd()).map(drop)) {
                tracing::error!(%error, pid = child.pid, "cannot reap a command");
            }
        });
    }

    pub(super) fn signal(
        &mut self,
        sender: &str,
        pid: u32,
        signal: u32,
        scope: SignalScope,
    ) -> io::Result<()> {
        // The answer is the same for another caller's command and for no command.
        let running = self.running.get(&pid).filter(|running| running.sender == sender);
        let running = running.ok_or(io::ErrorKind::NotFound)?;
        let signal = i32::try_from(signal).ok().filter(|signal| (0..=64).contains(signal));
        let signal = signal.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "there is no signal of this number")
        })?;
        if signal == SIGWINCH && self.keepers.resize(running.keeper) {
            return Ok(());
        }
        // A key of the client's terminal is for the job that a shell has in front on its own one.
        if signal == SIGINT
            && scope == SignalScope::Group
            && let Some(job) = job_in_front_of(pid).and_then(Pid::from_raw)
            // It fails if the job has just ended.
            && kill_process_group(job, Signal::INT).is_ok()
        {
            return Ok(());
        }
        sys::pidfd::signal(running.pidfd.as_fd(), pid, signal, scope)
    }

    pub(super) fn reap(&mut self, pid: u32) {
        let Some(running) = self.running.get(&pid) else { return };
        let ended = match sys::pidfd::reap(running.pidfd.as_fd()) {
            Ok(Some(ended)) => ended,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, pid, "cannot learn how a command ended");
                if let Some(running) = self.running.remove(&pid) {
                    self.quota.end(&running.application);
                }
                return;
            }
        };
        self.ended(pid, &ended, EndedBy::Itself);
    }

    /// Reports the end of a command to its caller and to the log.
    pub(super) fn ended(&mut self, pid: u32, ended: &ProcessEnd, by: EndedBy) {
        let Some(running) = self.running.remove(&pid) else { return };
        self.quota.end(&running.application);
        self.server.exited(&running.sender, pid, ended.wait_status);
        let end = End {
            wait_status: ended.wait_status,
            after: self.options.clock.monotonic().saturating_sub(running.began),
            user: ended.user,
            system: ended.system,
            memory_bytes: ended.memory_bytes,
            by,
        };
        self.log.end(running.id, end);
    }
}

async fn ended(pidfd: Arc<OwnedFd>) -> io::Result<()> {
    watched(pidfd)?.readable().await.map(drop)
}
