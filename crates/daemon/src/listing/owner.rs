//! The loop: accepts clients, passes on the messages of workers, and drops clients that do not receive them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use listing::{ListingRequest, ListingStep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::client::{Client, Dropped, Wish};
use super::socket::Socket;
use super::source::{Source, WorkerSignal, shared_request};
use super::{Crowd, ListingServiceOptions};

/// The most clients.
const CLIENTS: usize = 64;
/// The most directories.
const SOURCES: usize = 32;
/// The most bytes that are kept for all directories together.
const BYTES: u64 = 1 << 30;

/// The clients and the directories.
#[derive(Debug)]
pub(super) struct ServiceOwner {
    options: ListingServiceOptions,
    crowd: Arc<Crowd>,
    clients: BTreeMap<u64, Client>,
    sources: BTreeMap<u64, Source>,
    last: u64,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Stop,
    Caller,
    Client(u64),
    Source(u64),
}

impl ServiceOwner {
    pub(super) fn new(options: ListingServiceOptions, crowd: Arc<Crowd>) -> ServiceOwner {
        ServiceOwner { options, crowd, clients: BTreeMap::new(), sources: BTreeMap::new(), last: 0 }
    }

    /// Serves until the other end of `stopped` is closed.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub(super) fn run(&mut self, socket: &Socket, stopped: &OwnedFd) -> io::Result<()> {
        loop {
            for ready in self.wait(socket, stopped)? {
                match ready {
                    Ready::Stop => return Ok(()),
                    Ready::Caller => self.caller(socket),
                    Ready::Client(number) => self.client(number),
                    Ready::Source(number) => self.source(number),
                }
            }
            self.drop_who_keeps_us_waiting();
            self.drop_what_nobody_takes();
            self.crowd.set(self.clients.len());
        }
    }

    fn now(&self) -> Duration {
        self.options.clock.monotonic()
    }

    /// Waits for ready descriptors, until the next time limit of a client.
    fn wait(&self, socket: &Socket, stopped: &OwnedFd) -> io::Result<Vec<Ready>> {
        let mut what = vec![Ready::Stop];
        let mut polled = vec![PollFd::new(stopped, PollFlags::IN)];
        if self.clients.len() < CLIENTS {
            what.push(Ready::Caller);
            polled.push(PollFd::new(socket, PollFlags::IN));
        }
        for (number, client) in &self.clients {
            let out = if client.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
            what.push(Ready::Client(*number));
            polled.push(PollFd::new(client.connection(), PollFlags::IN | out));
        }
        for (number, source) in &self.sources {
            what.push(Ready::Source(*number));
            polled.push(PollFd::new(source.worker().connection(), PollFlags::IN));
        }
        let now = self.now();
        let first = self.clients.values().filter_map(Client::deadline).min();
        let timeout = first.map(|first| {
            // One millisecond is added, so that the limit has passed then.
            let left = first.saturating_sub(now) + Duration::from_millis(1);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = what.into_iter().zip(&polled).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(what, _)| what).collect())
    }

    fn caller(&mut self, socket: &Socket) {
        match sys::socket::accept_at(socket.as_fd()) {
            Ok(caller) => {
                self.last += 1;
                let client = Client::new(caller, self.now());
                self.clients.insert(self.last, client);
            }
            Err(error) => tracing::warn!(%error, "cannot take a caller"),
        }
    }

    fn client(&mut self, number: u64) {
        let now = self.now();
        let Some(client) = self.clients.get_mut(&number) else { return };
        let heard = client.hear(now).and_then(|wish| match wish {
            Wish::Nothing => Ok(()),
            Wish::List(request) => self.list(number, &request),
            Wish::Entries(source, ids) => {
                if let Some(source) = self.sources.get(&source) {
                    // If a worker does not receive the request now, it reads everything anyway.
                    let _ = source.worker().connection().want(&ids);
                }
                Ok(())
            }
            Wish::Details(source, ids) => {
                if let Some(source) = self.sources.get(&source) {
                    // As above; a client that needs details requests them again.
                    let _ = source.worker().connection().ask_details(&ids);
                }
                Ok(())
            }
        });
        let sent = heard.and_then(|()| self.send(number));
        self.keep_or_drop(number, sent);
    }

    fn keep_or_drop(&mut self, number: u64, result: Result<(), Dropped>) {
        if let Err(why) = result {
            tracing::debug!(number, %why, "a client is dropped");
            self.clients.remove(&number);
        }
    }

    /// Assigns a client the source of its directory, which is shared if there is one already.
    fn list(&mut self, number: u64, asked: &ListingRequest) -> Result<(), Dropped> {
        let full = self.sources.len() >= SOURCES;
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let Some(request) = shared_request(asked) else { return Err(Dropped::Wrong) };
        let known = self.sources.iter().find(|(_, source)| source.serves(&request));
        let source = match known.map(|(source, _)| *source) {
            Some(source) => source,
            None if full => {
                client.refuse(asked, ListingStep::Busy);
                return Err(Dropped::Refused);
            }
            None => match Source::start(&self.options.worker, request) {
                Ok(source) => {
                    self.last += 1;
                    self.sources.insert(self.last, source);
                    self.last
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot list for a client");
                    client.refuse(asked, ListingStep::Busy);
                    return Err(Dropped::Refused);
                }
            },
        };
        tracing::debug!(path = ?asked.path, number, source, "list");
        client.take_from(source, asked);
        Ok(())
    }

    /// Sends a client the messages of its source.
    fn send(&mut self, number: u64) -> Result<(), Dropped> {
        let now = self.now();
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let source = client.source().and_then(|source| self.sources.get(&source));
        source.map_or(Ok(()), |source| client.send(source, now))
    }

    /// Receives the messages of a worker and passes them on.
    fn source(&mut self, number: u64) {
        let Some(source) = self.sources.get_mut(&number) else { return };
        let heard = source.hear();
        let takers: Vec<u64> = self.takers(number).collect();
        for client in &takers {
            let sent = self.send(*client);
            self.keep_or_drop(*client, sent);
        }
        let total = self.sources.values().map(Source::bytes).sum::<u64>();
        if heard == WorkerSignal::End || total > BYTES {
            if total > BYTES {
                tracing::warn!(total, "listings take more memory than they may; one is ended");
            }
            // The clients see the end of the connection, and keep what they have received.
            self.clients.retain(|_, client| client.source() != Some(number));
            self.sources.remove(&number);
            return;
        }
        let least = takers.iter().filter_map(|client| self.clients.get(client)?.next()).min();
        if let (Some(source), Some(least)) = (self.sources.get_mut(&number), least) {
            source.forget_before(least);
        }
    }

    /// Returns the clients of a source.
    fn takers(&self, source: u64) -> impl Iterator<Item = u64> {
        let of_it = move |client: &Client| client.source() == Some(source);
        self.clients.iter().filter(move |(_, client)| of_it(client)).map(|(number, _)| *number)
    }

    fn drop_who_keeps_us_waiting(&mut self) {
        let now = self.now();
        self.clients.retain(|number, client| {
            let stays = client.deadline().is_none_or(|deadline| now < deadline);
            if !stays {
                tracing::debug!(number, "a client is dropped: it keeps us waiting");
            }
            stays
        });
    }

    /// Ends workers without clients.
    fn drop_what_nobody_takes(&mut self) {
        let taken: Vec<u64> = self.clients.values().filter_map(Client::source).collect();
        self.sources.retain(|number, _| taken.contains(number));
    }
}
