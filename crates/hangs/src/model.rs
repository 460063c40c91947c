//! What is recorded: a hang with its account, and how long programs were watched.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use trace::report::account::TimeParts;
use trace::syscall::{SyscallClass, call_name};
use wakeups::ChainEnd;

pub use crate::unseen::UnseenParts;

/// A hang is kept whole from this length on, in nanoseconds.
pub const HANG_NS: u64 = 100_000_000;
/// A longer time between two looks of the recorder is a gap: what happened in it is not known, in nanoseconds.
pub(crate) const GAP_NS: u64 = 300_000_000;
/// One frame of a screen with 60 Hz, in nanoseconds: a step that is longer is counted.
pub const FRAME_NS: u64 = 16_666_667;
/// The upper bounds of the classes of a [`StepHistogram`] in nanoseconds; the last class has none.
pub const STEP_BOUNDS_NS: [u64; 9] = [
    33_333_333,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// What a hang went to, by the largest part of its account.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "&'static str")]
pub enum HangCause {
    /// Nothing of it could be seen.
    #[default]
    Unknown,
    /// The thread ran on a processor.
    Computing,
    /// The thread could run, and other threads had the processors.
    ProcessorQueue,
    /// A disk had to store something first.
    Sync,
    /// Bytes of a file were read or written.
    FileData,
    /// Files were looked up, opened or renamed.
    FileNames,
    /// Pages of memory were read from a disk.
    PageFault,
    /// Another thread held a lock.
    Lock,
    /// Another program had to answer.
    OtherProgram,
    /// A program that it had started had to end, or to begin.
    Child,
    /// The thread slept on purpose.
    Sleep,
    /// A signal had stopped the program, or the freezer had.
    Stopped,
    /// Another call of the system.
    OtherCall,
}

impl HangCause {
    /// All causes, in the order of their numbers in the store.
    pub const ALL: [HangCause; 13] = [
        HangCause::Unknown,
        HangCause::Computing,
        HangCause::ProcessorQueue,
        HangCause::Sync,
        HangCause::FileData,
        HangCause::FileNames,
        HangCause::PageFault,
        HangCause::Lock,
        HangCause::OtherProgram,
        HangCause::Child,
        HangCause::Sleep,
        HangCause::Stopped,
        HangCause::OtherCall,
    ];

    /// Returns its word in JSON and in exports, which stays as it is.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HangCause::Unknown => "unknown",
            HangCause::Computing => "computing",
            HangCause::ProcessorQueue => "processor-queue",
            HangCause::Sync => "sync",
            HangCause::FileData => "file-data",
            HangCause::FileNames => "file-names",
            HangCause::PageFault => "page-fault",
            HangCause::Lock => "lock",
            HangCause::OtherProgram => "other-program",
            HangCause::Child => "child",
            HangCause::Sleep => "sleep",
            HangCause::Stopped => "stopped",
            HangCause::OtherCall => "other-call",
        }
    }

    /// Returns the cause of this word, or of what it is called in a sentence.
    ///
    /// # Errors
    ///
    /// A sentence with the words that there are.
    pub fn parse(name: &str) -> Result<HangCause, String> {
        let is_named = |cause: &HangCause| name == cause.word() || name == cause.words();
        HangCause::ALL.into_iter().find(is_named).ok_or_else(|| {
            let words = HangCause::ALL.map(HangCause::word);
            format!("one of {}", words.join(", "))
        })
    }

    /// Returns what it is called in a sentence.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            HangCause::Unknown => "not seen",
            HangCause::Computing => "computing",
            HangCause::ProcessorQueue => "waiting for a processor",
            HangCause::Sync => "waiting until a disk has stored data",
            HangCause::FileData => "reading or writing a file",
            HangCause::FileNames => "looking up files",
            HangCause::PageFault => "waiting for pages",
            HangCause::Lock => "waiting for a lock",
            HangCause::OtherProgram => "waiting for another program",
            HangCause::Child => "waiting for a child process",
            HangCause::Sleep => "sleeping on purpose",
            HangCause::Stopped => "stopped by a signal or frozen",
            HangCause::OtherCall => "waiting in a system call",
        }
    }
}

