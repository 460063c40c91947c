//! Baselines of runs that are logs of strace: what is new, what is gone, what chance made, and what could not be seen.

use super::*;
use crate::example::traced;
use trace::report::TraceReport;
use trace::report::account::TimeAccount;

const SAVE: (&str, &[&str]) =
    ("100.100000 fsync(3</home/ana/.config/editor/session>) = 0 <0.012000>", &["save", "main"]);
const READ: (&str, &[&str]) =
    ("100.200000 read(4</usr/lib/libfoo.so.1.2>, \"\", 9) = 9 <0.030000>", &["load", "main"]);
const REST: (&str, &[&str]) = ("100.300000 poll([{fd=5}], 1, -1) = 1 <2.000000>", &[]);
const LATE: (&str, &[&str]) = ("103.000000 fsync(3</home/ana/x>) = 0 <0.001000>", &["save"]);
const PLANTED: (&str, &[&str]) =
    ("100.250000 fsync(3</home/ana/.cache/editor/log>) = 0 <0.000200>", &["log_start", "main"]);

fn places() -> UserPlaces {
    UserPlaces::new(Some(b"/home/ana"), |_| None)
}

fn made(runs: &[&[(&str, &[&str])]], old: Option<&Baseline>) -> BaselineUpdate {
    let runs: Vec<_> = runs.iter().map(|lines| (None, traced(lines))).collect();
    update(&runs, old, &places(), BaselineRules::default()).unwrap()
}

fn baseline(runs: &[&[(&str, &[&str])]]) -> Baseline {
    // As it is read from its file, with the numbers of its lines.
    Baseline::read(made(runs, None).baseline.render().as_bytes()).unwrap()
}

fn findings(report: &TraceReport, baseline: &Baseline) -> Vec<(FindingKind, String)> {
    let judgement = judge(report, baseline, &places(), None);
    judgement.findings.into_iter().map(|finding| (finding.kind, finding.text)).collect()
}

