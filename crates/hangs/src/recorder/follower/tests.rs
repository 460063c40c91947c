//! Tests of the follower: looks are given to it, and nothing is read.

use super::*;
use crate::kernel::EventWait;
use trace::syscall::call_number;

const MS: u64 = 1_000_000;
/// Where the main loop waits; what is called from it is below.
const LOOP: WaitPlace = (9000, 1);
const DEEP: WaitPlace = (5000, 1);

fn in_call(name: &str, (sp, ip): WaitPlace) -> Activity {
    let number = call_number(name).unwrap();
    Activity::InCall(BlockedSyscall { number, arguments: [3, 0, 0, 0, 0, 0], sp, ip })
}

fn look(at_ms: u64, cpu_ms: u64, turns: u64, activity: Activity) -> ThreadLook {
    let counters = SchedulerCounters { cpu_ns: cpu_ms * MS, queued_ns: 0, turns };
    ThreadLook { at_ns: at_ms * MS, counters, activity }
}

fn at_rest() -> ThreadFollower {
    let mut follower = ThreadFollower::new(0);
    follower.look(&look(1000, 0, 1, in_call("poll", LOOP)));
    follower
}

fn idle() -> PlaceEvidence {
    PlaceEvidence {
        is_idle_loop: true,
        waits_for_answer: false,
        never_by_depth: false,
        looks_without_loop: false,
        has_display: false,
        lacks_display: false,
        same_call: None,
    }
}

#[test]
fn a_sync_between_two_waits_is_an_absence_with_its_parts() {
    let mut follower = at_rest();
    follower.look(&look(1050, 2, 2, in_call("fsync", DEEP)));
    for at in (1060..1400).step_by(10) {
        follower.look(&look(at, 2, 2, in_call("fsync", DEEP)));
    }
    let LookOutcome::Returned(absence) = follower.look(&look(1400, 3, 3, in_call("poll", LOOP)))
    else {
        panic!("it is back");
    };
    // It left between 1000 and 1048 and was back between 1390 and 1399.
    assert!(absence.length_ns().abs_diff(370 * MS) <= absence.uncertain_ns + MS, "{absence:?}");
    let sum: u64 = absence.parts.named().iter().map(|(_, part)| part).sum();
    assert_eq!(sum, absence.length_ns(), "{absence:?}");
    assert_eq!(absence.parts.processor_ns, 3 * MS);
    assert_eq!(absence.calls[0].blocked_ns, absence.parts.call_ns);
    assert_eq!(follower.steps.total(), 1);
}

#[test]
fn a_wait_deeper_on_the_stack_counts_only_once_it_is_known_not_to_be_a_loop() {
    for (evidence, is_loop) in [
        (idle(), true),
        (PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() }, false),
        (PlaceEvidence { is_idle_loop: false, ..idle() }, false),
        (PlaceEvidence { is_idle_loop: false, has_display: true, ..idle() }, true),
        (PlaceEvidence { is_idle_loop: false, same_call: Some(LOOP), ..idle() }, true),
        (PlaceEvidence { is_idle_loop: false, same_call: Some(DEEP), ..idle() }, false),
    ] {
        let mut follower = at_rest();
        for at in (1050..1300).step_by(10) {
            let deep = look(at, 1, 2, in_call("poll", DEEP));
            follower.look(&deep);
            if let Wanted::Place(call) = follower.wanted(&deep) {
                follower.asked(&call);
            }
        }
        assert!(follower.absence().unwrap().certain_ns() < 60 * MS, "it may be a loop");
        let ended = follower.classify(DEEP, evidence);
        assert_eq!(ended.is_some(), is_loop, "{evidence:?}");
        let certain = follower.absence().map(Absence::certain_ns);
        assert_eq!(certain.is_some_and(|certain| certain > 200 * MS), !is_loop, "{evidence:?}");
    }
}

#[test]
fn the_wait_of_a_loop_that_is_deeper_once_there_are_threads_is_its_wait() {
    let by_depth = PlaceEvidence { is_idle_loop: false, ..idle() };
    let deeper = (LOOP.0 - 40, 2);
    let mut follower = ThreadFollower::new(0);
    // Its waits were all too short to be asked about.
    for at in (1000..1200).step_by(20) {
        follower.look(&look(at, 0, at, in_call("poll", LOOP)));
    }
    follower.note_others(true);
    for at in (1200..1400).step_by(10) {
        let rests = look(at, 0, 2000, in_call("poll", deeper));
        follower.look(&rests);
        if let Wanted::Place(call) = follower.wanted(&rests) {
            follower.asked(&call);
            assert!(follower.classify(deeper, by_depth).is_none());
        }
    }
    assert!(follower.is_at_rest() && follower.absence().is_none(), "{follower:?}");
    // What waits deeper on the stack is still told from it.
    for at in (1400..1600).step_by(10) {
        let nested = look(at, 0, 2001, in_call("poll", DEEP));
        follower.look(&nested);
        if let Wanted::Place(call) = follower.wanted(&nested) {
            follower.asked(&call);
            follower.classify(DEEP, by_depth);
        }
    }
    assert!(follower.absence().is_some_and(|away| away.certain_ns() > 150 * MS), "{follower:?}");
}

