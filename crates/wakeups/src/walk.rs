//! The walk backwards from a wait.

use std::collections::BTreeMap;

use super::chain::{ChainEnd, ChainHop, MOST_HOPS, WakeupChain};
use super::event::{NAME_BYTES, ThreadIdentity, WakeupSource};
use super::history::WakeupHistory;
use super::origin::WaitOrigin;

/// The most pieces of time that a hop is looked at in; further ones count as other waits.
const MOST_PIECES: usize = 4096;

/// A piece of time, from and to.
type Piece = (u64, u64);

fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|(from, to)| to.saturating_sub(*from)).sum()
}

/// Waits of one thread that had the same origin.
#[derive(Debug)]
struct WaitGroup {
    origin: WaitOrigin,
    total_ns: u64,
    count: u64,
    longest_ns: u64,
    /// Who passed the wake-up of the longest on.
    through: Vec<WakeupSource>,
    functions: Vec<u64>,
    /// Time by system call.
    calls: BTreeMap<Option<u32>, u64>,
    /// The waits, each up to when the origin ended it.
    pieces: Vec<Piece>,
}

/// What a thread did in some pieces of time.
#[derive(Debug, Default)]
struct ThreadAccount {
    processor_ns: u64,
    ready_ns: u64,
    /// Time of which only is known that no long wait was recorded.
    not_split_ns: u64,
    groups: BTreeMap<Result<ThreadIdentity, u8>, WaitGroup>,
}

impl WakeupHistory {
    /// Follows the waits of `thread` between two moments to what ended them.
    ///
    /// The result depends on the waits alone, not on the order in which they were added.
    #[must_use]
    pub fn walk(&self, thread: ThreadIdentity, from_ns: u64, to_ns: u64) -> WakeupChain {
        let to_ns = to_ns.max(from_ns);
        let mut hops: Vec<ChainHop> = Vec::new();
        let mut pieces = vec![(from_ns, to_ns)];
        let mut source = WakeupSource {
            who: thread,
            process: thread.thread,
            at_ns: to_ns,
            ..WakeupSource::default()
        };
        let mut through = Vec::new();
        let (end, end_ns) = loop {
            let account = self.account(source.who, &pieces);
            let mut hop = self.hop(source, &pieces, &account, from_ns);
            hop.through = std::mem::take(&mut through);
            let missing_ns = account.missing_ns(hop.asked_ns);
            let largest = account.groups.into_values().max_by_key(|group| group.total_ns);
            let waited_ns = largest.as_ref().map_or(0, |group| group.total_ns);
            let ran_ns = account.processor_ns + account.ready_ns;
            let used_ns = ran_ns.max(account.not_split_ns);
            if missing_ns.saturating_mul(2) > hop.asked_ns {
                hop.other_ns = hop.asked_ns - hop.processor_ns - hop.ready_ns;
                hops.push(hop);
                break (ChainEnd::NotKnown, missing_ns);
            }
            let Some(group) = largest.filter(|group| group.total_ns >= used_ns) else {
                let end = match used_ns {
                    0 => ChainEnd::NotKnown,
                    _ if used_ns == ran_ns && account.processor_ns >= account.ready_ns => {
                        ChainEnd::Processor
                    }
                    _ if used_ns == ran_ns => ChainEnd::Ready,
                    _ if self.thread(source.who).is_none() => ChainEnd::NotKnown,
                    _ => ChainEnd::Several,
                };
                hop.other_ns = hop.asked_ns - hop.processor_ns - hop.ready_ns;
                hops.push(hop);
                break (end, used_ns);
            };
            hop.waited_ns = waited_ns;
            hop.other_ns =
                (hop.asked_ns - hop.processor_ns - hop.ready_ns).saturating_sub(waited_ns);
            hop.waits = group.count;
            hop.call =
                group.calls.iter().max_by_key(|(_, time)| **time).and_then(|(call, _)| *call);
            hop.functions = group.functions;
            let most = waited_ns.saturating_mul(2) >= hop.asked_ns;
            hops.push(hop);
            match group.origin {
                WaitOrigin::End(end) => break (end, waited_ns),
                WaitOrigin::Thread(_) if !most => break (ChainEnd::Several, waited_ns),
                WaitOrigin::Thread(_) if hops.len() > MOST_HOPS => {
                    break (ChainEnd::TooLong, waited_ns);
                }
                WaitOrigin::Thread(next) if hops.iter().any(|hop| hop.who == next.who) => {
                    break (ChainEnd::NotKnown, waited_ns);
                }
                WaitOrigin::Thread(next) => {
                    (source, pieces, through) = (next, group.pieces, group.through);
                }
            }
        };
        WakeupChain { hops, end, end_ns, has_losses: self.has_losses_since(from_ns) }
    }

