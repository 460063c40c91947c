//! The sequence diagram of a recording: one column for each service, one arrow for each message, time downwards.

mod data;
mod dot;
mod page;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashMap;

use data::LARGEST_BODIES;
pub use dot::dot;
pub use page::page;
pub use svg::picture;
pub use text::text;

use super::filter::Filter;
use super::model::peers::{DRIVER, PeerId};
use super::model::texts::Text;
use super::model::{Model, Row};
use super::readable;
use wire::Header;

/// So many bytes of each body are kept for the page.
const BODY: usize = 2000;

/// The messages that are drawn, and the columns between which they go.
#[derive(Debug)]
pub struct Diagram<'m> {
    model: &'m Model,
    numbers: Vec<u32>,
    columns: Vec<PeerId>,
    column_of: HashMap<PeerId, usize>,
}

impl<'m> Diagram<'m> {
    /// Chooses the messages; those of the recorder itself are left out.
    #[must_use]
    pub fn new(model: &'m Model, filter: &Filter) -> Diagram<'m> {
        let is_chosen = |number: &u32| {
            !model.is_recorders(*number) && (filter.is_every() || filter.chooses(model, *number))
        };
        let numbers: Vec<u32> = (model.first()..model.end()).filter(is_chosen).collect();
        let mut diagram =
            Diagram { model, numbers, columns: Vec::new(), column_of: HashMap::new() };
        for at in 0..diagram.numbers.len() {
            let Some(row) = model.row(diagram.numbers[at]) else { continue };
            for peer in [row.sender, row.receiver] {
                if peer != PeerId::NONE {
                    diagram.add(model.peers.identity(peer));
                }
            }
        }
        diagram
    }

    fn add(&mut self, peer: PeerId) {
        let next = self.columns.len();
        if *self.column_of.entry(peer).or_insert(next) == next {
            self.columns.push(peer);
        }
    }

    /// Returns how many messages are drawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns whether nothing is drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the messages in order.
    fn rows(&self) -> impl Iterator<Item = (u32, &Row)> {
        self.numbers.iter().filter_map(|number| Some((*number, self.model.row(*number)?)))
    }

    /// Returns the column of a peer.
    fn column(&self, peer: PeerId) -> Option<usize> {
        self.column_of.get(&self.model.peers.identity(peer)).copied()
    }

    /// Returns the heading of a column: the last part of its name, and the parts before it.
    fn title(&self, column: usize) -> (String, String) {
        let Some(peer) = self.columns.get(column) else { return Default::default() };
        let label = self.model.peers.label(*peer, &self.model.texts);
        let unique =
            self.model.peers.get(*peer).map_or("", |peer| self.model.texts.get(peer.unique));
        let several = self.model.buses.len() > 1;
        let bus = self.model.peers.get(*peer).map(|peer| self.model.bus_label(peer.bus));
        let bus = bus.filter(|_| several).map_or(String::new(), |bus| format!("{bus} "));
        if label == DRIVER {
            return ("the bus".to_owned(), bus);
        }
        if label == unique {
            return (label, bus);
        }
        match label.split_once(' ') {
            // A program and its unique name.
            Some((program, unique)) => (program.to_owned(), format!("{bus}{unique}")),
            None => match label.rsplit_once('.') {
                Some((front, name)) => (name.to_owned(), format!("{bus}{front}")),
                None => (label, format!("{bus}{unique}")),
            },
        }
    }

    /// Returns all that is known of a column's connection, on one line.
    fn about(&self, column: usize) -> String {
        let Some(peer) = self.columns.get(column).and_then(|peer| self.model.peers.get(*peer))
        else {
            return String::new();
        };
        let text = |text: Text| self.model.texts.get(text);
        let mut names: Vec<&str> = peer.names.iter().map(|owned| text(owned.name)).collect();
        names.dedup();
        let mut parts: Vec<String> = names.iter().take(6).map(|name| (*name).to_owned()).collect();
        if names.len() > 6 {
            parts.push(format!("and {} more names", names.len() - 6));
        }
        if peer.unique.is_some() && !names.contains(&text(peer.unique)) {
            parts.push(text(peer.unique).to_owned());
        }
        if peer.application.is_some() {
            parts.push(text(peer.application).to_owned());
        }
        if peer.executable.is_some() {
            parts.push(text(peer.executable).to_owned());
        }
        parts.extend(peer.pid.map(|pid| format!("process {pid}")));
        if parts.is_empty() { "(no name)".to_owned() } else { parts.join(" · ") }
    }
}

/// The decoded bodies of messages, stored while their bytes are available; each text once.
#[derive(Debug, Default)]
pub struct Bodies {
    texts: super::model::texts::Texts,
    of: Vec<Text>,
    bytes: usize,
    left_out: u64,
}

impl Bodies {
    /// Stores the body of the next message; to be called for each message of the model, in order.
    pub fn keep(&mut self, header: &Header<'_>) {
        if header.signature.is_empty() {
            self.of.push(Text::NONE);
            return;
        }
        if self.bytes >= LARGEST_BODIES {
            self.left_out += 1;
            self.of.push(Text::NONE);
            return;
        }
        let said = readable::body(header, &[], BODY);
        let before = self.texts.len();
        let text = self.texts.keep(said.trim_end());
        if self.texts.len() > before {
            self.bytes += said.len();
        }
        self.of.push(text);
    }
}
