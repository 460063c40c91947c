//! Starting a listing: in threads of this process, in a worker process, or at a socket.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;

use sys::launch::{self, Child, Launch, LaunchedFile, OtherDescriptors, ProcessGroup};
use sys::pidfd::{self, SignalScope};

use super::connection::Connection;
use super::entries::Entries;
use super::error::ListingError;
use super::request::{ListingRequest, WorkerProgram};
use super::{Listing, serve};

impl Listing {
    /// Lists in threads of this process: nothing is started, but a file system that hangs keeps its thread.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] without descriptors or threads. A missing directory is not an error here: it
    /// arrives as [`Update::Failed`](super::Update::Failed).
    pub fn in_process(request: &ListingRequest) -> Result<Listing, ListingError> {
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
    pub fn in_worker(
        program: &WorkerProgram,
        request: &ListingRequest,
    ) -> Result<Listing, ListingError> {
        let ready = ReadyWorker::start(program)
            .map_err(|source| ListingError::NotStarted { path: request.path.clone(), source })?;
        ready.list(request)
    }

    /// Lists over a connected socket of messages (`SOCK_SEQPACKET`): whoever is at its other end lists.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] if it takes no message.
    pub fn over(socket: OwnedFd, request: &ListingRequest) -> Result<Listing, ListingError> {
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
            instead: None,
        })
    }
}

/// Who may list a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingAccess {
    /// The socket of a daemon, which shares what it reads.
    pub daemon: Option<PathBuf>,
    /// The program for a worker process.
    pub worker: Option<WorkerProgram>,
}

impl Listing {
    /// Lists in the first way there is: by the daemon if one answers and serves us, else in a worker process, else in threads of this process.
    ///
    /// A daemon that refuses us, or ends before anything arrived, is left for the next way without a word.
    ///
    /// # Errors
    ///
    /// As [`Listing::in_process`].
    pub fn open(ways: &ListingAccess, request: &ListingRequest) -> Result<Listing, ListingError> {
        let mut rest = ways.clone();
        let daemon = rest.daemon.take().filter(|_| request.path.is_absolute());
        if let Some(socket) = daemon.and_then(|path| sys::socket::connect_to(&path).ok())
            && let Ok(mut listing) = Listing::over(socket, request)
        {
            listing.instead = Some(Box::new((rest, request.clone())));
            return Ok(listing);
        }
        if let Some(program) = rest.worker
            && let Ok(listing) = Listing::in_worker(&program, request)
        {
            return Ok(listing);
        }
        Listing::in_process(request)
    }
}

/// A worker process, for those who pass its messages on. Dropping it kills the process.
#[derive(Debug)]
pub struct Worker {
    connection: Connection,
    process: Option<Child>,
}

impl Worker {
    /// Starts a worker that lists what is asked for.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] if the program cannot be started.
    pub fn start(
        program: &WorkerProgram,
        request: &ListingRequest,
    ) -> Result<Worker, ListingError> {
        let not_started = |source| ListingError::NotStarted { path: request.path.clone(), source };
        let (here, there) = sys::socket::pair().map_err(not_started)?;
        let process = Some(spawn(program, there).map_err(not_started)?);
        let worker = Worker { connection: Connection::new(here), process };
        worker.connection.ask(request).map_err(not_started)?;
        Ok(worker)
    }

    /// Returns what it sends to, and takes wishes from.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.connection.hang_up();
        if let Some(process) = self.process.take() {
            end(process);
        }
    }
}

/// A worker process that was started before there is anything to list, so that the first names need not wait for it.
///
/// It takes no processor time while it waits. Dropping it ends it.
#[derive(Debug)]
pub struct ReadyWorker {
    /// The socket and the process, until they are a listing's.
    parts: Option<(OwnedFd, Child)>,
}

impl ReadyWorker {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// What the system says: there is no such program, or there are no descriptors.
    pub fn start(program: &WorkerProgram) -> io::Result<ReadyWorker> {
        let (here, there) = sys::socket::pair()?;
        let worker = spawn(program, there)?;
        Ok(ReadyWorker { parts: Some((here, worker)) })
    }

    /// Lets it list.
    ///
    /// # Errors
    ///
    /// [`ListingError::NotStarted`] if it has ended meanwhile.
    pub fn list(mut self, request: &ListingRequest) -> Result<Listing, ListingError> {
        let path = || request.path.clone();
        let Some((socket, worker)) = self.parts.take() else {
            return Err(ListingError::WorkerEnded { path: path() });
        };
        match Listing::over(socket, request) {
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
}

impl Drop for ReadyWorker {
    fn drop(&mut self) {
        if let Some((_, worker)) = self.parts.take() {
            end(worker);
        }
    }
}

/// Starts a worker without a copy of our descriptors: among those of a service may be some of other programs, whose close
/// hangs.
fn spawn(program: &WorkerProgram, socket: OwnedFd) -> io::Result<Child> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let path = text(program.path.as_os_str().as_bytes())?;
    let mut arguments = vec![path.clone()];
    for argument in &program.arguments {
        arguments.push(text(argument.as_bytes())?);
    }
    let environment = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(name.as_bytes())
    });
    let environment: Vec<CString> = environment.collect::<io::Result<_>>()?;
    // One that hangs must not hold open what somebody reads to the end.
    let null = File::options().write(true).open("/dev/null")?;
    let (socket, null) =
        (launch::above(socket.as_fd(), FIRST_FREE)?, launch::above(null.as_fd(), FIRST_FREE)?);
    launch::launch(&Launch {
        program: LaunchedFile::Path(&path),
        arguments: &arguments,
        environment: &environment,
        directory: None,
        descriptors: &[(socket.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)],
        others: OtherDescriptors::Closed,
        place: ProcessGroup::OwnGroup,
        open_files: None,
    })
}

/// The first number that a descriptor of ours may have while a worker gets its standard ones.
const FIRST_FREE: i32 = 3;
const SIGKILL: i32 = 9;

/// Kills a worker and leaves the waiting to a thread: one that hangs in the kernel ends when the kernel lets it.
pub(super) fn end(worker: Child) {
    // An error means that it has ended already.
    let _ = pidfd::signal(worker.pidfd.as_fd(), worker.pid, SIGKILL, SignalScope::Process);
    if !matches!(pidfd::reap(worker.pidfd.as_fd()), Ok(None)) {
        return;
    }
    let waits = thread::Builder::new().name("listing-worker-end".to_owned()).stack_size(64 << 10);
    // Without a thread the process stays a zombie until we end; nothing else depends on it.
    let _ = waits.spawn(move || {
        let _ = pidfd::wait_readable(worker.pidfd.as_fd());
        let _ = pidfd::reap(worker.pidfd.as_fd());
    });
}
