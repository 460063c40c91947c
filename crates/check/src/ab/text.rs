//! A comparison as text: the sentence, the figures, and the caveats.

use std::collections::BTreeSet;
use std::path::Path;

use super::Comparison;
use report::figure::{Quantity, duration};
use report::paint::{Paint, Tone};
use report::paragraph::wrap;

/// Summarises the effect of the change in one sentence: `0.64 s -> 0.16 s if these 2 fsync calls were free.`
#[must_use]
pub fn sentence(comparison: &Comparison) -> String {
    let change = condition(comparison);
    if comparison.with.is_empty() {
        return format!("Nothing to compare: the program makes no {}.", names(comparison));
    }
    let (without, with) = (comparison.without.median(), comparison.with.median());
    let show = |time| Quantity::Time.show(time);
    if !comparison.differs() {
        return format!("No difference is shown {change}: {} and {}.", show(without), show(with));
    }
    format!("{} -> {} {change}.", show(without), show(with))
}

/// Returns the clause of the change: `if these 2 fsync, fdatasync calls were free`.
fn condition(comparison: &Comparison) -> String {
    let change = &comparison.change;
    let mut parts = Vec::new();
    let (this, noun, was) = match comparison.matched {
        1 => ("this 1", "call", "was"),
        _ => ("these", "calls", "were"),
    };
    let count =
        if comparison.matched == 1 { String::new() } else { format!("{} ", comparison.matched) };
    if !change.skipped().is_empty() || !change.delayed().is_empty() {
        let mut what = format!("if {this} {count}{} {noun}", names(comparison));
        if let Some(pattern) = change.pattern() {
            what.push_str(&format!(" under {}", String::from_utf8_lossy(pattern)));
        }
        let by: BTreeSet<String> = change.delayed().iter().map(|(_, by)| duration(*by)).collect();
        let by = by.into_iter().collect::<Vec<_>>().join(" or ");
        what.push_str(&match (change.skipped().is_empty(), by.is_empty()) {
            (false, true) => format!(" {was} free"),
            (true, _) => format!(" took {by} longer"),
            (false, false) => format!(" {was} free or took {by} longer"),
        });
        parts.push(what);
    }
    let variables: Vec<String> = change
        .environment()
        .iter()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
        .collect();
    if !variables.is_empty() {
        parts.push(format!("with {}", variables.join(" ")));
    }
    parts.join(" and ")
}

/// Returns the names of the calls, each once.
fn names(comparison: &Comparison) -> String {
    let mut names: Vec<&str> = comparison.change.kinds().map(|kind| kind.name).collect();
    names.dedup();
    names.join(", ")
}

/// Writes the whole comparison for a screen of `width` columns.
#[must_use]
pub fn render(comparison: &Comparison, width: usize, paint: Paint) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&sentence(comparison), width, "").trim_end());
    text.push('\n');
    for line in details(comparison) {
        text.push_str(&wrap(&line, width, "  "));
    }
    for line in warnings(comparison) {
        text.push_str(&paint.set(Tone::Warn, wrap(&line, width, "").trim_end()));
        text.push('\n');
    }
    text
}

fn details(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    if !comparison.with.is_empty() {
        let spread = |samples| Quantity::Time.show_spread(samples);
        lines.push(format!("without  {}", spread(&comparison.without)));
        lines.push(format!("with     {}", spread(&comparison.with)));
        let interval = comparison.interval();
        lines.push(format!(
            "with / without = {:.3}, 95 % interval {:.3} … {:.3}; chance alone would differ as much with p {}",
            interval.ratio,
            interval.low,
            interval.high,
            chance(comparison.chance())
        ));
    }
    let held = comparison.held.median();
    if held > 0.0 {
        let gained = comparison.with.median() - comparison.without.median();
        lines.push(format!(
            "{} were added to a run and {} of each added second came out at its end: 1 is a call that everything waits for, 0 one that hides behind other work",
            Quantity::Time.show(held),
            // A run that was faster by chance does not owe time.
            format_args!("{:.2} s", (gained / held).max(0.0)),
        ));
    }
    let files: Vec<String> = comparison
        .files
        .iter()
        .take(5)
        .map(|(file, count)| {
            let name = file.as_deref().map_or("no file".into(), Path::to_string_lossy);
            format!("{count} x {name}")
        })
        .collect();
    if !files.is_empty() {
        let more = comparison.files.len().saturating_sub(files.len());
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        lines.push(format!("on {}{more}", files.join(", ")));
    }
    lines
}

/// Returns the caveats.
pub(super) fn warnings(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    if comparison.change.skips_syncs() && !comparison.with.is_empty() {
        let whose = if comparison.in_copies {
            "it was lost on copies alone"
        } else {
            "what those runs wrote may be lost in a power cut until the disk has it"
        };
        lines.push(format!(
            "Durability was off in the runs without these calls: {whose}. Whether the program may do without it is not for a clock to say."
        ));
    }
    if !comparison.same_end {
        lines.push("Runs with and without did not end alike: the change broke something, and the times are of different work.".to_owned());
    }
    for (ending, count) in &comparison.failures {
        lines.push(format!("{count} runs ended {ending}."));
    }
    if comparison.interrupted {
        lines.push("Interrupted: the rest was not run.".to_owned());
    }
    lines
}

/// Writes a probability: `0.031`, `< 0.001`.
fn chance(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("= {p:.3}") }
}
