//! Runs two protocols at once, their calls in every order with few switches between them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sys::thread::spawn_scoped;

use super::SimDisk;

const LONG: usize = 0;
const SHORT: usize = 1;

/// The calls that each of two still makes before the other goes on.
#[derive(Debug)]
struct Plan {
    /// Who calls, and how often.
    parts: VecDeque<(usize, u64)>,
    /// How many calls were made.
    made: [u64; 2],
    has_ended: [bool; 2],
}

impl Plan {
    /// Tells whether the next call is that of `who`. Behind the plan, calls come as they like.
    fn is_turn_of(&mut self, who: usize) -> bool {
        while self.parts.front().is_some_and(|(of, calls)| *calls == 0 || self.has_ended[*of]) {
            self.parts.pop_front();
        }
        self.parts.front().is_none_or(|(of, _)| *of == who)
    }
}

/// One of two who make calls in a planned order.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    who: usize,
    plan: Arc<(Mutex<Plan>, Condvar)>,
}

impl Turn {
    /// Waits until it is this one's turn, which lasts until the answer is dropped.
    pub(super) fn wait(&self) -> HeldTurn<'_> {
        let (plan, changed) = &*self.plan;
        let is_not_ours = |plan: &mut Plan| !plan.is_turn_of(self.who);
        let guard = changed
            .wait_while(plan.lock().unwrap_or_else(PoisonError::into_inner), is_not_ours)
            .unwrap_or_else(PoisonError::into_inner);
        HeldTurn { who: self.who, plan: guard, changed }
    }

    fn end(&self) {
        let (plan, changed) = &*self.plan;
        plan.lock().unwrap_or_else(PoisonError::into_inner).has_ended[self.who] = true;
        changed.notify_all();
    }
}

/// A turn that lasts.
pub(super) struct HeldTurn<'a> {
    who: usize,
    plan: MutexGuard<'a, Plan>,
    changed: &'a Condvar,
}

impl Drop for HeldTurn<'_> {
    fn drop(&mut self) {
        self.plan.made[self.who] += 1;
        if let Some((_, calls)) = self.plan.parts.front_mut() {
            *calls -= 1;
        }
        self.changed.notify_all();
    }
}

/// Ends a turn for good, also when its protocol panics.
struct Ends<'a>(&'a Turn);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs `long` and `short` at once on disks made by `seeded`, and checks every outcome.
///
/// The orders: `long` makes some of its calls, `short` some, `long` some more, `short` the rest, `long` the rest; each
/// number takes every value up to how many calls either makes undisturbed. What they share beside the disk is made by
/// `seeded` too. Returns how many orders were run.
///
/// # Errors
///
/// The first complaint, with the calls that led to it.
pub fn interleave<S: Sync, A, B: Send>(
    seeded: impl Fn() -> (SimDisk, S),
    long: impl Fn(&SimDisk, &S) -> A,
    short: impl Fn(&SimDisk, &S) -> B + Sync,
    check: impl Fn(&SimDisk, &S, &A, &B) -> Result<(), String>,
) -> Result<usize, String> {
    interleave_every(1, seeded, long, short, check)
}

/// Does as [`interleave`] does, but only every `step`-th number of calls after the first switch is taken: a sample, for
/// protocols of many calls. Who interrupts the other once is always tried at each of its calls.
///
/// # Errors
///
/// The first complaint, with the calls that led to it.
pub fn interleave_every<S: Sync, A, B: Send>(
    step: usize,
    seeded: impl Fn() -> (SimDisk, S),
    long: impl Fn(&SimDisk, &S) -> A,
    short: impl Fn(&SimDisk, &S) -> B + Sync,
    check: impl Fn(&SimDisk, &S, &A, &B) -> Result<(), String>,
) -> Result<usize, String> {
    let mut runs = 0;
    let mut run = |parts: [u64; 3]| -> Result<[u64; 2], String> {
        let (disk, shared) = seeded();
        let [first, second, third] = parts;
        let plan = Plan {
            parts: [(LONG, first), (SHORT, second), (LONG, third), (SHORT, u64::MAX)].into(),
            made: [0; 2],
            has_ended: [false; 2],
        };
        let plan = Arc::new((Mutex::new(plan), Condvar::new()));
        let turns = [LONG, SHORT].map(|who| Turn { who, plan: Arc::clone(&plan) });
        let disks = turns.clone().map(|turn| SimDisk { turn: Some(turn), ..disk.clone() });
        let (of_long, of_short) = std::thread::scope(|scope| {
            let of_short = spawn_scoped(scope, "short", || {
                let _ends = Ends(&turns[SHORT]);
                short(&disks[SHORT], &shared)
            })
            .map_err(|error| error.to_string())?;
            let ends = Ends(&turns[LONG]);
            let of_long = long(&disks[LONG], &shared);
            drop(ends);
            Ok::<_, String>((of_long, of_short.join()))
        })?;
        let of_short = of_short.map_err(|_| format!("a panic with {parts:?}"))?;
        runs += 1;
        check(&disk, &shared, &of_long, &of_short).map_err(|complaint| {
            let history = disk.history().join("\n  ");
            format!("{complaint}\nswitched after {parts:?} calls, after\n  {history}")
        })?;
        let made = plan.0.lock().unwrap_or_else(PoisonError::into_inner).made;
        Ok(made)
    };
    let [of_long, of_short] = run([u64::MAX; 3])?;
    for first in 0..=of_long {
        run([first, u64::MAX, u64::MAX])?;
        for second in (1..=of_short).step_by(step) {
            for third in (0..=of_long - first).step_by(step) {
                run([first, second, third])?;
            }
        }
    }
    Ok(runs)
}
