//! Two captures beside one another: members that are new, gone or slower, and signals that come more often.
//!
//! A member is slower only where chance is no excuse: both captures have some answers, the median grew by a quarter
//! and by more than a timer's grain, and the middle halves of the two do not even meet. A call without an answer took as
//! long as its caller is known to have waited; a method that has such calls only in the second capture is told in any case.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stats::{Method, SignalKind, Stats, gaps, rate, time};
use report::figure::ratio;
use report::paint::{Paint, Tone};
use report::paragraph::{counted, wrap};
use report::table::{Align, TableCell, TextTable};

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bus.diff/1";

/// With fewer calls than this in one of the recordings, times are not compared.
const FEWEST: u64 = 5;
/// By how much the median must differ, as a part of it and in nanoseconds.
const RATIO: f64 = 1.25;
const GRAIN_NS: u64 = 50_000;
/// A signal comes more often if it does twice as often, and at least so many times.
const OFTEN: f64 = 2.0;
const SIGNALS: u64 = 20;

/// The differences between two recordings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// Methods and signals that only the second capture has.
    pub new: Vec<ServiceMember>,
    /// Those that only the first has.
    pub gone: Vec<ServiceMember>,
    /// Methods that both have, and of which calls are unanswered only in the second.
    pub unanswered: Vec<ServiceMember>,
    /// Methods that answer later.
    pub slower: Vec<MethodDifference>,
    /// Methods that answer sooner.
    pub faster: Vec<MethodDifference>,
    /// Signals that come more often.
    pub louder: Vec<Louder>,
    /// How many methods both have, with enough calls to compare their times.
    pub compared: u64,
    /// Unreadable places and truncated messages in both recordings, which are not compared.
    pub damaged: u64,
    /// Messages that the recorder lost in both.
    pub lost: u64,
    /// Whether messages were chosen by different match rules: what one recording lacks may not have been looked for.
    pub match_rules_differ: bool,
}

/// A method or a signal of a service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ServiceMember {
    /// `call` or `signal`.
    pub kind: &'static str,
    /// Its interface and name.
    pub member: String,
    /// The service that it belongs to.
    pub service: String,
    /// How often it occurs in the capture that has it.
    pub count: u64,
}

/// A method with different times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodDifference {
    /// Its interface and name.
    pub member: String,
    /// The service that it belongs to.
    pub service: String,
    /// The median of before.
    pub before_ns: u64,
    /// The median of after.
    pub after_ns: u64,
}

/// A signal that comes more often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Louder {
    /// Its interface and name.
    pub member: String,
    /// The service that it belongs to.
    pub service: String,
    /// How many came in a second before.
    pub before_per_s: f64,
    /// How many come in a second after.
    pub after_per_s: f64,
}

impl Diff {
    /// Returns why the two may differ in what the recordings lack; `None` if they are complete and hold the same choice of messages.
    #[must_use]
    pub fn doubt(&self) -> Option<&'static str> {
        if self.damaged > 0 || self.lost > 0 {
            return Some("a recording is incomplete, and what is missing may differ");
        }
        self.match_rules_differ.then_some("the recordings chose messages by different match rules")
    }

    /// Returns whether nothing is new, gone, unanswered, slower or louder.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.new.is_empty()
            && self.gone.is_empty()
            && self.unanswered.is_empty()
            && self.slower.is_empty()
            && self.louder.is_empty()
    }
}

