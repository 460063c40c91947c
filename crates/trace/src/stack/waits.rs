//! What functions of libraries wait for: for the next thing to do, as main loops do, or for an answer.

use super::blame::{FrameRole, family_of_evaluator, role};
use super::names::Frame;
use crate::syscall::EVENT_WAITS;

/// Functions that wait for the next thing to happen. A wait for an answer is not one of them.
const LOOPS: [&str; 45] = [
    "g_main_context_pending",
    "g_main_context_poll",
    "g_main_context_iterate",
    "g_main_context_iteration",
    "g_main_loop_run",
    "g_application_run",
    "gtk_main",
    "QEventDispatcherUNIX::processEvents",
    "QEventDispatcherGlib::processEvents",
    "QUnixEventDispatcherQPA::processEvents",
    "QXcbUnixEventDispatcher::processEvents",
    "QXcbGlibEventDispatcher::processEvents",
    "QEventLoop::exec",
    "QEventLoop::processEvents",
    "QThread::exec",
    "wl_display_dispatch",
    "wl_display_dispatch_queue",
    "wl_display_poll",
    "wl_event_loop_dispatch",
    "wl_display_run",
    "xcb_wait_for_event",
    "XNextEvent",
    "XIfEvent",
    "uv_run",
    "uv__io_poll",
    "sd_event_wait",
    "sd_event_run",
    "sd_event_loop",
    "ev_run",
    "event_base_loop",
    "event_base_dispatch",
    "ecore_main_loop_begin",
    "SDL_WaitEvent",
    "SDL_WaitEventTimeout",
    "glfwWaitEvents",
    "glfwWaitEventsTimeout",
    "mio::poll::Poll::poll",
    "calloop::EventLoop::dispatch",
    "pa_mainloop_poll",
    "Tcl_WaitForEvent",
    "Tcl_DoOneEvent",
    "Fl::wait",
    "Fl::run",
    "runtime.findRunnable",
    "CallJavaMainInNewThread",
];

/// Functions that a thread rests in while the program's own functions wait or run elsewhere, with the language.
const RESTS_OF_RUNTIMES: [(&str, &str); 2] =
    [("runtime.findRunnable", "Go"), ("CallJavaMainInNewThread", "Java")];

/// Functions that wait until a reply arrives, or until the display server reads what is written to it: a wait inside of them is a stall,
/// not idle.
const ANSWERS: [&str; 23] = [
    "g_dbus_",
    "g_subprocess_communicate",
    "g_subprocess_wait",
    "QDBus",
    "QProcess::waitFor",
    "QIODevice::waitFor",
    "QAbstractSocket::waitFor",
    "QLocalSocket::waitFor",
    "wl_display_roundtrip",
    "xcb_wait_for_reply",
    "xcb_wait_for_special_event",
    "xcb_request_check",
    "xcb_connect",
    "xcb_flush",
    "xcb_send_fd",
    "xcb_send_request",
    "xcb_writev",
    "XOpenDisplay",
    "_XFlush",
    "_XReply",
    "_XSend",
    "gtk_clipboard_wait_",
    "dbus_connection_send_with_reply_and_block",
];

/// Loops of services that wait for the next order with functions that others wait for an answer with.
const ORDERS: [&str; 4] = [
    "KIO::SlaveBase::dispatchLoop",
    "KIO::WorkerBase::dispatchLoop",
    "KIO::SlaveBase::dispatch",
    "KIO::ForwardingSlaveBase::dispatchLoop",
];

/// Returns whether a function is known to wait for an answer.
#[must_use]
pub fn waits_for_answer(frame: &Frame) -> bool {
    let name = &*frame.name;
    // GIO's calls that wait say so, and so do those of the libraries for displays in Rust.
    ANSWERS.iter().any(|beginning| name.starts_with(beginning))
        || name.ends_with("_sync")
        || name.contains("::wait_for_reply")
        || name.contains("::roundtrip")
        // It waits for the event that the X server has copied its pixels.
        || frame.module.starts_with("libcairo.")
}

/// Returns whether a function that waits for an answer runs the main loop meanwhile: whoever uses the program is answered.
#[must_use]
pub fn runs_main_loop(frame: &Frame) -> bool {
    frame.name.starts_with("gtk_clipboard_wait_")
}

/// Returns whether a function is a loop of a toolkit: one that waits for the display, too, handles what comes from it, whoever runs it.
#[must_use]
pub fn is_toolkit_loop(frame: &Frame) -> bool {
    is_loop(frame) && ["g_", "gtk_", "Q"].iter().any(|of| frame.name.starts_with(of))
}

