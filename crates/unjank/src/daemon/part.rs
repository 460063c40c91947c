//! A part of the daemon that serves on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tokio::sync::{Notify, oneshot};

/// What the one who decides when the daemon ends wants to know of a part.
#[derive(Debug, Default)]
pub(super) struct State {
    busy: AtomicBool,
    /// A time without work began.
    left: Notify,
    /// Nothing is served any more.
    ended: Notify,
}

impl State {
    pub(super) fn set_busy(&self, busy: bool) {
        if self.busy.swap(busy, Ordering::AcqRel) && !busy {
            self.left.notify_one();
        }
    }
}

/// A running part. Dropping it tells it to end and waits until it has.
#[derive(Debug)]
pub(super) struct Part {
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

impl Part {
    /// Has `serve` run on a thread with this name until its channel is closed.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub(super) fn start(
        name: &str,
        serve: impl FnOnce(&Arc<State>, oneshot::Receiver<()>) + Send + 'static,
    ) -> io::Result<Part> {
        let state = Arc::new(State::default());
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let serve = move || {
            serve(&shared, stopped);
            shared.set_busy(false);
            shared.ended.notify_one();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Part { stop: Some(stop), thread: Some(thread), state })
    }

    /// Says whether nothing is done or waited for.
    pub(super) fn is_idle(&self) -> bool {
        !self.state.busy.load(Ordering::Acquire)
    }

    /// Waits until the part becomes idle, once for each time; for ever without one.
    pub(super) async fn left(part: Option<&Part>) {
        match part {
            Some(part) => part.state.left.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until nothing is served any more; for ever without a part.
    pub(super) async fn ended(part: Option<&Part>) {
        match part {
            Some(part) => part.state.ended.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged why, if it did not end well.
            let _ = thread.join();
        }
    }
}
