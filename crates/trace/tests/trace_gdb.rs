//! Stacks of real, stripped programs beside gdb's: no frame may be wrong, and no name.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails on what goes wrong, reads REQUIRE_ALL and says what it skips"
)]

use crate::waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use unjank_trace::recorder::TraceRecorder;
use unjank_trace::recording::{Backend, StackEnd};
use unjank_trace::stack::names::{Frame, NameCertainty, Names, SIGNAL, SymbolSources};
use unjank_trace::stack::{KnownRegisters, Unwinder};

use waiting::gdb::{Gdb, Seen, Stop};
use waiting::{build, victim};

/// What a comparison found.
#[derive(Debug, Default)]
struct Compared {
    stops: usize,
    frames: usize,
    whole: usize,
    /// How many stacks are followed to their end by two registers, as of a blocked thread.
    whole_by_two: usize,
    named: usize,
    faults: Vec<String>,
}

/// Drops what gdb adds to a name: parameters and template marks of the linker.
fn bare(name: &str) -> &str {
    name.find('(').filter(|at| *at > 0).map_or(name, |at| &name[..at])
}

/// Compares one of our frames to gdb's.
fn compare(frame: &Frame, runtime: u64, seen: &Seen, compared: &mut Compared) {
    let start = frame.offset.map(|offset| runtime - offset);
    if frame.trust > NameCertainty::Exported {
        // Where both know where the function begins, it is the same place.
        if let (NameCertainty::Start, Some(ours), Some(theirs)) = (frame.trust, start, seen.start)
            && ours < theirs
        {
            compared.faults.push(format!("{} begins at {ours:x}: {seen:x?}", frame.text()));
        }
        return;
    }
    compared.named += 1;
    if frame.name == SIGNAL {
        let is_it = seen.name.as_deref().is_none_or(|name| name == "__restore_rt");
        compared.faults.extend((!is_it).then(|| format!("no trampoline: {seen:x?}")));
        return;
    }
    let Some(name) = &seen.name else {
        compared.faults.push(format!("{} at {runtime:x} has no name in gdb", frame.text()));
        return;
    };
    // Several names of one function are all right.
    let is_same_place = start.is_some() && start == seen.start;
    if bare(&frame.name) != bare(name) && !is_same_place {
        compared.faults.push(format!("{} at {runtime:x} is {seen:x?}", frame.text()));
    }
}

/// Compares our stack to gdb's at one stop.
fn check(
    stop: &Stop,
    unwinder: &mut Unwinder,
    names: &mut Names,
    compared: &mut Compared,
) -> Vec<Frame> {
    let began = SystemTime::UNIX_EPOCH;
    let mut recorder = TraceRecorder::new(Backend::Ptrace, Vec::new(), began);
    unwinder.forget(stop.process);
    unwinder.capture(stop.process, &stop.registers, &mut recorder);
    let stack = recorder.recording().stacks[0].clone();
    let frames = names.frames(recorder.recording(), stop.process, &stack);
    let outer: Vec<&Frame> = frames.iter().filter(|frame| !frame.is_inlined).collect();
    compared.stops += 1;
    compared.frames += outer.len();
    compared.whole += usize::from(stack.end == StackEnd::Whole);
    let shown = || outer.iter().map(|frame| frame.text()).collect::<Vec<_>>().join(" < ");
    if outer.len() > stop.frames.len() {
        compared.faults.push(format!("more frames than gdb: {}, {:x?}", shown(), stop.frames));
    }
    if stack.end == StackEnd::Whole && outer.len() < stop.frames.len() {
        compared.faults.push(format!("fewer frames than gdb: {}, {:x?}", shown(), stop.frames));
    }
    let two = KnownRegisters::new(stop.registers.ip(), stop.registers.sp());
    unwinder.capture(stop.process, &two, &mut recorder);
    let by_two = recorder.recording().stacks.last().unwrap();
    compared.whole_by_two += usize::from(by_two.end == StackEnd::Whole);
    if !stack.frames.starts_with(&by_two.frames) {
        compared.faults.push(format!("by two registers {by_two:x?}, by all {stack:x?}"));
    }
    for (at, (frame, seen)) in outer.iter().zip(&stop.frames).enumerate() {
        let same_page = (frame.address.address ^ seen.pc) & 0xfff == 0;
        if !same_page {
            compared.faults.push(format!("frame {at} is {seen:x?}: {}", shown()));
            break;
        }
        compare(frame, seen.pc, seen, compared);
    }
    frames
}

