//! How much one program may add in a while, so that none fills the journal or keeps the writer at work.

use std::collections::HashMap;
use std::time::Duration;

use super::caller::{Caller, Confined};

/// Programs that are remembered; of more the one that has the most left is forgotten.
const MOST_PROGRAMS: usize = 256;
/// So many bytes cost as much as a call does.
const BYTES: usize = 1024;

/// What a program has at first, and what comes back in a second.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    most: u32,
    each_second: u32,
}

/// Of a sandbox: as much as its entries in the list, then a few each second.
const CONFINED: Allowance = Allowance { most: 200, each_second: 4 };
/// Of a program of the user's: as much as the list holds.
const UNCONFINED: Allowance = Allowance { most: 10_000, each_second: 100 };

/// What each program has left.
#[derive(Debug, Default)]
pub(super) struct Quota {
    left: HashMap<(Confined, String), Left>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    /// In millionths of a call.
    micros: u64,
    at: Duration,
}

impl Quota {
    /// Takes what a call of `bytes` costs from what the caller has left; tells whether that was enough.
    pub(super) fn take(&mut self, caller: &Caller, bytes: usize, now: Duration) -> bool {
        let allowance = match caller.confined {
            Confined::Yes => CONFINED,
            Confined::No => UNCONFINED,
        };
        let key = (caller.confined, caller.name.clone());
        let most = u64::from(allowance.most) * 1_000_000;
        if self.left.len() >= MOST_PROGRAMS && !self.left.contains_key(&key) {
            let richest = self.left.iter().max_by_key(|(_, left)| left.micros);
            if let Some(key) = richest.map(|(key, _)| key.clone()) {
                self.left.remove(&key);
            }
        }
        let left = self.left.entry(key).or_insert(Left { micros: most, at: now });
        let passed = u64::try_from(now.saturating_sub(left.at).as_micros()).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(u64::from(allowance.each_second));
        left.at = now;
        left.micros = left.micros.saturating_add(more).min(most);
        let cost = u64::try_from(1 + bytes / BYTES).unwrap_or(u64::MAX).saturating_mul(1_000_000);
        let is_enough = left.micros >= cost;
        left.micros -= if is_enough { cost } else { 0 };
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::recents::Program;

    fn caller(name: &str, confined: Confined) -> Caller {
        Caller { name: name.to_owned(), confined, program: Program::Ordinary }
    }

    #[test]
    fn a_program_that_adds_without_end_is_refused_and_others_are_not() {
        let mut quota = Quota::default();
        let (evil, good) = (caller("a", Confined::Yes), caller("b", Confined::Yes));
        let now = Duration::from_secs(1);
        assert_eq!((0..5200).filter(|_| quota.take(&evil, 100, now)).count(), 200);
        assert!(quota.take(&good, 100, now) && quota.take(&caller("a", Confined::No), 100, now));
        let later = now + Duration::from_secs(2);
        assert_eq!((0..100).filter(|_| quota.take(&evil, 100, later)).count(), 8);
        // Long ones count for more.
        assert_eq!((0..200).filter(|_| quota.take(&good, 10 << 10, now)).count(), 18);
        for number in 0..1000 {
            assert!(quota.take(&caller(&format!("{number}"), Confined::Yes), 0, later));
        }
        assert_eq!(quota.left.len(), MOST_PROGRAMS);
        assert!(!quota.take(&evil, 2 << 10, later), "it is not forgotten what it took");
    }
}
