//! What becomes of a recording in a report.

use std::time::SystemTime;

use super::account::{TimeBlock, TimeParts};
use super::example::{Example, provenance, recording, report};
use super::schema::{TargetKind, TraceMethod, TraceReport};
use super::{ReportOptions, build, data, page, text};
use crate::call::{CallEnd, StackId, TracedCall};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, CodeAddress, Module, Recording, Stack, StackEnd, Target};
use crate::syscall;
use crate::timeline::{ShortCallSample, ThreadTimeline, TimeSlice};
use report::paint::Paint;

#[test]
fn what_a_person_feels_is_told_from_what_merely_waits() {
    let report = report();
    let main = report.main().unwrap();
    assert_eq!(main.id, 10);
    let stalls = &main.stalls;
    assert_eq!((stalls.missed, stalls.felt, stalls.hung), (3, 1, 0));
    assert_eq!((stalls.idle, stalls.idle_ns), (1, 900_000_000));
    let worker = report.threads.iter().find(|thread| thread.id == 11).unwrap();
    assert_eq!((worker.stalls.missed, worker.stalls.idle), (0, 1));
    let first = &report.paths[0];
    assert_eq!(report.blamed(first), Some("KRecentDocument::add(QUrl const&)"));
    assert_eq!((first.count, first.wall_ns, first.how), (1, 134_000_000, TraceMethod::Stall));
    assert_eq!((first.kind, first.on_main), (Some(TargetKind::File), 1));
    assert_eq!(first.blocked_ns, Some(113_900_000));
    assert!(report.paths.iter().filter(|path| path.how == TraceMethod::Idle).count() == 2);
}

#[test]
fn a_stall_whose_callers_could_not_be_looked_up_is_said_to_be_one() {
    let is_said = |report: &TraceReport| {
        let account = report.main().unwrap().account.as_ref().unwrap();
        account
            .unseen
            .iter()
            .any(|unseen| unseen.starts_with("the functions that made 2 slow calls, 184 ms"))
    };
    assert!(!is_said(&report()));
    // It makes another call, of 50 ms, as it ends, whose callers are not known either. What is left of a stack of a program
    // that has ended is an address in no file.
    let address = CodeAddress { module: None, address: 1 };
    let lost = Stack { frames: vec![address], end: StackEnd::Lost };
    for stack in [Some(lost), None] {
        let mut recording = recording();
        let id = StackId(u32::try_from(recording.stacks.len()).unwrap());
        let longest = recording.slow.iter_mut().find(|call| call.wall_ns == 134_000_000).unwrap();
        longest.stack = stack.is_some().then_some(id);
        recording.stacks.extend(stack);
        let options = ReportOptions::default();
        let report = build(&recording, &Example, provenance(), &options);
        assert!(is_said(&report), "{:?}", report.main().unwrap().account);
        assert!(
            report.verdict.contains("by a function that is not known, 134 ms"),
            "{}",
            report.verdict
        );
    }
}

#[test]
fn who_held_a_lock_at_one_time_is_not_said_to_have_held_it_always() {
    let verdict = |holders: [Option<u32>; 3]| {
        let mut recording = recording();
        let mut lock =
            recording.slow.iter().find(|call| call.wall_ns == 134_000_000).unwrap().clone();
        lock.number = syscall::call_number("futex").unwrap();
        for (at, owner) in holders.into_iter().enumerate() {
            let place = u32::try_from(recording.targets.len()).unwrap();
            recording.targets.push(Target::Lock { owner, owner_stack: None });
            lock.target = Some(crate::call::TargetId(place));
            lock.start_ns += 500_000_000 * u64::from(at > 0);
            recording.slow.push(lock.clone());
        }
        build(&recording, &Example, provenance(), &ReportOptions::default()).verdict
    };
    let once = verdict([Some(11), None, None]);
    assert!(once.contains("3 x futex of a lock (1 of 3 times held by thread 11) by "), "{once}");
    let mostly = verdict([Some(11), Some(12), Some(11)]);
    assert!(mostly.contains("(2 of 3 times held by thread 11)"), "{mostly}");
    let always = verdict([Some(11); 3]);
    assert!(always.contains("3 x futex of a lock that thread 11 holds"), "{always}");
    let never = verdict([None; 3]);
    assert!(never.contains("3 x futex of a lock") && !never.contains("thread 11"), "{never}");
}