#[test]
fn a_baseline_has_a_sorted_line_for_each_wait_in_words_that_a_person_can_review() {
    let made = made(&[&[READ, SAVE, REST], &[SAVE, REST]], None);
    insta::assert_snapshot!(made.baseline.render(), @r#"
    {"schema":"unjank.trace.baseline/1","program":"editor","runs":2,"calls":"all that the log has","threshold":"0.1ms","floor":"4ms","quiet":"100ms","factor":2,"plus":"50ms","unexplained":"9000.1ms"}
    {"phase":"start","short":"0ms","runs":2}
    {"phase":"idle","short":"0ms","runs":2}
    {"phase":"quit","short":"0ms","runs":2}
    {"phase":"start","call":"fsync","path":"$XDG_CONFIG_HOME/editor/session","function":"save","count":1,"least":1,"time":"12ms"}
    {"phase":"start","call":"read","path":"/usr/lib/libfoo.so.*","function":"load","count":1,"least":0,"time":"30ms"}
    "#);
}

#[test]
fn an_unchanged_program_keeps_its_baseline_and_a_planted_sync_breaks_it_however_short() {
    let baseline = baseline(&[&[SAVE, READ, REST]]);
    assert_eq!(findings(&traced(&[SAVE, READ, REST]), &baseline), []);
    let judgement = judge(&traced(&[SAVE, READ, PLANTED, REST]), &baseline, &places(), None);
    assert!(!judgement.is_kept());
    let [finding] = &judgement.findings[..] else { panic!("{judgement:?}") };
    assert!(finding.is_certain && finding.kind == FindingKind::NewWait, "{finding:?}");
    assert_eq!(
        finding.text,
        "new wait: start: fsync of $XDG_CACHE_HOME/editor/log by log_start, once, 200 µs blocked"
    );
}

#[test]
fn the_same_wait_in_another_phase_is_new() {
    let mark = (
        "100.050000 access(\"/unjank-mark/first-frame\", F_OK) = -1 ENOENT (No such file or directory) <0.000002>",
        &[][..],
    );
    let baseline = baseline(&[&[mark, SAVE]]);
    assert_eq!(baseline.waits[0].phase, "first-frame");
    assert_eq!(findings(&traced(&[mark, SAVE]), &baseline), []);
    let late = (
        "100.150000 access(\"/unjank-mark/first-frame\", F_OK) = -1 ENOENT (No such file or directory) <0.000002>",
        &[][..],
    );
    let found = findings(&traced(&[SAVE, late]), &baseline);
    assert_eq!(found[0].0, FindingKind::NewWait, "{found:?}");
    assert!(found[0].1.starts_with("new wait: start: fsync"), "{found:?}");
}

#[test]
fn syncs_may_be_as_far_above_the_most_as_the_fewest_were_below_it_and_no_further() {
    let times = |count: usize| {
        let lines = vec![SAVE; count];
        traced(&lines)
    };
    let exact = baseline(&[&[SAVE, SAVE], &[SAVE, SAVE]]);
    assert_eq!(findings(&times(2), &exact), []);
    assert_eq!(findings(&times(3), &exact)[0].0, FindingKind::MoreWaits);
    let spread = baseline(&[&[SAVE, SAVE, SAVE], &[SAVE, SAVE]]);
    assert_eq!(findings(&times(4), &spread), []);
    assert_eq!(findings(&times(5), &spread)[0].0, FindingKind::MoreWaits);
}

#[test]
fn a_wait_that_is_gone_does_not_fail_and_an_update_takes_its_line_away() {
    let mut old = baseline(&[&[SAVE, READ, REST]]);
    old.waits[0].reason = "the session is saved".to_owned();
    let found = findings(&traced(&[READ, REST]), &old);
    assert_eq!(found[0].0, FindingKind::Tighten, "{found:?}");
    assert!(judge(&traced(&[READ, REST]), &old, &places(), None).is_kept());
    let sometimes = baseline(&[&[SAVE, READ, REST], &[READ, REST]]);
    assert_eq!(findings(&traced(&[READ, REST]), &sometimes), [], "it did not come each time");
    let updated = made(&[&[READ, REST]], Some(&old));
    assert_eq!(updated.baseline.waits.len(), 1);
    let [BaselineChange::Removed(text)] = &updated.changes[..] else {
        panic!("{:?}", updated.changes)
    };
    assert!(text.ends_with("by save (its reason was: the session is saved)"), "{text}");
}

#[test]
fn an_update_says_what_it_allows_more_and_less_also_where_only_times_differ() {
    let report = |seconds: &str, life_ns: u64| {
        let line = READ.0.replace("0.030000", seconds);
        let mut report = traced(&[SAVE, (line.as_str(), READ.1), REST]);
        report.threads[0].end_ns = Some(life_ns);
        report
    };
    let made = |report: TraceReport, old: Option<&Baseline>| {
        update(&[(None, report)], old, &places(), BaselineRules::default()).unwrap()
    };
    let [short, long] = [("0.030000", 9_000_000_000), ("0.900000", 60_000_000_000)];
    let first = made(report(short.0, short.1), None).baseline;
    let second = made(report(long.0, long.1), Some(&first));
    let name = "start: read of /usr/lib/libfoo.so.* by load";
    assert_eq!(
        second.changes,
        [
            BaselineChange::Raised(format!("{name}: 900 ms, before 30.0 ms")),
            BaselineChange::Raised(
                "time that is not explained: 1.00 min, before 9.00 s".to_owned()
            ),
        ]
    );
    let third = made(report(short.0, short.1), Some(&second.baseline));
    assert_eq!(third.changes.len(), 2, "{:?}", third.changes);
    let lowered = BaselineChange::Lowered(format!("{name}: 30.0 ms, before 900 ms"));
    assert_eq!(third.changes[0], lowered);
    // What a check would pass over is not told.
    assert_eq!(made(report("0.040000", short.1), Some(&first)).changes, []);
}

#[test]
fn an_update_says_how_often_a_sync_comes_and_what_short_waits_take() {
    let old = baseline(&[&[SAVE, REST]]);
    let short: Vec<String> = (0..25)
        .map(|at| {
            let name = "abcdefghijklmnopqrstuvwxyz".split_at(at + 1).0;
            format!("100.{:06} read(4</usr/share/{name}/a>, \"\", 9) = 9 <0.003000>", at * 3500)
        })
        .collect();
    let mut lines = vec![SAVE, SAVE];
    lines.splice(0..0, short.iter().map(|line| (line.as_str(), &[][..])));
    lines.push(REST);
    let changes = made(&[&lines], Some(&old)).changes;
    assert_eq!(
        changes,
        [
            BaselineChange::Raised(
                "start: fsync of $XDG_CONFIG_HOME/editor/session by save: 2 times, before 1"
                    .to_owned()
            ),
            BaselineChange::Raised(
                "short waits of the phase start: 75.0 ms, before 0 ns".to_owned()
            ),
        ]
    );
}

#[test]
fn reasons_and_patterns_of_a_person_survive_an_update() {
    let mut old = baseline(&[&[SAVE, READ, REST]]);
    old.waits[0].path = "$XDG_CONFIG_HOME/editor/*".to_owned();
    old.waits[0].function = "s*e".to_owned();
    old.waits[0].reason = "sessions are small".to_owned();
    assert_eq!(findings(&traced(&[SAVE, READ, REST]), &old), []);
    let other =
        ("100.110000 fsync(3</home/ana/.config/editor/recent>) = 0 <0.001000>", &["store"][..]);
    let updated = made(&[&[SAVE, other, READ, REST]], Some(&old)).baseline;
    let line = &updated.waits[0];
    assert_eq!((&*line.path, &*line.function, line.count), ("$XDG_CONFIG_HOME/editor/*", "s*e", 2));
    assert_eq!(line.reason, "sessions are small");
}

#[test]
fn many_short_waits_are_one_long_one() {
    let name = |at: usize| {
        format!("100.{:06} read(4</usr/share/{at}.x/a>, \"\", 9) = 9 <0.003000>", 1000 + at * 4000)
    };
    let few: Vec<String> = (0..2).map(name).collect();
    let few: Vec<(&str, &[&str])> = few.iter().map(|line| (line.as_str(), &[][..])).collect();
    let many: Vec<String> = (0..40)
        .map(|at| {
            name(at).replace(&format!("{at}.x"), &"abcdefgh"[..1 + at % 7].repeat(1 + at / 7))
        })
        .collect();
    let many: Vec<(&str, &[&str])> = many.iter().map(|line| (line.as_str(), &[][..])).collect();
    let baseline = baseline(&[&few]);
    assert_eq!(findings(&traced(&few), &baseline), []);
    let found = findings(&traced(&many), &baseline);
    assert_eq!(found[0].0, FindingKind::ShortWaits, "{found:?}");
}

#[test]
fn what_could_not_be_seen_is_no_all_clear() {
    let baseline = baseline(&[&[SAVE, READ, REST]]);
    let whole = || traced(&[SAVE, READ, REST]);
    let mut blind: Vec<(&str, TraceReport)> = Vec::new();
    let mut change = |what: &'static str, change: fn(&mut TraceReport)| {
        let mut report = whole();
        change(&mut report);
        blind.push((what, report));
    };
    change("backend", |report| report.watch.backend = "peek".to_owned());
    change("lost", |report| report.watch.lost = 1);
    change("not counted", |report| {
        (report.watch.lost, report.watch.not_counted) = (1, 1);
    });
    change("end: editor was not seen to end", |report| {
        let shell = trace::report::schema::ProcessRow { id: 5, ..report.processes[0].clone() };
        (report.processes[0].parent, report.processes[0].end_ns) = (Some(5), None);
        report.processes.push(shell);
    });
    change("functions: no stacks", |report| report.watch.leaves_out_stacks = true);
    change("functions: 2 slow calls", |report| report.watch.stacks_left_out = 2);
    change("left out", |report| report.slow_left_out = 1);
    change("32-bit", |report| report.watch.foreign_calls = 3);
    change("main thread", |report| report.main_thread = None);
    change("program", |report| report.processes[0].executable = "/usr/bin/other".to_owned());
    change("calls", |report| report.watch.calls = "sync".to_owned());
    change("threshold", |report| report.watch.threshold_ns = 1_000_000);
    change("not explained", |report| report.threads[0].end_ns = Some(60_000_000_000));
    // All of it is explained, and by calls of which none is in a line.
    change(
        "not explained: 1.00 min of the main thread's time (1.00 min of it in calls too",
        |report| {
            report.threads[0].account = Some(TimeAccount {
                wall_ns: 60_000_000_000,
                short_calls_ns: 60_000_000_000,
                ..TimeAccount::default()
            });
        },
    );
    change("phase idle", |report| report.slow.retain(|slow| slow.wall_ns < 1_000_000_000));
    change("phase extra", |report| {
        let mark = |name: &str| trace::report::schema::MarkRow {
            name: name.to_owned(),
            process: 10,
            at_ns: 1,
        };
        report.marks.extend(["idle", "quit", "extra"].map(mark));
    });
    for (what, report) in blind {
        let judgement = judge(&report, &baseline, &places(), None);
        let said = judgement.findings.iter().any(|finding| {
            finding.kind == FindingKind::NotJudged && finding.text.starts_with(what)
        });
        assert!(said && !judgement.is_kept(), "{what}: {:?}", judgement.findings);
    }
}

