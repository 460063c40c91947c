//! The loop: accepts clients, passes on the messages of workers, and drops clients that do not receive them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use listing::{Following, ListingRequest, ListingStep};
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
            self.assign_who_awaits();
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
        // One that awaits a worker's answer is not polled at all: its end would be reported whatever is asked for, again and again.
        for (number, client) in self.clients.iter().filter(|(_, client)| !client.is_awaiting()) {
            let out = if client.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
            what.push(Ready::Client(*number));
            polled.push(PollFd::new(client.connection(), PollFlags::IN | out));
        }
        for (number, source) in &self.sources {
            what.push(Ready::Source(*number));
            polled.push(PollFd::new(source.worker().connection(), PollFlags::IN));
        }
        let now = self.now();
        let first = self.clients.values().filter_map(Client::due).min();
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
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let Some(request) = shared_request(asked) else { return Err(Dropped::Wrong) };
        let known = self.sources.iter_mut().find(|(_, source)| source.serves(&request));
        if let Some((known, source)) = known {
            if asked.following == Following::Changes {
                tracing::debug!(path = ?asked.path, number, known, "list");
                client.take_from(*known, source, asked);
                return Ok(());
            }
            // What happened a moment ago may not have been told yet.
            if let Ok(question) = source.check() {
                client.await_answer(*known, question, asked, self.options.clock.monotonic());
                return Ok(());
            }
        }
        self.list_anew(number, asked, request)
    }

    /// Assigns a client a source of its own.
    fn list_anew(
        &mut self,
        number: u64,
        asked: &ListingRequest,
        request: ListingRequest,
    ) -> Result<(), Dropped> {
        let full = self.sources.len() >= SOURCES;
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        if full {
            client.refuse(asked, ListingStep::Busy);
            return Err(Dropped::Refused);
        }
        match Source::start(&self.options.worker, request) {
            Ok(source) => {
                self.last += 1;
                tracing::debug!(path = ?asked.path, number, source = self.last, "list");
                client.take_from(self.last, &source, asked);
                self.sources.insert(self.last, source);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list for a client");
                client.refuse(asked, ListingStep::Busy);
                Err(Dropped::Refused)
            }
        }
    }

    /// Lets those who have waited for it share a source to which nothing has happened; the others get one of their own.
    fn assign_who_awaits(&mut self) {
        let now = self.now();
        let settled: Vec<(u64, ListingRequest)> = self
            .clients
            .iter()
            .filter_map(|(number, client)| {
                let source = client.source().and_then(|source| self.sources.get(&source));
                Some((*number, client.settled(source, now)?))
            })
            .collect();
        for (number, asked) in settled {
            let assigned = self.assign(number, &asked).and_then(|()| self.send(number));
            self.keep_or_drop(number, assigned);
        }
    }

    fn assign(&mut self, number: u64, asked: &ListingRequest) -> Result<(), Dropped> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let known = client.source().and_then(|known| Some((known, self.sources.get(&known)?)));
        if let Some((known, source)) = known
            && source.is_unchanged()
            && client.is_answered(source)
        {
            tracing::debug!(path = ?asked.path, number, known, "list");
            client.take_from(known, source, asked);
            return Ok(());
        }
        let Some(request) = shared_request(asked) else { return Err(Dropped::Wrong) };
        self.list_anew(number, asked, request)
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
        if heard == WorkerSignal::End {
            return self.end(number);
        }
        let Some(source) = self.sources.get_mut(&number) else { return };
        let next = |client: &u64| self.clients.get(client)?.next(source);
        let least = takers.iter().filter_map(next).min().unwrap_or(source.end());
        source.forget_before(least);
        if source.is_too_large() {
            // What all have received is kept for those who come later alone.
            source.share_no_more();
            source.forget_before(least);
        }
        if source.is_too_large() {
            tracing::warn!(bytes = source.bytes(), "a listing takes more memory than it may");
            self.end(number);
        }
        while let Some((total, largest)) = self.excess() {
            tracing::warn!(total, "listings take more memory than they may; the largest is ended");
            self.end(largest);
        }
    }

    /// Returns how much the listings take together and which takes most, if that is more than they may.
    fn excess(&self) -> Option<(u64, u64)> {
        let total = self.sources.values().map(Source::bytes).sum::<u64>();
        let largest = self.sources.iter().max_by_key(|(_, source)| source.bytes())?;
        (total > BYTES).then_some((total, *largest.0))
    }

    /// Ends a listing: its clients see the end of the connection, and keep what they have received. Who has not begun to receive it gets another one.
    fn end(&mut self, number: u64) {
        self.clients.retain(|_, client| client.source() != Some(number) || client.is_awaiting());
        self.sources.remove(&number);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use listing::WorkerProgram;
    use sys::clock::SystemClock;

    use super::*;

    #[test]
    fn a_client_that_leaves_while_it_awaits_an_answer_wakes_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("unjank");
        let socket = Socket::take(&dir).unwrap();
        let (stop, stopped) = sys::socket::pair().unwrap();
        let worker = WorkerProgram { path: "/bin/false".into(), arguments: Vec::new() };
        let clock = Arc::new(SystemClock::start());
        let options = ListingServiceOptions { dir, worker, clock };
        let mut owner = ServiceOwner::new(options, Arc::default());
        let (caller, left) = sys::socket::pair().unwrap();
        let mut client = Client::new(caller, owner.now());
        client.await_answer(1, 1, &ListingRequest::of(Path::new("/")), owner.now());
        owner.clients.insert(2, client);
        drop((left, stop));
        let ready = owner.wait(&socket, &stopped).unwrap();
        assert!(matches!(ready[..], [Ready::Stop]), "{ready:?}");
    }
}
