//! Waits for the end of a recording: Ctrl-C, the time that was given, or the end of the work itself.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// What ends a recording from outside.
pub(crate) struct StopCondition {
    runtime: Runtime,
    signals: [Signal; 3],
}

/// What happened first.
pub(crate) enum First<T> {
    /// The work ended.
    Done(T),
    /// Ctrl-C, SIGTERM or SIGHUP, or the time is up.
    Asked,
}

impl StopCondition {
    /// Takes Ctrl-C, SIGTERM and SIGHUP as questions to end, from now on.
    pub(crate) fn listen() -> io::Result<StopCondition> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let signals = [interrupt?, terminate?, hangup?];
        drop(entered);
        Ok(StopCondition { runtime, signals })
    }

    /// Waits for the first of them; `tick` is called now and then meanwhile, if there is an interval for it.
    pub(crate) fn wait<T>(
        &mut self,
        done: &mut oneshot::Receiver<T>,
        time: Option<Duration>,
        interval: Option<Duration>,
        mut tick: impl FnMut(),
    ) -> First<Option<T>> {
        let [interrupt, terminate, hangup] = &mut self.signals;
        self.runtime.block_on(async {
            let up = tokio::time::sleep(time.unwrap_or(Duration::MAX));
            tokio::pin!(up);
            loop {
                tokio::select! {
                    result = &mut *done => return First::Done(result.ok()),
                    _ = interrupt.recv() => return First::Asked,
                    _ = terminate.recv() => return First::Asked,
                    _ = hangup.recv() => return First::Asked,
                    () = &mut up => return First::Asked,
                    () = tokio::time::sleep(interval.unwrap_or(Duration::MAX)) => tick(),
                }
            }
        })
    }

    /// Waits for the end of the work at most so long; nobody asks any more.
    pub(crate) fn finish<T>(&self, done: oneshot::Receiver<T>, patience: Duration) -> Option<T> {
        self.runtime.block_on(async { tokio::time::timeout(patience, done).await.ok()?.ok() })
    }
}
