//! Takes a whole capture into a model.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use super::peers::{PeerId, ProcessIdentity};
use super::texts::Text;
use super::{MessageLoss, Model, ObservedMessage};
use crate::capture::{CaptureEvent, CapturedBus, ConnectionRole, Dropped, PeerRecord};
use wire::known::{CheckedHeaders, Numbers, Read};
use wire::{self, Header};

/// So many events are handed from one thread to the other at once: few enough for a processor's cache, enough to be worth
/// waking somebody for.
const BATCH: usize = 512;
/// So many batches may wait.
const WAITING: usize = 4;

/// An event, and what it says if it is a message.
#[derive(Debug)]
struct CheckedEvent<'c> {
    event: CaptureEvent<'c>,
    message: Read<'c>,
    /// Whether it is a message that can be read.
    is_message: bool,
}

/// Whether reading goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It does.
    Continue,
    /// The user has seen enough.
    Stop,
}

/// Takes in all events; `look` sees each message with its number while its bytes are there.
///
/// A second thread reads the file and checks messages meanwhile.
pub fn read<'c>(
    mut events: impl Iterator<Item = CaptureEvent<'c>> + Send,
    mut look: impl FnMut(&Model, u32, &Header<'_>) -> Ending,
) -> Model {
    let mut model = Model::default();
    let mut known = CheckedHeaders::default();
    let began = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING);
        let (giver, taker) = channel();
        let reader = std::thread::Builder::new().name("bus-file".to_owned());
        let (events, known) = (&mut events, &mut known);
        let began =
            reader.spawn_scoped(scope, move || check(events, known, &sender, &taker)).is_ok();
        for mut batch in receiver {
            if model.take_all(&batch, &mut look) == Ending::Stop {
                break;
            }
            batch.clear();
            // Nobody needs it any more after the last one.
            let _ = giver.send(batch);
        }
        began
    });
    if !began {
        // Without another thread it takes longer, and that is all.
        for event in events {
            let mut batch = Vec::new();
            check_one(event, &mut known, &mut batch);
            if model.take_all(&batch, &mut look) == Ending::Stop {
                break;
            }
        }
    }
    model.complete();
    model
}

/// Checks an event behind others. What it says is written where it stays: copies of it would cost as much as the check.
fn check_one<'c>(
    event: CaptureEvent<'c>,
    known: &mut CheckedHeaders<'c>,
    batch: &mut Vec<CheckedEvent<'c>>,
) {
    batch.push(CheckedEvent { event, message: Read::default(), is_message: false });
    if let Some(CheckedEvent { event: CaptureEvent::Message(raw), message, is_message }) =
        batch.last_mut()
    {
        *is_message = known.read(raw.bytes, message).is_ok();
    }
}

/// Reads events and checks messages until there are no more, or the receiver is gone.
fn check<'c>(
    events: &mut impl Iterator<Item = CaptureEvent<'c>>,
    known: &mut CheckedHeaders<'c>,
    sender: &SyncSender<Vec<CheckedEvent<'c>>>,
    used: &Receiver<Vec<CheckedEvent<'c>>>,
) {
    loop {
        // The memory of a batch is used again.
        let mut batch = used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        for event in events.by_ref().take(BATCH) {
            check_one(event, known, &mut batch);
        }
        if batch.is_empty() || sender.send(batch).is_err() {
            break;
        }
    }
}

