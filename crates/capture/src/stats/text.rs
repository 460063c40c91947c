//! The statistics of a recording as text: the verdict, then tables, then recommendations.

use super::{Stats, Times};
use report::figure::Quantity;
use report::paint::{Paint, Tone};
use report::paragraph::{counted, wrap};
use report::table::{Align, TableCell, TextTable};
use report::text::{Charset, visible};

/// Rows of each table; JSON has all.
const ROWS: usize = 12;

/// Writes a time.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
#[must_use]
pub fn time(ns: u64) -> String {
    Quantity::Time.show(ns as f64)
}

/// Writes a number of bytes.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
#[must_use]
pub fn size(bytes: u64) -> String {
    Quantity::Size.show(bytes as f64)
}

/// Writes how many there are in a second.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
#[must_use]
pub fn rate(count: u64, span_ns: u64) -> String {
    if span_ns == 0 {
        "-".to_owned()
    } else {
        Quantity::Rate.show(count as f64 * 1e9 / span_ns as f64)
    }
}

/// Describes the missing part of a recording in sentences, each followed by a space; empty if it is complete. `matched` are the
/// match rules by which messages were chosen.
#[must_use]
pub fn gaps(damaged: u64, cut: u64, matched: &[String]) -> String {
    let mut text = match missing(damaged, cut) {
        missing if missing.is_empty() => missing,
        missing => format!("The recording is truncated or damaged: {missing}. "),
    };
    if !matched.is_empty() {
        let rules = visible(&matched.join(" or "), Charset::Unicode).into_owned();
        text.push_str(&format!("Only messages that match {rules} were recorded. "));
    }
    text
}

/// Lists what is missing in a record: places that cannot be read, messages without their end.
#[must_use]
pub fn missing(damaged: u64, cut: u64) -> String {
    let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let places = counted(whole(damaged), "place") + " cannot be read";
    let messages = counted(whole(cut), "message") + " without the end";
    match (damaged, cut) {
        (0, 0) => String::new(),
        (0, _) => messages,
        (_, 0) => places,
        _ => format!("{places}, {messages}"),
    }
}

