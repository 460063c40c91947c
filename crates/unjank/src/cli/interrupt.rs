//! Ctrl-C and SIGTERM as a flag or a socket: work ends at its next pause and tidies up behind itself.

use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Returns a flag that SIGINT, SIGTERM or SIGHUP sets from now on, instead of ending the program.
///
/// Where signals cannot be caught, or there is no thread that waits for them, the flag stays unset and they end the program as always.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    when_interrupted(move || set.store(true, Ordering::Relaxed));
    flag
}

/// Returns a socket whose other end SIGINT, SIGTERM or SIGHUP closes from now on, instead of ending the program.
///
/// # Errors
///
/// There is no socket to be had. Where signals cannot be caught they end the program as always.
pub(crate) fn socket() -> std::io::Result<OwnedFd> {
    let (here, there) = sys::socket::pair()?;
    // Where nothing listens it stays open.
    let there = ManuallyDrop::new(there);
    when_interrupted(move || drop(ManuallyDrop::into_inner(there)));
    Ok(here)
}

/// Calls `interrupted` at the first of these signals.
fn when_interrupted(interrupted: impl FnOnce() + Send + 'static) {
    let (ready, wait) = std::sync::mpsc::channel::<()>();
    let listener = sys::thread::spawn("signals", move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let Ok([mut interrupt, mut terminate, mut hangup]) = listen(kinds) else { return };
            // The other end waits for this alone; if it is gone, so is the program.
            let _ = ready.send(());
            tokio::select! {
                _ = interrupt.recv() => (),
                _ = terminate.recv() => (),
                _ = hangup.recv() => (),
            }
            interrupted();
        });
        // The runtime is kept for as long as the program runs, so that a second signal does not end it midway.
        std::mem::forget(runtime);
    });
    // An error says that nothing listens.
    let _ = listener.map(|_| wait.recv());
}

fn listen(kinds: [SignalKind; 3]) -> std::io::Result<[tokio::signal::unix::Signal; 3]> {
    let [one, two, three] = kinds;
    Ok([signal(one)?, signal(two)?, signal(three)?])
}
