//! Decides when a background job is held and resumed, from the time for which other programs waited.
//!
//! A hold begins as soon as others wait noticeably, and ends when they have not waited for a fifth of the time for which they did: a job gets most of the pauses of a user
//! who works intermittently, and does not run in the short pauses while a program starts. A stall soon after a release belongs to the same period.
//! Every hold is limited, because another program may wait for locks of the job (a package manager's, a repository's).

use std::time::Duration;

use super::pressure::{PressureCause, PressureTimes};

/// The limits of a [`Controller`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerLimits {
    /// Others wait noticeably if it is more than this share of the time.
    pub io_share: f64,
    /// The same for waiting for memory.
    pub memory_share: f64,
    /// The same for waiting for a processor, which has to be so for [`ControllerLimits::cpu_after`]: two programs on one processor always wait.
    pub cpu_share: f64,
    /// How long others wait for processors before that counts.
    pub cpu_after: Duration,
    /// The calm after which the job runs again, at least.
    pub least_calm: Duration,
    /// The calm after which it runs again, at most.
    pub most_calm: Duration,
    /// How long a hold lasts at most, calm or not.
    pub longest_hold: Duration,
    /// The share of the time that the job gets at least, whatever others wait.
    pub floor: f64,
    /// When the job should be done, counted from its start: the floor rises to 1 until then.
    pub deadline: Option<Duration>,
}

impl Default for ControllerLimits {
    fn default() -> ControllerLimits {
        ControllerLimits {
            io_share: 0.10,
            memory_share: 0.10,
            cpu_share: 0.30,
            cpu_after: Duration::from_millis(150),
            least_calm: Duration::from_millis(100),
            most_calm: Duration::from_secs(1),
            longest_hold: Duration::from_secs(10),
            floor: 0.05,
            deadline: None,
        }
    }
}

/// A stall within this time after a release belongs to the previous period.
const AGAIN: Duration = Duration::from_millis(200);

/// After a pause of this length a stall begins a new period: a user who works for a second and pauses for a second is not mistaken for one long start.
const PAUSE: Duration = Duration::from_millis(600);

/// How long a program that has just been started is given to begin to wait.
const LAUNCH: Duration = Duration::from_millis(500);

/// A launch that comes sooner after the last one's hold holds nothing: a unit that starts over and over must not hold the job for ever.
const NEXT_LAUNCH: Duration = Duration::from_secs(1);

/// How long a job runs after a signal: time enough to end by it.
pub(super) const AWAKE: Duration = Duration::from_secs(2);

/// The decision about the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlDecision {
    /// Nothing: it runs, or is held, as before.
    Stay,
    /// Hold it, because others wait for this.
    Hold(PressureCause),
    /// Let it run.
    Release,
}

/// Whether the job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Runs { since: Duration, at_least_until: Duration },
    Held { since: Duration, calm_since: Duration, at_least_until: Duration },
}

/// Decides, sample by sample.
#[derive(Debug)]
pub struct Controller {
    limits: ControllerLimits,
    state: State,
    /// When the last sample was taken, counted from the job's start.
    last: Duration,
    /// Since when others have waited for processors without a break.
    cpu_busy_since: Option<Duration>,
    /// Since when they are busy, short pauses included.
    busy_since: Duration,
    /// When others were seen to wait for the last time.
    last_stall: Duration,
    /// Whether there was a hold that has ended.
    has_released: bool,
    /// When the next launch may hold the job.
    next_launch: Duration,
}

impl Controller {
    /// Creates one for a job that starts to run now.
    #[must_use]
    pub fn new(limits: ControllerLimits) -> Controller {
        let runs = State::Runs { since: Duration::ZERO, at_least_until: Duration::ZERO };
        Controller {
            limits,
            state: runs,
            last: Duration::ZERO,
            cpu_busy_since: None,
            busy_since: Duration::ZERO,
            last_stall: Duration::ZERO,
            has_released: false,
            next_launch: Duration::ZERO,
        }
    }

