//! The wake-ups of the threads of a chain, one by one.

use std::collections::BTreeMap;

use super::chain::WakeupChain;
use super::event::{NAME_BYTES, ThreadIdentity, ThreadWait, WakeupSource};
use super::history::{ThreadHistory, WakeupHistory};

/// Two clocks of one wake-up differ by less, in nanoseconds.
const SAME_NS: u64 = 50_000;

/// A thread was woken.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainWakeup {
    /// The thread.
    pub who: ThreadIdentity,
    /// Its process.
    pub process: u32,
    /// Its name, ended by a zero.
    pub name: [u8; NAME_BYTES],
    /// When it was woken, by the clock of the events, in nanoseconds.
    pub at_ns: u64,
    /// How long it had waited, in nanoseconds; 0 where only the wake-up is known.
    pub waited_ns: u64,
    /// Whether signals could not end the wait.
    pub uninterruptible: bool,
    /// Who woke it, if that is known.
    pub source: Option<WakeupSource>,
    /// Its time without a processor from then to its next wait that was recorded, in nanoseconds.
    pub ready_ns: u64,
    /// Its time on a processor from then to its next wait that was recorded, if that is known, in nanoseconds.
    pub processor_ns: Option<u64>,
}

impl WakeupHistory {
    /// Returns the wake-ups of the threads of a chain in its time, and of those that only passed them on, in the order of
    /// time; of more than `limit` those behind the longest waits.
    #[must_use]
    pub fn wakeups(&self, chain: &WakeupChain, limit: usize) -> Vec<ChainWakeup> {
        let Some(first) = chain.hops.first() else { return Vec::new() };
        let (from_ns, to_ns) = (first.from_ns, first.to_ns);
        let mut found: BTreeMap<(u64, ThreadIdentity), ChainWakeup> = BTreeMap::new();
        let mut carried = Vec::new();
        for hop in &chain.hops {
            let Some(thread) = self.thread(hop.who) else { continue };
            for wait in thread.waits_in(from_ns, to_ns).filter(|wait| wait.to_ns <= to_ns) {
                found.insert((wait.to_ns, wait.who), wakeup(thread, wait));
                carried.extend(wait.sources.windows(2).map(|pair| (pair[0], pair[1])));
            }
        }
        // Short waits are not recorded, and those who only pass something on wait shortly.
        for (source, before) in carried {
            let is_inside = (from_ns..=to_ns).contains(&before.at_ns);
            let is_known = found.values().any(|known| {
                known.who == source.who && known.at_ns.abs_diff(before.at_ns) < SAME_NS
            });
            if !is_inside || is_known || source.context.is_interrupt() {
                continue;
            }
            let wakeup = ChainWakeup {
                who: source.who,
                process: source.process,
                name: source.name,
                at_ns: before.at_ns,
                waited_ns: 0,
                uninterruptible: false,
                source: Some(before),
                ready_ns: 0,
                processor_ns: Some(source.at_ns.saturating_sub(before.at_ns)),
            };
            found.insert((wakeup.at_ns, wakeup.who), wakeup);
        }
        let mut all: Vec<ChainWakeup> = found.into_values().collect();
        if all.len() > limit {
            all.sort_by_key(|wakeup| std::cmp::Reverse(wakeup.waited_ns));
            all.truncate(limit);
            all.sort_by_key(|wakeup| (wakeup.at_ns, wakeup.who));
        }
        all
    }
}

fn wakeup(thread: &ThreadHistory, wait: &ThreadWait) -> ChainWakeup {
    let after = thread.waits.partition_point(|other| other.to_ns <= wait.to_ns);
    let next = thread.waits.get(after);
    let since = |of: fn(&ThreadWait) -> u64| next.map(|next| of(next).saturating_sub(of(wait)));
    ChainWakeup {
        who: wait.who,
        process: wait.process,
        name: wait.name,
        at_ns: wait.to_ns,
        waited_ns: wait.to_ns.saturating_sub(wait.from_ns),
        uninterruptible: wait.uninterruptible,
        source: wait.sources.first().copied(),
        ready_ns: since(|wait| wait.ready_ns).unwrap_or(0),
        processor_ns: since(|wait| wait.processor_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(thread: u32) -> ThreadIdentity {
        ThreadIdentity { thread, began: 1 }
    }

    fn source(thread: u32, at_ns: u64) -> WakeupSource {
        WakeupSource { who: who(thread), process: thread, at_ns, ..WakeupSource::default() }
    }

    fn wait(thread: u32, from_ns: u64, to_ns: u64, sources: Vec<WakeupSource>) -> ThreadWait {
        ThreadWait {
            who: who(thread),
            process: thread,
            from_ns,
            to_ns,
            // On a processor all the time in between.
            processor_ns: to_ns / 10,
            ready_ns: 0,
            sources,
            ..ThreadWait::default()
        }
    }

    #[test]
    fn the_wake_ups_of_a_chain_are_there_with_those_of_who_passed_them_on() {
        let mut history = WakeupHistory::new(100);
        let ms = 1_000_000;
        // 3 sleeps, and wakes 1 through 2.
        history.add(wait(3, 0, 70 * ms, Vec::new()));
        history.add(wait(1, 10 * ms, 90 * ms, vec![source(2, 90 * ms), source(3, 89 * ms)]));
        history.add(wait(1, 95 * ms, 99 * ms, Vec::new()));
        history.add(wait(9, 10 * ms, 90 * ms, Vec::new()));
        let mut chain = history.walk(who(1), 10 * ms, 90 * ms);
        chain.hops.retain(|hop| hop.who == who(1) || hop.who == who(3));
        let told = |limit| {
            let all = history.wakeups(&chain, limit).into_iter();
            all.map(|w| (w.who.thread, w.at_ns / ms, w.waited_ns / ms)).collect::<Vec<_>>()
        };
        let whole = told(10);
        assert!(whole.contains(&(2, 89, 0)), "{whole:?}");
        assert!(whole.contains(&(1, 90, 80)), "{whole:?}");
        assert!(whole.iter().all(|(thread, ..)| *thread != 9), "{whole:?}");
        assert_eq!(told(1), [(1, 90, 80)]);
        let last = history.wakeups(&chain, 10).into_iter().find(|w| w.who == who(1)).unwrap();
        assert_eq!(last.processor_ns, Some(9 * ms / 10), "up to its next wait");
    }
}
