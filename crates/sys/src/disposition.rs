//! What signals do to this process: which it ignores, and an end as a signal makes it.

use std::mem::MaybeUninit;
use std::ptr;

use crate::launch::signal_set;

/// The lowest number of a real-time signal that the C library leaves to programs.
#[must_use]
pub fn first_real_time() -> i32 {
    libc::SIGRTMIN()
}

/// The highest number of a signal.
#[must_use]
pub fn last() -> i32 {
    libc::SIGRTMAX()
}

/// Says whether `signal` is ignored, as whoever started us may have wanted it (`nohup`).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set; the present one is written to where `action` is.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all-zero is a valid value of this plain structure, and so is what the kernel wrote.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ends this process as `signal` does, so that whoever waits for it sees that; no core is written.
///
/// Returns if the signal does not end a process.
pub fn die_by(signal: i32) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Whoever died first has left the core that matters.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: sets a disposition that has no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let mut set = signal_set(libc::sigemptyset);
    // SAFETY: adds to a set of ours; a number that is no signal is an error that changes nothing.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: the kernel reads the set.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    // SAFETY: sends a signal to ourselves; a wrong number is an error.
    unsafe { libc::raise(signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// The name of the test that is a process of its own, which may change its signals.
    const INSIDE: &str = "UNJANK_TEST_SIGNALS";

    fn again(what: &str) -> std::process::ExitStatus {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "disposition::tests::a_process_of_its_own", "--test-threads=1"]);
        command.env(INSIDE, what).stdout(std::process::Stdio::null()).status().unwrap()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test talks to itself in another process")]
    fn a_process_of_its_own() {
        match std::env::var(INSIDE).as_deref() {
            Ok("ignores") => {
                assert!(!is_ignored(libc::SIGHUP));
                // SAFETY: sets a disposition that has no handler.
                unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
                assert!(is_ignored(libc::SIGHUP) && !is_ignored(999));
            }
            Ok(signal) => die_by(signal.parse().unwrap()),
            Err(_) => (),
        }
    }

    #[test]
    fn what_is_ignored_is_known() {
        assert!(again("ignores").success());
    }

    #[test]
    fn a_process_dies_by_the_signal_that_it_names() {
        for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGPIPE, first_real_time()] {
            let status = again(&signal.to_string());
            assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
        }
        assert!(again("17").success(), "SIGCHLD ends nobody");
    }
}
