//! A bar in frames: one step, the frame as a line; its name and figures stand beside it as text of the page.

use std::time::Duration;

use super::{line, rectangle};
use crate::figure::{Quantity, duration, frame_count, nanoseconds};
use crate::samples::Samples;

/// The picture's own units; the page stretches it to the room that there is.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 16.0;
/// What is left at the end for the point of a bar that goes on.
const POINT: f64 = 8.0;
/// A bar ends after so many frames.
const FRAMES: f64 = 2.0;

/// Draws the bar of a step whose times are `samples` in nanoseconds; `class` colours it, a thin line goes on to the p95.
#[must_use]
pub fn single(samples: &Samples, frame: Duration, class: &str) -> String {
    let frame_ns = nanoseconds(frame).max(1.0);
    let end = WIDTH - POINT;
    let place = |time: f64| (time / frame_ns / FRAMES).clamp(0.0, 1.0) * end;
    let (median, p95) = (samples.median(), samples.p95());
    let (top, middle) = (3.0, HEIGHT / 2.0);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>{}, {} frames of {}</title><desc>The bar is the median time, the upright line one frame.</desc>\n",
        Quantity::Time.show(median),
        frame_count(median, frame),
        duration(frame)
    );
    svg.push_str(&rectangle(0.0, top, place(median).max(1.0), HEIGHT - 2.0 * top, class));
    svg.push_str(&line(place(median), middle, place(p95), middle, "whisker"));
    if median > FRAMES * frame_ns {
        // A point on the bar says that it does not end here.
        let half = middle - top;
        svg.push_str(&format!(
            "<path d=\"M{end:.1} {top:.1}l{POINT:.1} {half:.1}l-{POINT:.1} {half:.1}z\" class=\"{class}\"/>\n"
        ));
    }
    let x = place(frame_ns);
    svg.push_str(&line(x, 0.0, x, HEIGHT, "limit"));
    svg.push_str("</svg>\n");
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
            let svg = single(samples, frame, "misses");
            assert!(svg.contains("<title>") && svg.contains("<desc>"));
            svg.matches("z\" class=").count()
        };
        assert_eq!((points(&long), points(&short)), (1, 0));
    }
}