#[test]
fn a_baseline_without_functions_needs_no_stacks() {
    let bare: (&str, &[&str]) = (SAVE.0, &[]);
    let without = || {
        let mut report = traced(&[bare, REST]);
        report.watch.leaves_out_stacks = true;
        report
    };
    let runs = [(None, without())];
    let made = update(&runs, None, &places(), BaselineRules::default()).unwrap().baseline;
    assert_eq!(findings(&without(), &made), []);
}

#[test]
fn a_blind_run_makes_no_baseline() {
    let mut lost = traced(&[SAVE]);
    lost.watch.lost = 3;
    let runs = [(None, traced(&[SAVE])), (None, lost)];
    let error = update(&runs, None, &places(), BaselineRules::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "run 2 cannot be in a baseline: lost: 3 events of the recording were lost"
    );
    assert_eq!(update(&[], None, &places(), BaselineRules::default()), Err(UpdateError::NoRun));
}

fn confirmed(runs: Vec<BaselineJudgement>) -> (BaselineJudgement, usize) {
    let mut runs = runs.into_iter();
    let first = runs.next().unwrap();
    let mut asked = 0;
    let judgement = confirm(first, 2, || {
        asked += 1;
        runs.next().ok_or("there is no further run")
    });
    (judgement.unwrap(), asked)
}

