//! Tests of what people read about hangs.

use super::sheet::hop_sentence;
use super::*;
use crate::compare::{ComparedHangs, HangRate};
use crate::history::{HangGrouping, WatchCoverage, group};
use crate::model::{
    CallShare, DiskUse, DiskUser, ERASED_PROGRAM, HangChain, HangHop, ProgramSteps, UnseenParts,
};
use crate::remedy::HangRemedy;
use crate::store::StoredHistory;
use crate::summary::HangSummary;
use report::text::Charset;

const SECOND: u64 = 1_000_000_000;

/// What `write` returns with a style at two o'clock.
fn styled<T>(write: impl FnOnce(&HangTextStyle<'_>) -> T) -> T {
    styled_beside(&AppliedRemedies::NONE, write)
}

/// The same beside what is on.
fn styled_beside<T>(applied: &AppliedRemedies, write: impl FnOnce(&HangTextStyle<'_>) -> T) -> T {
    let now = Timestamp::from_second(7200).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
    let paint = Paint::new(false, Charset::Ascii);
    write(&HangTextStyle {
        home: Some(Path::new("/home/ana")),
        now: &now,
        paint,
        width: 80,
        applied,
    })
}

fn verdict(history: &HangHistory) -> Vec<String> {
    let today = TimeSpan { from_ns: 0, to_ns: 7200 * SECOND };
    styled(|style| style.verdict(history, today, "today"))
}

#[test]
fn a_comparison_says_what_was_erased() {
    let rate = HangRate { hangs: 0, watched_ns: 0, total_ns: 0, has_erased_program: false };
    let compared = crate::compare::compare(rate, rate);
    let told = |stored: &StoredHistory| {
        let counted = &ComparedHangs::default();
        let told = ComparedText { moment: "01:00", counted, all: None, note: None };
        styled(|style| style.comparison(&compared, told, stored, 7200 * SECOND))
    };
    assert!(!told(&StoredHistory::default()).contains("Erased"));
    let erased_before_ns = Some(3600 * SECOND);
    let told = told(&StoredHistory { erased_before_ns, ..StoredHistory::default() });
    assert!(told.contains("Erased: everything that was recorded before 01:00."), "{told}");
}

#[test]
fn which_process_hung_is_told_where_several_of_a_program_did() {
    let hang = |process, process_began_ns| Hang {
        process,
        process_began_ns,
        program: "notes".to_owned(),
        ..hostile(HangCause::Computing, ObjectKind::File)
    };
    let line = |others: &[Hang]| {
        let hangs = [&[hang(12, 1)], others].concat();
        let history = HangHistory { hangs, ..HangHistory::default() };
        styled(|style| style.line_in(&history, &history.hangs[0]))
    };
    assert!(line(&[hang(12, 1)]).starts_with("notes froze"));
    assert!(line(&[hang(13, 1)]).starts_with("notes [12] froze"));
    assert!(line(&[hang(12, 2)]).starts_with("notes [12] froze"), "the number was used again");
    let groups = group(&[hang(12, 1), hang(12, 2), hang(12, 2)], HangGrouping::Process);
    let counts = groups.iter().map(|group| (&*group.name, group.count));
    assert_eq!(counts.collect::<Vec<_>>(), [("notes [12]", 2), ("notes [12]", 1)]);
    let sheet = styled(|style| style.sheet(&hang(12, 3000 * SECOND)));
    assert!(sheet.contains("process 12, started 1970-01-01 00:50:00"), "{sheet}");
}

#[test]
fn programs_that_were_watched_late_are_told() {
    let mut history = HangHistory::default();
    let late = |late_ns| ProgramSteps { late_ns, ..ProgramSteps::default() };
    history.programs.insert("notes".to_owned(), late(4 * SECOND));
    history.programs.insert("other".to_owned(), late(SECOND));
    let told = verdict(&history).join(" ");
    assert!(told.contains("the first moments of programs, at most 4.00 s (notes)"), "{told}");
    history.programs.insert("notes".to_owned(), late(SECOND));
    assert!(!verdict(&history).join(" ").contains("first moments"));
}

#[test]
fn a_chain_says_who_waited_in_what_and_how_it_ended() {
    let hop = HangHop {
        program: "kiod5".to_owned(),
        process: 12,
        unit: "kiod.service".to_owned(),
        call: "read".to_owned(),
        function: String::new(),
        waited_ns: SECOND,
    };
    assert_eq!(hop_sentence(&hop, None), "kiod5 [12, kiod.service] waited 1.00 s in read");
    let chain = |end: &str| HangChain {
        hops: vec![hop.clone()],
        end: end.to_owned(),
        end_ns: SECOND / 2,
        has_losses: false,
    };
    for (end, told) in [
        ("disk", "waited 500 ms for a disk in read"),
        ("timer", "slept 500 ms in read until a time that was set"),
        ("processor", "ran for 500 ms"),
        ("a word of a later version", "took 500 ms in read; for what is not known"),
    ] {
        let sentence = hop_sentence(&hop, Some(&chain(end)));
        assert!(sentence.ends_with(told), "{sentence}");
    }
}

#[test]
fn a_wait_that_its_own_time_limit_ended_is_told_as_that() {
    let mut hang = hostile(HangCause::OtherCall, ObjectKind::Other);
    hang.calls[0] = CallShare { call: "poll".to_owned(), object: None, ..hang.calls[0].clone() };
    hang.blamed = None;
    let chain = hang.chain.as_mut().unwrap();
    chain.hops.truncate(1);
    (chain.end, chain.end_ns) = ("timer".to_owned(), SECOND);
    let reason = |hang: &Hang| styled(|style| style.reason(hang));
    assert_eq!(reason(&hang), "waiting until its time limit (poll)");
    // Most of it was something else.
    hang.chain.as_mut().unwrap().end_ns = SECOND / 3;
    assert_eq!(reason(&hang), "waiting in a system call (poll)");
}

/// A hang all of whose texts are what a terminal or a page would obey.
pub(crate) fn hostile(cause: HangCause, kind: ObjectKind) -> Hang {
    let text = "\u{1b}[31m\u{202e}\n\r\u{9b}2J<b>&\"".to_owned();
    let object = CallObject {
        kind,
        name: format!("/{text}"),
        file_system: text.clone(),
        device: text.clone(),
    };
    let hop = HangHop {
        program: text.clone(),
        process: 12,
        unit: text.clone(),
        call: text.clone(),
        function: text.clone(),
        waited_ns: SECOND,
    };
    let user = DiskUser { program: text.clone(), process: 12, read_bytes: 1, written_bytes: 1 };
    let frame = crate::model::HangFrame { function: text.clone(), module: text.as_str().into() };
    Hang {
        number: 7,
        started_ns: 3600 * SECOND,
        length_ns: SECOND,
        uncertain_ns: 0,
        goes_on: false,
        process: 12,
        process_began_ns: 3000 * SECOND,
        program: text.clone(),
        unit: text.clone(),
        cause,
        parts: trace::report::account::TimeParts::default(),
        calls: vec![CallShare { call: text.clone(), blocked_ns: 1, seen: 1, object: Some(object) }],
        frames: vec![frame],
        blamed: Some(0),
        pressure: None,
        unseen: UnseenParts::default(),
        chain: Some(HangChain { hops: vec![hop], end: text.clone(), end_ns: 1, has_losses: true }),
        disk_use: Some(DiskUse { programs: vec![user], ..DiskUse::default() }),
        kernel_functions: vec![text.clone()],
    }
}

#[test]
fn no_text_of_a_record_is_obeyed_by_a_terminal() {
    for cause in [HangCause::Computing, HangCause::OtherCall] {
        use ObjectKind::{Child, File, Lock, Other, Socket};
        for kind in [Child, File, Lock, Other, Socket] {
            let hang = hostile(cause, kind);
            let history = HangHistory { hangs: vec![hang.clone()], ..an_hour(600) };
            let today = TimeSpan { from_ns: 0, to_ns: 7200 * SECOND };
            let mut texts = styled(|style| {
                vec![style.line(&hang), style.sheet(&hang), style.list(&history, today, "today", 9)]
            });
            for (name, grouping) in HangGrouping::ALL {
                let groups = group(&history.hangs, grouping);
                texts.push(styled(|style| style.top(&history, &groups, today, "today", name)));
            }
            let summary = HangSummary::of(&history, &AppliedRemedies::NONE);
            texts.push(styled(|style| style.yesterday(&summary)));
            for text in texts {
                let is_bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
                assert!(!text.contains(is_bad), "{text:?}");
                assert!(!text.contains("\n2J"), "{text:?}");
            }
        }
    }
}

#[test]
fn of_a_hang_that_went_on_nobody_says_that_its_length_is_exact() {
    let hang = Hang { goes_on: true, ..hostile(HangCause::Computing, ObjectKind::File) };
    let told = styled(|style| style.sheet(&hang));
    assert!(!told.contains("exact") && told.contains("or longer"), "{told}");
    let told = styled(|style| style.sheet(&Hang { goes_on: false, ..hang.clone() }));
    assert!(told.replace('\n', " ").contains("the length is exact"), "{told}");
}

#[test]
fn the_call_that_is_named_is_one_of_those_that_are_the_cause() {
    let share = |call: &str, blocked_ns| CallShare {
        call: call.to_owned(),
        blocked_ns,
        seen: 1,
        object: Some(CallObject {
            kind: ObjectKind::File,
            name: format!("/of/{call}"),
            file_system: String::new(),
            device: String::new(),
        }),
    };
    let calls = vec![share("fsync", 30), share("openat", 25), share("newfstatat", 25)];
    let told = |cause| {
        let hang = Hang { cause, calls: calls.clone(), ..hostile(cause, ObjectKind::File) };
        let told = styled(|style| style.reason(&hang));
        (told, hang.object().unwrap().name.clone())
    };
    // Together the names took the longest, though no single call of them did.
    let (names, object) = told(HangCause::FileNames);
    assert!(names.starts_with("openat of /of/openat") && object == "/of/openat", "{names}");
    let (sync, object) = told(HangCause::Sync);
    assert!(sync.starts_with("fsync of /of/fsync") && object == "/of/fsync", "{sync}");
    // A bus may be read by a thread of its own, for which whoever asks waits with a lock.
    let calls = vec![share("futex", 30), share("recvmsg", 1)];
    let cause = HangCause::OtherProgram;
    let hang = Hang { cause, calls, ..hostile(cause, ObjectKind::File) };
    assert_eq!(hang.longest_call().unwrap().call, "futex");
}

#[test]
fn hangs_whose_watching_is_not_counted_are_said_to_be_and_make_no_rate_higher() {
    let hang = |at_s: u64| Hang {
        started_ns: at_s * SECOND,
        number: at_s,
        ..hostile(HangCause::Computing, ObjectKind::File)
    };
    let mut stored = StoredHistory::default();
    stored.hangs.extend([1030, 1050, 1100, 1200].map(|at_s| (at_s, hang(at_s))));
    let period = |from_s: u64| crate::model::WatchedPeriod {
        from_ns: from_s * SECOND,
        to_ns: (from_s + 60) * SECOND,
        recorder_ns: 60 * SECOND,
        watched_ns: 60 * SECOND,
        interval_ns: 0,
        over_limit: 0,
        refused: 0,
        lost: 0,
        programs: Vec::new(),
    };
    stored.periods = vec![period(1000)];
    let select =
        |stored: &StoredHistory| HangHistory::select(stored, TimeSpan::ALL, None, 1210 * SECOND);
    let history = select(&stored);
    assert_eq!(history.uncounted, (2, 2 * SECOND));
    assert!(verdict(&history)[1].starts_with("2 of them began in a time whose"), "{history:?}");
    let rate = HangRate::of(&history);
    assert_eq!((rate.hangs, rate.total_ns), (2, 2 * SECOND));
    stored.periods = vec![period(1160), period(1000), period(1061)];
    let history = select(&stored);
    assert_eq!(history.uncounted, (0, 0));
    assert!(!verdict(&history).concat().contains("of them"), "{history:?}");
}

fn an_hour(watched_s: u64) -> HangHistory {
    let coverage = WatchCoverage {
        recorder_ns: 3600 * SECOND,
        watched_ns: watched_s * SECOND,
        ..WatchCoverage::default()
    };
    HangHistory { coverage, ..HangHistory::default() }
}

#[test]
fn the_end_of_a_span_that_is_not_counted_yet_is_told_where_it_is_much_of_it() {
    let lines = |watched_s: u64, latest_s: u64| {
        let coverage = WatchCoverage {
            recorder_ns: watched_s * SECOND,
            watched_ns: watched_s * SECOND,
            not_counted_ns: latest_s * SECOND,
            ..WatchCoverage::default()
        };
        let history = HangHistory { coverage, ..HangHistory::default() };
        styled(|style| style.verdict(&history, TimeSpan::ALL, "today"))
    };
    assert_eq!(
        lines(11, 49),
        [
            "No hang of 100 ms or more today in 11.0 s of watching.",
            "Not counted yet: the last 49.0 s. A recorder stores each minute what it has watched.",
        ]
    );
    assert_eq!(lines(228, 4), ["No hang of 100 ms or more today in 3 min 48 s of watching."]);
    assert_eq!(lines(3600, 60), ["No hang of 100 ms or more today in 1 h of watching."]);
}

#[test]
fn who_is_waited_for_is_named_by_whom_a_chain_leads_to() {
    let hop = |program: &str, process| HangHop {
        program: program.to_owned(),
        process,
        unit: String::new(),
        call: String::new(),
        function: String::new(),
        waited_ns: 1,
    };
    let object = CallObject {
        kind: ObjectKind::Other,
        name: "[eventfd]".to_owned(),
        file_system: String::new(),
        device: String::new(),
    };
    let share = CallShare { call: "poll".to_owned(), blocked_ns: 1, seen: 1, object: Some(object) };
    let mut hang = hostile(HangCause::OtherProgram, ObjectKind::Other);
    hang.process = 7;
    (hang.calls, hang.frames, hang.blamed) = (vec![share], Vec::new(), None);
    hang.chain = None;
    let reason = |hang: &Hang| styled(|style| style.reason(hang));
    assert_eq!(reason(&hang), "waiting for another program: poll of [eventfd]");
    let hops = vec![hop("app", 7), hop("gdbus", 7), hop("dbus-daemon", 8), hop("svc.py", 9)];
    hang.chain = Some(HangChain { hops, end: String::new(), end_ns: 1, has_losses: false });
    assert_eq!(reason(&hang), "waiting for svc.py (poll)");
    hang.calls[0].object = None;
    hang.calls[0].call = CallShare::PAGE_FAULT.to_owned();
    hang.cause = HangCause::PageFault;
    assert_eq!(reason(&hang), "waiting for pages", "no disk was seen");
}

#[test]
fn a_verdict_without_a_hang_says_what_was_not_seen() {
    assert_eq!(verdict(&an_hour(600))[0], "No hang of 100 ms or more today in 10 min of watching.");
    let mut crowd = an_hour(600);
    crowd.coverage.over_limit = 1752;
    let lines = verdict(&crowd);
    assert!(lines[0].contains("100 ms or more of the programs that were followed"), "{lines:?}");
    let damaged = Some("Not read: 1 file of records (1: x).".to_owned());
    let damaged = HangHistory { damage: damaged, ..an_hour(600) };
    let lines = verdict(&damaged);
    assert!(lines[0].ends_with("of watching, as far as the records can be read."), "{lines:?}");
    assert!(lines[1].starts_with("Not read: "), "{lines:?}");
    // Nobody knows whether a recorder ran if its records cannot be read.
    let damaged = HangHistory { coverage: WatchCoverage::default(), ..damaged };
    assert!(!verdict(&damaged)[0].contains("did not run"), "{:?}", verdict(&damaged));
    let mut stalled = an_hour(600);
    stalled.coverage.stalled_ns = 3 * SECOND;
    let lines = verdict(&stalled);
    assert!(lines[1].starts_with("The recorder itself did not run for 3.00 s of"), "{lines:?}");
    let mut sampled = an_hour(600);
    sampled.coverage.interval_ns = SECOND / 20;
    sampled.coverage.sampled_ns = 3600 * SECOND;
    let lines = verdict(&sampled);
    assert!(lines[1].starts_with("Sampled from outside every 50.0 ms: "), "{lines:?}");
    sampled.coverage.sampled_ns = 60 * SECOND;
    let lines = verdict(&sampled);
    let part = "Sampled from outside for 1.00 min of the time every 50.0 ms: ";
    assert!(lines[1].starts_with(part), "{lines:?}");
    // A time of which records were erased is none in which no recorder ran.
    let none = HangHistory::default();
    assert!(verdict(&none)[0].ends_with("or its records were erased."), "{:?}", verdict(&none));
    let mut erased = none;
    erased.coverage.erased_before_ns = Some(3600 * SECOND);
    let lines = verdict(&erased);
    assert_eq!(lines[0], "No record of hangs today.");
    assert_eq!(lines[1], "Erased: everything that was recorded before 01:00.");
    let mut refused = an_hour(0);
    refused.coverage.refused = 3;
    let lines = verdict(&refused);
    assert!(lines[0].contains("no interactive program could be watched"), "{lines:?}");
    assert!(lines[1].starts_with("Not watched: 3 programs that the kernel"), "{lines:?}");
    let mut without_loop = an_hour(0);
    without_loop.programs.insert("a\u{1b}".to_owned(), ProgramSteps::default());
    let lines = verdict(&without_loop);
    assert!(lines[0].contains("no interactive program could be watched"), "{lines:?}");
    let why = "no wait of a main loop was found.";
    assert_eq!(lines[1], format!("Not watched: a\\x1b, in whose first thread {why}"));
    without_loop.coverage.watched_ns = SECOND;
    without_loop.programs.insert("b".to_owned(), ProgramSteps::default());
    without_loop
        .programs
        .insert("seen".to_owned(), ProgramSteps { watched_ns: SECOND, ..ProgramSteps::default() });
    let lines = verdict(&without_loop);
    assert!(lines[0].contains("100 ms or more of the programs that were followed"), "{lines:?}");
    assert!(lines[1].contains(" a\\x1b and b, in whose first threads "), "{lines:?}");
    without_loop.programs.insert("c".to_owned(), ProgramSteps::default());
    let lines = verdict(&without_loop);
    assert!(lines[1].contains(" a\\x1b and 2 others, in whose first threads "), "{lines:?}");
    let of_program = |watched_s| {
        let program = Some("ki\u{1b}te".to_owned());
        verdict(&HangHistory { program, ..an_hour(watched_s) }).remove(0)
    };
    assert!(of_program(0).ends_with("ki\\x1bte was not watched."), "{}", of_program(0));
    assert!(of_program(60).contains(" of ki\\x1bte today in 1 min"), "{}", of_program(60));
}

#[test]
fn nobody_is_told_to_switch_on_what_is_on_or_that_what_runs_did_not_run() {
    let never = || -> bool { panic!("not asked while it runs") };
    assert_eq!(recorder_hint(true, true, never), None);
    assert!(recorder_hint(true, false, never).unwrap().starts_with("The recorder runs"));
    assert!(recorder_hint(false, true, || false).unwrap().ends_with("unjank setup hangs"));
    let on = recorder_hint(false, false, || true).unwrap();
    assert!(on.contains("although it is switched on") && !on.contains("unjank setup"), "{on}");
}

/// A hang that waits for the sync of a file.
fn sync_of(number: u64, program: &str, path: &str, device: &str) -> Hang {
    let mut hang = hostile(HangCause::Sync, ObjectKind::File);
    (hang.number, hang.program) = (number, program.to_owned());
    (hang.frames, hang.blamed, hang.chain, hang.disk_use) = (Vec::new(), None, None, None);
    let object = CallObject {
        kind: ObjectKind::File,
        name: path.to_owned(),
        file_system: "ext4".to_owned(),
        device: device.to_owned(),
    };
    hang.calls = vec![CallShare {
        call: "fsync".to_owned(),
        blocked_ns: SECOND,
        seen: 1,
        object: Some(object),
    }];
    hang
}

const LIST: &str = "/home/ana/.local/share/recently-used.xbel";

#[test]
fn yesterdays_sentence_names_the_file_its_disk_the_programs_and_what_mends_it() {
    let hangs = vec![
        sync_of(1, "dolphin", &format!("{LIST}.A1b2C3"), "vda2"),
        sync_of(2, "dolphin (helper)", &format!("{LIST}.lock"), "vda2"),
        sync_of(3, "kate", LIST, "vda2"),
        sync_of(4, "notes", "/home/ana/notes", "vda2"),
    ];
    let mut history = HangHistory { hangs, ..an_hour(600) };
    let told = |history: &HangHistory, applied: &AppliedRemedies| {
        styled_beside(applied, |style| style.yesterday(&HangSummary::of(history, applied)))
    };
    let none = AppliedRemedies::NONE;
    assert_eq!(
        told(&history, &none),
        "Yesterday 4 hangs in 10 min of watching, the longest 1.00 s (dolphin); 3 of them on ~/.local/share/recently-used.xbel on vda2 by 2 programs; what mends 3: unjank setup relax. See: unjank hangs --since yesterday."
    );
    history.hangs.truncate(2);
    let text = told(&history, &none);
    assert!(
        text.contains("2 of them on ~/.local/share/recently-used.xbel on vda2 by dolphin;"),
        "{text}"
    );
    let later = AppliedRemedies::new(vec![(HangRemedy::Relax, Some(6000 * SECOND))]);
    let text = told(&history, &later);
    assert!(text.contains("; what mends 2 is on since: unjank hangs compare relax."), "{text}");
    history.hangs.insert(0, sync_of(5, "gedit", &format!("{LIST}.A1b2C3"), "sda1"));
    let before = AppliedRemedies::new(vec![(HangRemedy::Relax, Some(SECOND))]);
    let text = told(&history, &before);
    assert!(text.contains(" on 2 disks by 2 programs; "), "{text}");
    assert!(!text.contains("unjank setup relax"), "it is on: {text}");
}

#[test]
fn yesterdays_sentence_says_what_was_not_seen_stored_or_kept() {
    let told = |history: &HangHistory| {
        let summary = HangSummary::of(history, &AppliedRemedies::NONE);
        styled(|style| style.yesterday(&summary))
    };
    let whole = an_hour(600);
    assert_eq!(told(&whole), "Yesterday no program was seen to hang in 10 min of watching.");
    let mut lost = an_hour(600);
    lost.coverage.lost = 3;
    assert_eq!(
        told(&lost),
        "Yesterday no hang is recorded in 10 min of watching. Seen and not stored: 3 hangs."
    );
    let mut erased = an_hour(600);
    erased.programs.insert(ERASED_PROGRAM.to_owned(), ProgramSteps::default());
    assert_eq!(
        told(&erased),
        "Yesterday no hang is recorded in 10 min of watching. The hangs of a program were erased."
    );
    let lines = styled(|style| style.verdict(&erased, TimeSpan::ALL, "today")).join(" ");
    assert!(lines.contains("Erased: the hangs of a program"), "{lines}");
    assert!(!lines.contains("no wait of a main loop"), "{lines}");
    let mut crowd = an_hour(600);
    (crowd.coverage.over_limit, crowd.coverage.refused) = (2, 1);
    assert!(told(&crowd).ends_with("of watching. Not followed: 3 programs."), "{}", told(&crowd));
    // The recorder was killed before it stored how long it had watched.
    let hangs = vec![sync_of(1, "kate", "/home/ana/notes", "vda2")];
    let unknown = HangHistory { hangs, ..an_hour(0) };
    assert!(told(&unknown).starts_with("Yesterday 1 hang, the longest "), "{}", told(&unknown));
}

#[test]
fn what_is_on_is_not_told_to_be_switched_on_and_whether_it_helped_is_told() {
    let hang = sync_of(1, "gedit", &format!("{LIST}.A1b2C3"), "vda2");
    let history = HangHistory { hangs: vec![hang.clone()], ..an_hour(600) };
    let told = |since_ns: Option<Option<u64>>| {
        let on = since_ns.map(|since_ns| (HangRemedy::Relax, since_ns));
        let applied = AppliedRemedies::new(on.into_iter().collect());
        let texts = styled_beside(&applied, |style| {
            [style.sheet(&hang), style.list(&history, TimeSpan::ALL, "today", 9)]
        });
        texts.map(|text| text.replace('\n', " "))
    };
    for text in told(None) {
        assert!(text.contains("unjank setup relax"), "{text}");
    }
    // The hang began at one o'clock.
    for text in told(Some(Some(5400 * SECOND))) {
        assert!(!text.contains("unjank setup"), "{text}");
        assert!(text.contains("01:30") && text.contains("unjank hangs compare relax"), "{text}");
    }
    for since_ns in [Some(1800 * SECOND), None] {
        for text in told(Some(since_ns)) {
            assert!(!text.contains("unjank setup"), "{text}");
            assert!(text.contains("relax is on and did not help"), "{text}");
        }
    }
}

#[test]
fn a_comparison_says_which_hangs_are_counted() {
    let rate = |hangs| HangRate {
        hangs,
        watched_ns: 36_000 * SECOND,
        total_ns: SECOND,
        has_erased_program: false,
    };
    let compared = crate::compare::compare(rate(40), rate(2));
    let counted = ComparedHangs {
        program: Some("kate".to_owned()),
        file: Some(LIST.to_owned()),
        cause: Some(HangCause::Sync),
        part: Some("relax".to_owned()),
    };
    let told = ComparedText {
        moment: "relax was switched on at 01:00",
        counted: &counted,
        all: Some((rate(100), rate(60))),
        note: Some("A note."),
    };
    let stored = StoredHistory::default();
    let text = styled(|style| style.comparison(&compared, told, &stored, 7200 * SECOND));
    let text = text.replace('\n', " ");
    let verdict = "Fewer hangs of kate on ~/.local/share/recently-used.xbel (waiting until a disk has stored data) that relax mends since relax was switched on at 01:00.";
    assert!(text.starts_with(verdict), "{text}");
    for part in ["before: 40 hangs", "after: 2 hangs", "all hangs, before: 100", "A note."] {
        assert!(text.contains(part), "{text}");
    }
}
