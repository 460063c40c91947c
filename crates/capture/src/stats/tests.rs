//! What is counted.

use super::*;
use crate::filter::Filter;
use crate::model::Model;
use crate::model::peers::DRIVER;
use crate::model::sample::{SampleMessage, seen};
use report::paint::Paint;

fn all(model: &Model) -> Stats {
    collect(model, &Filter::default())
}

fn busy() -> Model {
    let say = "org.example.I.Say";
    let mut messages = vec![(0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2"))];
    for at in 1..=100_u32 {
        let time = u64::from(at) * 1000;
        messages.push((time, SampleMessage::call(at, ":1.1", "org.example.Echo", say)));
        messages.push((time + u64::from(at), SampleMessage::answer(at, ":1.2", ":1.1")));
    }
    messages.push((200_000, SampleMessage::call(200, ":1.1", "org.example.Echo", say)));
    let failed = "org.freedesktop.DBus.Error.Failed";
    messages.push((200_500, SampleMessage::error(200, ":1.2", ":1.1", failed)));
    messages.push((201_000, SampleMessage::call(201, ":1.1", "org.example.Echo", say)));
    messages.push((202_000, SampleMessage::call(202, ":1.1", "org.example.Echo", say).flags(1)));
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    messages.push((203_000, SampleMessage::call(203, ":1.1", "org.example.Secret", say)));
    messages.push((203_100, SampleMessage::error(203, DRIVER, ":1.1", denied)));
    messages.push((503_000, SampleMessage::directed(9, ":1.2", ":1.1", "org.example.I.Done")));
    seen(&messages)
}

#[test]
fn latencies_are_those_of_the_pairs() {
    let stats = all(&busy());
    let method = stats.methods.iter().find(|method| method.service == "org.example.Echo").unwrap();
    assert_eq!(method.member, "org.example.I.Say");
    assert_eq!(
        (method.calls, method.answered, method.errors, method.unanswered, method.no_reply),
        (103, 101, 1, 1, 1)
    );
    let times = method.times;
    assert_eq!(
        [times.min_ns, times.p50_ns, times.p95_ns, times.p99_ns, times.max_ns],
        [1_000, 51_000, 96_000, 100_000, 500_000]
    );
    assert_eq!(times.total_ns, (5050 + 500) * 1000);
    assert_eq!(stats.kinds, Kinds { calls: 104, returns: 100, errors: 2, signals: 2 });
    assert_eq!(stats.unanswered.len(), 1);
    assert_eq!(stats.unanswered[0].waited_ns, 302_000_000);
    assert_eq!(stats.refused[0].to, "org.example.Secret");
    assert_eq!(stats.errors.len(), 2);
}

#[test]
fn callers_wait_longest_for_what_is_not_answered() {
    let call = |serial| SampleMessage::call(serial, ":1.1", ":1.2", "org.example.I.Hang");
    let model = seen(&[
        (0, SampleMessage::call(1, ":1.1", ":1.3", "org.example.I.Slow")),
        (900_000, SampleMessage::answer(1, ":1.3", ":1.1")),
        (1_000_000, call(2)),
        (1_000_100, SampleMessage::answer(2, ":1.2", ":1.1")),
        (1_100_000, call(3)),
        (26_100_000, SampleMessage::owner_changed(":1.1", ":1.1", "")),
        (60_000_000, SampleMessage::signal(9, ":1.3", "org.example.I.Tick")),
    ]);
    let stats = all(&model);
    let hang = &stats.methods[0];
    assert_eq!((&*hang.member, hang.times.max_ns), ("org.example.I.Hang", 100_000));
    // The caller left after 25 s, whatever came then.
    assert_eq!((hang.waits.max_ns, hang.waits.p50_ns), (25_000_000_000, 100_000));
    assert_eq!(
        (hang.wait(hang.waits.max_ns), hang.wait(100_000)),
        ("> 25.0 s".into(), "100 µs".into())
    );
    assert!(stats.unanswered[0].caller_left);
    assert_eq!(stats.unanswered[0].waited_ns, 25_000_000_000);
    let verdict = verdict(&stats);
    assert!(
        verdict.ends_with("most time in org.example.I.Hang: > 25.0 s in 2 calls."),
        "{verdict}"
    );
}

#[test]
fn a_record_of_chosen_messages_is_told_first() {
    let matched = vec!["type='signal'".to_owned(), "path='/\u{1b}'".to_owned()];
    let told = verdict(&Stats { matched, ..all(&busy()) });
    let first =
        "Only messages that match type='signal' or path='/\\x1b' were recorded. 208 messages";
    assert!(told.starts_with(first), "{told}");
}

#[test]
fn a_record_that_is_cut_is_told_first() {
    for (damaged, cut, told) in [
        (1, 0, "The recording is truncated or damaged: 1 place cannot be read. "),
        (0, 2, "The recording is truncated or damaged: 2 messages without the end. "),
        (
            2,
            1,
            "The recording is truncated or damaged: 2 places cannot be read, 1 message without the end. ",
        ),
    ] {
        let stats = Stats { damaged, cut, ..all(&busy()) };
        assert!(verdict(&stats).starts_with(&format!("{told}208 messages")), "{told}");
        assert!(
            render(&Stats { damaged, cut, ..Stats::default() }, 200, Paint::Off).starts_with(told)
        );
    }
}

#[test]
fn percentiles_are_times_that_were_measured() {
    assert_eq!(Times::of(&mut []), Times::default());
    let one = Times::of(&mut [7]);
    assert_eq!((one.min_ns, one.p50_ns, one.p99_ns, one.max_ns), (7, 7, 7, 7));
    let ten = Times::of(&mut [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!((ten.p25_ns, ten.p50_ns, ten.p75_ns, ten.p95_ns), (3, 5, 8, 10));
}

#[test]
fn who_sleeps_is_woken_and_who_is_busy_is_not() {
    let tick = "org.example.I.Tick";
    let model = seen(&[
        (0, SampleMessage::directed(1, ":1.1", ":1.2", tick)),
        (150_000, SampleMessage::directed(2, ":1.1", ":1.2", tick)),
        (160_000, SampleMessage::directed(3, ":1.1", ":1.2", tick)),
        (300_000, SampleMessage::directed(4, ":1.1", ":1.2", tick)),
        (390_000, SampleMessage::directed(5, ":1.2", ":1.1", tick)),
    ]);
    let stats = all(&model);
    assert_eq!(stats.wakes.iter().map(|wake| wake.count).sum::<u64>(), 2, "{:?}", stats.wakes);
}

#[test]
fn nobody_is_woken_by_what_is_sent_to_a_service_that_is_not_there() {
    let tick = "org.example.I.Tick";
    let model = seen(&[
        (0, SampleMessage::directed(1, ":1.1", ":1.2", tick)),
        (1_000, SampleMessage::call(2, ":1.1", "org.example.Nobody", tick)),
        (300_000, SampleMessage::call(3, ":1.1", "org.example.Nobody", tick)),
        (600_000, SampleMessage::call(4, ":1.1", "org.example.Nobody", tick).flags(1)),
        (700_000, SampleMessage::owner_changed(":1.2", ":1.2", "")),
        (900_000, SampleMessage::directed(5, ":1.1", ":1.2", tick)),
    ]);
    assert_eq!(all(&model).wakes, []);
}

#[test]
fn a_broadcast_wakes_who_asked_for_it() {
    let add = SampleMessage::call(1, ":1.3", DRIVER, "org.freedesktop.DBus.AddMatch")
        .text("type='signal'");
    let model = seen(&[
        (0, add),
        (500_000, SampleMessage::signal(1, ":1.1", "org.example.I.Tick")),
        (900_000, SampleMessage::signal(2, ":1.1", "org.example.I.Tick")),
    ]);
    let stats = all(&model);
    assert_eq!(stats.wakes.len(), 1);
    assert_eq!((stats.wakes[0].count, stats.signals[0].heard, stats.unheard), (2, 2, 0));
}

#[test]
fn a_filter_counts_what_it_chooses() {
    let stats = collect(&busy(), &"type:signal".parse().unwrap());
    assert_eq!((stats.messages, stats.kinds.signals), (2, 2));
    assert!(stats.methods.is_empty() && stats.unowned.is_empty());
}

#[test]
fn the_text_says_what_is_wrong_first() {
    let text = render(&all(&busy()), 100, Paint::Off);
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with(
        "208 messages in 503 ms (414 /s, 18.2 KiB); 1 call unanswered, 2 errors, 1 message refused;"
    ));
    for line in [
        "Methods, by time in all",
        "org.example.I.Say  103     51.0 µs   97.0 µs  > 302 ms  1       1     > 308 ms",
        "org.example.I.Done  1      org.example.Echo  (a program)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("org.example.Secret            0"), "what was refused woke nobody");
    for width in [20, 40, 80] {
        assert!(!render(&all(&busy()), width, Paint::Off).is_empty());
    }
    assert_eq!(render(&all(&seen(&[])), 80, Paint::Off), "There is no message.\n");
}