#[test]
fn chance_does_not_come_again_and_a_sync_needs_not_to() {
    let baseline = baseline(&[&[SAVE, REST]]);
    let of = |lines: &[(&str, &[&str])]| judge(&traced(lines), &baseline, &places(), None);
    let calm = || of(&[SAVE, REST]);
    // A cold file in one run alone.
    let (judgement, asked) = confirmed(vec![of(&[SAVE, READ, REST]), calm()]);
    assert!(judgement.is_kept() && asked == 1, "{judgement:?}");
    assert_eq!(judgement.findings[0].kind, FindingKind::NotConfirmed);
    // In each run.
    let slow = || of(&[SAVE, READ, REST]);
    let (judgement, asked) = confirmed(vec![slow(), slow(), slow()]);
    assert!(!judgement.is_kept() && asked == 2, "{judgement:?}");
    // Chance does not stand beside what is certain, either.
    let (judgement, asked) = confirmed(vec![of(&[SAVE, READ, PLANTED, REST]), calm()]);
    assert!(!judgement.is_kept() && asked == 1, "{judgement:?}");
    let failing = judgement.findings.iter().filter(|finding| finding.kind.fails());
    assert_eq!(failing.count(), 1, "{judgement:?}");
    // A sync decides at once, and one that comes in a further run does, too.
    let planted = || of(&[SAVE, PLANTED, REST]);
    assert_eq!(confirmed(vec![planted()]).1, 0);
    assert!(!confirmed(vec![slow(), planted()]).0.is_kept());
}

