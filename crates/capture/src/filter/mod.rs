//! Which messages: words that are joined by `and`, `or` and `not`, and that follow services through their replies.
//!
//! A service is matched by whichever connection owned its name when the message was sent. An answer has the object,
//! interface and member of its call, and a call has the latency and the error of its answer: both ends of a call are
//! chosen together. docs/bus.md has the language.

mod glob;
mod parse;
#[cfg(test)]
mod tests;

pub use parse::FilterError;
pub(crate) use parse::nanoseconds;

pub(crate) use self::glob::Glob;
use super::model::peers::{BusPeer, PeerId};
use super::model::texts::Text;
use super::model::{Model, Row};
use wire::MessageType;

/// A condition on messages.
#[derive(Clone, Debug)]
pub struct Filter(Node);

/// A condition and its parts.
#[derive(Clone, Debug)]
enum Node {
    Every,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    From(Glob),
    To(Glob),
    With(Glob),
    Interface(Glob),
    Member(Glob),
    Path(Glob),
    Kind(MessageType),
    Unanswered,
    Pid(u32),
    App(Glob),
    Bus(Glob),
    SlowerThan(u64),
    Error(Glob),
    Word(String),
}

impl Default for Filter {
    /// Chooses every message.
    fn default() -> Filter {
        Filter(Node::Every)
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        parse::parse(text).map(Filter)
    }
}

impl Filter {
    /// Returns whether it chooses every message.
    #[must_use]
    pub fn is_every(&self) -> bool {
        matches!(self.0, Node::Every)
    }

    /// Returns whether the selection may change without a new message, because time passes.
    #[must_use]
    pub(crate) fn depends_on_time(&self) -> bool {
        self.0.depends_on_time()
    }

    /// Returns whether it chooses this message of the model.
    #[must_use]
    pub fn chooses(&self, model: &Model, number: u32) -> bool {
        let Some(row) = model.row(number) else { return false };
        MessageFacts { model, row, named: model.named(row), number }.fits(&self.0)
    }
}

impl Node {
    fn depends_on_time(&self) -> bool {
        match self {
            Node::And(parts) | Node::Or(parts) => parts.iter().any(Node::depends_on_time),
            Node::Not(part) => part.depends_on_time(),
            Node::SlowerThan(_) => true,
            _ => false,
        }
    }
}

/// A message that is matched.
#[derive(Clone, Copy)]
struct MessageFacts<'a> {
    model: &'a Model,
    row: &'a Row,
    /// The message that names the member.
    named: &'a Row,
    number: u32,
}

impl MessageFacts<'_> {
    fn fits(self, node: &Node) -> bool {
        match node {
            Node::Every => true,
            Node::And(parts) => parts.iter().all(|part| self.fits(part)),
            Node::Or(parts) => parts.iter().any(|part| self.fits(part)),
            Node::Not(part) => !self.fits(part),
            Node::From(service) => self.is_from(service),
            Node::To(service) => self.is_to(service),
            Node::With(service) => self.is_from(service) || self.is_to(service),
            Node::Interface(glob) => glob.fits(self.text(self.named.interface)),
            Node::Member(glob) => self.is_member(glob),
            Node::Path(glob) => glob.fits(self.text(self.named.path)),
            Node::Kind(kind) => self.row.kind == *kind,
            Node::Unanswered => self.model.is_unanswered(self.row),
            Node::Pid(pid) => self.either(|peer| peer.pid == Some(*pid)),
            Node::App(glob) => self.either(|peer| self.is_app(peer, glob)),
            Node::Bus(glob) => {
                glob.fits(&self.model.bus_label(self.row.bus))
                    || glob.fits(&self.row.bus.to_string())
            }
            Node::SlowerThan(ns) => self.model.is_slower_than(self.row, *ns),
            Node::Error(glob) => {
                let error = match self.row.kind {
                    MessageType::Call => {
                        self.model.partner(self.row).map_or(Text::NONE, |row| row.error)
                    }
                    _ => self.row.error,
                };
                error.is_some() && glob.fits(self.text(error))
            }
            Node::Word(word) => self.has(word),
        }
    }

    fn text(&self, text: Text) -> &str {
        self.model.texts.get(text)
    }

    fn is_member(&self, glob: &Glob) -> bool {
        let member = self.text(self.named.member);
        if !glob.has_dot() {
            return glob.fits(member);
        }
        glob.fits(&format!("{}.{member}", self.text(self.named.interface)))
    }

    fn is_from(&self, service: &Glob) -> bool {
        let is_answer = matches!(self.row.kind, MessageType::Return | MessageType::Error);
        // An answer comes from whom the call was sent to, whatever is known of names.
        let was_called = is_answer
            && !self.model.is_from_bus(self.row)
            && self.named.kind == MessageType::Call
            && self.fits_text(service, self.named.destination);
        was_called || self.is_called(self.row.sender, service)
    }

    fn is_to(&self, service: &Glob) -> bool {
        self.fits_text(service, self.row.destination)
            || self.is_called(self.row.receiver, service)
            || self.model.hearers(self.row).iter().any(|peer| self.is_called(*peer, service))
    }

    fn fits_text(&self, glob: &Glob, text: Text) -> bool {
        text.is_some() && glob.fits(self.text(text))
    }

    /// Returns whether a connection had this name, or one that fits, when the message was sent.
    fn is_called(&self, peer: PeerId, service: &Glob) -> bool {
        let Some(peer) = self.model.peers.get(peer) else { return false };
        let mut names = peer.names.iter();
        self.fits_text(service, peer.unique)
            || names.any(|owned| {
                owned.from <= self.number
                    && self.number < owned.until
                    && self.fits_text(service, owned.name)
            })
    }

    fn is_app(&self, peer: &BusPeer, glob: &Glob) -> bool {
        let executable = self.text(peer.executable);
        let program = executable.rsplit('/').next().unwrap_or_default();
        self.fits_text(glob, peer.application)
            || (!executable.is_empty() && (glob.fits(executable) || glob.fits(program)))
    }

    fn either(&self, is: impl Fn(&BusPeer) -> bool) -> bool {
        let ends = [self.row.sender, self.row.receiver];
        ends.into_iter().filter_map(|peer| self.model.peers.get(peer)).any(is)
    }

    /// Searches a word in all visible parts of a message.
    fn has(&self, word: &str) -> bool {
        let texts = [
            self.named.interface,
            self.named.member,
            self.named.path,
            self.row.error,
            self.row.destination,
        ];
        texts.into_iter().any(|text| contains(self.text(text), word))
            || [self.row.sender, self.row.receiver]
                .into_iter()
                .filter_map(|peer| self.model.peers.get(peer))
                .any(|peer| {
                    let names = peer.names.iter().map(|owned| owned.name);
                    names
                        .chain([peer.unique, peer.executable, peer.application])
                        .any(|name| contains(self.text(name), word))
                })
    }
}

/// Searches a lower-case word, ignoring the case of the text.
fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    text.windows(word.len().max(1)).any(|part| part.eq_ignore_ascii_case(word))
}
