//! The recorder: follows the interface threads of this user's interactive programs without stopping them.
//!
//! One thread observes them, another one describes and stores. With programs in the kernel (`exact`) begin and end of each
//! absence are known, and a thread is looked at only while it is away for long. Without them (`sampling`) the kernel announces
//! when a thread that rests in its main loop's wait runs again; where it does not, the thread's counters are read each
//! [`REST`]. A thread that is away is looked at each [`AWAY`].

mod absence;
mod callers;
mod candidates;
mod cause;
mod describe;
mod disk_use;
mod exact;
mod follower;
mod identity;
mod interactive;
mod kernel_stack;
mod period;
mod places;
mod process;
mod program_name;
mod read;
mod rest;
mod sampling;
mod service;
mod sleeping;
mod system_units;
mod turns;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use recents::RecentsFiles;
use rustix::event::Timespec;
use store::disk::Disk;
use sys::bpf::LoadError;
use sys::clock::Clock;
use trace::backend::bpf::served::ServedError;
use trace::stack::names::SymbolSources;
use wakeups::kernel::WakeupTracer;

use self::describe::HangDescriber;
use self::exact::{ExactEnd, ExactRecorder};
use self::interactive::InteractiveFinder;
use self::sampling::SamplingRecorder;
use self::service::ServiceConnector;
pub use self::service::{RecorderService, SourceChange};
use self::work::{DescribeWork, RecorderLink, SharedCounters};
use crate::excluded::PathConcealer;
use crate::kernel::{HangPrograms, ReportStream, ThreadMarker, WakeupStream, open_served};
use crate::model::Hang;
use crate::store::{HangStore, HangStoreError};

/// The interval of looks at threads in the wait of their main loop whose next run is not announced.
pub const REST: Duration = Duration::from_millis(50);
/// The interval of looks at a thread that is away from it.
pub const AWAY: Duration = Duration::from_millis(10);
/// The interval of looks at threads whose next run is announced: nothing depends on them but the count of watched time.
const CHECK: Duration = Duration::from_secs(1);
/// The most threads whose next run is announced: each takes two pages of the memory that a user may lock.
const MOST_ANNOUNCED: usize = 64;
/// The most programs that are followed.
pub const MOST_PROGRAMS: usize = 256;
/// The most names of programs in one period; others are counted together.
const MOST_NAMES: usize = 256;
/// How often a period is stored, in nanoseconds.
const PERIOD_NS: u64 = 60_000_000_000;
/// How often the store is made durable, in nanoseconds.
const SYNC_NS: u64 = 600_000_000_000;
/// A hang that goes on is stored at this length for the first time, then each time that it has doubled, in nanoseconds.
const FIRST_STORED_NS: u64 = 1_000_000_000;
/// Functions on a processor are sampled once a thread has been away for so long, in nanoseconds.
const SAMPLE_AFTER_NS: u64 = 30_000_000;
/// The interval of samples on a processor.
const SAMPLE_PERIOD: Duration = Duration::from_millis(7);
/// The most samples of one hang.
const SAMPLES: u32 = 64;
/// Shorter waits of other programs are not recorded when hangs are followed.
const SHORTEST_FOLLOWED: Duration = Duration::from_millis(5);
/// The key of the first absence of the next program: a program has fewer absences than this.
const KEYS: u64 = 1 << 40;

/// What a recorder is to do.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The directory of the store.
    pub dir: PathBuf,
    /// How many bytes the store may take.
    pub limit_bytes: u64,
    /// Names of programs that are followed although they have no display.
    pub named: Vec<String>,
    /// The rules that exclude paths; without them every path is stored.
    pub excluded: Option<RecentsFiles>,
    /// Where symbols are searched.
    pub sources: SymbolSources,
}

/// How a recorder observes threads.
#[derive(Debug)]
pub enum ThreadSource {
    /// By looks from outside, through `/proc`.
    Sampling,
    /// By the reports of programs in the kernel.
    Kernel(Box<KernelReports>),
    /// By the reports of programs that the recorder service has in the kernel for this user, and by looks from outside as long as it has
    /// none.
    Service(RecorderService),
}

/// What programs in the kernel give a recorder; they may be loaded by another process.
#[derive(Debug)]
pub struct KernelReports {
    /// The reports.
    pub reports: ReportStream,
    /// Marks threads, here or in the process that loaded the programs.
    pub marker: Box<dyn ThreadMarker>,
    /// Records wake-ups; without it hangs are not followed to other programs.
    pub wakeups: Option<WakeupStream>,
}

impl KernelReports {
    /// Loads the programs for the processes of a user, and those for wake-ups where the kernel takes them.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is left in the kernel.
    pub fn load(user: u32) -> Result<KernelReports, LoadError> {
        let HangPrograms { ring, marker } = HangPrograms::load(user)?;
        let wakeups = WakeupTracer::load_for(SHORTEST_FOLLOWED).ok().map(WakeupStream::from);
        Ok(KernelReports { reports: ring.into(), marker: Box::new(marker), wakeups })
    }

    /// Begins a session in the recorder service that listens at a socket. Of other users' programs, to which hangs are followed,
    /// is told that they are those of others.
    ///
    /// # Errors
    ///
    /// [`ServedError`]: nothing is left in the kernel.
    pub fn of_service(socket: &Path) -> Result<KernelReports, ServedError> {
        let (reports, marker, wakeups) = open_served(socket)?;
        let (reports, wakeups) = (ReportStream::Served(reports), WakeupStream::Served(wakeups));
        Ok(KernelReports { reports, marker: Box::new(marker), wakeups: Some(wakeups) })
    }
}

