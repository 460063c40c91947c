//! Group commit: the next batch gathers while one is made durable.
//!
//! A state machine without clock, thread or disk. The owner of the state submits each change's waiter, starts a batch
//! when the disk is free, and answers the waiters of a batch when its publish has ended. There is no timer: on an idle
//! disk a change starts at once and alone; on a busy one the batch is as large as the wait was long.

/// The changes that wait for a publish. `W` is whom to answer, and with what.
#[derive(Debug)]
pub struct Commit<W> {
    gathering: Vec<W>,
    in_flight: Option<Vec<W>>,
}

impl<W> Commit<W> {
    /// Returns a commit with nothing to do.
    #[must_use]
    pub fn new() -> Commit<W> {
        Commit { gathering: Vec::new(), in_flight: None }
    }

    /// Takes a change that was applied to the state in memory: its waiter is answered after the next publish that is
    /// started.
    pub fn submit(&mut self, waiter: W) {
        self.gathering.push(waiter);
    }

    /// Takes a waiter whose change changed nothing. It has seen the state in memory, so it must not be answered before
    /// that state is durable: it joins the newest batch. With nothing pending it is given back, to be answered now.
    #[must_use = "a waiter that is given back has to be answered"]
    pub fn join(&mut self, waiter: W) -> Option<W> {
        match &mut self.in_flight {
            _ if !self.gathering.is_empty() => self.gathering.push(waiter),
            Some(in_flight) => in_flight.push(waiter),
            None => return Some(waiter),
        }
        None
    }

    /// Starts a batch if none is in flight and something waits. Returns its waiters in arrival order: the state as
    /// it is in memory at this moment is what has to be published.
    pub fn start(&mut self) -> Option<&[W]> {
        if self.in_flight.is_some() || self.gathering.is_empty() {
            return None;
        }
        Some(self.in_flight.insert(std::mem::take(&mut self.gathering)))
    }

    /// Ends the batch in flight, whether its publish succeeded or not, and returns its waiters in arrival order.
    pub fn finish(&mut self) -> Vec<W> {
        self.in_flight.take().unwrap_or_default()
    }

    /// Tells whether a batch is being made durable.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Tells whether nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.gathering.is_empty()
    }

    /// Returns how many wait, in flight or gathering.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gathering.len() + self.in_flight.as_ref().map_or(0, Vec::len)
    }

    /// Takes every waiter back, in arrival order, when the state they wait for is given up.
    pub fn abandon(&mut self) -> Vec<W> {
        let mut all = self.finish();
        all.append(&mut self.gathering);
        all
    }
}

impl<W> Default for Commit<W> {
    fn default() -> Commit<W> {
        Commit::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A waiter: its place in arrival order, and the version of the state that it has seen.
    type Waiter = (u32, u32);

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Change,
        NoChange,
        Start,
        Finish,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => Just(Op::Change),
            1 => Just(Op::NoChange),
            2 => Just(Op::Start),
            2 => Just(Op::Finish)
        ]
    }

    /// What the service promises, checked from outside.
    fn check(ops: &[Op], finish: fn(&mut Commit<Waiter>) -> Vec<Waiter>) -> Result<(), String> {
        let mut commit = Commit::new();
        let (mut arrived, mut version, mut publishing, mut durable) = (0, 0, None, 0);
        let mut answered = Vec::new();
        for op in ops {
            match op {
                Op::Change => {
                    version += 1;
                    commit.submit((arrived, version));
                    arrived += 1;
                }
                Op::NoChange => {
                    if let Some((number, seen)) = commit.join((arrived, version)) {
                        if seen != durable {
                            return Err(format!("{number} answered at {durable}, saw {seen}"));
                        }
                        answered.push(number);
                    }
                    arrived += 1;
                }
                Op::Start => {
                    let was = publishing;
                    if commit.start().is_some() {
                        if was.is_some() {
                            return Err("two batches in flight".to_owned());
                        }
                        publishing = Some(version);
                    }
                }
                Op::Finish => {
                    let batch = finish(&mut commit);
                    durable = publishing.take().unwrap_or(durable);
                    for (number, seen) in batch {
                        if seen > durable {
                            return Err(format!("{number} answered at {durable}, saw {seen}"));
                        }
                        answered.push(number);
                    }
                }
            }
        }
        answered.extend(commit.abandon().into_iter().map(|(number, _)| number));
        let all: Vec<u32> = (0..arrived).collect();
        if answered != all { Err(format!("answered {answered:?} of {all:?}")) } else { Ok(()) }
    }

    proptest! {
        #[test]
        fn everyone_is_answered_once_in_order_after_the_publish_that_holds_the_change(
            ops in prop::collection::vec(op(), 0..40)
        ) {
            prop_assert_eq!(check(&ops, Commit::finish), Ok(()));
        }
    }

    #[test]
    fn the_check_catches_a_batch_that_is_answered_with_the_one_before() {
        let ops = [Op::Change, Op::Start, Op::Change, Op::Finish];
        assert!(check(&ops, Commit::abandon).is_err());
    }

    #[test]
    fn the_check_catches_answers_out_of_order_and_lost_ones() {
        let ops = [Op::Change, Op::Change, Op::Start, Op::Finish];
        assert!(
            check(&ops, |commit| {
                let mut batch = commit.finish();
                batch.reverse();
                batch
            })
            .is_err()
        );
        assert!(check(&ops, |commit| commit.finish().into_iter().skip(1).collect()).is_err());
    }

    #[test]
    fn an_idle_disk_takes_a_change_at_once_and_a_busy_one_gathers() {
        let mut commit = Commit::new();
        commit.submit('a');
        assert_eq!(commit.start(), Some(&['a'][..]));
        commit.submit('b');
        commit.submit('c');
        assert_eq!(commit.start(), None);
        assert_eq!(commit.finish(), ['a']);
        assert_eq!(commit.start(), Some(&['b', 'c'][..]));
        assert_eq!(commit.join('d'), None, "b and c are not durable yet");
        assert_eq!(commit.finish(), ['b', 'c', 'd']);
        assert!(commit.is_idle());
        assert_eq!(commit.join('e'), Some('e'));
    }
}