#[test]
fn a_line_that_takes_too_long_in_each_run_is_confirmed_whichever_of_its_waits_was_the_longest() {
    let read = |name: &str, seconds: &str| {
        format!("100.200000 read(4</home/ana/docs/{name}.txt>, \"\", 9) = 9 <{seconds}>")
    };
    let of = |name: &str, seconds: &str| {
        let line = read(name, seconds);
        traced(&[SAVE, (line.as_str(), &["load", "main"]), REST])
    };
    let runs = [(None, of("a", "0.020000"))];
    let mut made = update(&runs, None, &places(), BaselineRules::default()).unwrap().baseline;
    made.waits.iter_mut().find(|line| line.call == "read").unwrap().path = "~/docs/*".to_owned();
    let wide = Baseline::read(made.render().as_bytes()).unwrap();
    let judged = |name: &str| judge(&of(name, "0.900000"), &wide, &places(), None);
    assert_eq!(judged("a").findings[0].kind, FindingKind::LongerWait);
    let (judgement, asked) = confirmed(vec![judged("a"), judged("b"), judged("c")]);
    assert!(!judgement.is_kept() && asked == 2, "{judgement:?}");
    assert_eq!(judgement.findings.len(), 1, "{judgement:?}");
    assert_eq!(judged("a").findings[0].identity(), judged("b").findings[0].identity());
}

#[test]
fn a_new_wait_is_confirmed_by_a_run_in_which_less_was_seen_of_it() {
    let baseline = baseline(&[&[SAVE, REST]]);
    let of = |lines: &[(&str, &[&str])]| judge(&traced(lines), &baseline, &places(), None);
    let bare: (&str, &[&str]) = (READ.0, &[]);
    let (judgement, _) =
        confirmed(vec![of(&[SAVE, READ, REST]), of(&[SAVE, bare, REST]), of(&[SAVE, READ, REST])]);
    assert!(!judgement.is_kept(), "{judgement:?}");
    // Another function is another wait.
    let other: (&str, &[&str]) = (READ.0, &["scan"]);
    let (judgement, _) = confirmed(vec![of(&[SAVE, READ, REST]), of(&[SAVE, other, REST])]);
    assert!(judgement.is_kept(), "{judgement:?}");
}

#[test]
fn a_run_that_saw_everything_answers_for_a_blind_one_and_blind_runs_never_pass() {
    let baseline = baseline(&[&[SAVE, REST]]);
    let of = |lines: &[(&str, &[&str])]| judge(&traced(lines), &baseline, &places(), None);
    let blind = |change: fn(&mut TraceReport)| {
        let mut report = traced(&[SAVE, REST]);
        change(&mut report);
        judge(&report, &baseline, &places(), None)
    };
    let lost = || blind(|report| report.watch.lost = 1);
    let cut = || blind(|report| report.slow_left_out = 1);
    assert!(confirmed(vec![lost(), of(&[SAVE, REST])]).0.is_kept());
    assert!(!confirmed(vec![lost(), cut(), lost()]).0.is_kept(), "blind in other ways");
    // What the blind run may have hidden has to come twice in runs that see.
    let slow = || of(&[SAVE, READ, REST]);
    let (judgement, asked) = confirmed(vec![lost(), slow(), slow()]);
    assert!(!judgement.is_kept() && asked == 2, "{judgement:?}");
    // A blind run says nothing against what one that sees has found.
    assert!(!confirmed(vec![slow(), lost(), slow()]).0.is_kept());
}