    /// Begins a hop with what does not depend on what comes next.
    fn hop(
        &self,
        source: WakeupSource,
        pieces: &[Piece],
        account: &ThreadAccount,
        begin_ns: u64,
    ) -> ChainHop {
        let from_ns = pieces.iter().map(|piece| piece.0).min().unwrap_or(source.at_ns);
        let to_ns = pieces.iter().map(|piece| piece.1).max().unwrap_or(source.at_ns);
        let known = self.thread(source.who);
        let birth = known.and_then(|known| known.birth()).filter(|birth| birth.to_ns > begin_ns);
        let last = known.and_then(|known| known.waits.back());
        let name = match source.name {
            nothing if nothing == [0; NAME_BYTES] => last.map_or(nothing, |wait| wait.name),
            name => name,
        };
        ChainHop {
            who: source.who,
            process: last.map_or(source.process, |wait| wait.process),
            name,
            from_ns,
            to_ns,
            asked_ns: length(pieces),
            processor_ns: account.processor_ns,
            ready_ns: account.ready_ns,
            waited_ns: 0,
            other_ns: 0,
            waits: 0,
            call: None,
            functions: Vec::new(),
            born_ns: birth.map(|birth| birth.to_ns),
            parent: birth.and_then(|birth| birth.sources.first().copied()),
            through: Vec::new(),
        }
    }

    /// Says what a thread did in pieces of time that do not overlap, in their order.
    fn account(&self, who: ThreadIdentity, pieces: &[Piece]) -> ThreadAccount {
        let mut account = ThreadAccount::default();
        let Some(known) = self.thread(who) else {
            account.not_split_ns = length(pieces);
            return account;
        };
        for (from, to) in pieces.iter().copied() {
            let born = known.birth().map_or(from, |birth| birth.to_ns);
            // Before it was made others worked for it; that is the time of its making.
            let mut done = from.max(born.min(to));
            for wait in known.waits_in(done, to).filter(|wait| !wait.is_birth()) {
                let start = wait.from_ns.max(done);
                let end = wait.to_ns.min(to);
                if end <= start {
                    continue;
                }
                account.add_run(known.used(done, start), start - done);
                let (origin, through) = self.origin(wait);
                account.add_wait(wait, origin, through, (start, end));
                done = end;
            }
            account.add_run(known.used(done, to), to - done);
        }
        account
    }
}

impl ThreadAccount {
    /// Returns how much of its time the thread neither ran nor could run, nor is a wait recorded: some kernels do not
    /// tell wake-ups that happen while the agent of a virtual machine has the processor.
    fn missing_ns(&self, asked_ns: u64) -> u64 {
        let waited_ns: u64 = self.groups.values().map(|group| group.total_ns).sum();
        let known_ns = self.processor_ns + self.ready_ns + self.not_split_ns + waited_ns;
        asked_ns.saturating_sub(known_ns)
    }

    fn add_run(&mut self, used: Option<[u64; 2]>, length_ns: u64) {
        match used {
            Some([processor_ns, ready_ns]) => {
                self.processor_ns += processor_ns;
                self.ready_ns += ready_ns;
            }
            None => self.not_split_ns += length_ns,
        }
    }

    fn add_wait(
        &mut self,
        wait: &super::event::ThreadWait,
        origin: WaitOrigin,
        through: Vec<WakeupSource>,
        (from, to): Piece,
    ) {
        let time = to - from;
        let ended = match &origin {
            WaitOrigin::Thread(source) => source.at_ns.clamp(from, to),
            WaitOrigin::End(_) => to,
        };
        let group = self.groups.entry(origin.key()).or_insert_with(|| WaitGroup {
            origin: origin.clone(),
            total_ns: 0,
            count: 0,
            longest_ns: 0,
            through: Vec::new(),
            functions: Vec::new(),
            calls: BTreeMap::new(),
            pieces: Vec::new(),
        });
        group.total_ns += time;
        group.count += 1;
        *group.calls.entry(wait.call).or_default() += time;
        if time > group.longest_ns {
            group.longest_ns = time;
            group.origin = origin;
            group.through = through;
            group.functions.clone_from(&wait.functions);
        }
        if group.pieces.len() < MOST_PIECES {
            group.pieces.push((from, ended));
        }
    }
}