/// Summarises a recording in a sentence.
#[must_use]
pub fn verdict(stats: &Stats) -> String {
    if stats.messages == 0 {
        return gaps(stats.damaged, stats.cut, &stats.matched) + "There is no message.";
    }
    let messages = counted(usize::try_from(stats.messages).unwrap_or(usize::MAX), "message");
    let mut text = format!(
        "{}{messages} in {} ({}, {})",
        gaps(stats.damaged, stats.cut, &stats.matched),
        time(stats.span_ns),
        rate(stats.messages, stats.span_ns),
        size(stats.bytes)
    );
    let many = |list: usize, what: &str| (list > 0).then(|| counted(list, what));
    let unanswered: u64 = stats.methods.iter().map(|method| method.unanswered).sum();
    let unowned: u64 = stats.unowned.iter().map(|astray| astray.count).sum();
    let refused: u64 = stats.refused.iter().map(|astray| astray.count).sum();
    let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let faults: Vec<String> = [
        many(whole(stats.lost), "message").map(|lost| format!("{lost} lost")),
        many(whole(unanswered), "call").map(|calls| format!("{calls} unanswered")),
        many(whole(stats.kinds.errors), "error"),
        many(whole(unowned), "message").map(|all| format!("{all} to nobody")),
        many(whole(refused), "message").map(|all| format!("{all} refused")),
        many(stats.activations.len(), "service").map(|all| format!("{all} started")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !faults.is_empty() {
        text.push_str(&format!("; {}", faults.join(", ")));
    }
    let waited = |method: &&super::Method| method.answered + method.unanswered > 0;
    if let Some(method) = stats.methods.first().filter(waited) {
        text.push_str(&format!(
            "; most time in {}: {} in {}",
            method.member,
            method.wait(method.waits.total_ns),
            counted(whole(method.answered + method.unanswered), "call")
        ));
    }
    text.push('.');
    text
}

/// Writes the verdict and the tables, in lines of at most `width` columns.
#[must_use]
pub fn render(stats: &Stats, width: usize, paint: Paint) -> String {
    let mut text = wrap(&verdict(stats), width, "");
    text = paint.set(Tone::Strong, text.trim_end()) + "\n";
    if stats.messages == 0 {
        return text;
    }
    let mut put = |title: &str, all: usize, table: Option<TextTable>| {
        let Some(table) = table else { return };
        let left = all.saturating_sub(ROWS);
        let more = if left > 0 { format!(" ({left} more in --json)") } else { String::new() };
        text.push_str(&format!(
            "\n{}{}\n",
            paint.set(Tone::Strong, title),
            paint.set(Tone::Dim, &more)
        ));
        text.push_str(&table.render(width, paint));
    };
    put("Methods, by time in all", stats.methods.len(), methods(stats));
    put("Signals", stats.signals.len(), signals(stats));
    put("Connections", stats.services.len(), services(stats));
    put("Who wakes whom, after 100 ms of quiet", stats.wakes.len(), wakes(stats));
    put("Errors", stats.errors.len(), errors(stats));
    put("Unanswered calls", stats.unanswered.len(), unanswered(stats));
    put("Services started for a message", stats.activations.len(), activations(stats));
    put("To nobody: the name has no owner", stats.unowned.len(), astray(&stats.unowned));
    put("Refused by the bus", stats.refused.len(), astray(&stats.refused));
    put("Requests to portals", stats.portals.len(), portals(stats));
    if stats.unheard > 0 {
        let note = format!(
            "{}: who asked for signals is only known from when it was asked for.",
            counted(usize::try_from(stats.unheard).unwrap_or(usize::MAX), "broadcast")
                + " without known hearers"
        );
        text.push_str(&format!("\n{}", paint.set(Tone::Dim, &wrap(&note, width, ""))));
    }
    if stats.own > 0 {
        let own = counted(usize::try_from(stats.own).unwrap_or(usize::MAX), "message");
        let note = format!("Not counted: {own} of the recorder itself, which the record has, too.");
        text.push_str(&format!("\n{}", paint.set(Tone::Dim, &wrap(&note, width, ""))));
    }
    text
}

fn table<T>(
    all: &[T],
    columns: &[(&str, Align)],
    row: impl Fn(&T) -> Vec<TableCell>,
) -> Option<TextTable> {
    let mut table = TextTable::new(columns);
    for one in all.iter().take(ROWS) {
        table.row(row(one));
    }
    (!all.is_empty()).then_some(table)
}

/// A cell of a count; none is left empty, so that what is there is seen.
fn count(count: u64) -> TableCell {
    if count == 0 { TableCell::from("") } else { TableCell::from(count.to_string()) }
}

fn bad(count: u64) -> TableCell {
    if count == 0 { TableCell::from("") } else { TableCell::toned(Tone::Bad, count.to_string()) }
}

/// A cell of a member, with its service where every service may have the interface.
fn of_service(member: &str, service: &str) -> TableCell {
    if !member.starts_with("org.freedesktop.DBus.") || member.starts_with(service) {
        TableCell::from(member)
    } else {
        TableCell::from(format!("{member} of {service}"))
    }
}

fn methods(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("method", Align::Text),
        ("calls", Align::Point),
        ("p50", Align::Point),
        ("p95", Align::Point),
        ("longest", Align::Point),
        ("errors", Align::Point),
        ("open", Align::Point),
        ("in all", Align::Point),
    ];
    table(&stats.methods, &columns, |method| {
        let of = |pick: fn(&Times) -> u64| TableCell::from(method.wait(pick(&method.waits)));
        vec![
            of_service(&method.member, &method.service),
            count(method.calls),
            of(|times| times.p50_ns),
            of(|times| times.p95_ns),
            of(|times| times.max_ns),
            bad(method.errors),
            bad(method.unanswered),
            of(|times| times.total_ns),
        ]
    })
}

fn signals(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("signal", Align::Text),
        ("count", Align::Point),
        ("rate", Align::Point),
        ("to one", Align::Point),
        ("heard", Align::Point),
        ("bytes", Align::Point),
    ];
    table(&stats.signals, &columns, |signal| {
        vec![
            of_service(&signal.member, &signal.service),
            count(signal.count),
            rate(signal.count, stats.span_ns).into(),
            count(signal.directed),
            count(signal.heard),
            size(signal.bytes).into(),
        ]
    })
}

