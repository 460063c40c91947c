//! The settings of a program: its reader, its client, and what it watches. No function here waits for a disk sync or,
//! apart from `sync`, for the service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use settings::changeset::Changeset;
use settings::client::{
    DatabaseSignal, Key, Notice, NoticeCause, SettingsClient, SettingsReader, TransportError,
    ValueChoice, ValueOrigin,
};
use settings::profile::{Description, ProfileBus, SettingsEnvironment, SettingsProfile};

use crate::boundary::{enter, warn};
use crate::bus::{BusEvents, BusTransport};
use crate::cache::ValueCache;
use crate::emitter::{Emitter, OriginTag};
use crate::glib::GVariant;
use crate::value::GlibValue;

/// A backend of GSettings. All of its functions may be called from any thread.
#[derive(Debug)]
pub(crate) struct SettingsBackend {
    emitter: Emitter,
    profile: SettingsProfile,
    environment: SettingsEnvironment,
    /// The objects that send signals.
    objects: Vec<(ProfileBus, String)>,
    state: Mutex<BackendState>,
}

#[derive(Debug)]
struct BackendState {
    /// The process that the threads belong to.
    process: u32,
    client: SettingsClient,
    reader: SettingsReader,
    transport: Arc<BusTransport>,
    cache: ValueCache,
    watched: HashMap<String, WatchedPath>,
    /// How many paths began to be watched.
    watches: u64,
    /// The state of the databases for which warnings were taken.
    warned: u64,
}

/// A path that GSettings objects watch.
#[derive(Debug)]
struct WatchedPath {
    /// By how many.
    count: usize,
    /// Which of the watches of this path it is.
    number: u64,
}

/// What the threads of the buses know of a backend.
struct BackendEvents(Weak<SettingsBackend>);

impl BusEvents for BackendEvents {
    fn signal(&self, signal: DatabaseSignal) {
        let Some(backend) = self.0.upgrade() else { return };
        let notice = backend.client().notice_of(signal);
        if let Some(notice) = notice {
            backend.emitter.tell(&notice, OriginTag::NONE);
        }
    }

    fn reconnected(&self) {
        let Some(backend) = self.0.upgrade() else { return };
        let watched: Vec<String> = backend.lock().watched.keys().cloned().collect();
        for path in watched {
            backend.tell_changed(path);
        }
    }
}

impl SettingsBackend {
    /// Opens the settings that the environment of the program names.
    pub(crate) fn open(emitter: Emitter) -> Arc<SettingsBackend> {
        let environment = crate::environment::settings();
        let profile = SettingsProfile::choose(&environment, None);
        let objects = profile.databases.iter().filter_map(Description::object).collect();
        let backend = Arc::new_cyclic(|weak| {
            let state = BackendState::new(&profile, &environment, weak);
            SettingsBackend { emitter, profile, environment, objects, state: Mutex::new(state) }
        });
        backend.client().take_warnings().iter().for_each(|warning| warn(warning));
        backend
    }

