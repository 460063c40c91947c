//! Settings in the text file of GLib's own backend for sandboxes, which rewrites the file in the caller for each key.
//!
//! Here a change is at once in memory; a thread of its own writes all that has come meanwhile as one new file, durably,
//! over what the file has then. So programs with either backend may use the file beside each other.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::CStr;
use std::mem::transmute;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::{io, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, FlockOperation, Mode, OFlags, access, flock, open};
use rustix::io::Errno;
use settings::changeset::Changeset;
use settings::client::{Notice, NoticeCause, ValueChoice};
use store::disk::Disk;
use store::publish::{InPlace, NewFile, PublishError, make_directory, publish_new};
use sys::watch::{DirectoriesWatch, WatchCompleteness};
use xdg::keyfile::KeyFile;

use crate::boundary::{enter, said, warn};
use crate::emitter::{Emitter, OriginTag};
use crate::environment;
use crate::glib::GVariant;
use crate::thread::{self, ThreadWake};
use crate::value::GlibValue;

/// A file that others replace all the time is given up after so many attempts.
const MOST_ATTEMPTS: usize = 1000;
/// How soon a turn is asked for again.
const TURN_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// A backend of GSettings over a text file.
#[derive(Debug)]
pub(crate) struct KeyfileBackend {
    emitter: Emitter,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// The administrator's values, and the paths that only he sets.
    defaults: KeyFile,
    locks: HashSet<String>,
    state: Mutex<KeyfileState>,
    /// Signalled when nothing is left to be written.
    idle: Condvar,
}

/// Changes by their paths; without a text it is a reset.
type TextChanges = BTreeMap<String, Option<String>>;

#[derive(Debug, Default)]
struct KeyfileState {
    /// What the file had when it was read or written last.
    file: KeyFile,
    pending: TextChanges,
    in_flight: TextChanges,
    /// In a forked child: what the process before had not written yet, and that process, which writes it.
    inherited: Option<(u32, TextChanges)>,
    /// The directory, while the writer has its turn or waits for it.
    turn: Option<Arc<OwnedFd>>,
    is_writable: bool,
    /// Values by key, with the text that they were made of.
    cache: HashMap<String, (String, Option<GlibValue>)>,
    /// Wakes the writer, once it runs, and the process that it runs in.
    writer: Option<(u32, Arc<ThreadWake>)>,
}

/// Returns the group and the name of a key; a key at the root has none.
fn place_of(key: &str) -> Option<(&str, &str)> {
    let (group, name) = key.strip_prefix('/')?.rsplit_once('/')?;
    (!group.is_empty() && !name.is_empty()).then_some((group, name))
}

fn text_of<'f>(file: &'f KeyFile, key: &str) -> Option<&'f str> {
    let (group, name) = place_of(key)?;
    file.get(group, name)
}

/// Parses a text as GLib's backend does: strings need no quotes.
fn parse(kind: &CStr, text: &str) -> Option<GlibValue> {
    GlibValue::parse(kind, text).or_else(|| {
        let is_bare = kind == c"s" && !text.starts_with('"');
        is_bare.then(|| GlibValue::parse(kind, &format!("\"{}\"", text.replace('"', "\\\""))))?
    })
}

impl KeyfileState {
    /// Returns the user's text of a key, with what is not written yet.
    fn text(&self, key: &str) -> Option<&str> {
        let changed = self.pending.get(key).or_else(|| self.in_flight.get(key));
        let inherited = || self.inherited.as_ref().and_then(|(_, changes)| changes.get(key));
        match changed.or_else(inherited) {
            Some(text) => text.as_deref(),
            None => text_of(&self.file, key),
        }
    }

