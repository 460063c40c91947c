//! The state of the bus as derived from messages: owners of names, match rules, identities of connections.

use super::peers::{DRIVER, PeerId, ProcessIdentity, is_unique};
use super::portal::{REQUEST, REQUESTS};
use super::rules::{MatchRule, SignalFields};
use super::texts::Text;
use super::{Activation, Model, Row};
use wire::Header;
use wire::body::{self, BodyValue};

/// So many arguments of a signal are read for match rules; hardly any rule looks further.
const ARGUMENTS: usize = 8;
/// Different broadcasts of which it is remembered who hears them.
const FANS: usize = 100_000;

impl Model {
    /// Follows what a signal tells, and who hears it.
    pub(super) fn signal(&mut self, number: u32, row: &Row, header: &Header<'_>) {
        if header.sender == Some(DRIVER) {
            if header.member == Some("NameOwnerChanged") && header.interface == Some(DRIVER) {
                let mut texts = body::values(header).map_while(|value| text_of(&value.ok()?));
                if let (Some(name), Some(old), Some(new)) =
                    (texts.next(), texts.next(), texts.next())
                {
                    self.owner_changed(number, row, name, old, new);
                }
            }
        } else if header.interface == Some(REQUEST) && header.member == Some("Response") {
            let code = match body::values(header).next() {
                Some(Ok(BodyValue::Uint32(code))) => Some(code),
                _ => None,
            };
            self.portals.respond(row.bus, row.path, number, code);
        }
        if !row.destination.is_some() {
            self.fan_out(row, header);
        }
    }

    fn owner_changed(&mut self, number: u32, row: &Row, name: &str, old: &str, new: &str) {
        let bus = row.bus;
        let name_text = self.texts.keep(name);
        if is_unique(name) {
            if new.is_empty() {
                let peer = self.peers.leaves(bus, name_text, row.at_ns);
                if let Some(rules) = self.rules.get_mut(&bus) {
                    rules.forget(peer);
                    self.fan_of.clear();
                }
            } else if old.is_empty() {
                self.peers.comes(bus, name_text, number);
            }
            return;
        }
        // Whom a rule means by a name has changed.
        self.fan_of.clear();
        if new.is_empty() {
            self.peers.loses(bus, name_text, number);
            return;
        }
        let new = self.texts.keep(new);
        let owner = self.peers.connection(bus, new);
        self.peers.owns(bus, name_text, owner, number);
        let Some(waiting) = self.waiting.remove(&(bus, name_text)) else { return };
        for (message, _) in &waiting.messages {
            let at = message.checked_sub(self.first);
            if let Some(row) = at.and_then(|at| self.rows.get_mut(at as usize)) {
                row.receiver = owner;
            }
        }
        let Some((message, _)) = waiting.messages.first() else { return };
        self.activations.push(Activation {
            bus,
            name: name_text,
            message: *message,
            asked_ns: waiting.at_ns,
            owned_ns: row.at_ns,
        });
    }