impl Model {
    /// Takes one event in; returns the message and its number if it is one.
    pub fn take<'c>(&mut self, event: &CaptureEvent<'c>) -> Option<(u32, Header<'c>)> {
        let header = match event {
            CaptureEvent::Message(message) => wire::message(message.bytes).ok(),
            _ => None,
        };
        let number = self.take_checked(event, header.as_ref(), Numbers::default())?;
        Some((number, header?))
    }

    fn take_all(
        &mut self,
        all: &[CheckedEvent<'_>],
        look: &mut impl FnMut(&Model, u32, &Header<'_>) -> Ending,
    ) -> Ending {
        for CheckedEvent { event, message, is_message } in all {
            let header = is_message.then_some(&message.header);
            let number = self.take_checked(event, header, message.numbers);
            if let (Some(number), Some(header)) = (number, header)
                && look(self, number, header) == Ending::Stop
            {
                return Ending::Stop;
            }
        }
        Ending::Continue
    }

    /// Takes one event in, of which a message is checked already; returns its number.
    fn take_checked(
        &mut self,
        event: &CaptureEvent<'_>,
        header: Option<&Header<'_>>,
        numbers: Numbers,
    ) -> Option<u32> {
        match event {
            CaptureEvent::Message(message) => {
                let Some(header) = header else {
                    let error = wire::message(message.bytes).err();
                    let what = error.map_or_else(String::new, |error| format!(": {error}"));
                    self.damage(format!("message {} cannot be read{what}", self.end()));
                    return None;
                };
                Some(self.push(&ObservedMessage {
                    at_ns: message.at.0,
                    bus: message.bus,
                    length: message.length,
                    header,
                    numbers,
                }))
            }
            CaptureEvent::Peer(peer) => {
                self.meet(peer);
                None
            }
            CaptureEvent::Dropped(dropped) => {
                self.lose(dropped);
                None
            }
            CaptureEvent::Bus(bus) => {
                self.watch(bus);
                None
            }
            CaptureEvent::End(end) => {
                let ended_ns = self.ended_ns.entry(end.bus).or_default();
                *ended_ns = end.at.max(*ended_ns);
                None
            }
            CaptureEvent::Damaged(damaged) => {
                self.damage(format!("{} at byte {}", damaged.what, damaged.at));
                None
            }
        }
    }

    fn damage(&mut self, what: String) {
        self.damaged += 1;
        self.first_damage.get_or_insert(what);
    }

    /// Learns who a connection is; the names are all that it owns now.
    fn meet(&mut self, peer: &PeerRecord) {
        let at = self.end();
        let unique = self.texts.keep(&peer.unique);
        if peer.gone {
            // The messages say it, too, and in the order of what else was sent.
            return;
        }
        let id = self.peers.connection(peer.bus, unique);
        let names: Vec<Text> = peer.names.iter().map(|name| self.texts.keep(name)).collect();
        for name in &names {
            // What was owned before the first message was owned all the time.
            self.peers.owns(peer.bus, *name, id, if self.is_empty() { 0 } else { at });
        }
        self.peers.only(peer.bus, id, &names, at);
        let command = (!peer.command.is_empty()).then(|| peer.command.join(" "));
        let about = ProcessIdentity {
            pid: peer.pid,
            uid: peer.uid,
            executable: self.texts.keep_some(peer.exe.as_deref()),
            command: self.texts.keep_some(command.as_deref()),
            application: self.texts.keep_some(peer.app.as_deref()),
        };
        self.peers.describe(id, about);
        if peer.role == ConnectionRole::Recorder {
            self.peers.is_recorder(id);
            // Before it watched, it asked for all names and told of them beside itself.
            self.peers.complete(peer.bus);
        }
    }

    fn lose(&mut self, dropped: &Dropped) {
        let before = self.end();
        self.losses.push(MessageLoss {
            bus: dropped.bus,
            count: dropped.count,
            bytes: dropped.bytes,
            before,
        });
    }

    fn watch(&mut self, bus: &CapturedBus) {
        for rule in &bus.rules {
            if !self.matched.contains(rule) {
                self.matched.push(rule.clone());
            }
        }
        let label = if bus.name.is_empty() { &bus.address } else { &bus.name };
        if !label.is_empty() {
            self.buses.retain(|(number, _)| *number != bus.bus);
            self.buses.push((bus.bus, label.clone()));
        }
    }

    /// Returns whether a message is from or to the recorder itself, which is not analysed.
    #[must_use]
    pub(crate) fn is_recorders(&self, number: u32) -> bool {
        let is = |peer: PeerId| self.peers.get(peer).is_some_and(|peer| peer.is_recorder);
        self.row(number).is_some_and(|row| is(row.sender) || is(row.receiver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{SampleMessage, push};

    #[test]
    fn a_name_that_the_recorder_did_not_find_has_no_owner() {
        let mut model = Model::default();
        let call = |serial, to| SampleMessage::call(serial, ":1.1", to, "org.example.I.Start");
        let before = push(&mut model, 1, &call(1, "org.example.Gone"));
        let names = vec!["org.example.There".to_owned()];
        model.meet(&PeerRecord { unique: ":1.2".to_owned(), names, ..PeerRecord::default() });
        model.meet(&PeerRecord {
            unique: ":1.3".to_owned(),
            role: ConnectionRole::Recorder,
            ..PeerRecord::default()
        });
        let after = push(&mut model, 2, &call(2, "org.example.Gone"));
        push(&mut model, 3, &call(3, "org.example.There"));
        let unfinished: Vec<u32> = model.unfinished().collect();
        assert!(!unfinished.contains(&before), "nothing was known of it");
        assert_eq!(unfinished, [after]);
    }
}