#[test]
fn a_loop_by_depth_is_none_any_more_when_a_wait_is_seen_that_is_less_deep() {
    let by_depth = PlaceEvidence { is_idle_loop: false, ..idle() };
    let mut follower = ThreadFollower::new(0);
    follower.look(&look(1000, 0, 1, in_call("poll", DEEP)));
    follower.classify(DEEP, by_depth);
    assert!(follower.is_at_rest());
    follower.look(&look(1100, 0, 2, in_call("poll", LOOP)));
    follower.look(&look(1110, 0, 3, in_call("poll", DEEP)));
    assert!(follower.absence().is_some(), "{follower:?}");
}

#[test]
fn who_was_in_one_short_wait_may_have_no_loop_to_be_away_from() {
    let mut follower = ThreadFollower::new(0);
    follower.look(&look(1000, 0, 1, in_call("poll", LOOP)));
    follower.look(&look(1010, 1, 2, in_call("wait4", DEEP)));
    assert!(follower.absence().is_some() && !follower.may_have_loop());
    follower.look(&look(1200, 2, 3, in_call("poll", LOOP)));
    assert!(follower.may_have_loop(), "it was back");
    let mut classified = at_rest();
    classified.classify(LOOP, idle());
    assert!(classified.may_have_loop());
}

#[test]
fn a_wait_that_was_taken_for_the_loop_and_is_none_is_a_part_of_a_hang_where_there_is_a_loop() {
    let nested = PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() };
    let shallower = (LOOP.0 + 40, 7);
    for has_loop in [true, false] {
        let mut follower = at_rest();
        if has_loop {
            follower.classify(LOOP, idle());
        }
        follower.look(&look(1010, 1, 2, in_call("ppoll", shallower)));
        let waits = look(1070, 1, 2, in_call("ppoll", shallower));
        follower.look(&waits);
        let Wanted::Place(call) = follower.wanted(&waits) else { panic!("{follower:?}") };
        follower.asked(&call);
        assert!(follower.classify(shallower, nested).is_none());
        for at in (1080..1700).step_by(10) {
            follower.look(&look(at, 1, 2, in_call("ppoll", shallower)));
        }
        follower.classify(LOOP, idle());
        let back = follower.look(&look(1700, 2, 3, in_call("poll", LOOP)));
        let LookOutcome::Returned(hang) = back else {
            assert!(!has_loop, "{back:?}");
            continue;
        };
        assert!(has_loop, "a program that starts has no main loop to be away from: {hang:?}");
        // It is away from where it was seen in that wait first.
        assert!((680 * MS..=690 * MS).contains(&hang.length_ns()), "{hang:?}");
        assert!(hang.unseen.has(UnseenParts::START), "{hang:?}");
        let sum = hang.parts.call_ns + hang.parts.processor_ns;
        assert_eq!(sum, hang.length_ns(), "{hang:?}");
        assert_eq!(hang.calls[0].number, call_number("ppoll").unwrap());
    }
}

#[test]
fn an_absence_whose_first_moment_is_known_begins_then() {
    for (turns, is_exact) in [(2, true), (4, false)] {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        assert!(follower.is_at_rest());
        // Nothing but its first switch was recorded in a second; there was no look in it.
        follower.left(2007 * MS);
        assert!(!follower.is_at_rest());
        assert_eq!(follower.watched_ns, 1007 * MS);
        let later = SchedulerCounters { cpu_ns: 0, queued_ns: 0, turns: 1 };
        assert!(!follower.stayed(2010 * MS, later), "it has left");
        follower.look(&look(2018, 1, turns, in_call("fsync", DEEP)));
        let absence = follower.absence().expect("it is away");
        assert_eq!(
            absence.started_ns == 2007 * MS && absence.uncertain_ns == 0,
            is_exact,
            "{absence:?}"
        );
        assert!(absence.started_ns >= 2007 * MS);
        assert_eq!(absence.parts.processor_ns + absence.parts.call_ns, absence.length_ns());
    }
}

