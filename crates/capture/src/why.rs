//! Why a program waited: its calls without an answer, the services that were to start for it and did not, and the times in
//! which it said nothing.

use std::cmp::Reverse;
use std::collections::HashSet;

use serde::Serialize;

use super::filter::Glob;
use super::model::peers::{BusPeer, PeerId};
use super::model::texts::Text;
use super::model::{Model, NONE, Row};
use super::stats::{gaps, time};
use report::paragraph::counted;
use wire::MessageType;

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bus.why/1";
/// A program that neither sends nor receives for so long is silent.
const SILENT_NS: u64 = 1_000_000_000;
/// An answer that takes so long is late.
const LATE_NS: u64 = 100_000_000;
/// So many waits of each kind are shown as text; JSON has all.
const SHOWN: usize = 10;

/// What is known of a program's waiting. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitReport {
    /// Its connections.
    pub callers: Vec<NamedConnection>,
    /// What it waited for: what never came first, each kind with the longest first.
    pub waits: Vec<Wait>,
    /// Messages that the recorder could not keep.
    pub lost: u64,
    /// Places of the record that cannot be read.
    pub damaged: u64,
    /// Messages that were recorded without their end.
    pub cut: u64,
    /// The match rules by which the recorder chose messages; none if it took all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
}

/// A connection, as people know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedConnection {
    /// Its well-known name, application or program.
    pub name: String,
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The command line of its process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// A wait of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// A service was asked to start and did not come.
    NotStarted,
    /// A call had no answer.
    NoAnswer,
    /// It neither sent nor received anything.
    Silent,
    /// An answer came late.
    LateAnswer,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitEnd {
    /// The answer came.
    Answered,
    /// The program went on without it.
    WentOn,
    /// The program left the bus.
    LeftBus,
    /// It still waited when the record ended.
    RecordEnded,
}

/// A time in which a program waited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// For what.
    pub kind: WaitKind,
    /// Who waited.
    pub caller: NamedConnection,
    /// The member that was called; of a silence the last that it sent or received.
    pub member: String,
    /// Whom it called.
    pub to: NamedConnection,
    /// When it began, after the first message.
    pub at_ns: u64,
    /// How long it took: until the answer, until the program gave up, or until the record ended.
    pub waited_ns: u64,
    /// How it ended.
    pub end: WaitEnd,
}

/// Finds the waits of the programs of this name: a well-known or unique name, an application or a program, with `*` and `?`.
#[must_use]
pub fn explain(model: &Model, app: &str) -> WaitReport {
    let glob = Glob::new(app);
    let fits = |peer: &BusPeer| !peer.is_recorder && is_called(model, peer, &glob);
    let ids = (0..model.peers.all().len()).map(PeerId::at);
    let callers: Vec<PeerId> = ids.filter(|id| model.peers.get(*id).is_some_and(fits)).collect();
    let mut waits = Vec::new();
    for caller in &callers {
        ConnectionHistory::of(model, *caller).tell(&mut waits);
    }
    waits.sort_by_key(|wait: &Wait| (wait.kind, Reverse(wait.waited_ns)));
    WaitReport {
        callers: callers.iter().map(|caller| describe(model, *caller)).collect(),
        waits,
        lost: model.losses.iter().map(|loss| loss.count).sum(),
        damaged: model.damaged,
        cut: model.cut,
        matched: model.matched.clone(),
    }
}

fn is_called(model: &Model, peer: &BusPeer, glob: &Glob) -> bool {
    let executable = model.texts.get(peer.executable);
    let program = executable.rsplit('/').next().unwrap_or_default();
    let own =
        [model.texts.get(peer.unique), model.texts.get(peer.application), executable, program];
    let names = peer.names.iter().map(|owned| model.texts.get(owned.name));
    // A name without a connection is no program.
    peer.unique.is_some()
        && own.into_iter().chain(names).any(|text| !text.is_empty() && glob.fits(text))
}

fn describe(model: &Model, peer: PeerId) -> NamedConnection {
    let known = model.peers.get(peer);
    NamedConnection {
        name: model.peers.label(peer, &model.texts),
        pid: known.and_then(|peer| peer.pid),
        command: known.map_or("", |peer| model.texts.get(peer.command)).to_owned(),
    }
}

/// What one connection sent and received.
struct ConnectionHistory<'a> {
    model: &'a Model,
    caller: PeerId,
    /// Its messages in order.
    rows: Vec<(u32, &'a Row)>,
    /// When the first message of the record was seen.
    start_ns: u64,
    /// When it left, or the record ended.
    end_ns: u64,
    end: WaitEnd,
}

