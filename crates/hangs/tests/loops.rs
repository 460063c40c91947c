//! Waits and looks for events of loops inside of a step, and what is none.

use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use unjank_hangs::model::{Hang, HangCause};
use unjank_hangs::recorder::ThreadSource;

use super::kernel::{hangs_since, reports, start};
use super::recorder::{Interactive, TestRecorder, blamed, stored, until};

/// Starts a program and a recorder that samples, and waits until the recorder follows the program.
pub(crate) fn start_sampling(root: &TempDir) -> (TestRecorder, Interactive) {
    let recorder = TestRecorder::start(root);
    let mut program = Interactive::start(root);
    program.be_noticed(root);
    (recorder, program)
}

/// Returns whether a program waited much for a processor: others kept them busy, perhaps from the recorder, too.
fn is_disturbed(hang: &Hang) -> bool {
    hang.parts.ready_ns.saturating_mul(4) > hang.length_ns
}

/// No rest between two orders but that of a turn of the main loop.
const AT_ONCE: Duration = Duration::ZERO;

/// Gives orders one after the other, with a rest `between` them, and then one to sleep; returns the hangs of all of them.
fn hangs_of_orders(
    root: &TempDir,
    program: &mut Interactive,
    orders: &[u8],
    between: Duration,
) -> Vec<Hang> {
    program.mark_now();
    let since_ns = program.ordered_ns;
    for order in orders {
        program.order(*order);
        rest(between);
    }
    // Hangs are stored in their order.
    program.order(b's');
    program.ended_hang(root);
    hangs_since(root, program, since_ns)
}

#[test]
fn a_dialog_with_a_loop_of_its_own_is_no_hang_once_its_wait_is_classified() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    until("a dialog that is no hang", || {
        program.mark_now();
        let since_ns = program.ordered_ns;
        program.order(b'd');
        // Hangs are stored in their order.
        program.order(b's');
        let hang = program.ended_hang(&root);
        assert_eq!(&*blamed(&hang), "sleep_on_purpose", "{hang:?}");
        (hangs_since(&root, &program, since_ns).len() == 1).then_some(())
    });
}

#[test]
fn a_dialog_whose_waits_are_all_short_is_no_hang() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    let hangs = hangs_of_orders(&root, &mut program, b"a", AT_ONCE);
    let of_dialog = hangs.iter().filter(|hang| blamed(hang) != "sleep_on_purpose");
    let lengths: Vec<u64> = of_dialog.map(|hang| hang.length_ns / 1_000_000).collect();
    // On a busy machine the first looks at it may be late.
    assert!(lengths.iter().all(|ms| *ms < 500), "{lengths:?}");
}

/// Starts a program that has much to do before it waits, in one of several ways; its long steps take 400 ms and are told as `most` ms at most.
fn check_start(how: &str, most: u64) {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let _recorder = TestRecorder::start_with(&root, ThreadSource::Kernel(Box::new(reports)));
    let mut program = Interactive::start_with(&root, how);
    if sys::perf::ThreadSampler::at_instruction(program.child.id(), 0x1000).is_err() {
        // Looks that take no time are not seen here.
        return;
    }
    // It says so when it has started, after some seconds.
    program.finished();
    program.order(b's');
    program.ended_hang(&root);
    let hangs = hangs_since(&root, &program, 0);
    if hangs.iter().any(is_disturbed) {
        return;
    }
    // Of one that says that it may have begun earlier a part was seen: the program was found in the middle of it.
    let is_whole = |hang: &&Hang| !hang.unseen.has_unseen_time();
    let of_start = hangs.iter().filter(|hang| blamed(hang) == "compute_things").filter(is_whole);
    let lengths: Vec<u64> = of_start.map(|hang| hang.length_ns / 1_000_000).collect();
    // When it is found, and its main loop, depends on what else runs; the first step may be over by then.
    assert!(lengths.len() >= 3, "{hangs:#?}");
    assert!(lengths.iter().all(|ms| (350..=most).contains(ms)), "{lengths:?}");
}

#[test]
fn what_a_program_does_that_starts_and_never_waits_is_recorded() {
    check_start("poll late", 900);
}

#[test]
fn what_a_program_does_that_starts_and_asks_the_display_from_everywhere_is_recorded() {
    check_start("poll asking", 900);
}