    /// Leaves what is not written to the process `parent`, of which this one is a forked child: a value that was written by
    /// both could undo a newer one of the parent's.
    fn leave_to(&mut self, parent: u32) {
        let (_, mut left) = self.inherited.take().unwrap_or_default();
        left.append(&mut self.in_flight);
        left.append(&mut self.pending);
        self.inherited = (!left.is_empty()).then_some((parent, left));
        // The descriptor and the thread are the parent's.
        std::mem::forget(self.writer.take());
        if let Some(turn) = self.turn.take() {
            // Else this process would keep the parent's lock, should that end in its turn.
            // SAFETY: the descriptor is a copy that nobody uses in this process: the only one who did is a thread of the parent.
            unsafe { rustix::io::close(turn.as_raw_fd()) };
            std::mem::forget(turn);
        }
    }

    /// Forgets what was inherited of keys that somebody has set since.
    fn forget_inherited(&mut self, file: &KeyFile) {
        let Some((_, changes)) = &mut self.inherited else { return };
        changes.retain(|key, _| text_of(&self.file, key) == text_of(file, key));
    }
}

impl KeyfileBackend {
    /// Opens the file of the user, which need not be there.
    pub(crate) fn open(emitter: Emitter) -> Arc<KeyfileBackend> {
        let (path, from) = (environment::keyfile(), environment::keyfile_defaults());
        let disk = store::disk::real();
        let parsed = |path: &Path| match disk.read(path) {
            Ok(text) => KeyFile::parse(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KeyFile::new()),
            Err(error) => Err(said(&error)),
        };
        let read = |path: &Path| {
            parsed(path).unwrap_or_else(|error| {
                warn(&format!("Failed to read {}: {error}", path.display()));
                KeyFile::new()
            })
        };
        let directory = path.parent().unwrap_or(&path);
        if let Err(error) = make_directory(&*disk, directory) {
            warn(&format!("Failed to create {}: {error}", directory.display()));
        }
        let locks = disk.read(&from.join("locks")).unwrap_or_default();
        let locks = String::from_utf8_lossy(&locks);
        let locks = locks.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let state = KeyfileState {
            file: read(&path),
            is_writable: may_write(directory),
            ..KeyfileState::default()
        };
        let backend = Arc::new(KeyfileBackend {
            emitter,
            defaults: read(&from.join("defaults")),
            locks: locks.map(str::to_owned).collect(),
            path,
            disk,
            state: Mutex::new(state),
            idle: Condvar::new(),
        });
        write_at_exit(&backend);
        backend
    }

    fn lock(&self) -> MutexGuard<'_, KeyfileState> {
        // A panic under the lock leaves nothing half done that a later call relies on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a value as a type.
    pub(crate) fn read(&self, key: &str, choice: ValueChoice, kind: &CStr) -> *mut GVariant {
        let mut state = self.lock();
        let default = text_of(&self.defaults, key);
        let is_locked = default.is_some() && self.locks.contains(key);
        let text = match choice {
            ValueChoice::User => state.text(key),
            ValueChoice::Default => None,
            ValueChoice::InForce if is_locked => default,
            ValueChoice::InForce => state.text(key).or(default),
        };
        let Some(text) = text else { return ptr::null_mut() };
        let shared =
            |value: &Option<GlibValue>| value.as_ref().map_or(ptr::null_mut(), GlibValue::share);
        if let Some((known, value)) = state.cache.get(key)
            && known == text
        {
            return shared(value);
        }
        let made = (text.to_owned(), parse(kind, text));
        let value = shared(&made.1);
        state.cache.insert(key.to_owned(), made);
        value
    }

    /// Returns whether a value of the key can be set.
    pub(crate) fn is_writable(&self, key: &str) -> bool {
        self.lock().is_writable && place_of(key).is_some() && !self.locks.contains(key)
    }