impl<'a> ConnectionHistory<'a> {
    fn of(model: &'a Model, caller: PeerId) -> ConnectionHistory<'a> {
        // That it has lost its names is what the bus writes when it leaves: it does nothing by that.
        let is_name_lost = |row: &Row| {
            row.kind == MessageType::Signal
                && row.receiver == caller
                && model.texts.get(model.named(row).member) == "NameLost"
        };
        let is_own =
            |row: &Row| row.sender == caller || (row.receiver == caller && !is_name_lost(row));
        let rows: Vec<(u32, &Row)> = model.rows().filter(|(_, row)| is_own(row)).collect();
        let bus = model.peers.get(caller).map_or(0, |peer| peer.bus);
        let left_ns = model.peers.get(caller).and_then(|peer| peer.left_ns);
        ConnectionHistory {
            model,
            caller,
            rows,
            start_ns: model.rows().next().map_or(0, |(_, row)| row.at_ns),
            end_ns: left_ns.unwrap_or_else(|| model.until_ns(bus)),
            end: if left_ns.is_some() { WaitEnd::LeftBus } else { WaitEnd::RecordEnded },
        }
    }

    fn tell(&self, waits: &mut Vec<Wait>) {
        let asked: HashSet<u32> = self.model.unfinished().collect();
        for (at, (number, row)) in self.rows.iter().enumerate() {
            let is_call = row.kind == MessageType::Call && row.sender == self.caller;
            let next = self.rows.get(at + 1).map(|(_, next)| next.at_ns);
            let silent_until = next.unwrap_or(self.end_ns);
            let gap_ns = silent_until.saturating_sub(row.at_ns);
            if is_call && self.model.is_unanswered(row) {
                let is_start = asked.contains(number);
                let kind = if is_start { WaitKind::NotStarted } else { WaitKind::NoAnswer };
                // Who does nothing meanwhile waits for the answer, and gives up when it goes on.
                let (waited_ns, end) = match next {
                    Some(_) if gap_ns >= LATE_NS => (gap_ns, WaitEnd::WentOn),
                    _ => (self.end_ns.saturating_sub(row.at_ns), self.end),
                };
                waits.push(self.wait(kind, row, waited_ns, end));
                continue;
            }
            if is_call
                && let Some(latency_ns) = self.model.latency_ns(row)
                && latency_ns >= LATE_NS
            {
                waits.push(self.wait(WaitKind::LateAnswer, row, latency_ns, WaitEnd::Answered));
                continue;
            }
            let waits_for_answer = is_call && row.partner != NONE;
            if gap_ns >= SILENT_NS && !waits_for_answer && next.is_some() {
                waits.push(self.wait(WaitKind::Silent, row, gap_ns, WaitEnd::WentOn));
            }
        }
    }

    fn wait(&self, kind: WaitKind, row: &Row, waited_ns: u64, end: WaitEnd) -> Wait {
        let named = self.model.named(row);
        let text = |text: Text| self.model.texts.get(text);
        let member = match (text(named.interface), text(named.member)) {
            ("", member) => member.to_owned(),
            (interface, member) => format!("{interface}.{member}"),
        };
        let other = if row.sender == self.caller { row.receiver } else { row.sender };
        Wait {
            kind,
            caller: describe(self.model, self.caller),
            member,
            to: describe(self.model, other),
            at_ns: row.at_ns.saturating_sub(self.start_ns),
            waited_ns,
            end,
        }
    }
}

/// Writes what was found for a person, what never came first.
#[must_use]
pub fn render(why: &WaitReport, app: &str) -> String {
    let mut text = gaps(why.damaged, why.cut, &why.matched);
    if why.lost > 0 {
        text += &format!(
            "The recorder lost {}. ",
            counted(usize::try_from(why.lost).unwrap_or(usize::MAX), "message")
        );
    }
    if why.callers.is_empty() {
        return text + &format!("No program called {app} is in the record.\n");
    }
    let of = |kind: WaitKind| why.waits.iter().filter(move |wait| wait.kind == kind);
    text += &format!(
        "{app}: {} without an answer, {} not started, silent {} times, {} late.\n",
        counted(of(WaitKind::NoAnswer).count(), "call"),
        counted(of(WaitKind::NotStarted).count(), "service"),
        of(WaitKind::Silent).count(),
        counted(of(WaitKind::LateAnswer).count(), "answer"),
    );
    for kind in [WaitKind::NotStarted, WaitKind::NoAnswer, WaitKind::Silent, WaitKind::LateAnswer] {
        for wait in of(kind).take(SHOWN) {
            text += &line(wait);
        }
        let more = of(kind).count().saturating_sub(SHOWN);
        if more > 0 {
            text += &format!("  and {more} more of these\n");
        }
    }
    text
}

fn line(wait: &Wait) -> String {
    let (what, about) = match wait.kind {
        WaitKind::NotStarted => ("not started", "to"),
        WaitKind::NoAnswer => ("no answer", "to"),
        WaitKind::Silent => ("silent", "after"),
        WaitKind::LateAnswer => ("late answer", "to"),
    };
    let end = match wait.end {
        WaitEnd::Answered => "the answer came",
        WaitEnd::WentOn if wait.kind == WaitKind::Silent => "then it went on",
        WaitEnd::WentOn => "the caller gave up and went on",
        WaitEnd::LeftBus => "the caller left the bus",
        WaitEnd::RecordEnded => "the caller still waited when the record ended",
    };
    let member = &wait.member;
    let message = match about {
        "after" => format!("after {member}, {}", wait.to.name),
        _ => format!("{member} to {}", program(&wait.to)),
    };
    format!(
        "  {:>8}  {what}: {message}\n            from {}; {end}\n",
        time(wait.waited_ns),
        program(&wait.caller)
    )
}

/// A name, the process and its command line.
fn program(caller: &NamedConnection) -> String {
    match (caller.pid, &*caller.command) {
        (None, _) => caller.name.clone(),
        (Some(pid), "") => format!("{} (process {pid})", caller.name),
        (Some(pid), command) => format!("{} (process {pid}: {command})", caller.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::peers::ProcessIdentity;
    use crate::model::sample::{SampleMessage, seen};

    /// A program that calls a service that hangs and one that does not start, and says nothing for two seconds.
    fn stuck() -> Model {
        let bus = "org.freedesktop.DBus";
        let name_lost = SampleMessage::directed(8, bus, ":1.1", "org.freedesktop.DBus.NameLost");
        let mut model = seen(&[
            (0, SampleMessage::owner_changed("org.example.App", "", ":1.1")),
            (1_000, SampleMessage::owner_changed("org.example.Slow", "", ":1.2")),
            (1_100, SampleMessage::owner_changed("org.example.Gone", ":1.9", "")),
            (10_000, SampleMessage::call(1, ":1.1", "org.example.Slow", "org.example.I.Fast")),
            (10_100, SampleMessage::answer(1, ":1.2", ":1.1")),
            (2_010_100, SampleMessage::call(2, ":1.1", "org.example.Slow", "org.example.I.Hang")),
            (8_010_100, SampleMessage::call(3, ":1.1", "org.example.Slow", "org.example.I.Late")),
            (8_510_100, SampleMessage::answer(3, ":1.2", ":1.1")),
            (8_510_200, SampleMessage::call(4, ":1.1", "org.example.Gone", "org.example.I.Start")),
            (8_999_900, name_lost),
            (9_000_000, SampleMessage::owner_changed(":1.1", ":1.1", "")),
            (9_900_000, SampleMessage::signal(9, ":1.2", "org.example.I.Tick")),
        ]);
        let command = model.texts.keep("/usr/bin/app --tray");
        let unique = model.texts.keep(":1.1");
        let peer = model.peers.connection(0, unique);
        let about = ProcessIdentity { pid: Some(7), command, ..ProcessIdentity::default() };
        model.peers.describe(peer, about);
        model
    }

    #[test]
    fn what_never_came_is_told_first_with_the_time_until_the_caller_gave_up() {
        let model = stuck();
        let why = explain(&model, "org.example.App");
        let told: Vec<_> = why
            .waits
            .iter()
            .map(|wait| (wait.kind, wait.waited_ns / 1_000_000, wait.end))
            .collect();
        assert_eq!(
            told,
            [
                (WaitKind::NotStarted, 489, WaitEnd::LeftBus),
                (WaitKind::NoAnswer, 6000, WaitEnd::WentOn),
                (WaitKind::Silent, 2000, WaitEnd::WentOn),
                (WaitKind::LateAnswer, 500, WaitEnd::Answered),
            ],
            "{why:#?}"
        );
        let text = render(&why, "org.example.App");
        assert!(
            text.contains("6.00 s  no answer: org.example.I.Hang to org.example.Slow")
                && text.contains(
                    "from org.example.App (process 7: /usr/bin/app --tray); the caller gave up"
                ),
            "{text}"
        );
    }

    #[test]
    fn who_is_not_in_the_record_is_told_so() {
        let why = explain(&stuck(), "org.example.Nobody");
        assert!(why.callers.is_empty());
        assert!(render(&why, "org.example.Nobody").contains("No program called"));
        assert!(explain(&stuck(), "org.example.Gone").callers.is_empty());
    }
}
