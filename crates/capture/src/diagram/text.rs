//! The diagram on a terminal or in a mail: a line a message, a column a connection.

use report::text::{Charset, columns as columns_of, visible};

use super::Diagram;
use crate::model::peers::PeerId;
use crate::stats::{gaps, time};
use report::table::cut;
use wire::MessageType;

/// Letters of a column, of which the last is the line.
const COLUMN: usize = 16;
/// So many connections have a column; messages of others have their names beside them.
const COLUMNS: usize = 6;
/// Letters of the time.
const TIME: usize = 12;

/// Writes the messages, a line each.
#[must_use]
pub fn text(diagram: &Diagram<'_>) -> String {
    let model = diagram.model;
    let columns = diagram.columns.len().min(COLUMNS);
    let mut out = String::new();
    let mut head = " ".repeat(TIME);
    for column in 0..columns {
        let (title, _) = diagram.title(column);
        let title = cut(&visible(&title, Charset::Unicode), COLUMN - 1);
        let pad = (COLUMN - 1).saturating_sub(columns_of(&title));
        head.push_str(&format!("{}{title}{} ", " ".repeat(pad / 2), " ".repeat(pad - pad / 2)));
    }
    let gaps = gaps(model.damaged, model.cut, &model.matched);
    if !gaps.is_empty() {
        out.push_str(gaps.trim_end());
        out.push('\n');
    }
    out.push_str(head.trim_end());
    out.push('\n');
    let middle = |column: usize| TIME + column * COLUMN + COLUMN / 2 - 1;
    let start_ns = diagram.rows().next().map_or(0, |(_, row)| row.at_ns);
    for (_, row) in diagram.rows() {
        let mut line: Vec<char> = vec![' '; TIME + columns * COLUMN];
        let after = std::time::Duration::from_nanos(row.at_ns.saturating_sub(start_ns));
        let at = format!("{:.6}", after.as_secs_f64());
        for (place, letter) in line.iter_mut().zip(at.chars()) {
            *place = letter;
        }
        for column in 0..columns {
            line[middle(column)] = '│';
        }
        let from = diagram.column(row.sender);
        let to = Some(row.receiver).filter(|peer| *peer != PeerId::NONE);
        let to = to.map(|peer| diagram.column(peer));
        let shown = |column: Option<usize>| column.filter(|column| *column < columns).map(middle);
        let stroke = match row.kind {
            MessageType::Call => '─',
            MessageType::Signal => '┄',
            _ => '╌',
        };
        match (shown(from), to) {
            (Some(from), Some(to)) => {
                if let Some(to) = shown(to) {
                    let (low, high) = (from.min(to), from.max(to));
                    line[low + 1..high].fill(stroke);
                    if to > from {
                        line[high - 1] = '▶';
                    } else if to < from {
                        line[low + 1] = '◀';
                    }
                }
            }
            (Some(from), None) => line[from] = '◉',
            (None, _) => (),
        }
        let named = model.named(row);
        let member = model.texts.get(named.member);
        let what = match row.kind {
            MessageType::Call => {
                let name = format!("{}.{member}", model.texts.get(named.interface));
                let name = name.trim_matches('.');
                match model.waited_ns(row) {
                    Some(waited) => format!("{name}  no answer in {}", time(waited)),
                    None => name.to_owned(),
                }
            }
            MessageType::Return => model.latency_ns(row).map_or("reply".to_owned(), time),
            MessageType::Error => format!(
                "{} {}",
                model.texts.get(row.error),
                model.latency_ns(row).map_or(String::new(), time)
            ),
            MessageType::Signal => format!("{}.{member}", model.texts.get(row.interface)),
            MessageType::Other(_) => "?".to_owned(),
        };
        let mut ends = String::new();
        if shown(from).is_none() || to.is_some_and(|to| shown(to).is_none()) {
            let label = |peer: PeerId| model.peers.label(peer, &model.texts);
            ends = format!("  {} → {}", label(row.sender), label(row.receiver));
        }
        let line: String = line.into_iter().collect();
        let line = format!("{line} {}{ends}", what.trim_matches(['.', ' ']));
        // Names in a record are what its writer wrote.
        out.push_str(&visible(&line, Charset::Unicode));
        out.push('\n');
    }
    for loss in &model.losses {
        out.push_str(&format!("{} messages are missing\n", loss.count));
    }
    out
}
