//! The keepers of commands: their reports, and the requests to them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use host::keeper::{KeeperRequest, reports, tree};
use host::log::LogEntry;
use sys::launch::Child;
use sys::pidfd::{self, SignalScope};
use sys::processor::wait_with_newest_child;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use super::event::Event;
use super::limit::TimeLimit;
use super::quota::Weight;
use super::running::Running;

/// The time limit for a keeper's first report: the program may be on a file system that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command whose keeper was started.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) reply_to: ReplyTo,
    pub(super) entry: LogEntry,
    pub(super) began: Duration,
    /// Its application.
    pub(super) application: Arc<str>,
    /// The resources of its call until it runs.
    pub(super) weight: Weight,
    /// Whether the caller left before it began.
    pub(super) caller_gone: bool,
}

/// All keepers that have not ended.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    next: u64,
    known: HashMap<u64, Keeper>,
}

/// A process that keeps one command.
#[derive(Debug)]
pub(super) struct Keeper {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    socket: Arc<OwnedFd>,
    /// The command that waits for the first report, and its time limit.
    starting: Option<(Starting, TimeLimit)>,
}

impl Keeper {
    /// Ends a silent keeper, and the processes that it may have started.
    pub(super) fn abandon(&self) {
        // The keeper is still their parent, so their numbers cannot be reused.
        for child in tree::below(self.pid).unwrap_or_default() {
            tree::signal(child, SIGKILL);
        }
        // It fails if the process has ended.
        let _ = pidfd::signal(self.pidfd.as_fd(), self.pid, SIGKILL, SignalScope::Process);
    }
}

impl Keepers {
    /// Returns a keeper that has not ended, with the command that waited for this first report.
    pub(super) fn reported(&mut self, number: u64) -> Option<(Option<Starting>, &mut Keeper)> {
        let keeper = self.known.get_mut(&number)?;
        Some((keeper.starting.take().map(|(starting, _)| starting), keeper))
    }

    /// Adds a keeper and reads its reports.
    pub(super) fn add(
        &mut self,
        keeper: Child,
        socket: OwnedFd,
        starting: Starting,
        now: Duration,
        tell: &UnboundedSender<Event>,
    ) {
        let number = self.next;
        self.next += 1;
        let (pidfd, socket) = (Arc::new(keeper.pidfd), Arc::new(socket));
        let (ended, heard) = (Arc::clone(&pidfd), Arc::clone(&socket));
        let starting = Some((starting, TimeLimit::new(now, PATIENCE)));
        self.known.insert(number, Keeper { pid: keeper.pid, pidfd, socket, starting });
        let tell = tell.clone();
        tokio::spawn(async move {
            if let Err(error) = listen(number, heard, &tell).await {
                tracing::error!(%error, "cannot hear the keeper of a command");
            }
            // It fails only when the service ends.
            let _ = tell.send(Event::Kept(number, None));
            if let Ok(waited) = watched(ended) {
                let _ = waited.readable().await;
            }
            let _ = tell.send(Event::KeeperEnded(number));
        });
    }

    /// Returns whether a command is about to begin.
    pub(super) fn are_starting(&self) -> bool {
        self.known.values().any(|keeper| keeper.starting.is_some())
    }

    /// Returns when the time limit of the next keeper ends.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.known
            .values()
            .filter_map(|keeper| keeper.starting.as_ref())
            .map(|(_, limit)| limit.until())
            .min()
    }

    /// Ends the keepers whose time limit has passed, and returns their commands.
    pub(super) fn late(&mut self, now: Duration) -> Vec<Starting> {
        let mut late = Vec::new();
        for keeper in self.known.values_mut() {
            let Keeper { pid, starting, .. } = keeper;
            let wait = || wait_with_newest_child(*pid, *pid);
            if let Some((starting, _)) = starting.take_if(|(_, limit)| limit.has_passed(now, wait))
            {
                keeper.abandon();
                late.push(starting);
            }
        }
        late
    }

    /// Tells a keeper that the size of its caller's terminal may have changed; returns whether there is a keeper.
    pub(super) fn resize(&self, keeper: Option<u64>) -> bool {
        let keeper = keeper.and_then(|number| self.known.get(&number));
        keeper.is_some_and(|keeper| KeeperRequest::Size.send(&keeper.socket).is_ok())
    }

    /// Tells the keepers of a caller's commands that the caller is gone; keepers whose commands continue ignore it.
    pub(super) fn caller_is_gone(&mut self, sender: &str, running: &HashMap<u32, Running>) {
        for keeper in self.known.values_mut() {
            if let Some((starting, _)) = &mut keeper.starting {
                starting.caller_gone |= starting.reply_to.sender() == sender;
            }
        }
        let theirs = running.values().filter(|running| running.sender == sender);
        for keeper in theirs.filter_map(|running| running.keeper) {
            self.end(keeper);
        }
    }

    /// Tells a keeper to end its command, because the caller is gone.
    pub(super) fn end(&self, keeper: u64) {
        if let Some(keeper) = self.known.get(&keeper) {
            // It fails if the keeper has ended, with all its processes.
            let _ = KeeperRequest::Gone.send(&keeper.socket);
        }
    }

    /// Reaps a keeper that has ended.
    pub(super) fn reap(&mut self, keeper: u64) {
        if let Some(keeper) = self.known.remove(&keeper)
            && let Err(error) = pidfd::reap(keeper.pidfd.as_fd())
        {
            tracing::error!(%error, "cannot reap the keeper of a command");
        }
    }
}

const SIGKILL: i32 = 9;

/// Passes the reports of a keeper on, until it ends.
async fn listen(
    number: u64,
    socket: Arc<OwnedFd>,
    tell: &UnboundedSender<Event>,
) -> io::Result<()> {
    let socket = watched(socket)?;
    loop {
        let mut ready = socket.readable().await?;
        match reports(socket.get_ref()) {
            Ok(Some(report)) => {
                let _ = tell.send(Event::Kept(number, Some(report)));
            }
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) => return Err(error),
        }
    }
}

/// Makes a descriptor that a task can wait for.
#[expect(
    deprecated,
    reason = "the unsafe successor is for descriptors that may change; this one is owned and never replaced"
)]
pub(super) fn watched(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::new(descriptor)
}
