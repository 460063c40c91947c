//! Marking threads: the commands that whoever reads the ring needs, and their implementation in the process that loaded the
//! programs.

use std::io;
use std::os::unix::fs::MetadataExt;

use sys::bpf::{AttachedPrograms, BpfProgram, Map, SharedMap};
use trace::backend::blocked::parse_schedstat;

use super::event::{
    CountedBefore, EventWait, EventWaitKind, MarkedAs, MarkedThread, WAITS_AT_PLACE, WaitPlace,
    first_state,
};
use super::layout::{place, shared, thread};
use super::samplers::SamplerRights;
use super::served_operations::ServedOperations;

/// Marks the threads that programs in the kernel follow.
///
/// Each command is small and has a small answer, so that another process may carry it out.
pub trait ThreadMarker: std::fmt::Debug + Send {
    /// Marks the first thread of a process.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` for a process of another user, `NotFound` for one that has ended, `AlreadyExists` for one that is marked,
    /// `OutOfMemory` if the kernel has none at hand, which may pass, else as `bpf(2)`; it is not marked by this then.
    fn mark(&mut self, process: u32, marked: MarkedAs) -> io::Result<()>;

    /// Ends a mark, and forgets the waits of the process.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; the mark may be there still.
    fn unmark(&mut self, process: u32) -> io::Result<()>;

    /// Says what a wait of a marked process is. Others at its place count as it until they are classified, and as the main loop's if
    /// one of them is that.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`, `NotFound` for a process that is not marked; the wait is not classified then.
    fn classify(&mut self, process: u32, wait: EventWait, kind: EventWaitKind) -> io::Result<()>;

    /// Returns what is kept of a marked process; `None` if it is not marked.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    fn state(&mut self, process: u32) -> io::Result<Option<MarkedThread>>;

    /// Returns how many reports were lost since the programs are at work: those that found no room, and what the kernel did not
    /// run them for.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    fn lost(&mut self) -> io::Result<u64>;

    /// Returns a hash whose keys are the marked processes, for other programs in the kernel; it is open as long as the marker.
    /// None where another process has it.
    fn marked(&self) -> Option<SharedMap> {
        None
    }

    /// Returns who opens events of marked threads for samplers: this process, unless another one does it where this one may not.
    fn samplers(&self) -> SamplerRights {
        SamplerRights::default()
    }

    /// Returns who records operations of `io_uring` of marked processes, where another process has [`marked`](ThreadMarker::marked).
    fn operations(&self) -> Option<ServedOperations> {
        None
    }
}

/// Marks threads in the process that loaded the programs.
#[derive(Debug)]
pub struct LocalMarker {
    // They go first: what the others hold is in use as long as they are there.
    programs: AttachedPrograms,
    prepare: BpfProgram,
    maps: MarkerMaps,
    user: u32,
    /// The waits of each process that are classified.
    classified: std::collections::HashMap<u32, Vec<(EventWait, EventWaitKind)>>,
}

/// The maps that the commands change.
#[derive(Debug)]
pub(super) struct MarkerMaps {
    pub(super) threads: Map,
    pub(super) places: Map,
    pub(super) words: Map,
    /// The thread whose timer is to be prepared.
    pub(super) prepared: Map,
}

/// The most waits of one process that are classified; for another one the oldest is forgotten that is made inside of a step. One of the main
/// loop may not be asked about again: those for locks and sleeps are none.
const WAITS_OF_PROCESS: usize = 64;

/// So often a timer that found no memory is prepared again.
const ATTEMPTS: usize = 16;

fn wait_key(process: u32, EventWait { place: (sp, ip), subject }: EventWait) -> Vec<u8> {
    let key = [u64::from(process), sp, ip, subject];
    debug_assert_eq!(8 * key.len(), usize::from(place::SIZE.unsigned_abs()));
    key.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns what the kernel has counted of the first thread of a process; nothing if it has ended.
fn counted_of(process: u32) -> CountedBefore {
    let read = |name: &str| std::fs::read(format!("/proc/{process}/task/{process}/{name}"));
    let times = read("schedstat").ok().and_then(|text| parse_schedstat(&text));
    let stat = read("stat").unwrap_or_default();
    // The name, in parentheses, may have spaces and parentheses in it.
    let behind = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 1..));
    let faults = behind.and_then(|fields| {
        std::str::from_utf8(fields).ok()?.split_ascii_whitespace().nth(9)?.parse().ok()
    });
    CountedBefore {
        ready_ns: times.map_or(0, |times| times.queued_ns),
        faults: faults.unwrap_or_default(),
    }
}

/// Stands for the waits at its place of which nothing is known.
fn anything_at(wait: EventWait) -> EventWait {
    EventWait { subject: place::ANYTHING, ..wait }
}

/// Returns what the waits at a place are of which nothing is known; none if nothing is known of any.
fn kind_of_others(waits: &[(EventWait, EventWaitKind)], place: WaitPlace) -> Option<i32> {
    let at_place = waits.iter().filter(|(wait, _)| wait.place == place);
    let count = at_place.clone().count();
    let has_loop = at_place.clone().any(|(_, kind)| *kind == EventWaitKind::Loop);
    match has_loop {
        true if count >= WAITS_AT_PLACE => Some(place::LOOP_ALWAYS),
        true => Some(place::LOOP),
        false => (count > 0).then_some(place::NESTED),
    }
}

/// Forgets one of too many waits, and returns it.
fn forget_one(waits: &mut Vec<(EventWait, EventWaitKind)>) -> Option<EventWait> {
    let of_step = |(_, kind): &(EventWait, EventWaitKind)| *kind == EventWaitKind::Nested;
    (waits.len() > WAITS_OF_PROCESS)
        .then(|| waits.remove(waits.iter().position(of_step).unwrap_or(0)).0)
}

