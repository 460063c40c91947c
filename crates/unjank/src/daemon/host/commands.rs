//! What becomes of a command: it is admitted and started, gets signals, and ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bus::request::ReplyTo;
use session::host::admission;
use session::host::command::{Request, StartError};
use session::host::environment::Environment;
use session::host::log::{End, EndedBy, Entry, Outcome, Process};
use sys::launch::Child;
use sys::pidfd::{Ended, Scope};

use super::callers::Identity;
use super::hub::{Event, Hub, Job, Running};
use super::kept::{Starting, watched};
use super::start::{Start, Started};

/// A terminal has another size.
const SIGWINCH: i32 = 28;

impl Hub {
    /// Has a command started, or says why not; either is logged.
    pub(super) fn command(
        &mut self,
        reply_to: ReplyTo,
        request: Request,
        identity: Identity,
        environment: Arc<Environment>,
    ) {
        let began = self.options.clock.monotonic();
        let mut entry = Entry::asked(self.options.clock.now(), &request);
        let command = request.name();
        let known = match identity {
            Ok(known) => known,
            Err(why) => {
                let application = "an unknown program".to_owned();
                let error = StartError::Refused { command, application, why };
                return self.refused(&reply_to, entry, error);
            }
        };
        let caller = &known.caller;
        entry.application = caller.application.policy_name();
        let (client, exe) = known.client();
        (entry.caller, entry.exe) = (client, exe.map(Path::to_owned));
        let policy = Arc::clone(self.policy.now());
        let rules = policy.as_ref().as_ref().map_err(String::as_str);
        if let Err(error) = admission::screen(rules, &caller.application, &request) {
            return self.refused(&reply_to, entry, error);
        }
        let application: Arc<str> = entry.application.as_str().into();
        if !self.quota.begin(&application) {
            let why = "too many commands of this application run";
            return self.refused(&reply_to, entry, StartError::TooMany { command, why });
        }
        let whose = Arc::clone(&application);
        let starting = Starting { reply_to, entry, began, application, caller_gone: false };
        let start = Start {
            request,
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
            // Nobody listens any more when we are ending: what was started goes on, or its keeper ends it.
            let _ = tell.send(Event::Started { job, result });
        };
        match self.starters.begin(whose, began, work) {
            Ok(job) => {
                self.callers.set_starting(starting.reply_to.sender(), true);
                self.jobs.insert(job, Job::Start(Box::new(starting)));
            }
            Err(source) => {
                self.not_started(starting, StartError::Program { command, source });
            }
        }
    }

    /// Takes what a thread has done for a command.
    pub(super) fn started(&mut self, job: u64, result: Result<Started, StartError>) {
        self.starters.finish(job, self.options.clock.monotonic());
        let Some(Job::Start(starting)) = self.jobs.remove(&job) else {
            // It took so long that the caller was told that it did not begin.
            if let Ok(started) = result {
                self.reap_unseen(started.abandon());
            }
            return;
        };
        let sender = starting.reply_to.sender().to_owned();
        match result {
            Ok(Started::Runs(child)) => self.began(*starting, child, None),
            Ok(Started::Kept(keeper, socket)) => {
                self.keepers.add(keeper, socket, *starting, &self.tell);
            }
            Err(error) => self.not_started(*starting, error),
        }
        self.callers.set_starting(&sender, false);
        self.advance(&sender);
    }

    /// Takes it that a command runs.
    pub(super) fn began(&mut self, starting: Starting, child: Child, keeper: Option<u64>) {
        let Starting { reply_to, mut entry, began, application, .. } = starting;
        let sender = reply_to.sender().to_owned();
        tracing::debug!(sender, pid = child.pid, command = ?entry.command, "HostCommand");
        self.server.began(&reply_to, child.pid);
        entry.outcome = Outcome::Began(Process { pid: child.pid, began: 0 });
        let id = self.log.begin(entry);
        let pidfd = Arc::new(child.pidfd);
        if keeper.is_none() {
            self.await_end(child.pid, Arc::clone(&pidfd));
        }
        self.running.insert(child.pid, Running { sender, pidfd, id, began, application, keeper });
    }

    /// Takes it that a command that was admitted will not run.
    pub(super) fn not_started(&mut self, starting: Starting, error: StartError) {
        self.quota.end(&starting.application);
        self.refused(&starting.reply_to, starting.entry, error);
    }

    /// Says that a command will not run, and logs it.
    fn refused(&mut self, reply_to: &ReplyTo, mut entry: Entry, error: StartError) {
        tracing::debug!(sender = reply_to.sender(), ?error, "refused a command");
        self.server.not_started(reply_to, &error);
        entry.outcome = match error {
            StartError::Refused { why, .. } => Outcome::Refused(why),
            error => Outcome::NotStarted(error.to_string()),
        };
        self.log.begin(entry);
    }

    /// Waits beside everything else until a process has ended.
    fn await_end(&self, pid: u32, pidfd: Arc<OwnedFd>) {
        let tell = self.tell.clone();
        tokio::spawn(async move {
            if let Err(error) = ended(pidfd).await {
                tracing::error!(%error, pid, "cannot wait for a command");
            }
            // Nobody listens any more when we are ending.
            let _ = tell.send(Event::Ended(pid));
        });
    }

    /// Waits for the end of a process that nobody else knows of.
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
        scope: Scope,
    ) -> io::Result<()> {
        // The same answer for a stranger's command as for none.
        let running = self.running.get(&pid).filter(|running| running.sender == sender);
        let running = running.ok_or(io::ErrorKind::NotFound)?;
        let signal = i32::try_from(signal).ok().filter(|signal| (0..=64).contains(signal));
        let signal = signal.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "there is no signal of this number")
        })?;
        if signal == SIGWINCH && self.keepers.resize(running.keeper) {
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

    /// Tells the caller of a command, and the log, that it has ended.
    pub(super) fn ended(&mut self, pid: u32, ended: &Ended, by: EndedBy) {
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
