//! What a record of traffic says: messages, and what is known of the buses and connections around them.

use std::time::Duration;

/// A moment, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureTime(pub u64);

impl CaptureTime {
    /// Returns how long after `earlier` it is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: CaptureTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A message as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedMessage<'c> {
    /// When it came.
    pub at: CaptureTime,
    /// On which of the record's buses.
    pub bus: u16,
    /// How many bytes it had.
    pub length: u32,
    /// Its bytes, or as many as were recorded; see [`wire::message`].
    pub bytes: &'c [u8],
}

/// A bus that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CapturedBus {
    /// Its number in the record.
    pub bus: u16,
    /// What it is called: `session`, `system`, or nothing.
    #[serde(default)]
    pub name: String,
    /// Where it was, if that is known.
    #[serde(default)]
    pub address: String,
    /// The rules by which messages were chosen; none is all messages.
    #[serde(default)]
    pub rules: Vec<String>,
}

impl CapturedBus {
    /// A bus of which a record says nothing but that it is one.
    pub(crate) fn numbered(bus: u16) -> CapturedBus {
        CapturedBus { bus, ..CapturedBus::default() }
    }
}

/// What is known of a connection, from the moment `at` on. A later one with the same name takes the place of all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PeerRecord {
    /// Since when it is known, in nanoseconds since 1970.
    pub at: u64,
    /// On which bus.
    pub bus: u16,
    /// Its unique name.
    pub unique: String,
    /// The well-known names that it owns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The program of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// The command line of its process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The application that it belongs to: of a sandbox, or of a systemd scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// What it does here; connections of the recorder are told from others by it.
    #[serde(default)]
    pub role: ConnectionRole,
    /// Whether it has left the bus.
    #[serde(default)]
    pub gone: bool,
}

/// What a connection does in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionRole {
    /// It is what is being watched.
    #[default]
    Watched,
    /// It belongs to the recorder, which asks who the others are.
    Recorder,
}

/// Messages that came and are not in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Dropped {
    /// On which bus.
    pub bus: u16,
    /// How many.
    pub count: u64,
    /// How many bytes they had; 0 if that is not known.
    pub bytes: u64,
    /// When the first came, in nanoseconds since 1970.
    pub from: u64,
    /// When the last came.
    pub to: u64,
}

/// The end of the recording of a bus: until then, all that came is in the record or was counted as dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordingEnd {
    /// Which bus.
    pub bus: u16,
    /// When, in nanoseconds since 1970.
    pub at: u64,
}

/// A place in a record that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedSection {
    /// Where: bytes from the begin of the file.
    pub at: u64,
    /// What is wrong there.
    pub what: String,
}

/// What a record says, one thing after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureEvent<'c> {
    /// A bus is watched from here on; comes before anything else of that bus.
    Bus(Box<CapturedBus>),
    /// A connection is there, has changed, or has gone.
    Peer(Box<PeerRecord>),
    /// A message.
    Message(CapturedMessage<'c>),
    /// Messages are missing.
    Dropped(Dropped),
    /// The recording of a bus ended.
    End(RecordingEnd),
    /// Something cannot be read; what follows can, unless it is the end.
    Damaged(Box<DamagedSection>),
}