#[test]
fn sums_are_those_of_the_recording() {
    let report = report();
    let access = report.calls.iter().find(|kind| kind.name == "access").unwrap();
    assert_eq!((access.count, access.errors, access.slow), (1375, 1375, 0));
    assert_eq!(access.errnos[0].name, "ENOENT");
    assert!(access.p50_ns > 2_000 && access.p99_ns <= access.longest_ns);
    assert_eq!(report.sums.count, 1381);
    assert_eq!(report.sums.idle_ns, 2_000_000_000);
    assert!(report.targets.iter().any(|target| target.errors == 1375));
    assert!(report.slow.iter().any(|slow| slow.running && slow.arguments.starts_with("wait4(")));
}

#[test]
fn a_report_is_bounded_and_says_what_it_left_out() {
    let mut recording = recording();
    let call = recording.slow[0].clone();
    for at in 0..5000_u64 {
        recording.slow.push(TracedCall {
            start_ns: at * 1000,
            wall_ns: 100_000 + at,
            ..call.clone()
        });
    }
    let options = ReportOptions { slow_calls: 100, ..ReportOptions::default() };
    let report = build(&recording, &Example, provenance(), &options);
    assert!(report.slow.len() <= 100 && report.slow.len() >= 90, "{}", report.slow.len());
    assert_eq!(report.slow_left_out + report.slow.len() as u64, recording.slow.len() as u64);
    let longest = recording.slow.iter().map(|call| call.wall_ns).max();
    assert_eq!(report.slow.iter().map(|slow| slow.wall_ns).max(), longest, "the worst stay");
    assert!(report.slow.iter().any(|slow| slow.wall_ns < 103_000), "a sample of the rest stays");
    assert!(report.slow.is_sorted_by_key(|slow| slow.at_ns));
}

#[test]
fn a_report_is_read_back_as_it_was_written() {
    let report = report();
    let json = data::to_json(&report).unwrap();
    assert_eq!(data::read(json.as_bytes()).unwrap(), report);
    let page = format!("<!doctype html><p>x</p>{}<p>y</p>", data::element(&report).unwrap());
    assert_eq!(data::read(page.as_bytes()).unwrap(), report);
    assert_eq!(page.matches("</script>").count(), 1, "no name ends the data");
}

