//! How many times better, a row a figure: a dot for what was reached, a mark for what was promised.

use super::axis::Axis;
use super::{Anchor, line, open, text};
use crate::figure::three_digits;
use crate::table::cut;

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Ratio<'a> {
    /// What was measured.
    pub name: &'a str,
    /// How many times better ours is; below 1 it is worse.
    pub reached: f64,
    /// How many times better it must be.
    pub promised: Option<f64>,
}

const LEFT: f64 = 250.0;
const RIGHT: f64 = 580.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;

/// Draws the figures in the order given, on a logarithmic axis.
#[must_use]
pub fn render(ratios: &[Ratio<'_>]) -> String {
    let shown: Vec<&Ratio<'_>> =
        ratios.iter().filter(|ratio| ratio.reached.is_finite() && ratio.reached > 0.0).collect();
    let values = || shown.iter().flat_map(|ratio| [Some(ratio.reached), ratio.promised]).flatten();
    let least = values().fold(0.9, f64::min);
    let most = values().fold(10.0, f64::max);
    let axis = Axis::logarithmic(least, most, 10.0, LEFT, RIGHT);
    #[expect(clippy::cast_precision_loss, reason = "a few figures")]
    let bottom = TOP + ROW * shown.len() as f64;
    let described: Vec<String> = shown
        .iter()
        .map(|ratio| format!("{}: x {}", ratio.name, three_digits(ratio.reached)))
        .collect();
    let mut svg = open(
        bottom + 26.0,
        "How many times better than the peer",
        &format!("Logarithmic; right of x 1 ours is better. {}.", described.join("; ")),
    );
    for tick in axis.ticks() {
        let x = axis.place(tick);
        svg.push_str(&line(x, TOP - 6.0, x, bottom, "grid"));
        svg.push_str(&text(x, bottom + 18.0, Anchor::Middle, "tick", &format!("x {tick}")));
    }
    svg.push_str(&text(LEFT - 26.0, bottom + 18.0, Anchor::End, "tick", "times better, log"));
    let one = axis.place(1.0);
    svg.push_str(&line(one, TOP - 8.0, one, bottom, "limit"));
    svg.push_str(&text(one, TOP - 14.0, Anchor::Middle, "strong", "the peer"));
    for (number, ratio) in shown.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a few figures")]
        let middle = TOP + ROW * (number as f64 + 0.5);
        svg.push_str(&row(ratio, middle, axis));
    }
    svg.push_str("</svg>\n");
    svg
}

fn row(ratio: &Ratio<'_>, middle: f64, axis: Axis) -> String {
    let short = ratio.promised.is_some_and(|promised| ratio.reached < promised);
    let class = match (short, ratio.promised) {
        (true, _) => "misses",
        (false, Some(_)) => "ours",
        (false, None) => "aside",
    };
    let (one, x) = (axis.place(1.0), axis.place(ratio.reached));
    let mut svg = text(LEFT - 10.0, middle + 4.5, Anchor::End, "label", &cut(ratio.name, 38));
    svg.push_str(&line(one, middle, x, middle, &format!("stem {class}")));
    svg.push_str(&format!(
        "<circle cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"5\" class=\"{class}\"/>\n"
    ));
    if let Some(promised) = ratio.promised {
        let x = axis.place(promised);
        svg.push_str(&line(x, middle - 9.0, x, middle + 9.0, "promise"));
    }
    let word = match (short, ratio.promised) {
        (true, _) => ", short",
        (false, Some(_)) => ", pass",
        (false, None) => "",
    };
    let figure = format!("x {}{word}", three_digits(ratio.reached));
    svg.push_str(&text(RIGHT + 22.0, middle + 4.5, Anchor::Start, "label", &figure));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_short_is_said_in_a_word_too() {
        let svg = render(&[
            Ratio { name: "a", reached: 19.0, promised: Some(15.0) },
            Ratio { name: "b", reached: 4.0, promised: Some(5.0) },
            Ratio { name: "c", reached: 0.5, promised: None },
            Ratio { name: "not measured", reached: f64::NAN, promised: None },
        ]);
        assert!(
            svg.contains("x 19.0, pass")
                && svg.contains("x 4.00, short")
                && svg.contains(">x 0.50<")
        );
        assert!(!svg.contains("NaN") && !svg.contains("not measured"));
        assert_eq!(svg.matches("class=\"promise\"").count(), 2);
    }
}