impl From<HangCause> for &'static str {
    fn from(cause: HangCause) -> &'static str {
        cause.word()
    }
}

/// What a call worked on or waited for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "&'static str")]
pub enum ObjectKind {
    /// A file or a directory.
    File,
    /// A socket; the name is that of the program at the other end.
    Socket,
    /// A lock in memory.
    Lock,
    /// A child process; the name is that of its program.
    Child,
    /// A pipe, a timer and so on.
    Other,
}

impl ObjectKind {
    /// Returns its word in JSON and in exports, which stays as it is.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::File => "file",
            ObjectKind::Socket => "socket",
            ObjectKind::Lock => "lock",
            ObjectKind::Child => "child",
            ObjectKind::Other => "other",
        }
    }
}

impl From<ObjectKind> for &'static str {
    fn from(kind: ObjectKind) -> &'static str {
        kind.word()
    }
}

impl ObjectKind {
    /// All kinds, in the order of their numbers in the store.
    pub const ALL: [ObjectKind; 5] = [
        ObjectKind::File,
        ObjectKind::Socket,
        ObjectKind::Lock,
        ObjectKind::Child,
        ObjectKind::Other,
    ];
}

/// The object of a call.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
pub struct CallObject {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name: the path of a file, or `excluded:` and a salted hash of it.
    pub name: String,
    /// The type of its file system, as `ext4`; empty if there is none.
    pub file_system: String,
    /// The device of its file system, as `vda2`; empty if there is none.
    pub device: String,
}

impl CallObject {
    /// Returns whether a wait for it is ended by the process itself, or by a timer: nobody else has one of these, or hardly ever. Of
    /// what is registered in an `epoll` nothing is known.
    fn is_own(&self) -> bool {
        let own = ["[eventfd]", "[timerfd]", "[signalfd]", "[eventpoll]"];
        self.kind == ObjectKind::Other && own.contains(&&*self.name)
    }
}

/// A call that took a part of a hang, or the waits for pages of one file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CallShare {
    /// The name of the call, [`CallShare::PAGE_FAULT`], `io_uring` and the name of the operation that was waited for, or the name of a
    /// call that waits for events and `without descriptors`, which is a sleep.
    pub call: String,
    /// For how long the thread was blocked in it, in nanoseconds.
    pub blocked_ns: u64,
    /// How many different calls were seen; calls that fall between two looks are not.
    pub seen: u32,
    /// What it worked on, if that was read.
    pub object: Option<CallObject>,
}

impl CallShare {
    /// What stands for the name of a call where a thread waited for a page of memory. No call has a name with a blank.
    pub const PAGE_FAULT: &str = "page fault";

    const WITHOUT_DESCRIPTORS: &str = " without descriptors";

    /// Returns the name of a call, or what stands for it where it is a sleep, as `select without descriptors`.
    #[must_use]
    pub fn of_call(number: u32, sleeps: bool) -> String {
        let name = call_name(number).unwrap_or("?");
        match sleeps {
            true => format!("{name}{}", CallShare::WITHOUT_DESCRIPTORS),
            false => name.to_owned(),
        }
    }

    /// Returns what stands for the name of a call in which a thread waited for an operation of `io_uring`, as `READ`.
    #[must_use]
    pub fn of_operation(operation: &str) -> String {
        format!("io_uring {}", operation.to_ascii_lowercase())
    }

    /// Returns whether it was an operation of `io_uring`.
    #[must_use]
    pub fn is_of_ring(&self) -> bool {
        self.call.starts_with("io_uring ")
    }

    /// Returns whether it was no call, but waits for pages.
    #[must_use]
    pub fn is_page_fault(&self) -> bool {
        self.call == CallShare::PAGE_FAULT
    }