#[test]
fn bytes_that_are_no_report_are_refused_and_said_to_be() {
    let report = report();
    let json = data::to_json(&report).unwrap();
    let wrong = |text: &str| data::read(text.as_bytes()).unwrap_err().to_string();
    insta::assert_snapshot!(wrong(""), @"cannot find a report: the file is neither a page nor JSON of unjank trace");
    insta::assert_snapshot!(wrong("<html></html>"), @"cannot find a report: the file is neither a page nor JSON of unjank trace");
    insta::assert_snapshot!(wrong("{\"a\":1}"), @"cannot find a report: the file is neither a page nor JSON of unjank trace");
    insta::assert_snapshot!(wrong(&json[..200]), @"cannot read the report's data");
    insta::assert_snapshot!(wrong(&json.replace("trace/1", "trace/9")), @r#"cannot read a report of the schema "unjank.trace/9", only "unjank.trace/1""#);
    let mut planted = report.clone();
    planted.slow[0].thread = 77;
    insta::assert_snapshot!(wrong(&data::to_json(&planted).unwrap()), @"cannot use the report: slow has an index out of range");
    // What others write cannot disturb a screen.
    let foreign = json.replace("kde-open5", "\\u001b[31m\\u202e");
    let foreign = data::read(foreign.as_bytes()).unwrap();
    let screen = text::render(&foreign, 80, Paint::Off);
    assert!(
        screen.contains("\\x1b[31m") && !screen.contains('\u{1b}') && !screen.contains('\u{202e}')
    );
    let deep = format!("{{\"schema\":{}", "[".repeat(100_000));
    assert!(data::read(deep.as_bytes()).is_err());
}

#[test]
fn a_call_is_not_blamed_alone_if_the_program_was_stopped_in_it() {
    let mut report = report();
    let main = usize::try_from(report.main_thread.unwrap()).unwrap();
    let thread = &mut report.threads[main];
    let (longest, account) = (thread.stalls.longest_ns, thread.account.as_mut().unwrap());
    let block = TimeBlock { wall_ns: longest, ..TimeBlock::default() };
    let in_call = TimeParts { call_ns: longest, ..TimeParts::default() };
    account.blocks = vec![TimeBlock { parts: in_call, ..block.clone() }];
    let verdict_of = |report: &TraceReport| super::verdict::verdict(report);
    let blamed = verdict_of(&report);
    assert!(blamed.contains("Most of it: fdatasync") && !blamed.contains("held up"), "{blamed}");
    let stopped = TimeParts { stopped_ns: longest, ..TimeParts::default() };
    report.threads[main].account.as_mut().unwrap().blocks =
        vec![TimeBlock { parts: stopped, ..block }];
    let blamed = verdict_of(&report);
    assert!(blamed.contains("held up for 134 ms"), "{blamed}");
    assert!(blamed.contains("134 ms stopped or frozen"), "{blamed}");
}

/// Divides 300 ms of a thread that ran, was ready and took page faults by turns, with a wait of 100 ms among them.
fn divided(outcome: CallEnd) -> TimeParts {
    let ms = 1_000_000;
    let words = vec![b"pages".to_vec()];
    let mut recorder = TraceRecorder::new(Backend::Peek, words, SystemTime::UNIX_EPOCH);
    recorder.process(10);
    recorder.thread(10, 10, 0);
    recorder.call(TracedCall {
        process: 10,
        thread: 10,
        number: syscall::call_number("ppoll").unwrap(),
        arguments: [0; 6],
        outcome,
        start_ns: 200 * ms,
        wall_ns: 100 * ms,
        cpu_ns: Some(0),
        queued_ns: Some(0),
        stack: None,
        target: None,
    });
    let timeline = recorder.recording().timelines.entry(10).or_default();
    timeline.push(TimeSlice {
        length_ns: 300 * ms,
        processor_ns: 10 * ms,
        ready_ns: 200 * ms,
        fault_ns: 90 * ms,
        ..TimeSlice::default()
    });
    let recording = recorder.finish(300 * ms);
    let report = build(&recording, &Example, provenance(), &ReportOptions::default());
    report.threads[0].account.as_ref().unwrap().parts
}

#[test]
fn page_faults_beside_a_sampled_wait_are_counted_and_no_time_twice() {
    let ms = 1_000_000;
    for outcome in [CallEnd::Unknown, CallEnd::Running] {
        let parts = divided(outcome);
        assert_eq!(parts.fault_ns, 60 * ms, "{parts:?}");
        assert!(parts.ready_ns == 200 * ms && parts.processor_ns == 10 * ms, "{parts:?}");
        assert!(parts.unknown_ns < ms, "{parts:?}");
    }
    // A call that was seen whole has counters of its own: it waited all the time, and what is left is not page faults.
    let parts = divided(CallEnd::Returned(0));
    assert_eq!(parts.idle_ns + parts.call_ns, 90 * ms, "{parts:?}");
    assert_eq!(parts.fault_ns, 0, "{parts:?}");
}

#[test]
fn samples_of_short_calls_stand_for_their_time_as_what_they_are() {
    let ms = 1_000_000;
    let words = vec![b"short".to_vec()];
    let mut recorder = TraceRecorder::new(Backend::Bpf, words, SystemTime::UNIX_EPOCH);
    recorder.process(10);
    recorder.thread(10, 10, 0);
    let path = b"/home/ana/cold".to_vec();
    let file = recorder.target(Target::File { path, mount: None });
    let module =
        Module { path: b"/bin/short".to_vec(), build_id: None, file: None, reached_by: None };
    let module = Some(recorder.module(module));
    let mut stack = |addresses: &[u64]| {
        let frame = |address: &u64| CodeAddress { module, address: *address };
        let frames = addresses.iter().map(frame).collect();
        Some(recorder.stack(Stack { frames, end: StackEnd::Whole }))
    };
    let (sync, idle) = (stack(&[1, 3, 4]), stack(&[5, 6, 4]));
    // Ten milliseconds of each: what is waited for an event is no stall.
    for (at, (name, stack, target)) in
        [("fdatasync", sync, file), ("futex", sync, None), ("ppoll", idle, None)]
            .into_iter()
            .cycle()
            .take(30)
            .enumerate()
    {
        let call = TracedCall {
            process: 10,
            thread: 10,
            number: syscall::call_number(name).unwrap(),
            arguments: [0; 6],
            outcome: CallEnd::Returned(0),
            start_ns: (at as u64 + 1) * ms,
            wall_ns: 60_000,
            cpu_ns: Some(10_000),
            queued_ns: Some(0),
            stack,
            target,
        };
        recorder.waited_shortly(ShortCallSample { call, blocked_ns: ms, count: 20 });
    }
    let slice = TimeSlice { length_ns: 40 * ms, processor_ns: 8 * ms, ..TimeSlice::default() };
    recorder.recording().timelines.entry(10).or_default().push(slice);
    let recording = recorder.finish(40 * ms);
    let report = build(&recording, &Example, provenance(), &ReportOptions::default());
    let account = report.threads[0].account.as_ref().unwrap();
    let parts = account.parts;
    assert_eq!(
        [parts.call_ns, parts.lock_ns, parts.idle_ns, parts.processor_ns, parts.unknown_ns],
        [10 * ms, 10 * ms, 10 * ms, 8 * ms, 2 * ms]
    );
    let names: Vec<String> =
        account.short_calls.iter().map(|row| report.short_calls_name(row)).collect();
    let by = "by KConfig::sync()";
    assert!(
        names.contains(&format!("about 200 short calls: fdatasync of /home/ana/cold {by}")),
        "{names:?}"
    );
    assert!(names.contains(&format!("about 200 short calls: futex {by}")), "{names:?}");
    assert_eq!(names.len(), 2);
    assert_eq!(account.blocks[0].short_calls, account.short_calls);
    // Both are shown, on the terminal those of half a frame and more.
    let screen = text::render(&report, 100, Paint::Off);
    let (heading, rows) = screen
        .split_once("Where it waited in calls too short to be recorded, estimated\n")
        .unwrap();
    assert!(!heading.contains("short calls of ppoll"), "{screen}");
    let row = rows.lines().find(|row| row.starts_with("fdatasync by")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row.join(" "), "fdatasync by KConfig::sync() 10.0 ms 0.6 200", "{screen}");
    let html = page::render(&report).unwrap();
    assert!(html.contains("fdatasync of /home/ana/cold by KConfig::sync()"), "{html}");
    // A flame graph has them, too, and what the rows leave out.
    let mut cut = report.clone();
    cut.threads[0].account.as_mut().unwrap().short_calls.pop();
    let folded = crate::export::folded(&cut);
    let row = "KConfig::sync() (libKF5ConfigCore.so.5);fdatasync;short calls 10000\n";
    assert!(
        folded.contains(row) || folded.contains(&row.replace("fdatasync", "futex")),
        "{folded}"
    );
    assert!(folded.lines().any(|line| line.ends_with(" 10;short calls 10000")), "{folded}");
    let profile = crate::export::pprof(&report);
    let has = |text: &str| profile.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("short calls") && has("/home/ana/cold") && has("futex"));
    // As a file it is the same, and a row that leads nowhere is refused.
    let written = data::to_json(&report).unwrap();
    assert_eq!(data::read(written.as_bytes()).unwrap(), report);
    let mut broken = report;
    broken.threads[0].account.as_mut().unwrap().short_calls[0].call = 99;
    let written = data::to_json(&broken).unwrap();
    assert!(data::read(written.as_bytes()).is_err());
}