/// The programs, the calls at which they are stopped, and how many of those are let go first.
const PROGRAMS: &[(&[&str], &str, i32)] = &[
    (
        &[
            "/usr/bin/python3",
            "-c",
            "import sqlite3; d = sqlite3.connect('p.db'); d.execute('create table t(a)'); d.execute('insert into t values (1)'); d.commit()",
        ],
        "fdatasync",
        0,
    ),
    (&["/usr/bin/python3", "-c", "import json, decimal, email.mime.text"], "openat", 40),
    (&["/usr/bin/sqlite3", "s.db", "create table t(a); insert into t values (1);"], "fdatasync", 0),
    (
        &[
            "/usr/bin/bash",
            "-c",
            "shopt -s extglob; x=$(</etc/passwd); for f in /etc/*.conf; do read -r y < $f; done",
        ],
        "openat",
        8,
    ),
    (&["/usr/bin/dash", "-c", "cd /etc; for f in *.conf; do read -r y < $f; done"], "openat", 0),
    (&["/usr/bin/perl", "-e", "use File::Find; find(sub { stat $_ }, '/etc/apt')"], "openat", 2),
    (&["/usr/bin/git", "init", "repository"], "mkdir openat", 2),
    (&["/usr/bin/tar", "cf", "a.tar", "/etc/apt"], "openat", 2),
    (&["/usr/bin/find", "/etc/apt", "-name", "x*"], "openat newfstatat", 6),
    (&["/usr/bin/grep", "-r", "nothing", "/etc/apt"], "openat", 1),
    (&["/usr/bin/sed", "-n", "p", "/etc/passwd"], "openat read", 2),
    (&["/usr/bin/sort", "/etc/passwd"], "openat read", 2),
    (&["/usr/bin/ls", "-lR", "/etc/apt"], "openat getdents64", 2),
    (&["/usr/bin/true"], "openat newfstatat", -1),
    (&["/usr/bin/cp", "-r", "/etc/apt", "copy"], "openat", 2),
    (&["/usr/bin/gcc", "-E", "-x", "c", "/dev/null"], "read openat newfstatat", 0),
    (
        &["/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "-quiet", "program.c", "-o", "program.s"],
        "openat read",
        14,
    ),
    (&["/usr/bin/as", "-o", "program.o", "/dev/null"], "openat write", 2),
    (&["/usr/bin/ld", "-o", "program", "/dev/null"], "openat read", 2),
    (&["/usr/bin/gio", "list", "/etc/apt"], "openat getdents64", 20),
    (&["/usr/bin/gsettings", "list-schemas"], "openat", 4),
    (&["/usr/bin/glib-compile-schemas", "--dry-run", "/usr/share/glib-2.0/schemas"], "openat", 8),
    (&["/usr/bin/dbus-uuidgen", "--ensure=./id"], "openat write", 2),
    (&["/usr/bin/strace", "-o", "trace", "/bin/true"], "openat wait4", 2),
    (&["/usr/bin/kde-open5", "--version"], "openat", 60),
    (
        &["/usr/bin/awk", "BEGIN { while ((getline l < \"/etc/passwd\") > 0) n++ }"],
        "openat read",
        6,
    ),
    (&["/usr/bin/node", "-e", "require('fs').readFileSync('/etc/passwd')"], "openat", 2),
];

/// Whether gdb is there; without it there is nothing to compare to.
fn has_gdb() -> bool {
    let is_there = Path::new("/usr/bin/gdb").exists();
    assert!(is_there || std::env::var_os("REQUIRE_ALL").is_none(), "gdb is not installed");
    if !is_there {
        eprintln!("skipped: gdb is not installed");
    }
    is_there
}

/// Runs every second of the programs from `first` on.
fn every_second(first: usize) -> BTreeMap<String, Compared> {
    let mut all: BTreeMap<String, Compared> = BTreeMap::new();
    let mut unwinder = Unwinder::new();
    let mut names = Names::new(SymbolSources::default());
    for (command, calls, skip) in PROGRAMS.iter().skip(first).step_by(2) {
        if !Path::new(command[0]).exists() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(victim("chain.c"), dir.path().join("program.c")).unwrap();
        let mut gdb = Gdb::run(dir.path(), command, calls, *skip, 3);
        let compared = all.entry(format!("{} at {calls}", command[0])).or_default();
        while let Some(stop) = gdb.next() {
            check(&stop, &mut unwinder, &mut names, compared);
            gdb.go_on();
        }
    }
    all
}

#[test]
fn no_frame_and_no_name_differs_from_gdb_s_on_stripped_programs() {
    if !has_gdb() {
        return;
    }
    let other = std::thread::spawn(|| every_second(1));
    let mut all = every_second(0);
    all.extend(other.join().unwrap());
    for (program, compared) in &all {
        eprintln!(
            "{program}: {} stops, {} whole, {} by two registers, {} frames, {} named",
            compared.stops, compared.whole, compared.whole_by_two, compared.frames, compared.named
        );
    }
    let faults = all.iter().flat_map(|(program, compared)| {
        compared.faults.iter().map(move |fault| format!("{program}: {fault}"))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(12)]);
    let programs = all.values().filter(|compared| compared.stops > 0).count();
    assert!(programs >= 20 || std::env::var_os("REQUIRE_ALL").is_none(), "{programs} programs");
}

/// A function as the compiler has it: first address, behind the last, name.
type Function = (u64, u64, String);

/// Lists functions with `nm`.
fn functions(program: &Path, arguments: &[&str]) -> Vec<Function> {
    let output = Command::new("nm").args(arguments).arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut functions: Vec<Function> = text
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.splitn(4, ' ').collect();
            let [start, size, kind, name] = *fields else { return None };
            let hex = |word| u64::from_str_radix(word, 16).ok();
            let (start, size) = (hex(start)?, hex(size)?);
            "tTwW".contains(kind).then(|| (start, start + size, name.to_owned()))
        })
        .collect();
    functions.sort();
    functions
}