/// Returns whether a function is known to wait for an answer of the display, whoever calls it.
#[must_use]
pub fn waits_for_display_answer(frame: &Frame) -> bool {
    let is_of_display = |beginning: &&str| frame.name.starts_with(beginning);
    waits_for_answer(frame)
        && ["xcb_", "_X", "XOpenDisplay", "wl_display_"].iter().any(is_of_display)
}

/// Returns whether a call with this stack is made by a function that waits for an answer: between the two there are only
/// libraries that act on behalf of others.
///
/// A lock is waited for so where another thread receives the answers, as that of Qt does which reads from the bus.
#[must_use]
pub fn asks(frames: &[Frame]) -> bool {
    let mut inner =
        frames.iter().take_while(|frame| role(frame) != FrameRole::User || waits_for_answer(frame));
    inner.any(waits_for_answer)
}

/// Returns whether a function is a known event loop.
#[must_use]
pub fn is_loop(frame: &Frame) -> bool {
    LOOPS.contains(&&*frame.name)
}

/// Returns the innermost function of the user, or of a script, if it is called inside of a step of a known loop.
fn handler(frames: &[Frame]) -> Option<usize> {
    let is_own = |frame: &Frame| role(frame) == FrameRole::User && !is_loop(frame);
    let is_handler = |frame: &Frame| is_own(frame) || family_of_evaluator(frame).is_some();
    let handler = frames.iter().position(is_handler);
    handler.filter(|at| frames[*at..].iter().any(is_loop))
}

/// Returns whether a function of the user, or of a script, makes the call inside of a step of a known loop.
#[must_use]
pub fn is_in_step(frames: &[Frame]) -> bool {
    handler(frames).is_some()
}

/// Returns whether it does without a known loop between it and the call: it handles no events.
#[must_use]
pub fn looks_without_loop(frames: &[Frame]) -> bool {
    let Some(at) = handler(frames) else { return false };
    let (inner, outer) = frames.split_at(at);
    let Some(of_loop) = outer.iter().position(is_loop) else { return false };
    // A loop of GLib calls a function of the program to wait, too, if that has set one, as Firefox has.
    let is_step = !outer[of_loop].name.starts_with("g_")
        || outer[..of_loop].iter().any(|frame| frame.name == "g_main_context_dispatch");
    is_step && !inner.iter().any(is_loop)
}

/// Returns the language whose runtime has the thread rest while the program's own functions wait or run in threads of the runtime's choice.
#[must_use]
pub fn rests_for(frames: &[Frame]) -> Option<&'static str> {
    let rest = |frame: &Frame| RESTS_OF_RUNTIMES.iter().find(|(name, _)| *name == frame.name);
    frames.iter().find_map(rest).map(|(_, language)| *language)
}

