//! One directory that is read and followed for all who ask for it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use session::listing::{
    Following, Limits, ListingError, Mark, Message, Request, Step, Worker, WorkerProgram,
};

/// Bytes that one directory may take, whatever a client allows.
const BYTES: u64 = 512 << 20;
/// More changes than this, and whoever comes later gets a reading of his own.
const CHANGES: usize = 4096;

/// What a worker has sent, kept for those who have not got it yet or come later.
#[derive(Debug)]
pub(super) struct Source {
    request: Request,
    worker: Worker,
    /// From `base` on.
    messages: VecDeque<Message>,
    base: usize,
    bytes: u64,
    /// The number of the message after the one that says that everything was read.
    done: Option<usize>,
    /// Whether those who come later may have it too.
    shared: Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    Yes,
    No,
}

/// Whether a worker goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// There may be more.
    More,
    /// It has ended, or cannot be trusted.
    End,
}

/// What a client asks for, as it is read for all: followed, and within our limits.
///
/// `None` if it names no directory by its whole path.
pub(super) fn shared_request(asked: &Request) -> Option<Request> {
    if !asked.path.is_absolute() {
        return None;
    }
    let mut request = asked.clone();
    request.path = plain(&asked.path);
    request.following = Following::Changes;
    let limits = asked.limits;
    request.limits = Limits { entries: limits.entries, bytes: limits.bytes.min(BYTES) };
    Some(request)
}

/// The path without what says nothing: `/a//b/.` is `/a/b`.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

impl Source {
    /// Starts a worker.
    pub(super) fn start(program: &WorkerProgram, request: Request) -> Result<Source, ListingError> {
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

    /// Says whether a client who asks for this can have what is read here.
    pub(super) fn serves(&self, request: &Request) -> bool {
        self.shared == Shared::Yes && self.request == *request
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of the message after the last.
    pub(super) fn end(&self) -> usize {
        self.base + self.messages.len()
    }

    /// The number of the message after the one that says that everything was read.
    pub(super) fn done(&self) -> Option<usize> {
        self.done
    }

    pub(super) fn message(&self, number: usize) -> Option<&Message> {
        self.messages.get(number.checked_sub(self.base)?)
    }

    /// Takes all that the worker has sent by now.
    pub(super) fn hear(&mut self) -> Heard {
        loop {
            let message = match self.worker.connection().receive() {
                Ok(None) => return Heard::More,
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(fault))) => {
                    tracing::error!(path = ?self.request.path, %fault, "a worker is not as it must be");
                    return Heard::End;
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::UnexpectedEof {
                        tracing::warn!(path = ?self.request.path, %error, "cannot hear a worker");
                    }
                    return Heard::End;
                }
            };
            let Ok(marks) = message.marks() else { return Heard::End };
            self.bytes += u64::try_from(message.chunk().bytes().len()).unwrap_or(u64::MAX);
            self.messages.push_back(message);
            for mark in marks {
                match mark {
                    Mark::Done => self.done = Some(self.end()),
                    // What is not followed, or not any more, grows old: it is for those who have it.
                    Mark::Failed(Step::Follow | Step::Gone | Step::Open | Step::Read) => {
                        self.shared = Shared::No;
                    }
                    Mark::Failed(_) => {}
                }
            }
            if self.done.is_some_and(|done| self.end() - done > CHANGES) {
                self.shared = Shared::No;
            }
        }
    }

    /// Forgets what everybody has got, if nobody can come later.
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
        let asked = |path: &str| shared_request(&Request::of(Path::new(path)));
        assert_eq!(asked("relative"), None);
        assert_eq!(asked("/a//b/./"), asked("/a/b"));
        assert_ne!(asked("/a/b"), asked("/a/b/../b"), "what .. leads to is not for us to say");
        let mut greedy = Request::of(Path::new("/a"));
        greedy.limits.bytes = u64::MAX;
        assert_eq!(shared_request(&greedy).map(|request| request.limits.bytes), Some(BYTES));
    }
}
