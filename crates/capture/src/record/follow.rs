//! Identifies the connections of a bus: queried when the recording begins, then updated from signals.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::connection::Connection;
use super::reader::Times;
use super::ring::{Ring, RingItem};
use super::{RecordError, process};
use crate::capture::{ConnectionRole, PeerRecord};
use wire::body::{self, BodyValue};
use wire::write::{Draft, Marshal};
use wire::{self, Endian, MessageType};

/// The match rule for changes of names.
const CHANGES: &str = "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged'";
/// The most queries that are pending at a time.
const AT_ONCE: usize = 64;

/// A connection that follows the other connections of the bus.
#[derive(Debug)]
pub struct Follower {
    connection: Connection,
    bus: u16,
    peers: BTreeMap<String, PeerRecord>,
    /// The owner of each well-known name.
    owners: HashMap<String, String>,
    /// The pending queries, by their serials.
    asked: HashMap<u32, PendingQuery>,
    /// The queries that are sent next.
    next: Vec<PendingQuery>,
    /// Connections that are new or have changed since the last report.
    changed: BTreeSet<String>,
    gone: Vec<PeerRecord>,
}

#[derive(Clone, Debug)]
enum PendingQuery {
    /// The names on the bus.
    Names,
    /// The owner of a well-known name.
    Owner(String),
    /// The process of a connection.
    Credentials(String),
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Follower {
    /// Connects to the bus at an address, which is number `bus` of the recording, queries its connections, and follows changes
    /// from now on.
    ///
    /// If a monitor is attached before, the recording contains the queries and answers.
    ///
    /// # Errors
    ///
    /// There is no bus, or it refuses.
    pub fn connect(address: &str, bus: u16) -> Result<Follower, RecordError> {
        let mut connection = Connection::open(address)?;
        connection.add_match(CHANGES)?;
        let mut follower = Follower {
            connection,
            bus,
            peers: BTreeMap::new(),
            owners: HashMap::new(),
            asked: HashMap::new(),
            next: vec![PendingQuery::Names],
            changed: BTreeSet::new(),
            gone: Vec::new(),
        };
        follower.ask_more()?;
        while !follower.asked.is_empty() {
            follower.hear(0)?;
        }
        Ok(follower)
    }

    /// Returns a handle by which another thread ends [`Follower::run`].
    pub(super) fn handle(&self) -> Result<UnixStream, RecordError> {
        self.connection.wait_for_ever().map_err(|source| RecordError::Broken {
            address: self.connection.address().to_owned(),
            source,
        })
    }

    /// Reports changes until the connection ends.
    pub(super) fn run(mut self, ring: &Arc<Ring>, times: &Times) {
        // Any error ends the follower only; the recording of messages continues.
        while self.hear(times.now()).is_ok() {
            if self.asked.is_empty() {
                let news = self.news(times.now());
                if !news.is_empty() {
                    ring.put(RingItem::Peers(news));
                }
            }
        }
    }

    /// Returns the connections that are new, changed or gone.
    pub(super) fn news(&mut self, now: u64) -> Vec<PeerRecord> {
        let mut news = std::mem::take(&mut self.gone);
        for unique in std::mem::take(&mut self.changed) {
            if let Some(peer) = self.peers.get(&unique) {
                news.push(PeerRecord { at: now, ..peer.clone() });
            }
        }
        news
    }

    fn ask_more(&mut self) -> Result<(), RecordError> {
        while self.asked.len() < AT_ONCE {
            let Some(question) = self.next.pop() else { break };
            let (member, argument) = match &question {
                PendingQuery::Names => ("ListNames", None),
                PendingQuery::Owner(name) => ("GetNameOwner", Some(name)),
                PendingQuery::Credentials(name) => ("GetConnectionCredentials", Some(name)),
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

    /// Waits for the next message and updates the connections from it.
    fn hear(&mut self, now: u64) -> Result<(), RecordError> {
        let bytes = self.connection.next()?;
        // An invalid answer of a bus is ignored.
        let Ok(header) = wire::message(&bytes) else { return Ok(()) };
        if header.kind == MessageType::Signal && header.member == Some("NameOwnerChanged") {
            let texts: Vec<String> = body::values(&header)
                .map_while(|value| match value {
                    Ok(BodyValue::Text(text)) => Some(text.to_owned()),
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
            let is_answer = header.kind == MessageType::Return;
            self.answer(question, value.filter(|_| is_answer));
        }
        self.ask_more()
    }

    fn answer(&mut self, question: PendingQuery, value: Option<BodyValue<'_>>) {
        match (question, value) {
            (PendingQuery::Names, Some(BodyValue::Array(names))) => {
                for name in names.items().flatten() {
                    match name {
                        BodyValue::Text(unique) if unique.starts_with(':') => self.add(unique),
                        BodyValue::Text(name) if name != "org.freedesktop.DBus" => {
                            self.next.push(PendingQuery::Owner(name.to_owned()));
                        }
                        _ => {}
                    }
                }
            }
            (PendingQuery::Owner(name), Some(BodyValue::Text(owner))) => self.own(&name, owner),
            (PendingQuery::Credentials(unique), Some(BodyValue::Array(facts))) => {
                let Some(peer) = self.peers.get_mut(&unique) else { return };
                for fact in facts.items().flatten() {
                    let BodyValue::Entry(entry) = fact else { continue };
                    if let (BodyValue::Text(key), BodyValue::Variant(_, value)) = *entry
                        && let BodyValue::Uint32(number) = *value
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
            // A connection that is gone by now has neither owner nor credentials.
            _ => {}
        }
    }

    fn add(&mut self, unique: &str) {
        let role = if unique == self.connection.unique() {
            ConnectionRole::Recorder
        } else {
            ConnectionRole::Watched
        };
        let peer =
            PeerRecord { bus: self.bus, unique: unique.to_owned(), role, ..PeerRecord::default() };
        self.peers.insert(unique.to_owned(), peer);
        self.next.push(PendingQuery::Credentials(unique.to_owned()));
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
            self.gone.push(PeerRecord { at: now, gone: true, ..peer });
        }
    }
}
