//! Connections that receive all messages of the bus: monitors, which have no name, and eavesdropping match rules.
//!
//! dbus-daemon counts monitors among its connections, but not among the names that it lists.

use std::os::unix::fs::MetadataExt;

use crate::finding::{Finding, MeasurementOutcome};
use crate::remedy::Remedy;
use capture::model::Model;
use report::paragraph::counted;
use wire::body::{self, BodyValue};
use wire::{Header, MessageType};

use super::NAME;

/// Programs that attach monitors, and what of their command lines says that they do.
const KNOWN: [(&str, &str); 5] = [
    ("dbus-monitor", ""),
    ("busctl", "monitor"),
    ("busctl", "capture"),
    ("bustle", ""),
    ("unjank", "bus"),
];

/// The most of a command line that is looked at.
const MOST_LINE: u64 = 64 << 10;

/// What the bus says of its connections.
#[derive(Debug, Default)]
pub(super) struct BusConnections {
    /// All connections, and [`Self::gained`] when the bus counted them.
    connections: Option<(i64, i64)>,
    /// The unique names that it lists, and [`Self::gained`] when it listed them.
    names: Option<(i64, i64)>,
    /// How many more unique names there are than when we began to listen: programs come and go between the two answers.
    gained: i64,
}

impl BusConnections {
    /// Checks whether a message is one of the answers that are wanted.
    pub(super) fn see(&mut self, model: &Model, number: u32, header: &Header<'_>) {
        let Some(row) = model.row(number).filter(|row| model.is_from_bus(row)) else { return };
        if row.kind == MessageType::Signal && header.member == Some("NameOwnerChanged") {
            return self.see_change(header);
        }
        if row.kind != MessageType::Return {
            return;
        }
        let Some(Ok(BodyValue::Array(array))) = body::values(header).next() else { return };
        let items = array.items().map_while(Result::ok);
        match model.texts.get(model.named(row).member) {
            "ListNames" => {
                let unique = items
                    .filter(|item| matches!(item, BodyValue::Text(name) if name.starts_with(':')));
                self.names = i64::try_from(unique.count()).ok().map(|names| (names, self.gained));
            }
            "GetStats" => {
                for item in items {
                    let BodyValue::Entry(entry) = item else { continue };
                    if let (BodyValue::Text("ActiveConnections"), BodyValue::Variant(_, inside)) =
                        &*entry
                        && let BodyValue::Uint32(number) = **inside
                    {
                        self.connections = Some((i64::from(number), self.gained));
                    }
                }
            }
            _ => (),
        }
    }

    /// Follows a connection that came or went; its name is its own.
    fn see_change(&mut self, header: &Header<'_>) {
        let mut values = body::values(header).map_while(Result::ok);
        if let (Some(BodyValue::Text(name)), Some(BodyValue::Text(old)), Some(BodyValue::Text(new))) =
            (values.next(), values.next(), values.next())
            && name.starts_with(':')
        {
            self.gained += i64::from(!new.is_empty()) - i64::from(!old.is_empty());
        }
    }

    /// Says who listens, besides us, or that it is not known; nothing if nobody does.
    pub(super) fn finding(&self, model: &Model) -> Option<Finding> {
        let nameless = self.connections.zip(self.names).map(|((all, at), (named, listed))| {
            // By the names that there were when the connections were counted.
            all - (named + at - listed)
        });
        // One of them is ours.
        let monitors = nameless.unwrap_or(0).saturating_sub(1).max(0);
        let eavesdroppers = model.eavesdroppers();
        let how = "GetStats, ListNames, GetAllMatchRules of the bus";
        let unknown = "the bus does not say how many connections it has";
        if monitors == 0 && eavesdroppers.is_empty() {
            let skipped = || MeasurementOutcome::Skipped(unknown.to_owned());
            return nameless.is_none().then(|| Finding::new(NAME, "monitors", how, skipped()));
        }
        let mut parts = Vec::new();
        if nameless.is_none() {
            parts.push(format!("monitors are not counted: {unknown}"));
        }
        if monitors > 0 {
            let monitors = usize::try_from(monitors).unwrap_or(usize::MAX);
            parts.push(format!("{} attached", counted(monitors, "monitor")));
        }
        if !eavesdroppers.is_empty() {
            let labels: Vec<String> =
                eavesdroppers.iter().map(|peer| model.peers.label(*peer, &model.texts)).collect();
            parts.push(format!("{} eavesdropping: {}", labels.len(), labels.join(", ")));
        }
        let MonitorPrograms { programs: suspects, hanging } = suspects();
        let named: Vec<String> =
            suspects.iter().map(|(pid, name)| format!("{name} (process {pid})")).collect();
        if !named.is_empty() {
            parts.push(format!("these are running: {}", named.join(", ")));
        }
        if !hanging.is_empty() {
            parts.push(format!(
                "not looked at, because they hang in the kernel: processes {}",
                hanging.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            ));
        }
        let outcome = MeasurementOutcome::Wrong(parts.join("; "));
        let mut finding = Finding::new(NAME, "monitors", how, outcome)
            .because("the bus copies every message to them, and keeps it if they do not read");
        if let Some((pid, name)) = suspects.first() {
            let (name, pids) = (name.clone(), vec![*pid]);
            finding = finding.remedy(Remedy::EndProcess { name, pids, effect: "" });
        }
        Some(finding)
    }
}

/// Programs that may have attached the monitors.
#[derive(Debug, Default)]
struct MonitorPrograms {
    programs: Vec<(u32, String)>,
    /// Processes whose command line cannot be read, because they hang in the kernel.
    hanging: Vec<u32>,
}

