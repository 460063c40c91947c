//! Listings at a socket: directories are read by worker processes, and one reading serves all clients of a directory.
//!
//! It shares no state with the settings, so it has a thread of its own, which waits for sockets only. It opens no directory itself:
//! a file system that never answers blocks only a worker, which is killed when its last client has left.

mod client;
mod owner;
mod socket;
mod source;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use listing::{Connection, WorkerProgram};
use sys::clock::Clock;
use tokio::sync::Notify;

/// The options and dependencies of the service.
#[derive(Debug)]
pub struct ListingServiceOptions {
    /// The directory of the socket, made for this user alone.
    pub dir: PathBuf,
    /// The program of the workers.
    pub worker: WorkerProgram,
    /// The clock for the time limits of clients.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it ends all listings.
#[derive(Debug)]
pub struct ListingService {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    crowd: Arc<Crowd>,
}

/// The number of clients, for the decision when the daemon ends.
#[derive(Debug, Default)]
struct Crowd {
    clients: AtomicUsize,
    left: Notify,
    /// Whether this service made the socket and has to remove it.
    serves: AtomicBool,
}

impl ListingService {
    /// Starts the thread, which waits while another daemon serves the same socket.
    ///
    /// # Errors
    ///
    /// The thread or a descriptor could not be made.
    pub fn start(options: ListingServiceOptions) -> io::Result<ListingService> {
        let (stop, stopped) = sys::socket::pair()?;
        let crowd = Arc::new(Crowd::default());
        let counted = Arc::clone(&crowd);
        let serve = move || {
            let dir = options.dir.clone();
            if let Err(error) = serve(options, &stopped, counted) {
                tracing::warn!(?dir, %error, "cannot serve listings");
            }
        };
        let thread = thread::Builder::new().name("listings".to_owned()).spawn(serve)?;
        Ok(ListingService { stop: Some(stop), thread: Some(thread), crowd })
    }

    /// Returns whether no client is connected.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.crowd.clients.load(Ordering::Acquire) == 0
    }

    /// Waits until the last client has left, once for each time.
    pub async fn left(&self) {
        self.crowd.left.notified().await;
    }
}

impl Drop for ListingService {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that waits for another daemon's end has nothing to remove.
        if self.crowd.serves.load(Ordering::Acquire)
            && let Some(thread) = self.thread.take()
        {
            // It has logged the reason if it failed.
            let _ = thread.join();
        }
    }
}

impl Crowd {
    fn set(&self, clients: usize) {
        let before = self.clients.swap(clients, Ordering::AcqRel);
        if before > 0 && clients == 0 {
            self.left.notify_one();
        }
    }
}

/// Waits until the last client of a service has left, for ever without one.
pub(super) async fn left(service: Option<&ListingService>) {
    match service {
        Some(service) => service.left().await,
        None => std::future::pending().await,
    }
}

/// The argument by which this program lists a directory, at the other end of its standard input.
pub const WORKER: &str = "listing-worker";

/// Returns this program as the program of the workers.
#[must_use]
pub(crate) fn worker_program() -> WorkerProgram {
    // A program file that was replaced has no path any more, but can still be run through /proc.
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    let path = path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    WorkerProgram { path, arguments: vec![WORKER.into()] }
}

/// Lists until the other end is closed; calls that still hang in the kernel then end with this process.
#[must_use]
pub fn work() -> ExitCode {
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let served = socket.and_then(|socket| listing::serve_until_hung_up(Connection::new(socket)));
    // The parent sees the end of this process; without a socket there is no parent that waits.
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

fn serve(options: ListingServiceOptions, stopped: &OwnedFd, crowd: Arc<Crowd>) -> io::Result<()> {
    raise_descriptors();
    let socket = socket::Socket::take(&options.dir)?;
    crowd.serves.store(true, Ordering::Release);
    tracing::info!(path = ?socket.path(), "serving listings");
    owner::ServiceOwner::new(options, crowd).run(&socket, stopped)
}

/// A listing of many chunks holds a descriptor for each; therefore the limit is raised as far as permitted.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that fails, the current limit applies; a client that is refused for it is told.
    let _ = setrlimit(Resource::Nofile, limit);
}
