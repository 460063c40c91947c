//! What a call that failed returns and says, and the boundary that no panic crosses.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct CallError {
    number: c_int,
    text: String,
}

impl CallError {
    /// Makes the error with this number of `errno` and this text.
    pub(crate) fn new(number: c_int, text: impl Into<String>) -> CallError {
        CallError { number, text: text.into() }
    }

    /// A parameter is not as it must be.
    pub(crate) fn invalid(text: impl Into<String>) -> CallError {
        CallError::new(libc::EINVAL, text)
    }

    /// Makes the error of an error and its causes; the number is that of the system's error among them, else `fallback`.
    pub(crate) fn of(error: &(dyn Error + 'static), fallback: c_int) -> CallError {
        let causes = || std::iter::successors(Some(error), |&error| error.source());
        let number = causes().find_map(|cause| {
            let cause = cause.downcast_ref::<io::Error>()?;
            cause.raw_os_error().or_else(|| number_of(cause.kind()))
        });
        let text = causes().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        CallError { number: number.unwrap_or(fallback), text }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> c_int {
        self.number
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> CallError {
        CallError::of(&error, libc::EIO)
    }
}

/// The number of an error that the system did not give.
fn number_of(kind: io::ErrorKind) -> Option<c_int> {
    Some(match kind {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::UnexpectedEof => libc::ECONNRESET,
        io::ErrorKind::Unsupported => libc::ENOTSUP,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EBADMSG,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::QuotaExceeded => libc::EDQUOT,
        io::ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => return None,
    })
}

thread_local! {
    /// What the last call that failed in this thread said.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function that C calls; what it returns goes to C, an error as a negative number of `errno`.
pub(crate) fn enter(body: impl FnOnce() -> Result<c_int, CallError>) -> c_int {
    // What the body changes is behind locks, which a panic poisons.
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            let error = CallError::new(libc::ENOTRECOVERABLE, format!("internal error: {said}"));
            // Its destructor may panic, too.
            std::mem::forget(panic);
            error
        }
    };
    tell(&error.text);
    -error.number.max(1)
}

/// Keeps a text for `unjank_error_text`.
pub(crate) fn tell(text: &str) {
    let text: String = text.chars().flat_map(shown).collect();
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends may have given the text back already.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// A character of a text, escaped if it could do something to a terminal.
fn shown(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_default());
    let plain = (!character.is_control()).then_some(character);
    escaped.into_iter().flatten().chain(plain)
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text has a NUL and stays until the next failure in this thread.
        unsafe { CStr::from_ptr(unjank_error_text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn no_panic_crosses() {
        extern "C" fn planted() -> c_int {
            enter(|| panic!("planted {}", 1))
        }
        extern "C" fn worse() -> c_int {
            struct Payload;
            impl Drop for Payload {
                fn drop(&mut self) {
                    panic!("again")
                }
            }
            enter(|| std::panic::panic_any(Payload))
        }
        assert_eq!(
            (planted(), last().as_str()),
            (-libc::ENOTRECOVERABLE, "internal error: planted 1")
        );
        assert_eq!((worse(), last().as_str()), (-libc::ENOTRECOVERABLE, "internal error: a panic"));
    }

    #[test]
    fn an_error_is_a_number_and_a_text_of_one_line() {
        let source = io::Error::from_raw_os_error(libc::EMFILE);
        let error = listing::ListingError::NotStarted { path: "/a\nb".into(), source };
        assert_eq!(enter(|| Err(CallError::of(&error, libc::EIO))), -libc::EMFILE);
        assert_eq!(last(), "cannot start listing \"/a\\nb\": Too many open files (os error 24)");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(CallError::from(full).number(), libc::ENOSPC, "without the system's number");
        assert_eq!(enter(|| Err(CallError::invalid("a\x1b[2Jb\0c"))), -libc::EINVAL);
        assert_eq!(last(), "a\\u{1b}[2Jb\\u{0}c");
        let of_another = std::thread::spawn(last).join().unwrap();
        assert_eq!(of_another, "");
    }

    #[test]
    fn every_function_of_the_header_catches_panics() {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for function in source.split("\n#[unsafe(no_mangle)]\n").skip(1) {
                let body = function.split("{\n").nth(1).unwrap().trim_start();
                let name = function.split("fn ").nth(1).unwrap().split('(').next().unwrap();
                let is_plain = ["unjank_version", "unjank_error_text"].contains(&name);
                assert!(is_plain || body.starts_with("enter(|| "), "{name} is not caught");
            }
        }
    }
}