#[test]
fn a_rest_that_was_left_and_found_again_goes_on() {
    let mut follower = at_rest();
    follower.classify(LOOP, idle());
    follower.left(1500 * MS);
    follower.look(&look(1510, 2, 2, in_call("poll", LOOP)));
    assert!(follower.is_at_rest() && follower.absence().is_none());
    follower.rested(3000 * MS);
    assert_eq!(follower.watched_ns, 2000 * MS);
    follower.rested(60_000 * MS);
    assert_eq!(follower.watched_ns, 2000 * MS, "nobody was there");
}

#[test]
fn looks_for_events_that_took_no_time_divide_an_absence() {
    let mut follower = at_rest();
    for at in (1050..1500).step_by(10) {
        follower.look(&look(at, at - 1050, 2, Activity::Running));
    }
    for unseen in [UnseenParts::START, UnseenParts::GAP, UnseenParts::FUNCTIONS] {
        follower.absence_mut().unwrap().unseen.add(unseen);
    }
    let mut ended = follower.turned(&[1090 * MS, 1120 * MS, 1200 * MS]);
    let longest = ended.pop().expect("an absence ends");
    assert!(longest.length_ns() < 100 * MS && ended.is_empty(), "{longest:?}");
    assert!(!longest.unseen.has_unseen_time(), "it is not the first one: {longest:?}");
    assert!(longest.may_be_several(), "it began before anybody saw the main loop");
    // Looks may be known late: each long step between them is told.
    let ended = follower.turned(&[1310 * MS, 1320 * MS, 1460 * MS]);
    let lengths: Vec<u64> = ended.iter().map(|absence| absence.length_ns() / MS).collect();
    assert_eq!(lengths, [110, 140]);
    assert_ne!(ended[0].key, ended[1].key);
    let rest = follower.absence().unwrap();
    assert_eq!((rest.started_ns, rest.may_be_several()), (1460 * MS, false));
    assert_eq!(rest.unseen, UnseenParts::FUNCTIONS, "nothing is missing before it");
    assert_eq!(follower.steps.total(), 5, "{:?}", follower.steps);
}

#[test]
fn a_wait_that_is_restarted_after_a_stop_is_the_same_wait() {
    let mut follower = at_rest();
    follower.look(&look(1050, 0, 2, Activity::Stopped));
    let restarted = look(1300, 0, 3, in_call("restart_syscall", LOOP));
    let restarted = follower.with_restarted_call(restarted);
    assert!(matches!(follower.look(&restarted), LookOutcome::Returned(_)));
}

#[test]
fn a_time_in_which_nobody_looked_is_no_hang() {
    let mut follower = at_rest();
    follower.look(&look(1050, 1, 2, Activity::Running));
    let LookOutcome::Returned(absence) = follower.look(&look(9000, 2, 5, Activity::Running)) else {
        panic!("it ends where nobody looked");
    };
    assert!(absence.length_ns() < 60 * MS && absence.unseen.has(UnseenParts::GAP));
    let next = follower.absence().expect("it is away again, or still");
    assert_eq!(next.started_ns, 9000 * MS, "what was before nobody saw");
    assert!(next.unseen.has(UnseenParts::GAP));
}

#[test]
fn a_hang_that_is_found_after_a_time_in_which_nobody_looked_is_told_as_far_as_it_was_seen() {
    for gap_ms in [350, 20_000] {
        let mut follower = at_rest();
        follower.look(&look(1050, 1, 2, in_call("clock_nanosleep", DEEP)));
        let from = 1050 + gap_ms;
        let found = look(from, 2, 4, in_call("flock", DEEP));
        assert!(matches!(follower.look(&found), LookOutcome::Returned(_)));
        for at in (from + 10..from + 700).step_by(10) {
            follower.look(&look(at, 2, 4, in_call("flock", DEEP)));
        }
        let away = follower.absence().expect("it is away");
        assert!(away.certain_ns() >= 680 * MS, "{away:?}");
        let LookOutcome::Returned(hang) =
            follower.look(&look(from + 700, 3, 5, in_call("poll", LOOP)))
        else {
            panic!("it is back");
        };
        assert!((690 * MS..=700 * MS).contains(&hang.length_ns()), "{hang:?}");
        assert_eq!(hang.parts.call_ns + hang.parts.processor_ns, hang.length_ns(), "{hang:?}");
        assert!(hang.unseen.has(UnseenParts::GAP), "{hang:?}");
    }
}