    /// Returns what a hang went to that was in this call alone.
    #[must_use]
    pub fn cause(&self) -> HangCause {
        let kind = self.object.as_ref().map(|object| object.kind);
        // An operation of `io_uring` is what the call of its name is.
        let call = self.call.strip_prefix("io_uring ").map_or(&*self.call, |operation| {
            let ends = ["_fixed", "_multishot", "_zc"];
            ends.iter().find_map(|end| operation.strip_suffix(end)).unwrap_or(operation)
        });
        match (call, SyscallClass::of(call), kind) {
            ("futex", ..) => HangCause::Lock,
            ("nanosleep" | "clock_nanosleep" | "pause", ..) => HangCause::Sleep,
            (name, ..) if name.ends_with(CallShare::WITHOUT_DESCRIPTORS) => HangCause::Sleep,
            ("wait4" | "waitid", ..) | (_, SyscallClass::Process, _) => HangCause::Child,
            ("flock" | "fcntl", ..) => HangCause::Lock,
            (_, SyscallClass::Sync, _) => HangCause::Sync,
            (_, SyscallClass::Names, _) => HangCause::FileNames,
            (_, SyscallClass::Network, _) | (_, _, Some(ObjectKind::Socket)) => {
                HangCause::OtherProgram
            }
            (_, SyscallClass::Data, Some(ObjectKind::File)) => HangCause::FileData,
            // A signal, or until a time that was set.
            ("rt_sigtimedwait" | "rt_sigsuspend", ..) => HangCause::OtherCall,
            // What it works on was not read.
            ("io_uring_enter", ..) | (_, SyscallClass::Data, None) => HangCause::OtherCall,
            // Such a descriptor is mostly the process's own: a timer has ended the wait, or another thread.
            _ if self.object.as_ref().is_some_and(CallObject::is_own) => HangCause::OtherCall,
            // A pipe has another program, or another thread, at its other end.
            (_, SyscallClass::Data | SyscallClass::Wait, _) => HangCause::OtherProgram,
            _ => HangCause::OtherCall,
        }
    }
}

/// A function on the stack of a hang.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HangFrame {
    /// The function.
    pub function: String,
    /// The file that contains it. Few files stand for many frames of a hang, which share their names.
    #[serde(serialize_with = "write_shared")]
    pub module: Arc<str>,
}

fn write_shared<S: Serializer>(text: &Arc<str>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(text)
}

/// A thread in a chain of waits.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HangHop {
    /// The name of its program, or of a thread of the kernel.
    pub program: String,
    /// The process ID.
    pub process: u32,
    /// The unit of systemd that contains it; empty if it is not known.
    pub unit: String,
    /// The call in which it waited; empty if it waited in none.
    pub call: String,
    /// The function of the kernel in which it waited; empty if it is not known.
    pub function: String,
    /// For how long it waited for the next one, or for what the end says, in nanoseconds.
    pub waited_ns: u64,
}

/// The way from the longest wait of a hang to what ended it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HangChain {
    /// The threads; the first one is that of the hang.
    pub hops: Vec<HangHop>,
    /// What the last one's time went to, as a word of [`wakeups::ChainEnd`]: `disk`, `timer`, `processor` and others.
    pub end: String,
    /// How much of its time that explains, in nanoseconds.
    pub end_ns: u64,
    /// Whether wake-ups were lost that may belong to it.
    pub has_losses: bool,
}