#[test]
fn a_crash_is_neither_excused_by_a_further_run_nor_in_a_baseline() {
    let baseline = baseline(&[&[SAVE, REST]]);
    let crashed = || {
        let mut report = traced(&[SAVE, REST]);
        report.processes[0].exit = Some("signal 11".to_owned());
        report
    };
    let of = |report: &TraceReport| judge(report, &baseline, &places(), None);
    let (calm, slow) = (|| of(&traced(&[SAVE, REST])), || of(&traced(&[SAVE, READ, REST])));
    let fails = |judgement: &BaselineJudgement| {
        let texts = judgement.findings.iter().filter(|finding| finding.kind.fails());
        let texts: Vec<&str> = texts.map(|finding| &*finding.text).collect();
        assert_eq!(texts, ["failed: editor was ended by SIGSEGV"]);
    };
    let (judgement, asked) = confirmed(vec![of(&crashed())]);
    assert_eq!(asked, 0);
    fails(&judgement);
    // Nor does it matter in which run it comes.
    fails(&confirmed(vec![slow(), of(&crashed()), calm(), calm()]).0);
    let error = update(&[(None, crashed())], None, &places(), BaselineRules::default());
    let why = error.unwrap_err().to_string();
    assert_eq!(why, "run 1 cannot be in a baseline: editor was ended by SIGSEGV");
    // A script may end the program by a signal.
    let mut ended = traced(&[SAVE, REST]);
    ended.processes[0].exit = Some("signal 15".to_owned());
    assert!(of(&ended).is_kept());
}

#[test]
fn a_damaged_baseline_is_refused_with_its_line() {
    let text = baseline(&[&[SAVE, READ, REST]]).render();
    let read = |text: &str| Baseline::read(text.as_bytes()).map(|_| ());
    let why = |text: &str| read(text).unwrap_err().to_string();
    assert!(read(&text).is_ok());
    assert!(why("").contains("line 1 is not a header"), "{}", why(""));
    assert!(why(&text.replace("baseline/1", "baseline/9")).contains("baseline/9"));
    let last = text.lines().last().unwrap();
    assert_eq!(why(&format!("{text}{last}\n")), "line 7: it allows the same wait as line 6");
    assert!(why(&format!("{text}{}\n", &last[..40])).starts_with("line 7: EOF"));
    assert!(why(&text.replace("\"count\":1", "\"count\":-1")).starts_with("line 5: invalid value"));
    assert!(why(&text.replace("\"time\":", "\"tiem\":")).contains("unknown field `tiem`"));
    assert!(why(&text.replace("12ms", "12 parsecs")).contains("expected a number with a unit"));
    assert!(why(&format!("{text}\u{1}\n")).starts_with("line 7: "), "control characters");
    let nested = format!("{text}{{\"call\":{}\n", "[".repeat(100_000));
    assert!(why(&nested).starts_with("line 7: "), "{}", why(&nested));
    let huge = vec![b' '; LARGEST_BASELINE + 1];
    assert_eq!(Baseline::read(&huge), Err(BaselineError::TooLarge(LARGEST_BASELINE + 1)));
    let mut long = text.clone();
    (0..6000).for_each(|at| {
        long.push_str(&format!("{{\"phase\":\"{at}\",\"short\":\"0\",\"runs\":1}}\n"))
    });
    assert_eq!(read(&long), Err(BaselineError::TooLong));
    assert_eq!(Baseline::read(b"\xff\n"), Err(BaselineError::NotText));
}

#[test]
fn a_path_with_a_newline_is_one_line_and_matches_itself() {
    let evil = (
        "100.100000 fsync(3</home/ana/a\\n{\\\"call\\\": 1}\\33[31m*>) = 0 <0.012000>",
        &["save"][..],
    );
    let baseline = baseline(&[&[evil]]);
    assert_eq!(baseline.waits.len(), 1, "{}", baseline.render());
    assert_eq!(findings(&traced(&[evil]), &baseline), []);
}

#[test]
fn a_window_divides_the_start_from_the_first_frame() {
    let report = traced(&[SAVE, READ, REST, LATE]);
    let phases = |shown: Option<u64>| {
        let phases = ProgramPhases::find(&report, 100_000_000, shown);
        let names: Vec<String> = phases.names().into_iter().map(str::to_owned).collect();
        (phases.source, names.join(" "), phases.at(200_000_000).to_owned())
    };
    let [with, without] = [Some(150_000_000), None].map(phases);
    assert_eq!(
        with,
        (PhaseSource::Window, "start first-frame idle quit".into(), "first-frame".into())
    );
    assert_eq!(without, (PhaseSource::EventLoop, "start idle quit".into(), "start".into()));
}

