//! Whose code it was: the frame to blame, what is folded away, and waits that are no stalls.

use regex_lite::Regex;

use super::names::{Frame, Trust};

/// What part a frame has in a stall.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// The C library, its threads and its loader: every call goes through it.
    Libc,
    /// A library that programs are built on, by its family's name: `Qt`, `GLib`. What it does it was asked to do.
    Runtime(&'static str),
    /// The program, or a library that is not a common base of programs.
    User,
    /// Code of which nothing is known.
    Unknown,
}

/// The C library and what belongs to it, by the beginning of the file's name.
const LIBC: [&str; 17] = [
    "libc.so",
    "libc-2.",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "ld-2.",
    "ld.so",
    "libpthread",
    "libdl.so",
    "libdl-2.",
    "librt.so",
    "librt-2.",
    "libm.so",
    "libresolv",
    "libnss_",
    "[vdso]",
    "[vsyscall]",
];

/// Libraries that programs are built on. KDE's frameworks are not among them: what they do is what the article was about.
const RUNTIMES: [(&str, &[&str]); 20] = [
    ("C++", &["libstdc++", "libgcc_s", "libc++", "libunwind"]),
    ("Qt", &["libQt4", "libQt5", "libQt6", "libQtCore", "libQtGui"]),
    ("GLib", &["libglib-2", "libgobject-2", "libgio-2", "libgmodule-2", "libgthread-2"]),
    ("GTK", &["libgtk-", "libgdk-", "libgdk_pixbuf", "libpango", "libatk"]),
    ("SQLite", &["libsqlite3"]),
    ("D-Bus", &["libdbus-1", "libdbus-glib"]),
    ("systemd", &["libsystemd", "libudev"]),
    ("X11", &["libxcb", "libX11", "libXext", "libXi.", "libICE", "libSM."]),
    ("Wayland", &["libwayland-"]),
    ("libuv", &["libuv.", "libev.", "libevent"]),
    ("Python", &["libpython", "python2", "python3", "python"]),
    ("Perl", &["libperl", "perl"]),
    ("Ruby", &["libruby", "ruby"]),
    ("Lua", &["liblua", "lua5", "luajit"]),
    ("JavaScript", &["libmozjs", "libnode", "node", "nodejs", "libjavascriptcoregtk", "gjs"]),
    ("Java", &["libjvm", "libjava.", "libnio", "java"]),
    ("TLS", &["libssl", "libcrypto", "libgnutls", "libnettle"]),
    ("compression", &["libz.", "liblzma", "libzstd", "libbz2", "liblz4"]),
    ("ELF", &["libelf", "libdw"]),
    ("allocator", &["libjemalloc", "libtcmalloc", "libmimalloc"]),
];

/// Programs that run programs; their names stand alone, so that `perlbug` is not `perl`.
fn is_named(file: &str, beginning: &str) -> bool {
    let Some(rest) = file.strip_prefix(beginning) else { return false };
    let is_library = beginning.starts_with("lib") || beginning.ends_with(['.', '-']);
    is_library || rest.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Functions of languages whose libraries are linked into the program, by the beginning of the name.
const INSIDE: [(&str, &str); 8] = [
    ("std::", "the standard library"),
    ("core::", "the standard library"),
    ("alloc::", "the standard library"),
    ("__gnu_cxx::", "the standard library"),
    ("<std::", "the standard library"),
    ("<core::", "the standard library"),
    ("<alloc::", "the standard library"),
    ("__rust_", "the standard library"),
];

/// Functions that wait for the next thing to happen. A wait for an answer is not one of them.
const LOOPS: [&str; 38] = [
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
];

/// Functions that run a loop of their own until an answer comes: what looks idle inside of them is a stall.
const ANSWERS: [&str; 9] = [
    "g_dbus_",
    "QDBus",
    "QProcess::waitFor",
    "QIODevice::waitFor",
    "QAbstractSocket::waitFor",
    "QLocalSocket::waitFor",
    "wl_display_roundtrip",
    "xcb_wait_for_reply",
    "dbus_connection_send_with_reply_and_block",
];

/// The calls in which event loops wait.
const WAITS: [&str; 9] = [
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
    "futex",
];

/// Returns what part a frame has.
#[must_use]
pub fn role(frame: &Frame) -> Role {
    if frame.trust == Trust::Compiled {
        return Role::User;
    }
    let file = &*frame.module;
    if file.is_empty() {
        return Role::Unknown;
    }
    if LIBC.iter().any(|beginning| file.starts_with(beginning)) {
        return Role::Libc;
    }
    let family = RUNTIMES
        .iter()
        .find(|(_, files)| files.iter().any(|beginning| is_named(file, beginning)))
        .map(|(family, _)| *family);
    let inside = || {
        // A C++ or Rust name; `std::` as the whole program would be odd.
        let name = &*frame.name;
        INSIDE.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|(_, family)| *family)
    };
    family.or_else(inside).map_or(Role::User, Role::Runtime)
}

