//! The settings API for programs: open a profile once, read without waiting, change at once.
//!
//! ```
//! # use std::sync::Arc;
//! # use unjank_settings::client::{NoBus, SettingsClient};
//! # use unjank_settings::profile::{SettingsEnvironment, SettingsProfile};
//! # let home = tempfile::tempdir().unwrap();
//! # let environment = SettingsEnvironment {
//! #     profile: None,
//! #     config_home: home.path().join("config"),
//! #     runtime_dir: home.path().join("run"),
//! #     data_dirs: Vec::new(),
//! #     sysconf_dir: home.path().join("etc"),
//! #     mandatory_dir: home.path().join("mandatory"),
//! #     uid: 1000,
//! # };
//! let profile = SettingsProfile::choose(&environment, None);
//! let client = SettingsClient::open(&profile, &environment, Arc::new(NoBus));
//! let mut reader = client.reader();
//! assert!(reader.get("/org/gnome/desktop/interface/font-name").is_none());
//! ```

mod memo;
mod overlay;
mod reader;
mod transport;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gvdb::gvariant::Variant;

use super::changeset::Changeset;
use super::effective::notification;
use super::path;
use super::profile::{Description, ProfileBus, SettingsEnvironment, SettingsProfile};
use super::source::{ProfileDatabase, Refreshed};
use overlay::Overlay;

pub use reader::{SettingsReader, ValueOrigin};
pub use transport::{
    ChangeCompletion, DatabaseSignal, Deliver, NoBus, SignalDelivery, Transport, TransportError,
};
pub use watch::{Notice, NoticeCause, NoticeSink, PathSubscription};

/// One program's settings. Clones are the same client and may be used from any thread.
#[derive(Clone, Debug)]
pub struct SettingsClient(Arc<Shared>);

/// A key with its hash, for programs that read the same key often.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    text: &'a str,
    hash: u64,
}

/// Selects one of the values that a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueChoice {
    /// The effective value, which programs use.
    InForce,
    /// The user's value, even where a lock hides it.
    User,
    /// The value that would be effective if the user's value were reset.
    Default,
}

/// Why a change was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Nothing was changed: the key is locked, or the profile has no database that can be written.
    #[error("cannot change {key}: it is locked, or nothing in the profile can be written")]
    NotWritable {
        /// The first key that cannot be changed.
        key: String,
    },
    /// Nothing was changed: a path is neither a key nor, without a value, a directory.
    #[error("cannot change {path:?}: not the path of a setting")]
    NotAPath {
        /// The path.
        path: String,
    },
    /// The service did not make the change.
    #[error("the settings service did not take the change")]
    Refused(#[from] TransportError),
}

/// The state that readers and changes of a client share.
#[derive(Debug)]
struct Shared {
    descriptions: Vec<Description>,
    environment: SettingsEnvironment,
    transport: Arc<dyn Transport>,
    writable: bool,
    /// Whether `queue` holds changes, so that a reader takes its lock only then.
    overlaid: AtomicBool,
    queue: Mutex<Queue>,
    /// Signalled when no request is pending.
    idle: Condvar,
    /// The reader that changes need.
    sources: Mutex<Vec<ProfileDatabase>>,
    watches: Arc<watch::Watches>,
    warnings: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Changes that wait for the answer to `in_flight`.
    pending: Option<Overlay>,
    /// The request that was sent to the service.
    in_flight: Option<Overlay>,
    /// The tag of the last change, whose signal has not arrived yet.
    last_handled: String,
}

/// A request that is to be sent once no lock is held.
#[must_use]
struct Send {
    object_path: String,
    body: Vec<u8>,
}

impl<'a> Key<'a> {
    /// Hashes a key.
    #[must_use]
    #[inline]
    pub fn new(text: &'a str) -> Key<'a> {
        Key { text, hash: memo::hash(text) }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.text
    }
}

impl SettingsClient {
    /// Opens a profile. Databases that are missing now are opened when they are created.
    #[must_use]
    pub fn open(
        profile: &SettingsProfile,
        environment: &SettingsEnvironment,
        transport: Arc<dyn Transport>,
    ) -> SettingsClient {
        let shared = Shared {
            descriptions: profile.databases.clone(),
            environment: environment.clone(),
            transport,
            writable: profile.is_writable(),
            overlaid: AtomicBool::new(false),
            queue: Mutex::default(),
            idle: Condvar::new(),
            sources: Mutex::default(),
            watches: Arc::default(),
            warnings: Mutex::new(profile.warnings.clone()),
        };
        *lock(&shared.sources) = shared.new_sources();
        SettingsClient(Arc::new(shared))
    }

    /// Returns a handle that reads, for the calling thread.
    #[must_use]
    pub fn reader(&self) -> SettingsReader {
        SettingsReader::new(Arc::clone(&self.0))
    }

