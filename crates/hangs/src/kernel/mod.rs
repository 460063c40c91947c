//! Programs in the kernel that see when marked threads leave their main loop's wait and are back, exactly.
//!
//! Begin with [`HangPrograms::load`], for root or with the capabilities `bpf` and `perfmon`. It returns the ring with the
//! reports and a [`ThreadMarker`], which another process may offer over a socket: whoever reads the ring needs nothing else.
//! A thread at rest costs nothing; of other threads only their switches are looked up.

mod event;
mod layout;
mod marker;
mod offsets;
mod programs;

use std::io;

use sys::bpf::assembler::AssembleError;
use sys::bpf::{
    AttachError, AttachedPrograms, BpfProgram, Map, MapKind, ProgramKind, Refused, Ring,
};
use trace::syscall::{EVENT_WAITS, call_number};

pub use self::event::{
    AbsenceAccount, EventWaitKind, MarkedAs, MarkedThread, ThreadBlock, ThreadEvent, WaitPlace,
};
use self::layout::{place, shared, thread};
use self::marker::MarkerMaps;
pub use self::marker::{LocalMarker, ThreadMarker};
pub use self::offsets::KernelTypesError;
use self::offsets::ThreadOffsets;
use self::programs::HangPlan;

/// Bytes of the ring: room for 1,600 reports.
pub const RING_BYTES: u32 = 256 << 10;
/// The most threads that are marked.
const THREADS: u32 = 1024;
/// The most places of waits that are classified.
const PLACES: u32 = 16_384;

/// Why the programs are not at work; nothing is left in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HangLoadError {
    /// The user has not the right to it.
    #[error("cannot load programs into the kernel without CAP_BPF and CAP_PERFMON, which root has")]
    NotAllowed(#[source] io::Error),
    /// We see processes by other numbers than the kernel's programs do.
    #[error("cannot use programs in the kernel inside of a container with a PID namespace")]
    OtherNumbers,
    /// This machine has registers that the programs are not written for.
    #[error("cannot load programs into a kernel that is not of x86-64")]
    OtherMachine,
    /// The kernel's types are missing or lack something.
    #[error(transparent)]
    Types(#[from] KernelTypesError),
    /// A map could not be made.
    #[error("cannot make the kernel's map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A program has a fault that we made.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// A program is not at work.
    #[error(transparent)]
    Program(#[from] AttachError),
}

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

fn map(
    kind: MapKind,
    name: &'static str,
    key: u32,
    value: u32,
    entries: u32,
) -> Result<Map, HangLoadError> {
    Map::new(kind, name, key, value, entries).map_err(|source| refused(name, source))
}

fn refused(name: &'static str, source: io::Error) -> HangLoadError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => HangLoadError::NotAllowed(source),
        _ => HangLoadError::Map { name, source },
    }
}

impl HangPrograms {
    /// Puts the programs into the kernel. No thread is marked yet; only those of `user` can be.
    ///
    /// # Errors
    ///
    /// [`HangLoadError`]: nothing is left in the kernel.
    pub fn load(user: u32) -> Result<HangPrograms, HangLoadError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(HangLoadError::OtherMachine);
        }
        let ring = Ring::new("unjank_hangs", RING_BYTES)
            .map_err(|source| refused("unjank_hangs", source))?;
        if !is_in_first_namespace() {
            return Err(HangLoadError::OtherNumbers);
        }
        let offsets = ThreadOffsets::of_this_kernel()?;
        let bytes = |size: i16| u32::from(size.unsigned_abs());
        let size = bytes(thread::SIZE);
        let threads = map(MapKind::TimerHash, "unjank_marked", 4, size, THREADS)?;
        let places = map(MapKind::Hash, "unjank_places", bytes(place::SIZE), 4, PLACES)?;
        let words = map(MapKind::Array, "unjank_hwords", 4, shared::SIZE, 1)?;
        let prepared = map(MapKind::Array, "unjank_prepared", 4, 4, 1)?;
        let plan = HangPlan {
            offsets,
            threads: (&threads).into(),
            places: (&places).into(),
            words: (&words).into(),
            prepared: (&prepared).into(),
            ring: ring.map().into(),
            ring_bytes: RING_BYTES,
            event_waits: EVENT_WAITS.map(number_of),
            restart: number_of("restart_syscall"),
        };
        let mut programs = AttachedPrograms::default();
        let mut attach = |kind, name, instructions: &[_]| {
            programs.attach(kind, name, instructions).map_err(|error| match error {
                AttachError::Refused { log, source, .. }
                    if log.is_empty() && source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    HangLoadError::NotAllowed(source)
                }
                error => HangLoadError::Program(error),
            })
        };
        attach(ProgramKind::TypedTracepoint(offsets.switch), "unjank_switch", &plan.switch()?)?;
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

/// Returns whether processes have the same numbers for us as for the kernel.
fn is_in_first_namespace() -> bool {
    /// The inode number of the namespace that the kernel starts with, `PROC_PID_INIT_INO`.
    const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;
    let namespace = rustix::fs::stat("/proc/self/ns/pid");
    namespace.is_ok_and(|namespace| namespace.st_ino == FIRST_NAMESPACE)
}