/// Returns whether a call named `call` with this stack is an event loop that waits for something to do.
#[must_use]
pub fn is_idle(call: &str, frames: &[Frame]) -> bool {
    // After a stop the kernel goes on with a wait by `restart_syscall`; what was called, the stack says.
    if !EVENT_WAITS.contains(&call) && !["futex", "restart_syscall"].contains(&call) {
        return false;
    }
    let is_order = |frame: &Frame| ORDERS.contains(&&*frame.name);
    if frames.iter().position(is_order).is_some_and(|at| {
        let is_between =
            |frame: &Frame| role(frame) != FrameRole::User || frame.module.starts_with("libKF");
        frames[..at].iter().all(is_between)
    }) {
        return true;
    }
    // Between the call and the loop there are only runtime libraries: the user's own wait, or that of a script, is a stall.
    let above = frames.iter().skip_while(|frame| role(frame) == FrameRole::Libc);
    let mut until_user = above.take_while(|frame| {
        let is_runtime = matches!(role(frame), FrameRole::Runtime(_) | FrameRole::Libc);
        (is_runtime && family_of_evaluator(frame).is_none()) || is_loop(frame)
    });
    // Whoever registers descriptors for as long as it runs has a loop, whatever that is called. Inside of a step of a known loop it is
    // the user's own wait.
    let is_registered = call.starts_with("epoll_") && !frames.is_empty() && !is_in_step(frames);
    (is_registered || until_user.any(is_loop)) && !frames.iter().any(waits_for_answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::blame::tests::frames;

    #[test]
    fn a_thread_that_a_runtime_has_rest_is_idle_and_its_functions_are_elsewhere() {
        let parked = frames(&[
            ("gg", "runtime.futex.abi0"),
            ("gg", "runtime.futexsleep"),
            ("gg", "runtime.notesleep"),
            ("gg", "runtime.mPark"),
            ("gg", "runtime.stopm"),
            ("gg", "runtime.findRunnable"),
            ("gg", "runtime.schedule"),
            ("gg", "runtime.park_m"),
            ("gg", "runtime.mcall"),
        ]);
        assert_eq!((is_idle("futex", &parked), rests_for(&parked)), (true, Some("Go")));
        let launcher = frames(&[
            ("libc.so.6", "__futex_abstimed_wait_common64"),
            ("libc.so.6", "__pthread_clockjoin_ex"),
            ("libjli.so", "CallJavaMainInNewThread"),
            ("libjli.so", "ContinueInNewThread"),
        ]);
        assert_eq!((is_idle("futex", &launcher), rests_for(&launcher)), (true, Some("Java")));
        // A function that keeps its thread has that thread wait.
        let locked = frames(&[
            ("gg", "runtime.futex.abi0"),
            ("gg", "runtime.notesleep"),
            ("gg", "runtime.stoplockedm"),
            ("gg", "runtime.schedule"),
        ]);
        assert_eq!((is_idle("futex", &locked), rests_for(&locked)), (false, None));
    }

    #[test]
    fn a_worker_that_waits_for_orders_and_a_loop_of_any_name_are_idle() {
        let worker = frames(&[
            ("libc.so.6", "poll"),
            ("libQt5Core.so.5.15.8", "fn@0x1"),
            ("libQt5Network.so.5.15.8", "QLocalSocket::waitForReadyRead"),
            ("libKF5KIOCore.so.5.103.0", "fn@0x2"),
            ("libKF5KIOCore.so.5.103.0", "KIO::SlaveBase::dispatchLoop"),
            ("kioslave5", "main"),
        ]);
        assert!(is_idle("poll", &worker));
        let command = frames(&[
            ("libc.so.6", "poll"),
            ("kio_file.so", "FileProtocol::get"),
            ("libKF5KIOCore.so.5.103.0", "KIO::SlaveBase::dispatch"),
        ]);
        assert!(!is_idle("poll", &command), "a worker that works waits");
        let asyncio = frames(&[
            ("libc.so.6", "epoll_wait"),
            ("python3.11", "fn@0x1"),
            ("python3.11", "_PyEval_EvalFrameDefault"),
            ("python3.11", "main"),
        ]);
        assert!(is_idle("epoll_wait", &asyncio));
        assert!(!is_idle("epoll_wait", &[]), "nothing is known of it");
        assert!(!is_idle("poll", &asyncio), "a program in Python waits for an answer with poll");
    }

    #[test]
    fn a_loop_at_rest_is_idle_and_a_wait_for_an_answer_is_not() {
        let resting = frames(&[
            ("libc.so.6", "ppoll"),
            ("libglib-2.0.so.0.7400.6", "fn@0x1"),
            ("libglib-2.0.so.0.7400.6", "g_main_context_iteration"),
            ("libgio-2.0.so.0.7400.6", "g_application_run"),
            ("app", "main"),
        ]);
        assert!(is_idle("ppoll", &resting));
        assert!(!is_idle("fsync", &resting));
        let asking = frames(&[
            ("libc.so.6", "ppoll"),
            ("libglib-2.0.so.0.7400.6", "g_main_loop_run"),
            ("libgio-2.0.so.0.7400.6", "g_dbus_connection_call_sync"),
            ("app", "main"),
            ("libglib-2.0.so.0.7400.6", "g_main_loop_run"),
        ]);
        assert!(!is_idle("ppoll", &asking));
        let own = frames(&[
            ("libc.so.6", "poll"),
            ("app", "wait_for_server"),
            ("libglib-2.0.so.0.7400.6", "g_main_loop_run"),
        ]);
        assert!(is_in_step(&own) && !is_in_step(&resting));
        let script = frames(&[
            ("libc.so.6", "poll"),
            ("python3.11", "_PyEval_EvalFrameDefault"),
            ("libtcl8.6.so", "Tcl_DoOneEvent"),
            ("python3.11", "_PyEval_EvalFrameDefault"),
            ("python3.11", "main"),
        ]);
        assert!(!is_idle("poll", &script) && is_in_step(&script), "so is that of a script");
        assert!(is_idle("futex", &script[2..]) && !is_in_step(&script[2..]));
        for call in ["poll", "epoll_wait"] {
            assert!(!is_idle(call, &own), "{call}: its own wait inside of a handler is a stall");
        }
    }
}
