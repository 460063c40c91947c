//! Counts the messages of a model that a filter chooses.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use foldhash::HashMap;

use super::wakes::Wakes;
use super::{
    ErrorKind, Method, Open, Portal, Service, SignalKind, Started, Stats, Times,
    UndeliveredMessages, Wake,
};
use crate::filter::Filter;
use crate::model::peers::PeerId;
use crate::model::texts::Text;
use crate::model::{Model, Row};
use wire::MessageType;

/// The most single calls, names and pairs that are listed of each sort.
const LISTED: usize = 1000;
/// The most members that are named of one error.
const MEMBERS: usize = 5;

/// What is gathered of one method.
#[derive(Debug, Default)]
struct Gathered {
    calls: u64,
    errors: u64,
    unanswered: u64,
    no_reply: u64,
    bytes: u64,
    times: Vec<u64>,
    /// How long the callers of unanswered calls waited.
    open: Vec<u64>,
}

/// What is gathered of one signal.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    count: u64,
    directed: u64,
    heard: u64,
    bytes: u64,
}

/// What is gathered of one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

/// How many messages each second has; those of one come together, but for the clock being set.
#[derive(Debug, Default)]
struct Seconds {
    now: u64,
    count: u64,
    before: BTreeMap<u64, u64>,
}

impl Seconds {
    fn see(&mut self, second: u64) {
        if second != self.now {
            self.turn();
            self.now = second;
        }
        self.count += 1;
    }

    fn turn(&mut self) {
        *self.before.entry(self.now).or_default() += std::mem::take(&mut self.count);
    }

    fn busiest(mut self) -> u64 {
        self.turn();
        self.before.into_values().max().unwrap_or(0)
    }
}

/// Counts the messages that the filter chooses; those of the recorder itself are left out.
#[must_use]
pub fn collect(model: &Model, filter: &Filter) -> Stats {
    let mut stats = Stats {
        damaged: model.damaged,
        cut: model.cut,
        matched: model.matched.clone(),
        lost: model.losses.iter().map(|loss| loss.count).sum(),
        ..Stats::default()
    };
    let mut methods: HashMap<(PeerId, Text, Text), Gathered> = HashMap::default();
    let mut signals: HashMap<(PeerId, Text, Text), Sent> = HashMap::default();
    let mut traffic = vec![Traffic::default(); model.peers.all().len()];
    let mut errors: HashMap<(Text, Text, Text), u64> = HashMap::default();
    let mut refused: HashMap<(PeerId, Text, Text, Text, Text), u64> = HashMap::default();
    let mut wakes = Wakes::default();
    let mut seconds = Seconds::default();
    let mut last_ns = 0;
    let names = Names { model };
    let knows_hearers = model.knows_hearers();
    for (number, row) in model.rows() {
        if model.is_recorders(number) {
            stats.own += 1;
            continue;
        }
        if !filter.is_every() && !filter.chooses(model, number) {
            continue;
        }
        if stats.messages == 0 {
            stats.start_ns = row.at_ns;
        }
        last_ns = last_ns.max(row.at_ns);
        let bytes = u64::from(row.length);
        stats.messages += 1;
        stats.bytes += bytes;
        seconds.see(row.at_ns / 1_000_000_000);
        wakes.see(model, row);
        let sender = model.peers.identity(row.sender);
        if let Some(from) = traffic.get_mut(sender.index()) {
            from.sent += 1;
            from.sent_bytes += bytes;
        }
        let is_one = row.receiver != PeerId::NONE && model.is_delivered(row);
        let direct = is_one.then_some(row.receiver);
        for peer in direct.iter().chain(model.hearers(row)) {
            if let Some(to) = traffic.get_mut(model.peers.identity(*peer).index()) {
                to.received += 1;
                to.received_bytes += bytes;
            }
        }
        match row.kind {
            MessageType::Call => {
                stats.kinds.calls += 1;
                let receiver = model.peers.identity(row.receiver);
                let method = methods.entry((receiver, row.interface, row.member)).or_default();
                method.calls += 1;
                method.bytes += bytes;
                if let Some(answer) = model.partner(row) {
                    method.bytes += u64::from(answer.length);
                    method.times.push(answer.at_ns.saturating_sub(row.at_ns));
                    method.errors += u64::from(answer.kind == MessageType::Error);
                } else if row.flags.no_reply_expected() {
                    method.no_reply += 1;
                } else {
                    method.unanswered += 1;
                    method.open.push(model.waited_ns(row).unwrap_or(0));
                    if stats.unanswered.len() < LISTED {
                        stats.unanswered.push(names.open(row, stats.start_ns));
                    }
                }
            }
            MessageType::Return => stats.kinds.returns += 1,
            MessageType::Error => {
                stats.kinds.errors += 1;
                let call = model.named(row);
                *errors.entry((row.error, call.interface, call.member)).or_default() += 1;
                if model.is_from_bus(row) && is_refusal(model.texts.get(row.error)) {
                    let caller = model.peers.identity(row.receiver);
                    let key = (caller, call.destination, call.interface, call.member, row.error);
                    *refused.entry(key).or_default() += 1;
                }
            }
            MessageType::Signal => {
                stats.kinds.signals += 1;
                let signal = signals.entry((sender, row.interface, row.member)).or_default();
                signal.count += 1;
                signal.bytes += bytes;
                signal.directed += u64::from(row.destination.is_some());
                signal.heard += model.hearers(row).len() as u64;
                stats.unheard += u64::from(!knows_hearers && !row.destination.is_some());
            }
            MessageType::Other(_) => (),
        }
    }
    stats.span_ns = last_ns.saturating_sub(stats.start_ns);
    stats.busiest_second = seconds.busiest();
    stats.methods = names.methods(methods);
    stats.signals = names.signals(&signals);
    stats.services = names.services(&traffic, &wakes);
    stats.errors = names.errors(&errors);
    stats.refused = names.refused(&refused);
    stats.wakes = names.wakes(&wakes);
    names.rest(&mut stats, filter);
    stats
}

