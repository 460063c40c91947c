//! A timer that interrupts the blocking calls of one thread, again and again, for as long as it exists.

use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

/// Interrupts the calling thread.
#[derive(Debug)]
pub struct Ticker {
    timer: libc::timer_t,
    /// It is for the thread that made it.
    _here: PhantomData<*const ()>,
}

extern "C" fn ignore(_signal: i32) {}

/// The signal that the timer sends, which nobody else uses.
fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

impl Ticker {
    /// Starts a timer that interrupts the calling thread each `period`: a blocking call then fails with `EINTR`.
    ///
    /// The process gets a handler that does nothing for one real-time signal; it stays.
    ///
    /// # Errors
    ///
    /// As `timer_create(2)`: too many timers.
    pub fn start(period: Duration) -> io::Result<Ticker> {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore as *const () as usize;
        // SAFETY: the handler is a function that touches nothing, and lives forever.
        if unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: the kernel reads `event` and writes `timer`, which both live.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let ticker = Ticker { timer, _here: PhantomData };
        let period = libc::timespec {
            tv_sec: period.as_secs().try_into().unwrap_or(i32::MAX.into()),
            tv_nsec: period.subsec_nanos().into(),
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer exists, the kernel reads `times`, and the old value is not asked for.
        if unsafe { libc::timer_settime(timer, 0, &raw const times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ticker)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: the timer exists, and nobody uses it after this.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_would_block_for_ever_is_interrupted() {
        let _ticker = Ticker::start(Duration::from_millis(5)).unwrap();
        for _ in 0..3 {
            let (read, _write) = rustix::pipe::pipe().unwrap();
            assert_eq!(rustix::io::read(&read, &mut [0; 1]), Err(rustix::io::Errno::INTR));
        }
    }
}