/// Why a recorder ended, or did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// The store cannot be used; nothing is recorded.
    #[error(transparent)]
    Store(#[from] HangStoreError),
    /// The salt of excluded paths cannot be used; nothing is recorded.
    #[error("cannot read or make the salt of excluded paths")]
    Salt(#[source] io::Error),
    /// The kernel refused a thread, or a wait failed; what was seen is stored.
    #[error("cannot go on recording")]
    Stopped(#[source] io::Error),
}

/// What a recorder did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecorderSummary {
    /// Programs that were followed.
    pub programs: u64,
    /// Hangs that were stored.
    pub hangs: u64,
}

/// Records until `stop` is set; `told` receives each hang when it is stored.
///
/// # Errors
///
/// [`RecorderError`]. What was stored stays.
pub fn record(
    options: &RecorderOptions,
    source: ThreadSource,
    disk: &Arc<dyn Disk>,
    clock: &dyn Clock,
    stop: &AtomicBool,
    told: &mut (dyn FnMut(&Hang) + Send),
) -> Result<RecorderSummary, RecorderError> {
    // Copies of stacks are large and rare: what they took goes back to the system at once.
    sys::heap::keep_freed(1 << 20, 64 << 10);
    let _lock = crate::store::lock_recorder(&**disk, &options.dir)?;
    let store = HangStore::open(Arc::clone(disk), &options.dir, options.limit_bytes)?;
    let concealer = PathConcealer::open(Arc::clone(disk), &options.dir, options.excluded.as_ref())
        .map_err(RecorderError::Salt)?;
    let counters = Arc::new(SharedCounters::default());
    let (work, items) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let describer = HangDescriber::new(
        store,
        concealer,
        options.sources.clone(),
        Arc::clone(&counters),
        answer,
    );
    std::thread::scope(|scope| {
        let mut hangs = 0;
        let describer = std::thread::Builder::new().name("describer".to_owned()).spawn_scoped(
            scope,
            move || {
                let mut count = |hang: &Hang| {
                    hangs += u64::from(!hang.goes_on);
                    told(hang);
                };
                describer.run(&items, &mut count);
                hangs
            },
        );
        let describer = describer.map_err(RecorderError::Stopped)?;
        let link = RecorderLink { work, answers, counters };
        let observed = observe(clock, &link, &options.named, source, stop);
        // The other thread ends when no more work can come.
        drop(link);
        let hangs = describer.join().map_err(|_| {
            RecorderError::Stopped(io::Error::other("the describing thread panicked"))
        })?;
        let programs = observed.map_err(RecorderError::Stopped)?;
        Ok(RecorderSummary { programs, hangs })
    })
}

/// Observes programs until `stop` is set; returns how many were followed.
fn observe(
    clock: &dyn Clock,
    link: &RecorderLink,
    named: &[String],
    source: ThreadSource,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let user = rustix::process::geteuid().as_raw();
    let finder = || InteractiveFinder::new(user, named.to_vec());
    let (mut reports, mut connector) = match source {
        ThreadSource::Sampling => (None, None),
        ThreadSource::Kernel(reports) => (Some(reports), None),
        ThreadSource::Service(service) => (None, Some(ServiceConnector::new(service))),
    };
    let mut programs = 0;
    let mut known = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        reports = reports.or_else(|| connector.as_mut()?.connect());
        if let Some(reports) = reports.take() {
            let exact = ExactRecorder::new(clock, link, finder(), reports, programs);
            let end;
            (programs, end) = exact.run(stop)?;
            if let (ExactEnd::Lost(loops), Some(connector)) = (end, &mut connector) {
                known = loops;
                connector.lost();
            }
            continue;
        }
        let mut sampling = SamplingRecorder::new(clock, link, finder(), programs);
        sampling.take_over(&std::mem::take(&mut known));
        let mut upgrade = || connector.as_mut()?.connect();
        (programs, reports) = sampling.run(stop, &mut upgrade)?;
    }
    Ok(programs)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a moment in nanoseconds since 1970.
fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanoseconds)
}

/// Returns the processor time of this thread in nanoseconds.
fn processor_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    nanoseconds(Duration::try_from(spent).unwrap_or_default())
}

/// Returns how long it is until a moment of the monotonic clock.
fn time_until(at_ns: u64) -> Timespec {
    let time = Duration::from_nanos(at_ns.saturating_sub(sys::bpf::clock_ns()));
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(1),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Returns the next moment that is a multiple of an interval.
fn next_tick(now_ns: u64, interval: Duration) -> u64 {
    let interval_ns = nanoseconds(interval);
    (now_ns / interval_ns + 1) * interval_ns
}

/// Returns when the next look is due: at `next_ns`, if there is one, and for the count of watched time.
fn next_look_ns(next_ns: Option<u64>, now_ns: u64) -> u64 {
    next_ns.unwrap_or(u64::MAX).min(next_tick(now_ns, CHECK)).max(now_ns + 1_000_000)
}

/// When the store was last made durable, of the monotonic clock in nanoseconds.
struct SyncPace(u64);

impl SyncPace {
    /// Has the store made durable if that is due.
    fn keep(&mut self, now_ns: u64, link: &RecorderLink) {
        if now_ns.saturating_sub(self.0) >= SYNC_NS {
            self.0 = now_ns;
            link.send(DescribeWork::Sync);
        }
    }
}
