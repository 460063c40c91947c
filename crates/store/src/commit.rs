//! Group commit: the next batch gathers while one is made durable.
//!
//! A state machine without clock, thread or disk. The owner of the state submits each change's waiter when it has applied
//! the change in memory, starts a batch when the disk is free, and answers the waiters of a batch when its publish has
//! ended. There is no timer: on an idle disk a change starts at once and alone; on a busy one the batch is as large as
//! the wait was long.
//!
//! A change that changes nothing is submitted too: it has seen the state in memory, so it must not be answered before
//! that state is durable. If nothing is to be published, [`Commit::settle`] answers it.

/// The changes that wait for a publish, in the order of their arrival. `W` is whom to answer, and with what.
#[derive(Debug)]
pub struct Commit<W> {
    gathered: Vec<W>,
    in_flight: Option<Vec<W>>,
}

impl<W> Commit<W> {
    /// Returns a commit with nothing to do.
    #[must_use]
    pub fn new() -> Commit<W> {
        Commit { gathered: Vec::new(), in_flight: None }
    }

    /// Takes a change that was applied to the state in memory: its waiter is answered after the next publish that is
    /// started.
    pub fn submit(&mut self, waiter: W) {
        self.gathered.push(waiter);
    }

    /// Starts a batch of what has gathered and says so; `false`, and nothing happens, if one is in flight.
    ///
    /// The state as it is in memory at this moment is what has to be published. A batch may be empty: the state may
    /// have to be published although nobody waits for it.
    pub fn start(&mut self) -> bool {
        if self.in_flight.is_some() {
            return false;
        }
        self.in_flight = Some(std::mem::take(&mut self.gathered));
        true
    }

    /// Ends the batch in flight, whether its publish succeeded or not, and returns its waiters.
    pub fn finish(&mut self) -> Vec<W> {
        self.in_flight.take().unwrap_or_default()
    }

    /// Ends the batch in flight, whose publish was not tried: its waiters are the first of the next batch.
    pub fn put_back(&mut self) {
        let mut batch = self.finish();
        batch.append(&mut self.gathered);
        self.gathered = batch;
    }

    /// Returns those who gathered, who need no publish of their own, if nobody before them waits for one.
    pub fn settle(&mut self) -> Vec<W> {
        if self.is_in_flight() { Vec::new() } else { self.take_gathered() }
    }

    /// Takes back those who gathered: the state that they wait for is given up, and they are submitted again or answered.
    pub fn take_gathered(&mut self) -> Vec<W> {
        std::mem::take(&mut self.gathered)
    }

    /// Returns those who wait for the next batch.
    #[must_use]
    pub fn gathered(&self) -> &[W] {
        &self.gathered
    }

    /// Returns those who wait for the next batch.
    pub fn gathered_mut(&mut self) -> &mut [W] {
        &mut self.gathered
    }

    /// Returns those whose changes are being made durable.
    #[must_use]
    pub fn in_flight(&self) -> &[W] {
        self.in_flight.as_deref().unwrap_or_default()
    }

    /// Returns all who wait, the first to come first; what they changed is taken back from the end.
    pub fn pending_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut W> {
        self.in_flight.iter_mut().flatten().chain(&mut self.gathered)
    }

    /// Tells whether a batch is being made durable.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Tells whether nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.gathered.is_empty()
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
        PutBack,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => Just(Op::Change),
            1 => Just(Op::NoChange),
            2 => Just(Op::Start),
            2 => Just(Op::Finish),
            1 => Just(Op::PutBack)
        ]
    }

    /// What the service promises, checked from outside.
    fn check(ops: &[Op], finish: fn(&mut Commit<Waiter>) -> Vec<Waiter>) -> Result<(), String> {
        let mut commit: Commit<Waiter> = Commit::new();
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
                    commit.submit((arrived, version));
                    arrived += 1;
                    if commit.gathered().iter().all(|(_, seen)| *seen <= durable) {
                        answered.extend(commit.settle().into_iter().map(|(number, _)| number));
                    }
                }
                Op::Start => {
                    if commit.start() {
                        if publishing.is_some() {
                            return Err("two batches in flight".to_owned());
                        }
                        publishing = Some(version);
                    }
                }
                Op::PutBack => {
                    commit.put_back();
                    publishing = None;
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
        answered.extend(commit.pending_mut().map(|(number, _)| *number));
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
        let with_the_next = |commit: &mut Commit<Waiter>| {
            let mut batch = commit.finish();
            batch.append(&mut commit.take_gathered());
            batch
        };
        assert!(check(&ops, with_the_next).is_err());
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
        assert!(commit.start());
        assert_eq!(commit.in_flight(), ['a']);
        commit.submit('b');
        commit.submit('c');
        assert!(!commit.start());
        assert_eq!(commit.settle(), [], "a is not durable yet");
        assert_eq!(commit.finish(), ['a']);
        assert!(commit.start());
        commit.submit('d');
        commit.put_back();
        assert_eq!(commit.gathered(), ['b', 'c', 'd']);
        assert_eq!(commit.settle(), ['b', 'c', 'd']);
        assert!(commit.is_idle());
    }
}
