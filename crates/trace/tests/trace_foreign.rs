//! Programs whose calls have other numbers: none of them is told as the call of 64 bits that has its number.
#![expect(clippy::unwrap_used, reason = "a program that cannot be built or started fails the test")]

use crate::skip;
use crate::waiting::victim;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use unjank_trace::backend::{self, ProgramToStart, TraceOptions, TraceTarget};
use unjank_trace::recording::{Backend, Recording};
use unjank_trace::syscall::{call_name, call_number};
use unjank_trace::syscall_set::Set;

const BACKENDS: [Backend; 4] = [Backend::Bpf, Backend::Seccomp, Backend::Ptrace, Backend::Peek];

/// Builds the program that makes such calls, for this word size; none where that cannot be built or run.
fn built(dir: &Path, bits: &str) -> Option<PathBuf> {
    let program = dir.join("foreign").with_extension(bits.trim_start_matches('-'));
    let mut command = Command::new("gcc");
    command.args([bits, "-O1", "-static", "-nostdlib", "-fno-pie", "-no-pie"]);
    command.args(["-fno-stack-protector", "-o"]).arg(&program).arg(victim("foreign.c"));
    let is_built = command.stderr(Stdio::null()).status().unwrap().success();
    let run = || Command::new(&program).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if is_built && run().is_ok_and(|status| status.success()) {
        return Some(program);
    }
    skip("this machine builds or runs no 32-bit programs");
    None
}

fn can(backend: Backend) -> bool {
    let can = backend != Backend::Bpf || backend::bpf::is_allowed();
    if !can {
        skip("no programs can be loaded into this kernel");
    }
    can
}

fn record(backend: Backend, subject: TraceTarget, calls: &str, stop: bool) -> Recording {
    let mut options = TraceOptions::new(subject, calls.parse().unwrap());
    options.backend = Some(backend);
    backend::run(&options, &Arc::new(AtomicBool::new(stop))).unwrap().recording
}

/// A shell that becomes the program.
fn command(program: &Path) -> TraceTarget {
    let line = format!("exec {} </dev/null >/dev/null", program.display());
    let arguments = ["/bin/sh", "-c", &line].map(Into::into).to_vec();
    TraceTarget::Run(ProgramToStart { arguments, ..ProgramToStart::default() })
}

/// Returns the calls of 64 bits that have the numbers of those that the program made, as far as they are told; the shell makes none.
fn mistaken(recording: &Recording) -> Vec<&'static str> {
    let counted = recording.totals.keys().map(|(_, number)| *number);
    let told = counted.chain(recording.slow.iter().map(|call| call.number));
    let names = told.filter_map(call_name);
    names.filter(|name| matches!(*name, "swapoff" | "getresuid")).collect()
}

#[test]
fn a_program_of_32_bits_is_counted_whatever_calls_are_chosen_and_however_it_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "-m32") else { return };
    for backend in BACKENDS.into_iter().filter(|backend| can(*backend)) {
        for calls in ["fsync", "blocking", "all"] {
            let recording = record(backend, command(&program), calls, false);
            assert!(recording.foreign_calls > 0, "{backend:?} {calls}: {:?}", recording.notes);
            assert_eq!(mistaken(&recording), Vec::<&str>::new(), "{backend:?} {calls}");
            let notes = recording.notes.join("\n");
            assert!(notes.contains("32-bit"), "{backend:?} {calls}: {notes}");
        }
    }
}

/// A program that waits for its input; it ends with the test.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_of_32_bits_that_runs_already_is_counted_and_its_call_is_not_taken_for_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "-m32") else { return };
    let mut child = Command::new(&program);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut waiting = Waiting(child);
    let id = waiting.0.id();
    waiting.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // It is in `read`, whose number is that of `close`.
    let in_call = || std::fs::read_to_string(format!("/proc/{id}/syscall")).unwrap();
    while !in_call().starts_with("3 ") {
        crate::waiting::pause();
    }
    assert_eq!(call_name(3), call_number("close").and_then(call_name));
    let backends = BACKENDS.into_iter().filter(|backend| *backend != Backend::Seccomp);
    for backend in backends.filter(|backend| can(*backend)) {
        for calls in ["fsync", "blocking", "all"] {
            let recording = record(backend, TraceTarget::Attach(id), calls, true);
            assert!(recording.foreign_calls > 0, "{backend:?} {calls}: {:?}", recording.notes);
            assert!(recording.slow.is_empty(), "{backend:?} {calls}: {:?}", recording.slow);
        }
    }
}

#[test]
fn calls_of_32_bit_code_in_a_program_of_64_bits_are_counted_and_not_taken_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "-m64") else { return };
    for backend in [Backend::Bpf, Backend::Ptrace].into_iter().filter(|backend| can(*backend)) {
        let recording = record(backend, command(&program), &Set::all().to_string(), false);
        assert!(recording.foreign_calls >= 4, "{backend:?}: {:?}", recording.notes);
        assert_eq!(mistaken(&recording), Vec::<&str>::new(), "{backend:?}");
    }
}
