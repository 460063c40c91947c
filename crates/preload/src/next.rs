//! The function that a program would have called without us.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::errno::SavedErrno;

/// The next function of a name behind this library: the C library's, or that of another preloaded library.
///
/// It is looked up once. That may happen in several threads at the same time, which find the same.
#[derive(Debug)]
pub struct NextFunction<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> NextFunction<F> {
    /// Names a function.
    ///
    /// # Safety
    ///
    /// `F` must be the type `unsafe extern "C-unwind" fn(…)` of the function that C programs know by this name.
    #[must_use]
    pub const unsafe fn named(name: &'static CStr) -> NextFunction<F> {
        NextFunction { name, found: AtomicPtr::new(std::ptr::null_mut()), kind: PhantomData }
    }

    /// Looks it up, so that later calls need not: `dlsym` is not for signal handlers.
    pub fn prepare(&self) {
        let _kept = SavedErrno::keep();
        // SAFETY: the name ends in NUL and lives for ever.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
    }

    /// Returns it, or `None` where nothing behind us has such a function.
    pub fn get(&self) -> Option<F> {
        if self.found.load(Ordering::Relaxed).is_null() {
            // Another library's constructor may call before ours ran.
            self.prepare();
        }
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            return None;
        }
        // SAFETY: `named` was promised that `F` is this function's type; a function pointer has the size of an address.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}