/// A time in which an interface thread was away from the wait of its main loop.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hang {
    /// Its number in the store, by which it is shown.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub started_ns: u64,
    /// How long it was, in nanoseconds.
    pub length_ns: u64,
    /// By how much the length may be wrong in each direction, in nanoseconds: a sampler sees neither end exactly.
    pub uncertain_ns: u64,
    /// Whether it went on when this was written.
    pub goes_on: bool,
    /// The process ID.
    pub process: u32,
    /// When the process began, in nanoseconds since 1970; 0 if it is not known. Process IDs are used again.
    pub process_began_ns: u64,
    /// The name of the program, with [`HELPER`] behind it if another process of the same program has started it.
    pub program: String,
    /// The unit of systemd that contains it, or the last part of its control group; empty if it is not known.
    pub unit: String,
    /// What it went to mostly.
    pub cause: HangCause,
    /// What all of it went to.
    pub parts: TimeParts,
    /// The calls that took the most of it, the longest first.
    pub calls: Vec<CallShare>,
    /// The stack in which the most of it was spent, the innermost frame first.
    pub frames: Vec<HangFrame>,
    /// The index in `frames` of the function to blame.
    pub blamed: Option<u32>,
    /// How much of the last ten seconds some thread of the machine waited for processors, disks and memory, in hundredths of a percent.
    pub pressure: Option<[u16; 3]>,
    /// What is missing in this record.
    pub unseen: UnseenParts,
    /// Whom its longest wait was for, and whom that one waited for, if that was recorded.
    pub chain: Option<HangChain>,
    /// What disks did in a part of it, if that was counted: it waited for 50 ms or longer.
    pub disk_use: Option<DiskUse>,
    /// The functions of the kernel in which it waited for the most time, the innermost first; none where the recorder may not read them, as
    /// any but root's may not.
    pub kernel_functions: Vec<String>,
}

/// What was read from disks and written to them in a part of a hang, by whomever.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct DiskUse {
    /// The length of that part, in nanoseconds.
    pub counted_ns: u64,
    /// What was read from the disks of the machine, in bytes.
    pub read_bytes: u64,
    /// What was written to them, in bytes.
    pub written_bytes: u64,
    /// The programs with the most of it, the first with the most: the user's own, and units of the system.
    pub programs: Vec<DiskUser>,
    /// Which of the user's processes were looked at.
    pub processes: CountedProcesses,
}

/// Which processes of a user were looked at to find out who used disks.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "&'static str")]
pub enum CountedProcesses {
    /// All of them.
    #[default]
    All,
    /// The newest; there were more.
    Newest,
    /// None: there were too many.
    TooMany,
    /// None: `/proc` hides those of other users, so that it is not known who waited for whom.
    Hidden,
}

impl CountedProcesses {
    /// All of them, in the order of their numbers in the store.
    pub const ALL: [CountedProcesses; 4] = [
        CountedProcesses::All,
        CountedProcesses::Newest,
        CountedProcesses::TooMany,
        CountedProcesses::Hidden,
    ];

    /// Returns its word in JSON, which stays as it is.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            CountedProcesses::All => "all",
            CountedProcesses::Newest => "newest",
            CountedProcesses::TooMany => "too-many",
            CountedProcesses::Hidden => "hidden",
        }
    }

    /// Returns a sentence about those that were not looked at.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        match self {
            CountedProcesses::All => None,
            CountedProcesses::Newest => {
                Some("Of this user's processes only the newest 2048 were looked at.")
            }
            CountedProcesses::TooMany => {
                Some("This user's processes were not looked at: there were more than 4096 in all.")
            }
            CountedProcesses::Hidden => Some(
                "This user's processes were not looked at: /proc hides those of others (hidepid).",
            ),
        }
    }
}

impl From<CountedProcesses> for &'static str {
    fn from(counted: CountedProcesses) -> &'static str {
        counted.word()
    }
}

/// A program that used disks.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DiskUser {
    /// Its name, or that of a unit of the system.
    pub program: String,
    /// The process ID; 0 of a unit.
    pub process: u32,
    /// What it had read from disks, in bytes.
    pub read_bytes: u64,
    /// What it wrote to files, in bytes; the kernel writes them to the disk at once or later. Of a unit what was written to disks for it.
    pub written_bytes: u64,
}

/// Returns the program in the name of the other end of a socket: `NAME (PROCESS) at PLACE`, where each of the two may be missing.
fn peer_program(peer: &str) -> &str {
    let named = peer.split(" at ").next().unwrap_or_default();
    let without = named.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_process = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    without.filter(|(_, number)| is_process(number)).map_or(named, |(program, _)| program)
}

/// What a program is called whose name was erased.
pub const ERASED_PROGRAM: &str = "an erased program";

