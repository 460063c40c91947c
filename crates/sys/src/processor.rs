//! On which processor a process runs, and a thread that stays on one; how long a thread waited for any.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Tells on which processor the main thread of a process ran last.
#[derive(Debug)]
pub struct ProcessorOf(File);

impl ProcessorOf {
    /// Looks at the process with this number.
    ///
    /// # Errors
    ///
    /// It has ended, or `/proc` does not show it.
    pub fn process(pid: u32) -> io::Result<ProcessorOf> {
        File::open(format!("/proc/{pid}/stat")).map(ProcessorOf)
    }

    /// Returns the number of the processor.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn last(&self) -> io::Result<usize> {
        let text = read(&self.0)?;
        // The name before the last parenthesis may hold anything; the processor is field 39.
        let fields = text.rsplit_once(") ").map(|(_, fields)| fields);
        let processor = fields.and_then(|fields| fields.split(' ').nth(36)?.parse().ok());
        processor.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Tells how long the calling thread was ready to run and did not, since it began.
#[derive(Debug)]
pub struct RunDelay {
    file: File,
    /// It is one thread's.
    _thread: PhantomData<*const ()>,
}

impl RunDelay {
    /// Looks at the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel does not count it.
    pub fn of_this_thread() -> io::Result<RunDelay> {
        let file = File::open("/proc/thread-self/schedstat")?;
        Ok(RunDelay { file, _thread: PhantomData })
    }

    /// Returns the time in nanoseconds.
    ///
    /// # Errors
    ///
    /// As `pread(2)`.
    pub fn nanoseconds(&self) -> io::Result<u64> {
        delay_in(&read(&self.file)?)
    }
}

/// How a thread waits for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorWait {
    /// How long it has been ready to run and did not, without the present wait, which the kernel counts when it is over.
    pub so_far: Duration,
    /// Whether it runs, or is ready to.
    pub is_ready: bool,
}

/// Returns how a thread, and the newest process that it started, wait for a processor: the sum of their waits, and whether
/// one of them is ready.
///
/// What the kernel does not tell, or has ended, counts as no wait.
#[must_use]
pub fn wait_with_newest_child(process: u32, thread: u32) -> ProcessorWait {
    let at = format!("/proc/{process}/task/{thread}");
    let children = std::fs::read_to_string(format!("{at}/children")).unwrap_or_default();
    let newest = children.split_whitespace().next_back().map(|pid| format!("/proc/{pid}"));
    let mut wait = ProcessorWait::default();
    for at in std::iter::once(at).chain(newest) {
        let text = |file: &str| std::fs::read_to_string(format!("{at}/{file}")).unwrap_or_default();
        wait.so_far += Duration::from_nanos(delay_in(&text("schedstat")).unwrap_or(0));
        // The name before the last parenthesis may hold anything.
        wait.is_ready |=
            text("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
    }
    wait
}

/// Reads the second number of `schedstat`: nanoseconds.
fn delay_in(text: &str) -> io::Result<u64> {
    let delay = text.split(' ').nth(1).and_then(|delay| delay.trim().parse().ok());
    delay.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn read(file: &File) -> io::Result<String> {
    let mut bytes = [0; 1024];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Keeps the calling thread on one processor until this goes; then it may run where it did before.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
    now: usize,
    /// It is one thread's.
    _thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Begins to stay on a processor.
    ///
    /// # Errors
    ///
    /// As `sched_setaffinity(2)`: the thread may not run there.
    pub fn to(processor: usize) -> io::Result<Pinned> {
        let before = sched_getaffinity(None)?;
        stay_on(processor)?;
        Ok(Pinned { before, now: processor, _thread: PhantomData })
    }

    /// Goes on on another one.
    ///
    /// # Errors
    ///
    /// As [`Pinned::to`]; the thread stays where it is.
    pub fn move_to(&mut self, processor: usize) -> io::Result<()> {
        if self.now != processor {
            stay_on(processor)?;
            self.now = processor;
        }
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It ran there before; one that has been taken away meanwhile is the kernel's business.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn stay_on(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_told_and_may_go_on_as_before() {
        let before = sched_getaffinity(None).unwrap();
        let processors: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|number| before.is_set(*number)).collect();
        let mut pinned = Pinned::to(processors[0]).unwrap();
        for processor in processors.iter().take(3) {
            pinned.move_to(*processor).unwrap();
            let now = sched_getaffinity(None).unwrap();
            assert!(now.count() == 1 && now.is_set(*processor));
            assert_eq!(rustix::thread::sched_getcpu(), *processor);
        }
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(Pinned::to(CpuSet::MAX_CPU).is_err());
    }

    #[test]
    fn the_processor_of_a_process_is_one_that_there_is_and_its_waits_are_counted() {
        let here = ProcessorOf::process(std::process::id()).unwrap();
        assert!(here.last().unwrap() < CpuSet::MAX_CPU);
        assert!(ProcessorOf::process(u32::MAX).is_err());
        let delay = RunDelay::of_this_thread().unwrap();
        let first = delay.nanoseconds().unwrap();
        std::thread::yield_now();
        assert!(delay.nanoseconds().unwrap() >= first);
    }
}
