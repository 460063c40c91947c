//! One directory that is read and followed for all clients that requested it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use listing::{
    Following, ListingError, ListingLimits, ListingMessage, ListingRequest, ListingStep,
    StreamMark, Worker, WorkerProgram,
};

/// The most bytes of one directory, whatever limit a client sets.
const BYTES: u64 = 512 << 20;
/// After more changes than this, a new client gets a reading of its own.
const CHANGES: usize = 4096;

/// The messages of a worker, kept for clients that have not received them yet or come later.
#[derive(Debug)]
pub(super) struct Source {
    request: ListingRequest,
    worker: Worker,
    /// The messages from number `base` on.
    messages: VecDeque<ListingMessage>,
    base: usize,
    bytes: u64,
    /// The number of the message after the one that marks the end of the reading.
    done: Option<usize>,
    /// Whether new clients may share it.
    shared: Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    Yes,
    No,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerSignal {
    /// It may send more.
    More,
    /// It has ended, or sent an invalid message.
    End,
}

/// Returns the request that is passed to the worker for a client's request: followed, and within the service's limits.
///
/// `None` if it does not name a directory by an absolute path.
pub(super) fn shared_request(asked: &ListingRequest) -> Option<ListingRequest> {
    if !asked.path.is_absolute() {
        return None;
    }
    let mut request = asked.clone();
    request.path = plain(&asked.path);
    request.following = Following::Changes;
    let limits = asked.limits;
    request.limits = ListingLimits { entries: limits.entries, bytes: limits.bytes.min(BYTES) };
    Some(request)
}

/// Returns the path without redundant parts: `/a//b/.` becomes `/a/b`.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

impl Source {
    /// Starts a worker.
    pub(super) fn start(
        program: &WorkerProgram,
        request: ListingRequest,
    ) -> Result<Source, ListingError> {
        let worker = Worker::start(program, &request)?;
        Ok(Source {
            request,
            worker,
            messages: VecDeque::new(),
            base: 0,
            bytes: 0,
            done: None,
            shared: Shared::Yes,
        })
    }

    /// Returns whether a client with this request can share this source.
    pub(super) fn serves(&self, request: &ListingRequest) -> bool {
        self.shared == Shared::Yes && self.request == *request
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the message after the last one.
    pub(super) fn end(&self) -> usize {
        self.base + self.messages.len()
    }

    /// The number of the message after the one that marks the end of the reading.
    pub(super) fn done(&self) -> Option<usize> {
        self.done
    }

    pub(super) fn message(&self, number: usize) -> Option<&ListingMessage> {
        self.messages.get(number.checked_sub(self.base)?)
    }

    /// Receives all messages that the worker has sent by now.
    pub(super) fn hear(&mut self) -> WorkerSignal {
        loop {
            let message = match self.worker.connection().receive() {
                Ok(None) => return WorkerSignal::More,
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(fault))) => {
                    tracing::error!(path = ?self.request.path, %fault, "a worker is not as it must be");
                    return WorkerSignal::End;
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::UnexpectedEof {
                        tracing::warn!(path = ?self.request.path, %error, "cannot hear a worker");
                    }
                    return WorkerSignal::End;
                }
            };
            let Ok(marks) = message.marks() else { return WorkerSignal::End };
            self.bytes += u64::try_from(message.chunk().bytes().len()).unwrap_or(u64::MAX);
            self.messages.push_back(message);
            for mark in marks {
                match mark {
                    StreamMark::Done => self.done = Some(self.end()),
                    // A reading that is not followed (any more) becomes outdated: new clients do not share it.
                    StreamMark::Failed(
                        ListingStep::Follow
                        | ListingStep::Gone
                        | ListingStep::Open
                        | ListingStep::Read,
                    ) => {
                        self.shared = Shared::No;
                    }
                    StreamMark::Failed(_) => {}
                }
            }
            if self.done.is_some_and(|done| self.end() - done > CHANGES) {
                self.shared = Shared::No;
            }
        }
    }

    /// Drops messages that all clients have received, if no new client can share the source.
    pub(super) fn forget_before(&mut self, number: usize) {
        while self.shared == Shared::No && self.base < number {
            let Some(message) = self.messages.pop_front() else { return };
            let length = u64::try_from(message.chunk().bytes().len()).unwrap_or(0);
            self.bytes = self.bytes.saturating_sub(length);
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_are_asked_for_in_one_way() {
        let asked = |path: &str| shared_request(&ListingRequest::of(Path::new(path)));
        assert_eq!(asked("relative"), None);
        assert_eq!(asked("/a//b/./"), asked("/a/b"));
        assert_ne!(asked("/a/b"), asked("/a/b/../b"), "what .. leads to is not for us to say");
        let mut greedy = ListingRequest::of(Path::new("/a"));
        greedy.limits.bytes = u64::MAX;
        assert_eq!(shared_request(&greedy).map(|request| request.limits.bytes), Some(BYTES));
    }
}
