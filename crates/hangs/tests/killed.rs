//! The recorder with programs in the kernel is killed beside a program that hangs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use sys::bpf::KernelObject;
use sys::clock::SystemClock;
use unjank_hangs::recorder::{ThreadSource, record};

use super::kernel::{load, reports};
use super::recorder::{Interactive, options, store_of, stored, until};

#[test]
fn a_recorder_that_is_killed_keeps_what_it_told_and_harms_nobody() {
    const STORE: &str = "UNJANK_TEST_HANG_STORE";
    if let Some(dir) = std::env::var_os(STORE) {
        let source = ThreadSource::Kernel(Box::new(reports().unwrap()));
        let (disk, clock) = (store::disk::real(), SystemClock::start());
        let options = options(Path::new(&dir));
        record(&options, source, &disk, &clock, &AtomicBool::new(false), &mut |_| {}).unwrap();
        return;
    }
    if load().is_none() {
        return;
    }
    let name = "killed::a_recorder_that_is_killed_keeps_what_it_told_and_harms_nobody";
    let root = tempfile::tempdir().unwrap();
    let mut program = Interactive::start_with(&root, "poll");
    let rounds = std::env::var("HANGS_KILLS").ok().and_then(|rounds| rounds.parse().ok());
    let mut told = BTreeMap::new();
    for round in 0..rounds.unwrap_or(3_u32) {
        let held = File::create(&program.lock).unwrap();
        if round % 3 == 2 {
            held.lock().unwrap();
            program.begin(b'l');
        }
        let mut recorder = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(STORE, store_of(&root))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let own = || in_kernel(recorder.id());
        let mut left =
            until("the recorder in the kernel", || Some(own()).filter(|own| !own.is_empty()));
        // What it is doing then differs: a hang that goes on is stored, one has begun, or it only just starts, beside one.
        if round % 3 != 2 {
            program.mark_now();
            let since_ns = program.ordered_ns;
            until("the recorder to follow the program", || {
                program.order(b's');
                program.last_hang(&root).filter(|hang| hang.started_ns > since_ns)
            });
            left = own();
            held.lock().unwrap();
            program.wait_until_at_rest();
            program.begin(b'l');
        }
        if round % 3 == 0 {
            until("a hang that goes on", || program.hang_of_order(&root));
        }
        told.extend(stored(&root).hangs);
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        held.unlock().unwrap();
        program.finished();
        for (kind, number) in left {
            let gone = || (!kind.is_there(number).unwrap()).then_some(());
            until(&format!("{kind:?} {number} to leave the kernel after round {round}"), gone);
        }
        let kept = stored(&root).hangs;
        for (number, hang) in &told {
            let kept = kept.get(number);
            let is_there = kept.is_some_and(|kept| {
                kept.started_ns == hang.started_ns && kept.length_ns >= hang.length_ns
            });
            assert!(is_there, "of round {round}: told {hang:?}, kept {kept:?}");
        }
        if round % 3 == 0 {
            let hang = program.hang_of_order(&root).unwrap();
            assert!(hang.goes_on, "{hang:?}");
        }
        for _ in 0..20 {
            program.order(b'b');
        }
    }
}

/// Returns what a process has in the kernel: its programs, maps and links.
fn in_kernel(process: u32) -> Vec<(KernelObject, u32)> {
    let kinds = [
        ("prog_id:", KernelObject::Program),
        ("map_id:", KernelObject::Map),
        ("link_id:", KernelObject::Link),
    ];
    let mut own = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap().flatten() {
        let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
        for line in text.lines() {
            own.extend(kinds.iter().find_map(|(name, kind)| {
                Some((*kind, line.strip_prefix(name)?.trim().parse::<u32>().ok()?))
            }));
        }
    }
    own
}
