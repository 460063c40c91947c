//! Chooses the frame to blame, and classifies frames.

use regex_lite::Regex;

use super::interpreters;
use super::names::{Frame, NameCertainty, SourceLine};

/// The role of a frame in a stall.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FrameRole {
    /// The C library, its threads and its loader: every call goes through it.
    Libc,
    /// A runtime library, by its family's name: `Qt`, `GLib`. It acts on behalf of its caller.
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

/// Runtime libraries. KDE's frameworks are not among them, because their functions are informative.
const RUNTIMES: [(&str, &[&str]); 23] = [
    ("C++", &["libstdc++", "libgcc_s", "libc++", "libunwind"]),
    ("Qt", &["libQt4", "libQt5", "libQt6", "libQtCore", "libQtGui"]),
    ("GLib", &["libglib-2", "libgobject-2", "libgio-2", "libgmodule-2", "libgthread-2"]),
    ("GTK", &["libgtk-", "libgdk-", "libgdk_pixbuf", "libpango", "libatk"]),
    ("SQLite", &["libsqlite3"]),
    ("D-Bus", &["libdbus-1", "libdbus-glib"]),
    ("systemd", &["libsystemd", "libudev"]),
    ("X11", &["libxcb", "libX11", "libXext", "libXi.", "libICE", "libSM."]),
    ("Wayland", &["libwayland-"]),
    ("Tcl", &["libtcl", "libtk"]),
    ("FLTK", &["libfltk"]),
    ("libuv", &["libuv.", "libev.", "libevent"]),
    ("Python", &["libpython", "python2", "python3", "python"]),
    ("Perl", &["libperl", "perl"]),
    ("Ruby", &["libruby", "ruby"]),
    ("Lua", &["liblua", "lua5", "luajit"]),
    ("JavaScript", &["libmozjs", "libnode", "node", "nodejs", "libjavascriptcoregtk", "gjs"]),
    ("Java", &["libjvm", "libjava.", "libnio", "java"]),
    ("TLS", &["libssl", "libcrypto", "libgnutls", "libnettle"]),
    ("compression", &["libz.", "liblzma", "libzstd", "libbz2", "liblz4"]),
    (FOREIGN, &["libffi."]),
    ("ELF", &["libelf", "libdw"]),
    ("allocator", &["libjemalloc", "libtcmalloc", "libmimalloc"]),
];

/// What calls functions of any library for a script.
const FOREIGN: &str = "libffi";

/// Where the C library's own functions are that compilers put into others: with `_FORTIFY_SOURCE` those that check lengths.
const HEADERS_OF_LIBC: [&str; 2] = ["/usr/include/bits/", "/usr/include/x86_64-linux-gnu/bits/"];