/// A thread that ran, was ready and waited for pages by turns, with calls and work for memory among them.
fn with_memory(
    slices: &[(u64, u64, u64, u64)],
    calls: &[(u64, u64)],
    waits: &[(kernelwork::MemoryWork, u64, u64, u64)],
) -> (TimeParts, u64, kernelwork::MemorySums) {
    let words = vec![b"pages".to_vec()];
    let mut recorder = TraceRecorder::new(Backend::Bpf, words, SystemTime::UNIX_EPOCH);
    recorder.process(10);
    recorder.thread(10, 10, 0);
    let mut now = 0;
    for (rest, wall_ns) in calls {
        now += rest;
        recorder.call(TracedCall {
            process: 10,
            thread: 10,
            number: syscall::call_number("fsync").unwrap(),
            arguments: [0; 6],
            outcome: CallEnd::Returned(0),
            start_ns: now,
            wall_ns: *wall_ns,
            cpu_ns: Some(wall_ns / 3),
            queued_ns: Some(0),
            stack: None,
            target: None,
        });
        now += wall_ns;
    }
    let mut end = 0;
    let recording = recorder.recording();
    let timeline = recording.timelines.entry(10).or_default();
    for (length_ns, processor, ready, fault) in slices {
        let part = |share: &u64| length_ns * share / 100;
        timeline.push(TimeSlice {
            start_ns: end,
            length_ns: *length_ns,
            processor_ns: part(processor),
            ready_ns: part(ready),
            fault_ns: part(fault),
            ..TimeSlice::default()
        });
        end += length_ns;
    }
    let memory = recording.kernel.memory.entry(10).or_default();
    let mut at = 0;
    for (work, rest, wall_ns, processor_ns) in waits {
        at += rest;
        let (work, wall_ns, processor_ns) = (*work, *wall_ns, *processor_ns);
        let wait =
            kernelwork::MemoryWait { work, start_ns: at, wall_ns, processor_ns, ready_ns: 0 };
        memory.add(&wait, 1, None);
        at += wall_ns;
    }
    let sums = memory.timeline.between(0, end);
    let report = build(&recorder.finish(end), &Example, provenance(), &ReportOptions::default());
    let account = report.threads[0].account.as_ref().unwrap();
    for block in &account.blocks {
        let sum: u64 = block.parts.named().iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, block.wall_ns, "{block:?}");
    }
    (account.parts, account.wall_ns, sums)
}

