//! Who wakes whom: a message to a connection that had been quiet makes its process run.

use std::collections::HashMap;

use crate::bus::model::peers::PeerId;
use crate::bus::model::texts::Text;
use crate::bus::model::{Model, Row};

/// A connection that has neither sent nor received for so long sleeps.
pub(super) const QUIET_NS: u64 = 100_000_000;

/// Who, whom, and with what.
pub(super) type Key = (PeerId, PeerId, Text, Text);

/// Follows when each connection was last busy.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    busy_ns: HashMap<PeerId, u64>,
    start_ns: Option<u64>,
    /// How often.
    pub(super) counts: HashMap<Key, u64>,
}

impl Wakes {
    /// Looks at the next message.
    pub(super) fn see(&mut self, model: &Model, row: &Row) {
        let start_ns = *self.start_ns.get_or_insert(row.at_ns);
        let named = model.named(row);
        let identity = |peer: PeerId| model.peers.identity(peer);
        let sender = identity(row.sender);
        self.busy_ns.insert(sender, row.at_ns);
        let is_one = row.receiver != PeerId::NONE && model.is_delivered(row);
        let direct = is_one.then_some(row.receiver);
        for receiver in direct.iter().chain(model.hearers(row)).copied().map(identity) {
            if receiver == sender {
                continue;
            }
            // What went on before the first message is not known: nobody is taken to sleep then.
            let busy_ns = self.busy_ns.insert(receiver, row.at_ns).unwrap_or(start_ns);
            if row.at_ns.saturating_sub(busy_ns) >= QUIET_NS {
                let key = (sender, receiver, named.interface, named.member);
                *self.counts.entry(key).or_default() += 1;
            }
        }
    }
}
