//! Samples: the outline of their density, the box, every sample as a dot; one axis for all rows.

use super::axis::Axis;
use super::{Anchor, WIDTH, line, open, rectangle, text};
use crate::figure::Quantity;
use crate::samples::Samples;

/// One set of measurements.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Whose they are.
    pub name: &'a str,
    /// The class of the page that colours them: `ours` or `peer`.
    pub class: &'a str,
    /// The measurements.
    pub samples: &'a Samples,
}

/// Where the axis begins: as far right as the longest name needs.
const LEFT: f64 = 70.0;
const LETTER: f64 = 8.2;
const RIGHT: f64 = 500.0;
const ROW: f64 = 62.0;
const TOP: f64 = 8.0;
/// Half the height of an outline.
const HALF: f64 = 24.0;
/// From this ratio between the largest and the smallest value on, only a logarithmic axis shows both.
const WIDE: f64 = 12.0;
/// Points along an outline.
const POINTS: u32 = 60;

/// Draws the rows on one axis, from zero or, if they are far apart, logarithmic.
#[must_use]
pub fn render(title: &str, quantity: Quantity, rows: &[Row<'_>]) -> String {
    let rows: Vec<&Row<'_>> = rows.iter().filter(|row| !row.samples.is_empty()).collect();
    let least = rows.iter().map(|row| row.samples.min()).fold(f64::INFINITY, f64::min);
    let most = rows.iter().map(|row| row.samples.max()).fold(0.0, f64::max);
    let wide = least > 0.0 && most / least > WIDE;
    let unit = quantity.unit_of(most);
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "the length of a name")]
    let left = (14.0 + LETTER * longest as f64).clamp(LEFT, RIGHT / 2.0);
    let axis = if wide {
        Axis::logarithmic(least, most, quantity.base(), left, RIGHT)
    } else {
        Axis::linear(most, unit.scale(), left, RIGHT)
    };
    #[expect(clippy::cast_precision_loss, reason = "a few rows")]
    let bottom = TOP + ROW * rows.len() as f64;
    let scale = if wide { "logarithmic axis" } else { "axis from zero" };
    let described: Vec<String> = rows
        .iter()
        .map(|row| format!("{}: {}", row.name, quantity.show_spread(row.samples)))
        .collect();
    let mut svg = open(bottom + 24.0, title, &format!("{}; {scale}.", described.join("; ")));
    for tick in axis.ticks() {
        let x = axis.place(tick);
        svg.push_str(&line(x, TOP, x, bottom, "grid"));
        let label = if wide { quantity.show_round(tick) } else { unit.round(tick) };
        svg.push_str(&text(x, bottom + 16.0, Anchor::Middle, "tick", &label));
    }
    let name = if wide { "log" } else { unit.name() };
    svg.push_str(&text(left - 34.0, bottom + 16.0, Anchor::End, "tick", name));
    for (number, row) in rows.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let middle = TOP + ROW * (number as f64 + 0.5);
        svg.push_str(&draw(row, middle, axis, quantity));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(row: &Row<'_>, middle: f64, axis: Axis, quantity: Quantity) -> String {
    let samples = row.samples;
    let class = row.class;
    let (left, _) = axis.ends();
    let mut svg = text(left - 10.0, middle + 4.5, Anchor::End, "strong", row.name);
    if samples.len() >= 5 {
        svg.push_str(&outline(samples, middle, axis, class));
        let at = |share| axis.place(samples.quantile(share));
        let (low, high) = (at(0.25), at(0.75));
        svg.push_str(&rectangle(low, middle - 7.0, (high - low).max(0.5), 14.0, "box"));
    }
    let mut dots = String::new();
    for (number, value) in samples.values().iter().enumerate() {
        // Spread in height by a fixed pattern, so that equal values can be told apart and two runs look alike.
        let lift = if samples.len() < 5 {
            0.0
        } else {
            f64::from(u8::try_from(number * 7 % 15).unwrap_or(0)) - 7.0
        };
        dots.push_str(&format!("M{:.1} {:.1}h0", axis.place(*value), middle + lift));
    }
    let few = if samples.len() < 5 { " few" } else { "" };
    svg.push_str(&format!("<path d=\"{dots}\" class=\"dots {class}{few}\"/>\n"));
    let median = axis.place(samples.median());
    svg.push_str(&line(median, middle - 12.0, median, middle + 12.0, "median"));
    let first = quantity.show(samples.median());
    svg.push_str(&text(RIGHT + 14.0, middle - 3.0, Anchor::Start, "strong", &first));
    let second = if samples.len() == 1 {
        "n = 1".to_owned()
    } else {
        format!("p95 {}, n = {}", quantity.show(samples.p95()), samples.len())
    };
    svg.push_str(&text(RIGHT + 14.0, middle + 13.0, Anchor::Start, "tick", &second));
    svg
}