#[test]
fn what_a_program_does_that_starts_and_runs_its_loop_from_everywhere_is_recorded() {
    check_start("poll running", 440);
}

/// Returns how long the first thread of a program has had a processor, in nanoseconds.
fn processor_ns(program: &Interactive) -> u64 {
    let path = format!("/proc/{}/schedstat", program.child.id());
    let text = std::fs::read_to_string(path).unwrap();
    text.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_program_that_is_stopped_as_it_starts_did_not_compute_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let recorder = TestRecorder::start_with(&root, ThreadSource::Kernel(Box::new(reports)));
    let mut stops = Vec::new();
    // When its main loop is known depends on what else runs.
    for used_ms in [5, 15, 30, 45, 60, 80, 100, 130, 160, 200, 250, 300] {
        let own = tempfile::tempdir().unwrap();
        let mut program = Interactive::start_with(&own, "poll late");
        let send = |signal| {
            let process = rustix::process::Pid::from_child(&program.child);
            rustix::process::kill_process(process, signal).unwrap();
        };
        let uses = |ns: u64| until("it to compute", || (processor_ns(&program) > ns).then_some(()));
        uses(used_ms * 1_000_000);
        send(rustix::process::Signal::STOP);
        let stopped = SystemTime::now();
        rest(Duration::from_millis(500));
        let continued = SystemTime::now();
        send(rustix::process::Signal::CONT);
        uses(used_ms * 1_000_000 + 400_000_000);
        let unix_ns = |at: SystemTime| {
            u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()).unwrap()
        };
        stops.push((program.child.id(), unix_ns(stopped), unix_ns(continued)));
        program.child.kill().unwrap();
        program.child.wait().unwrap();
    }
    recorder.end();
    for hang in stored(&root).hangs.into_values() {
        let Some((_, from_ns, to_ns)) = stops.iter().find(|(of, ..)| *of == hang.process) else {
            continue;
        };
        let ended_ns = hang.started_ns + hang.length_ns;
        let stopped_ns = ended_ns.min(*to_ns).saturating_sub(hang.started_ns.max(*from_ns));
        let computed_ns = hang.parts.processor_ns;
        assert!(computed_ns + stopped_ns < hang.length_ns + 100_000_000, "{stopped_ns}: {hang:#?}");
    }
}

/// Has a program draw more than the display reads.
fn check_writes_to_the_display(root: &TempDir, program: &mut Interactive) {
    for _ in 0..3 {
        program.order(b'X');
        let hang = program.ended_hang(root);
        assert_eq!(hang.cause, HangCause::OtherProgram, "{hang:?}");
        assert!(hang.length_ns + hang.uncertain_ns >= 380_000_000, "{hang:?}");
        assert!(hang.frames.iter().any(|frame| frame.function == "draw_much"), "{hang:?}");
    }
}

#[test]
fn a_wait_until_the_display_reads_what_is_drawn_is_a_hang() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    check_writes_to_the_display(&root, &mut program);
}

#[test]
fn by_sampling_a_wait_until_the_display_reads_what_is_drawn_is_a_hang_too() {
    let root = tempfile::tempdir().unwrap();
    let (_recorder, mut program) = start_sampling(&root);
    check_writes_to_the_display(&root, &mut program);
}

/// Has a program make two waits from one depth of the stack: that of a dialog, and one for an answer.
fn check_waits_at_one_place(orders: &[u8]) {
    let root = tempfile::tempdir().unwrap();
    let Some((recorder, mut program)) = start(&root, "poll") else { return };
    let hangs = hangs_of_orders(&root, &mut program, orders, AT_ONCE);
    let asked = orders.iter().filter(|order| **order == b'q').count();
    recorder.end();
    // On a busy machine the first one may end before its stack was read, and is counted. So may the first dialog, which is a step that
    // goes on until then.
    let lost: u32 = stored(&root).periods.iter().map(|period| period.lost).sum();
    let lost = usize::try_from(lost).unwrap();
    let told = hangs
        .iter()
        .filter(|hang| hang.cause == HangCause::OtherProgram && hang.length_ns > 300_000_000);
    let told = told.count();
    assert!(lost < asked, "{lost}");
    assert!((asked..=asked + 1).contains(&(told + lost)), "{orders:?}, {lost} lost: {hangs:#?}");
    for hang in hangs.iter().filter(|hang| blamed(hang) == "wait_for_answer_sync") {
        assert_eq!(hang.cause, HangCause::OtherProgram, "{hang:?}");
        assert!((300..1000).contains(&(hang.length_ns / 1_000_000)), "{hang:?}");
    }
}

