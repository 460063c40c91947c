//! One directory that is read and followed for all clients that requested it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use listing::{
    Following, ListingError, ListingLimits, ListingMessage, ListingRequest, StreamMark, Worker,
    WorkerProgram,
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
    /// The end of the reading.
    done: Option<ReadingEnd>,
    /// Whether anything changed after it.
    changed: bool,
    /// Whether new clients may share it.
    shared: Shared,
    /// The numbers of the last question to the worker whether anything has changed, and of the last one that it has answered.
    checks: (u32, u32),
}

/// Where the reading of a directory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadingEnd {
    /// The number of the message after the one that says so.
    pub(super) number: usize,
    /// How many names were read.
    pub(super) names: u32,
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

/// Returns the request that is passed to the worker for a client's request: within the service's limits.
///
/// `None` if it does not name a directory by an absolute path.
pub(super) fn shared_request(asked: &ListingRequest) -> Option<ListingRequest> {
    if !asked.path.is_absolute() {
        return None;
    }
    let mut request = asked.clone();
    request.path = plain(&asked.path);
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
        // Nobody knows how old a reading is that is not followed.
        let shared = match request.following {
            Following::Changes => Shared::Yes,
            Following::Never => Shared::No,
        };
        Ok(Source {
            request,
            worker,
            messages: VecDeque::new(),
            base: 0,
            bytes: 0,
            done: None,
            changed: false,
            shared,
            checks: (0, 0),
        })
    }

    /// Returns whether a client with this request can share this source: whoever follows learns what has changed since it began. Whoever does not needs one to which nothing has happened, which [`Source::check`] finds out for names and types alone: inotify does not report a change inside of a subdirectory, which changes its times and links, nor one through a hard link elsewhere.
    pub(super) fn serves(&self, request: &ListingRequest) -> bool {
        let is_fresh = match request.following {
            Following::Changes => true,
            Following::Never => request.fields.is_empty() && self.is_unchanged(),
        };
        let followed = ListingRequest { following: Following::Changes, ..request.clone() };
        self.shared == Shared::Yes && is_fresh && self.request == followed
    }

    /// Returns whether everything was read, and nothing has changed since as far as the worker has told.
    pub(super) fn is_unchanged(&self) -> bool {
        self.shared == Shared::Yes && self.done.is_some() && !self.changed
    }

    /// Returns whether only those who follow it may receive what comes after the end.
    pub(super) fn is_followed(&self) -> bool {
        self.request.following == Following::Changes
    }

    /// Asks the worker whether anything has changed by now; returns the number of the question.
    ///
    /// # Errors
    ///
    /// The worker does not take it.
    pub(super) fn check(&mut self) -> io::Result<u32> {
        let question = self.checks.0.checked_add(1).ok_or(io::ErrorKind::QuotaExceeded)?;
        self.worker.connection().check(question)?;
        self.checks.0 = question;
        Ok(question)
    }

    /// Returns whether the worker has answered the question of this number, or a later one.
    pub(super) fn is_checked(&self, question: u32) -> bool {
        self.checks.1 >= question
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether it takes more memory than its clients allow, or any of them may.
    pub(super) fn is_too_large(&self) -> bool {
        self.bytes > self.request.limits.bytes
    }

    /// Leaves it to the clients that it has.
    pub(super) fn share_no_more(&mut self) {
        self.shared = Shared::No;
    }

    /// Returns the number of the message after the last one.
    pub(super) fn end(&self) -> usize {
        self.base + self.messages.len()
    }

    /// Returns the end of the reading.
    pub(super) fn done(&self) -> Option<ReadingEnd> {
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
            // What answers the service is nothing for its clients.
            let answered = marks.iter().find_map(|mark| match mark {
                StreamMark::Checked(question) => Some(*question),
                _ => None,
            });
            if let Some(question) = answered {
                self.checks.1 = self.checks.1.max(question);
                continue;
            }
            self.bytes += u64::try_from(message.chunk().bytes().len()).unwrap_or(u64::MAX);
            self.messages.push_back(message);
            for mark in marks {
                match mark {
                    StreamMark::Done(names) => {
                        self.done = Some(ReadingEnd { number: self.end(), names });
                    }
                    StreamMark::Entries => self.changed |= self.done.is_some(),
                    // A reading that is not whole, or is not followed (any more), becomes outdated: new clients do not share it.
                    StreamMark::Failed(_) => self.shared = Shared::No,
                    StreamMark::Checked(_) => {}
                }
            }
            if self.done.is_some_and(|done| self.end() - done.number > CHANGES) {
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
    use std::os::fd::AsFd;
    use std::time::Duration;

    use listing::Connection;
    use listing::record::{FORMAT, checked, done};
    use store::stream::StreamBuilder;

    use super::*;

    /// Among the arguments of this program, makes it a worker that leaves the first question unanswered.
    const WORKER: &str = "worker-that-answers-late";
    const TEST: &str =
        "listing::source::tests::a_question_without_an_answer_does_not_delay_those_after_it";

    fn answer_late() {
        let connection = Connection::new(io::stdin().as_fd().try_clone_to_owned().unwrap());
        let mut builder = StreamBuilder::new(FORMAT);
        // The request, and questions.
        for received in 0.. {
            connection.wait(None).unwrap();
            let Ok(Some(message)) = connection.receive() else { return };
            message.unwrap();
            builder.clear();
            match received {
                0 => done(0, &mut builder).unwrap(),
                1 => continue,
                question => checked(question, &mut builder).unwrap(),
            }
            connection.send(&builder).unwrap();
        }
    }

    #[test]
    fn a_question_without_an_answer_does_not_delay_those_after_it() {
        if std::env::args().any(|argument| argument == WORKER) {
            return answer_late();
        }
        let path = std::env::current_exe().unwrap();
        let arguments = ["--exact", TEST, WORKER].map(Into::into).to_vec();
        let request = ListingRequest::of(Path::new("/")).followed();
        let mut source = Source::start(&WorkerProgram { path, arguments }, request).unwrap();
        let hear_until = |source: &mut Source, is_heard: &dyn Fn(&Source) -> bool| {
            while !is_heard(source) {
                let limit = Some(Duration::from_secs(60));
                let is_there = source.worker().connection().wait(limit).unwrap();
                assert!(is_there, "the worker answers");
                assert_eq!(source.hear(), WorkerSignal::More);
            }
        };
        hear_until(&mut source, &Source::is_unchanged);
        let first = source.check().unwrap();
        for _ in 0..3 {
            let question = source.check().unwrap();
            assert!(!source.is_checked(question));
            hear_until(&mut source, &|source| source.is_checked(question));
        }
        assert!(source.is_checked(first), "what was told later is told");
    }

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
