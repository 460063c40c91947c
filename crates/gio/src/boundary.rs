//! The boundary that no panic crosses, and warnings in the words of GLib.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::glib;

/// Runs the body of a function that GIO calls; a panic is a warning, and `fallback` is returned.
pub(crate) fn enter<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    // What the body changes is behind locks, whose state is consistent wherever it may panic.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            // Its destructor may panic, too.
            std::mem::forget(panic);
            warn("internal error in libgiounjank: a call was given up");
            fallback
        }
    }
}

/// Returns what an error says, without the number that Rust adds to the system's words.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Prints a warning as `g_warning` does.
pub(crate) fn warn(text: &str) {
    let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
    // SAFETY: the format takes one string, which has a NUL and lives until the function returns.
    unsafe {
        glib::g_log(c"unjank".as_ptr(), glib::LOG_WARNING, c"%s".as_ptr(), text.as_ptr());
    }
}