#[test]
fn a_wait_for_an_answer_at_the_place_of_a_dialog_is_told_the_first_time() {
    check_waits_at_one_place(b"ppqpqq");
}

#[test]
fn a_dialog_at_the_place_of_a_wait_for_an_answer_is_no_hang() {
    check_waits_at_one_place(b"qqpqpp");
}

/// Has a program look for events itself in a handler that takes long, and look elsewhere in another one.
fn check_handlers(root: &TempDir, program: &mut Interactive) {
    if sys::perf::ThreadSampler::at_instruction(program.child.id(), 0x1000).is_err() {
        // Looks that take no time are not seen here.
        return;
    }
    let is_long = |hang: &&Hang| hang.length_ns > 700_000_000;
    let is_in = |hang: &Hang, name: &str| hang.frames.iter().any(|frame| frame.function == name);
    let hangs = hangs_of_orders(root, program, b"vve", AT_ONCE);
    let long: Vec<&Hang> = hangs.iter().filter(is_long).collect();
    if hangs.iter().any(is_disturbed) {
        // On a busy machine the looks are read late.
        return;
    }
    // What its looks are is read the first time; if that takes long it is not said that it froze.
    let (served, other): (Vec<&Hang>, Vec<&Hang>) =
        long.iter().partition(|hang| is_in(hang, "serve_while_busy"));
    assert!(served.len() <= 1, "{served:#?}");
    assert!(served.iter().all(|hang| hang.unseen.may_be_several()), "{served:#?}");
    assert_eq!(other.len(), 1, "{hangs:#?}");
}

#[test]
fn a_handler_that_serves_events_itself_is_no_hang_and_one_that_looks_elsewhere_is() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    check_handlers(&root, &mut program);
}

#[test]
fn by_sampling_a_handler_that_serves_events_itself_is_no_hang_either() {
    let root = tempfile::tempdir().unwrap();
    let (_recorder, mut program) = start_sampling(&root);
    check_handlers(&root, &mut program);
}

#[test]
fn a_handler_that_is_called_as_one_that_waits_and_serves_events_is_no_hang() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    if sys::perf::ThreadSampler::at_instruction(program.child.id(), 0x1000).is_err() {
        return;
    }
    let hangs = hangs_of_orders(&root, &mut program, b"SSS", AT_ONCE);
    if hangs.iter().any(is_disturbed) {
        return;
    }
    let froze =
        hangs.iter().filter(|hang| hang.length_ns > 700_000_000 && !hang.unseen.may_be_several());
    assert_eq!(froze.count(), 0, "{hangs:#?}");
}

#[test]
fn menus_whose_loops_were_asked_about_before_they_wait_are_no_hangs() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    if sys::perf::ThreadSampler::at_instruction(program.child.id(), 0x1000).is_err() {
        return;
    }
    let hangs = hangs_of_orders(&root, &mut program, b"M", AT_ONCE);
    if hangs.iter().any(is_disturbed) {
        return;
    }
    let menus = hangs.iter().filter(|hang| hang.calls.iter().any(|share| share.call == "poll"));
    assert_eq!(menus.count(), 0, "{hangs:#?}");
}

/// Has a program whose main loop waits for a condition rest, wait for an answer, and sleep.
fn check_loop_of_a_condition(root: &TempDir, program: &mut Interactive, between: Duration) {
    let hangs = hangs_of_orders(root, program, b"bqnN", between);
    let rests = hangs.iter().filter(|hang| hang.cause == HangCause::Lock);
    assert_eq!(rests.count(), 0, "{hangs:#?}");
    let told = |cause: HangCause| hangs.iter().any(|hang| hang.cause == cause);
    let is_in = |name| hangs.iter().any(|hang| blamed(hang) == name);
    let are_naps_told = told(HangCause::Sleep) && is_in("nap_in_select") && is_in("nap_in_poll");
    let is_busy = hangs.iter().any(is_disturbed);
    assert!(is_busy || (told(HangCause::OtherProgram) && are_naps_told), "{hangs:#?}");
    // A dialog that waits like the main loop is rest from when that is known.
    let hangs = hangs_of_orders(root, program, b"DDD", between);
    let is_dialog = |hang: &&Hang| hang.length_ns > 500_000_000 && !is_disturbed(hang);
    assert_eq!(hangs.iter().filter(is_dialog).count(), 0, "{hangs:#?}");
}

