//! Programs in the kernel that see when marked threads leave their main loop's wait and are back, exactly.
//!
//! Begin with [`HangPrograms::load`], for root or with the capabilities `bpf` and `perfmon`. It returns the ring with the
//! reports and a [`ThreadMarker`]. The recorder service offers both over a socket ([`open_served`]).
//! A thread at rest costs nothing; of other threads only their switches are looked up.

mod connections;
mod event;
mod layout;
mod marker;
mod offsets;
mod programs;
mod samplers;
mod served;
mod served_operations;
mod timer;

use sys::bpf::owner::{OwnerFields, OwnerPlan, SessionOwner};
use sys::bpf::{
    AttachError, AttachedPrograms, BpfProgram, LoadError, Map, MapKind, ProgramKind, Refused, Ring,
};
use trace::syscall::{EVENT_WAITS, SLEEPS, call_number};

use self::event::PLAIN_SLEEPS;
pub use self::event::{
    AbsenceAccount, EventWait, EventWaitKind, MarkedAs, MarkedThread, ThreadBlock, ThreadEvent,
    WaitPlace,
};
pub(crate) use self::event::{WAITS_AT_PLACE, is_sleep};
pub(crate) use self::layout::subject;
use self::layout::{place, shared, thread};
use self::marker::MarkerMaps;
pub use self::marker::{LocalMarker, ThreadMarker};
use self::offsets::ThreadOffsets;
use self::programs::HangPlan;
pub use self::samplers::SamplerRights;
pub use self::served::{
    ReportStream, ServedMarker, ServedReports, ServedWakeups, WakeupStream, open_served,
};
pub use self::served_operations::ServedOperations;

/// Bytes of the ring: room for 1,600 reports.
pub const RING_BYTES: u32 = 256 << 10;
/// The most threads that are marked.
const THREADS: u32 = 1024;
/// The most threads that are marked where the programs are at work for another user.
const THREADS_OF_USER: u32 = 512;
/// The most waits that are classified.
const PLACES: u32 = 16_384;

/// The programs at work, for the threads of one user.
///
/// All of it hangs on our descriptors: when they are closed, by us or because we were killed, the kernel takes everything
/// back, and a marked program never notices.
#[derive(Debug)]
pub struct HangPrograms {
    /// The reports of the programs.
    pub ring: Ring,
    /// Marks threads.
    pub marker: LocalMarker,
}

impl HangPrograms {
    /// Puts the programs into the kernel. No thread is marked yet; only those of `user` can be.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is left in the kernel.
    pub fn load(user: u32) -> Result<HangPrograms, LoadError> {
        HangPrograms::load_with(user, None)
    }

    /// Puts the programs into the kernel for a user who may not load them. They ask with each event whether he could trace the
    /// process, and tell nothing of one that he could not.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is left in the kernel.
    pub fn load_for(owner: SessionOwner) -> Result<HangPrograms, LoadError> {
        let fields = OwnerFields::of_this_kernel()?;
        HangPrograms::load_with(owner.user, Some(OwnerPlan { owner, fields }))
    }

    fn load_with(user: u32, owner: Option<OwnerPlan>) -> Result<HangPrograms, LoadError> {
        let ring = Ring::for_programs("unjank_hangs", RING_BYTES)?;
        let offsets = ThreadOffsets::of_this_kernel()?;
        let bytes = |size: i16| u32::from(size.unsigned_abs());
        let size = bytes(thread::SIZE);
        let most = if owner.is_some() { THREADS_OF_USER } else { THREADS };
        let threads = Map::for_programs(MapKind::TimerHash, "unjank_marked", 4, size, most)?;
        let places =
            Map::for_programs(MapKind::Hash, "unjank_places", bytes(place::SIZE), 4, PLACES)?;
        let words = Map::for_programs(MapKind::Array, "unjank_hwords", 4, shared::SIZE, 1)?;
        let prepared = Map::for_programs(MapKind::Array, "unjank_prepared", 4, 4, 1)?;
        let plan = HangPlan {
            offsets,
            threads: (&threads).into(),
            places: (&places).into(),
            words: (&words).into(),
            prepared: (&prepared).into(),
            ring: ring.map().into(),
            ring_bytes: RING_BYTES,
            event_waits: EVENT_WAITS.map(number_of),
            sleeps: SLEEPS.map(|call| number_of(call.name)),
            plain_sleeps: PLAIN_SLEEPS.map(number_of),
            ring_enter: number_of("io_uring_enter"),
            restart: number_of("restart_syscall"),
            lock_wait: number_of("futex"),
            user,
            owner,
        };
        let mut programs = AttachedPrograms::default();
        let switch = ProgramKind::TypedTracepoint(offsets.switch);
        programs.attach(switch, "unjank_switch", &plan.switch()?)?;
        if let Some(connect) = &offsets.connect {
            let ready = ProgramKind::TypedTracepoint(connect.ready);
            programs.attach(ready, "unjank_connect", &plan.connect(connect)?)?;
        } else {
            // Those who connect are searched for after a program was started.
            let exec = ProgramKind::TypedTracepoint(offsets.exec);
            programs.attach(exec, "unjank_started", &plan.exec()?)?;
        }
        let name = "unjank_prepare";
        let prepare = BpfProgram::load(ProgramKind::OnDemand, name, &plan.prepare()?);
        let prepare = prepare.map_err(|Refused { error: source, log }| AttachError::Refused {
            name: name.to_owned(),
            log,
            source,
        })?;
        let maps = MarkerMaps { threads, places, words, prepared };
        let marker = LocalMarker::new(programs, prepare, maps, user);
        Ok(HangPrograms { ring, marker })
    }
}

fn number_of(name: &str) -> i32 {
    // A number that no call has stands for a call that this architecture has not.
    call_number(name).and_then(|number| i32::try_from(number).ok()).unwrap_or(i32::MAX)
}
