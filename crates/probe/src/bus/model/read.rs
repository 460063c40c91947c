//! Takes a whole capture into a model.

use super::peers::{About, PeerId};
use super::texts::Text;
use super::{Loss, Model, Seen};
use crate::bus::capture::{Bus, Dropped, Event, Peer, Role};
use crate::bus::wire::{self, Header};

/// Whether reading goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It does.
    Continue,
    /// The user has seen enough.
    Stop,
}

/// Takes in all events; `look` sees each message with its number while its bytes are there.
pub fn read<'c>(
    events: impl Iterator<Item = Event<'c>>,
    mut look: impl FnMut(&Model, u32, &Header<'_>) -> Ending,
) -> Model {
    let mut model = Model::default();
    for event in events {
        if let Some((number, header)) = model.take(&event)
            && look(&model, number, &header) == Ending::Stop
        {
            break;
        }
    }
    model
}

impl Model {
    /// Takes one event in; returns the message and its number if it is one.
    pub fn take<'c>(&mut self, event: &Event<'c>) -> Option<(u32, Header<'c>)> {
        match event {
            Event::Message(message) => match wire::message(message.bytes) {
                Ok(header) => {
                    let seen = Seen {
                        at_ns: message.at.0,
                        bus: message.bus,
                        length: message.length,
                        header: &header,
                    };
                    Some((self.push(&seen), header))
                }
                Err(_) => {
                    self.damaged += 1;
                    None
                }
            },
            Event::Peer(peer) => {
                self.meet(peer);
                None
            }
            Event::Dropped(dropped) => {
                self.lose(dropped);
                None
            }
            Event::Bus(bus) => {
                self.watch(bus);
                None
            }
            Event::Damaged(_) => {
                self.damaged += 1;
                None
            }
        }
    }

    /// Learns who a connection is; the names are all that it owns now.
    fn meet(&mut self, peer: &Peer) {
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
        let about = About {
            pid: peer.pid,
            uid: peer.uid,
            executable: self.texts.keep_some(peer.exe.as_deref()),
            application: self.texts.keep_some(peer.app.as_deref()),
        };
        self.peers.describe(id, about);
        if peer.role == Role::Recorder {
            self.peers.is_recorder(id);
        }
    }

    fn lose(&mut self, dropped: &Dropped) {
        let before = self.end();
        self.losses.push(Loss {
            bus: dropped.bus,
            count: dropped.count,
            bytes: dropped.bytes,
            before,
        });
    }

    fn watch(&mut self, bus: &Bus) {
        let label = if bus.name.is_empty() { &bus.address } else { &bus.name };
        if !label.is_empty() {
            self.buses.retain(|(number, _)| *number != bus.bus);
            self.buses.push((bus.bus, label.clone()));
        }
    }

    /// Returns whether a message is from or to the recorder itself, which is not what was to be watched.
    #[must_use]
    pub fn is_recorders(&self, number: u32) -> bool {
        let is = |peer: PeerId| self.peers.get(peer).is_some_and(|peer| peer.is_recorder);
        self.row(number).is_some_and(|row| is(row.sender) || is(row.receiver))
    }
}
