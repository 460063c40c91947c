//! Descriptors that other programs passed to us, closed beside everything else.
//!
//! `close(2)` tells the file system of the file, and waits for its answer: a file in user space or of another machine is
//! flushed, for as long as its server takes. Whoever passes such a descriptor chooses how long that is. So threads close
//! them, and nobody waits. Pipes, sockets and devices are closed at once: their close waits for nobody.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

/// Threads that close, those that hang among them. When all hang, what is closed waits for one of them, open.
const MOST_THREADS: usize = 32;
/// Threads that wait for something to close.
const MOST_IDLE: usize = 1;

/// A descriptor that another program passed to us. It is closed without a wait.
#[derive(Debug)]
pub struct PassedDescriptor(Option<OwnedFd>);

impl From<OwnedFd> for PassedDescriptor {
    fn from(descriptor: OwnedFd) -> PassedDescriptor {
        PassedDescriptor(Some(descriptor))
    }
}

impl AsFd for PassedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for PassedDescriptor {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take().filter(|descriptor| may_hang(descriptor.as_fd())) {
            drop_beside(descriptor);
        }
    }
}

/// Says whether the close of this descriptor may wait for somebody; no file system is asked.
#[must_use]
pub fn may_hang(descriptor: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(status) = statx(descriptor, c"", flags, StatxFlags::TYPE) else { return true };
    match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice => false,
        // A file system on a disk of this machine has the numbers of that disk.
        _ => status.stx_dev_major == 0,
    }
}

/// Says whether this is a terminal; no file system and no driver of another device is asked.
#[must_use]
pub fn is_terminal(descriptor: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let device = statx(descriptor, c"", flags, StatxFlags::TYPE).is_ok_and(|status| {
        FileType::from_raw_mode(status.stx_mode.into()) == FileType::CharacterDevice
    });
    device && rustix::termios::isatty(descriptor)
}

/// Drops something that holds descriptors on a thread.
pub fn drop_beside(holder: impl Send + 'static) {
    let mut closers = lock();
    closers.waiting.push_back(Box::new(holder));
    if closers.waiting.len() <= closers.idle || closers.threads >= MOST_THREADS {
        drop(closers);
        WAKE.notify_one();
        return;
    }
    closers.threads += 1;
    drop(closers);
    if crate::thread::spawn("closing", close_all).is_err() {
        let mut closers = lock();
        closers.threads -= 1;
        let left = match closers.threads {
            // Nobody else is there to do it.
            0 => std::mem::take(&mut closers.waiting),
            _ => VecDeque::new(),
        };
        drop(closers);
        drop(left);
    }
}

/// What is to be dropped, and by how many.
struct Closers {
    waiting: VecDeque<Box<dyn Send>>,
    threads: usize,
    idle: usize,
}

static CLOSERS: Mutex<Closers> =
    Mutex::new(Closers { waiting: VecDeque::new(), threads: 0, idle: 0 });
static WAKE: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Closers> {
    // Nothing that panics runs under it.
    CLOSERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The life of a thread.
fn close_all() {
    let mut closers = lock();
    loop {
        if let Some(holder) = closers.waiting.pop_front() {
            drop(closers);
            drop(holder);
            closers = lock();
            continue;
        }
        if closers.idle >= MOST_IDLE {
            break;
        }
        closers.idle += 1;
        closers = WAKE.wait(closers).unwrap_or_else(PoisonError::into_inner);
        closers.idle -= 1;
    }
    closers.threads -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Something whose end waits until it is told to go on, and is told.
    struct Hangs(Option<Receiver<()>>, Sender<()>);

    impl Drop for Hangs {
        fn drop(&mut self) {
            if let Some(wait) = self.0.take() {
                let _ = wait.recv();
            }
            let _ = self.1.send(());
        }
    }

    #[test]
    fn what_hangs_holds_up_neither_its_owner_nor_the_rest() {
        let (done, told) = channel();
        let held: Vec<Sender<()>> = (0..MOST_THREADS - 1)
            .map(|_| {
                let (go_on, wait) = channel();
                drop_beside(Hangs(Some(wait), done.clone()));
                go_on
            })
            .collect();
        for _ in 0..100 {
            drop_beside(Hangs(None, done.clone()));
        }
        for _ in 0..100 {
            told.recv_timeout(Duration::from_secs(50)).expect("something was not dropped");
        }
        drop(held);
        for _ in 1..MOST_THREADS {
            told.recv_timeout(Duration::from_secs(50)).expect("what hung goes on");
        }
    }

    #[test]
    fn pipes_sockets_and_devices_are_closed_at_once() {
        let (read, write) = std::io::pipe().unwrap();
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for descriptor in [read.as_fd(), write.as_fd(), one.as_fd(), null.as_fd()] {
            assert!(!may_hang(descriptor) && !is_terminal(descriptor));
        }
        // The files of the kernel have no disk; nor have those of a server.
        assert!(may_hang(std::fs::File::open("/proc/self/stat").unwrap().as_fd()));
        let mut read = std::fs::File::from(OwnedFd::from(read));
        drop(PassedDescriptor::from(OwnedFd::from(write)));
        assert_eq!(std::io::Read::read(&mut read, &mut [0]).unwrap(), 0);
    }
}