#[test]
fn a_phase_has_any_name_that_a_mark_has() {
    let mut report = traced(&[SAVE, READ, REST]);
    let names = ["call", "phase", "short", "path"];
    report.marks.extend(names.map(|name| trace::report::schema::MarkRow {
        name: name.to_owned(),
        process: 10,
        at_ns: 1,
    }));
    let runs = [(None, report)];
    let made = update(&runs, None, &places(), BaselineRules::default()).unwrap().baseline;
    let read = Baseline::read(made.render().as_bytes()).unwrap();
    assert_eq!(read.phases.len(), 5, "{}", made.render());
    assert_eq!(findings(&runs[0].1, &read), []);
}

#[test]
fn a_name_in_the_file_does_not_hide_what_stands_there() {
    let evil = (
        "100.100000 fsync(3</home/ana/a\u{202e}\u{9b}31m>) = 0 <0.012000>",
        &["save\u{202e}\u{9b}31m\u{2028}"][..],
    );
    let made = made(&[&[evil]], None).baseline;
    let text = made.render();
    let is_plain = |letter| letter == '\n' || report::text::is_shown(letter, Default::default());
    assert!(text.chars().all(is_plain), "{text:?}");
    let read = Baseline::read(text.as_bytes()).unwrap();
    assert_eq!(read.waits[0].key(), made.waits[0].key());
}

#[test]
fn more_than_a_baseline_can_hold_is_not_written() {
    let lines: Vec<(String, [String; 1])> = (0..5001)
        .map(|at: u32| {
            let letters = [at % 26, at / 26 % 26, at / 676].map(|at| char::from_u32(97 + at));
            let name: String = letters.into_iter().flatten().collect();
            (format!("100.{at:06} fsync(3</home/ana/{name}>) = 0 <0.000200>"), ["save".to_owned()])
        })
        .collect();
    let words: Vec<Vec<&str>> = lines.iter().map(|(_, all)| vec![all[0].as_str()]).collect();
    let lines: Vec<(&str, &[&str])> =
        lines.iter().zip(&words).map(|((line, _), words)| (line.as_str(), &words[..])).collect();
    let runs: Vec<_> = lines.chunks(1000).map(|lines| (None, traced(lines))).collect();
    let error = update(&runs, None, &places(), BaselineRules::default()).unwrap_err();
    assert_eq!(error, UpdateError::TooMuch(BaselineError::TooLong));
}

/// A wait of a generated run: call, path, function, and its length in tenths of a millisecond.
type Made = (u8, u8, u8, u16);

/// Returns the report of a run that makes these waits.
fn run_of(waits: &[Made]) -> TraceReport {
    let lines: Vec<(String, Vec<&str>)> = (0..)
        .zip(waits)
        .map(|(at, (call, path, function, tenths)): (u32, &Made)| {
            let call = ["fsync", "read", "fdatasync"][usize::from(call % 3)];
            let name = ["a", "b", "a/c", "b/c"][usize::from(path % 4)];
            let line = format!(
                "10{}.{:06} {call}(3</home/ana/{name}>) = 0 <0.0{tenths:03}00>",
                at / 20,
                at % 20 * 50_000
            );
            let callers = [&["save"][..], &["load", "main"], &[], &["main"]];
            (line, callers[usize::from(function % 4)].to_vec())
        })
        .collect();
    let lines: Vec<(&str, &[&str])> =
        lines.iter().map(|(line, callers)| (line.as_str(), &callers[..])).collect();
    traced(&lines)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn a_baseline_allows_the_runs_that_it_was_made_of_and_forgets_those_before(
        before in made_runs(),
        runs in made_runs(),
        wider in proptest::collection::vec(proptest::prelude::any::<(u8, u8)>(), 0..4),
    ) {
        allows_its_runs(&before, &runs, &wider)?;
    }
}

