//! Who is on a bus: asked when the recording begins, and followed as connections and names come and go.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::connection::Connection;
use super::reader::Times;
use super::ring::{Item, Ring};
use super::{RecordError, process};
use crate::bus::capture::{Peer, Role};
use crate::bus::wire::body::{self, Value};
use crate::bus::wire::write::{Draft, Marshal};
use crate::bus::wire::{self, Endian, Kind};

/// What tells of names that come and go.
const CHANGES: &str = "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged'";
/// So many questions are under way at once.
const AT_ONCE: usize = 64;

/// A connection of our own that knows who is on the bus.
#[derive(Debug)]
pub struct Follower {
    connection: Connection,
    bus: u16,
    peers: BTreeMap<String, Peer>,
    /// The owner of each well-known name.
    owners: HashMap<String, String>,
    /// What each question that is not answered yet asks for.
    asked: HashMap<u32, Question>,
    /// Those that are asked next.
    next: Vec<Question>,
    /// Who is new or has changed since it was last told.
    changed: BTreeSet<String>,
    gone: Vec<Peer>,
}

#[derive(Clone, Debug)]
enum Question {
    /// The names on the bus.
    Names,
    /// Who owns a well-known name.
    Owner(String),
    /// Which process a connection belongs to.
    Credentials(String),
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Follower {
    /// Connects to the bus at an address, to be number `bus` of the record, asks who is there, and hears of changes
    /// from now on.
    ///
    /// With a monitor attached before, the questions and answers are among the messages of the record.
    ///
    /// # Errors
    ///
    /// There is no bus, or it does not let us.
    pub fn connect(address: &str, bus: u16) -> Result<Follower, RecordError> {
        let mut connection = Connection::open(address)?;
        connection.add_match(CHANGES)?;
        let mut follower = Follower {
            connection,
            bus,
            peers: BTreeMap::new(),
            owners: HashMap::new(),
            asked: HashMap::new(),
            next: vec![Question::Names],
            changed: BTreeSet::new(),
            gone: Vec::new(),
        };
        follower.ask_more()?;
        while !follower.asked.is_empty() {
            follower.hear(0)?;
        }
        Ok(follower)
    }

    /// Returns what ends [`Follower::run`] from another thread.
    pub(super) fn handle(&self) -> Result<UnixStream, RecordError> {
        self.connection.wait_for_ever().map_err(|source| RecordError::Broken {
            address: self.connection.address().to_owned(),
            source,
        })
    }

    /// Tells of changes until the connection ends.
    pub(super) fn run(mut self, ring: &Arc<Ring>, times: &Times) {
        // Whatever ends the connection ends this; the messages go on.
        while self.hear(times.now()).is_ok() {
            if self.asked.is_empty() {
                let news = self.news(times.now());
                if !news.is_empty() {
                    ring.put(Item::Peers(news));
                }
            }
        }
    }

    /// Returns who is new, has changed or has gone.
    pub(super) fn news(&mut self, now: u64) -> Vec<Peer> {
        let mut news = std::mem::take(&mut self.gone);
        for unique in std::mem::take(&mut self.changed) {
            if let Some(peer) = self.peers.get(&unique) {
                news.push(Peer { at: now, ..peer.clone() });
            }
        }
        news
    }

    fn ask_more(&mut self) -> Result<(), RecordError> {
        while self.asked.len() < AT_ONCE {
            let Some(question) = self.next.pop() else { break };
            let (member, argument) = match &question {
                Question::Names => ("ListNames", None),
                Question::Owner(name) => ("GetNameOwner", Some(name)),
                Question::Credentials(name) => ("GetConnectionCredentials", Some(name)),
            };
            let mut body = Marshal::new(Endian::Little);
            argument.iter().for_each(|name| body.text(name));
            let body = body.bytes();
            let signature = if body.is_empty() { "" } else { "s" };
            let draft = Draft { signature, body: &body, ..Draft::to_bus(0, member) };
            let serial = self.connection.send(&draft)?;
            self.asked.insert(serial, question);
        }
        Ok(())
    }

    /// Waits for the next message and takes in what it says.
    fn hear(&mut self, now: u64) -> Result<(), RecordError> {
        let bytes = self.connection.next()?;
        // A bus that talks nonsense is not worth an end.
        let Ok(header) = wire::message(&bytes) else { return Ok(()) };
        if header.kind == Kind::Signal && header.member == Some("NameOwnerChanged") {
            let texts: Vec<String> = body::values(&header)
                .map_while(|value| match value {
                    Ok(Value::Text(text)) => Some(text.to_owned()),
                    _ => None,
                })
                .collect();
            if let [name, old, new] = &texts[..] {
                self.change(name, old, new, now);
            }
        } else if let Some(question) =
            header.reply_serial.and_then(|serial| self.asked.remove(&serial.get()))
        {
            let value = body::values(&header).next().and_then(Result::ok);
            let is_answer = header.kind == Kind::Return;
            self.answer(question, value.filter(|_| is_answer));
        }
        self.ask_more()
    }

    fn answer(&mut self, question: Question, value: Option<Value<'_>>) {
        match (question, value) {
            (Question::Names, Some(Value::Array(names))) => {
                for name in names.items().flatten() {
                    match name {
                        Value::Text(unique) if unique.starts_with(':') => self.add(unique),
                        Value::Text(name) if name != "org.freedesktop.DBus" => {
                            self.next.push(Question::Owner(name.to_owned()));
                        }
                        _ => {}
                    }
                }
            }
            (Question::Owner(name), Some(Value::Text(owner))) => self.own(&name, owner),
            (Question::Credentials(unique), Some(Value::Array(facts))) => {
                let Some(peer) = self.peers.get_mut(&unique) else { return };
                for fact in facts.items().flatten() {
                    let Value::Entry(entry) = fact else { continue };
                    if let (Value::Text(key), Value::Variant(_, value)) = *entry
                        && let Value::Uint32(number) = *value
                    {
                        match key {
                            "ProcessID" => peer.pid = Some(number),
                            "UnixUserID" => peer.uid = Some(number),
                            _ => {}
                        }
                    }
                }
                process::look(peer);
                self.changed.insert(unique);
            }
            // Who is gone by now has no owner and no credentials.
            _ => {}
        }
    }

    fn add(&mut self, unique: &str) {
        let role = if unique == self.connection.unique() { Role::Recorder } else { Role::Watched };
        let peer = Peer { bus: self.bus, unique: unique.to_owned(), role, ..Peer::default() };
        self.peers.insert(unique.to_owned(), peer);
        self.next.push(Question::Credentials(unique.to_owned()));
    }

    fn own(&mut self, name: &str, owner: &str) {
        if let Some(before) = self.owners.remove(name)
            && let Some(peer) = self.peers.get_mut(&before)
        {
            peer.names.retain(|owned| owned != name);
            self.changed.insert(before);
        }
        if owner.is_empty() {
            return;
        }
        if !self.peers.contains_key(owner) {
            self.add(owner);
        }
        if let Some(peer) = self.peers.get_mut(owner) {
            peer.names.push(name.to_owned());
            self.owners.insert(name.to_owned(), owner.to_owned());
            self.changed.insert(owner.to_owned());
        }
    }

    fn change(&mut self, name: &str, old: &str, new: &str, now: u64) {
        if !name.starts_with(':') {
            return self.own(name, new);
        }
        if !new.is_empty() {
            return self.add(new);
        }
        if let Some(peer) = self.peers.remove(old) {
            peer.names.iter().for_each(|name| drop(self.owners.remove(name)));
            self.changed.remove(old);
            self.gone.push(Peer { at: now, gone: true, ..peer });
        }
    }
}