    /// Determines the receivers of a broadcast.
    fn fan_out(&mut self, row: &Row, header: &Header<'_>) {
        let Some(rules) = self.rules.get(&row.bus) else { return };
        let (interface, member) = (header.interface.unwrap_or(""), header.member.unwrap_or(""));
        let looks = rules.look_at_arguments(interface, member);
        let key = (row.sender, row.interface, row.member, row.path);
        let known = if looks { None } else { self.fan_of.get(&key).copied() };
        let fan = match known {
            Some(fan) => fan,
            None => {
                let values: Vec<BodyValue<'_>> = if looks {
                    body::values(header).map_while(Result::ok).take(ARGUMENTS).collect()
                } else {
                    Vec::new()
                };
                let arguments: Vec<Option<&str>> = values.iter().map(text_of).collect();
                let is_from = |name: &str| {
                    let Some(name) = self.texts.find(name) else { return false };
                    let sender = self.peers.get(row.sender);
                    sender.is_some_and(|sender| sender.unique == name)
                        || self.peers.owner(row.bus, name) == Some(row.sender)
                };
                let signal = SignalFields {
                    is_from: &is_from,
                    interface,
                    member,
                    path: header.path.unwrap_or(""),
                    arguments: &arguments,
                };
                let hearers = rules.hearers(&signal);
                self.keep_fan(hearers)
            }
        };
        if !looks && self.fan_of.len() < FANS {
            self.fan_of.insert(key, fan);
        }
        if let Some(row) = self.rows.back_mut() {
            row.hearers = fan;
        }
    }

    /// Returns the number of a set of hearers; sets are few, and the last ones are asked for most.
    fn keep_fan(&mut self, hearers: Vec<PeerId>) -> u32 {
        if self.fans.is_empty() {
            self.fans.push(Vec::new());
        }
        let at = self.fans.iter().rposition(|fan| *fan == hearers).unwrap_or_else(|| {
            if self.fans.len() < FANS {
                self.fans.push(hearers);
                self.fans.len() - 1
            } else {
                0
            }
        });
        u32::try_from(at).unwrap_or(0)
    }

    /// Records a call of the bus itself whose answer will tell something.
    pub(super) fn ask_bus(&mut self, number: u32, row: &Row, header: &Header<'_>) {
        let argument = |header: &Header<'_>| match body::values(header).next() {
            Some(Ok(BodyValue::Text(text))) => Some(text.to_owned()),
            _ => None,
        };
        match header.member.unwrap_or("") {
            "AddMatch" => {
                let rule = argument(header).and_then(|text| MatchRule::parse(&text));
                if let Some(rule) = rule {
                    self.rules.entry(row.bus).or_default().add(row.sender, rule);
                    self.fan_of.clear();
                }
            }
            "RemoveMatch" => {
                let rule = argument(header).and_then(|text| MatchRule::parse(&text));
                if let (Some(rule), Some(rules)) = (rule, self.rules.get_mut(&row.bus)) {
                    rules.remove(row.sender, &rule);
                    self.fan_of.clear();
                }
            }
            "BecomeMonitor" => self.monitors.push(row.sender),
            "GetNameOwner"
            | "GetConnectionUnixProcessID"
            | "GetConnectionUnixUser"
            | "GetConnectionCredentials" => {
                if let Some(name) = argument(header) {
                    let name = self.texts.keep(&name);
                    self.asked.insert(number, name);
                }
            }
            _ => (),
        }
    }

    /// Learns from the answer to a call.
    pub(super) fn learn(&mut self, call: &Row, call_number: u32, header: &Header<'_>) {
        if header.signature == "o" {
            if let Some(Ok(BodyValue::Path(path))) = body::values(header).next()
                && path.starts_with(REQUESTS)
            {
                let handle = self.texts.keep(path);
                self.portals.begin(call.bus, handle, call_number);
            }
            return;
        }
        if call.destination != Text::BUS {
            return;
        }
        let Some(Ok(value)) = body::values(header).next() else { return };
        let bus = call.bus;
        let name = self.asked.get(&call_number).copied();
        match (self.texts.get(call.member), value, name) {
            ("GetNameOwner", BodyValue::Text(owner), Some(name)) => {
                let owner = self.texts.keep(owner);
                let owner = self.peers.connection(bus, owner);
                if !is_unique(self.texts.get(name)) && name != Text::BUS {
                    self.peers.owns(bus, name, owner, call_number);
                }
            }
            ("GetConnectionUnixProcessID", BodyValue::Uint32(pid), Some(name)) => {
                self.describe(bus, name, Some(pid), None);
            }
            ("GetConnectionUnixUser", BodyValue::Uint32(uid), Some(name)) => {
                self.describe(bus, name, None, Some(uid));
            }
            ("GetConnectionCredentials", BodyValue::Array(array), Some(name)) => {
                for item in array.items().map_while(Result::ok) {
                    let BodyValue::Entry(entry) = item else { continue };
                    match (&entry.0, inside(&entry.1)) {
                        (BodyValue::Text("ProcessID"), BodyValue::Uint32(pid)) => {
                            self.describe(bus, name, Some(*pid), None);
                        }
                        (BodyValue::Text("UnixUserID"), BodyValue::Uint32(uid)) => {
                            self.describe(bus, name, None, Some(*uid));
                        }
                        _ => (),
                    }
                }
            }
            ("ListNames", BodyValue::Array(array), _) => {
                for item in array.items().map_while(Result::ok) {
                    let BodyValue::Text(name) = item else { continue };
                    let text = self.texts.keep(name);
                    self.peers.lists(bus, text, &self.texts);
                }
                self.peers.complete(bus);
            }
            ("GetAllMatchRules", BodyValue::Array(array), _) => {
                self.rules.remove(&bus);
                for item in array.items().map_while(Result::ok) {
                    let BodyValue::Entry(entry) = item else { continue };
                    let (BodyValue::Text(name), BodyValue::Array(rules)) = *entry else { continue };
                    self.has_rules(bus, name, rules.items().map_while(Result::ok));
                }
            }
            _ => (),
        }
    }

    fn has_rules<'m>(&mut self, bus: u16, name: &str, rules: impl Iterator<Item = BodyValue<'m>>) {
        let name = self.texts.keep(name);
        let peer = self.peers.connection(bus, name);
        let all = self.rules.entry(bus).or_default();
        for rule in rules {
            if let Some(rule) = text_of(&rule).and_then(MatchRule::parse) {
                all.add(peer, rule);
            }
        }
        self.fan_of.clear();
    }

    fn describe(&mut self, bus: u16, name: Text, pid: Option<u32>, uid: Option<u32>) {
        let peer = self.peers.named(bus, name, &self.texts);
        let about = ProcessIdentity { pid, uid, ..ProcessIdentity::default() };
        self.peers.describe(peer, about);
    }
}

/// Returns what a value says if it is text of any kind.
fn text_of<'m>(value: &BodyValue<'m>) -> Option<&'m str> {
    match value {
        BodyValue::Text(text) | BodyValue::Path(text) => Some(text),
        _ => None,
    }
}

/// Returns what is in a variant.
fn inside<'a, 'm>(value: &'a BodyValue<'m>) -> &'a BodyValue<'m> {
    match value {
        BodyValue::Variant(_, inside) => inside,
        other => other,
    }
}
