//! Languages with a runtime of their own: which functions are the language's, and what a script calls them.

use report::advice::Advice;

use super::names::{Frame, NameCertainty};

/// Packages of Go's runtime and standard library, by the first part of their path.
const GO_PACKAGES: [&str; 24] = [
    "runtime", "syscall", "internal", "os", "io", "bufio", "net", "sync", "time", "fmt", "log",
    "path", "reflect", "context", "encoding", "compress", "archive", "crypto", "database", "bytes",
    "strings", "vendor", "iter", "slices",
];

/// What compilers of C add behind a dot to the name of a part of a function.
const PARTS_OF_C: [&str; 7] = ["part.", "isra.", "constprop.", "cold", "lto_priv.", "llvm.", "0"];

/// Functions that run a script's code, by language and the beginning of the name.
const EVALUATORS: [(&str, &[&str]); 5] = [
    (
        "Python",
        &[
            "_PyEval_",
            "PyEval_",
            "_PyFunction_Vectorcall",
            "PyRun_",
            "_PyRun_",
            "Py_RunMain",
            "Py_BytesMain",
            "pymain_",
        ],
    ),
    ("JavaScript", &["Builtins_", "v8::internal::Execution::", "v8::Function::Call"]),
    ("Perl", &["Perl_runops_", "perl_run", "Perl_pp_entersub"]),
    ("Ruby", &["vm_exec", "rb_vm_exec", "vm_call_", "vm_sendish"]),
    ("Lua", &["luaV_execute", "luaD_"]),
];

/// Functions of Python through which the evaluator calls one that is written in C.
const CALLERS: [&str; 13] = [
    "_Py_",
    "cfunction_",
    "method_vectorcall",
    "vectorcall_",
    "PyObject_",
    "_PyObject_",
    "PyVectorcall_",
    "_PyVectorcall",
    "PyCFunction_",
    "_PyCFunction",
    "type_call",
    "slot_",
    "object_vacall",
];

/// Modules of Python by the beginning of their functions' names in C.
const MODULES: [(&str, &str); 12] = [
    ("os_", "os"),
    ("posix_", "os"),
    ("_io_", "_io"),
    ("time_", "time"),
    ("sock_", "socket.socket"),
    ("socket_", "socket"),
    ("select_", "select"),
    ("fcntl_", "fcntl"),
    ("mmap_", "mmap.mmap"),
    ("signal_", "signal"),
    ("_ssl_", "_ssl"),
    ("pysqlite_", "sqlite3"),
];

/// Functions of the C library that one function of Python alone uses.
const SOLE_USERS: [(&str, &str); 8] = [
    ("fsync", "os.fsync"),
    ("fdatasync", "os.fdatasync"),
    ("sync", "os.sync"),
    ("clock_nanosleep", "time.sleep"),
    ("flock", "fcntl.flock"),
    ("sendfile64", "os.sendfile"),
    ("statvfs64", "os.statvfs"),
    ("waitpid", "os.waitpid"),
];

/// The most of a name of Java that is decoded.
const JAVA_NAME: usize = 512;

/// Returns whether a function of this name belongs to Go's runtime or standard library.
pub(super) fn is_of_go(name: &str) -> bool {
    let Some(at) = name.find(['.', '/']) else { return false };
    let (package, rest) = name.split_at(at);
    let is_part = |rest: &str| PARTS_OF_C.iter().any(|part| rest.starts_with(part));
    GO_PACKAGES.contains(&package) && rest.len() > 1 && !is_part(&rest[1..])
        // Modules outside of the standard library have a host's name; this one is its other half.
        || name.starts_with("golang.org/x/sys/")
}

/// Returns whether a file is a module of Python that is written in C.
pub(super) fn is_extension(file: &str) -> bool {
    file.contains(".cpython-3") && file.ends_with(".so")
}

/// Returns the language to whose library a function belongs that a JIT compiler named; `None` for one of a program.
pub(super) fn library_of(name: &str) -> Option<&'static str> {
    if let Some(function) = name.strip_prefix("py::") {
        let is_library = function.contains("/lib/python3.") && !function.contains("-packages/")
            || function.contains(":<frozen ");
        return is_library.then_some("Python");
    }
    if name.contains(" node:") {
        return Some("JavaScript");
    }
    // `void java.io.FileOutputStream.close()`, and the parts of the machine.
    let method = name.split('(').next()?.rsplit(' ').next()?;
    let is_library = ["java.", "jdk.", "sun.", "javax."].iter().any(|of| method.starts_with(of));
    (is_library || matches!(name, "Interpreter" | "interpreter")).then_some("Java")
}

/// Returns whether `name` is a function of `family` that runs a script's code.
pub(super) fn is_evaluator(family: &str, name: &str) -> bool {
    let names = EVALUATORS.iter().find(|(language, _)| *language == family);
    names.is_some_and(|(_, names)| names.iter().any(|start| name.starts_with(start)))
}

/// Returns whether `name` is a function of Python through which another one is called.
pub(super) fn is_caller(name: &str) -> bool {
    CALLERS.iter().any(|start| name.starts_with(start))
}

/// Returns whether programs of this family run scripts.
pub(super) fn runs_scripts(family: &str) -> bool {
    family == "Java" || EVALUATORS.iter().any(|(language, _)| *language == family)
}

