//! The connections of a bus, the names that they own and when, and their processes.

use foldhash::{HashMap, HashSet};

use super::texts::{Text, Texts};

pub use super::texts::DRIVER;

/// A connection, or a name whose owner is not known.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PeerId(u32);

impl PeerId {
    /// No connection: the receiver of a broadcast signal.
    pub const NONE: PeerId = PeerId(u32::MAX);

    /// Returns its place in [`Peers::all`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the id of the peer at this place of [`Peers::all`].
    #[must_use]
    pub fn at(index: usize) -> PeerId {
        PeerId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// A well-known name and when it was owned, in numbers of messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owned {
    /// The name.
    pub name: Text,
    /// The first message while it was owned.
    pub from: u32,
    /// The first message when it was not any more; `u32::MAX` while it is owned.
    pub until: u32,
}

/// A connection; without a unique name, whoever may own a well-known one.
#[derive(Clone, Debug)]
pub struct BusPeer {
    /// The bus it is on.
    pub bus: u16,
    /// The unique name; [`Text::NONE`] if only a well-known name was heard of.
    pub unique: Text,
    /// The well-known names, in the order in which they were owned.
    pub names: Vec<Owned>,
    /// The process.
    pub pid: Option<u32>,
    /// The user.
    pub uid: Option<u32>,
    /// The executable.
    pub executable: Text,
    /// The command line.
    pub command: Text,
    /// The id of the sandboxed application.
    pub application: Text,
    /// The first message after it came to the bus; 0 if it was there before the first one.
    pub came: u32,
    /// When it left the bus, in nanoseconds since the epoch.
    pub left_ns: Option<u64>,
    /// Whether it belongs to the recorder.
    pub is_recorder: bool,
}

/// All peers of a capture.
#[derive(Debug, Default)]
pub struct Peers {
    all: Vec<BusPeer>,
    /// By bus and unique name, or by bus and the well-known name whose owner is not known.
    by_name: HashMap<(u16, Text), PeerId>,
    /// Who had the name with this number the last time, and on which bus: hardly a name is on two.
    last: Vec<Option<(u16, PeerId)>>,
    /// Who owns a well-known name now; `None` if it is known that nobody does.
    owners: HashMap<(u16, Text), Option<PeerId>>,
    /// Buses of which all names were told.
    complete: Vec<u16>,
    /// Names that were told without their owners.
    listed: HashSet<(u16, Text)>,
}

impl Peers {
    /// Returns all of them, in the order in which they were first heard of.
    #[must_use]
    pub fn all(&self) -> &[BusPeer] {
        &self.all
    }

    /// Returns one.
    #[must_use]
    pub fn get(&self, peer: PeerId) -> Option<&BusPeer> {
        self.all.get(peer.index())
    }

    /// Returns the connection with this unique name, which may be new; an unnamed one without a bus.
    pub fn connection(&mut self, bus: u16, unique: Text) -> PeerId {
        if let Some(Some((on, peer))) = self.last.get(unique.index())
            && *on == bus
        {
            return *peer;
        }
        let peer = self.found(bus, unique);
        if self.last.len() <= unique.index() {
            self.last.resize(unique.index() + 1, None);
        }
        if let Some(last) = self.last.get_mut(unique.index()) {
            *last = Some((bus, peer));
        }
        peer
    }

    fn found(&mut self, bus: u16, unique: Text) -> PeerId {
        if let Some(peer) = self.by_name.get(&(bus, unique)) {
            return *peer;
        }
        let peer = PeerId::at(self.all.len());
        self.all.push(BusPeer {
            bus,
            unique,
            names: Vec::new(),
            pid: None,
            uid: None,
            executable: Text::NONE,
            command: Text::NONE,
            application: Text::NONE,
            came: 0,
            left_ns: None,
            is_recorder: false,
        });
        self.by_name.insert((bus, unique), peer);
        peer
    }