    /// Changes settings at once for this program, and has the writer write them.
    pub(crate) fn change(
        self: &Arc<KeyfileBackend>,
        changes: &Changeset,
        origin: OriginTag,
    ) -> bool {
        let may_change = |path: &str| place_of(path).is_some() && !self.locks.contains(path);
        let mut state = self.lock();
        if !state.is_writable || !changes.iter().all(|(path, _)| may_change(path)) {
            return false;
        }
        for (path, value) in changes.iter() {
            let text = value.map(gvdb::gvariant::Variant::print_without_types);
            state.pending.insert(path.to_owned(), text);
        }
        let woken = self.wake(&mut state);
        drop(state);
        if let Err(error) = woken {
            warn(&format!("Failed to write keyfile to {}: {error}", self.path.display()));
            self.take_back();
            return false;
        }
        let paths: Vec<&str> = changes.iter().map(|(path, _)| path).collect();
        self.tell(&paths, origin);
        true
    }

    /// Waits until everything is written.
    pub(crate) fn sync(self: &Arc<KeyfileBackend>) {
        let mut state = self.lock();
        self.take_over(&mut state);
        if !state.pending.is_empty() && self.wake(&mut state).is_err() {
            return;
        }
        while !state.pending.is_empty() || !state.in_flight.is_empty() {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins to watch the file.
    pub(crate) fn watch(self: &Arc<KeyfileBackend>) {
        // Without a thread changes of others are not seen; the first change says so.
        let _ = self.wake(&mut self.lock());
    }

    fn tell(&self, paths: &[&str], origin: OriginTag) {
        let (prefix, changes) = match paths {
            [] => return,
            [path] => ((*path).to_owned(), vec![String::new()]),
            _ => ("/".to_owned(), paths.iter().map(|path| path[1..].to_owned()).collect()),
        };
        let cause = NoticeCause::Other { tag: String::new() };
        self.emitter.tell(&Notice { prefix, changes, cause }, origin);
    }

    /// Forgets what could not be written.
    fn take_back(&self) {
        let mut state = self.lock();
        state.in_flight.clear();
        state.pending.clear();
        drop(state);
        self.idle.notify_all();
    }

    /// Takes over what the process before left, if that is gone and nobody has written it.
    fn take_over(&self, state: &mut KeyfileState) {
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        if state.inherited.as_ref().is_none_or(|(of, _)| u32::try_from(parent) == Ok(*of)) {
            return;
        }
        if let Ok(file) = self.load() {
            state.forget_inherited(&file);
        }
        let (_, mut left) = state.inherited.take().unwrap_or_default();
        left.append(&mut state.pending);
        state.pending = left;
    }

    /// Wakes the writer, or starts it.
    fn wake(self: &Arc<KeyfileBackend>, state: &mut KeyfileState) -> io::Result<()> {
        self.take_over(state);
        let process = std::process::id();
        if let Some((of, wake)) = state.writer.take() {
            if of == process && wake.wake() {
                state.writer = Some((of, wake));
                return Ok(());
            }
            // Its descriptor is closed, or belongs to the process before.
            std::mem::forget(wake);
            // In a child that was made without a word to the C library the writer is not there; what it had is written again.
            let mut left = std::mem::take(&mut state.in_flight);
            left.append(&mut state.pending);
            state.pending = left;
        }
        let wake = Arc::new(ThreadWake::new()?);
        let mut watch = DirectoriesWatch::new()?;
        // A directory that is not there is made by the first write, and watched when it is.
        let is_watched = watch.add(self.directory(), WatchCompleteness::Written).is_ok();
        let (backend, wakes) = (Arc::downgrade(self), Arc::clone(&wake));
        thread::start("unjank-keyfile", move || {
            write_and_watch(&backend, &wakes, watch, is_watched)
        })?;
        state.writer = Some((process, wake));
        Ok(())
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Writes what waits, until nothing does.
    fn write_pending(&self) {
        loop {
            let mut state = self.lock();
            state.in_flight = std::mem::take(&mut state.pending);
            if state.in_flight.is_empty() {
                drop(state);
                return self.idle.notify_all();
            }
            let changes = state.in_flight.clone();
            drop(state);
            let written = self.write(&changes);
            let mut state = self.lock();
            state.in_flight.clear();
            match written {
                Ok(file) => self.replace(state, file, &changes),
                Err(error) => {
                    drop(state);
                    warn(&format!("Failed to write keyfile to {}: {error}", self.path.display()));
                    self.tell(
                        &changes.keys().map(String::as_str).collect::<Vec<_>>(),
                        OriginTag::NONE,
                    );
                }
            }
        }
    }

    /// Puts a new file in place that has these changes and otherwise what the file has now.
    fn write(&self, changes: &TextChanges) -> Result<KeyFile, String> {
        let _turn = self.take_turn();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.disk.stat(&self.path).ok();
            let mut file = self.load()?;
            for (path, text) in changes {
                let Some((group, name)) = place_of(path) else { continue };
                match text {
                    Some(text) => file.set(group, name, text).map_err(|error| error.to_string())?,
                    None => drop(file.remove_key(group, name)),
                }
            }
            let image = file.to_bytes();
            let expected = InPlace::Still(found);
            match publish_new(&*self.disk, &self.path, NewFile::Image(&image), 0o600, expected) {
                Ok(_) => return Ok(file),
                Err(PublishError::Overtaken { .. }) => {}
                Err(error) => return Err(said(error.cause())),
            }
        }
        Err("another program replaces it all the time".to_owned())
    }

    /// Keeps other programs with this module from replacing the file, until the result is dropped.
    ///
    /// Without one the file may be replaced, too: where the file system has no locks, and beside a program that was
    /// stopped in its turn.
    fn take_turn(&self) -> Option<Turn<'_>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Under the lock, so that no child is forked that has the descriptor and does not know it.
        let mut state = self.lock();
        let directory = Arc::new(open(self.directory(), flags, Mode::empty()).ok()?);
        state.turn = Some(Arc::clone(&directory));
        drop(state);
        let turn = Turn { backend: self, directory };
        for _ in 0..MOST_ATTEMPTS {
            match flock(&turn.directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(turn),
                Err(Errno::WOULDBLOCK) => {}
                Err(_) => return None,
            }
            // A lock that is given back is no event that could be waited for together with a limit.
            let _ = poll(&mut [], Some(&TURN_INTERVAL));
        }
        None
    }

    fn load(&self) -> Result<KeyFile, String> {
        match self.disk.read(&self.path) {
            Ok(text) => KeyFile::parse(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KeyFile::new()),
            Err(error) => Err(said(&error)),
        }
    }

    /// Takes what others wrote; a file that is gone or unreadable leaves what was known.
    fn reload(&self) {
        let is_writable = may_write(self.directory());
        let file = self.disk.stat(&self.path).ok().and_then(|_| self.load().ok());
        let mut state = self.lock();
        let was_writable = std::mem::replace(&mut state.is_writable, is_writable);
        match file {
            Some(file) => self.replace(state, file, &TextChanges::new()),
            None => drop(state),
        }
        if was_writable != is_writable {
            let notice = Notice {
                prefix: "/".to_owned(),
                changes: vec![String::new()],
                cause: NoticeCause::Locks,
            };
            self.emitter.tell(&notice, OriginTag::NONE);
        }
    }

    /// Makes this what is known of the file, and tells what is other than before, but for what this program changed.
    fn replace(&self, mut state: MutexGuard<'_, KeyfileState>, file: KeyFile, own: &TextChanges) {
        let mut paths = BTreeSet::new();
        for (old, new) in [(&state.file, &file), (&file, &state.file)] {
            for group in old.groups() {
                let changed =
                    old.entries(group).filter(|(key, text)| new.get(group, key) != Some(*text));
                paths.extend(changed.map(|(key, _)| format!("/{group}/{key}")));
            }
        }
        let is_hidden = |path: &str| state.pending.contains_key(path) || own.contains_key(path);
        let told: Vec<&str> =
            paths.iter().map(String::as_str).filter(|path| !is_hidden(path)).collect();
        state.forget_inherited(&file);
        state.file = file;
        drop(state);
        self.tell(&told, OriginTag::NONE);
    }
}

/// The turn of this program among those that write the file.
struct Turn<'b> {
    backend: &'b KeyfileBackend,
    directory: Arc<OwnedFd>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.lock();
        // The lock is also that of every child which was forked meanwhile, and would last as long as the last of them.
        let _ = flock(&self.directory, FlockOperation::Unlock);
        state.turn = None;
    }
}