#[test]
fn what_a_shortage_of_memory_cost_is_neither_the_processors_nor_the_disks_nor_the_calls() {
    use kernelwork::MemoryWork::{Reclaim, SwapIn};
    let ms = 1_000_000;
    // 100 ms: 40 on a processor, 40 in faults, 20 in a call.
    let slices = [(40 * ms, 100, 0, 0), (40 * ms, 0, 0, 100), (20 * ms, 0, 0, 0)];
    let waits = [
        (Reclaim, 10 * ms, 10 * ms, 10 * ms),
        (SwapIn, 30 * ms, 20 * ms, 0),
        (Reclaim, 15 * ms, 10 * ms, 0),
    ];
    let (parts, wall_ns, _) = with_memory(&slices, &[(80 * ms, 20 * ms)], &waits);
    assert_eq!((parts.reclaim_ns, parts.swap_ns), (20 * ms, 20 * ms), "{parts:?}");
    assert_eq!((parts.processor_ns, parts.fault_ns), (30 * ms, 20 * ms), "{parts:?}");
    assert!(parts.call_ns <= 10 * ms && parts.call_ns > 9 * ms, "{parts:?}");
    let sum: u64 = parts.named().iter().map(|(_, ns)| ns).sum();
    assert_eq!(sum, wall_ns);
}

#[test]
fn the_function_of_work_for_memory_is_that_of_most_of_the_time_or_none() {
    use kernelwork::{MemoryWait, MemoryWork};
    // 800 short ones by one function, of which one in so many is known, and five long ones by another.
    let function = |one_of: u64| {
        let mut recorder =
            TraceRecorder::new(Backend::Bpf, vec![b"pages".to_vec()], SystemTime::UNIX_EPOCH);
        recorder.process(10);
        recorder.thread(10, 10, 0);
        let mut stack = |address| {
            let frames = vec![CodeAddress { module: None, address }];
            recorder.stack(Stack { frames, end: StackEnd::Whole })
        };
        let (most, other) = (stack(3), stack(4));
        let memory = recorder.recording().kernel.memory.entry(10).or_default();
        for at in 0..805 {
            let is_long = at >= 800;
            let wall_ns = if is_long { 200_000 } else { 80_000 };
            let (work, start_ns) = (MemoryWork::SwapIn, at * 1_000_000);
            let wait = MemoryWait { work, start_ns, wall_ns, processor_ns: wall_ns, ready_ns: 0 };
            let known = if is_long { Some((other, 1)) } else { Some((most, one_of)) };
            memory.add(&wait, 0, known.filter(|_| is_long || one_of > 0 && at % one_of == 0));
        }
        let slice = TimeSlice { length_ns: 900_000_000, ..TimeSlice::default() };
        recorder.recording().timelines.entry(10).or_default().push(slice);
        let recording = recorder.finish(900_000_000);
        let report = build(&recording, &Example, provenance(), &ReportOptions::default());
        let row = &report.threads[0].account.as_ref().unwrap().memory[0];
        assert_eq!((row.count, row.wall_ns), (805, 65_000_000));
        row.frame.map(|frame| report.frames[frame as usize].name.clone())
    };
    assert_eq!(function(8).as_deref(), Some("KConfig::sync()"));
    assert_eq!(function(1).as_deref(), Some("KConfig::sync()"));
    // Where hardly any are known, those that are say nothing of the others.
    assert_eq!(function(0), None);
}