    /// Returns whoever has this name: the connection, or the owner as far as it is known.
    pub fn named(&mut self, bus: u16, name: Text, texts: &Texts) -> PeerId {
        if is_unique(texts.get(name)) {
            return self.connection(bus, name);
        }
        if let Some(Some(owner)) = self.owners.get(&(bus, name)) {
            return *owner;
        }
        if let Some(peer) = self.by_name.get(&(bus, name)) {
            return *peer;
        }
        let peer = self.connection(bus, name);
        if let Some(fresh) = self.all.get_mut(peer.index()) {
            // The bus itself is a peer as others are; of others only the name is known.
            if name != Text::BUS {
                fresh.unique = Text::NONE;
            }
            fresh.names.push(Owned { name, from: 0, until: u32::MAX });
        }
        peer
    }

    /// Records that `peer` owns a name from the message `at` on.
    pub fn owns(&mut self, bus: u16, name: Text, peer: PeerId, at: u32) {
        if self.owners.get(&(bus, name)) == Some(&Some(peer)) {
            return;
        }
        self.loses(bus, name, at);
        self.owners.insert((bus, name), Some(peer));
        if let Some(owner) = self.all.get_mut(peer.index()) {
            owner.names.push(Owned { name, from: at, until: u32::MAX });
        }
    }

    /// Records that nobody owns a name from the message `at` on.
    pub fn loses(&mut self, bus: u16, name: Text, at: u32) {
        let before = self.owners.insert((bus, name), None);
        let owner = before.flatten().and_then(|peer| self.all.get_mut(peer.index()));
        let Some(owner) = owner else { return };
        for owned in owner.names.iter_mut().filter(|owned| owned.name == name) {
            owned.until = owned.until.min(at);
        }
    }

    /// Records that a connection came to the bus with the message `at`.
    pub fn comes(&mut self, bus: u16, unique: Text, at: u32) {
        let peer = self.connection(bus, unique);
        if let Some(fresh) = self.all.get_mut(peer.index()) {
            fresh.came = at;
        }
    }

    /// Records that a connection left the bus, in nanoseconds since the epoch.
    pub fn leaves(&mut self, bus: u16, unique: Text, at_ns: u64) -> PeerId {
        let peer = self.connection(bus, unique);
        if let Some(left) = self.all.get_mut(peer.index()) {
            left.left_ns = Some(at_ns);
        }
        peer
    }

    /// Says who a connection is on the machine; what is not known stays as it was.
    pub fn describe(&mut self, peer: PeerId, about: ProcessIdentity) {
        let Some(peer) = self.all.get_mut(peer.index()) else { return };
        peer.pid = about.pid.or(peer.pid);
        peer.uid = about.uid.or(peer.uid);
        if about.executable.is_some() {
            peer.executable = about.executable;
        }
        if about.command.is_some() {
            peer.command = about.command;
        }
        if about.application.is_some() {
            peer.application = about.application;
        }
    }

    /// Records that all names of a bus have been told: one that was not has no owner.
    pub fn complete(&mut self, bus: u16) {
        if !self.complete.contains(&bus) {
            self.complete.push(bus);
        }
    }

    /// Records that the bus listed a name.
    pub fn lists(&mut self, bus: u16, name: Text, texts: &Texts) {
        if is_unique(texts.get(name)) {
            self.connection(bus, name);
        } else if self.owner(bus, name).is_none() {
            self.owners.remove(&(bus, name));
            self.listed.insert((bus, name));
        }
    }

    /// Records that a connection owns these names and no other from the message `at` on.
    pub fn only(&mut self, bus: u16, peer: PeerId, names: &[Text], at: u32) {
        let Some(owner) = self.all.get(peer.index()) else { return };
        let owned = owner.names.iter().filter(|owned| owned.until == u32::MAX);
        let lost: Vec<Text> =
            owned.map(|owned| owned.name).filter(|name| !names.contains(name)).collect();
        for name in lost {
            if self.owner(bus, name) == Some(peer) {
                self.loses(bus, name, at);
            }
        }
    }

    /// Records that a connection belongs to the recorder.
    pub fn is_recorder(&mut self, peer: PeerId) {
        if let Some(peer) = self.all.get_mut(peer.index()) {
            peer.is_recorder = true;
        }
    }

    /// Returns the owner of a well-known name.
    #[must_use]
    pub fn owner(&self, bus: u16, name: Text) -> Option<PeerId> {
        self.owners.get(&(bus, name)).copied().flatten()
    }