/// Finds running programs that are known to attach monitors, and that this user may end.
fn suspects() -> MonitorPrograms {
    let mut found = MonitorPrograms::default();
    let Ok(entries) = std::fs::read_dir("/proc") else { return found };
    let (own, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
    for entry in entries.map_while(Result::ok) {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else { continue };
        // It may have ended meanwhile, or not be ours to look at.
        let owner = entry.metadata().map(|about| about.uid());
        if !owner.is_ok_and(|owner| uid == 0 || owner == uid) {
            continue;
        }
        let line = match sys::process_file::read(pid, "cmdline", MOST_LINE) {
            Ok(line) => line,
            Err(error) if sys::process_file::is_stuck(&error) => {
                found.hanging.push(pid);
                continue;
            }
            Err(_) => continue,
        };
        found.programs.extend(suspect(&line).map(|name| (pid, name)));
    }
    found.programs.sort_unstable();
    found
}

/// Returns the name of a program whose command line is that of one that attaches a monitor.
fn suspect(line: &[u8]) -> Option<String> {
    let words: Vec<std::borrow::Cow<'_, str>> =
        line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let program = words.first()?.rsplit('/').next()?.to_owned();
    let is_known = KNOWN.iter().any(|(name, word)| {
        *name == program && (word.is_empty() || words.iter().any(|said| said == word))
    });
    is_known.then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::model::peers::DRIVER;
    use capture::model::sample::{SampleMessage, push, seen};

    #[test]
    fn programs_that_monitor_are_known_by_their_command_lines() {
        assert_eq!(suspect(b"/usr/bin/dbus-monitor\0--session\0").as_deref(), Some("dbus-monitor"));
        assert_eq!(suspect(b"busctl\0--user\0monitor\0").as_deref(), Some("busctl"));
        for other in [&b"busctl\0list\0"[..], b"", b"vi\0dbus-monitor\0"] {
            assert_eq!(suspect(other), None);
        }
    }

    #[test]
    fn connections_without_a_name_are_monitors() {
        let model = seen(&[]);
        let finding = |all, named| {
            let at_once = |number: Option<i64>| number.map(|number| (number, 0));
            let (connections, names) = (at_once(all), at_once(named));
            let listeners = BusConnections { connections, names, gained: 0 };
            listeners.finding(&model).map(|finding| finding.outcome)
        };
        assert_eq!(finding(Some(5), Some(4)), None, "the one is ours");
        for (all, named) in [(None, Some(4)), (Some(5), None), (None, None)] {
            let Some(MeasurementOutcome::Skipped(why)) = finding(all, named) else { panic!() };
            assert!(why.contains("does not say"), "{why}");
        }
        let Some(MeasurementOutcome::Wrong(text)) = finding(Some(6), Some(4)) else { panic!() };
        assert!(text.starts_with("1 monitor attached"), "{text}");
    }

    #[test]
    fn who_came_or_went_between_the_answers_is_no_monitor() {
        let ask = SampleMessage::call(1, ":1.7", DRIVER, "org.freedesktop.DBus.ListNames");
        let listed = |names: &[&str]| SampleMessage::answer(1, DRIVER, ":1.7").texts(names);
        let came = || SampleMessage::owner_changed(":1.9", "", ":1.9");
        let went = || SampleMessage::owner_changed(":1.9", ":1.9", "");
        let owned = || SampleMessage::owner_changed("org.example.A", "", ":1.7");
        let both = &[DRIVER, ":1.7", ":1.8"][..];
        let three = &[DRIVER, ":1.7", ":1.8", ":1.9"][..];
        // What comes before the connections are counted, how many there are, and what comes after.
        let cases = [
            (vec![listed(both)], 3, vec![]),
            (vec![listed(both), came(), owned()], 4, vec![went()]),
            (vec![listed(both), came(), went()], 3, vec![]),
            (vec![listed(three), went()], 3, vec![came()]),
            (vec![came()], 4, vec![went(), owned(), listed(both)]),
            (vec![], 3, vec![came(), listed(three)]),
        ];
        for (before, connections, after) in cases {
            let mut model = Model::default();
            let mut listeners = BusConnections::default();
            let mut see = |listeners: &mut BusConnections, sample: &SampleMessage| {
                let number = push(&mut model, 0, sample);
                let bytes = sample.encode();
                listeners.see(&model, number, &wire::message(&bytes).unwrap());
            };
            see(&mut listeners, &ask);
            before.iter().for_each(|sample| see(&mut listeners, sample));
            listeners.connections = Some((connections, listeners.gained));
            after.iter().for_each(|sample| see(&mut listeners, sample));
            assert!(listeners.names.is_some(), "the list was seen");
            assert!(listeners.finding(&model).is_none(), "only ours has no name: {listeners:?}");
            // One more is one that was left.
            listeners.connections = listeners.connections.map(|(all, at)| (all + 1, at));
            assert!(listeners.finding(&model).is_some(), "{listeners:?}");
        }
    }

    #[test]
    fn who_eavesdrops_is_named() {
        let add = SampleMessage::call(1, ":1.7", DRIVER, "org.freedesktop.DBus.AddMatch");
        let model = seen(&[(0, add.text("type='signal',eavesdrop='true'"))]);
        let finding = BusConnections::default().finding(&model).unwrap();
        let MeasurementOutcome::Wrong(text) = finding.outcome else { panic!() };
        assert!(text.starts_with("monitors are not counted: "), "{text}");
        assert!(text.contains("; 1 eavesdropping: :1.7"), "{text}");
    }
}
