//! Files of `/proc/PID` that the kernel reads out of the memory of the process, read with a time limit.
//!
//! `cmdline`, `environ`, `maps` and `smaps` take the lock of the memory of the process. Where that is held by a thread that
//! waits in the kernel, as in a page fault on a file of a dead FUSE server, whoever reads them waits with it, and no signal
//! but SIGKILL ends that. So a thread reads them, and is left behind when it takes too long. What lies behind `root`, and the
//! contents of `exe`, may hang in the same way. `stat`, `status`, `comm`, `cgroup`, `ns`, and the links `exe`, `cwd` and
//! `fd/N` themselves wait for nobody.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long one file may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Reads of processes of one sandbox or control group that hang at a time; with more of them no process of it is read until
/// one of them comes back.
const MOST_STUCK_OF_ONE: usize = 8;
/// The same for all sandboxes together.
const MOST_STUCK_OF_OTHERS: usize = 32;
/// The same for the processes that see the files that we see.
const MOST_STUCK_OF_OURS: usize = 16;
/// Threads that wait for work.
const MOST_IDLE: usize = 2;

type Work = Box<dyn FnOnce() + Send>;

/// The threads that read.
#[derive(Default)]
struct Readers {
    idle: Vec<Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    /// How many threads have work, those that hang among them.
    busy: usize,
    /// What the threads read that were left behind, and whose it is.
    stuck: HashMap<PathBuf, Share>,
}

/// Whose reads may hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Share {
    /// Processes that see the files that we see, as the user's programs outside of sandboxes do.
    Ours,
    /// Those of a mount namespace and control group.
    Of(PathBuf, String),
}

impl Share {
    /// Returns that of the process with this directory in `/proc`. Nothing that is asked for here may hang.
    fn of(process: &Path) -> Share {
        let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
        let theirs = namespace(process);
        if theirs.is_some() && theirs == namespace(Path::new("/proc/self")) {
            return Share::Ours;
        }
        let group = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        Share::Of(theirs.unwrap_or_default(), group)
    }
}

static READERS: Mutex<Option<Readers>> = Mutex::new(None);

/// Reads the first `most` bytes of `/proc/PID/NAME`.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`] if the process hangs in the kernel, so that the file cannot be read within a second; else as
/// `open(2)` and `read(2)`, or no thread can be started.
pub fn read(process: u32, name: &str, most: u64) -> io::Result<Vec<u8>> {
    read_at(&Path::new("/proc").join(process.to_string()).join(name), most)
}

/// As [`read`], for a path, which may lie below another `/proc`.
///
/// # Errors
///
/// As [`read`].
pub fn read_at(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = path.to_owned();
    let share = Share::of(path.parent().unwrap_or(path));
    within(path, share, PATIENCE, move || {
        let mut bytes = Vec::new();
        match File::open(file)?.take(most).read_to_end(&mut bytes) {
            // The process has ended meanwhile: what there was is there.
            Err(error) if bytes.is_empty() => Err(error),
            _ => Ok(bytes),
        }
    })
}

