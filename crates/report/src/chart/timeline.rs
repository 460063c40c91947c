//! A timeline: a lane a thread, slow calls as bars coloured by kind, idle waits hollow, frames as a grid.

use super::axis::Axis;
use super::{Anchor, WIDTH, line, open, rectangle, text};
use crate::escape::escape;
use crate::figure::Quantity;
use crate::table::cut;

/// What happened in one thread.
#[derive(Clone, Debug)]
pub struct Lane<'a> {
    /// Its name.
    pub name: &'a str,
    /// From when to when it was there, in nanoseconds.
    pub life_ns: (u64, u64),
    /// Its slow calls.
    pub bars: Vec<Bar<'a>>,
}

/// A slow call.
#[derive(Clone, Copy, Debug)]
pub struct Bar<'a> {
    /// When it began, in nanoseconds.
    pub at_ns: u64,
    /// How long it took, in nanoseconds.
    pub length_ns: u64,
    /// The class of the page that colours it.
    pub class: &'a str,
    /// How it is drawn.
    pub shape: Shape,
    /// A number by which a script finds more about it.
    pub id: usize,
    /// What is said of it where there is no script; only of long ones, to keep a page small.
    pub title: &'a str,
}

/// How a bar is drawn, so that what matters is seen in grey too.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Shape {
    /// Hollow: nobody waited.
    Idle,
    /// Low: shorter than a frame.
    Short,
    /// Higher: frames were missed.
    Missed,
    /// As high as the lane: a person felt it.
    Felt,
}

impl Shape {
    fn height(self) -> f64 {
        match self {
            Shape::Idle => 5.0,
            Shape::Short => 7.0,
            Shape::Missed => 13.0,
            Shape::Felt => 19.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Shape::Idle => "idle",
            Shape::Short => "short",
            Shape::Missed => "missed",
            Shape::Felt => "felt",
        }
    }
}

const LEFT: f64 = 132.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 10.0;
const LANE: f64 = 25.0;
/// Frames narrower than this are not drawn.
const NARROWEST_FRAME: f64 = 3.0;

/// Draws lanes from 0 to `length_ns`; `described` says in words what they show.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub fn render(
    title: &str,
    described: &str,
    lanes: &[Lane<'_>],
    length_ns: u64,
    frame_ns: u64,
) -> String {
    let length = (length_ns as f64).max(1.0);
    let unit = Quantity::Time.unit_of(length);
    let axis = Axis::linear(length, unit.scale(), LEFT, RIGHT);
    let bottom = TOP + LANE * lanes.len() as f64;
    let frame = frame_ns as f64 / length * (RIGHT - LEFT);
    let has_grid = frame >= NARROWEST_FRAME;
    let grid = if has_grid { "; thin lines are frames" } else { "" };
    let mut svg = open(bottom + 24.0, title, &format!("{described}{grid}."));
    if has_grid {
        let mut path = String::new();
        let mut at = 0_u64;
        while at <= length_ns {
            path.push_str(&format!("M{:.1} {TOP:.1}V{bottom:.1}", axis.place(at as f64)));
            at = at.saturating_add(frame_ns.max(1));
        }
        svg.push_str(&format!("<path d=\"{path}\" class=\"frames\"/>\n"));
    }
    for tick in axis.ticks() {
        let x = axis.place(tick);
        svg.push_str(&line(x, TOP, x, bottom + 4.0, "grid"));
        svg.push_str(&text(x, bottom + 18.0, Anchor::Middle, "tick", &unit.round(tick)));
    }
    svg.push_str(&text(LEFT - 10.0, bottom + 18.0, Anchor::End, "tick", unit.name()));
    for (number, lane) in lanes.iter().enumerate() {
        let middle = TOP + LANE * (number as f64 + 0.5);
        svg.push_str(&text(LEFT - 10.0, middle + 4.0, Anchor::End, "lane", &cut(lane.name, 19)));
        let life = (axis.place(lane.life_ns.0 as f64), axis.place(lane.life_ns.1 as f64));
        svg.push_str(&line(life.0, middle, life.1.max(life.0 + 0.5), middle, "life"));
        let mut bars: Vec<&Bar<'_>> = lane.bars.iter().collect();
        // What is felt lies on top.
        bars.sort_by_key(|bar| (bar.shape, bar.at_ns));
        for bar in bars {
            svg.push_str(&draw(bar, axis, middle));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn draw(bar: &Bar<'_>, axis: Axis, middle: f64) -> String {
    let x = axis.place(bar.at_ns as f64);
    let width = axis.place(bar.at_ns.saturating_add(bar.length_ns) as f64) - x;
    let height = bar.shape.height();
    let class = format!("bar {} {}", bar.shape.class(), bar.class);
    let drawn = rectangle(x, middle - height / 2.0, width.max(1.2), height, &class);
    let Some(open) = drawn.trim_end().strip_suffix("/>") else { return drawn };
    // Only what was felt or missed is a stop of the keyboard: the others would be hundreds.
    let stop = if bar.shape >= Shape::Missed { " tabindex=\"0\"" } else { "" };
    if bar.title.is_empty() {
        format!("{open} data-slow=\"{}\"{stop}/>\n", bar.id)
    } else {
        format!(
            "{open} data-slow=\"{}\"{stop}><title>{}</title></rect>\n",
            bar.id,
            escape(bar.title)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(at_ns: u64, length_ns: u64, shape: Shape) -> Bar<'static> {
        Bar { at_ns, length_ns, class: "k-sync", shape, id: 7, title: "" }
    }

    #[test]
    fn what_was_felt_is_high_and_idle_time_is_hollow() {
        let ms = 1_000_000;
        let lanes = [Lane {
            name: "main",
            life_ns: (0, 500 * ms),
            bars: vec![bar(20 * ms, 134 * ms, Shape::Felt), bar(200 * ms, 200 * ms, Shape::Idle)],
        }];
        let svg = render("Threads", "One thread", &lanes, 500 * ms, 16_667_000);
        assert!(svg.contains("height=\"19.0\" class=\"bar felt k-sync\" data-slow=\"7\" tabindex"));
        assert!(svg.contains("class=\"bar idle k-sync\" data-slow=\"7\"/>"));
        assert!(svg.contains("class=\"frames\""));
        assert!(!render("x", "One", &lanes, 60_000 * ms, 16_667_000).contains("class=\"frames\""));
    }

    #[test]
    fn a_bar_beyond_the_end_stays_in_the_picture() {
        let lanes = [Lane {
            name: "x",
            life_ns: (0, u64::MAX),
            bars: vec![bar(u64::MAX - 5, u64::MAX, Shape::Short)],
        }];
        for length in [0, 1, 1000] {
            let svg = render("x", "One", &lanes, length, 0);
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