/// Fails unless a baseline of `runs`, made anew or from that of `before` that a person made `wider`, allows them.
fn allows_its_runs(
    before: &[Vec<Made>],
    runs: &[Vec<Made>],
    wider: &[(u8, u8)],
) -> Result<(), proptest::test_runner::TestCaseError> {
    let reports = |runs: &[Vec<Made>]| -> Vec<(Option<u64>, TraceReport)> {
        runs.iter().map(|waits| (None, run_of(waits))).collect()
    };
    let rules = BaselineRules::default();
    let made = |runs: &[Vec<Made>], old: Option<&Baseline>| {
        let made = update(&reports(runs), old, &places(), rules).unwrap().baseline;
        Baseline::read(made.render().as_bytes()).unwrap()
    };
    let is_kept = |report: &TraceReport, baseline: &Baseline| {
        let judgement = judge(report, baseline, &places(), None);
        (judgement.is_kept(), judgement.findings)
    };
    let fresh = made(runs, None);
    let mut old = made(before, None);
    // The old lines leave nothing behind but reasons.
    old.waits.iter_mut().for_each(|wait| wait.reason = "why".to_owned());
    let mut adapted = made(runs, Some(&old));
    for line in &mut adapted.waits {
        let was = old.waits.iter().any(|old| old.key() == line.key());
        proptest::prop_assert_eq!(std::mem::take(&mut line.reason), if was { "why" } else { "" });
    }
    if !wider.is_empty() {
        // What a person made wider allows the runs, too.
        for (at, what) in wider {
            let count = old.waits.len();
            let Some(line) = old.waits.get_mut(usize::from(*at) % count.max(1)) else { continue };
            match what % 3 {
                0 => line.path = "~/*".to_owned(),
                1 => line.function = "*".to_owned(),
                _ => line.path = "~/a*".to_owned(),
            }
        }
        adapted = made(runs, Some(&old));
    }
    for (_, report) in reports(runs) {
        for baseline in [&fresh, &adapted] {
            let (kept, findings) = is_kept(&report, baseline);
            proptest::prop_assert!(kept, "{:?}\n{}", findings, baseline.render());
        }
    }
    // One sync more that no run made is found, whatever else there is.
    for waits in runs {
        let mut report = run_of(waits);
        let planted = run_of(&[&waits[..], &[(0, 0, 0, 2)]].concat());
        let was_made = runs.iter().flatten().any(|(call, path, function, _)| {
            call % 3 == 0 && path % 4 == 0 && matches!(function % 4, 0 | 2)
        });
        let (kept, _) = is_kept(&planted, &fresh);
        proptest::prop_assert!(was_made || !kept, "{}", fresh.render());
        report.watch.lost = 1;
        proptest::prop_assert!(!is_kept(&report, &fresh).0);
    }
    Ok(())
}

#[test]
fn a_wait_of_which_little_was_seen_is_counted_where_it_is_judged() {
    let before = vec![
        vec![(28, 0, 3, 40), (0, 43, 0, 1), (0, 35, 29, 1), (27, 0, 1, 1)],
        vec![
            (9, 125, 0, 1),
            (137, 59, 0, 1),
            (0, 72, 2, 1),
            (81, 1, 119, 119),
            (136, 145, 15, 68),
            (79, 208, 18, 330),
        ],
        vec![(197, 101, 81, 83)],
    ];
    let runs = vec![vec![
        (198, 120, 160, 331),
        (50, 194, 217, 44),
        (212, 230, 48, 81),
        (71, 146, 94, 202),
        (212, 11, 2, 93),
        (215, 109, 70, 353),
        (30, 24, 252, 274),
    ]];
    allows_its_runs(&before, &runs, &[(254, 83), (251, 202), (67, 93)]).unwrap();
}

/// Returns up to four runs of up to eight waits each.
fn made_runs() -> impl proptest::strategy::Strategy<Value = Vec<Vec<Made>>> {
    use proptest::prelude::*;
    let wait = (any::<u8>(), any::<u8>(), any::<u8>(), 1_u16..400);
    proptest::collection::vec(proptest::collection::vec(wait, 0..8), 1..4)
}
