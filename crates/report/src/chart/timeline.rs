//! A timeline: a lane a thread, slow calls as bars coloured by kind, idle waits hollow, frames as a grid.

use jiff::Timestamp;

use super::axis::Axis;
use super::{Anchor, WIDTH, line, open, rectangle, text};
use crate::escape::escape;
use crate::figure::Quantity;
use crate::table::cut;

/// The style of a timeline, of the legend of its colours, and of the tools with which a script filters it.
pub const STYLE: &str = include_str!("timeline.css");

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

/// What stands below the lanes.
#[derive(Clone, Copy, Debug)]
pub enum TimeAxis {
    /// The time since the beginning; frames of this length are a grid where there is room.
    Elapsed {
        /// The length of a frame, in nanoseconds.
        frame_ns: u64,
    },
    /// Times of the day, or days where there are many.
    Clock {
        /// What clocks show at the beginning, in nanoseconds since 1970 as they count it.
        begin_ns: u64,
    },
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
    below: TimeAxis,
) -> String {
    let length = (length_ns as f64).max(1.0);
    let unit = Quantity::Time.unit_of(length);
    let (axis, frame_ns) = match below {
        TimeAxis::Elapsed { frame_ns } => {
            (Axis::linear(length, unit.scale(), LEFT, RIGHT), frame_ns)
        }
        TimeAxis::Clock { .. } => (Axis::until(length, LEFT, RIGHT), 0),
    };
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
    let ticks: Vec<(f64, String)> = match below {
        TimeAxis::Elapsed { .. } => {
            svg.push_str(&text(LEFT - 10.0, bottom + 18.0, Anchor::End, "tick", unit.name()));
            axis.ticks().into_iter().map(|tick| (tick, unit.round(tick))).collect()
        }
        TimeAxis::Clock { begin_ns } => clock_ticks(begin_ns, length_ns),
    };
    for (tick, label) in ticks {
        let x = axis.place(tick);
        svg.push_str(&line(x, TOP, x, bottom + 4.0, "grid"));
        svg.push_str(&text(x, bottom + 18.0, Anchor::Middle, "tick", &label));
    }
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

/// Steps between times of the day, in seconds.
const STEPS: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY];
const DAY: u64 = 86_400;
/// A clock has at most so many steps.
const MOST_STEPS: u64 = 8;

/// Returns round times of the day, in nanoseconds since the beginning, with how they are written.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn clock_ticks(begin_ns: u64, length_ns: u64) -> Vec<(f64, String)> {
    const SECOND: u64 = 1_000_000_000;
    let fits = |step: &u64| length_ns / (step * SECOND) <= MOST_STEPS;
    let days = (length_ns / SECOND / DAY / MOST_STEPS + 1) * DAY;
    let step = STEPS.into_iter().find(fits).unwrap_or(days);
    let has_days = length_ns / SECOND > DAY;
    let format = |second: u64| match step {
        // Where there are several days, midnight says which one begins.
        60.. if has_days && second.is_multiple_of(DAY) => "%m-%d",
        60.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    let first = begin_ns.div_ceil(step * SECOND) * step;
    let last = begin_ns.saturating_add(length_ns) / SECOND;
    (first..=last)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .map(|second| {
            let at = i64::try_from(second).ok().and_then(|at| Timestamp::from_second(at).ok());
            let label = at.unwrap_or_default().strftime(format(second)).to_string();
            ((second * SECOND).saturating_sub(begin_ns) as f64, label)
        })
        .collect()
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

    const FRAMES: TimeAxis = TimeAxis::Elapsed { frame_ns: 16_667_000 };

    #[test]
    fn a_clock_has_few_round_times() {
        let ticks = |begin_s: u64, length_s: u64| -> Vec<String> {
            let all = clock_ticks(begin_s * 1_000_000_000 + 1, length_s * 1_000_000_000);
            assert!(all.len() <= 9, "{all:?}");
            all.into_iter().map(|(_, label)| label).collect()
        };
        let eight = 8 * 3600;
        assert_eq!(ticks(eight, 4 * 3600)[..2], ["08:30", "09:00"]);
        assert_eq!(ticks(eight, 20)[..2], ["08:00:05", "08:00:10"]);
        assert_eq!(
            ticks(eight, 3 * 86_400),
            ["12:00", "01-02", "12:00", "01-03", "12:00", "01-04"]
        );
        assert_eq!(ticks(eight, 6 * 86_400)[0], "01-02");
        assert!(ticks(eight, 400 * 86_400).len() > 3);
        let (at, label) = clock_ticks(eight * 1_000_000_000, 3_600_000_000_000)[0].clone();
        assert!(at.abs() < 1.0 && label == "08:00", "{at} {label}");
    }

    #[test]
    fn what_was_felt_is_high_and_idle_time_is_hollow() {
        let ms = 1_000_000;
        let lanes = [Lane {
            name: "main",
            life_ns: (0, 500 * ms),
            bars: vec![bar(20 * ms, 134 * ms, Shape::Felt), bar(200 * ms, 200 * ms, Shape::Idle)],
        }];
        let svg = render("Threads", "One thread", &lanes, 500 * ms, FRAMES);
        assert!(svg.contains("height=\"19.0\" class=\"bar felt k-sync\" data-slow=\"7\" tabindex"));
        assert!(svg.contains("class=\"bar idle k-sync\" data-slow=\"7\"/>"));
        assert!(svg.contains("class=\"frames\""));
        assert!(!render("x", "One", &lanes, 60_000 * ms, FRAMES).contains("class=\"frames\""));
    }

    #[test]
    fn a_bar_beyond_the_end_stays_in_the_picture() {
        let lanes = [Lane {
            name: "x",
            life_ns: (0, u64::MAX),
            bars: vec![bar(u64::MAX - 5, u64::MAX, Shape::Short)],
        }];
        for length in [0, 1, 1000] {
            let none = TimeAxis::Elapsed { frame_ns: 0 };
            for axis in
                [none, TimeAxis::Clock { begin_ns: 0 }, TimeAxis::Clock { begin_ns: 1 << 62 }]
            {
                let svg = render("x", "One", &lanes, length, axis);
                assert!(!svg.contains("NaN") && !svg.contains("inf"));
            }
        }
    }
}
