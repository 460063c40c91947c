//! Threads whose start may fail.
//!
//! Under a limit on processes (`ulimit -u`, `TasksMax=`) the kernel refuses a thread as it refuses a process.
//! `std::thread::spawn` and `std::thread::Scope::spawn` panic then; these functions return the error.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// The kernel refused a thread. The `io::Error` that these functions return holds it, and its source is the kernel's error.
#[derive(Debug)]
pub struct CannotStart {
    name: String,
    source: io::Error,
}

impl std::fmt::Display for CannotStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot start the thread \"{}\"", self.name)
    }
}

impl std::error::Error for CannotStart {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl CannotStart {
    fn into_error(name: &str, source: io::Error) -> io::Error {
        io::Error::new(source.kind(), CannotStart { name: name.to_owned(), source })
    }
}

/// What a user can do about such a refusal.
pub const PROCESS_LIMIT: &str =
    "the limit on processes and threads may be reached; `ulimit -u` shows this user's";

/// Returns [`PROCESS_LIMIT`] if an error or one of its causes is that the kernel refused a thread or a process.
#[must_use]
pub fn hint(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    is_refusal(error).then_some(PROCESS_LIMIT)
}

/// Says whether an error or one of its causes is that the kernel refused a thread or a process.
#[must_use]
pub fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let all = std::iter::successors(Some(error), |&error| error.source());
    all.filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| {
        let is_thread = error.get_ref().is_some_and(|inner| inner.is::<CannotStart>());
        is_thread || error.raw_os_error() == Some(rustix::io::Errno::AGAIN.raw_os_error())
    })
}

/// Says whether a line of a log, in which an error is only text, tells that the kernel refused a thread or a process.
#[must_use]
pub fn tells_refusal(line: &str) -> bool {
    line.contains("Resource temporarily unavailable") || line.contains("cannot start the thread \"")
}

/// Starts a thread that the kernel shows as `name`, of which it keeps 15 bytes.
///
/// # Errors
///
/// The thread was refused, with [`CannotStart`] inside of the error; `work` is dropped without having run.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let started = Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| CannotStart::into_error(name, error))
}

/// Starts a thread as [`spawn`] does, that ends before `scope` does.
///
/// # Errors
///
/// The thread was refused, as [`spawn`] says. The threads of the scope that have started go on:
/// whoever gets the error lets them end, or the scope waits for them.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    started.map_err(|error| CannotStart::into_error(name, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use std::process::Command;
    use std::sync::mpsc;

    /// Set in the copy of this test program that the kernel allows no thread.
    const REFUSED: &str = "UNJANK_TEST_THREADS_REFUSED";

    #[test]
    fn threads_carry_their_names_and_give_what_their_work_returns() {
        let named = || std::thread::current().name().map(str::to_owned);
        assert_eq!(spawn("one", named).unwrap().join().unwrap().as_deref(), Some("one"));
        let value = String::from("borrowed");
        let length = std::thread::scope(|scope| {
            spawn_scoped(scope, "two", || value.len()).unwrap().join().unwrap()
        });
        assert_eq!(length, 8);
    }

    #[test]
    fn a_refused_thread_is_an_error_that_names_it_and_the_work_is_dropped() {
        #[expect(clippy::disallowed_methods, reason = "the test tells its copy what it is")]
        let is_copy = std::env::var_os(REFUSED).is_some();
        if !is_copy {
            let name = "a_refused_thread_is_an_error_that_names_it_and_the_work_is_dropped";
            let mut copy = Command::new(std::env::current_exe().unwrap());
            copy.args(["--test-threads=1", "--nocapture", name]).env(REFUSED, "1");
            let output = copy.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        refuse_threads();
        let (kept, dropped) = mpsc::channel::<()>();
        let error = spawn("listing", move || drop(kept)).unwrap_err();
        assert_eq!(error.to_string(), "cannot start the thread \"listing\"");
        assert!(error.source().unwrap().to_string().contains("temporarily unavailable"));
        assert!(is_refusal(&error));
        assert!(tells_refusal(&error.to_string()));
        assert!(tells_refusal(&io::Error::from(rustix::io::Errno::AGAIN).to_string()));
        assert!(!tells_refusal(&io::Error::from(rustix::io::Errno::NOENT).to_string()));
        assert!(!is_refusal(&io::Error::from(io::ErrorKind::NotFound)));
        dropped.recv().unwrap_err();
        std::thread::scope(|scope| spawn_scoped(scope, "two", || ()).unwrap_err());
    }

    /// Has the kernel refuse further threads of this process: root is above the limit, so it becomes another user.
    fn refuse_threads() {
        let nobody = rustix::process::Uid::from_raw(65534);
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Nproc, none).unwrap();
    }
}