#[test]
fn a_main_loop_that_waits_for_a_condition_is_found() {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let _recorder = TestRecorder::start_with(&root, ThreadSource::Kernel(Box::new(reports)));
    let mut program = Interactive::start_with(&root, "futex");
    // It is found at rest, where nothing but a look every half a second tells. Its first hang after that is told.
    rest(Duration::from_secs(6));
    program.order(b's');
    let first = program.ended_hang(&root);
    assert!(first.length_ns > 250_000_000, "{first:#?}");
    program.be_noticed(&root);
    check_loop_of_a_condition(&root, &mut program, AT_ONCE);
}

#[test]
fn by_sampling_a_main_loop_that_waits_for_a_condition_is_found_too() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    let mut program = Interactive::start_with(&root, "futex");
    until("the recorder to know the main loop", || {
        // Whatever it takes for the main loop first, it says that a hang may have begun earlier.
        let known = program.last_hang(&root).filter(|hang| !hang.unseen.has_unseen_time());
        // It is found at rest, by a look every half a second.
        rest(Duration::from_secs(1));
        program.order(b's');
        known
    });
    program.wait_until_at_rest();
    // A recorder that comes late has lost sight of the program, and sees it again at rest.
    check_loop_of_a_condition(&root, &mut program, Duration::from_millis(700));
}

/// Lets time pass.
fn rest(time: Duration) {
    let begun = Instant::now();
    until("some time to pass", || (begun.elapsed() > time).then_some(()));
}

/// Has a program whose main loop sleeps and looks for events compute, sleep long in its loop, and sleep elsewhere.
fn check_loop_of_sleeps(root: &TempDir, program: &mut Interactive) {
    until("the recorder to know the loop", || {
        // Each look at it has to find the same sleep.
        rest(Duration::from_secs(5));
        program.order(b's');
        rest(Duration::from_millis(500));
        program.last_hang(root)
    });
    program.mark_now();
    let since_ns = program.ordered_ns;
    for order in *b"ckrz" {
        program.order(order);
    }
    // What comes within the long sleep would be a part of its step.
    rest(Duration::from_millis(600));
    program.order(b's');
    // Once it sleeps at another place, that is found, too.
    program.order(b'g');
    rest(Duration::from_secs(8));
    program.order(b's');
    program.ended_hang(root);
    let hangs = hangs_since(root, program, since_ns);
    if hangs.iter().any(is_disturbed) {
        return;
    }
    let told: Vec<(HangCause, u64)> =
        hangs.iter().map(|hang| (hang.cause, hang.length_ns / 1_000_000)).collect();
    let causes: Vec<HangCause> = told.iter().map(|(cause, _)| *cause).collect();
    let (sleep, reply) = (HangCause::Sleep, HangCause::OtherProgram);
    // Naps of the loop at another place are a hang until the second look at them.
    let moved = causes.len() == 7;
    let wanted = [HangCause::Computing, sleep, reply, sleep, sleep, sleep, sleep];
    assert_eq!(causes, wanted[..if moved { 7 } else { 6 }], "{told:?}");
    let lengths: Vec<u64> = told.iter().map(|(_, ms)| *ms).collect();
    assert!(lengths.iter().all(|ms| (100..1600).contains(ms)), "{told:?}");
    assert!((350..600).contains(lengths.last().unwrap()), "{told:?}");
    assert!((550..900).contains(&lengths[1]), "{told:?}");
}

#[test]
fn a_main_loop_that_sleeps_and_looks_for_events_is_found() {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let _recorder = TestRecorder::start_with(&root, ThreadSource::Kernel(Box::new(reports)));
    let mut program = Interactive::start_with(&root, "sleep");
    check_loop_of_sleeps(&root, &mut program);
}

#[test]
fn by_sampling_a_main_loop_that_sleeps_and_looks_for_events_is_found_too() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    let mut program = Interactive::start_with(&root, "sleep");
    check_loop_of_sleeps(&root, &mut program);
}
