//! The diagram as a graph for Graphviz: senders, receivers and numbers of messages.

use std::collections::BTreeMap;

use report::text::{Charset, visible};

use super::Diagram;
use crate::model::peers::PeerId;
use crate::stats::{Times, time};
use wire::MessageType;

/// So many members are named beside an edge.
const MEMBERS: usize = 3;

#[derive(Debug, Default)]
struct Edge {
    members: BTreeMap<String, u64>,
    times: Vec<u64>,
    errors: u64,
}

/// Writes the graph: an edge for all calls, one for all signals from one connection to another.
#[must_use]
pub fn dot(diagram: &Diagram<'_>) -> String {
    let model = diagram.model;
    let mut edges: BTreeMap<(usize, usize, bool), Edge> = BTreeMap::new();
    for (_, row) in diagram.rows() {
        let is_call = row.kind == MessageType::Call;
        if !is_call && row.kind != MessageType::Signal {
            continue;
        }
        let Some(from) = diagram.column(row.sender) else { continue };
        let direct = Some(row.receiver).filter(|peer| *peer != PeerId::NONE);
        for to in direct.iter().chain(model.hearers(row)) {
            let Some(to) = diagram.column(*to) else { continue };
            let edge = edges.entry((from, to, is_call)).or_default();
            *edge.members.entry(model.texts.get(row.member).to_owned()).or_default() += 1;
            if let Some(answer) = model.partner(row).filter(|_| is_call) {
                edge.times.push(answer.at_ns.saturating_sub(row.at_ns));
                edge.errors += u64::from(answer.kind == MessageType::Error);
            }
        }
    }
    let mut out = "digraph bus {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n".to_owned();
    for column in 0..diagram.columns.len() {
        let (title, detail) = diagram.title(column);
        let label = format!("{}\\n{}", quoted(&title), quoted(&detail));
        out.push_str(&format!(
            "  c{column} [label=\"{label}\", tooltip=\"{}\"];\n",
            quoted(&diagram.about(column))
        ));
    }
    for ((from, to, is_call), mut edge) in edges {
        let count: u64 = edge.members.values().sum();
        let mut members: Vec<(String, u64)> = edge.members.into_iter().collect();
        members.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut label: Vec<String> = members
            .iter()
            .take(MEMBERS)
            .map(|(member, count)| format!("{count} × {}", quoted(member)))
            .collect();
        if members.len() > MEMBERS {
            label.push(format!("{} more", members.len() - MEMBERS));
        }
        if !edge.times.is_empty() {
            let times = Times::of(&mut edge.times);
            label.push(format!("p50 {}, longest {}", time(times.p50_ns), time(times.max_ns)));
        }
        if edge.errors > 0 {
            label.push(format!("{} errors", edge.errors));
        }
        let style = if is_call { "solid" } else { "dashed" };
        let colour = if edge.errors > 0 {
            "#d55e00"
        } else if is_call {
            "#0072b2"
        } else {
            "#009e73"
        };
        #[expect(clippy::cast_precision_loss, reason = "a line's width")]
        let width = 1.0 + (count as f64).log10();
        out.push_str(&format!(
            "  c{from} -> c{to} [label=\"{}\", style={style}, color=\"{colour}\", penwidth={width:.1}];\n",
            label.join("\\n")
        ));
    }
    out.push_str("}\n");
    out
}

/// Writes a text between double quotes as Graphviz reads it.
fn quoted(text: &str) -> String {
    visible(text, Charset::Unicode)
        .chars()
        .flat_map(|letter| {
            let escape = matches!(letter, '"' | '\\').then_some('\\');
            escape.into_iter().chain([letter])
        })
        .collect()
}
