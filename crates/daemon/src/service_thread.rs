//! A part of the daemon that serves on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tokio::sync::{Notify, oneshot};

/// Events of a part that matter for the decision when the daemon ends.
#[derive(Debug, Default)]
pub(super) struct State {
    busy: AtomicBool,
    /// The part became idle.
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

/// A running part. Dropping it asks it to end and waits for its end.
#[derive(Debug)]
pub(super) struct RunningService {
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

impl RunningService {
    /// Runs `serve` on a thread with this name until its channel is closed.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    pub(super) fn start(
        name: &str,
        serve: impl FnOnce(&Arc<State>, oneshot::Receiver<()>) + Send + 'static,
    ) -> io::Result<RunningService> {
        let state = Arc::new(State::default());
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let serve = move || {
            serve(&shared, stopped);
            shared.set_busy(false);
            shared.ended.notify_one();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(RunningService { stop: Some(stop), thread: Some(thread), state })
    }

    /// Returns whether the part is idle.
    pub(super) fn is_idle(&self) -> bool {
        !self.state.busy.load(Ordering::Acquire)
    }

    /// Waits until the part becomes idle, once for each time; for ever without one.
    pub(super) async fn left(part: Option<&RunningService>) {
        match part {
            Some(part) => part.state.left.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the part stops serving; for ever without a part.
    pub(super) async fn ended(part: Option<&RunningService>) {
        match part {
            Some(part) => part.state.ended.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged the reason if it failed.
            let _ = thread.join();
        }
    }
}