    /// Returns whether it is known that nobody owns a name.
    #[must_use]
    pub(crate) fn is_unowned(&self, bus: u16, name: Text) -> bool {
        match self.owners.get(&(bus, name)) {
            Some(owner) => owner.is_none(),
            None => self.complete.contains(&bus) && !self.listed.contains(&(bus, name)),
        }
    }

    /// Returns the connection that a peer turned out to be: of a name without a known owner, who owned it later.
    #[must_use]
    pub fn identity(&self, peer: PeerId) -> PeerId {
        match self.get(peer) {
            Some(BusPeer { bus, unique: Text::NONE, names, .. }) => {
                let owner = names.first().and_then(|owned| self.owner(*bus, owned.name));
                owner.unwrap_or(peer)
            }
            _ => peer,
        }
    }

    /// Returns what a peer is called in every capture: as [`Peers::label`], but without the number that a bus gives.
    #[must_use]
    pub fn service(&self, peer: PeerId, texts: &Texts) -> String {
        let label = self.label(peer, texts);
        match label.split_once(" :") {
            Some((program, _)) => program.to_owned(),
            None if is_unique(&label) => "(a program)".to_owned(),
            None => label,
        }
    }

    /// Returns what a peer is called: its first well-known name, its program, or its unique name.
    #[must_use]
    pub fn label(&self, peer: PeerId, texts: &Texts) -> String {
        let Some(peer) = self.get(peer) else { return "everybody".to_owned() };
        if let Some(owned) = peer.names.first() {
            return texts.get(owned.name).to_owned();
        }
        let unique = texts.get(peer.unique);
        if peer.application.is_some() {
            return format!("{} {unique}", texts.get(peer.application));
        }
        match texts.get(peer.executable).rsplit('/').next() {
            Some(program) if !program.is_empty() => format!("{program} {unique}"),
            _ if unique.is_empty() => "(no name)".to_owned(),
            _ => unique.to_owned(),
        }
    }
}

/// Who a connection is on the machine, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessIdentity {
    /// The process.
    pub pid: Option<u32>,
    /// The user.
    pub uid: Option<u32>,
    /// The executable.
    pub executable: Text,
    /// The command line.
    pub command: Text,
    /// The id of the sandboxed application.
    pub application: Text,
}

/// Returns whether a bus name is one that the bus gave a connection.
#[must_use]
pub(crate) fn is_unique(name: &str) -> bool {
    name.starts_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_followed_from_owner_to_owner() {
        let (mut peers, mut texts) = (Peers::default(), Texts::default());
        let name = texts.keep("org.example.A");
        let (one, two) = (texts.keep(":1.1"), texts.keep(":1.2"));
        let unknown = peers.named(0, name, &texts);
        assert!(!peers.is_unowned(0, name), "nothing was told yet");
        let (one, two) = (peers.connection(0, one), peers.connection(0, two));
        peers.owns(0, name, one, 5);
        assert_eq!(peers.named(0, name, &texts), one);
        peers.owns(0, name, two, 9);
        assert_eq!(peers.named(0, name, &texts), two);
        assert_eq!(peers.all()[one.index()].names, [Owned { name, from: 5, until: 9 }]);
        peers.loses(0, name, 12);
        assert!(peers.is_unowned(0, name));
        assert_eq!(peers.named(0, name, &texts), unknown);
        assert_eq!(peers.label(two, &texts), "org.example.A");
        // Another bus has names of its own.
        assert_ne!(peers.named(1, name, &texts), unknown);
    }

    #[test]
    fn where_all_names_were_told_another_has_no_owner() {
        let (mut peers, mut texts) = (Peers::default(), Texts::default());
        let name = texts.keep("org.example.A");
        peers.complete(0);
        assert!(peers.is_unowned(0, name) && !peers.is_unowned(1, name));
    }

    #[test]
    fn a_connection_without_a_name_is_called_after_its_program() {
        let (mut peers, mut texts) = (Peers::default(), Texts::default());
        let unique = texts.keep(":1.7");
        let peer = peers.connection(0, unique);
        assert_eq!(peers.label(peer, &texts), ":1.7");
        let executable = texts.keep("/usr/bin/kate");
        let about = ProcessIdentity { pid: Some(1), executable, ..ProcessIdentity::default() };
        peers.describe(peer, about);
        assert_eq!(peers.label(peer, &texts), "kate :1.7");
    }
}