impl Hang {
    /// Erases what names a program that is not the one that hung: one for which it waited, or that used disks meanwhile. Returns
    /// whether there was any.
    pub(crate) fn erase_mentions(&mut self, is_meant: &dyn Fn(&str) -> bool) -> bool {
        let mut is_less = false;
        for object in self.calls.iter_mut().filter_map(|share| share.object.as_mut()) {
            let program = match object.kind {
                ObjectKind::Socket => peer_program(&object.name),
                ObjectKind::Child => &object.name,
                _ => continue,
            };
            if is_meant(program) {
                ERASED_PROGRAM.clone_into(&mut object.name);
                is_less = true;
            }
        }
        let hops = self.chain.iter_mut().flat_map(|chain| &mut chain.hops);
        for hop in hops.filter(|hop| is_meant(&hop.program)) {
            ERASED_PROGRAM.clone_into(&mut hop.program);
            (hop.process, hop.unit, hop.function) = (0, String::new(), String::new());
            is_less = true;
        }
        if let Some(disk_use) = &mut self.disk_use {
            let before = disk_use.programs.len();
            disk_use.programs.retain(|user| !is_meant(&user.program));
            is_less |= disk_use.programs.len() < before;
        }
        is_less
    }

    /// Returns the function to blame.
    #[must_use]
    pub fn blamed_frame(&self) -> Option<&HangFrame> {
        self.frames.get(usize::try_from(self.blamed?).ok()?)
    }

    /// Returns the call that took the most of it among those that are its cause, or the pages if those are; the longest call
    /// where none is.
    #[must_use]
    pub fn longest_call(&self) -> Option<&CallShare> {
        let is_fault = self.cause == HangCause::PageFault;
        let shares = self.calls.iter().filter(|share| share.is_page_fault() == is_fault);
        let longest = shares.clone().next()?;
        let of_cause = shares.filter(|share| share.cause() == self.cause);
        // Who waits for an answer from a thread of its own that receives it waits with a lock, or until that has woken it.
        let asks_by_thread = self.cause == HangCause::OtherProgram
            && matches!(longest.cause(), HangCause::Lock | HangCause::OtherCall)
            && of_cause.clone().map(|share| share.blocked_ns).sum::<u64>() < longest.blocked_ns;
        let first = of_cause.into_iter().next().filter(|_| !is_fault && !asks_by_thread);
        Some(first.unwrap_or(longest))
    }

    /// Returns the object of the call that took the most of it, or the file whose pages did.
    #[must_use]
    pub fn object(&self) -> Option<&CallObject> {
        self.longest_call()?.object.as_ref()
    }

    /// Returns the first other program in the chain of its longest wait.
    #[must_use]
    pub fn peer(&self) -> Option<&HangHop> {
        // A bus passes on what others say.
        let is_peer = |hop: &&HangHop| {
            let is_bus = ["dbus-daemon", "dbus-broker"].contains(&&*hop.program);
            hop.process != 0 && hop.process != self.process && !is_bus
        };
        self.chain.iter().flat_map(|chain| &chain.hops).find(is_peer)
    }

    /// Returns the name of the other program for which it waited: the first one in its chain, else that at the other end of a socket.
    #[must_use]
    pub fn waited_for(&self) -> Option<&str> {
        let of_socket = || {
            let socket = self.object().filter(|object| object.kind == ObjectKind::Socket)?;
            Some(peer_program(&socket.name)).filter(|program| !program.is_empty())
        };
        self.peer().map(|hop| &*hop.program).or_else(of_socket)
    }

    /// Returns whether most of it was one wait that ended because the time was over that the program had set for it.
    #[must_use]
    pub fn ran_out_of_time(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| {
            let is_most = chain.end_ns.saturating_mul(2) >= self.length_ns;
            chain.hops.len() == 1 && chain.end == ChainEnd::Timer.word() && is_most
        })
    }

    /// Returns what its cause is called in a sentence.
    #[must_use]
    pub fn cause_words(&self) -> &'static str {
        match self.cause {
            HangCause::OtherCall if self.ran_out_of_time() => "waiting until its time limit",
            cause => cause.words(),
        }
    }

    /// Returns when it ended, or until when it is known to have gone on, in nanoseconds since 1970.
    #[must_use]
    pub fn ended_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.length_ns)
    }
}