    fn lock(&self) -> MutexGuard<'_, BackendState> {
        // A panic under the lock leaves nothing half done that a later call relies on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> SettingsClient {
        self.lock().client.clone()
    }

    /// Returns the client, a new one in a process that was forked: the threads of the old one are not there.
    fn live(self: &Arc<SettingsBackend>) -> (SettingsClient, Arc<BusTransport>) {
        let mut state = self.lock();
        if state.process != std::process::id() {
            let fresh = BackendState::new(&self.profile, &self.environment, &Arc::downgrade(self));
            let mut old = std::mem::replace(&mut *state, fresh);
            state.watched = std::mem::take(&mut old.watched);
            state.watches = old.watches;
            // Its locks may be held by threads that are not there.
            std::mem::forget(old);
            for path in state.watched.keys() {
                for (bus, object_path) in &self.objects {
                    state.transport.add_match(*bus, object_path, path, Box::new(|_| ()));
                }
            }
        }
        (state.client.clone(), Arc::clone(&state.transport))
    }

    /// Reads the value of a key in force, or the one that would be if the user's were reset.
    pub(crate) fn read(&self, key: &str, choice: ValueChoice) -> *mut GVariant {
        let (value, warnings) = self.lock().read(key, choice);
        warnings.iter().for_each(|warning| warn(warning));
        value
    }

    /// Returns whether a value of the key can be set.
    pub(crate) fn is_writable(&self, key: &str) -> bool {
        self.lock().reader.is_writable(key)
    }

    /// Changes settings at once for this program, and has the service write them; returns whether they can be changed.
    pub(crate) fn change(
        self: &Arc<SettingsBackend>,
        changes: &Changeset,
        origin: OriginTag,
    ) -> bool {
        let (client, _) = self.live();
        client.change_with(changes, &mut |notice| self.emitter.tell(notice, origin)).is_ok()
    }

    /// Waits until the service has answered all changes.
    pub(crate) fn sync(self: &Arc<SettingsBackend>) {
        self.live().0.sync();
    }

    /// Begins to watch a path, which may be watched already.
    pub(crate) fn watch(self: &Arc<SettingsBackend>, path: &str) {
        let (_, transport) = self.live();
        let mut state = self.lock();
        state.watches += 1;
        let number = state.watches;
        let new = WatchedPath { count: 0, number };
        let watch = state.watched.entry(path.to_owned()).or_insert(new);
        watch.count += 1;
        if watch.count > 1 || self.objects.is_empty() {
            return;
        }
        // What changes before the bus delivers signals is noticed by this number.
        let before = state.reader.refresh();
        drop(state);
        let left = Arc::new(AtomicUsize::new(self.objects.len()));
        for (bus, object_path) in &self.objects {
            let (backend, left, watched) =
                (Arc::downgrade(self), Arc::clone(&left), path.to_owned());
            let done = move |_: Result<String, TransportError>| {
                let is_last = left.fetch_sub(1, Ordering::AcqRel) == 1;
                let Some(backend) = backend.upgrade().filter(|_| is_last) else { return };
                let mut state = backend.lock();
                // One that has ended meanwhile has nobody to be told.
                let is_watched = state.watched.get(&watched).is_some_and(|w| w.number == number);
                let is_other = is_watched && state.reader.refresh() != before;
                drop(state);
                if is_other {
                    backend.tell_changed(watched);
                }
            };
            transport.add_match(*bus, object_path, path, Box::new(done));
        }
    }

    /// Ends one watch of a path.
    pub(crate) fn unwatch(self: &Arc<SettingsBackend>, path: &str) {
        let (_, transport) = self.live();
        let mut state = self.lock();
        let Some(watch) = state.watched.get_mut(path) else { return };
        watch.count -= 1;
        if watch.count > 0 {
            return;
        }
        state.watched.remove(path);
        drop(state);
        for (bus, object_path) in &self.objects {
            transport.remove_match(*bus, object_path, path);
        }
    }

    fn tell_changed(&self, path: String) {
        let cause = NoticeCause::Other { tag: String::new() };
        let notice = Notice { prefix: path, changes: vec![String::new()], cause };
        self.emitter.tell(&notice, OriginTag::NONE);
    }
}

impl BackendState {
    fn new(
        profile: &SettingsProfile,
        environment: &SettingsEnvironment,
        backend: &Weak<SettingsBackend>,
    ) -> BackendState {
        let events: Arc<dyn BusEvents> = Arc::new(BackendEvents(Weak::clone(backend)));
        let transport = Arc::new(BusTransport::new(&events));
        let client = SettingsClient::open(profile, environment, transport.clone());
        let observed = Weak::clone(backend);
        client.observe_refusals(Arc::new(move |notice| {
            enter((), || {
                if let Some(backend) = observed.upgrade() {
                    backend.emitter.tell(notice, OriginTag::NONE);
                }
            });
        }));
        BackendState {
            process: std::process::id(),
            reader: client.reader(),
            client,
            transport,
            cache: ValueCache::default(),
            watched: HashMap::new(),
            watches: 0,
            warned: 0,
        }
    }

    /// Returns a reference to the value or NULL, and what is to be said once no lock is held.
    fn read(&mut self, key: &str, choice: ValueChoice) -> (*mut GVariant, Vec<String>) {
        let shared =
            |value: Option<&GlibValue>| value.map_or(std::ptr::null_mut(), GlibValue::share);
        if choice == ValueChoice::InForce {
            match self.reader.origin(key) {
                ValueOrigin::Databases(state) => {
                    if let Some(known) = self.cache.in_databases(key, state) {
                        return (shared(known), Vec::new());
                    }
                    let value = self.reader.read_databases(&Key::new(key));
                    let value = value.and_then(GlibValue::copy_of);
                    let value = shared(self.cache.keep(key, state, value));
                    return (value, self.warnings(state));
                }
                ValueOrigin::Pending(Some(value)) => {
                    return (shared(self.cache.pending(key, &value)), Vec::new());
                }
                ValueOrigin::Pending(None) => return self.read(key, ValueChoice::Default),
            }
        }
        let value = self.reader.read(&Key::new(key), choice).and_then(GlibValue::copy_of);
        (value.map_or(std::ptr::null_mut(), GlibValue::into_raw), Vec::new())
    }

    fn warnings(&mut self, state: u64) -> Vec<String> {
        if std::mem::replace(&mut self.warned, state) == state {
            return Vec::new();
        }
        self.client.take_warnings()
    }
}