/// Says whether an error of [`read`] means that the process hangs, so that nothing can be said about it.
#[must_use]
pub fn is_stuck(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// Has a thread do `work`, which is about `path`, and waits for it for so long.
fn within<T: Send + 'static>(
    path: &Path,
    share: Share,
    patience: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if lock().get_or_insert_default().refuses(path, &share) {
        return Err(late());
    }
    let (tell, told) = sync_channel(1);
    let thread = reader()?;
    let (own, about) = (thread.clone(), path.to_owned());
    let job: Work = Box::new(move || {
        let result = work();
        let mut readers = lock();
        let readers = readers.get_or_insert_default();
        // The caller gives up under this lock, so it has either taken the result or is gone and needs none.
        let _ = tell.try_send(result);
        readers.busy -= 1;
        readers.stuck.remove(&about);
        if readers.idle.len() < MOST_IDLE {
            readers.idle.push(own);
        }
    });
    lock().get_or_insert_default().busy += 1;
    if thread.send(job).is_err() {
        lock().get_or_insert_default().busy -= 1;
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    drop(thread);
    if let Ok(result) = told.recv_timeout(patience) {
        return result;
    }
    let mut readers = lock();
    match told.try_recv() {
        Ok(result) => result,
        Err(_) => {
            readers.get_or_insert_default().stuck.insert(path.to_owned(), share);
            Err(late())
        }
    }
}

impl Readers {
    /// Says whether a read of a file of this process hangs, or too many of its share do.
    fn refuses(&self, path: &Path, share: &Share) -> bool {
        let of_process = |stuck: &PathBuf| stuck.parent() == path.parent();
        let count = |counts: &dyn Fn(&Share) -> bool| {
            self.stuck.values().filter(|other| counts(other)).count()
        };
        let has_too_many = match share {
            Share::Ours => count(&|other| other == share) >= MOST_STUCK_OF_OURS,
            Share::Of(..) => {
                count(&|other| other == share) >= MOST_STUCK_OF_ONE
                    || count(&|other| *other != Share::Ours) >= MOST_STUCK_OF_OTHERS
            }
        };
        has_too_many || self.stuck.keys().any(of_process)
    }
}

/// Returns the way to a thread that has nothing to do.
fn reader() -> io::Result<Sender<Work>> {
    if let Some(idle) = lock().get_or_insert_default().idle.pop() {
        return Ok(idle);
    }
    let (sender, jobs) = channel::<Work>();
    let thread = crate::thread::spawn("process-file", move || {
        // It ends with the last who could give it work.
        while let Ok(work) = jobs.recv() {
            work();
        }
    })?;
    let mut readers = lock();
    let threads = &mut readers.get_or_insert_default().threads;
    threads.retain(|thread| !thread.is_finished());
    threads.push(thread);
    Ok(sender)
}

/// Ends the threads that wait for work, and waits for their end: a process with other threads cannot fork.
///
/// All stay while one of them has work, which may hang.
pub(crate) fn end_idle_threads() {
    let (idle, threads) = {
        let mut readers = lock();
        let readers = readers.get_or_insert_default();
        if readers.busy > 0 {
            return;
        }
        (std::mem::take(&mut readers.idle), std::mem::take(&mut readers.threads))
    };
    // Without a way to it none gets work any more.
    drop(idle);
    for thread in threads {
        // A reader that panicked has ended, too.
        let _ = thread.join();
    }
}

fn lock() -> MutexGuard<'static, Option<Readers>> {
    // Nothing that panics runs under it.
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the process hangs in the kernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_process_are_read() {
        let own = std::process::id();
        let line = std::fs::read("/proc/self/cmdline").unwrap();
        for _ in 0..100 {
            assert_eq!(read(own, "cmdline", 1 << 20).unwrap(), line);
        }
        assert_eq!(read(own, "cmdline", 3).unwrap(), line[..3]);
        assert!(!read(own, "maps", 1 << 20).unwrap().is_empty());
        let gone = read(u32::MAX, "cmdline", 1).unwrap_err();
        assert!(!is_stuck(&gone), "{gone}");
    }

    #[test]
    fn idle_threads_end_when_they_are_told_to_and_others_take_their_place() {
        read(std::process::id(), "cmdline", 1).unwrap();
        end_idle_threads();
        assert!(!read(std::process::id(), "maps", 1).unwrap().is_empty());
    }

    #[test]
    fn who_hangs_is_left_behind_once_and_asked_again_when_it_has_come_back() {
        let path = Path::new("/proc/none/cmdline");
        let (release, released) = channel::<()>();
        let (finish, finished) = channel::<()>();
        let hangs = within(path, Share::Ours, Duration::from_millis(20), move || {
            let _ = released.recv();
            let _ = finish.send(());
            Ok(())
        });
        assert!(is_stuck(&hangs.unwrap_err()));
        // At once, also for another file of the process, and others are read meanwhile.
        let again = within(Path::new("/proc/none/maps"), Share::Ours, PATIENCE, || Ok(7));
        assert!(is_stuck(&again.unwrap_err()));
        let other = Path::new("/proc/other/maps");
        assert_eq!(within(other, Share::Ours, PATIENCE * 50, || Ok(7)).unwrap(), 7);
        drop(release);
        finished.recv_timeout(PATIENCE * 50).unwrap();
        while within(path, Share::Ours, PATIENCE * 50, || Ok(7)).is_err() {
            std::thread::yield_now();
        }
    }

    fn sandbox(name: &str) -> Share {
        Share::Of("mnt:[1]".into(), name.to_owned())
    }

    #[test]
    fn processes_of_a_sandbox_that_hang_refuse_nobody_else() {
        let (release, released) = channel::<()>();
        let released = std::sync::Arc::new(Mutex::new(released));
        let hang = |name: String, share: Share| {
            let released = std::sync::Arc::clone(&released);
            let path = PathBuf::from(format!("/proc/{name}/cmdline"));
            within(&path, share, Duration::from_millis(5), move || {
                let _ = released.lock().map(|released| released.recv());
                Ok(())
            })
        };
        // As many as they like, of many sandboxes at once.
        for number in 0..40 * MOST_STUCK_OF_ONE {
            let share = sandbox(&format!("evil{}", number / (2 * MOST_STUCK_OF_ONE)));
            assert!(is_stuck(&hang(format!("stuck{number}"), share).unwrap_err()));
        }
        let stuck = lock().get_or_insert_default().stuck.len();
        assert!((MOST_STUCK_OF_OTHERS..=MOST_STUCK_OF_OTHERS + 1).contains(&stuck), "{stuck}");
        let own = std::process::id();
        assert_eq!(Share::of(&Path::new("/proc").join(own.to_string())), Share::Ours);
        assert!(!read(own, "cmdline", 1).unwrap().is_empty(), "nobody else is read");
        drop(release);
        // Those that hung come back, and the sandbox is read again.
        while lock().get_or_insert_default().refuses(Path::new("/proc/new/maps"), &sandbox("evil0"))
        {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_sandbox_has_a_share_and_another_one_its_own() {
        let mut readers = Readers::default();
        for number in 0..MOST_STUCK_OF_ONE {
            let path = PathBuf::from(format!("/proc/n{number}/maps"));
            assert!(!readers.refuses(&path, &sandbox("one")));
            readers.stuck.insert(path, sandbox("one"));
        }
        let next = Path::new("/proc/next/maps");
        assert!(readers.refuses(next, &sandbox("one")));
        assert!(!readers.refuses(next, &sandbox("two")) && !readers.refuses(next, &Share::Ours));
    }
}
