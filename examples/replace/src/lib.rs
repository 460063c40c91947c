//! Times of calls in turns, and how they are printed.

use std::time::{Duration, Instant};

/// What was measured of one call.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    times: Vec<Duration>,
}

impl Row {
    /// Returns a row without times.
    #[must_use]
    pub fn new(name: &'static str) -> Row {
        Row { name, times: Vec::new() }
    }

    /// Makes a call and keeps how long it took.
    pub fn measure<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.times.push(begun.elapsed());
        result
    }

    fn sorted(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    fn median(&self) -> f64 {
        let times = self.sorted();
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Prints the median of each row, with the least and the 95th percentile.
pub fn print_rows(rows: &[Row]) {
    for row in rows {
        let times = row.sorted();
        let at = |part: usize| {
            times.get((times.len() * part / 100).min(times.len() - 1)).copied().unwrap_or(f64::NAN)
        };
        println!("{:32}{:10.1} µs [{:.1} ... {:.1}]", row.name, at(50), at(0), at(95));
    }
}

/// Prints the ratio of two medians.
pub fn print_ratios(ours: &Row, theirs: &Row) {
    println!("{} / {}: 1/{:.1}", ours.name, theirs.name, theirs.median() / ours.median());
}
