//! The settings API for programs: open a profile once, read without waiting, change at once.
//!
//! ```
//! # use std::sync::Arc;
//! # use unjank_session::settings::client::{Client, NoBus};
//! # use unjank_session::settings::profile::{Environment, Profile};
//! # let home = tempfile::tempdir().unwrap();
//! # let environment = Environment {
//! #     profile: None,
//! #     config_home: home.path().join("config"),
//! #     runtime_dir: home.path().join("run"),
//! #     data_dirs: Vec::new(),
//! #     sysconf_dir: home.path().join("etc"),
//! #     mandatory_dir: home.path().join("mandatory"),
//! #     uid: 1000,
//! # };
//! let profile = Profile::choose(&environment, None);
//! let client = Client::open(&profile, &environment, Arc::new(NoBus));
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

use store::table::gvariant::Variant;
use store::table::gvdb;

use super::changeset::Changeset;
use super::effective::notification;
use super::path;
use super::profile::{Bus, Description, Environment, Profile};
use super::source::{Refreshed, Source};
use overlay::Overlay;

pub use reader::Reader;
pub use transport::{Deliver, Done, NoBus, Signal, Transport, TransportError, Watch};
pub use watch::{Cause, Notice, Subscription};

/// One program's settings. Clones are the same client and may be used from any thread.
#[derive(Clone, Debug)]
pub struct Client(Arc<Shared>);

/// A key with its hash, for programs that read the same key often.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    text: &'a str,
    hash: u64,
}

/// Which of the values that a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that programs use.
    InForce,
    /// The user's, even where a lock hides it.
    User,
    /// The one that would be in force if the user's were reset.
    Default,
}

/// Why a change was not taken.
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

/// What the readers and the changes of a client share.
#[derive(Debug)]
struct Shared {
    descriptions: Vec<Description>,
    environment: Environment,
    transport: Arc<dyn Transport>,
    writable: bool,
    /// Whether `queue` holds changes, so that a reader takes its lock only then.
    overlaid: AtomicBool,
    queue: Mutex<Queue>,
    /// Told when nothing is under way any more.
    idle: Condvar,
    /// For what changing needs to read.
    sources: Mutex<Vec<Source>>,
    watches: Arc<watch::Watches>,
    warnings: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// What waits for the answer to `in_flight`.
    pending: Option<Overlay>,
    /// What the service has been sent.
    in_flight: Option<Overlay>,
    /// The tag of our last change, whose signal is still to come.
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

impl Client {
    /// Opens a profile. Databases that are missing now are found when they come to be.
    #[must_use]
    pub fn open(
        profile: &Profile,
        environment: &Environment,
        transport: Arc<dyn Transport>,
    ) -> Client {
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
        Client(Arc::new(shared))
    }

    /// Returns a handle that reads, for the calling thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.0))
    }

    /// Changes settings at once for readers of this client; the service is told without waiting for it.
    ///
    /// At most one request is under way. What changes meanwhile is merged into the next one. If the service refuses, the
    /// values are again what they were and subscribers are told.
    ///
    /// # Errors
    ///
    /// Nothing was changed: a path is not one, or a key cannot be written. A reset is always taken.
    pub fn change(&self, changes: &Changeset) -> Result<(), ChangeError> {
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
        if has_effect {
            self.0.tell(changes, Cause::Own);
        }
        Shared::send(&self.0, send);
        Ok(())
    }

    /// Changes settings and waits until they are durable; returns the tag of the change.
    ///
    /// Goes past what is under way from [`Client::change`]; subscribers are told by the service's signal.
    ///
    /// # Errors
    ///
    /// Nothing was changed, or the service said what was.
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

    /// Subscribes to a key or a directory and returns a queue of what happens.
    ///
    /// # Errors
    ///
    /// The bus cannot tell us; there is no subscription.
    pub fn subscribe(
        &self,
        path: &str,
    ) -> Result<(Subscription, Receiver<Notice>), TransportError> {
        let (sink, receiver) = watch::queue();
        Ok((self.0.watches.add(&self.0, path, sink)?, receiver))
    }

    /// Subscribes to a key or a directory; `tell` is called on the thread that changes, or that of the transport.
    ///
    /// # Errors
    ///
    /// The bus cannot tell us; there is no subscription.
    pub fn subscribe_with(
        &self,
        path: &str,
        tell: impl Fn(&Notice) + std::marker::Send + Sync + 'static,
    ) -> Result<Subscription, TransportError> {
        self.0.watches.add(&self.0, path, Arc::new(tell))
    }

    /// Returns, once, what was noticed about the profile and its databases, in the words of `dconf`.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0.warnings))
    }
}

impl Shared {
    fn new_sources(&self) -> Vec<Source> {
        self.descriptions.iter().map(|d| Source::new(d.clone(), &self.environment)).collect()
    }

    /// Opens a source again if it was replaced; what is wrong with it is kept once for all readers.
    fn refresh(&self, source: &mut Source) -> Refreshed {
        let mut create = |description: &Description| {
            if let Some((_, object_path)) = description.object() {
                // The file that is still missing is what the caller is told of.
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

    /// Returns what changes of our own say of `key`, the latest first.
    fn overlaid(&self, key: &str) -> Option<Option<Arc<Variant>>> {
        let queue = lock(&self.queue);
        let said = |overlay: &Option<Overlay>| Some(overlay.as_ref()?.get(key)?.cloned());
        said(&queue.pending).or_else(|| said(&queue.in_flight))
    }

    /// Checks that every change can be made and says whether any makes a difference to what this client sees.
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

    fn user_value(&self, sources: &[Source], key: &str) -> Option<Variant> {
        if let Some(value) = self.overlaid(key) {
            return value.map(|value| (*value).clone());
        }
        let table = sources.first()?.table()?;
        let bytes = table.value(key)?;
        Some(store::table::gvariant::View::inside(bytes, table.order()).to_variant())
    }

    /// Makes what is pending the request under way, if none is.
    fn promote(&self, queue: &mut Queue) -> Option<Send> {
        if queue.in_flight.is_none() {
            queue.in_flight = queue.pending.take();
            let body = queue.in_flight.as_ref()?.to_changeset().encode();
            // A reset in a profile that cannot be written goes nowhere and is answered at once.
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

    /// Drops changes that nobody can be sent: resets in a profile that cannot be written.
    fn complete_unsent(&self) {
        let mut queue = lock(&self.queue);
        (queue.pending, queue.in_flight) = (None, None);
        self.overlaid.store(false, Ordering::Release);
        self.idle.notify_all();
    }

    /// Takes the answer to the request under way and sends the next.
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
            shared.tell(&answered.to_changeset(), Cause::Refused { error });
        }
    }

    fn send_if_any(shared: &Arc<Shared>, send: Option<Send>) {
        if send.is_some() {
            Shared::send(shared, send);
        }
    }

    fn tell(&self, changes: &Changeset, cause: Cause) {
        let paths: Vec<&str> = changes.iter().map(|(path, _)| path).collect();
        if let Some((prefix, changes)) = notification(&paths) {
            self.watches.tell(&Notice { prefix, changes, cause });
        }
    }

    /// Has every bus tell us about `path`.
    fn watch(self: &Arc<Shared>, path: &str) -> Result<Vec<Watch>, TransportError> {
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
                // A machine without a system bus only misses that the administrator compiled something.
                Err(error) if bus == Bus::System => {
                    tracing::debug!(%error, object_path, "cannot watch a system database");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(watches)
    }
}

/// Locks a mutex; none of ours is held while code of others runs, so a panic elsewhere leaves the state whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