    /// Changes settings at once for readers of this client, and sends the change to the service without waiting.
    ///
    /// At most one request is pending. Changes meanwhile are merged into the next one. If the service refuses, the
    /// old values are restored and subscribers are notified.
    ///
    /// # Errors
    ///
    /// Nothing was changed: a path is invalid, or a key cannot be written. A reset is always accepted.
    pub fn change(&self, changes: &Changeset) -> Result<(), ChangeError> {
        self.change_with(changes, &mut |notice| self.0.watches.tell(notice))
    }

    /// Does what [`SettingsClient::change`] does, but calls `tell` in place of the subscribers if an effective value changed.
    ///
    /// It is for programs that deliver notices themselves; no lock is held when `tell` is called.
    ///
    /// # Errors
    ///
    /// As [`SettingsClient::change`].
    pub fn change_with(
        &self,
        changes: &Changeset,
        tell: &mut dyn FnMut(&Notice),
    ) -> Result<(), ChangeError> {
        if changes.is_empty() {
            return Ok(());
        }
        let has_effect = self.0.check(changes)?;
        let send = {
            let mut queue = lock(&self.0.queue);
            queue.pending.get_or_insert_default().apply(changes);
            self.0.overlaid.store(true, Ordering::Release);
            self.0.promote(&mut queue)
        };
        if has_effect && let Some(notice) = notice_about(changes, NoticeCause::Own) {
            tell(&notice);
        }
        Shared::send(&self.0, send);
        Ok(())
    }

    /// Has `sink` receive the changes of [`SettingsClient::change`] that the service refuses, whether or not their
    /// paths have subscribers. A later call replaces the sink.
    pub fn observe_refusals(&self, sink: NoticeSink) {
        self.0.watches.observe_refusals(sink);
    }

    /// Converts a signal of a database of this profile, for programs that subscribe to signals themselves.
    ///
    /// Returns nothing for an invalid signal, and for the one that follows the answer to the last change of this client.
    #[must_use]
    pub fn notice_of(&self, signal: DatabaseSignal) -> Option<Notice> {
        watch::notice(signal, &lock(&self.0.queue).last_handled)
    }

    /// Changes settings and waits until they are durable; returns the tag of the change.
    ///
    /// It does not wait for pending requests of [`SettingsClient::change`]; subscribers are notified by the service's signal.
    ///
    /// # Errors
    ///
    /// Nothing was changed, or the error of the service says what was.
    pub fn change_and_wait(&self, changes: &Changeset) -> Result<String, ChangeError> {
        if changes.is_empty() {
            return Ok(String::new());
        }
        self.0.check(changes)?;
        let Some(object_path) = self.0.object_path() else {
            return Err(self.0.not_writable(changes));
        };
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let done = move |result| {
            // The receiver waits below, in the same call.
            let _ = sender.send(result);
        };
        self.0.transport.change(&object_path, changes.encode(), Box::new(done));
        let lost = TransportError { text: "the connection to the settings service ended".into() };
        receiver.recv().unwrap_or(Err(lost)).map_err(ChangeError::Refused)
    }

    /// Waits until the service has answered everything that was changed.
    pub fn sync(&self) {
        let mut queue = lock(&self.0.queue);
        while queue.in_flight.is_some() {
            queue = self.0.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Subscribes to a key or a directory, and returns a queue of notices.
    ///
    /// # Errors
    ///
    /// The bus refused; there is no subscription.
    pub fn subscribe(
        &self,
        path: &str,
    ) -> Result<(PathSubscription, Receiver<Notice>), TransportError> {
        let (sink, receiver) = watch::queue();
        Ok((self.0.watches.add(&self.0, path, sink)?, receiver))
    }

    /// Returns the new warnings about the profile and its databases, in the words of `dconf`.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0.warnings))
    }
}

impl Shared {
    fn new_sources(&self) -> Vec<ProfileDatabase> {
        self.descriptions
            .iter()
            .map(|d| ProfileDatabase::new(d.clone(), &self.environment))
            .collect()
    }

    /// Opens a source again if it was replaced; a warning is kept once for all readers.
    fn refresh(&self, source: &mut ProfileDatabase) -> Refreshed {
        let mut create = |description: &Description| {
            if let Some((_, object_path)) = description.object() {
                // The caller receives the error of the missing file.
                let _ = self.transport.init(&object_path);
            }
        };
        source.refresh(&mut create, &mut |warning| {
            let mut warnings = lock(&self.warnings);
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        })
    }

    #[inline]
    fn has_overlay(&self) -> bool {
        self.overlaid.load(Ordering::Acquire)
    }

    /// Returns the pending changes of `key`, the latest first.
    fn overlaid(&self, key: &str) -> Option<Option<Arc<Variant>>> {
        let queue = lock(&self.queue);
        let said = |overlay: &Option<Overlay>| Some(overlay.as_ref()?.get(key)?.cloned());
        said(&queue.pending).or_else(|| said(&queue.in_flight))
    }

