//! Numbers that look random and are the same in every run.

/// A generator with one word of state (splitmix64): equal seeds give equal numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number of 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.word() % end).unwrap_or(0)
    }

    /// Says yes in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one element of `choices`, which is not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let take = |seed| {
            let mut random = Random::new(seed);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
        assert!((0..1000).all(|_| Random::new(3).below(7) < 7));
    }
}