/// Programs that run programs; their names stand alone, so that `perlbug` is not `perl`.
fn is_named(file: &str, beginning: &str) -> bool {
    let Some(rest) = file.strip_prefix(beginning) else { return false };
    let is_library = beginning.starts_with("lib") || beginning.ends_with(['.', '-']);
    is_library || rest.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Functions of languages whose libraries are linked into the program, by the beginning of the name.
const INSIDE: [(&str, &str); 9] = [
    ("std::", "the standard library"),
    ("core::", "the standard library"),
    ("alloc::", "the standard library"),
    ("__gnu_cxx::", "the standard library"),
    ("__gthread_", "the standard library"),
    ("<std::", "the standard library"),
    ("<core::", "the standard library"),
    ("<alloc::", "the standard library"),
    ("__rust_", "the standard library"),
];

/// Returns the role of a frame.
#[must_use]
pub fn role(frame: &Frame) -> FrameRole {
    if frame.trust == NameCertainty::Compiled {
        return interpreters::library_of(&frame.name).map_or(FrameRole::User, FrameRole::Runtime);
    }
    let file = &*frame.module;
    if file.is_empty() {
        return FrameRole::Unknown;
    }
    let is_of_header = |line: &SourceLine| {
        frame.is_inlined && HEADERS_OF_LIBC.iter().any(|header| line.file.starts_with(header))
    };
    if LIBC.iter().any(|beginning| file.starts_with(beginning))
        || frame.line.as_ref().is_some_and(is_of_header)
    {
        return FrameRole::Libc;
    }
    let family = RUNTIMES
        .iter()
        .find(|(_, files)| files.iter().any(|beginning| is_named(file, beginning)))
        .map(|(family, _)| *family);
    let inside = || {
        // A C++ or Rust name; `std::` as the whole program would be odd.
        let name = &*frame.name;
        // The name of a template's function has its type before it: `void std::call_once<…>(…)`.
        let head = name.split(['<', '(']).next().unwrap_or_default();
        let without_type = head.rsplit(' ').next().filter(|rest| rest.contains("::"));
        let names = [Some(name), without_type];
        let is_in = |beginning| names.iter().flatten().any(|name| name.starts_with(beginning));
        let known = INSIDE.iter().find(|(beginning, _)| is_in(*beginning));
        let go = || interpreters::is_of_go(name).then_some("Go");
        known.map(|(_, family)| *family).or_else(go)
    };
    let family = family.or_else(|| interpreters::is_extension(file).then_some("Python"));
    family.or_else(inside).map_or(FrameRole::User, FrameRole::Runtime)
}

/// Returns which of `frames`, the innermost first, is to blame: the first that is the program's own or of a library of its
/// choice; with `wanted` the first in a file that matches, if there is one.
///
/// A stack of runtime libraries alone has its first frame above the C library blamed, one of the C library alone its
/// innermost; an empty stack none. A program that an interpreter runs is not that which runs the interpreter: without its
/// functions, that which it called is blamed, of another library or of the interpreter, never the loop that runs its code.
#[must_use]
pub fn blame(frames: &[Frame], wanted: Option<&Regex>) -> Option<usize> {
    let first = |is: &dyn Fn(FrameRole) -> bool| frames.iter().position(|frame| is(role(frame)));
    let matching =
        wanted.and_then(|wanted| frames.iter().position(|frame| wanted.is_match(&frame.module)));
    // The start of every program is its own code, and says nothing.
    let is_start = |frame: &Frame| frame.name == "_start";
    let evaluator = frames.iter().position(|frame| family_of_evaluator(frame).is_some());
    // Beyond it are only functions of the script, if they have names, and then what started the interpreter.
    let is_before = |at: &usize| {
        let is_compiled = || frames[*at].trust == NameCertainty::Compiled;
        evaluator.is_none_or(|evaluator| *at < evaluator || is_compiled())
    };
    let mut of_user = (0..frames.len()).filter(|at| role(&frames[*at]) == FrameRole::User);
    let own = of_user.find(is_before).filter(|at| !is_start(&frames[*at]));
    // The script called it by its name; what is between is of no interest.
    let is_foreign = |frame: &Frame| role(frame) == FrameRole::Runtime(FOREIGN);
    let foreign =
        evaluator.and_then(|end| frames[..end].iter().position(is_foreign)?.checked_sub(1));
    let builtin =
        evaluator.and_then(|at| builtin_of(family_of_evaluator(&frames[at])?, &frames[..at]));
    matching
        .or(own)
        .or(foreign)
        .or(builtin)
        .or_else(|| first(&|role| matches!(role, FrameRole::Runtime(_))))
        .or_else(|| (!frames.is_empty()).then_some(0))
}

/// Returns the language of an interpreter that a frame belongs to.
fn language(frame: &Frame) -> Option<&'static str> {
    match role(frame) {
        FrameRole::Runtime(family) => {
            Some(family).filter(|family| interpreters::runs_scripts(family))
        }
        _ => None,
    }
}

pub(super) fn family_of_evaluator(frame: &Frame) -> Option<&'static str> {
    language(frame).filter(|family| interpreters::is_evaluator(family, &frame.name))
}

/// Returns which of `frames`, which an evaluator of `family` called, the script knows: the outermost with a name that it uses.
fn builtin_of(family: &str, frames: &[Frame]) -> Option<usize> {
    let of_family = |at: &usize| {
        let frame = &frames[*at];
        language(frame) == Some(family) && !interpreters::is_caller(&frame.name)
    };
    let all = || (0..frames.len()).filter(of_family);
    let known = all().rev().find(|at| interpreters::is_known(family, &frames[*at]));
    let nameless = || all().find(|at| !interpreters::is_named(&frames[*at]));
    known.or_else(nameless).or_else(|| all().next())
}

/// Names the blamed frame as the script does, if it is a function of an interpreter, and returns the interpreter's language.
pub fn name_builtin(frames: &mut [Frame], blamed: Option<usize>) -> Option<&'static str> {
    let at = blamed?;
    let family = language(frames.get(at)?)?;
    let inner = frames[..at].iter().rfind(|frame| role(frame) == FrameRole::Libc);
    let of_libc = inner.filter(|frame| frame.trust <= NameCertainty::Exported);
    let name = interpreters::script_name(family, &frames[at], of_libc.map(|frame| &*frame.name));
    if let (Some(name), Some(frame)) = (name, frames.get_mut(at)) {
        // Of an address without a function, the name is joined to the file's.
        let joint = if frame.trust == NameCertainty::Offset { "!" } else { "" };
        frame.name = format!("{joint}{name}");
    }
    Some(family)
}