    /// Returns whether the job is held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Takes note of how long others have `stalled` since the last sample and decides; `now` counts from the job's start.
    pub fn sample(&mut self, now: Duration, stalled: PressureTimes) -> ControlDecision {
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        if elapsed.is_zero() {
            return ControlDecision::Stay;
        }
        let cause = self.cause(now, elapsed, stalled);
        let is_new = now.saturating_sub(self.last_stall) >= PAUSE;
        if cause.is_some() {
            self.last_stall = now;
        }
        match self.state {
            State::Runs { since, at_least_until } => {
                let Some(cause) = cause else { return ControlDecision::Stay };
                let floor = self.floor(now);
                if now < at_least_until || floor >= 1.0 {
                    return ControlDecision::Stay;
                }
                if !self.has_released || is_new || now.saturating_sub(since) >= AGAIN {
                    self.busy_since = now;
                }
                self.state = State::Held { since: now, calm_since: now, at_least_until: now };
                ControlDecision::Hold(cause)
            }
            State::Held { since, calm_since, at_least_until } => {
                let held = now.saturating_sub(since);
                if held >= self.longest_hold(now) {
                    // What it has waited, it may now run: as much as the floor says.
                    let floor = self.floor(now);
                    let due = held.mul_f64((floor / (1.0 - floor).max(f64::EPSILON)).min(1e3));
                    self.state = State::Runs { since: now, at_least_until: now + due };
                    self.has_released = true;
                    return ControlDecision::Release;
                }
                if cause.is_some() {
                    if is_new {
                        self.busy_since = now;
                    }
                    self.state = State::Held { since, calm_since: now, at_least_until };
                    return ControlDecision::Stay;
                }
                let busy = calm_since.saturating_sub(self.busy_since);
                let calm = (busy / 5).clamp(self.limits.least_calm, self.limits.most_calm);
                if now < at_least_until || now.saturating_sub(calm_since) < calm {
                    return ControlDecision::Stay;
                }
                self.state = State::Runs { since: now, at_least_until: now };
                self.has_released = true;
                ControlDecision::Release
            }
        }
    }

    /// Lets the job run from `now` on, for a while whatever others wait: somebody has sent it a signal.
    pub fn wake(&mut self, now: Duration) {
        self.state = State::Runs { since: now, at_least_until: now + AWAKE };
    }

    /// Holds the job from `now` on for a reason that is no sample: a program is about to start. If nobody waits in the first half second, it was none that is felt.
    pub(crate) fn expect_launch(&mut self, now: Duration) -> ControlDecision {
        match self.state {
            State::Runs { at_least_until, .. }
                if now >= at_least_until.max(self.next_launch) && self.floor(now) < 1.0 =>
            {
                self.busy_since = now;
                self.next_launch = now + LAUNCH + NEXT_LAUNCH;
                let at_least_until = now + LAUNCH;
                self.state = State::Held { since: now, calm_since: now, at_least_until };
                ControlDecision::Hold(PressureCause::Launch)
            }
            _ => ControlDecision::Stay,
        }
    }

    fn cause(
        &mut self,
        now: Duration,
        elapsed: Duration,
        stalled: PressureTimes,
    ) -> Option<PressureCause> {
        let share = |stall: Duration| stall.as_secs_f64() / elapsed.as_secs_f64();
        let cpu_busy = share(stalled.cpu) > self.limits.cpu_share;
        self.cpu_busy_since =
            cpu_busy.then(|| self.cpu_busy_since.unwrap_or_else(|| now.saturating_sub(elapsed)));
        let cpu_long = self
            .cpu_busy_since
            .is_some_and(|since| now.saturating_sub(since) >= self.limits.cpu_after);
        if share(stalled.io) > self.limits.io_share {
            Some(PressureCause::Io)
        } else if share(stalled.memory) > self.limits.memory_share {
            Some(PressureCause::Memory)
        } else if cpu_long {
            Some(PressureCause::Cpu)
        } else {
            None
        }
    }