/// Draws the density of the samples above and below the middle, as places on the axis show it.
fn outline(samples: &Samples, middle: f64, axis: Axis, class: &str) -> String {
    let places: Vec<f64> = samples.values().iter().map(|value| axis.place(*value)).collect();
    let (left, right) = axis.ends();
    // Silverman's rule with the quartiles, which a few wild samples do not widen; at least a pixel and a half.
    let spread = (axis.place(samples.quantile(0.75)) - axis.place(samples.quantile(0.25))) / 1.34;
    #[expect(clippy::cast_precision_loss, reason = "a number of samples")]
    let width = (0.9 * spread * (places.len() as f64).powf(-0.2)).max(1.5);
    let least = places.iter().copied().fold(f64::INFINITY, f64::min) - 3.0 * width;
    let most = places.iter().copied().fold(f64::NEG_INFINITY, f64::max) + 3.0 * width;
    let (from, to) = (least.max(left), most.min(right));
    let density = |x: f64| -> f64 {
        places.iter().map(|place| (-((x - place) / width).powi(2) / 2.0).exp()).sum()
    };
    let points: Vec<(f64, f64)> = (0..=POINTS)
        .map(|number| from + (to - from) * f64::from(number) / f64::from(POINTS))
        .map(|x| (x, density(x)))
        .collect();
    let highest = points.iter().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let edge = |sign: f64| {
        points.iter().map(move |(x, density)| (*x, middle + sign * HALF * density / highest))
    };
    let path: Vec<String> = edge(-1.0)
        .chain(edge(1.0).collect::<Vec<_>>().into_iter().rev())
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    format!("<path d=\"M{}z\" class=\"outline {class}\"/>\n", path.join("L"))
}

/// The place beyond which nothing is drawn, for the page's sake.
const _: () = assert!(RIGHT + 150.0 < WIDTH);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_a_dot_and_the_figures_are_written() {
        let ours: Samples = (1..=40).map(|number| f64::from(number) * 1e4).collect();
        let peer: Samples = [11.4e6].into_iter().collect();
        let rows = [
            Row { name: "ours", class: "ours", samples: &ours },
            Row { name: "peer", class: "peer", samples: &peer },
        ];
        let svg = render("one key", Quantity::Time, &rows);
        assert_eq!(svg.matches("h0").count(), 41);
        assert!(
            svg.contains("logarithmic axis") && svg.contains("11.4 ms") && svg.contains("n = 40")
        );
        assert_eq!(svg.matches("class=\"outline").count(), 1, "one sample has no density");
        let near = [rows[0]];
        assert!(render("one key", Quantity::Time, &near[..]).contains("logarithmic axis"));
        let equal: Samples = [5.0, 5.0, 5.0, 5.0, 5.0].into_iter().collect();
        let svg =
            render("x", Quantity::Rate, &[Row { name: "ours", class: "ours", samples: &equal }]);
        assert!(svg.contains("axis from zero") && !svg.contains("NaN"));
    }

    #[test]
    fn nothing_measured_draws_nothing_and_does_not_fail() {
        let none = Samples::default();
        let svg =
            render("x", Quantity::Size, &[Row { name: "ours", class: "ours", samples: &none }]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
