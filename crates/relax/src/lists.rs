//! Which files are meant: what the environment said when the program started, kept where nothing can move it.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use preload::{PathBuffer, bytes};

/// The list that GTK and KDE share, in the data directory.
const XBEL: &[u8] = b"recently-used.xbel";
/// KDE's folder of links, in the data directory.
const LINKS: &[u8] = b"RecentDocuments";
/// What is held while [`XBEL`] is rewritten.
const XBEL_LOCK: &[u8] = b"recently-used.xbel.lock";

static RELAXED: OnceLock<&'static [u8]> = OnceLock::new();
static PRIVATE: OnceLock<&'static [u8]> = OnceLock::new();
/// The thread that holds the lock of the shared list, or 0.
static LOCK_HOLDER: AtomicI32 = AtomicI32::new(0);

/// Reads the environment, once.
pub(crate) fn read() {
    let _ = RELAXED.set(variable(c"UNJANK_RELAX_DIR"));
    let _ = PRIVATE.set(variable(c"UNJANK_PRIVATE_PATHS"));
}

/// Returns a copy that stays when the program changes its environment.
fn variable(name: &CStr) -> &'static [u8] {
    // SAFETY: the name ends in NUL, and no thread of the program runs yet that could change the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the value is null or ends in NUL, and is copied at once.
    let value = unsafe { bytes(value) };
    Box::leak(value.to_vec().into_boxed_slice())
}

/// Whether a sync of this descriptor may return at once.
pub(crate) fn is_relaxed(descriptor: c_int) -> bool {
    let Some(dir) = RELAXED.get().filter(|dir| !dir.is_empty()) else { return false };
    PathBuffer::of_descriptor(descriptor).is_some_and(|path| {
        let name = below(path.as_bytes(), dir);
        name.is_some_and(|name| is_list(name) || (is_unnamed(name) && holds_lock()))
    })
}

/// Returns what follows `dir/` in `path`.
fn below<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(dir)?.strip_prefix(b"/")
}

/// Whether this is one of the lists, a lock of one or a new version of one, under a name or without.
fn is_list(name: &[u8]) -> bool {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if let Some(link) = below(name, LINKS) {
        return !link.contains(&b'/');
    }
    let Some(ending) = name.strip_prefix(XBEL) else { return false };
    // QSaveFile of Qt and `g_file_set_contents` of GLib; `backup` is a person's.
    let is_temporary = |letters: &[u8]| {
        letters.len() == 6
            && letters.iter().all(u8::is_ascii_alphanumeric)
            && !letters.iter().all(u8::is_ascii_lowercase)
    };
    matches!(ending, b"" | b".lock" | b".lock.rmlock")
        || ending.strip_prefix(b".").is_some_and(is_temporary)
}

/// Whether this is a file of `O_TMPFILE`, directly in the directory: QSaveFile names its file after it has synced it.
fn is_unnamed(name: &[u8]) -> bool {
    let number = name.strip_prefix(b"#").and_then(|name| name.strip_suffix(b" (deleted)"));
    number.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
}

fn this_thread() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::gettid() }
}

/// Whether this thread holds the lock of the shared list: then what it writes beside the list becomes the list.
fn holds_lock() -> bool {
    LOCK_HOLDER.load(Ordering::Relaxed) == this_thread()
}

/// Whether this names the lock of the shared list.
fn is_lock(path: &[u8]) -> bool {
    let Some(dir) = RELAXED.get().filter(|dir| !dir.is_empty()) else { return false };
    path.ends_with(XBEL_LOCK)
        && PathBuffer::of_name(libc::AT_FDCWD, path)
            .is_some_and(|path| below(path.as_bytes(), dir) == Some(XBEL_LOCK))
}

/// Takes note of a file that this thread has made.
///
/// # Safety
///
/// The kernel has just read the name.
pub(crate) unsafe fn made(name: *const c_char, flags: c_int) {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    // SAFETY: the caller promises it.
    if flags & exclusive == exclusive && is_lock(unsafe { bytes(name) }) {
        LOCK_HOLDER.store(this_thread(), Ordering::Relaxed);
    }
}

/// Takes note of a file that was removed.
///
/// # Safety
///
/// The kernel has just read the name.
pub(crate) unsafe fn removed(name: *const c_char) {
    // SAFETY: the caller promises it.
    if LOCK_HOLDER.load(Ordering::Relaxed) != 0 && is_lock(unsafe { bytes(name) }) {
        LOCK_HOLDER.store(0, Ordering::Relaxed);
    }
}

/// Whether the program runs privately.
pub(crate) fn is_private() -> bool {
    PRIVATE.get().is_some_and(|paths| !paths.is_empty())
}

/// Whether this name, as a call in the directory `at` takes it, is one that must not be written. Of a name that the kernel will refuse nothing is said.
pub(crate) fn is_guarded_name(at: c_int, name: *const c_char) -> bool {
    is_private() && PathBuffer::of_address(name).is_some_and(|name| is_guarded(at, name.as_bytes()))
}

fn is_guarded(at: c_int, path: &[u8]) -> bool {
    is_on_list(path)
        || PathBuffer::of_name(at, path).is_some_and(|path| is_on_list(path.as_bytes()))
}

/// Whether this descriptor is of a file that must not be written.
pub(crate) fn is_guarded_file(descriptor: c_int) -> bool {
    is_private()
        && PathBuffer::of_descriptor(descriptor).is_some_and(|path| is_on_list(path.as_bytes()))
}

/// Whether the path is on the list, lies below what is on it, or is a lock or a new version of it.
fn is_on_list(path: &[u8]) -> bool {
    let listed = PRIVATE.get().copied().unwrap_or_default();
    listed.split(|b| *b == b'\n').filter(|listed| !listed.is_empty()).any(|listed| {
        let rest = path.strip_prefix(listed);
        rest.is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'/' | b'.'))
    })
}