proptest::proptest! {
    #[test]
    fn the_parts_of_any_time_are_the_whole_of_it_and_work_for_memory_is_in_it_once(
        slices in proptest::collection::vec(
            (1..50_000_000_u64, 0..50_u64, 0..25_u64, 0..25_u64), 1..20,
        ),
        calls in proptest::collection::vec((0..30_000_000_u64, 1..40_000_000_u64), 0..10),
        waits in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    kernelwork::MemoryWork::Reclaim,
                    kernelwork::MemoryWork::Compaction,
                    kernelwork::MemoryWork::SwapIn,
                ]),
                0..20_000_000_u64, 1..10_000_000_u64, 0..10_000_000_u64,
            ),
            0..30,
        ),
    ) {
        let (parts, wall_ns, sums) = with_memory(&slices, &calls, &waits);
        let sum: u64 = parts.named().iter().map(|(_, ns)| ns).sum();
        proptest::prop_assert_eq!(sum, wall_ns);
        let lost = sums.processor_ns() + sums.blocked_ns();
        proptest::prop_assert!(lost <= wall_ns + 100);
        proptest::prop_assert!(parts.reclaim_ns + parts.swap_ns <= lost);
        proptest::prop_assert!(parts.reclaim_ns + parts.swap_ns + 100 >= lost.min(wall_ns));
    }
}

#[test]
fn the_disk_is_not_blamed_for_a_wait_that_was_for_a_processor_or_a_stop() {
    let of = |change: &dyn Fn(&mut Recording)| {
        let mut recording = recording();
        change(&mut recording);
        build(&recording, &Example, provenance(), &ReportOptions::default())
    };
    let queued = of(&|recording| {
        for call in &mut recording.slow {
            call.queued_ns = Some(call.wall_ns / 10 * 8);
        }
    });
    let stopped = of(&|recording| {
        let main = recording.slow[0].thread;
        let spans = recording.slow.iter().filter(|call| call.thread == main);
        let spans = spans.map(|call| (call.start_ns, call.start_ns + call.wall_ns / 10 * 8));
        let stops = spans.collect();
        let timeline = ThreadTimeline { stops, ..ThreadTimeline::default() };
        recording.timelines.insert(main, timeline);
    });
    let blamed = report();
    assert!(blamed.verdict.contains("Most of it: fdatasync"), "{}", blamed.verdict);
    let has = |report: &TraceReport, name: &str| report.advice.iter().any(|a| a.pattern == name);
    assert!(has(&blamed, "sync-of-what-can-be-made-again") && !has(&blamed, "no-processor"));
    for (name, report) in [("queued", &queued), ("stopped", &stopped)] {
        assert!(!report.verdict.contains("fdatasync"), "{name}: {}", report.verdict);
        assert!(!has(report, "sync-of-what-can-be-made-again"), "{name}");
        assert_eq!(has(report, "no-processor"), name == "queued");
        let on_main = report.slow.iter().find(|slow| report.call_name(slow.call) == "fdatasync");
        assert!(on_main.unwrap().is_mostly_elsewhere(), "{name}: {on_main:?}");
        let screen = text::render(report, 160, Paint::Off);
        let row = screen.lines().find(|line| line.starts_with("fdatasync by ")).unwrap();
        assert!(row.contains("ready or stopped"), "{name}: {row}");
        let folded = crate::export::folded(report);
        let is_main = |line: &&str| line.starts_with("kde-open5;kde-open5 ");
        let leaf = |line: &str| line.rsplit(';').next().unwrap().starts_with("fdatasync ");
        assert!(folded.lines().filter(is_main).all(|line| !leaf(line)), "{name}: {folded}");
        assert!(folded.contains(";fdatasync;without a processor or stopped 134000"), "{folded}");
        let firefox = crate::export::firefox(report).unwrap();
        let markers = |text: &str| text.matches("\"FileIO\"").count();
        let before = crate::export::firefox(&blamed).unwrap();
        assert!(markers(&firefox) < markers(&before), "{name}");
    }
    let blocked = |report: &TraceReport| report.paths[0].blocked_ns.unwrap();
    assert!(blocked(&stopped) < blocked(&blamed) / 2 && blocked(&queued) < blocked(&blamed) / 2);
}

