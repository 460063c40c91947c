//! Listings at a socket: directories are read by worker processes, and one reading serves everybody who asks for the same.
//!
//! It shares no state with the settings, so it has a thread of its own, which waits for sockets and for nothing else. It looks at no directory itself:
//! a file system that never answers keeps a worker waiting, which is killed when nobody asks any more.

mod client;
mod hub;
mod socket;
mod source;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use session::clock::Clock;
use session::listing::{Connection, WorkerProgram};
use tokio::sync::Notify;

/// What the service depends on.
#[derive(Debug)]
pub struct Options {
    /// The directory of the socket, made for this user alone.
    pub dir: PathBuf,
    /// What reads directories.
    pub worker: WorkerProgram,
    /// Tells how long a client has kept us waiting.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it ends all listings.
#[derive(Debug)]
pub struct Service {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    crowd: Arc<Crowd>,
}

/// How many clients there are, for the one who decides when the daemon ends.
#[derive(Debug, Default)]
struct Crowd {
    clients: AtomicUsize,
    left: Notify,
    /// Whether the socket is ours, and to be removed.
    serves: AtomicBool,
}

impl Service {
    /// Starts the thread, which waits for its turn if another daemon serves the same socket.
    ///
    /// # Errors
    ///
    /// There is no thread or no descriptor left.
    pub fn start(options: Options) -> io::Result<Service> {
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
        Ok(Service { stop: Some(stop), thread: Some(thread), crowd })
    }

    /// Says whether nobody is connected.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.crowd.clients.load(Ordering::Acquire) == 0
    }

    /// Waits until the last client has left, once for each time.
    pub async fn left(&self) {
        self.crowd.left.notified().await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that waits for another daemon's end has nothing to clear away.
        if self.crowd.serves.load(Ordering::Acquire)
            && let Some(thread) = self.thread.take()
        {
            // It has logged why, if it did not end well.
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
pub(super) async fn left(service: Option<&Service>) {
    match service {
        Some(service) => service.left().await,
        None => std::future::pending().await,
    }
}

/// The argument by which this program lists a directory, at the other end of its standard input.
pub const WORKER: &str = "listing-worker";

/// Returns this program as a worker.
#[must_use]
pub fn worker_program() -> WorkerProgram {
    // A program that was replaced since has no path any more, but is still there.
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    let path = path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    WorkerProgram { path, arguments: vec![WORKER.into()] }
}

/// Lists until the other end is gone; whatever still hangs in the kernel then ends with this process.
#[must_use]
pub fn work() -> ExitCode {
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let served =
        socket.and_then(|socket| session::listing::serve_until_hung_up(Connection::new(socket)));
    // Whoever started us sees that we are gone; without a socket nobody did.
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

fn serve(options: Options, stopped: &OwnedFd, crowd: Arc<Crowd>) -> io::Result<()> {
    raise_descriptors();
    let socket = socket::Socket::take(&options.dir)?;
    crowd.serves.store(true, Ordering::Release);
    tracing::info!(path = ?socket.path(), "serving listings");
    hub::Hub::new(options, crowd).run(&socket, stopped)
}

/// A listing of many parts holds a descriptor for each: we may have as many as the system lets us.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What there is has to do otherwise; who is refused for it is told.
    let _ = setrlimit(Resource::Nofile, limit);
}
