//! Subscriptions to paths, and the notices for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Shared;
use super::transport::{DatabaseSignal, SignalDelivery, TransportError};
use crate::path;

/// Something may have changed; the values may also be what they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A key, or the directory that holds all changes.
    pub prefix: String,
    /// What changed relative to `prefix`; `[""]` if it is `prefix` itself.
    pub changes: Vec<String>,
    /// Why.
    pub cause: NoticeCause,
}

/// Why a [`Notice`] came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeCause {
    /// This client changed it; the value can be read already.
    Own,
    /// Another program changed it.
    Other {
        /// The tag of the change; empty when nobody used the service for it.
        tag: String,
    },
    /// The service refused a change of this client; the value is again what it was.
    Refused {
        /// The error of the service.
        error: TransportError,
    },
    /// The administrator's databases were compiled anew: values and locks may have changed.
    Locks,
}

impl Notice {
    /// Returns the full paths that changed.
    pub fn paths(&self) -> impl Iterator<Item = String> + '_ {
        self.changes.iter().map(|change| format!("{}{change}", self.prefix))
    }
}

/// A subscription to a path; dropping it ends it.
pub struct PathSubscription {
    watches: Weak<Watches>,
    path: Box<str>,
    id: u64,
}

/// Receives notices, on the thread on which they arise.
pub type NoticeSink = Arc<dyn Fn(&Notice) + Send + Sync>;

/// All subscriptions of a client.
#[derive(Default)]
pub(super) struct Watches(Mutex<State>);

#[derive(Default)]
struct State {
    next_id: u64,
    paths: HashMap<Box<str>, Watched>,
    /// Receives refused changes, whatever their paths.
    observer: Option<NoticeSink>,
}

#[derive(Default)]
struct Watched {
    sinks: Vec<(u64, NoticeSink)>,
    /// The signal subscriptions of the sources.
    _watches: Vec<SignalDelivery>,
}

impl Watches {
    /// Adds a sink. The first one for a path subscribes to its signals, before this returns.
    pub(super) fn add(
        self: &Arc<Watches>,
        shared: &Arc<Shared>,
        path: &str,
        sink: NoticeSink,
    ) -> Result<PathSubscription, TransportError> {
        let known = self.lock().paths.contains_key(path);
        // Not under the lock: a transport may deliver a signal before it returns.
        let watches = if known { Vec::new() } else { shared.watch(path)? };
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let watched = state.paths.entry(path.into()).or_default();
        watched.sinks.push((id, sink));
        watched._watches.extend(watches);
        Ok(PathSubscription { watches: Arc::downgrade(self), path: path.into(), id })
    }

    /// Notifies the subscribers of exactly `path`: the bus delivers a signal once for each subscription.
    pub(super) fn tell_path(&self, path: &str, notice: &Notice) {
        let sinks: Vec<NoticeSink> = match self.lock().paths.get(path) {
            Some(watched) => watched.sinks.iter().map(|(_, sink)| Arc::clone(sink)).collect(),
            None => return,
        };
        sinks.iter().for_each(|sink| sink(notice));
    }

    /// Sets who receives refused changes, whatever their paths.
    pub(super) fn observe_refusals(&self, sink: NoticeSink) {
        self.lock().observer = Some(sink);
    }

    /// Passes a refused change to the observer.
    pub(super) fn tell_observer(&self, notice: &Notice) {
        let observer = self.lock().observer.clone();
        if let Some(observer) = observer {
            observer(notice);
        }
    }

    /// Notifies all subscribers of a change of this client.
    pub(super) fn tell(&self, notice: &Notice) {
        let mut calls: Vec<(NoticeSink, Notice)> = Vec::new();
        for (path, watched) in &self.lock().paths {
            let about = |change: &String| {
                let full = format!("{}{change}", notice.prefix);
                full.starts_with(&**path) || (full.ends_with('/') && path.starts_with(&full))
            };
            let changes: Vec<String> =
                notice.changes.iter().filter(|c| about(c)).cloned().collect();
            if !changes.is_empty() {
                let notice = Notice { changes, ..notice.clone() };
                calls.extend(watched.sinks.iter().map(|(_, s)| (Arc::clone(s), notice.clone())));
            }
        }
        calls.iter().for_each(|(sink, notice)| sink(notice));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is called under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a signal into a notice; `None` if it is invalid, or a change of this client, whose notice was sent when it was made.
pub(super) fn notice(signal: DatabaseSignal, last_handled: &str) -> Option<Notice> {
    match signal {
        DatabaseSignal::Notify { prefix, changes, tag } => {
            let ours = !tag.is_empty() && tag == last_handled;
            let legal = if path::is_key(&prefix) {
                changes == [""]
            } else {
                path::is_dir(&prefix) && changes.iter().all(|change| path::is_relative(change))
            };
            let good = legal && !changes.is_empty() && !ours;
            good.then_some(Notice { prefix, changes, cause: NoticeCause::Other { tag } })
        }
        DatabaseSignal::Writability { path } => {
            let notice =
                Notice { prefix: path, changes: vec![String::new()], cause: NoticeCause::Locks };
            path::is_path(&notice.prefix).then_some(notice)
        }
    }
}

/// Makes a queue that a sink fills.
pub(super) fn queue() -> (NoticeSink, Receiver<Notice>) {
    let (sender, receiver) = mpsc::channel();
    let sink = move |notice: &Notice| {
        // The receiver may be gone while its subscription is being dropped.
        let _ = sender.send(notice.clone());
    };
    (Arc::new(sink), receiver)
}

impl Drop for PathSubscription {
    fn drop(&mut self) {
        let Some(watches) = self.watches.upgrade() else { return };
        let mut state = watches.lock();
        let Some(watched) = state.paths.get_mut(&self.path) else { return };
        watched.sinks.retain(|(id, _)| *id != self.id);
        let gone = watched.sinks.is_empty().then(|| state.paths.remove(&self.path));
        // The transport is called without the lock.
        drop(state);
        drop(gone);
    }
}

impl fmt::Debug for PathSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.path).finish()
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().paths.keys()).finish()
    }
}
