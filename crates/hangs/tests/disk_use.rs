//! What else disks did while a program hung.

use std::fs::File;
use std::io::Write;

use report::paint::Paint;
use report::text::Charset;
use tempfile::TempDir;
use unjank_hangs::model::{CountedProcesses, DiskUser, Hang};
use unjank_hangs::text::HangTextStyle;

use crate::fuzz_hangs::hang;
use crate::kernel::start;
use crate::loops::start_sampling;
use crate::recorder::Interactive;

/// What this process writes each time.
const WRITTEN: usize = 1 << 20;

fn own_written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

/// Has a program wait for a lock while this process writes to a disk.
#[expect(clippy::print_stderr, reason = "whoever reads the test's output sees what was not tested")]
fn check_writer(root: &TempDir, program: &mut Interactive) {
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut file = File::create(on_disk.path().join("written")).unwrap();
    let mut write = move || {
        file.write_all(&[7; WRITTEN]).unwrap();
        file.sync_data().unwrap();
    };
    let before = own_written();
    write();
    if own_written() == before {
        eprintln!("not tested: {} is in memory", env!("CARGO_TARGET_TMPDIR"));
        return;
    }
    // After a look through many processes there is none for a while.
    for _ in 0..20 {
        let hang = program.hang_of_lock_while(root, &mut write);
        let Some(used) = hang.disk_use else { continue };
        assert!(used.counted_ns <= hang.length_ns, "{used:?}");
        let own = used.programs.iter().find(|user| user.process == std::process::id());
        let own = own.unwrap_or_else(|| panic!("{used:?}"));
        assert!(own.written_bytes >= WRITTEN as u64 && !own.program.is_empty(), "{used:?}");
        return;
    }
    panic!("nothing was counted in any of the hangs");
}

#[test]
fn who_writes_while_a_program_waits_is_told() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    check_writer(&root, &mut program);
}

#[test]
fn by_sampling_who_writes_while_a_program_waits_is_told_too() {
    let root = tempfile::tempdir().unwrap();
    let (_recorder, mut program) = start_sampling(&root);
    check_writer(&root, &mut program);
}

fn sheet(hang: &Hang) -> String {
    let now = jiff::Zoned::now();
    let paint = Paint::new(false, Charset::Unicode);
    let applied = &unjank_hangs::remedy::AppliedRemedies::NONE;
    HangTextStyle { home: None, now: &now, paint, width: 80, applied }.sheet(hang)
}

#[test]
fn a_sheet_names_units_and_says_which_processes_were_not_looked_at() {
    let mut hang = hang(1);
    let used = hang.disk_use.as_mut().unwrap();
    used.programs = vec![DiskUser {
        program: "packagekit.service".to_owned(),
        process: 0,
        read_bytes: 4_000_000,
        written_bytes: 5_000_000,
    }];
    for (processes, said) in [
        (CountedProcesses::All, None),
        (CountedProcesses::Newest, Some("only the newest 2048")),
        (CountedProcesses::TooMany, Some("more than 4096")),
        (CountedProcesses::Hidden, Some("hidepid")),
    ] {
        hang.disk_use.as_mut().unwrap().processes = processes;
        let text = sheet(&hang);
        let line = text.lines().find(|line| line.contains("packagekit.service")).unwrap();
        assert!(!line.split_whitespace().any(|word| word == "0"), "it is no process: {line}");
        let sentences = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(sentences.contains("looked at"), said.is_some(), "{text}");
        assert!(said.is_none_or(|said| sentences.contains(said)), "{text}");
        assert!(text.contains("\nWhere it waited in the kernel\n  io_schedule\n"), "{text}");
    }
}
