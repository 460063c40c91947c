//! Commands that have a keeper: what it tells, and what it is told.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use session::host::command::StartError;
use session::host::keeper::{Order, Report, reports};
use session::host::log::{EndedBy, Entry};
use sys::launch::Child;
use sys::pidfd::{self, Ended};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use super::hub::{Event, Hub, Running};

/// A command whose keeper was started.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) reply_to: ReplyTo,
    pub(super) entry: Entry,
    pub(super) began: Duration,
    /// Whose it is.
    pub(super) application: Arc<str>,
    /// The caller left before it began.
    pub(super) caller_gone: bool,
}

/// All keepers that have not ended.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    next: u64,
    known: HashMap<u64, Keeper>,
}

#[derive(Debug)]
struct Keeper {
    pidfd: Arc<OwnedFd>,
    socket: Arc<OwnedFd>,
    /// What waits for its first report.
    starting: Option<Starting>,
}

impl Keepers {
    /// Takes a keeper and listens to it.
    pub(super) fn add(
        &mut self,
        keeper: Child,
        socket: OwnedFd,
        starting: Starting,
        tell: &UnboundedSender<Event>,
    ) {
        let number = self.next;
        self.next += 1;
        let (pidfd, socket) = (Arc::new(keeper.pidfd), Arc::new(socket));
        let (ended, heard) = (Arc::clone(&pidfd), Arc::clone(&socket));
        let starting = Some(starting);
        self.known.insert(number, Keeper { pidfd, socket, starting });
        let tell = tell.clone();
        tokio::spawn(async move {
            if let Err(error) = listen(number, heard, &tell).await {
                tracing::error!(%error, "cannot hear the keeper of a command");
            }
            // Nobody listens any more when we are ending.
            let _ = tell.send(Event::Kept(number, None));
            if let Ok(waited) = watched(ended) {
                let _ = waited.readable().await;
            }
            let _ = tell.send(Event::KeeperEnded(number));
        });
    }

    /// Says whether a command is about to begin.
    pub(super) fn are_starting(&self) -> bool {
        self.known.values().any(|keeper| keeper.starting.is_some())
    }

    /// Tells a keeper that the terminal of its caller may have another size; says whether there is one.
    pub(super) fn resize(&self, keeper: Option<u64>) -> bool {
        let keeper = keeper.and_then(|number| self.known.get(&number));
        keeper.is_some_and(|keeper| Order::Size.send(&keeper.socket).is_ok())
    }

    /// Tells the keepers of a caller's commands that it is gone; those whose commands go on do not mind.
    pub(super) fn caller_is_gone(&mut self, sender: &str, running: &HashMap<u32, Running>) {
        for keeper in self.known.values_mut() {
            if let Some(starting) = &mut keeper.starting {
                starting.caller_gone |= starting.reply_to.sender() == sender;
            }
        }
        let theirs = running.values().filter(|running| running.sender == sender);
        for keeper in theirs.filter_map(|running| running.keeper) {
            self.end(keeper);
        }
    }

    fn end(&self, keeper: u64) {
        if let Some(keeper) = self.known.get(&keeper) {
            // One that is gone has ended everything.
            let _ = Order::Gone.send(&keeper.socket);
        }
    }

    /// Takes the end of a keeper that has ended.
    pub(super) fn reap(&mut self, keeper: u64) {
        if let Some(keeper) = self.known.remove(&keeper)
            && let Err(error) = pidfd::reap(keeper.pidfd.as_fd())
        {
            tracing::error!(%error, "cannot reap the keeper of a command");
        }
    }
}

impl Hub {
    /// Takes what a keeper tells.
    pub(super) fn kept(&mut self, number: u64, report: Option<Report>) {
        let Some(keeper) = self.keepers.known.get_mut(&number) else { return };
        let starting = keeper.starting.take();
        match (starting, report) {
            (Some(starting), Some(Report::Began { pid, pidfd })) => {
                let gone = starting.caller_gone;
                self.began(starting, Child { pid, pidfd }, Some(number));
                if gone {
                    self.keepers.end(number);
                }
            }
            (Some(starting), report) => {
                let source = match report {
                    Some(Report::NotStarted(error)) => error,
                    _ => io::Error::other("its keeper has ended"),
                };
                let command = starting.entry.command.first().cloned().unwrap_or_default();
                let error = StartError::Program { command, source };
                self.not_started(starting, error);
            }
            (None, Some(Report::Ended(ended, by))) => {
                if let Some(pid) = self.kept_by(number) {
                    self.ended(pid, &ended, by);
                }
            }
            (None, Some(_)) => tracing::error!("a keeper tells what it cannot know"),
            (None, None) => {
                if let Some(pid) = self.kept_by(number) {
                    // Somebody killed the keeper; how the command ends is nobody's to know any more.
                    tracing::warn!(pid, "the keeper of a command is gone");
                    self.ended(pid, &UNKNOWN, EndedBy::Itself);
                }
            }
        }
    }

    fn kept_by(&self, keeper: u64) -> Option<u32> {
        let mut running = self.running.iter();
        running.find(|(_, running)| running.keeper == Some(keeper)).map(|(pid, _)| *pid)
    }
}

/// The end of a command that nobody saw: as if it had been killed, since it must not look like success.
const UNKNOWN: Ended =
    Ended { wait_status: 9, user: Duration::ZERO, system: Duration::ZERO, memory_bytes: 0 };

/// Passes on what a keeper tells, until it is gone.
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

/// Waits for a descriptor beside everything else.
#[expect(
    deprecated,
    reason = "the unsafe successor is for descriptors that may change; this one is owned and never replaced"
)]
pub(super) fn watched(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::new(descriptor)
}