impl LocalMarker {
    pub(super) fn new(
        programs: AttachedPrograms,
        prepare: BpfProgram,
        maps: MarkerMaps,
        user: u32,
    ) -> LocalMarker {
        let classified = std::collections::HashMap::new();
        LocalMarker { programs, prepare, maps, user, classified }
    }

    /// Returns what is kept of a marked process as the programs wrote it, for [`MarkedThread::read`] in another process; the
    /// address in the kernel that is in it is left out. `None` if it is not marked.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn state_bytes(&self, process: u32) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.maps.threads.get(&process.to_ne_bytes())?;
        let hidden = usize::from(thread::PHASE.unsigned_abs());
        if let Some(of_kernel) = state.as_mut().and_then(|bytes| bytes.get_mut(..hidden)) {
            of_kernel.fill(0);
        }
        Ok(state)
    }

    /// Prepares the timer of a thread; `OutOfMemory` if there was none for it.
    fn prepare_timer(&self, process: u32) -> io::Result<()> {
        self.maps.prepared.set(&0_u32.to_ne_bytes(), &process.to_ne_bytes())?;
        self.prepare.run()?;
        let told = self.maps.prepared.get(&0_u32.to_ne_bytes())?;
        let told = told.and_then(|bytes| Some(i32::from_ne_bytes(*bytes.first_chunk()?)));
        match told {
            Some(0) => Ok(()),
            Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            // It was not found.
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl ThreadMarker for LocalMarker {
    fn mark(&mut self, process: u32, marked: MarkedAs) -> io::Result<()> {
        // A process that may not be dumped belongs to root here, whoever started it.
        if std::fs::metadata(format!("/proc/{process}"))?.uid() != self.user {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A thread in a step began to count before the mark; of others the programs note it when a step begins.
        let before = match marked {
            MarkedAs::Away(_) => counted_of(process),
            MarkedAs::Unknown | MarkedAs::Waiting(_) => CountedBefore::default(),
        };
        let state = first_state(marked, before, sys::bpf::clock_ns());
        self.maps.threads.add(&process.to_ne_bytes(), &state)?;
        let mut prepared = self.prepare_timer(process);
        for _ in 0..ATTEMPTS {
            let is_wanting = |error: &io::Error| error.kind() == io::ErrorKind::OutOfMemory;
            if !prepared.as_ref().is_err_and(is_wanting) {
                break;
            }
            // Since Linux 6.18 a timer takes memory only from what is at hand on this processor. What belongs to a pipe is as
            // large, may be fetched from elsewhere, and is at hand when the pipe is closed.
            drop(std::io::pipe());
            prepared = self.prepare_timer(process);
        }
        if prepared.is_err() {
            let _ = self.maps.threads.remove(&process.to_ne_bytes());
        }
        prepared
    }

    fn unmark(&mut self, process: u32) -> io::Result<()> {
        let removed = self.maps.threads.remove(&process.to_ne_bytes());
        for (wait, _) in self.classified.remove(&process).unwrap_or_default() {
            self.maps.places.remove(&wait_key(process, wait))?;
            self.maps.places.remove(&wait_key(process, anything_at(wait)))?;
        }
        removed
    }

    fn classify(&mut self, process: u32, wait: EventWait, kind: EventWaitKind) -> io::Result<()> {
        if self.maps.threads.get(&process.to_ne_bytes())?.is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.maps.places.set(&wait_key(process, wait), &kind.number().to_ne_bytes())?;
        let waits = self.classified.entry(process).or_default();
        match waits.iter_mut().find(|(of, _)| *of == wait) {
            Some((_, known)) => *known = kind,
            None => waits.push((wait, kind)),
        }
        let forgotten = forget_one(waits);
        for of in [Some(wait), forgotten].into_iter().flatten() {
            let key = wait_key(process, anything_at(of));
            match kind_of_others(waits, of.place) {
                Some(number) => self.maps.places.set(&key, &number.to_ne_bytes())?,
                None => self.maps.places.remove(&key)?,
            }
        }
        match forgotten {
            Some(forgotten) => self.maps.places.remove(&wait_key(process, forgotten)),
            None => Ok(()),
        }
    }

    fn state(&mut self, process: u32) -> io::Result<Option<MarkedThread>> {
        let state = self.maps.threads.get(&process.to_ne_bytes())?;
        Ok(state.and_then(|bytes| MarkedThread::read(&bytes)))
    }

    fn lost(&mut self) -> io::Result<u64> {
        let words = self.maps.words.get(&0_u32.to_ne_bytes())?.unwrap_or_default();
        let at = usize::from(shared::LOST.unsigned_abs());
        let lost = words.get(at..).and_then(|rest| rest.first_chunk::<8>());
        Ok(lost.map_or(0, |lost| u64::from_ne_bytes(*lost)) + self.programs.missed()?)
    }

    fn marked(&self) -> Option<SharedMap> {
        Some((&self.maps.threads).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_loop_is_not_forgotten_for_waits_inside_of_steps() {
        use EventWaitKind::{Loop, Nested};
        let wait = |sp: u64| EventWait { place: (sp, 1), subject: 2 };
        let mut waits = vec![(wait(0), Loop)];
        for sp in 1..200 {
            waits.push((wait(sp), Nested));
            let forgotten = forget_one(&mut waits);
            assert!(waits.len() <= WAITS_OF_PROCESS && forgotten != Some(wait(0)), "{sp}");
        }
        assert_eq!(waits[0].0, wait(0));
        // A program may have nothing but loops.
        let mut loops: Vec<_> = (0..=64).map(|sp| (wait(sp), Loop)).collect();
        assert_eq!(forget_one(&mut loops), Some(wait(0)));
        assert_eq!(forget_one(&mut loops), None);
    }
}