fn services(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("connection", Align::Text),
        ("sent", Align::Point),
        ("bytes", Align::Point),
        ("received", Align::Point),
        ("woken", Align::Point),
        ("wakes", Align::Point),
        ("process", Align::Text),
    ];
    table(&stats.services, &columns, |service| {
        let pids: Vec<String> = service.pids.iter().take(3).map(u32::to_string).collect();
        vec![
            TableCell::from(&*service.service),
            count(service.sent),
            size(service.sent_bytes).into(),
            count(service.received),
            count(service.woken),
            count(service.wakes),
            TableCell::from(pids.join(" ")),
        ]
    })
}

fn wakes(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("message", Align::Text),
        ("times", Align::Point),
        ("from", Align::Text),
        ("to", Align::Text),
    ];
    table(&stats.wakes, &columns, |wake| {
        vec![(&*wake.member).into(), count(wake.count), (&*wake.from).into(), (&*wake.to).into()]
    })
}

fn errors(stats: &Stats) -> Option<TextTable> {
    let columns = [("error", Align::Text), ("times", Align::Point), ("of", Align::Text)];
    table(&stats.errors, &columns, |error| {
        let members: Vec<&str> = error.members.iter().map(|(member, _)| &**member).collect();
        vec![(&*error.name).into(), count(error.count), members.join(", ").into()]
    })
}

fn unanswered(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("call", Align::Text),
        ("at", Align::Point),
        ("waited", Align::Point),
        ("from", Align::Text),
        ("to", Align::Text),
    ];
    table(&stats.unanswered, &columns, |open| {
        vec![
            (&*open.member).into(),
            time(open.at_ns).into(),
            time(open.waited_ns).into(),
            (&*open.from).into(),
            (&*open.to).into(),
        ]
    })
}

fn activations(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("service", Align::Text),
        ("after", Align::Point),
        ("for", Align::Text),
        ("by", Align::Text),
    ];
    table(&stats.activations, &columns, |started| {
        vec![
            (&*started.service).into(),
            time(started.delay_ns).into(),
            (&*started.member).into(),
            (&*started.by).into(),
        ]
    })
}

fn astray(all: &[super::UndeliveredMessages]) -> Option<TextTable> {
    let columns = [
        ("message", Align::Text),
        ("times", Align::Point),
        ("to", Align::Text),
        ("from", Align::Text),
        ("error", Align::Text),
    ];
    table(all, &columns, |astray| {
        let error = astray.error.rsplit('.').next().unwrap_or_default();
        vec![
            (&*astray.member).into(),
            count(astray.count),
            (&*astray.to).into(),
            (&*astray.from).into(),
            error.into(),
        ]
    })
}

fn portals(stats: &Stats) -> Option<TextTable> {
    let columns = [
        ("request", Align::Text),
        ("took", Align::Point),
        ("outcome", Align::Text),
        ("from", Align::Text),
    ];
    table(&stats.portals, &columns, |portal| {
        let outcome = match (portal.took_ns, portal.code) {
            (None, _) => "no response yet",
            (_, Some(0)) => "done",
            (_, Some(1)) => "cancelled by the user",
            (_, _) => "ended",
        };
        vec![
            (&*portal.member).into(),
            portal.took_ns.map_or("-".to_owned(), time).into(),
            outcome.into(),
            (&*portal.from).into(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_recorder_said_itself_is_told_and_not_counted() {
        let stats = Stats { messages: 1, own: 2, ..Stats::default() };
        let text = render(&stats, 80, Paint::Off);
        assert!(text.starts_with("1 message in "), "{text}");
        assert!(text.contains("Not counted: 2 messages of the recorder itself"), "{text}");
        let text = render(&Stats { own: 0, ..stats }, 80, Paint::Off);
        assert!(!text.contains("Not counted"), "{text}");
    }
}