/// What is wrong with a name for `address`, by all functions that the program was built from.
fn wrong(address: u64, frame: &Frame, truth: &[Function]) -> Option<String> {
    let real: Vec<&Function> =
        truth.iter().filter(|(start, end, _)| *start <= address && address < *end).collect();
    let start = frame.offset.map(|offset| frame.address.address.wrapping_sub(offset));
    if real.is_empty() {
        return None;
    }
    let begins = real.iter().any(|(begins, _, _)| Some(*begins) == start);
    let is_named = frame.trust <= NameCertainty::Exported;
    let is_name = real.iter().any(|(_, _, name)| {
        let name = name.split('@').next().unwrap_or_default();
        bare(name).ends_with(bare(&frame.name)) || bare(&frame.name).ends_with(bare(name))
    });
    let is_right = match frame.trust {
        NameCertainty::Offset => true,
        // Parts that compilers move away have symbols of their own, and so has everything with an entry in the tables.
        _ if is_named => is_name || begins,
        // The second half of a function written by hand may have an entry of its own in the tables.
        _ => begins || real.iter().any(|(begins, _, _)| start.is_some_and(|start| *begins < start)),
    };
    (!is_right).then(|| format!("{frame:x?} at {address:x} is {real:x?}"))
}

/// Names as tools do that take the nearest symbol below.
fn nearest(address: u64, frame: &Frame, exported: &[Function]) -> Frame {
    let below = exported.iter().rev().find(|(start, _, _)| *start <= address);
    let mut frame = frame.clone();
    if let Some((start, _, name)) = below {
        frame.name = name.clone();
        frame.offset = Some(frame.address.address - start);
        frame.trust = NameCertainty::Exported;
    }
    frame
}