/// Compares two captures.
#[must_use]
pub fn diff(before: &Stats, after: &Stats) -> Diff {
    let (calls_before, calls_after) = (methods(before), methods(after));
    let (signals_before, signals_after) = (signals(before), signals(after));
    let mut diff = Diff {
        new: only(&calls_after, &calls_before, &signals_after, &signals_before),
        gone: only(&calls_before, &calls_after, &signals_before, &signals_after),
        damaged: before.damaged + before.cut + after.damaged + after.cut,
        lost: before.lost + after.lost,
        match_rules_differ: before.matched != after.matched,
        ..Diff::default()
    };
    for (key, after) in &calls_after {
        let Some(before) = calls_before.get(key) else { continue };
        if before.unanswered == 0 && after.unanswered > 0 {
            diff.unanswered.push(ServiceMember {
                kind: "call",
                member: after.member.clone(),
                service: after.service.clone(),
                count: after.unanswered,
            });
        }
        let waited = |method: &Method| method.answered + method.unanswered;
        if waited(before) < FEWEST || waited(after) < FEWEST {
            continue;
        }
        diff.compared += 1;
        let change = MethodDifference {
            member: after.member.clone(),
            service: after.service.clone(),
            before_ns: before.waits.p50_ns,
            after_ns: after.waits.p50_ns,
        };
        if is_slower(before, after) {
            diff.slower.push(change);
        } else if is_slower(after, before) {
            diff.faster.push(change);
        }
    }
    let grown = |change: &MethodDifference| change.after_ns.abs_diff(change.before_ns);
    diff.slower.sort_by_key(|change| std::cmp::Reverse(grown(change)));
    diff.faster.sort_by_key(|change| std::cmp::Reverse(grown(change)));
    for (key, signal) in &signals_after {
        let Some(old) = signals_before.get(key) else { continue };
        let (before_per_s, after_per_s) =
            (per_second(old.count, before.span_ns), per_second(signal.count, after.span_ns));
        if signal.count >= SIGNALS && after_per_s >= before_per_s * OFTEN {
            diff.louder.push(Louder {
                member: signal.member.clone(),
                service: signal.service.clone(),
                before_per_s,
                after_per_s,
            });
        }
    }
    diff
}

type Key<'a> = (&'a str, &'a str);

fn methods(stats: &Stats) -> BTreeMap<Key<'_>, &Method> {
    stats.methods.iter().map(|method| ((&*method.member, &*method.service), method)).collect()
}

fn signals(stats: &Stats) -> BTreeMap<Key<'_>, &SignalKind> {
    stats.signals.iter().map(|signal| ((&*signal.member, &*signal.service), signal)).collect()
}

/// Returns the members of the first recording that the second one lacks.
fn only(
    calls: &BTreeMap<Key<'_>, &Method>,
    other_calls: &BTreeMap<Key<'_>, &Method>,
    signals: &BTreeMap<Key<'_>, &SignalKind>,
    other_signals: &BTreeMap<Key<'_>, &SignalKind>,
) -> Vec<ServiceMember> {
    let member = |kind, (member, service): &Key<'_>, count| ServiceMember {
        kind,
        member: (*member).to_owned(),
        service: (*service).to_owned(),
        count,
    };
    let calls = calls.iter().filter(|(key, _)| !other_calls.contains_key(*key));
    let signals = signals.iter().filter(|(key, _)| !other_signals.contains_key(*key));
    let mut only: Vec<ServiceMember> =
        calls.map(|(key, one)| member("call", key, one.calls)).collect();
    only.extend(signals.map(|(key, one)| member("signal", key, one.count)));
    only.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.cmp(b)));
    only
}