/// How many steps of a main loop took how long.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct StepHistogram(pub [u64; STEP_BOUNDS_NS.len() + 1]);

impl StepHistogram {
    /// Counts a step, unless it is shorter than a frame.
    pub fn add(&mut self, length_ns: u64) {
        if length_ns >= FRAME_NS {
            let class = STEP_BOUNDS_NS.iter().position(|bound| length_ns < *bound);
            self.0[class.unwrap_or(STEP_BOUNDS_NS.len())] += 1;
        }
    }

    /// Adds other counts.
    pub fn merge(&mut self, other: &StepHistogram) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(other);
        }
    }

    /// Returns how many steps were longer than a frame.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// What follows the name of a program whose process was started by another one of the same program, as those are that browsers
/// start for themselves.
pub const HELPER: &str = " (helper)";

/// Returns the name of the program of which a process may be a helper.
pub(crate) fn without_helper(program: &str) -> &str {
    program.strip_suffix(HELPER).unwrap_or(program)
}

/// Returns whether a program is the one that is meant, or a helper of it.
#[must_use]
pub fn is_of_program(program: &str, meant: &str) -> bool {
    program.strip_prefix(meant).is_some_and(|rest| rest.is_empty() || rest == HELPER)
}

/// The steps of one program in a period.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProgramSteps {
    /// The name of the program.
    pub program: String,
    /// For how long its processes were watched, in nanoseconds; those of several processes are added.
    pub watched_ns: u64,
    /// For how long at least one of them was, in nanoseconds.
    pub present_ns: u64,
    /// How many processes there were.
    pub processes: u32,
    /// In how many of them no wait of a main loop was found.
    pub without_loop: u32,
    /// For how long at most one of them had run before it was watched, in nanoseconds, since the recorder began.
    pub late_ns: u64,
    /// Its steps that were longer than a frame.
    pub steps: StepHistogram,
}

/// A period in which the recorder ran.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct WatchedPeriod {
    /// When it began, in nanoseconds since 1970.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// For how long of it the recorder looked, in nanoseconds: suspend and times in which it did not run are left out.
    pub recorder_ns: u64,
    /// For how long of it at least one interactive program was watched, in nanoseconds.
    pub watched_ns: u64,
    /// The interval of looks at a thread at rest, in nanoseconds; 0 where the kernel reports each step.
    pub interval_ns: u64,
    /// The programs that were watched.
    pub programs: Vec<ProgramSteps>,
    /// Programs that could not be watched because there were too many.
    pub over_limit: u32,
    /// Programs that the kernel did not let us look at.
    pub refused: u32,
    /// Hangs that were seen and could not be stored, or came faster than they could be described.
    pub lost: u32,
}

impl WatchedPeriod {
    /// Returns for how long of it the recorder did not run, in nanoseconds. What the clock was set by in little steps counts for
    /// nothing.
    #[must_use]
    pub fn stalled_ns(&self) -> u64 {
        let length_ns = self.to_ns.saturating_sub(self.from_ns);
        Some(length_ns.saturating_sub(self.recorder_ns)).filter(|ns| *ns >= GAP_NS).unwrap_or(0)
    }
}

/// A record of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HangRecord {
    /// A hang. One that goes on is written several times with the same number; the last one counts.
    Hang(Box<Hang>),
    /// A period in which the recorder ran.
    Watched(WatchedPeriod),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_counted_in_its_class_and_a_short_one_not_at_all() {
        let mut steps = StepHistogram::default();
        for length in [FRAME_NS - 1, FRAME_NS, 99_999_999, 100_000_000, u64::MAX] {
            steps.add(length);
        }
        assert_eq!(steps.0, [1, 0, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(steps.total(), 4);
    }
}
