//! Marks of a program, and calls that are kept however short they are, by every backend that sees calls.
#![expect(clippy::disallowed_methods, clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a program that cannot be started fails the test")]

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use unjank_trace::backend::{self, TraceError, TraceOptions, TraceTarget};
use unjank_trace::recording::{Backend, Recording, Target};
use unjank_trace::syscall::call_number;

const BACKENDS: [Backend; 3] = [Backend::Seccomp, Backend::Ptrace, Backend::Bpf];

/// Longer than any call of these programs, so that none is slow.
const NEVER: Duration = Duration::from_secs(3600);

/// Records `script` with each backend that this user may use.
fn each(script: &str, kept: &[u32], check: impl Fn(&str, &Recording)) {
    for with in BACKENDS {
        let arguments = ["sh", "-c", script].map(OsString::from).into();
        let program = backend::ProgramToStart { arguments, ..Default::default() };
        let mut options = TraceOptions::new(TraceTarget::Run(program), "blocking".parse().unwrap());
        (options.backend, options.threshold) = (Some(with), NEVER);
        options.kept = kept.to_vec();
        match backend::run(&options, &Arc::new(AtomicBool::new(false))) {
            Ok(outcome) => check(with.name(), &outcome.recording),
            Err(TraceError::Backend { reason, .. }) => {
                assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {reason}");
                eprintln!("SKIPPED: {reason}");
            }
            Err(error) => panic!("{with:?}: {error}"),
        }
    }
}

#[test]
fn a_mark_is_recorded_in_its_order_whichever_call_looks_it_up() {
    let script = "test -e /unjank-mark/by-a-shell; ls /unjank-mark/by_stat 2>&-; test -e /unjank-mark; \
        test -e /unjank-mark/; test -e /unjank-mark/a/b; test -e /unjank-other/x; \
        cat /unjank-mark/by.open 2>&-; cat /nowhere/unjank-mark/x 2>&-; exit 0";
    each(script, &[], |context, recording| {
        let mut names: Vec<&str> = recording.marks.iter().map(|mark| mark.name.as_str()).collect();
        // A program may look more than once.
        names.dedup();
        assert_eq!(names, ["by-a-shell", "by_stat", "by.open"], "{context}");
        let times: Vec<u64> = recording.marks.iter().map(|mark| mark.at_ns).collect();
        assert!(times.is_sorted() && times.last() <= Some(&recording.length_ns), "{context}");
        assert!(recording.slow.is_empty(), "{context}: a mark is no slow call");
    });
}

#[test]
fn a_call_that_is_kept_has_its_file_and_its_callers_however_short_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let short = format!("dd if=/dev/zero of={} bs=1 count=1 conv=fdatasync 2>&-", path.display());
    let stays = format!(
        "exec python3 -c 'import os, time
with open(\"{}\", \"w\") as file:
    os.fdatasync(file.fileno())
time.sleep(0.5)'",
        path.display()
    );
    let fdatasync = call_number("fdatasync").unwrap();
    for (script, stays) in [(&short, false), (&stays, true)] {
        each(script, &[fdatasync], |context, recording| {
            let [call] = &recording.slow[..] else { panic!("{context}: {:?}", recording.slow) };
            assert_eq!(call.number, fdatasync, "{context}");
            let target = &recording.targets[usize::try_from(call.target.unwrap().0).unwrap()];
            let is_file = matches!(target, Target::File { path: found, .. }
                if *found == path.as_os_str().as_encoded_bytes());
            assert!(is_file, "{context}: {target:?}");
            let stack = &recording.stacks[usize::try_from(call.stack.unwrap().0).unwrap()];
            // Nothing holds a program for bpf: it may have ended before its mappings were read.
            let is_held = stays || context != Backend::Bpf.name();
            assert!(stack.frames.len() > 2 || !is_held, "{context}: {stack:?}");
        });
    }
}
