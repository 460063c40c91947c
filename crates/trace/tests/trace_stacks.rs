//! Stacks of real programs, looked at from outside while they wait.
#![expect(clippy::unwrap_used, reason = "a program that cannot be built or started fails the test")]

use crate::waiting;

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use unjank_trace::recorder::TraceRecorder;
use unjank_trace::recording::{Backend, Stack, StackEnd};
use unjank_trace::stack::names::{Frame, NameCertainty, Names, SymbolSources};
use unjank_trace::stack::{KnownRegisters, Unwinder};

use waiting::{Waiting, build};

pub(crate) fn stack_of(
    process: u32,
    registers: &KnownRegisters,
    recorder: &mut TraceRecorder,
) -> Stack {
    let id = Unwinder::new().capture(process, registers, recorder);
    recorder.recording().stacks[usize::try_from(id.0).unwrap()].clone()
}

fn frames_of(process: u32, stack: &Stack, recorder: &mut TraceRecorder) -> Vec<Frame> {
    Names::new(SymbolSources::default()).frames(recorder.recording(), process, stack)
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.name).collect()
}

pub(crate) fn recorder() -> TraceRecorder {
    TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH)
}

pub(crate) const READ: u32 = 0;

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

/// How the programs of distributions with frame pointers are built, and programs without optimisation.
const WITH_FRAME_POINTERS: &[&[&str]] = &[
    &["-O0"],
    &["-O1", "-fno-omit-frame-pointer", "-fstack-clash-protection"],
    &["-O2", "-fno-omit-frame-pointer", "-fno-stack-clash-protection", "-fstack-protector-strong"],
    &[
        "-O2",
        "-fno-omit-frame-pointer",
        "-mno-omit-leaf-frame-pointer",
        "-fstack-clash-protection",
        "-fcf-protection",
    ],
    &["-Os", "-fno-omit-frame-pointer", "-fno-plt"],
];

#[test]
fn a_blocked_thread_is_followed_to_its_start_with_frame_pointers() {
    for (number, arguments) in WITH_FRAME_POINTERS.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let program = build(dir.path(), "frame_pointers.c", arguments);
        let shapes: [(&str, &[&str]); 13] = [
            ("none", &["none", "main"]),
            ("small", &["small", "main"]),
            ("called_back", &["small", "calls_back", "called_back", "main"]),
            ("of_128", &["of_128", "main"]),
            ("large", &["large", "main"]),
            ("of_pages", &["of_pages", "main"]),
            ("of_many_pages", &["of_many_pages", "main"]),
            ("keeps", &["keeps", "main"]),
            ("names_it", &["of_nine", "pushes", "names_it", "main"]),
            ("over_others", &["leaves", "over_others", "main"]),
            ("many_large", &["large", "left_by_many", "many_large", "main"]),
            ("many_of_pages", &["of_pages", "left_by_many", "many_of_pages", "main"]),
            ("many_pushes", &["of_nine", "pushes", "left_by_many", "many_pushes", "main"]),
        ];
        for (shape, expected) in shapes {
            let (waiting, registers) = Waiting::start(Command::new(&program).arg(shape), READ);
            let mut recorder = recorder();
            let stack = stack_of(waiting.id(), &registers, &mut recorder);
            let frames = frames_of(waiting.id(), &stack, &mut recorder);
            let outer: Vec<Frame> = frames.into_iter().filter(|frame| !frame.is_inlined).collect();
            let names = names(&outer);
            assert!(names[1..].starts_with(expected), "{number} {shape}: {names:?}");
            assert_eq!(stack.end, StackEnd::Whole, "{number} {shape}: {names:?}");
        }
    }
}

#[test]
fn a_frame_that_only_its_pointer_tells_ends_the_stack_and_is_told() {
    for arguments in WITH_FRAME_POINTERS {
        let dir = tempfile::tempdir().unwrap();
        let program = build(dir.path(), "frame_pointers.c", arguments);
        // Whatever earlier calls of the same function left on the stack.
        for (shape, step) in [
            ("takes_room", "0"),
            ("aligned", "0"),
            ("many_takes_room", "16"),
            ("many_takes_room", "32"),
            ("many_takes_room", "80"),
            ("many_aligned", "16"),
            ("many_aligned", "32"),
        ] {
            let mut command = Command::new(&program);
            let (waiting, registers) = Waiting::start(command.args([shape, step]), READ);
            let mut unwinder = Unwinder::new();
            let mut recorder = recorder();
            unwinder.capture(waiting.id(), &registers, &mut recorder);
            assert!(unwinder.lacked_a_register(), "{arguments:?} {shape} {step}");
            let stack = &recorder.recording().stacks[0];
            assert_eq!(
                (stack.frames.len(), stack.end),
                (2, StackEnd::Lost),
                "{arguments:?} {shape} {step}"
            );
        }
    }
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
        let known = frames[0].name == "read" && frames[0].trust <= NameCertainty::Exported;
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
        assert_eq!(without.trust, NameCertainty::Start);
    }
}

