//! The model of a recording: senders and receivers, pairs of calls and replies, and the receivers of signals.
//!
//! Messages are taken in one at a time, from a file or as they come, and become rows of numbers; texts are kept once.
//! Names are resolved as their owners change, so that a row refers to connections, not to names.

mod pairs;
pub mod peers;
mod portal;
mod read;
#[doc(hidden)] // For tests and fuzz targets.
pub mod rules;
#[doc(hidden)] // For tests of the crates that judge captures.
pub mod sample;
mod state;
#[cfg(test)]
mod tests;
pub mod texts;

use std::collections::VecDeque;

use foldhash::HashMap;
pub use read::{Ending, read};

use self::pairs::Pairs;
use self::peers::{PeerId, Peers};
use self::portal::Portals;
use self::rules::MatchRules;
use self::texts::{Text, Texts};
use wire::known::Numbers;
use wire::{Flags, Header, MessageType};

/// No message, where the number of one is expected.
pub const NONE: u32 = u32::MAX;

/// A message as the model keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// When it was seen, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// Its bytes on the wire.
    pub length: u32,
    /// Its number among the sender's messages.
    pub serial: u32,
    /// The bus it was on.
    pub bus: u16,
    /// What it is.
    pub kind: MessageType,
    /// Its flags.
    pub flags: Flags,
    /// The sender.
    pub sender: PeerId,
    /// Who it was for: the owner of the name as far as it is known, [`PeerId::NONE`] for a broadcast.
    pub receiver: PeerId,
    /// The name that it was sent to.
    pub destination: Text,
    /// The object.
    pub path: Text,
    /// The interface of the member.
    pub interface: Text,
    /// The method or signal.
    pub member: Text,
    /// The error's name.
    pub error: Text,
    /// The types of the body.
    pub signature: Text,
    /// Of a call its answer, of an answer its call; [`NONE`] if there is none.
    pub partner: u32,
    /// The receivers of a broadcast; see [`Model::hearers`].
    hearers: u32,
}

/// A message about to be taken in.
#[derive(Clone, Copy, Debug)]
pub struct ObservedMessage<'a> {
    /// When it was seen, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// The bus it was on.
    pub bus: u16,
    /// Its bytes on the wire.
    pub length: u32,
    /// The message.
    pub header: &'a Header<'a>,
    /// The numbers of its texts, the same for all messages of one model.
    pub numbers: Numbers,
}

/// The texts of a message.
#[derive(Clone, Copy, Debug)]
struct MessageNames {
    sender: Text,
    destination: Text,
    path: Text,
    interface: Text,
    member: Text,
    error: Text,
    signature: Text,
}

/// A service that was started because a message was sent to its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Activation {
    /// The bus.
    pub bus: u16,
    /// The name.
    pub name: Text,
    /// The first message that waited for it.
    pub message: u32,
    /// When that was, in nanoseconds since the epoch.
    pub asked_ns: u64,
    /// When the name got an owner.
    pub owned_ns: u64,
}

/// Messages that the recorder could not keep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageLoss {
    /// The bus.
    pub bus: u16,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The message before which they are missing.
    pub before: u32,
}

/// Messages that wait until their name has an owner.
#[derive(Debug)]
struct UnresolvedMessages {
    at_ns: u64,
    /// All of them, and whether it was known that nobody owned the name.
    messages: Vec<(u32, bool)>,
}

/// Everything that is known of a capture.
#[derive(Debug, Default)]
pub struct Model {
    /// The texts that rows refer to.
    pub texts: Texts,
    /// The connections that rows refer to.
    pub peers: Peers,
    /// What each bus is: `session`, an address.
    pub buses: Vec<(u16, String)>,
    /// Services that were started.
    pub activations: Vec<Activation>,
    /// Messages that the recorder dropped.
    pub losses: Vec<MessageLoss>,
    /// Connections that became monitors.
    pub monitors: Vec<PeerId>,
    /// How many places held bytes that were no message.
    pub damaged: u64,
    /// What is wrong at the first of them, and where.
    pub first_damage: Option<String>,
    /// How many messages were recorded without their end.
    pub cut: u64,
    /// The match rules by which the recorder chose messages; none if it took all.
    pub matched: Vec<String>,
    /// When the recording of each bus ended, in nanoseconds since the epoch, where the record says it.
    ended_ns: HashMap<u16, u64>,
    /// Whether all of the record was taken in.
    is_complete: bool,
    /// What time it is while messages still come.
    now_ns: u64,
    /// When the newest message was seen.
    newest_ns: u64,
    rows: VecDeque<Row>,
    /// The texts with numbers, by number.
    numbered: Vec<Text>,
    /// The number of the first row that is kept.
    first: u32,
    pairs: Pairs,
    waiting: HashMap<(u16, Text), UnresolvedMessages>,
    /// Messages that got nowhere.
    astray: Vec<u32>,
    rules: HashMap<u16, MatchRules>,
    /// Distinct sets of hearers; the first is empty.
    fans: Vec<Vec<PeerId>>,
    fan_of: HashMap<(PeerId, Text, Text, Text), u32>,
    portals: Portals,
    /// The argument of a query to the bus whose reply is of interest.
    asked: HashMap<u32, Text>,
}