/// Returns whether a script of `family` knows the function in `frame`.
pub(super) fn is_known(family: &str, frame: &Frame) -> bool {
    match family {
        "Python" => is_named(frame) && of_python(&frame.name).is_some(),
        "JavaScript" => frame.name.starts_with("node::"),
        _ => is_named(frame),
    }
}

/// Returns whether a frame has a name.
pub(super) fn is_named(frame: &Frame) -> bool {
    frame.trust <= NameCertainty::Compiled
}

/// Returns what a script calls the function of the interpreter in `frame`, which made the call by the function `of_libc`; `None`
/// if its name says it already.
pub(super) fn script_name(family: &str, frame: &Frame, of_libc: Option<&str>) -> Option<String> {
    if is_named(frame) && !is_evaluator(family, &frame.name) {
        return match family {
            "Python" => of_python(&frame.name),
            "Java" => of_java(&frame.name),
            _ => None,
        };
    }
    // Without symbols only what uses a function of the C library can tell.
    let sole = |(function, _): &&(&str, &str)| Some(*function) == of_libc;
    let known = SOLE_USERS.iter().find(sole).filter(|_| family == "Python");
    Some(known.map_or("builtin", |(_, name)| *name).to_owned())
}

/// `os_fsync_impl` is `os.fsync`, `_io_FileIO_write` is `_io.FileIO.write`.
fn of_python(name: &str) -> Option<String> {
    let name = name.split('.').next()?;
    let name = name.strip_suffix("_impl").unwrap_or(name);
    let (start, module) = MODULES.iter().find(|(start, _)| name.starts_with(start))?;
    let rest = name.strip_prefix(start).filter(|rest| !rest.is_empty())?;
    // A class begins with a capital letter; its methods follow.
    let bare = rest.trim_start_matches('_');
    let hidden = rest.strip_suffix(bare).unwrap_or_default();
    let rest = match bare.split_once('_') {
        Some((class, method))
            if class.starts_with(|c: char| c.is_ascii_uppercase()) && !method.is_empty() =>
        {
            format!("{hidden}{class}.{method}")
        }
        _ => format!("{hidden}{bare}"),
    };
    Some(format!("{module}.{rest}"))
}

/// `Java_sun_nio_ch_FileDispatcherImpl_force0` is `sun.nio.ch.FileDispatcherImpl.force0`, by the rules of JNI.
fn of_java(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("Java_")?.get(..JAVA_NAME.min(name.len() - 5))?;
    let mut text = String::new();
    while let Some(at) = rest.find('_') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.as_bytes().first() {
            Some(b'1') => text.push('_'),
            // The signature of an overloaded method.
            Some(b'_') => return Some(text),
            // A character of the world's other scripts, and marks in signatures, stay as they are.
            Some(b'0' | b'2' | b'3') => {
                text.push('_');
                continue;
            }
            _ => {
                text.push('.');
                continue;
            }
        }
        rest = &rest[1..];
    }
    text.push_str(rest);
    Some(text)
}

/// Returns what shows the functions of a script of `family`, if there is a way.
pub(crate) fn advice(family: &str) -> Option<Advice> {
    let (text, command) = match family {
        "Python" => (
            "Python from 3.12 on writes down its functions with this option",
            "python3 -X perf SCRIPT",
        ),
        "JavaScript" => (
            "Node writes down its functions with these options",
            "node --perf-basic-prof --interpreted-frames-native-stack SCRIPT",
        ),
        "Java" => (
            "Java from 17 on writes down, when it ends, which functions it has compiled, with these options",
            "java -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit PROGRAM",
        ),
        _ => return None,
    };
    Some(Advice { text: text.to_owned(), command: Some(command.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_go_s_library_are_told_from_those_of_programs() {
        for name in [
            "internal/runtime/syscall.Syscall6",
            "syscall.Syscall",
            "os.(*File).Sync",
            "runtime.goexit.abi0",
            "golang.org/x/sys/unix.Fsync",
        ] {
            assert!(is_of_go(name), "{name}");
        }
        for name in [
            "main.main",
            "main.(*store).save",
            "github.com/someone/os.Sync",
            "os.part.0",
            "runtime.cold",
            "os",
            "runtime",
            "osmain.run",
            "",
        ] {
            assert!(!is_of_go(name), "{name}");
        }
    }

    #[test]
    fn functions_in_c_have_the_names_that_scripts_know() {
        for (c, script) in [
            ("os_fsync", "os.fsync"),
            ("os_fsync_impl.isra.0", "os.fsync"),
            ("_io_FileIO_write_impl", "_io.FileIO.write"),
            ("_io__Buffered_read1", "_io._Buffered.read1"),
            ("os__exit", "os._exit"),
            ("time_sleep", "time.sleep"),
            ("sock_recv", "socket.socket.recv"),
        ] {
            assert_eq!(of_python(c).as_deref(), Some(script));
        }
        assert_eq!(of_python("_Py_write_impl"), None);
        assert_eq!(of_python("os_"), None);
        let java = "Java_sun_nio_ch_FileDispatcherImpl_force0";
        assert_eq!(of_java(java).as_deref(), Some("sun.nio.ch.FileDispatcherImpl.force0"));
        assert_eq!(of_java("Java_a_B_1c__I").as_deref(), Some("a.B_c"));
        assert_eq!(of_java("JavaMain"), None);
        assert_eq!(of_java("Java_").as_deref(), Some(""));
        assert_eq!(
            of_java(&format!("Java_{}", "_1".repeat(5000))).map(|name| name.len()),
            Some(256)
        );
    }
}