#[test]
fn a_hang_that_began_while_nobody_looked_says_so() {
    // The thread was at rest when the recorder stopped for two seconds; announced or not.
    for is_announced in [true, false] {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        if is_announced {
            follower.left(1500 * MS);
        }
        follower.look(&look(3500, 4, 900, in_call("clock_nanosleep", DEEP)));
        for at in (3510..4000).step_by(10) {
            follower.look(&look(at, 4, 901, in_call("clock_nanosleep", DEEP)));
        }
        let back = follower.look(&look(4000, 4, 902, in_call("poll", LOOP)));
        let LookOutcome::Returned(hang) = back else { panic!("it is back") };
        assert!((490 * MS..=500 * MS).contains(&hang.length_ns()), "{hang:?}");
        assert!(hang.unseen.has(UnseenParts::GAP), "{hang:?}");
    }
    // Of one that has been in one call since its announced beginning nothing is missing.
    let mut follower = at_rest();
    follower.classify(LOOP, idle());
    follower.left(1500 * MS);
    follower.look(&look(3500, 0, 2, in_call("clock_nanosleep", DEEP)));
    let away = follower.absence().expect("it is away");
    assert_eq!((away.length_ns(), away.uncertain_ns), (2000 * MS, 0), "{away:?}");
    assert!(!away.unseen.has(UnseenParts::GAP), "{away:?}");
}

#[test]
fn an_absence_that_may_have_begun_after_the_last_look_is_uncertain_by_all_of_that() {
    let mut follower = at_rest();
    follower.classify(LOOP, idle());
    // Many short calls since the last look, which was late: it may be away for 250 ms already.
    follower.look(&look(1250, 2, 100, in_call("clock_nanosleep", DEEP)));
    let away = follower.absence().expect("it is away");
    assert!(away.started_ns - away.uncertain_ns <= 1000 * MS, "{away:?}");
}

#[test]
fn a_dialog_whose_waits_are_all_short_is_no_hang() {
    for answered_in_a_wait in [true, false] {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        let mut hangs = Vec::new();
        // It draws sixty times a second; the answer takes 100 ms.
        for (turn, at) in (1050..3000).step_by(10).enumerate() {
            let turns = 2 + u64::try_from(turn).unwrap();
            let is_waiting = (turn % 2 == 0) == answered_in_a_wait;
            let activity = if is_waiting { in_call("poll", DEEP) } else { Activity::Running };
            let seen = look(at, 1, turns, activity);
            if let LookOutcome::Returned(absence) = follower.look(&seen) {
                hangs.push(absence);
            }
            if let Wanted::Place(call) = follower.wanted(&seen) {
                follower.asked(&call);
            }
            if at == 1250 {
                hangs.extend(follower.classify(DEEP, idle()));
            }
        }
        assert!(hangs.iter().all(|hang| hang.length_ns() < 100 * MS), "{hangs:?}");
        let away = follower.absence().map_or(0, Absence::length_ns);
        assert!(away < 50 * MS, "{follower:?}");
    }
}

#[test]
fn the_main_loop_of_a_program_with_an_animation_is_asked_about() {
    let mut follower = ThreadFollower::new(0);
    // Each look finds another wait.
    let asked = (1000..1300).step_by(50).position(|at| {
        let seen = look(at, at / 50, at / 50, in_call("poll", LOOP));
        follower.look(&seen);
        matches!(follower.wanted(&seen), Wanted::Place(_))
    });
    assert!(asked.is_some(), "{follower:?}");
}

#[test]
fn a_wait_of_the_program_inside_of_a_step_is_no_loop_however_shallow_it_is() {
    let by_depth = PlaceEvidence { is_idle_loop: false, ..idle() };
    let display = PlaceEvidence { has_display: true, ..idle() };
    let above = (LOOP.0 + 64, LOOP.1);
    for (main, place, evidence) in [
        // As libuv's own wait, which is deep on the stack.
        (idle(), above, PlaceEvidence { never_by_depth: true, ..by_depth }),
        // As that of Xlib's clients, made by the same function.
        (display, LOOP, PlaceEvidence { lacks_display: true, ..by_depth }),
    ] {
        let mut follower = at_rest();
        let Activity::InCall(rest) = in_call("poll", LOOP) else { panic!("it is a call") };
        follower.asked(&rest);
        follower.classify(LOOP, main);
        for at in (1050..1500).step_by(10) {
            let Activity::InCall(call) = in_call("poll", place) else { panic!("it is a call") };
            let call = BlockedSyscall { arguments: [90, 1, 0, 0, 0, 0], ..call };
            let waits = look(at, 1, 2, Activity::InCall(call));
            follower.look(&waits);
            if let Wanted::Place(call) = follower.wanted(&waits) {
                follower.asked(&call);
                follower.classify(place, evidence);
            }
        }
        let away = follower.absence().map_or(0, Absence::certain_ns);
        assert!(away > 400 * MS, "{follower:?}");
    }
}