fn is_slower(before: &Method, after: &Method) -> bool {
    let (old, new) = (before.waits, after.waits);
    #[expect(clippy::cast_precision_loss, reason = "compared with a part of it")]
    let grew = new.p50_ns as f64 > old.p50_ns as f64 * RATIO;
    grew && new.p50_ns > old.p50_ns.saturating_add(GRAIN_NS) && new.p25_ns > old.p75_ns
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn per_second(count: u64, span_ns: u64) -> f64 {
    if span_ns == 0 { 0.0 } else { count as f64 * 1e9 / span_ns as f64 }
}

/// Formats the differences in lines of at most `width` columns.
#[must_use]
pub fn render(diff: &Diff, before: &Stats, after: &Stats, width: usize, paint: Paint) -> String {
    let number = |list: usize, what: &str| (list > 0).then(|| format!("{list} {what}"));
    let parts: Vec<String> = [
        number(diff.new.len(), "new"),
        number(diff.gone.len(), "gone"),
        number(diff.unanswered.len(), "unanswered"),
        number(diff.slower.len(), "slower"),
        number(diff.faster.len(), "faster"),
        number(diff.louder.len(), "louder"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let compared = counted(usize::try_from(diff.compared).unwrap_or(usize::MAX), "method");
    let verdict = match parts.is_empty() {
        true => format!("Nothing differs; the times of {compared} were compared."),
        false => format!("{}; the times of {compared} were compared.", parts.join(", ")),
    };
    let mut text = paint.set(Tone::Strong, wrap(&verdict, width, "").trim_end()) + "\n";
    for (name, stats) in [("before", before), ("after", after)] {
        let mut gaps = gaps(stats.damaged, stats.cut, &stats.matched);
        if stats.lost > 0 {
            let lost = counted(usize::try_from(stats.lost).unwrap_or(usize::MAX), "message");
            gaps.push_str(&format!("The recorder lost {lost}. "));
        }
        if !gaps.is_empty() {
            text.push_str(
                &paint.set(Tone::Bad, wrap(&format!("{name}: {gaps}"), width, "").trim_end()),
            );
            text.push('\n');
        }
    }
    text.push_str(&format!(
        "before: {} messages, {}; after: {} messages, {}\n",
        before.messages,
        rate(before.messages, before.span_ns),
        after.messages,
        rate(after.messages, after.span_ns)
    ));
    let mut put = |title: &str, table: TextTable| {
        text.push_str(&format!(
            "\n{}\n{}",
            paint.set(Tone::Strong, title),
            table.render(width, paint)
        ));
    };
    for (title, members) in [
        ("New", &diff.new),
        ("Gone", &diff.gone),
        ("Unanswered only in the second", &diff.unanswered),
    ] {
        if !members.is_empty() {
            let columns = [
                ("member", Align::Text),
                ("times", Align::Point),
                ("kind", Align::Text),
                ("service", Align::Text),
            ];
            let mut table = TextTable::new(&columns);
            for member in members {
                let count = member.count.to_string();
                table.row(vec![
                    (&*member.member).into(),
                    count.into(),
                    member.kind.into(),
                    (&*member.service).into(),
                ]);
            }
            put(title, table);
        }
    }
    for (title, tone, changes) in
        [("Slower", Tone::Bad, &diff.slower), ("Faster", Tone::Good, &diff.faster)]
    {
        if !changes.is_empty() {
            let columns = [
                ("method", Align::Text),
                ("before", Align::Point),
                ("after", Align::Point),
                ("ratio", Align::Point),
                ("service", Align::Text),
            ];
            let mut table = TextTable::new(&columns);
            for change in changes {
                #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
                let times = ratio(change.after_ns as f64, change.before_ns as f64);
                table.row(vec![
                    (&*change.member).into(),
                    time(change.before_ns).into(),
                    time(change.after_ns).into(),
                    TableCell::toned(tone, times),
                    (&*change.service).into(),
                ]);
            }
            put(title, table);
        }
    }
    if !diff.louder.is_empty() {
        let columns = [
            ("signal", Align::Text),
            ("before", Align::Point),
            ("after", Align::Point),
            ("service", Align::Text),
        ];
        let mut table = TextTable::new(&columns);
        for louder in &diff.louder {
            table.row(vec![
                (&*louder.member).into(),
                format!("{:.1} /s", louder.before_per_s).into(),
                format!("{:.1} /s", louder.after_per_s).into(),
                (&*louder.service).into(),
            ]);
        }
        put("Louder", table);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::model::sample::{SampleMessage, seen};
    use crate::stats::collect;

    /// Calls of `Say` that take these times in microseconds, and what else is sent.
    fn stats(times: &[u64], more: &[(u64, SampleMessage)]) -> Stats {
        let mut messages = vec![(0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2"))];
        for (serial, took) in (1_u32..).zip(times) {
            let at = u64::from(serial) * 20_000;
            let call = SampleMessage::call(serial, ":1.1", "org.example.Echo", "org.example.I.Say");
            messages.push((at, call));
            messages.push((at + took, SampleMessage::answer(serial, ":1.2", ":1.1")));
        }
        messages.extend(more.iter().cloned());
        collect(&seen(&messages), &Filter::default())
    }

    #[test]
    fn a_member_that_is_slower_is_found() {
        let before = stats(&[500, 520, 480, 510, 530, 490], &[]);
        let after = stats(&[900, 920, 880, 910, 930, 890], &[]);
        let found = diff(&before, &after);
        assert_eq!(found.slower.len(), 1);
        assert_eq!((found.slower[0].before_ns, found.slower[0].after_ns), (500_000, 900_000));
        assert_eq!(diff(&after, &before).faster.len(), 1);
        assert!(!found.is_same());
        let text = render(&found, &before, &after, 80, Paint::Off);
        assert!(text.starts_with("1 slower; the times of 1 method were compared."), "{text}");
        assert!(text.contains("x 1.80"), "{text}");
    }

    #[test]
    fn a_call_that_is_answered_no_more_is_a_difference() {
        let wait = |at: u64| {
            (at, SampleMessage::call(90, ":1.1", "org.example.Echo", "org.example.I.Say"))
        };
        let later = |at: u64| (at, SampleMessage::signal(91, ":1.3", "org.example.J.Tick"));
        let before = stats(&[500, 520, 480, 510, 530, 490], &[later(900_000)]);
        let after = stats(&[500, 520, 480, 510, 530, 490], &[wait(200_000), later(900_000)]);
        let found = diff(&before, &after);
        assert_eq!((found.unanswered[0].count, found.is_same()), (1, false));
        let text = render(&found, &before, &after, 80, Paint::Off);
        assert!(text.contains("Unanswered only in the second\n"), "{text}");
        assert!(diff(&after, &before).is_same());
        // All of them hang: they are slower, too.
        let hung: Vec<(u64, SampleMessage)> = (1..=6)
            .map(|at| {
                let call = SampleMessage::call(at, ":1.1", "org.example.Echo", "org.example.I.Say");
                (u64::from(at) * 20_000, call)
            })
            .chain([later(900_000)])
            .collect();
        let found = diff(&before, &stats(&[], &hung));
        assert_eq!((found.unanswered.len(), found.slower.len()), (1, 1), "{found:?}");
        assert!(found.slower[0].after_ns > 700_000_000);
    }

    #[test]
    fn what_is_the_same_in_incomplete_recordings_is_doubted() {
        let whole = stats(&[500], &[]);
        assert_eq!(diff(&whole, &whole).doubt(), None);
        let matched = vec!["type='signal'".to_owned()];
        for spoiled in [
            Stats { damaged: 1, ..whole.clone() },
            Stats { cut: 1, ..whole.clone() },
            Stats { lost: 2, ..whole.clone() },
            Stats { matched: matched.clone(), ..whole.clone() },
        ] {
            for (before, after) in [(&whole, &spoiled), (&spoiled, &whole)] {
                let found = diff(before, after);
                assert!(found.is_same() && found.doubt().is_some(), "{found:?}");
            }
        }
        let (lost, chosen) =
            (Stats { lost: 2, ..whole.clone() }, Stats { matched, ..whole.clone() });
        let text = render(&diff(&whole, &lost), &whole, &lost, 80, Paint::Off);
        assert!(text.contains("after: The recorder lost 2 messages.\n"), "{text}");
        assert_eq!(diff(&chosen, &chosen).doubt(), None, "both were chosen by the same rules");
        let text = render(&diff(&chosen, &whole), &chosen, &whole, 80, Paint::Off);
        assert!(
            text.contains("before: Only messages that match type='signal' were recorded.\n"),
            "{text}"
        );
    }

    #[test]
    fn noise_is_not_a_difference() {
        let calm = stats(&[500, 520, 480, 510, 530, 490], &[]);
        for other in [
            // A few outliers.
            stats(&[500, 520, 480, 9000, 9100, 490], &[]),
            // A wide spread that overlaps.
            stats(&[100, 900, 500, 1200, 700, 510], &[]),
            // A larger part of nearly nothing.
            stats(&[540, 545, 550, 535, 548, 538], &[]),
            // Too few to say.
            stats(&[900, 920], &[]),
        ] {
            let found = diff(&calm, &other);
            assert!(found.is_same(), "{found:?}");
        }
        assert!(diff(&calm, &calm).is_same());
    }

    #[test]
    fn what_is_new_and_gone_is_named() {
        let tick = |at: u64| (at, SampleMessage::signal(1, ":1.2", "org.example.I.Tick"));
        let before = stats(&[500], &[tick(900_000)]);
        let other = SampleMessage::call(90, ":1.1", "org.example.Echo", "org.example.I.Sing");
        let after = stats(&[500], &[(900_000, other)]);
        let found = diff(&before, &after);
        assert_eq!(found.new[0].member, "org.example.I.Sing");
        assert_eq!((found.gone[0].kind, &*found.gone[0].member), ("signal", "org.example.I.Tick"));
    }

    #[test]
    fn a_signal_that_comes_more_often_is_louder() {
        let ticks = |count: u64| -> Vec<(u64, SampleMessage)> {
            let tick =
                |at| (at * 900_000 / count, SampleMessage::signal(1, ":1.2", "org.example.I.Tick"));
            (1..=count).map(tick).collect()
        };
        let (few, many) = (stats(&[500], &ticks(10)), stats(&[500], &ticks(40)));
        assert_eq!(diff(&few, &many).louder.len(), 1);
        assert_eq!(diff(&many, &few).louder.len(), 0);
        assert_eq!(diff(&few, &few).louder.len(), 0);
    }
}
