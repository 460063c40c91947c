//! Wake-ups: a message to a connection that had been quiet makes its process run.

use foldhash::HashMap;

use crate::model::peers::PeerId;
use crate::model::texts::Text;
use crate::model::{Model, Row};

/// A connection that has neither sent nor received for so long sleeps.
pub(super) const QUIET_NS: u64 = 100_000_000;

/// Returns whether somebody is there to be woken: a name that nobody is known to own sleeps for ever, and so does who has left.
fn is_there(model: &Model, peer: PeerId, row: &Row) -> bool {
    model.peers.get(peer).is_some_and(|peer| {
        peer.unique.is_some() && peer.left_ns.is_none_or(|left_ns| row.at_ns <= left_ns)
    })
}

/// Who, whom, and with what.
pub(super) type Key = (PeerId, PeerId, Text, Text);

/// Follows when each connection was last busy.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// Of each connection, by its place; none before its first message.
    busy_ns: Vec<Option<u64>>,
    start_ns: Option<u64>,
    /// How often.
    pub(super) counts: HashMap<Key, u64>,
}

impl Wakes {
    /// Notes when a connection is busy and returns when it last was.
    fn is_busy(&mut self, peer: PeerId, at_ns: u64) -> Option<u64> {
        let at = peer.index();
        if peer != PeerId::NONE && at >= self.busy_ns.len() {
            self.busy_ns.resize(at + 1, None);
        }
        self.busy_ns.get_mut(at)?.replace(at_ns)
    }

    /// Looks at the next message.
    pub(super) fn see(&mut self, model: &Model, row: &Row) {
        let start_ns = *self.start_ns.get_or_insert(row.at_ns);
        let named = model.named(row);
        let identity = |peer: PeerId| model.peers.identity(peer);
        let sender = identity(row.sender);
        self.is_busy(sender, row.at_ns);
        let is_one = row.receiver != PeerId::NONE && model.is_delivered(row);
        let direct = is_one.then_some(row.receiver);
        for receiver in direct.iter().chain(model.hearers(row)).copied().map(identity) {
            if receiver == sender || !is_there(model, receiver, row) {
                continue;
            }
            // What went on before the first message is not known: nobody is taken to sleep then.
            let busy_ns = self.is_busy(receiver, row.at_ns).unwrap_or(start_ns);
            if row.at_ns.saturating_sub(busy_ns) >= QUIET_NS {
                let key = (sender, receiver, named.interface, named.member);
                *self.counts.entry(key).or_default() += 1;
            }
        }
    }
}