#[test]
fn waits_of_different_functions_at_one_place_are_told_apart() {
    let answers = PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() };
    let poll_of = |array: u64, count: u64| {
        let Activity::InCall(call) = in_call("poll", DEEP) else { panic!("it is a call") };
        Activity::InCall(BlockedSyscall { arguments: [array, count, 0, 0, 0, 0], ..call })
    };
    for is_dialog_first in [true, false] {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        let (dialog, answer) = ((poll_of(70, 3), idle()), (poll_of(80, 2), answers));
        let order = if is_dialog_first { [dialog, answer] } else { [answer, dialog] };
        let mut hangs = Vec::new();
        for (turn, (activity, evidence)) in order.into_iter().enumerate() {
            let (from, turns) = (1000 + 2000 * u64::try_from(turn).unwrap(), 10 * (turn + 1));
            let turns = u64::try_from(turns).unwrap();
            for at in (from + 50..from + 1000).step_by(10) {
                let seen = look(at, 1, turns, activity);
                follower.look(&seen);
                if let Wanted::Place(call) = follower.wanted(&seen) {
                    follower.asked(&call);
                    hangs.extend(follower.classify(DEEP, evidence));
                }
            }
            for at in (from + 1000..from + 2000).step_by(50) {
                let rests = look(at, 1, turns + 1, in_call("poll", LOOP));
                if let LookOutcome::Returned(hang) = follower.look(&rests) {
                    hangs.push(hang);
                }
            }
        }
        let hangs = hangs.iter().filter(|hang| hang.length_ns() >= 100 * MS);
        let lengths = hangs.map(|hang| hang.length_ns() / MS).collect::<Vec<_>>();
        assert!(matches!(*lengths, [900..1000]), "{lengths:?}, dialog first: {is_dialog_first}");
    }
}

#[test]
fn a_loop_inside_of_a_step_that_does_not_wait_for_the_display_is_a_hang() {
    let display = PlaceEvidence { has_display: true, ..idle() };
    // As g_subprocess_wait waits, whose loop is GLib's.
    let inner = PlaceEvidence { lacks_display: true, ..idle() };
    for (main, nested, is_hang) in
        [(display, inner, true), (display, idle(), false), (inner, inner, false)]
    {
        let mut follower = at_rest();
        follower.classify(LOOP, main);
        assert!(follower.is_at_rest(), "{follower:?}");
        for at in (1050..1500).step_by(10) {
            let waits = look(at, 1, 2, in_call("poll", DEEP));
            follower.look(&waits);
            if let Wanted::Place(call) = follower.wanted(&waits) {
                follower.asked(&call);
                follower.classify(DEEP, nested);
            }
        }
        let away = follower.absence().map_or(0, Absence::certain_ns);
        assert_eq!(away > 400 * MS, is_hang, "{follower:?}");
    }
}

#[test]
fn a_hang_in_which_another_recorder_was_cut_off_is_told_as_far_as_it_is_seen() {
    let known = |is_hang_stored: bool| KnownLoop {
        process: 7,
        waits: vec![EventWait { place: LOOP, subject: 3 }],
        display_loop: LOOP.0,
        is_hang_stored,
    };
    for is_hang_stored in [false, true] {
        let mut follower = ThreadFollower::new(0);
        follower.take_over(&known(is_hang_stored));
        for at in (1000..1600).step_by(10) {
            follower.look(&look(at, 1, 2, in_call("flock", DEEP)));
        }
        let back = follower.look(&look(1600, 2, 3, in_call("poll", LOOP)));
        let LookOutcome::Returned(hang) = back else {
            assert!(is_hang_stored, "{follower:?}");
            continue;
        };
        assert!(!is_hang_stored, "it is told twice: {hang:?}");
        assert!((590 * MS..=600 * MS).contains(&hang.length_ns()), "{hang:?}");
        assert!(hang.unseen.has(UnseenParts::GAP), "{hang:?}");
    }
    // One that rests has no hang.
    let mut follower = ThreadFollower::new(0);
    follower.take_over(&known(false));
    follower.look(&look(1000, 1, 2, in_call("poll", LOOP)));
    assert!(follower.is_at_rest() && follower.absence().is_none(), "{follower:?}");
}