/// Returns whether a function in one of these frames runs a script.
pub(crate) fn runs_script(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| family_of_evaluator(frame).is_some())
}

/// Returns whether a function calls those of any library for a script.
#[must_use]
pub fn is_foreign(frame: &Frame) -> bool {
    frame.module.starts_with(FOREIGN)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recording::CodeAddress;

    pub(in crate::stack) fn frames(of: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(module, name): &(&str, &str)| Frame {
            name: (*name).to_owned(),
            module: (*module).to_owned(),
            trust: NameCertainty::Exported,
            offset: None,
            line: None,
            is_inlined: false,
            address: CodeAddress { module: None, address: 0 },
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
        assert_eq!(role(&stack[1]), FrameRole::Runtime("Qt"));
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
    fn the_program_is_blamed_and_not_the_runtime_of_go() {
        // As `go build` makes it, recorded with bpf.
        let stack = frames(&[
            ("saver", "internal/runtime/syscall.Syscall6"),
            ("saver", "syscall.RawSyscall6"),
            ("saver", "syscall.Syscall"),
            ("saver", "syscall.Fsync"),
            ("saver", "internal/poll.(*FD).Fsync.func1"),
            ("saver", "internal/poll.ignoringEINTR"),
            ("saver", "internal/poll.(*FD).Fsync"),
            ("saver", "os.(*File).Sync"),
            ("saver", "main.save"),
            ("saver", "main.main"),
            ("saver", "runtime.main"),
            ("saver", "runtime.goexit.abi0"),
        ]);
        assert_eq!(blame(&stack, None), Some(8));
        let scheduler = frames(&[("saver", "runtime.futex.abi0"), ("saver", "runtime.futexsleep")]);
        assert_eq!(blame(&scheduler, None), Some(0), "nothing of the program is there");
    }

    #[test]
    fn what_the_headers_of_c_plus_plus_put_into_a_program_is_not_to_blame() {
        for inside in [
            "__gthread_mutex_lock(pthread_mutex_t*)",
            "__gthread_once(int*, void (*)())",
            "std::mutex::lock()",
            "void std::call_once<void (std::__future_base::*)()>(std::once_flag&)",
            "__gnu_cxx::__exchange_and_add(int volatile*, int)",
        ] {
            let stack = frames(&[("libc.so.6", "futex"), ("app", inside), ("app", "load()")]);
            assert_eq!(blame(&stack, None), Some(2), "{inside}");
        }
        for own in ["std_load(std::string)", "void load<std::string>(int)", "Lock std_lock()"] {
            let stack = frames(&[("libc.so.6", "futex"), ("app", own), ("app", "main")]);
            assert_eq!(blame(&stack, None), Some(1), "{own}");
        }
    }

    #[test]
    fn what_checks_lengths_for_the_c_library_is_not_to_blame() {
        let mut stack = frames(&[("libc.so.6", "poll"), ("notes", "poll"), ("notes", "step")]);
        let header = "/usr/include/x86_64-linux-gnu/bits/poll2.h".to_owned();
        stack[1].line = Some(SourceLine { file: header, line: 39 });
        assert_eq!(blame(&stack, None), Some(1), "a function of the program with that name");
        stack[1].is_inlined = true;
        assert_eq!(blame(&stack, None), Some(2));
    }

    #[test]
    fn what_a_script_calls_in_another_library_is_blamed_by_its_name() {
        let stack = frames(&[
            ("libc.so.6", "poll"),
            ("libglib-2.0.so.0", "g_main_context_iteration"),
            ("libgio-2.0.so.0", "g_subprocess_wait"),
            ("libffi.so.8.1.4", "fn@0x7ac0"),
            ("libffi.so.8.1.4", "fn@0x7420"),
            ("_gi.cpython-312-x86_64-linux-gnu.so", "fn@0x2f510"),
            ("python3.12", "_PyEval_EvalFrameDefault"),
            ("python3.12", "_start"),
        ]);
        assert_eq!(blamed(stack.clone()), ("g_subprocess_wait".to_owned(), None));
        // What the library does by others of its own is for it to say.
        let mut own = stack.clone();
        own.insert(2, frames(&[("libnotes.so.1", "notes_load")]).remove(0));
        assert_eq!(blamed(own).0, "notes_load");
        // A callback of the script: what it calls itself is to blame, not who called it.
        let mut callback = frames(&[
            ("libc.so.6", "fsync"),
            ("python3.12", "os_fsync"),
            ("python3.12", "_PyEval_EvalFrameDefault"),
        ]);
        callback.extend(stack.into_iter().skip(3));
        assert_eq!(blamed(callback).0, "os.fsync");
    }

    /// The frame to blame, as it is shown.
    fn blamed(mut stack: Vec<Frame>) -> (String, Option<&'static str>) {
        let at = blame(&stack, None);
        let language = name_builtin(&mut stack, at);
        (stack[at.unwrap()].name.clone(), language)
    }

    #[test]
    fn a_script_is_blamed_by_the_builtin_that_it_called_and_never_by_the_loop_that_runs_it() {
        let mut stack = frames(&[
            ("libc.so.6", "fsync"),
            ("python3.11", "fn@0x1f0c10"),
            ("python3.11", "fn@0x13a2b0"),
            ("python3.11", "PyObject_Vectorcall"),
            ("python3.11", "_PyEval_EvalFrameDefault"),
            ("python3.11", "PyEval_EvalCode"),
            ("python3.11", "Py_BytesMain"),
            ("libc.so.6", "__libc_start_main"),
            ("python3.11", "_start"),
        ]);
        stack[1].trust = NameCertainty::Start;
        stack[2].trust = NameCertainty::Start;
        let builtin = ("os.fsync".to_owned(), Some("Python"));
        assert_eq!(blamed(stack.clone()), builtin);
        // An application that runs scripts is not to blame for them.
        let embedded = |frame: &Frame| match &*frame.module {
            "python3.11" => Frame { module: "libpython3.11.so.1.0".to_owned(), ..frame.clone() },
            _ => frame.clone(),
        };
        let mut gimp: Vec<Frame> = stack.iter().map(embedded).collect();
        gimp.push(frames(&[("gimp", "main")]).remove(0));
        assert_eq!(blamed(gimp), builtin);
        (stack[1].name, stack[1].trust) = ("os_fsync".to_owned(), NameCertainty::Symbol);
        assert_eq!(blamed(stack.clone()).0, "os.fsync");
        // What only one function uses can be told without a symbol, what several use cannot.
        let mut opened = stack.clone();
        (opened[0].name, opened[1].trust) = ("open64".to_owned(), NameCertainty::Start);
        assert_eq!(blamed(opened).0, "builtin");
        // The wrapper is what the script calls, not what the C code is made of.
        let mut inner = stack.clone();
        inner.insert(1, frames(&[("python3.11", "posix_fildes_fd")]).remove(0));
        inner.insert(1, frames(&[("python3.11", "_Py_write_impl")]).remove(0));
        assert_eq!(blamed(inner).0, "os.fsync");
        // With `-X perf` the functions of the script are there, those of its library too.
        let function = |name: &str| Frame {
            trust: NameCertainty::Compiled,
            module: String::new(),
            ..frames(&[("", name)]).remove(0)
        };
        stack.insert(5, function("py::copy:/usr/lib/python3.12/shutil.py"));
        assert_eq!(blamed(stack.clone()).0, "os.fsync");
        stack.insert(6, function("py::save:/home/ann/notes.py"));
        assert_eq!(blamed(stack), ("py::save:/home/ann/notes.py".to_owned(), None));
    }

    #[test]
    fn functions_of_node_and_java_are_named_where_they_are_known() {
        let function = |name: &str| Frame {
            trust: NameCertainty::Compiled,
            module: String::new(),
            ..frames(&[("", name)]).remove(0)
        };
        let mut node = frames(&[
            ("libc.so.6", "fsync"),
            ("node", "uv_fs_fsync"),
            ("node", "node::fs::Fsync"),
            ("node", "Builtins_CallApiCallbackGeneric"),
        ]);
        assert_eq!(blamed(node.clone()), ("node::fs::Fsync".to_owned(), Some("JavaScript")));
        node.push(function("LazyCompile:*fsyncSync node:fs:1322:19"));
        node.push(function("LazyCompile:~save /home/ann/notes.js:3:14"));
        assert_eq!(blamed(node).0, "LazyCompile:~save /home/ann/notes.js:3:14");
        let mut java = frames(&[
            ("libc.so.6", "fsync"),
            ("libnio.so", "Java_sun_nio_ch_FileDispatcherImpl_force0"),
        ]);
        let name = "sun.nio.ch.FileDispatcherImpl.force0".to_owned();
        assert_eq!(blamed(java.clone()), (name, Some("Java")));
        java.push(function("Interpreter"));
        java.push(function("void Notes.save(java.lang.String)"));
        assert_eq!(blamed(java).0, "void Notes.save(java.lang.String)");
    }

    #[test]
    fn a_program_is_not_taken_for_the_interpreter_whose_name_it_begins_with() {
        let own = frames(&[("perlbug", "main"), ("nodetool", "main"), ("python3.11", "main")]);
        assert_eq!(role(&own[0]), FrameRole::User);
        assert_eq!(role(&own[1]), FrameRole::User);
        assert_eq!(role(&own[2]), FrameRole::Runtime("Python"));
    }
}
