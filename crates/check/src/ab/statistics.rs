//! Compares two sets of measurements: the ratio of medians with its interval, and the probability that the difference is chance.

use fastrand::Rng;
use report::samples::Samples;

/// How often the measurements are drawn again.
const DRAWS: usize = 4000;
/// Sets up to this size are compared exactly, by counting all orders.
const EXACT: usize = 40;

/// The ratio of two medians and the interval that holds it in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The ratio of the medians.
    pub ratio: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Returns the median of `with` as a part of the median of `without`, and its 95 % interval by the bootstrap's percentiles.
///
/// The draws are the same for the same measurements. All is NaN where a set is empty.
#[must_use]
pub fn ratio_of_medians(with: &Samples, without: &Samples) -> Interval {
    let ratio = with.median() / without.median();
    if with.is_empty() || without.is_empty() {
        return Interval { ratio, low: f64::NAN, high: f64::NAN };
    }
    let mut random = Rng::with_seed(1);
    let draws: Samples = (0..DRAWS)
        .map(|_| drawn(with, &mut random).median() / drawn(without, &mut random).median())
        .collect();
    Interval { ratio, low: draws.quantile(0.025), high: draws.quantile(0.975) }
}

/// Draws as many measurements as there are, each from all of them.
fn drawn(samples: &Samples, random: &mut Rng) -> Samples {
    (0..samples.len()).map(|_| samples.values()[random.usize(..samples.len())]).collect()
}

/// Returns how likely two sets that differ this much are if they come from the same source: the two-sided test of Mann and Whitney.
///
/// Exact for up to 40 measurements a side without ties, else by the normal distribution, corrected for ties and continuity. 1 where a set is empty.
#[must_use]
pub(crate) fn chance_of_no_difference(a: &Samples, b: &Samples) -> f64 {
    let (m, n) = (a.len(), b.len());
    if m == 0 || n == 0 {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> = a.values().iter().map(|value| (*value, true)).collect();
    all.extend(b.values().iter().map(|value| (*value, false)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut first = 0;
    for group in all.chunk_by(|x, y| x.0 == y.0) {
        let size = group.len() as f64;
        // The ranks of a group are shared by its members.
        let rank = first as f64 + (size + 1.0) / 2.0;
        rank_sum += rank * group.iter().filter(|(_, is_a)| *is_a).count() as f64;
        ties += size * size * size - size;
        first += group.len();
    }
    let (mf, nf) = (m as f64, n as f64);
    let u = rank_sum - mf * (mf + 1.0) / 2.0;
    let smaller = u.min(mf * nf - u);
    if ties == 0.0 && m <= EXACT && n <= EXACT {
        return (2.0 * share_of_orders(m, n, smaller)).min(1.0);
    }
    let total = mf + nf;
    let variance = mf * nf / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((mf * nf / 2.0 - smaller).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// Returns the share of all orders of `m` and `n` things in which U is at most `most`.
fn share_of_orders(m: usize, n: usize, most: f64) -> f64 {
    // ways[u]: in how many of them U is u. The generating function is the Gaussian binomial coefficient:
    // the product over i of (1 - x^(n + i)) / (1 - x^i); shares keep the numbers within range.
    let length = m * n + 1;
    let mut ways = vec![0.0_f64; length];
    ways[0] = 1.0;
    for i in 1..=m {
        for u in (n + i..length).rev() {
            ways[u] -= ways[u - n - i];
        }
        for u in i..length {
            ways[u] += ways[u - i];
        }
    }
    let all: f64 = ways.iter().sum();
    let within: f64 =
        ways.iter().enumerate().filter(|(u, _)| *u as f64 <= most).map(|(_, ways)| ways).sum();
    within / all
}

/// Returns the complementary error function to within 1.2e-7 of itself (a Chebyshev fit, for z >= 0).
fn erfc(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * z);
    let coefficients = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let series = coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    t * (-z * z + series).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = f64>) -> Samples {
        values.into_iter().collect()
    }

    #[test]
    fn sets_that_do_not_overlap_are_as_unlikely_as_the_tables_say() {
        // 2 / C(10, 5), 2 / C(30, 15).
        let low = samples((0..5).map(f64::from));
        let high = samples((10..15).map(f64::from));
        let p = chance_of_no_difference(&low, &high);
        assert!((p - 2.0 / 252.0).abs() < 1e-12, "{p}");
        let low = samples((0..15).map(f64::from));
        let high = samples((20..35).map(f64::from));
        let p = chance_of_no_difference(&low, &high);
        assert!((p / (2.0 / 155_117_520.0) - 1.0).abs() < 1e-6, "{p}");
    }

    #[test]
    fn a_known_example_gives_the_known_chance() {
        // U = 2 of 4 x 5: 2 x (1 + 1 + 2) / 126 orders.
        let a = samples([1.0, 2.0, 3.0, 6.0]);
        let b = samples([4.0, 5.0, 7.0, 8.0, 9.0]);
        assert!((chance_of_no_difference(&a, &b) - 8.0 / 126.0).abs() < 1e-12);
        assert_eq!(chance_of_no_difference(&a, &b), chance_of_no_difference(&b, &a));
    }

    #[test]
    fn the_normal_way_agrees_with_the_exact_one() {
        let a = samples((0..40).map(|i| f64::from(i * 2)));
        let b = samples((0..40).map(|i| f64::from(i * 2 + 17)));
        let exact = chance_of_no_difference(&a, &b);
        let one_more = samples(b.values().iter().copied().chain([b.median() + 0.1]));
        let normal = chance_of_no_difference(&a, &one_more);
        assert!((normal / exact - 1.0).abs() < 0.1, "{exact} {normal}");
    }

    #[test]
    fn equal_measurements_show_no_difference() {
        let same = samples([3.0; 10]);
        assert_eq!(chance_of_no_difference(&same, &same), 1.0);
        assert_eq!(chance_of_no_difference(&same, &Samples::default()), 1.0);
        let interval = ratio_of_medians(&same, &same);
        assert_eq!((interval.low, interval.ratio, interval.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn the_interval_holds_the_ratio_and_narrows_with_more_measurements() {
        let spread = |count: u32, base: f64| {
            let mut random = Rng::with_seed(u64::from(count));
            let noise = move || f64::from(random.u32(..1000)) / 1e4;
            samples(std::iter::repeat_with(noise).take(count as usize).map(|n| base + n))
        };
        let few = ratio_of_medians(&spread(8, 0.5), &spread(9, 1.0));
        let many = ratio_of_medians(&spread(200, 0.5), &spread(201, 1.0));
        for interval in [few, many] {
            assert!(interval.low <= interval.ratio && interval.ratio <= interval.high);
            assert!(interval.low > 0.45 && interval.high < 0.62, "{interval:?}");
        }
        assert!(many.high - many.low < few.high - few.low);
    }

    #[test]
    fn the_tail_of_the_normal_distribution_is_right() {
        for (z, truth) in [(0.0, 1.0), (0.5, 0.479_500_122), (1.0, 0.157_299_207), (3.0, 2.209e-5)]
        {
            assert!((erfc(z) - truth).abs() < 1e-6, "{z}");
        }
    }
}