#[test]
fn the_screen_has_the_verdict_first_and_fits() {
    let text = text::render(&report(), 80, Paint::Off);
    // A command is whole however long it is, so that it can be pasted.
    let lines = text.lines().filter(|line| !line.starts_with("       "));
    assert!(lines.clone().count() > 30);
    assert!(lines.clone().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text, @r##"
    The main thread of kde-open5 stood still for more than a frame 3 times, 12
    frames in all; the longest took 134 ms, felt. Most of it: fdatasync of
    ~/.local/share/RecentDocuments/x.desktop by KRecentDocument::add(QUrl const&),
    134 ms. It was held up for 166 ms (10 frames) at one stretch: 132 ms blocked in
    calls, 18.0 ms on a processor, 16.2 ms not explained. Not explained: 68.6 ms of
    its 1.26 s; not seen: what a test does not see, and 2 more in the notes.

    What the main thread's time went to
    part                   wall      mostly
    idle                   886   ms
    blocked in calls       221   ms
    not explained           68.6 ms
    on a processor          68.0 ms  KRecentDocument::add(QUrl const&)
    stopped by the tracer   16.6 ms

    Where it waited
    code path                                      wall      frames  count  longest
    fdatasync by KRecentDo…ment::add(QUrl const&)  134   ms  8.0     1      134   ms
    wait4                                           50.0 ms  3.0     1       50.0 ms
    fdatasync by KConfig::sync()                    40.0 ms  2.4     1       40.0 ms
    fsync by </script><b>\xe2\x80\xae              500   µs  0.03    1      500   µs
    (no room for blocked)

    What to do
      1. 3 syncs took 174 ms, of ~/.local/share/RecentDocuments/x.desktop and 1
         more, by KRecentDocument::add(QUrl const&), on the main thread: the file is
         a cache or a history and need not survive a power cut
         Write it beside itself and rename it, without a sync: after a power cut it
         is made again (QSaveFile always syncs, a QFile that is renamed does not;
         KConfig can write in a worker)
         See what it costs, on memory instead of the disk, until the next start
         (sudo umount undoes it):
           sudo mount -t tmpfs -o mode=0700,uid=$(id -u) tmpfs /home/ana/.local/share/RecentDocuments
         Prove what would be won:
           unjank trace ab --skip fsync,fdatasync --yes -- kde-open5 'a file.html'
      2. 1 wait took 50.0 ms, on the main thread: a program that shows something
         waits for another to end
         Be told when it ends instead of waiting: g_child_watch_add,
         QProcess::finished, pidfd_open and poll
      3. 1375 look-ups found nothing, about 3.69 ms of them, most below
         /usr/share/icons: somebody asks in every place instead of knowing the one
         Give the icon themes their caches; without them every size and every theme
         is looked into:
           for dir in /usr/share/icons/*/; do sudo gtk-update-icon-cache -qf "$dir"; done

    Calls
    call       count  errors  wall       p50        p99        longest    idle
    fdatasync     2           174    ms   37.7  ms  126    ms  134    ms
    wait4         1            50.0  ms   46.1  ms   46.1  ms   50.0  ms
    access     1375   1375      3.69 ms    2.82 µs    3.33 µs    3.37 µs
    fsync         1           500    µs  492    µs  492    µs  500    µs
    futex         1                        1.10 s     1.10 s     1.10 s     1.10 s
    ppoll         1                      872    ms  872    ms  900    ms  900    ms
    (no room for cpu)

    Files and peers
    what                                                            wall       count
    ~/.local/share/RecentDocuments/x.desktop                        134    ms     1
    /tmp/</script><script>alert(1)<…0a\x1b[31m\xe2\x80\xae.desktop   40.5  ms     2
    /usr/share/icons/x.png                                            3.69 ms  1375
    (no room for on)

    Also
      · 2.00 s were spent waiting for something to do, which counts as no stall
      · watched by seccomp: blocking calls, slow from 100 µs on; 6.00 µs (± 400
        ns) of each call were the tracer's and are subtracted
      · calls of the vDSO cannot be seen
      · not seen: what a test does not see
      · not seen: how long page faults took, apart from the other waits
      · not seen: the functions that made 1 slow call, 50.0 ms: their callers could
        not be read in time
    "##);
    let coloured = text::render(&report(), 80, Paint::On);
    assert!(!coloured.contains("\x1b[31m") && coloured.contains("\x1b[1m"));
}

#[test]
fn known_patterns_are_named_with_what_helps() {
    let report = report();
    let patterns: Vec<&str> = report.advice.iter().map(|found| &*found.pattern).collect();
    assert_eq!(
        patterns,
        ["sync-of-what-can-be-made-again", "wait-for-child", "missing-files"],
        "{:#?}",
        report.advice
    );
    let first = &report.advice[0];
    assert!(first.reason.starts_with("3 syncs took 174 ms, of ~/.local/share/RecentDocuments/"));
    assert!(
        first.reason.contains("by KRecentDocument::add") && first.reason.contains("main thread")
    );
    assert!(first.advice.iter().any(|advice| {
        advice.command.as_deref()
            == Some("unjank trace ab --skip fsync,fdatasync --yes -- kde-open5 'a file.html'")
    }));
    assert!(report.advice[2].reason.contains("1375 look-ups found nothing"));
    assert!(report.advice[2].reason.contains("most below /usr/share/icons:"));
    let commands: Vec<&String> = report
        .advice
        .iter()
        .flat_map(|found| &found.advice)
        .filter_map(|advice| advice.command.as_ref())
        .collect();
    let distinct: std::collections::BTreeSet<&&String> = commands.iter().collect();
    assert_eq!(commands.len(), distinct.len(), "a command is said once");
}

#[test]
fn the_main_thread_is_that_of_the_command_or_of_what_it_waited_for() {
    let second = 1_000_000_000;
    let make = |waits_ns: u64, has_window: bool| {
        let began = SystemTime::UNIX_EPOCH;
        let mut recorder = TraceRecorder::new(Backend::Bpf, vec![b"launch".to_vec()], began);
        recorder.recording().threshold_ns = 100_000;
        for (id, parent, start_ns, end_ns) in [
            (10, None, 0, Some(second)),
            (11, Some(10), 1, Some(second - 1)),
            (12, Some(10), 2, None),
        ] {
            let process = recorder.process(id);
            (process.parent, process.start_ns, process.end_ns) = (parent, start_ns, end_ns);
            process.has_window = has_window && id == 12;
            recorder.thread(id, id, start_ns).end_ns = end_ns;
        }
        let call = |thread: u32, name: &str, wall_ns: u64| TracedCall {
            process: thread,
            thread,
            number: syscall::call_number(name).unwrap(),
            arguments: [0; 6],
            outcome: CallEnd::Returned(0),
            start_ns: 0,
            wall_ns,
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        };
        recorder.call(call(10, "wait4", waits_ns));
        // A worker that waits for orders in a way that we do not know.
        recorder.call(call(12, "recvmsg", 18 * second));
        let recording = recorder.finish(20 * second);
        build(&recording, &Example, provenance(), &ReportOptions::default()).main().unwrap().id
    };
    assert_eq!(make(1000, false), 10, "a worker that it started is another program");
    assert_eq!(make(second, false), 11, "a shell stands for the program that it waits for");
    assert_eq!(make(1000, true), 12, "the launcher has ended, its program has a window");
}