/// Returns which of `frames`, the innermost first, is to blame: the first that is the program's own or of a library of its
/// choice; with `wanted` the first in a file that matches, if there is one.
///
/// A stack of runtime libraries alone has its first frame above the C library blamed, one of the C library alone its
/// innermost; an empty stack none.
#[must_use]
pub fn blame(frames: &[Frame], wanted: Option<&Regex>) -> Option<usize> {
    let first = |is: &dyn Fn(Role) -> bool| frames.iter().position(|frame| is(role(frame)));
    let matching =
        wanted.and_then(|wanted| frames.iter().position(|frame| wanted.is_match(&frame.module)));
    // The start of every program is its own code, and says nothing.
    let is_start = |frame: &Frame| frame.name == "_start";
    let own = first(&|role| role == Role::User).filter(|at| !is_start(&frames[*at]));
    matching
        .or(own)
        .or_else(|| first(&|role| matches!(role, Role::Runtime(_))))
        .or_else(|| (!frames.is_empty()).then_some(0))
}

/// Says whether a call named `call` with this stack is an event loop that waits for something to do.
#[must_use]
pub fn is_idle(call: &str, frames: &[Frame]) -> bool {
    if !WAITS.contains(&call) {
        return false;
    }
    let is_loop = |frame: &Frame| LOOPS.contains(&&*frame.name);
    let is_answer = |frame: &Frame| {
        let name = &*frame.name;
        ANSWERS.iter().any(|beginning| name.starts_with(beginning))
            // GIO's calls that wait say so.
            || name.ends_with("_sync")
    };
    // Between the call and the loop there are only runtime libraries: the user's own wait is a stall.
    let above = frames.iter().skip_while(|frame| role(frame) == Role::Libc);
    let mut until_user = above
        .take_while(|frame| matches!(role(frame), Role::Runtime(_) | Role::Libc) || is_loop(frame));
    until_user.any(is_loop) && !frames.iter().any(is_answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::recording::Address;

    fn frames(of: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(module, name): &(&str, &str)| Frame {
            name: (*name).to_owned(),
            module: (*module).to_owned(),
            trust: Trust::Exported,
            offset: None,
            line: None,
            is_inlined: false,
            address: Address { module: None, address: 0 },
        };
        of.iter().map(frame).collect()
    }

    #[test]
    fn kde_s_own_code_is_blamed_and_qt_s_is_folded() {
        let stack = frames(&[
            ("libc.so.6", "fdatasync"),
            ("libQt5Core.so.5.15.8", "QSaveFile::commit"),
            ("libKF5ConfigCore.so.5.103.0", "fn@0x1234"),
            ("libKF5ConfigCore.so.5.103.0", "KConfig::sync"),
            ("kde-open5", "main"),
        ]);
        assert_eq!(blame(&stack, None), Some(2));
        assert_eq!(role(&stack[1]), Role::Runtime("Qt"));
        let wanted = Regex::new("^kde-open").unwrap();
        assert_eq!(blame(&stack, Some(&wanted)), Some(4));
    }

    #[test]
    fn without_own_code_the_runtime_is_blamed_and_then_the_c_library() {
        let python =
            frames(&[("libc.so.6", "fsync"), ("python3.11", "fn@0x10"), ("python3.11", "_start")]);
        assert_eq!(blame(&python, None), Some(1));
        let loader =
            frames(&[("ld-linux-x86-64.so.2", "fn@0x10"), ("ld-linux-x86-64.so.2", "_start")]);
        assert_eq!(blame(&loader, None), Some(0));
        assert_eq!(blame(&[], None), None);
    }

    #[test]
    fn a_program_is_not_taken_for_the_interpreter_whose_name_it_begins_with() {
        let own = frames(&[("perlbug", "main"), ("nodetool", "main"), ("python3.11", "main")]);
        assert_eq!(role(&own[0]), Role::User);
        assert_eq!(role(&own[1]), Role::User);
        assert_eq!(role(&own[2]), Role::Runtime("Python"));
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
        assert!(!is_idle("poll", &own), "the program's own wait inside of a handler is a stall");
    }
}
