//! Charts as inline SVG: no script, colours by class so that a page can be dark or light.

mod axis;
pub mod bars;
pub mod ratios;
pub mod samples;
pub mod scatter;
pub mod timeline;

use super::escape::escape;

/// The width of every chart in its own units, about pixels.
const WIDTH: f64 = 720.0;

/// Opens an SVG of this height with a title and a description for those who cannot see it.
fn open(height: f64, title: &str, description: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <title>{}</title>\n<desc>{}</desc>\n",
        escape(title),
        escape(description)
    )
}

/// Where a text stands at its point.
#[derive(Clone, Copy, Debug)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// Writes text at a point, in a class of the page.
fn text(x: f64, y: f64, anchor: Anchor, class: &str, content: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>\n",
        escape(content)
    )
}

/// Draws a line in a class of the page.
fn line(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> String {
    format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" class=\"{class}\"/>\n")
}

/// Draws a filled box in a class of the page.
fn rectangle(x: f64, y: f64, width: f64, height: f64, class: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>\n"
    )
}
