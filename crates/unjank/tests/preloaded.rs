//! Programs in C with each of our libraries in front of the C library: whatever they do, they do it as without.
//!
//! The programs lie in `preloaded/`. Each prints what it has seen; what it prints with a library is what it prints alone.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fixture::{has, in_time};
use tempfile::TempDir;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// The ways to run a program with a library in front.
const WAYS: [&[&str]; 3] =
    [&["run", "--no-pause", "--"], &["recent", "relax", "--"], &["recent", "private", "--"]];

/// A directory with a home, a runtime directory and a program.
struct Place {
    dir: TempDir,
    program: PathBuf,
}

impl Place {
    /// Compiles a program of `preloaded/`, if there is a compiler.
    fn with(name: &str) -> Option<Place> {
        Place::compiled("gcc", name)
    }

    fn compiled(compiler: &str, name: &str) -> Option<Place> {
        if !has(&[compiler]) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloaded").join(name);
        let program = dir.path().join(name.trim_end_matches(".c"));
        let mut gcc = Command::new(compiler);
        gcc.args(["-O1", "-pthread", "-w", "-o"]).arg(&program).arg(source);
        let output = gcc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for directory in ["home", "run"] {
            fs::create_dir(dir.path().join(directory)).unwrap();
        }
        Some(Place { dir, program })
    }

    /// Runs the program in a directory of its own behind `words` of unjank, or alone.
    fn run(&self, words: Option<&[&str]>) -> Output {
        let work = tempfile::tempdir_in(self.dir.path()).unwrap();
        let mut command = match words {
            Some(words) => {
                let mut command = Command::new(UNJANK);
                command.args(words).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        let home = self.dir.path().join("home");
        command.env("HOME", &home).env("XDG_DATA_HOME", home.join("data"));
        command.env("XDG_RUNTIME_DIR", self.dir.path().join("run"));
        command.current_dir(work.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Fails unless the program does in each way what it does alone. Returns what it prints.
    fn same_in_all_ways(&self) -> String {
        let alone = self.run(None);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for words in WAYS {
            let with = self.run(Some(words));
            let name = words.join(" ");
            let errors = text(&with.stderr);
            assert_eq!(text(&with.stdout), text(&alone.stdout), "unjank {name}: {errors}");
            assert_eq!(errors, text(&alone.stderr), "unjank {name}");
            assert_eq!(with.status, alone.status, "unjank {name}");
        }
        text(&alone.stdout)
    }
}

#[test]
fn posix_locks_are_kept_while_other_threads_close_the_file() {
    let Some(place) = Place::with("locks.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert_eq!(said, "locks are kept\nbefore 1 after 0\n");
    });
}

#[test]
fn a_thread_is_cancelled_where_it_would_be_and_leaves_what_it_would() {
    let Some(place) = Place::with("cancel.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert!(said.contains("write to a full pipe: cancelled, cleaned 1"), "{said}");
    });
}

#[test]
fn results_and_errno_are_the_same() {
    let Some(place) = Place::with("errno.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert!(said.contains("write(file, \"text\", 4): 1 errno 77"), "{said}");
    });
}

#[test]
fn an_address_that_is_nobodys_is_an_error_and_no_crash() {
    let Some(place) = Place::with("efault.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert!(said.contains("unlink(name): -1 errno 14"), "{said}");
    });
}

#[test]
fn signal_handlers_write_files_also_on_a_small_stack() {
    let Some(place) = Place::with("signals.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert_eq!(said, "wrong 0, handled 1\nsaved before the end\n");
    });
}

#[test]
fn children_of_every_kind_start_with_what_is_the_programs_own() {
    let Some(place) = Place::with("processes.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert_eq!(said, "forked 40, vforked 40, started 40 of 40\n");
    });
}

#[test]
fn descriptors_are_the_programs_to_choose_close_and_replace() {
    let Some(place) = Place::with("descriptors.c") else { return };
    in_time(move || {
        let said = place.same_in_all_ways();
        assert!(said.starts_with("one thread: wrong 0\ntwo threads: wrong 0\n"), "{said}");
    });
}

#[test]
fn a_program_of_another_c_library_runs_in_a_job_as_anywhere() {
    let Some(place) = Place::compiled("musl-gcc", "errno.c") else { return };
    in_time(move || {
        let alone = place.run(None);
        let program = place.program.to_str().unwrap();
        // Itself, and started by a program of ours, whose environment it has.
        for words in [&["run", "--"][..], &["run", "--", "sh", "-c", "\"$0\"; exit $?"]] {
            let with = place.run(Some(words));
            assert_eq!(String::from_utf8_lossy(&with.stderr), "", "{words:?}");
            assert_eq!(with.stdout, alone.stdout, "{words:?}");
            assert_eq!(with.status, alone.status, "{words:?}");
        }
        // A list cannot be kept from it, which is said.
        let mut private = Command::new(UNJANK);
        let home = place.dir.path().join("home");
        private.args(["recent", "private", "--", program]).env("HOME", &home);
        let refused = private.env("XDG_DATA_HOME", home.join("data")).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("another C library"), "{said}");
        // One that it starts is not kept from writing, and runs.
        for way in ["relax", "private"] {
            let with = place.run(Some(&["recent", way, "--", "sh", "-c", "\"$0\"; exit $?"]));
            assert_eq!(with.stdout, alone.stdout, "{}", String::from_utf8_lossy(&with.stderr));
        }
    });
}

/// Of a write that failed on its way to the disk the kernel tells each open file once: a library that waits for it must not keep it.
#[test]
fn no_error_of_the_disk_is_kept_from_the_program() {
    in_time(|| {
        if !has(&["unshare", "mkfs.xfs", "losetup", "python3"]) {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return fixture::skip("a file system is mounted by root");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloaded/lost.sh");
        for words in [&[][..], &[UNJANK, "run", "--no-pause", "--"]] {
            let dir = tempfile::tempdir().unwrap();
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh"]).arg(&script).args(words);
            let output = command.env("DIR", dir.path()).env("HOME", dir.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "told\n", "{words:?}: {said}");
        }
    });
}