/// Runs a tool of binutils or the like.
pub(crate) fn tool(program: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Names the second to fifth frame of `program`, which waits in `read`.
fn names_of(program: &Path, sources: SymbolSources) -> Vec<String> {
    let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
    let mut recorder = recorder();
    let stack = stack_of(waiting.id(), &registers, &mut recorder);
    let frames = Names::new(sources).frames(recorder.recording(), waiting.id(), &stack);
    frames.iter().skip(1).take(4).map(|frame| frame.name.clone()).collect()
}

#[test]
fn names_come_from_wherever_the_debug_file_of_a_stripped_program_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let nowhere = || SymbolSources {
        debug_directories: Vec::new(),
        compiled: None,
        ..SymbolSources::default()
    };
    let expected = ["inner", "middle", "outer", "main"];
    let full = build(dir.path(), "chain.c", &["-O2", "-g", "-Wl,--build-id=0x00112233445566"]);
    let (debug, stripped) = (at("chain.debug"), at("stripped"));
    tool("objcopy", &["--only-keep-debug".as_ref(), full.as_ref(), debug.as_ref()]);
    tool("strip", &["-o".as_ref(), stripped.as_ref(), full.as_ref()]);
    assert!(names_of(&stripped, nowhere())[0].starts_with("fn@"));

    let by_id = at("debug/.build-id/00");
    std::fs::create_dir_all(&by_id).unwrap();
    std::fs::copy(&debug, by_id.join("112233445566.debug")).unwrap();
    let directories = SymbolSources { debug_directories: vec![at("debug")], ..nowhere() };
    assert_eq!(names_of(&stripped, directories), expected);

    let fetched = at("cache/00112233445566");
    std::fs::create_dir_all(&fetched).unwrap();
    std::fs::copy(&debug, fetched.join("debuginfo")).unwrap();
    let cache = SymbolSources { debuginfod_cache: Some(at("cache")), ..nowhere() };
    assert_eq!(names_of(&stripped, cache), expected);

    let inside = at("inside");
    let pack = "import lzma, sys; open(sys.argv[2], 'wb').write(lzma.compress(open(sys.argv[1], 'rb').read()))";
    tool("python3", &["-c".as_ref(), pack.as_ref(), full.as_ref(), at("packed").as_ref()]);
    let section = format!(".gnu_debugdata={}", at("packed").display());
    tool(
        "objcopy",
        &["--add-section".as_ref(), section.as_ref(), stripped.as_ref(), inside.as_ref()],
    );
    assert_eq!(names_of(&inside, nowhere()), expected);
}

#[test]
fn a_linked_debug_file_counts_only_with_the_sum_that_the_program_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let full = build(dir.path(), "chain.c", &["-O2", "-g", "-Wl,--build-id=none"]);
    let (debug, stripped) = (at("chain.debug"), at("stripped"));
    tool("objcopy", &["--only-keep-debug".as_ref(), full.as_ref(), debug.as_ref()]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    tool("objcopy", &["--strip-all".as_ref(), link.as_ref(), full.as_ref(), stripped.as_ref()]);
    assert_eq!(names_of(&stripped, SymbolSources::default()), ["inner", "middle", "outer", "main"]);
    let mut other = std::fs::OpenOptions::new().append(true).open(&debug).unwrap();
    std::io::Write::write_all(&mut other, b"changed").unwrap();
    assert!(names_of(&stripped, SymbolSources::default())[0].starts_with("fn@"));
}

#[test]
fn a_deleted_program_is_followed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "chain.c", &["-O2", "-s"]);
    let (waiting, registers) = Waiting::start(&mut Command::new(&program), READ);
    std::fs::remove_file(&program).unwrap();
    // Another file has its name now, and must not be taken for it.
    build(dir.path(), "chain.c", &["-O0", "-g"]);
    let mut recorder = recorder();
    let stack = stack_of(waiting.id(), &registers, &mut recorder);
    assert_eq!((stack.frames.len(), stack.end), (8, StackEnd::Whole), "{stack:x?}");
    let frames = frames_of(waiting.id(), &stack, &mut recorder);
    assert!(!names(&frames).contains(&"inner"), "{frames:?}");
}

#[test]
fn a_copy_of_the_stack_gives_the_same_as_the_process_itself() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "chain.c", &["-O2", "-s"]);
    let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
    let mut recorder = recorder();
    let mut copy = vec![0; 16 << 10];
    let memory = std::fs::File::open(format!("/proc/{}/mem", waiting.id())).unwrap();
    let len = std::os::unix::fs::FileExt::read_at(&memory, &mut copy, registers.sp()).unwrap();
    let mut unwinder = Unwinder::new();
    let direct = unwinder.capture(waiting.id(), &registers, &mut recorder);
    let copied = unwinder.offline(waiting.id(), &registers, &copy[..len], &mut recorder);
    assert_eq!(direct, copied);
    let short = unwinder.offline(waiting.id(), &registers, &copy[..64], &mut recorder);
    let stack = &recorder.recording().stacks[usize::try_from(short.0).unwrap()];
    assert_eq!(stack.end, StackEnd::Cut, "a copy that is too short says so");
}
