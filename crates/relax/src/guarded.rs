//! How a call is passed on, unless it would write what must not be written.

/// Defines C functions that fail with `EACCES` where the condition behind `unless` holds, and are the next function's otherwise.
///
/// A condition `at, path` is of a name as the call takes it, a condition `file` of a descriptor.
macro_rules! guarded {
    ($($name:ident($($argument:ident: $kind:ty),*) unless $($at:expr, $path:ident)? $(, file $file:ident)?;)*) => {
        mod next {
            use super::*;
            $(
                #[expect(non_upper_case_globals, reason = "the names are C's")]
                pub(super) static $name: preload::NextFunction<unsafe extern "C-unwind" fn($($kind),*) -> c_int> =
                    // SAFETY: the type is that of the C library's headers.
                    unsafe { preload::NextFunction::named($crate::guarded::c_name(concat!(stringify!($name), "\0"))) };
            )*
        }

        pub(crate) fn prepare() {
            $(next::$name.prepare();)*
        }

        $(
            /// Is the C library's function of this name, except for what must not be written.
            ///
            /// # Safety
            ///
            /// As of that function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                $(
                    if $crate::lists::is_guarded_name($at, $path) {
                        return preload::fail(libc::EACCES);
                    }
                )?
                $(
                    if $crate::lists::is_guarded_file($file) {
                        return preload::fail(libc::EACCES);
                    }
                )?
                let Some(next) = next::$name.get() else { return preload::fail(libc::ENOSYS) };
                // SAFETY: the caller's own arguments go to the function it called.
                unsafe { next($($argument),*) }
            }
        )*
    };
}
pub(crate) use guarded;

/// Returns a text that ends in NUL as C has it.
pub(crate) const fn c_name(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the name of a function has one NUL, at its end"),
    }
}
