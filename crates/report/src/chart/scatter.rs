//! Calls against time: a dot a kind of call, both axes logarithmic, lines of equal time per call; with two runs, arrows.

use super::axis::Axis;
use super::{Anchor, WIDTH, line, open, text};
use crate::escape::escape;
use crate::figure::Quantity;

/// A kind of call.
#[derive(Clone, Copy, Debug)]
pub struct Dot<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many calls.
    pub count: f64,
    /// Their time together, in nanoseconds.
    pub time_ns: f64,
    /// The class of the page that colours it.
    pub class: &'a str,
    /// Where it was in the run before: count and time.
    pub before: Option<(f64, f64)>,
}

const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 398.0;
/// The most dots that are named; the others are told by the table.
const LABELS: usize = 16;
/// About how wide a letter of a label is.
const LETTER: f64 = 7.2;

/// A box that is taken.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn meets(self, other: Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// Draws the dots; those without a call or without time are left out.
#[must_use]
pub fn render(title: &str, dots: &[Dot<'_>]) -> String {
    let is_shown = |count: f64, time: f64| count >= 1.0 && time >= 1.0 && time.is_finite();
    let mut dots: Vec<Dot<'_>> =
        dots.iter().copied().filter(|dot| is_shown(dot.count, dot.time_ns)).collect();
    for dot in &mut dots {
        dot.before = dot.before.filter(|(count, time)| is_shown(*count, *time));
    }
    dots.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    let places =
        || dots.iter().flat_map(|dot| [Some((dot.count, dot.time_ns)), dot.before]).flatten();
    let most = |pick: fn((f64, f64)) -> f64| places().map(pick).fold(1.0, f64::max);
    let least = |pick: fn((f64, f64)) -> f64| places().map(pick).fold(f64::INFINITY, f64::min);
    let (first, second) = (|place: (f64, f64)| place.0, |place: (f64, f64)| place.1);
    let shortest = least(second).min(most(second)).max(1.0);
    let x = Axis::logarithmic(1.0, most(first).max(10.0), 10.0, LEFT, RIGHT);
    let y = Axis::logarithmic(shortest, most(second), 10.0, BOTTOM, TOP);
    let described: Vec<String> = dots
        .iter()
        .take(LABELS)
        .map(|dot| {
            format!("{}: {} calls, {}", dot.name, dot.count, Quantity::Time.show(dot.time_ns))
        })
        .collect();
    let mut svg = open(
        BOTTOM + 44.0,
        title,
        &format!(
            "Number of calls to the right, their time together upwards, both logarithmic. {}.",
            described.join("; ")
        ),
    );
    svg.push_str(&axes(x, y));
    svg.push_str(&iso_lines(x, y));
    let mut taken = Vec::new();
    let mut marks = String::new();
    for dot in &dots {
        let (at_x, at_y) = (x.place(dot.count), y.place(dot.time_ns));
        taken.push(Area {
            left: at_x - 6.0,
            top: at_y - 6.0,
            right: at_x + 6.0,
            bottom: at_y + 6.0,
        });
        marks.push_str(&mark(
            dot,
            (at_x, at_y),
            dot.before.map(|(count, time)| (x.place(count), y.place(time))),
        ));
    }
    svg.push_str(&marks);
    for dot in dots.iter().take(LABELS) {
        if let Some(label) = label(dot, (x.place(dot.count), y.place(dot.time_ns)), &mut taken) {
            svg.push_str(&label);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(x: Axis, y: Axis) -> String {
    let mut svg = String::new();
    for tick in x.ticks() {
        let at = x.place(tick);
        svg.push_str(&line(at, TOP, at, BOTTOM, "grid"));
        svg.push_str(&text(at, BOTTOM + 17.0, Anchor::Middle, "tick", &Quantity::Count.show(tick)));
    }
    for tick in y.ticks() {
        let at = y.place(tick);
        svg.push_str(&line(LEFT, at, RIGHT, at, "grid"));
        svg.push_str(&text(
            LEFT - 8.0,
            at + 4.0,
            Anchor::End,
            "tick",
            &Quantity::Time.show_round(tick),
        ));
    }
    svg.push_str(&text(RIGHT, BOTTOM + 36.0, Anchor::End, "tick", "calls"));
    svg.push_str(&text(6.0, TOP - 26.0, Anchor::Start, "tick", "time in them, all together"));
    svg
}

/// Draws the lines on which a call takes 1 µs, 10 µs, … and names them where they leave the picture.
fn iso_lines(x: Axis, y: Axis) -> String {
    let (xs, ys) = (x.values(), y.values());
    let mut svg = String::new();
    for power in 0..=10 {
        let each = 10_f64.powi(power);
        // Where the line enters and leaves the box.
        let from = xs.0.max(ys.0 / each);
        let to = xs.1.min(ys.1 / each);
        if to <= from * 1.5 {
            continue;
        }
        let (x1, y1, x2, y2) =
            (x.place(from), y.place(from * each), x.place(to), y.place(to * each));
        svg.push_str(&line(x1, y1, x2, y2, "iso"));
        let name = format!("{} each", Quantity::Time.show_round(each));
        if x2 > RIGHT - 1.0 {
            svg.push_str(&text(RIGHT + 5.0, y2 + 4.0, Anchor::Start, "tick iso-name", &name));
        } else if x2 > LEFT + 60.0 {
            svg.push_str(&text(x2, TOP - 5.0, Anchor::Middle, "tick iso-name", &name));
        }
    }
    svg
}

fn mark(dot: &Dot<'_>, at: (f64, f64), before: Option<(f64, f64)>) -> String {
    let mut svg = String::new();
    if let Some((from_x, from_y)) = before {
        let (dx, dy) = (at.0 - from_x, at.1 - from_y);
        let length = dx.hypot(dy);
        svg.push_str(&format!(
            "<circle cx=\"{from_x:.1}\" cy=\"{from_y:.1}\" r=\"3.5\" class=\"was {}\"/>\n",
            dot.class
        ));
        if length > 10.0 {
            // The arrow ends before the dot, so that its head is seen.
            let (ux, uy) = (dx / length, dy / length);
            let (tip_x, tip_y) = (at.0 - ux * 7.0, at.1 - uy * 7.0);
            let wing = |side: f64| {
                format!(
                    "L{:.1} {:.1}",
                    tip_x - ux * 8.0 - side * uy * 4.0,
                    tip_y - uy * 8.0 + side * ux * 4.0
                )
            };
            svg.push_str(&line(from_x, from_y, tip_x - ux * 4.0, tip_y - uy * 4.0, "arrow"));
            svg.push_str(&format!(
                "<path d=\"M{tip_x:.1} {tip_y:.1}{}{}z\" class=\"arrow-head\"/>\n",
                wing(1.0),
                wing(-1.0)
            ));
        }
    }
    svg.push_str(&format!(
        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" class=\"dot {}\" data-name=\"{}\"><title>{}</title></circle>\n",
        at.0,
        at.1,
        dot.class,
        escape(dot.name),
        escape(&format!(
            "{}: {:.0} calls, {}, {} each",
            dot.name,
            dot.count,
            Quantity::Time.show(dot.time_ns),
            Quantity::Time.show(dot.time_ns / dot.count)
        ))
    ));
    svg
}

/// Puts a name beside its dot where there is room; none where there is not.
fn label(dot: &Dot<'_>, at: (f64, f64), taken: &mut Vec<Area>) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "the length of a name")]
    let width = dot.name.chars().count() as f64 * LETTER;
    let (x, y) = at;
    let right = (x + 9.0, y + 4.0, Anchor::Start, x + 9.0);
    let left = (x - 9.0, y + 4.0, Anchor::End, x - 9.0 - width);
    let above = (x, y - 9.0, Anchor::Middle, x - width / 2.0);
    let below = (x, y + 18.0, Anchor::Middle, x - width / 2.0);
    for (text_x, text_y, anchor, start) in [right, left, above, below] {
        let area =
            Area { left: start, top: text_y - 11.0, right: start + width, bottom: text_y + 3.0 };
        let is_inside = area.left > LEFT
            && area.right < RIGHT
            && area.top > TOP - 8.0
            && area.bottom < BOTTOM + 2.0;
        // Its own dot is among the taken and beside it.
        if is_inside && !taken.iter().any(|other| area.meets(*other)) {
            taken.push(area);
            return Some(text(text_x, text_y, anchor, "label", dot.name));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(name: &'static str, count: f64, time_ns: f64) -> Dot<'static> {
        Dot { name, count, time_ns, class: "k-sync", before: None }
    }

    #[test]
    fn every_kind_is_a_dot_and_no_two_names_overlap() {
        let mut dots = vec![dot("fdatasync", 2.0, 134e6), dot("openat", 1375.0, 9e6)];
        // Twelve at the same place: there is no room to name them all.
        dots.extend([dot("same-place", 50.0, 1e6); 12]);
        dots.push(dot("never", 0.0, 0.0));
        let svg = render("Calls against time", &dots);
        assert_eq!(svg.matches("<circle").count(), 14);
        let named = svg.matches(">same-place</text>").count();
        assert!((1..12).contains(&named), "{named}");
        assert!(svg.contains("1 ms each") && !svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn two_runs_are_joined_by_arrows() {
        let moved = Dot { before: Some((40.0, 1e9)), ..dot("fsync", 2.0, 1e6) };
        let svg = render("x", &[moved, Dot { before: Some((2.0, 1e6)), ..dot("read", 2.0, 1e6) }]);
        assert_eq!(svg.matches("class=\"arrow-head\"").count(), 1, "what did not move has none");
        assert_eq!(svg.matches("class=\"was").count(), 2);
    }

    #[test]
    fn nothing_to_draw_is_an_empty_picture() {
        let svg = render("x", &[dot("odd", f64::NAN, f64::INFINITY)]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