/// The backends of the program, for its end and for its children.
static OPENED: Mutex<Vec<Weak<KeyfileBackend>>> = Mutex::new(Vec::new());

/// Has what is not written yet written when the program calls `exit`: a program that knows GLib's own backend does not call `g_settings_sync`.
fn write_at_exit(backend: &Arc<KeyfileBackend>) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|known| known.strong_count() > 0);
    if opened.is_empty() {
        // SAFETY: the function stays, because the module is never unloaded. Without it, what is not written is lost.
        unsafe { libc::atexit(sync_all) };
    }
    opened.push(Arc::downgrade(backend));
    drop(opened);
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the functions stay, because the module is never unloaded. Without them a child may wait for a thread that it does not have.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
}

/// What a thread that forks holds meanwhile: all locks, so that in the child none is held by a thread that is not there.
struct HeldForFork {
    process: u32,
    // Dropped in this order.
    states: Vec<MutexGuard<'static, KeyfileState>>,
    _opened: MutexGuard<'static, Vec<Weak<KeyfileBackend>>>,
    _backends: Vec<Arc<KeyfileBackend>>,
}

thread_local! {
    static HELD: Cell<Option<HeldForFork>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    enter((), || {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let backends: Vec<Arc<KeyfileBackend>> = opened.iter().filter_map(Weak::upgrade).collect();
        let lock = |backend: &Arc<KeyfileBackend>| {
            let state = backend.lock();
            // SAFETY: `HeldForFork` drops the lock before it gives up the backend that has it.
            unsafe { transmute::<MutexGuard<'_, KeyfileState>, MutexGuard<'static, _>>(state) }
        };
        let states = backends.iter().map(lock).collect();
        let process = std::process::id();
        let held = HeldForFork { process, states, _opened: opened, _backends: backends };
        // A thread that has ended all but this holds nothing over its fork.
        let _ = HELD.try_with(|place| place.set(Some(held)));
    });
}

