//! Stacks of real programs, looked at from outside while they wait.
#![expect(clippy::unwrap_used, reason = "a program that cannot be built or started fails the test")]

mod waiting;

use std::process::Command;
use std::time::SystemTime;

use unjank_probe::trace::recorder::Recorder;
use unjank_probe::trace::recording::{Backend, Stack, StackEnd};
use unjank_probe::trace::stack::names::{Frame, Names, Sources, Trust};
use unjank_probe::trace::stack::{Registers, Unwinder};

use waiting::{Waiting, build};

fn stack_of(process: u32, registers: &Registers, recorder: &mut Recorder) -> Stack {
    let id = Unwinder::new().capture(process, registers, recorder);
    recorder.recording().stacks[usize::try_from(id.0).unwrap()].clone()
}

fn frames_of(process: u32, stack: &Stack, recorder: &mut Recorder) -> Vec<Frame> {
    Names::new(Sources::default()).frames(recorder.recording(), process, stack)
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.name).collect()
}

fn recorder() -> Recorder {
    Recorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH)
}

const READ: u32 = 0;

#[test]
fn a_blocked_thread_is_followed_to_its_start_without_frame_pointers() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "chain.c", &["-O2", "-s"]);
    let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
    let mut recorder = recorder();
    let stack = stack_of(waiting.id(), &registers, &mut recorder);
    // read, inner, middle, outer, main, two of libc's start and _start.
    assert_eq!((stack.frames.len(), stack.end), (8, StackEnd::Whole), "{stack:x?}");
}

#[test]
fn a_stack_that_needs_the_frame_pointer_says_so_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "chain.c", &["-O0", "-fno-omit-frame-pointer", "-s"]);
    let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
    let mut unwinder = Unwinder::new();
    let mut recorder = recorder();
    unwinder.capture(waiting.id(), &registers, &mut recorder);
    assert!(unwinder.lacked_a_register());
    assert_eq!(recorder.recording().stacks[0].end, StackEnd::Lost);
}

#[test]
fn functions_are_named_by_symbols_and_without_them_by_where_they_begin() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for strip in ["-g", "-s"] {
        let program = build(dir.path(), "chain.c", &["-O2", strip]);
        let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
        let mut recorder = recorder();
        let stack = stack_of(waiting.id(), &registers, &mut recorder);
        let frames = frames_of(waiting.id(), &stack, &mut recorder);
        let known = frames[0].name == "read" && frames[0].trust <= Trust::Exported;
        assert!(known, "{frames:?}");
        seen.push(frames);
    }
    let [with, without] = &*seen else { panic!("two builds") };
    assert_eq!(names(with)[1..5], ["inner", "middle", "outer", "main"]);
    let line = with[1].line.clone().unwrap();
    assert!(line.file.ends_with("chain.c") && line.line == 9, "{line:?}");
    for (with, without) in with[1..5].iter().zip(&without[1..5]) {
        let start = with.address.address - with.offset.unwrap();
        assert_eq!(without.text(), format!("chain-c!fn@0x{start:x}"));
        assert_eq!(without.trust, Trust::Start);
    }
}
