//! The quota of additions for each program, so that none fills the journal or keeps the writer busy.

use std::collections::HashMap;
use std::time::Duration;

use super::caller::{Caller, Confined};

/// The most programs with a quota of their own; beyond it, the one that has most left is dropped.
const MOST_PROGRAMS: usize = 256;
/// The number of bytes that cost as much as one call.
const BYTES: usize = 1024;

/// The number of calls that a program may make at once, and how many become available again each second.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    most: u32,
    each_second: u32,
}

/// For a sandbox: at once as many calls as it may have entries in the list, then a few each second.
const CONFINED: Allowance = Allowance { most: 200, each_second: 4 };
/// For a program outside of a sandbox: at once as many calls as the list holds.
const UNCONFINED: Allowance = Allowance { most: 10_000, each_second: 100 };

/// The remaining quota of each program.
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
    /// Subtracts the cost of a call of `bytes` from the caller's quota; returns whether it was enough.
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
    use recents::RememberingProgram;

    fn caller(name: &str, confined: Confined) -> Caller {
        Caller { name: name.to_owned(), confined, program: RememberingProgram::Ordinary }
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
        // Long calls cost more.
        assert_eq!((0..200).filter(|_| quota.take(&good, 10 << 10, now)).count(), 18);
        for number in 0..1000 {
            assert!(quota.take(&caller(&format!("{number}"), Confined::Yes), 0, later));
        }
        assert_eq!(quota.left.len(), MOST_PROGRAMS);
        assert!(!quota.take(&evil, 2 << 10, later), "it is not forgotten what it took");
    }
}