/// Returns whether the bus did not let a message through.
fn is_refusal(error: &str) -> bool {
    let error = error.strip_prefix("org.freedesktop.DBus.Error.").unwrap_or_default();
    matches!(
        error,
        "AccessDenied" | "AuthFailed" | "LimitsExceeded" | "InteractiveAuthorizationRequired"
    )
}

/// Puts names to numbers.
struct Names<'a> {
    model: &'a Model,
}

impl Names<'_> {
    fn member(&self, interface: Text, member: Text) -> String {
        let texts = &self.model.texts;
        match (texts.get(interface), texts.get(member)) {
            ("", member) => member.to_owned(),
            (interface, member) => format!("{interface}.{member}"),
        }
    }

    /// Returns what a peer is called in every capture: unique names are not the same in two.
    fn service(&self, peer: PeerId) -> String {
        self.model.peers.service(peer, &self.model.texts)
    }

    fn open(&self, row: &Row, start_ns: u64) -> Open {
        let caller = self.model.peers.get(row.sender);
        Open {
            from: self.model.peers.label(row.sender, &self.model.texts),
            to: self.model.peers.label(row.receiver, &self.model.texts),
            member: self.member(row.interface, row.member),
            at_ns: row.at_ns.saturating_sub(start_ns),
            waited_ns: self.model.waited_ns(row).unwrap_or(0),
            caller_left: caller.is_some_and(|caller| caller.left_ns.is_some()),
        }
    }

    fn methods(&self, gathered: HashMap<(PeerId, Text, Text), Gathered>) -> Vec<Method> {
        let mut joined: BTreeMap<(String, String), Gathered> = BTreeMap::new();
        for ((peer, interface, member), mut one) in gathered {
            let all =
                joined.entry((self.service(peer), self.member(interface, member))).or_default();
            all.calls += one.calls;
            all.errors += one.errors;
            all.unanswered += one.unanswered;
            all.no_reply += one.no_reply;
            all.bytes += one.bytes;
            all.times.append(&mut one.times);
            all.open.append(&mut one.open);
        }
        let method = |((service, member), mut all): ((String, String), Gathered)| {
            let mut waits = [&*all.times, &*all.open].concat();
            Method {
                service,
                member,
                calls: all.calls,
                answered: all.times.len() as u64,
                errors: all.errors,
                unanswered: all.unanswered,
                no_reply: all.no_reply,
                bytes: all.bytes,
                times: Times::of(&mut all.times),
                waits: Times::of(&mut waits),
                shortest_open_ns: all.open.iter().copied().min(),
            }
        };
        let mut methods: Vec<Method> = joined.into_iter().map(method).collect();
        methods.sort_by_key(|method| Reverse((method.waits.total_ns, method.calls)));
        methods
    }

    fn signals(&self, gathered: &HashMap<(PeerId, Text, Text), Sent>) -> Vec<SignalKind> {
        let mut joined: BTreeMap<(String, String), Sent> = BTreeMap::new();
        for ((peer, interface, member), one) in gathered {
            let key = (self.service(*peer), self.member(*interface, *member));
            let all = joined.entry(key).or_default();
            all.count += one.count;
            all.directed += one.directed;
            all.heard += one.heard;
            all.bytes += one.bytes;
        }
        let signal = |((service, member), sent): ((String, String), Sent)| SignalKind {
            service,
            member,
            count: sent.count,
            directed: sent.directed,
            heard: sent.heard,
            bytes: sent.bytes,
        };
        let mut signals: Vec<SignalKind> = joined.into_iter().map(signal).collect();
        signals.sort_by_cached_key(|signal| Reverse(signal.count));
        signals
    }

    fn services(&self, traffic: &[Traffic], wakes: &Wakes) -> Vec<Service> {
        let mut joined: BTreeMap<String, Service> = BTreeMap::new();
        let fresh = |name: &str| Service { service: name.to_owned(), ..Service::default() };
        for (at, one) in traffic.iter().enumerate() {
            if one.sent + one.received == 0 {
                continue;
            }
            let peer = PeerId::at(at);
            let name = self.service(peer);
            let all = joined.entry(name.clone()).or_insert_with(|| fresh(&name));
            all.sent += one.sent;
            all.sent_bytes += one.sent_bytes;
            all.received += one.received;
            all.received_bytes += one.received_bytes;
            all.pids.extend(self.model.peers.get(peer).and_then(|peer| peer.pid));
            all.pids.sort_unstable();
            all.pids.dedup();
        }
        for ((from, to, ..), count) in &wakes.counts {
            if let Some(service) = joined.get_mut(&self.service(*from)) {
                service.wakes += count;
            }
            if let Some(service) = joined.get_mut(&self.service(*to)) {
                service.woken += count;
            }
        }
        let mut services: Vec<Service> = joined.into_values().collect();
        services.sort_by_cached_key(|service| Reverse(service.sent));
        services
    }

    fn errors(&self, gathered: &HashMap<(Text, Text, Text), u64>) -> Vec<ErrorKind> {
        let mut joined: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for ((error, interface, member), count) in gathered {
            let name = self.model.texts.get(*error).to_owned();
            joined.entry(name).or_default().push((self.member(*interface, *member), *count));
        }
        let error = |(name, mut members): (String, Vec<(String, u64)>)| {
            let count = members.iter().map(|(_, count)| count).sum();
            members.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            members.truncate(MEMBERS);
            ErrorKind { name, count, members }
        };
        let mut errors: Vec<ErrorKind> = joined.into_iter().map(error).collect();
        errors.sort_by_cached_key(|error| Reverse(error.count));
        errors
    }

    fn refused(
        &self,
        gathered: &HashMap<(PeerId, Text, Text, Text, Text), u64>,
    ) -> Vec<UndeliveredMessages> {
        let name = |((from, to, interface, member, error), count): (
            &(PeerId, Text, Text, Text, Text),
            &u64,
        )| UndeliveredMessages {
            from: self.service(*from),
            to: self.model.texts.get(*to).to_owned(),
            member: self.member(*interface, *member),
            error: self.model.texts.get(*error).to_owned(),
            count: *count,
        };
        most(gathered.iter().map(name), |astray| astray.count, |astray| astray.member.clone())
    }

    fn wakes(&self, wakes: &Wakes) -> Vec<Wake> {
        let mut joined: HashMap<(String, String, String), u64> = HashMap::default();
        for ((from, to, interface, member), count) in &wakes.counts {
            let key = (self.service(*from), self.service(*to), self.member(*interface, *member));
            *joined.entry(key).or_default() += count;
        }
        let wake = |((from, to, member), count)| Wake { from, to, member, count };
        most(
            joined.into_iter().map(wake),
            |wake| wake.count,
            |wake| (wake.from.clone(), wake.to.clone(), wake.member.clone()),
        )
    }

    /// Adds what the model has found by itself.
    fn rest(&self, stats: &mut Stats, filter: &Filter) {
        let model = self.model;
        let is_chosen = |number: u32| {
            !model.is_recorders(number) && (filter.is_every() || filter.chooses(model, number))
        };
        for activation in &model.activations {
            let Some(row) = model.row(activation.message) else { continue };
            if is_chosen(activation.message) && stats.activations.len() < LISTED {
                stats.activations.push(Started {
                    service: model.texts.get(activation.name).to_owned(),
                    by: model.peers.label(row.sender, &model.texts),
                    member: self.member(row.interface, row.member),
                    delay_ns: activation.owned_ns.saturating_sub(activation.asked_ns),
                });
            }
        }
        let mut unowned: HashMap<(PeerId, Text, Text, Text, Text), u64> = HashMap::default();
        for number in model.astray() {
            let Some(row) = model.row(number).filter(|_| is_chosen(number)) else { continue };
            let error = model.partner(row).map_or(Text::NONE, |answer| answer.error);
            let sender = model.peers.identity(row.sender);
            let key = (sender, row.destination, row.interface, row.member, error);
            *unowned.entry(key).or_default() += 1;
        }
        stats.unowned = self.refused(&unowned);
        for request in model.requests() {
            let Some(row) = model.row(request.call).filter(|_| is_chosen(request.call)) else {
                continue;
            };
            if stats.portals.len() < LISTED {
                let response = model.row(request.response);
                stats.portals.push(Portal {
                    from: model.peers.label(row.sender, &model.texts),
                    member: self.member(row.interface, row.member),
                    took_ns: response.map(|response| response.at_ns.saturating_sub(row.at_ns)),
                    code: request.code,
                });
            }
        }
    }
}

/// Returns the most frequent ones, those that are as frequent in an order that is always the same.
fn most<T, K: Ord>(
    all: impl Iterator<Item = T>,
    count: impl Fn(&T) -> u64,
    key: impl Fn(&T) -> K,
) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by(|a, b| count(b).cmp(&count(a)).then_with(|| key(a).cmp(&key(b))));
    all.truncate(LISTED);
    all
}
