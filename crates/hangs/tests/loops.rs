//! Waits and looks for events of loops inside of a step, and what is none.

use tempfile::TempDir;
use unjank_hangs::model::{Hang, HangCause};

use super::kernel::{hangs_since, start};
use super::recorder::{Interactive, TestRecorder, blamed, until};

/// Starts a program and a recorder that samples, and waits until the recorder follows the program.
fn start_sampling(root: &TempDir) -> (TestRecorder, Interactive) {
    let recorder = TestRecorder::start(root);
    let mut program = Interactive::start(root);
    program.be_noticed(root);
    (recorder, program)
}

/// Gives orders one after the other, and then one to sleep; returns the hangs of all of them.
fn hangs_of_orders(root: &TempDir, program: &mut Interactive, orders: &[u8]) -> Vec<Hang> {
    program.mark_now();
    let since_ns = program.ordered_ns;
    for order in orders {
        program.wait_until_at_rest();
        program.order(*order);
    }
    // Hangs are stored in their order.
    program.wait_until_at_rest();
    program.order(b's');
    until("the last hang", || {
        let hangs = hangs_since(root, program, since_ns);
        hangs.iter().any(|hang| blamed(hang) == "sleep_on_purpose").then_some(hangs)
    })
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
    program.mark_now();
    let since_ns = program.ordered_ns;
    program.order(b'a');
    // Hangs are stored in their order.
    program.order(b's');
    program.ended_hang(&root);
    let hangs = hangs_since(&root, &program, since_ns);
    let of_dialog = hangs.iter().filter(|hang| blamed(hang) != "sleep_on_purpose");
    let lengths: Vec<u64> = of_dialog.map(|hang| hang.length_ns / 1_000_000).collect();
    // On a busy machine the first looks at it may be late.
    assert!(lengths.iter().all(|ms| *ms < 500), "{lengths:?}");
}

/// Has a program make two waits from one depth of the stack: that of a dialog, and one for an answer.
fn check_waits_at_one_place(orders: &[u8]) {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    let hangs = hangs_of_orders(&root, &mut program, orders);
    let of = |function: &str| hangs.iter().filter(|hang| blamed(hang) == function).count();
    let asked = orders.iter().filter(|order| **order == b'q').count();
    assert_eq!(of("wait_for_answer_sync"), asked, "{orders:?}: {hangs:#?}");
    // Until the first one was looked at, a dialog is a step that goes on.
    let dialogs = hangs.iter().filter(|hang| blamed(hang) == "show_panel");
    let lengths: Vec<u64> = dialogs.map(|hang| hang.length_ns / 1_000_000).collect();
    assert!(lengths.iter().all(|ms| *ms < 300), "{orders:?}: {lengths:?}");
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
    let hangs = hangs_of_orders(root, program, b"vev");
    let long = |hang: &&Hang| hang.length_ns > 700_000_000;
    assert_eq!(hangs.iter().filter(long).count(), 1, "{hangs:#?}");
    // The first looks are read within a tenth of a second; on a busy machine a step takes longer.
    let others = hangs.iter().filter(|hang| !long(hang) && blamed(hang) != "sleep_on_purpose");
    let lengths: Vec<u64> = others.map(|hang| hang.length_ns / 1_000_000).collect();
    assert!(lengths.len() <= 2, "{lengths:?}");
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
