//! Who opens the events of which samplers of marked threads are made.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sys::perf::{EventOpener, OwnRights, SamplerEvent};
use trace::backend::bpf::served::ServedHangSession;

/// Opens events of threads with the rights of this process, and where the kernel forbids that has the recorder service do it, if
/// there is a session in it.
#[derive(Clone, Debug, Default)]
pub struct SamplerRights(Option<Arc<ServedEvents>>);

#[derive(Debug)]
struct ServedEvents {
    session: Arc<Mutex<ServedHangSession>>,
    /// Whether the kernel opens none with our own rights, as with `kernel.perf_event_paranoid` above 2 on many systems.
    has_no_rights: AtomicBool,
}

impl SamplerRights {
    /// Returns those of a session in the recorder service.
    pub(super) fn of_session(session: Arc<Mutex<ServedHangSession>>) -> SamplerRights {
        let has_no_rights = AtomicBool::new(false);
        SamplerRights(Some(Arc::new(ServedEvents { session, has_no_rights })))
    }
}

impl EventOpener for SamplerRights {
    fn open_event(&self, thread: u32, event: SamplerEvent) -> io::Result<OwnedFd> {
        let Some(served) = &self.0 else { return OwnRights.open_event(thread, event) };
        if !served.has_no_rights.load(Ordering::Relaxed) {
            match OwnRights.open_event(thread, event) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    served.has_no_rights.store(true, Ordering::Relaxed);
                }
                opened => return opened,
            }
        }
        let mut session = served.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.event(thread, event)
    }
}
