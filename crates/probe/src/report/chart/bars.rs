//! Bars in frames: one bar a step, the frame as a line.

use std::time::Duration;

use super::{Anchor, line, open, rectangle, text};
use crate::report::figure::{Quantity, duration, frame_count, nanoseconds};
use crate::report::grade::Grade;
use crate::report::samples::Samples;
use crate::report::table::cut;

/// One step and its times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bar<'a> {
    /// What the step is called.
    pub name: &'a str,
    /// Its times.
    pub samples: &'a Samples,
}

const LEFT: f64 = 250.0;
const RIGHT: f64 = 540.0;
const ROW: f64 = 28.0;
const TOP: f64 = 34.0;
/// The axis ends after so many frames: a bar that goes on says so.
const FRAMES: f64 = 2.0;

/// Draws the bars in the order given; a thin line goes on to the p95.
#[must_use]
pub fn render(bars: &[Bar<'_>], frame: Duration) -> String {
    let frame_ns = nanoseconds(frame).max(1.0);
    #[expect(clippy::cast_precision_loss, reason = "a few bars")]
    let bottom = TOP + ROW * bars.len() as f64;
    let place = |time: f64| LEFT + (time / frame_ns / FRAMES).clamp(0.0, 1.0) * (RIGHT - LEFT);
    let mut svg = open(
        bottom + 26.0,
        "Time of each step in frames",
        "One bar a step, its length the median time; the vertical line is one frame. The table below has the figures.",
    );
    for half in 0..=4 {
        let frames = f64::from(half) / 2.0;
        let x = place(frames * frame_ns);
        svg.push_str(&line(x, TOP - 6.0, x, bottom, "grid"));
        svg.push_str(&text(x, bottom + 18.0, Anchor::Middle, "tick", &format!("{frames}")));
    }
    svg.push_str(&text(RIGHT + 14.0, bottom + 18.0, Anchor::Start, "tick", "frames"));
    for (number, bar) in bars.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a few bars")]
        let y = TOP + ROW * number as f64;
        svg.push_str(&row(bar, y, frame, &place));
    }
    let x = place(frame_ns);
    svg.push_str(&line(x, TOP - 8.0, x, bottom, "limit"));
    let label = format!("one frame, {}", duration(frame));
    svg.push_str(&text(x, TOP - 14.0, Anchor::Middle, "strong", &label));
    svg.push_str("</svg>\n");
    svg
}

fn row(bar: &Bar<'_>, y: f64, frame: Duration, place: &dyn Fn(f64) -> f64) -> String {
    let (median, p95) = (bar.samples.median(), bar.samples.p95());
    let grade = Grade::of(bar.samples, frame);
    let middle = y + ROW / 2.0;
    let end = place(median);
    let mut svg = text(LEFT - 10.0, middle + 4.5, Anchor::End, "label", &cut(bar.name, 40));
    svg.push_str(&rectangle(LEFT, y + 6.0, (end - LEFT).max(1.0), ROW - 12.0, grade.word()));
    svg.push_str(&line(end, middle, place(p95), middle, "whisker"));
    let beyond = median > FRAMES * nanoseconds(frame);
    if beyond {
        // A point on the bar says that it does not end here.
        svg.push_str(&format!(
            "<path d=\"M{RIGHT:.1} {:.1}l9 {:.1}l-9 {:.1}z\" class=\"{}\"/>\n",
            y + 6.0,
            (ROW - 12.0) / 2.0,
            (ROW - 12.0) / 2.0,
            grade.word()
        ));
    }
    let figure = format!(
        "{} · {} · {}",
        Quantity::Time.show(median),
        frame_count(median, frame),
        grade.word()
    );
    svg.push_str(&text(RIGHT + 14.0, middle + 4.5, Anchor::Start, "label", &figure));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_beyond_the_axis_says_that_it_goes_on() {
        let long: Samples = [1.6e9].into_iter().collect();
        let short: Samples = [1.6e6].into_iter().collect();
        let frame = Duration::from_micros(16_667);
        let points = |samples| {
            let svg = render(&[Bar { name: "a <step>", samples }], frame);
            assert!(
                svg.contains("a &lt;step&gt;") && svg.contains("<title>") && svg.contains("<desc>")
            );
            svg.matches("z\" class=").count()
        };
        assert_eq!((points(&long), points(&short)), (1, 0));
    }
}