    /// Returns the least share of the time at `now`.
    fn floor(&self, now: Duration) -> f64 {
        let Some(deadline) = self.limits.deadline else { return self.limits.floor };
        let gone = (now.as_secs_f64() / deadline.as_secs_f64().max(1e-9)).min(1.0);
        self.limits.floor + (1.0 - self.limits.floor) * gone
    }

    /// Returns how long a hold may be at `now`: less as the floor rises, so that the job is not held for ten seconds at nine tenths of its time.
    fn longest_hold(&self, now: Duration) -> Duration {
        self.limits.longest_hold.mul_f64((1.0 - self.floor(now)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: Duration = Duration::from_millis(25);

    /// Runs a controller over `busy`, one entry a step, and returns the share of the time that the job ran while it was followed.
    fn share(limits: ControllerLimits, busy: impl Iterator<Item = bool>) -> f64 {
        let mut controller = Controller::new(limits);
        let (mut ran, mut all) = (0.0, 0.0);
        for (step, busy) in (1_u32..).zip(busy) {
            let io = if busy { STEP / 2 } else { Duration::ZERO };
            controller.sample(STEP * step, PressureTimes { io, ..PressureTimes::default() });
            ran += f64::from(u8::from(!controller.is_holding()));
            all += 1.0;
        }
        ran / all
    }

    #[test]
    fn a_stall_of_others_holds_the_job_at_the_next_sample() {
        let mut controller = Controller::new(ControllerLimits::default());
        assert_eq!(controller.sample(STEP, PressureTimes::default()), ControlDecision::Stay);
        let stalled = PressureTimes { io: Duration::from_millis(3), ..PressureTimes::default() };
        assert_eq!(controller.sample(STEP * 2, stalled), ControlDecision::Hold(PressureCause::Io));
        assert_eq!(controller.sample(STEP * 3, stalled), ControlDecision::Stay);
        let decisions: Vec<ControlDecision> =
            (4..20).map(|step| controller.sample(STEP * step, PressureTimes::default())).collect();
        let released = decisions.iter().position(|&decision| decision == ControlDecision::Release);
        assert_eq!(released, Some(3), "100 ms after the last stall");
    }

    #[test]
    fn the_short_pauses_of_a_long_start_are_not_used() {
        let mut controller = Controller::new(ControllerLimits::default());
        let mut released = 0;
        // 3 s of work with a pause of 100 ms after each 200 ms.
        for step in 1..120_u32 {
            let io = if step % 12 < 8 { STEP / 2 } else { Duration::ZERO };
            let stalled = PressureTimes { io, ..PressureTimes::default() };
            released +=
                u32::from(controller.sample(STEP * step, stalled) == ControlDecision::Release);
        }
        assert!(released <= 2, "{released}");
    }

    #[test]
    fn waiting_for_a_processor_counts_after_a_while_only() {
        let mut controller = Controller::new(ControllerLimits::default());
        let stalled = PressureTimes { cpu: STEP, ..PressureTimes::default() };
        let first = (1..9).find(|&step| {
            controller.sample(STEP * step, stalled) == ControlDecision::Hold(PressureCause::Cpu)
        });
        assert_eq!(first, Some(6), "150 ms");
    }

    #[test]
    fn a_launch_holds_the_job_before_anybody_waits_and_until_it_is_done() {
        let mut controller = Controller::new(ControllerLimits::default());
        controller.sample(STEP, PressureTimes::default());
        assert_eq!(controller.expect_launch(STEP), ControlDecision::Hold(PressureCause::Launch));
        assert_eq!(controller.expect_launch(STEP), ControlDecision::Stay, "it is held");
        let release = |controller: &mut Controller, waits: u32| {
            (2..80).find(|&step| {
                let io = if step < waits { STEP } else { Duration::ZERO };
                let stalled = PressureTimes { io, ..PressureTimes::default() };
                controller.sample(STEP * step, stalled) == ControlDecision::Release
            })
        };
        assert_eq!(release(&mut controller, 0), Some(21), "500 ms");
        let mut controller = Controller::new(ControllerLimits::default());
        controller.expect_launch(STEP);
        assert!(release(&mut controller, 60) > Some(60), "as long as it waits");
    }

    #[test]
    fn a_unit_that_starts_over_and_over_does_not_hold_the_job_for_ever() {
        let mut controller = Controller::new(ControllerLimits::default());
        let mut ran = 0_u32;
        for step in 1..4000_u32 {
            controller.expect_launch(STEP * step);
            controller.sample(STEP * step, PressureTimes::default());
            ran += u32::from(!controller.is_holding());
        }
        assert!(ran > 2000, "{ran} of 4000");
    }

    #[test]
    fn somebody_who_works_half_of_the_time_leaves_two_fifths() {
        for period in [40_usize, 80, 160, 400] {
            let busy = (0..40 * period).map(|step| step % period < period / 2);
            let share = share(ControllerLimits::default(), busy);
            assert!(share >= 0.4, "{share} with a period of {period} steps");
        }
    }

    #[test]
    fn half_of_the_time_is_half_of_the_time_after_a_long_start_too() {
        for period in [56_usize, 80, 120] {
            let mut controller = Controller::new(ControllerLimits::default());
            let (mut ran, mut all) = (0.0, 0.0);
            for step in 1..4000_u32 {
                let at = usize::try_from(step).unwrap();
                // 8 s without a pause, then work and pauses of the same length.
                let busy = at < 320 || at % period < period / 2;
                let io = if busy { STEP / 2 } else { Duration::ZERO };
                controller.sample(STEP * step, PressureTimes { io, ..PressureTimes::default() });
                if at >= 800 {
                    ran += f64::from(u8::from(!controller.is_holding()));
                    all += 1.0;
                }
            }
            assert!(ran / all >= 0.35, "{} with a period of {period} steps", ran / all);
        }
    }

    #[test]
    fn somebody_who_works_all_the_time_leaves_the_floor() {
        let share = share(ControllerLimits::default(), std::iter::repeat_n(true, 40 * 600));
        assert!((0.04..0.07).contains(&share), "{share}");
    }

    #[test]
    fn a_deadline_ends_all_holds() {
        let limits = ControllerLimits {
            deadline: Some(Duration::from_secs(60)),
            ..ControllerLimits::default()
        };
        let mut controller = Controller::new(limits);
        let stalled = PressureTimes { io: STEP, ..PressureTimes::default() };
        for step in 1..=40 * 60 {
            controller.sample(STEP * step, stalled);
        }
        assert!((40 * 60 + 400..40 * 90).all(|step| {
            controller.sample(STEP * step, stalled);
            !controller.is_holding()
        }));
    }

    proptest! {
        #[test]
        fn no_hold_is_longer_than_the_longest(
            steps in proptest::collection::vec((1_u64..400, 0_u64..400, 0_u64..400), 1..400),
        ) {
            let limits = ControllerLimits::default();
            let mut controller = Controller::new(limits);
            let mut now = Duration::ZERO;
            let mut held_since = None;
            for (gap, io, cpu) in steps {
                now += Duration::from_millis(gap);
                let stalled = PressureTimes {
                    io: Duration::from_millis(io),
                    cpu: Duration::from_millis(cpu),
                    memory: Duration::ZERO,
                };
                match controller.sample(now, stalled) {
                    ControlDecision::Hold(_) => held_since = Some(now),
                    ControlDecision::Release => held_since = None,
                    ControlDecision::Stay => (),
                }
                prop_assert_eq!(controller.is_holding(), held_since.is_some());
                if let Some(since) = held_since {
                    prop_assert!(now - since < limits.longest_hold);
                }
            }
        }
    }
}