extern "C" fn after_fork() {
    enter((), || {
        let _ = HELD.try_with(Cell::take);
    });
}

extern "C" fn in_child() {
    enter((), || {
        let Ok(Some(mut held)) = HELD.try_with(Cell::take) else { return };
        let parent = held.process;
        held.states.iter_mut().for_each(|state| state.leave_to(parent));
    });
}

extern "C" fn sync_all() {
    enter((), || {
        let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
        opened.iter().filter_map(Weak::upgrade).for_each(|backend| backend.sync());
    });
}

impl Drop for KeyfileBackend {
    fn drop(&mut self) {
        self.take_over(&mut self.lock());
        self.write_pending();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((process, wake)) = &state.writer
            && *process == std::process::id()
        {
            // The thread ends when it finds that there is no backend.
            wake.wake();
        }
    }
}

/// Whether files of a directory can be replaced.
fn may_write(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// The thread: it writes what waits and takes what others wrote, as long as there is a backend.
fn write_and_watch(
    backend: &Weak<KeyfileBackend>,
    wake: &Arc<ThreadWake>,
    mut watch: DirectoriesWatch,
    mut is_watched: bool,
) {
    loop {
        let mut descriptors = [
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
        ];
        // An interruption is as good as an event: all are looked at.
        let _ = poll(&mut descriptors, None);
        if !wake.take() {
            return std::mem::forget((Arc::clone(wake), watch));
        }
        let Some(backend) = backend.upgrade() else { return };
        backend.write_pending();
        if !is_watched {
            is_watched = watch.add(backend.directory(), WatchCompleteness::Written).is_ok();
        }
        if watch.read().is_ok_and(|seen| seen != WatchCompleteness::Nothing) {
            backend.reload();
        }
    }
}