    /// Checks that every change can be made, and returns whether any changes an effective value.
    fn check(&self, changes: &Changeset) -> Result<bool, ChangeError> {
        let mut sources = lock(&self.sources);
        for source in sources.iter_mut() {
            self.refresh(source);
        }
        let mut has_effect = false;
        for (path, value) in changes.iter() {
            let Some(value) = value else {
                if !path::is_path(path) {
                    return Err(ChangeError::NotAPath { path: path.to_owned() });
                }
                has_effect |= path::is_dir(path) || self.user_value(&sources, path).is_some();
                continue;
            };
            if !path::is_key(path) {
                return Err(ChangeError::NotAPath { path: path.to_owned() });
            }
            let hash = gvdb::hash(path.as_bytes());
            if !self.writable || reader::lock_level(&sources, path, hash) > 0 {
                return Err(ChangeError::NotWritable { key: path.to_owned() });
            }
            has_effect |= self.user_value(&sources, path).as_ref() != Some(value);
        }
        Ok(has_effect)
    }

    /// Returns the object that takes changes, if the profile can be written.
    fn object_path(&self) -> Option<String> {
        Some(self.descriptions.first().filter(|first| first.is_writable())?.object()?.1)
    }

    fn not_writable(&self, changes: &Changeset) -> ChangeError {
        let key = changes.iter().next().map_or("", |(path, _)| path).to_owned();
        ChangeError::NotWritable { key }
    }

    fn user_value(&self, sources: &[ProfileDatabase], key: &str) -> Option<Variant> {
        if let Some(value) = self.overlaid(key) {
            return value.map(|value| (*value).clone());
        }
        let table = sources.first()?.table()?;
        let bytes = table.value(key)?;
        Some(gvdb::gvariant::VariantView::inside(bytes, table.order()).to_variant())
    }

    /// Makes the waiting changes the pending request, if there is none.
    fn promote(&self, queue: &mut Queue) -> Option<Send> {
        if queue.in_flight.is_none() {
            queue.in_flight = queue.pending.take();
            let body = queue.in_flight.as_ref()?.to_changeset().encode();
            // A reset in a profile without a writable database is answered at once.
            return Some(Send { object_path: self.object_path()?, body });
        }
        None
    }

    fn send(shared: &Arc<Shared>, send: Option<Send>) {
        let Some(send) = send else {
            if !shared.writable {
                shared.complete_unsent();
            }
            return;
        };
        let back = Arc::clone(shared);
        let done = Box::new(move |result| Shared::complete(&back, result));
        shared.transport.change(&send.object_path, send.body, done);
    }

    /// Drops changes that cannot be sent: resets in a profile without a writable database.
    fn complete_unsent(&self) {
        let mut queue = lock(&self.queue);
        (queue.pending, queue.in_flight) = (None, None);
        self.overlaid.store(false, Ordering::Release);
        self.idle.notify_all();
    }

    /// Handles the answer to the pending request, and sends the next.
    fn complete(shared: &Arc<Shared>, result: Result<String, TransportError>) {
        let (answered, send) = {
            let mut queue = lock(&shared.queue);
            let answered = queue.in_flight.take();
            if let Ok(tag) = &result {
                tag.clone_into(&mut queue.last_handled);
            }
            let send = shared.promote(&mut queue);
            if queue.in_flight.is_none() {
                shared.overlaid.store(false, Ordering::Release);
                shared.idle.notify_all();
            }
            (answered, send)
        };
        Shared::send_if_any(shared, send);
        if let (Err(error), Some(answered)) = (result, answered) {
            tracing::warn!(%error, "the settings service refused a change");
            let refused = answered.to_changeset();
            if let Some(notice) = notice_about(&refused, NoticeCause::Refused { error }) {
                shared.watches.tell(&notice);
                shared.watches.tell_observer(&notice);
            }
        }
    }

    fn send_if_any(shared: &Arc<Shared>, send: Option<Send>) {
        if send.is_some() {
            Shared::send(shared, send);
        }
    }

    /// Subscribes to signals about `path` on every bus.
    fn watch(self: &Arc<Shared>, path: &str) -> Result<Vec<SignalDelivery>, TransportError> {
        let mut watches = Vec::new();
        for (bus, object_path) in self.descriptions.iter().filter_map(Description::object) {
            let back = Arc::downgrade(self);
            let watched: Box<str> = path.into();
            let deliver: Deliver = Arc::new(move |signal| {
                let Some(shared) = back.upgrade() else { return };
                let notice = watch::notice(signal, &lock(&shared.queue).last_handled);
                if let Some(notice) = notice {
                    shared.watches.tell_path(&watched, &notice);
                }
            });
            match self.transport.watch(bus, &object_path, path, deliver) {
                Ok(watch) => watches.push(watch),
                // On a machine without a system bus only the signals of compiled databases are missing.
                Err(error) if bus == ProfileBus::System => {
                    tracing::debug!(%error, object_path, "cannot watch a system database");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(watches)
    }
}

/// Returns the notice of changes; none if there are no changes.
fn notice_about(changes: &Changeset, cause: NoticeCause) -> Option<Notice> {
    let paths: Vec<&str> = changes.iter().map(|(path, _)| path).collect();
    let (prefix, changes) = notification(&paths)?;
    Some(Notice { prefix, changes, cause })
}

/// Locks a mutex. No mutex is held while callbacks run, so a panic in them leaves the state consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
