//! A comparison in words: what is compared, both rates, and whether they differ.

use super::{HangTextStyle, long_time, number, time};
use crate::compare::{ComparedHangs, HangRate, RateComparison, RateDifference};
use crate::store::StoredHistory;

/// What is said of a comparison beside its figures.
#[derive(Clone, Copy, Debug)]
pub struct ComparedText<'a> {
    /// The moment, as `10:30` or `relax was switched on at 10:30`.
    pub moment: &'a str,
    /// Which hangs are counted.
    pub counted: &'a ComparedHangs,
    /// The rates of all hangs, where only those are counted that a part removes.
    pub all: Option<(HangRate, HangRate)>,
    /// What else is to be known of a part.
    pub note: Option<&'a str>,
}

impl HangTextStyle<'_> {
    /// Writes a comparison of what is in `stored`.
    #[must_use]
    pub fn comparison(
        &self,
        comparison: &RateComparison,
        told: ComparedText<'_>,
        stored: &StoredHistory,
        now_ns: u64,
    ) -> String {
        let RateComparison { before, after, ratio, difference } = comparison;
        let ComparedText { moment, counted, all, note } = told;
        let which = self.which(counted);
        let verdict = match difference {
            RateDifference::Fewer => format!("Fewer hangs{which} since {moment}."),
            RateDifference::More => format!("More hangs{which} since {moment}."),
            RateDifference::None => {
                let of = if which.is_empty() { String::new() } else { format!(" of hangs{which}") };
                format!("No clear difference{of} before and after {moment}.")
            }
            RateDifference::NotEnough => {
                format!("Too little was watched before or after {moment} to compare.")
            }
            RateDifference::Erased => {
                format!(
                    "Cannot compare before and after {moment}: a program was erased, and its hangs are missing. To compare one program: --program NAME"
                )
            }
        };
        let mut lines = vec![verdict];
        let rate = |name: &str, rate: &HangRate| {
            let an_hour =
                rate.an_hour().map_or(String::new(), |rate| format!("{rate:.2} an hour, "));
            format!(
                "{name}: {} in {} of watching, {an_hour}{} in all",
                number(rate.hangs, "hang"),
                long_time(rate.watched_ns),
                time(rate.total_ns)
            )
        };
        lines.push(rate("before", before));
        lines.push(rate("after", after));
        if let Some((point, low, high)) = ratio {
            let figure = |value: &Option<f64>| {
                value.map_or("without bound".to_owned(), |value| format!("{value:.2}"))
            };
            lines.push(format!(
                "the rate after by the rate before: {} [{} … {}], 95 %",
                figure(point),
                figure(low),
                figure(high)
            ));
        }
        if let Some((before, after)) = &all {
            lines.push(rate("all hangs, before", before));
            lines.push(rate("all hangs, after", after));
        }
        lines.extend(note.map(str::to_owned));
        lines.extend(stored.erased_before(now_ns).map(|before_ns| self.erased(before_ns)));
        lines.extend(stored.damage());
        self.paragraphs(&lines)
    }

    /// Says which hangs are counted, where not all are.
    fn which(&self, counted: &ComparedHangs) -> String {
        let ComparedHangs { program, cause, file, part } = counted;
        let of = |word: &str, name: &Option<String>| {
            name.as_ref().map_or(String::new(), |name| format!(" {word} {}", self.path(name)))
        };
        let cause = cause.map_or(String::new(), |cause| format!(" ({})", cause.words()));
        let part = part.as_ref().map_or(String::new(), |part| format!(" that {part} mends"));
        format!("{}{}{cause}{part}", of("of", program), of("on", file))
    }
}
