//! Tells GSettings what changed.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{self, NonNull};

use settings::client::{Notice, NoticeCause};

use crate::boundary::warn;
use crate::glib::{self, GObject, GSettingsBackend, GWeakRef};

/// What a program passes with a change, to know its own changes again. Only its address counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginTag(pub(crate) *mut c_void);

impl OriginTag {
    /// The tag of changes that nobody here made.
    pub(crate) const NONE: OriginTag = OriginTag(ptr::null_mut());
}

/// A reference to the backend object that does not keep it alive.
#[derive(Debug)]
pub(crate) struct Emitter(NonNull<GWeakRef>);

// SAFETY: GLib's functions for weak references lock, and its signals of settings may be sent from any thread.
unsafe impl Send for Emitter {}
// SAFETY: as above; the structure is changed by GLib alone.
unsafe impl Sync for Emitter {}

impl Emitter {
    /// Refers to an object.
    ///
    /// # Safety
    ///
    /// `object` is a `GObject` that lives.
    pub(crate) unsafe fn new(object: *mut GObject) -> Emitter {
        let weak = NonNull::from(Box::leak(Box::new(GWeakRef { private: ptr::null_mut() })));
        // SAFETY: the structure does not move, and the object is one by the contract of this function.
        unsafe { glib::g_weak_ref_init(weak.as_ptr(), object) };
        Emitter(weak)
    }

    /// Tells GSettings what changed. No lock may be held: functions of the program may run before this returns.
    pub(crate) fn tell(&self, notice: &Notice, origin: OriginTag) {
        if let NoticeCause::Refused { error } = &notice.cause {
            warn(&format!("failed to commit changes to dconf: {error}"));
        }
        let Ok(prefix) = CString::new(notice.prefix.as_str()) else { return };
        // SAFETY: GLib locks the structure while it reads it.
        let backend = unsafe { glib::g_weak_ref_get(self.0.as_ptr()) };
        if backend.is_null() {
            return;
        }
        if notice.cause == NoticeCause::Locks {
            // SAFETY: the reference that was just taken keeps the object alive; the text has a NUL.
            unsafe { tell_writable(backend, &prefix) };
        }
        // Locks decide about values, too.
        // SAFETY: as above.
        unsafe { tell_changed(backend, &prefix, &notice.changes, origin) };
        // SAFETY: this is the reference that was taken above.
        unsafe { glib::g_object_unref(backend) };
    }
}

fn is_directory(path: &CString) -> bool {
    path.as_bytes().ends_with(b"/")
}

/// # Safety
///
/// `backend` is a backend of GSettings.
unsafe fn tell_writable(backend: *mut GSettingsBackend, path: &CString) {
    if is_directory(path) {
        // SAFETY: by the contract of this function; the text has a NUL.
        unsafe { glib::g_settings_backend_path_writable_changed(backend, path.as_ptr()) };
    } else {
        // SAFETY: as above.
        unsafe { glib::g_settings_backend_writable_changed(backend, path.as_ptr()) };
    }
}

/// # Safety
///
/// `backend` is a backend of GSettings.
unsafe fn tell_changed(
    backend: *mut GSettingsBackend,
    prefix: &CString,
    changes: &[String],
    origin: OriginTag,
) {
    if changes.len() > 1 {
        let texts: Vec<CString> =
            changes.iter().filter_map(|change| CString::new(change.as_str()).ok()).collect();
        let mut items: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        items.push(ptr::null());
        // SAFETY: by the contract of this function; the texts have NULs, and NULL ends the list.
        unsafe {
            glib::g_settings_backend_keys_changed(
                backend,
                prefix.as_ptr(),
                items.as_ptr(),
                origin.0,
            );
        }
        return;
    }
    let only = changes.first().map(String::as_str).unwrap_or_default();
    let Ok(path) = CString::new([prefix.as_bytes(), only.as_bytes()].concat()) else { return };
    if is_directory(&path) {
        // SAFETY: by the contract of this function; the text has a NUL.
        unsafe { glib::g_settings_backend_path_changed(backend, path.as_ptr(), origin.0) };
    } else {
        // SAFETY: as above.
        unsafe { glib::g_settings_backend_changed(backend, path.as_ptr(), origin.0) };
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nothing refers to it any more.
        unsafe { glib::g_weak_ref_clear(self.0.as_ptr()) };
        // SAFETY: it came from a box, and nobody has its address any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
