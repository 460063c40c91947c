//! What signals mean while a program of one's own is recorded: the first Ctrl-C is the program's.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::screen;

/// How long after a Ctrl-C that a program outlives the user is told what else there is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Signals as flags.
pub(super) struct Watched {
    /// Set when the recording is to end: by the second SIGINT, or the first SIGTERM or SIGHUP.
    pub(super) stop: Arc<AtomicBool>,
    /// To be set when the recording has ended by itself.
    pub(super) recorded: Arc<AtomicBool>,
}

/// Returns the flags, which signals set from now on instead of ending us.
///
/// The terminal sends Ctrl-C to the program, too: it ends by it or it does not, as without us, and the recording goes on until it has.
pub(super) fn flag() -> Watched {
    let stop = Arc::new(AtomicBool::new(false));
    let recorded = Arc::new(AtomicBool::new(false));
    let watched = Watched { stop: Arc::clone(&stop), recorded: Arc::clone(&recorded) };
    let (ready, wait) = std::sync::mpsc::channel::<()>();
    let listener = sys::thread::spawn("signals", move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
                return;
            };
            // The other end waits for this alone; if it is gone, so is the program.
            let _ = ready.send(());
            let mut enough = async || {
                tokio::select! {
                    _ = terminate.recv() => (),
                    _ = hangup.recv() => (),
                }
            };
            tokio::select! {
                () = enough() => return stop.store(true, Ordering::Relaxed),
                _ = interrupt.recv() => (),
            }
            tokio::select! {
                () = enough() => return stop.store(true, Ordering::Relaxed),
                _ = interrupt.recv() => return stop.store(true, Ordering::Relaxed),
                () = tokio::time::sleep(PATIENCE) => (),
            }
            if !recorded.load(Ordering::Relaxed) {
                let text = "unjank: the program goes on; Ctrl-C again ends the recording";
                // Nobody is left to be told when stderr is gone.
                let _ = writeln!(screen::stderr(), "{text}");
            }
            tokio::select! {
                () = enough() => (),
                _ = interrupt.recv() => (),
            }
            stop.store(true, Ordering::Relaxed);
        });
        // The runtime is kept for as long as we run, so that a further signal does not end us midway.
        std::mem::forget(runtime);
    });
    // An error says that nothing listens: signals then end us as always.
    let _ = listener.map(|_| wait.recv());
    watched
}
