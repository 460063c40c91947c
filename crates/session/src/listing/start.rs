//! Starting a listing: in threads of this process, in a worker process, or at a socket.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::connection::Connection;
use super::entries::Entries;
use super::error::ListingError;
use super::request::{Request, WorkerProgram};
use super::{Listing, serve};

impl Listing {
    /// Lists in threads of this process: nothing is started, but a file system that hangs keeps its thread.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] without descriptors or threads. A missing directory is not an error here: it
    /// arrives as [`Update::Failed`](super::Update::Failed).
    pub fn in_process(request: &Request) -> Result<Listing, ListingError> {
        let not_started = |source| ListingError::NotStarted { path: request.path.clone(), source };
        let (here, there) = sys::socket::pair().map_err(not_started)?;
        let lists = thread::Builder::new().name("listing".to_owned());
        lists.spawn(move || serve(Connection::new(there))).map_err(not_started)?;
        Listing::over(here, request)
    }

    /// Lists in a worker process: whatever the file system does, this process goes on.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] if the program cannot be started.
    pub fn in_worker(program: &WorkerProgram, request: &Request) -> Result<Listing, ListingError> {
        let not_started = |source| ListingError::NotStarted { path: request.path.clone(), source };
        let (here, there) = sys::socket::pair().map_err(not_started)?;
        let worker = spawn(program, there).map_err(not_started)?;
        match Listing::over(here, request) {
            Ok(mut listing) => {
                listing.worker = Some(worker);
                Ok(listing)
            }
            Err(error) => {
                end(worker);
                Err(error)
            }
        }
    }

    /// Lists over a connected socket of messages (`SOCK_SEQPACKET`): whoever is at its other end lists.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] if it takes no message.
    pub fn over(socket: OwnedFd, request: &Request) -> Result<Listing, ListingError> {
        let connection = Connection::new(socket);
        connection
            .ask(request)
            .map_err(|source| ListingError::NotStarted { path: request.path.clone(), source })?;
        Ok(Listing {
            path: request.path.clone(),
            entries: Entries::new(request.limits),
            connection: Some(connection),
            worker: None,
            updates: VecDeque::new(),
            done: false,
            kept: None,
        })
    }
}

fn spawn(program: &WorkerProgram, socket: OwnedFd) -> io::Result<Child> {
    Command::new(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .spawn()
}

/// Kills a worker and leaves the waiting to a thread: one that hangs in the kernel ends when the kernel lets it.
pub(super) fn end(mut worker: Child) {
    // An error means that it has ended already.
    let _ = worker.kill();
    if !matches!(worker.try_wait(), Ok(None)) {
        return;
    }
    let waits = thread::Builder::new().name("listing-worker-end".to_owned()).stack_size(64 << 10);
    // Without a thread the process stays a zombie until we end; nothing else depends on it.
    let _ = waits.spawn(move || worker.wait());
}