impl Model {
    /// Returns the number of the first message that is kept.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number that the next message will have.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.rows.len()).unwrap_or(u32::MAX))
    }

    /// Returns how many messages are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether no message is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns a message.
    #[must_use]
    pub fn row(&self, number: u32) -> Option<&Row> {
        self.rows.get(number.checked_sub(self.first)? as usize)
    }

    /// Returns all messages with their numbers.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &Row)> {
        (self.first..self.end()).zip(&self.rows)
    }

    /// Returns the call of an answer and the answer of a call.
    #[must_use]
    pub fn partner(&self, row: &Row) -> Option<&Row> {
        self.row(row.partner)
    }

    /// Returns the message that names the member: the call of an answer, else the message itself.
    #[must_use]
    pub fn named<'a>(&'a self, row: &'a Row) -> &'a Row {
        match row.kind {
            MessageType::Return | MessageType::Error => self.partner(row).unwrap_or(row),
            MessageType::Call | MessageType::Signal | MessageType::Other(_) => row,
        }
    }

    /// Returns how long a call waited for its answer, of either of them, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self, row: &Row) -> Option<u64> {
        let partner = self.partner(row)?;
        Some(row.at_ns.abs_diff(partner.at_ns))
    }

    /// Returns whether a call still has no answer though one is expected.
    #[must_use]
    pub(crate) fn is_unanswered(&self, row: &Row) -> bool {
        row.kind == MessageType::Call && !row.flags.no_reply_expected() && row.partner == NONE
    }

    /// Returns how long the caller is known to have waited for an answer that did not come, in nanoseconds: until it left the
    /// bus, the recording ended, or now.
    #[must_use]
    pub fn waited_ns(&self, row: &Row) -> Option<u64> {
        if !self.is_unanswered(row) {
            return None;
        }
        let left_ns = self.peers.get(row.sender).and_then(|caller| caller.left_ns);
        let until_ns = left_ns.unwrap_or_else(|| self.until_ns(row.bus));
        Some(until_ns.saturating_sub(row.at_ns))
    }

    /// Returns whether a call took longer than this, in nanoseconds, or the call that a message answers.
    ///
    /// A call that has no answer when the record is complete took longer than any time that can be named.
    #[must_use]
    pub(crate) fn is_slower_than(&self, row: &Row, limit_ns: u64) -> bool {
        match (self.latency_ns(row), self.waited_ns(row)) {
            (Some(latency_ns), _) => latency_ns > limit_ns,
            (None, Some(waited_ns)) => self.is_complete || waited_ns > limit_ns,
            (None, None) => false,
        }
    }

    /// Returns the calls that have no answer yet, in no order.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = u32> {
        self.pairs.open()
    }

    /// Returns up to when it is known what happened on a bus, in nanoseconds since the epoch.
    #[must_use]
    pub fn until_ns(&self, bus: u16) -> u64 {
        let ended_ns = self.ended_ns.get(&bus).copied().unwrap_or(0);
        ended_ns.max(self.newest_ns).max(self.now_ns)
    }

    /// Records that all of the record was taken in: what has no answer by now gets none.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Notes what time it is, in nanoseconds since the epoch, so that it is known how long open calls have waited.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Returns the receivers of a broadcast signal, as far as the recording contains their match rules.
    #[must_use]
    pub(crate) fn hearers(&self, row: &Row) -> &[PeerId] {
        self.fans.get(row.hearers as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns whether any match rules are known.
    #[must_use]
    pub(crate) fn knows_hearers(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the connections with eavesdropping match rules.
    #[must_use]
    pub fn eavesdroppers(&self) -> Vec<PeerId> {
        let mut peers: Vec<PeerId> =
            self.rules.values().flat_map(MatchRules::eavesdroppers).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Returns whether a message comes from the bus itself.
    #[must_use]
    pub fn is_from_bus(&self, row: &Row) -> bool {
        let sender = self.peers.get(row.sender);
        sender.is_some_and(|sender| sender.unique == Text::BUS)
    }

    /// Returns whether a message reached its receiver, as far as the bus reports it.
    #[must_use]
    pub(crate) fn is_delivered(&self, row: &Row) -> bool {
        let answer = self.partner(row).filter(|_| row.kind == MessageType::Call);
        let is_refused =
            |answer: &Row| answer.kind == MessageType::Error && self.is_from_bus(answer);
        !answer.is_some_and(is_refused) || row.destination == Text::BUS
    }

    /// Returns the messages that were sent to a name without an owner and started no service, in order.
    #[must_use]
    pub fn astray(&self) -> Vec<u32> {
        let waiting = self.waiting.values().flat_map(|waiting| &waiting.messages);
        let unowned = waiting.filter(|(_, is_unowned)| *is_unowned).map(|(number, _)| *number);
        let mut astray: Vec<u32> = self.astray.iter().copied().chain(unowned).collect();
        astray.sort_unstable();
        astray.dedup();
        astray
    }

    /// Returns the messages that asked for a service which nobody owned and which did not start until the record ended.
    pub fn unfinished(&self) -> impl Iterator<Item = u32> {
        let waiting = self.waiting.values().flat_map(|waiting| &waiting.messages);
        waiting.filter(|(_, is_unowned)| *is_unowned).map(|(number, _)| *number)
    }

    /// Returns the requests to portals with their responses.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        self.portals.requests()
    }

    /// Returns the label of a bus: what it was recorded as, or its number.
    #[must_use]
    pub(crate) fn bus_label(&self, bus: u16) -> String {
        let told = self.buses.iter().find(|(number, _)| *number == bus);
        told.map_or_else(|| format!("bus {bus}"), |(_, label)| label.clone())
    }

    /// Takes a message in and returns its number.
    pub fn push(&mut self, seen: &ObservedMessage<'_>) -> u32 {
        let number = self.end();
        self.newest_ns = self.newest_ns.max(seen.at_ns);
        let header = seen.header;
        self.cut += u64::from(header.is_cut());
        let bus = seen.bus;
        let names = self.names(seen);
        let sender = match names.sender {
            Text::BUS => self.peers.named(bus, names.sender, &self.texts),
            _ => self.peers.connection(bus, names.sender),
        };
        let destination = names.destination;
        let receiver = match header.destination {
            Some(_) => self.peers.named(bus, destination, &self.texts),
            // Without a bus there are only two, and an answer goes to the other one.
            None => PeerId::NONE,
        };
        let row = Row {
            at_ns: seen.at_ns,
            length: seen.length,
            serial: header.serial.get(),
            bus,
            kind: header.kind,
            flags: header.flags,
            sender,
            receiver,
            destination,
            path: names.path,
            interface: names.interface,
            member: names.member,
            error: names.error,
            signature: names.signature,
            partner: NONE,
            hearers: 0,
        };
        self.rows.push_back(row);
        match header.kind {
            MessageType::Call => {
                self.pairs.call(bus, names.sender, row.serial, number);
                self.addressed(number, &row);
                if destination == Text::BUS {
                    self.ask_bus(number, &row, header);
                }
            }
            MessageType::Return | MessageType::Error => self.answer(number, &row, header),
            MessageType::Signal => {
                if destination.is_some() {
                    self.addressed(number, &row);
                }
                self.signal(number, &row, header);
            }
            MessageType::Other(_) => (),
        }
        number
    }

    /// Keeps the texts of a message.
    fn names(&mut self, seen: &ObservedMessage<'_>) -> MessageNames {
        let (header, numbers) = (seen.header, &seen.numbers);
        MessageNames {
            sender: self.keep(header.sender, numbers.sender),
            destination: self.keep(header.destination, numbers.destination),
            path: self.keep(header.path, numbers.path),
            interface: self.keep(header.interface, numbers.interface),
            member: self.keep(header.member, numbers.member),
            error: self.keep(header.error_name, numbers.error_name),
            signature: self.keep(Some(header.signature), numbers.signature),
        }
    }

    /// Keeps a text, which is looked for only if its number was not met before.
    fn keep(&mut self, text: Option<&str>, number: u32) -> Text {
        let at = number as usize;
        match (self.numbered.get(at), text) {
            (_, None | Some("")) => Text::NONE,
            (Some(kept), Some(_)) if number != 0 && kept.is_some() => *kept,
            (_, Some(text)) => {
                let kept = self.texts.keep(text);
                if at >= self.numbered.len() {
                    self.numbered.resize(at + 1, Text::NONE);
                }
                if let Some(place) = self.numbered.get_mut(at) {
                    *place = kept;
                }
                kept
            }
        }
    }

    /// Records a message to a well-known name that may start its service, or to one that is gone.
    fn addressed(&mut self, number: u32, row: &Row) {
        // What the bus itself says to one who is leaving is lost on nobody.
        if matches!(row.destination, Text::NONE | Text::BUS) || self.is_from_bus(row) {
            return;
        }
        if peers::is_unique(self.texts.get(row.destination)) {
            if self.peers.get(row.receiver).is_some_and(|peer| peer.left_ns.is_some()) {
                self.astray.push(number);
            }
            return;
        }
        if self.peers.owner(row.bus, row.destination).is_some() {
            return;
        }
        let is_unowned = self.peers.is_unowned(row.bus, row.destination);
        if row.flags.no_auto_start() || row.kind == MessageType::Signal {
            self.astray.extend(is_unowned.then_some(number));
            return;
        }
        let fresh = || UnresolvedMessages { at_ns: row.at_ns, messages: Vec::new() };
        let waiting = self.waiting.entry((row.bus, row.destination)).or_insert_with(fresh);
        waiting.messages.push((number, is_unowned));
    }

    /// Joins an answer with its call.
    fn answer(&mut self, number: u32, row: &Row, header: &Header<'_>) {
        let serial = header.reply_serial.map_or(0, std::num::NonZeroU32::get);
        let Some(call_number) = self.pairs.answer(row.bus, row.destination, serial) else { return };
        let Some(at) = call_number.checked_sub(self.first) else { return };
        let is_from_bus = self.is_from_bus(row);
        let Some(call) = self.rows.get_mut(at as usize) else { return };
        call.partner = number;
        let asked = *call;
        // The bus answers for services that are not there; anybody else is whom the call was for.
        if !is_from_bus {
            call.receiver = row.sender;
        }
        if let Some(answer) = self.rows.back_mut() {
            answer.partner = call_number;
        }
        let name = asked.destination;
        if is_from_bus && name != Text::BUS {
            self.not_delivered(call_number, &asked, row);
        } else if !matches!(name, Text::NONE | Text::BUS) && !peers::is_unique(self.texts.get(name))
        {
            if self.peers.owner(asked.bus, asked.destination).is_none() {
                self.peers.owns(asked.bus, asked.destination, row.sender, call_number);
            }
            self.waiting.remove(&(asked.bus, asked.destination));
        }
        if row.kind == MessageType::Return {
            self.learn(&asked, call_number, header);
        }
        self.asked.remove(&call_number);
    }

    /// Notes what the bus says of a call that it did not deliver.
    fn not_delivered(&mut self, number: u32, call: &Row, answer: &Row) {
        let error = self.texts.get(answer.error);
        let Some(error) = error.strip_prefix("org.freedesktop.DBus.Error.") else { return };
        if let Some(waiting) = self.waiting.get_mut(&(call.bus, call.destination)) {
            waiting.messages.retain(|(waiting, _)| *waiting != number);
            if waiting.messages.is_empty() {
                self.waiting.remove(&(call.bus, call.destination));
            }
        }
        let is_astray = matches!(error, "ServiceUnknown" | "NameHasNoOwner");
        if is_astray || error.starts_with("Spawn.") {
            self.astray.push(number);
        }
    }

    /// Forgets the oldest messages, so that at most `keep` are left.
    pub fn forget(&mut self, keep: usize) {
        let gone = self.rows.len().saturating_sub(keep);
        self.rows.drain(..gone);
        self.first = self.first.saturating_add(u32::try_from(gone).unwrap_or(u32::MAX));
        let first = self.first;
        self.pairs.forget(first);
        self.astray.retain(|number| *number >= first);
        self.asked.retain(|number, _| *number >= first);
        for waiting in self.waiting.values_mut() {
            waiting.messages.retain(|(number, _)| *number >= first);
        }
        self.waiting.retain(|_, waiting| !waiting.messages.is_empty());
        self.portals.forget(first);
    }
}

/// A request to a portal, which answers later by a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// The call.
    pub call: u32,
    /// The object that stands for the request.
    pub handle: Text,
    /// The signal with the response; [`NONE`] while the user has not chosen.
    pub response: u32,
    /// What came of it: 0 done, 1 cancelled by the user, 2 ended otherwise.
    pub code: Option<u32>,
}