#[test]
fn stripped_stacks_of_every_shape_are_followed_and_named_right() {
    if !has_gdb() {
        return;
    }
    let distribution = [
        "-O2",
        "-fno-omit-frame-pointer",
        "-mno-omit-leaf-frame-pointer",
        "-fstack-clash-protection",
        "-fcf-protection",
        "-rdynamic",
        "-pthread",
    ];
    let builds: [(&str, &[&str], i32); 9] = [
        ("shapes.c", &distribution, 0),
        ("shapes.rs", &["-O", "-Cprefer-dynamic=no", "-Cforce-frame-pointers=yes"], 0),
        ("shapes.c", &["-O0", "-rdynamic", "-pthread"], 0),
        ("shapes.c", &["-O2", "-fomit-frame-pointer", "-rdynamic", "-pthread"], 0),
        ("shapes.c", &["-O2", "-fno-omit-frame-pointer", "-rdynamic", "-pthread"], 0),
        ("shapes.c", &["-O2", "-static", "-pthread"], -1),
        ("shapes.c", &["-O2", "-static-pie", "-pthread"], -1),
        ("shapes.cpp", &["-O2", "-rdynamic"], 0),
        ("shapes.rs", &["-O", "-Cprefer-dynamic=no"], 0),
    ];
    let mut unwinder = Unwinder::new();
    let mut caught = 0;
    for (source, arguments, skip) in builds {
        let dir = tempfile::tempdir().unwrap();
        let program = build(dir.path(), source, arguments);
        let truth = functions(&program, &["-CS", "--defined-only"]);
        let stripped = dir.path().join("stripped");
        let done = Command::new("strip").arg("-o").arg(&stripped).arg(&program).status().unwrap();
        assert!(done.success() && truth.len() > 5, "{source} {arguments:?}");
        let exported = functions(&stripped, &["-CDS", "--defined-only"]);
        let mut names = Names::new(SymbolSources::default());
        let mut compared = Compared::default();
        let mut gdb = Gdb::run(dir.path(), &[stripped.to_str().unwrap()], "read", skip, 40);
        while let Some(stop) = gdb.next() {
            let frames = check(&stop, &mut unwinder, &mut names, &mut compared);
            gdb.go_on();
            for (at, frame) in frames.iter().enumerate().filter(|(_, f)| f.module == "stripped") {
                let address = frame.address.address - u64::from(at > 0);
                compared.faults.extend(wrong(address, frame, &truth));
                let planted = nearest(address, frame, &exported);
                caught += usize::from(wrong(address, &planted, &truth).is_some());
            }
        }
        let Compared { stops, whole, whole_by_two, frames, named, faults } = compared;
        eprintln!(
            "{source} {arguments:?}: {stops} stops, {whole} whole, {whole_by_two} by two registers, {frames} frames, {named} named"
        );
        assert!(
            faults.is_empty(),
            "{} faults: {:#?}",
            faults.len(),
            &faults[..faults.len().min(5)]
        );
        assert!(stops >= 4 && whole >= stops - stops / 4, "{source} {arguments:?}");
        // What takes room on the stack while it runs has a frame that only its pointer tells.
        assert!(whole_by_two >= whole / 2, "{source} {arguments:?}: {whole_by_two}");
    }
    assert!(caught > 50, "names by the nearest symbol must be caught: {caught}");
}
