//! `ca.desrt.dconf`, called.

use std::num::NonZeroUsize;

use futures_util::StreamExt;
use zbus::{Message, MessageStream, Signature, Type};

use super::{BusClient, ClientError, read};

pub(super) const SERVICE: &str = "ca.desrt.dconf";
pub(super) const WRITER: &str = "ca.desrt.dconf.Writer";
/// Signals that may wait for a slow reader before its connection stops reading.
const WAITING: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

impl BusClient {
    /// Sends a serialised changeset to the object of a database and returns the tag.
    ///
    /// The database is durable when this returns. Several calls may be under way at once; they are
    /// applied in the order in which they were first polled.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`]: nothing changed, or the text says what did.
    pub async fn change(&self, object_path: &str, blob: &[u8]) -> Result<String, ClientError> {
        let reply = self.call(SERVICE, object_path, WRITER, "Change", &Bytes(blob)).await?;
        read(&reply, SERVICE)
    }

    /// Makes sure that the file of a database exists, as readers of a `service-db` need it.
    ///
    /// # Errors
    ///
    /// The file may not exist.
    pub async fn init(&self, object_path: &str) -> Result<(), ClientError> {
        self.call(SERVICE, object_path, WRITER, "Init", &()).await.map(|_| ())
    }

    /// Returns the text that `dconf blame` prints.
    ///
    /// # Errors
    ///
    /// There is no service, or blame is off.
    pub async fn blame(&self) -> Result<String, ClientError> {
        let reply = self
            .call(SERVICE, "/ca/desrt/dconf", "ca.desrt.dconf.ServiceInfo", "Blame", &())
            .await?;
        read(&reply, SERVICE)
    }

    /// Asks whether the service is there to answer; starts it if the bus can.
    ///
    /// # Errors
    ///
    /// It is not.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let peer = "org.freedesktop.DBus.Peer";
        self.call(SERVICE, "/ca/desrt/dconf", peer, "Ping", &()).await.map(|_| ())
    }

    /// Receives the signals of one database that touch `path`: a key, a directory or `/`.
    ///
    /// Subscribed when this returns, until the connection is closed. A subscription that is not read
    /// stops its connection once 1024 messages wait, so give a slow reader a connection of its own.
    ///
    /// # Errors
    ///
    /// There is no subscription.
    pub async fn subscribe(
        &self,
        object_path: &str,
        path: &str,
    ) -> Result<SignalStream, ClientError> {
        // zbus takes only object paths for `arg0path`, and a directory such as `/a/` is none.
        let mut stream = MessageStream::from(&self.connection);
        stream.set_max_queued(WAITING);
        if self.connection.is_bus() {
            let rule = format!(
                "type='signal',interface='{WRITER}',path='{object_path}',arg0path='{path}'"
            );
            self.ask_bus("AddMatch", &rule).await?;
        }
        Ok(SignalStream { stream, object_path: object_path.to_owned(), path: path.to_owned() })
    }

    /// Tells readers of a system database that it was compiled anew; nobody answers.
    ///
    /// # Errors
    ///
    /// The signal was not sent.
    pub async fn emit_writability(&self, object_path: &str, path: &str) -> Result<(), ClientError> {
        self.connection
            .emit_signal(None::<&str>, object_path, WRITER, "WritabilityNotify", &path)
            .await
            .map_err(super::refused)
    }
}

/// A signal of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DconfSignal {
    /// Values changed.
    Notify {
        /// A key, or a directory.
        prefix: String,
        /// What changed, relative to `prefix`; `[""]` if `prefix` itself.
        changes: Vec<String>,
        /// The tag that the reply to the change had; empty for a change from outside.
        tag: String,
    },
    /// Locks may have changed below a path.
    WritabilityNotify {
        /// A key, or a directory.
        path: String,
    },
}

/// Signals as they come.
#[derive(Debug)]
pub struct SignalStream {
    stream: MessageStream,
    object_path: String,
    path: String,
}

impl SignalStream {
    /// Waits for the next signal; `None` when the connection is gone. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<DconfSignal> {
        loop {
            let message = self.stream.next().await?.ok()?;
            if let Some(signal) = self.signal(&message) {
                return Some(signal);
            }
        }
    }

    fn signal(&self, message: &Message) -> Option<DconfSignal> {
        let header = message.header();
        if header.message_type() != zbus::message::Type::Signal
            || header.interface()?.as_str() != WRITER
            || header.path()?.as_str() != self.object_path
        {
            return None;
        }
        let body = message.body();
        match header.member()?.as_str() {
            "Notify" => {
                let (prefix, changes, tag): (String, _, _) = body.deserialize().ok()?;
                touches(&prefix, &self.path).then_some(DconfSignal::Notify { prefix, changes, tag })
            }
            "WritabilityNotify" => {
                let path: String = body.deserialize().ok()?;
                touches(&path, &self.path).then_some(DconfSignal::WritabilityNotify { path })
            }
            _ => None,
        }
    }
}

/// Says whether one of two paths is the other or a directory that holds it, as `arg0path` does.
pub(super) fn touches(one: &str, other: &str) -> bool {
    let holds = |dir: &str, path: &str| dir.ends_with('/') && path.starts_with(dir);
    one == other || holds(one, other) || holds(other, one)
}

/// Bytes that are written at once, not one by one.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Type for Bytes<'_> {
    const SIGNATURE: &'static Signature = &Signature::static_array(&Signature::U8);
}

impl serde::Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::touches;

    #[test]
    fn a_path_touches_itself_its_directories_and_what_it_holds() {
        assert!(touches("/a/b", "/a/b"));
        assert!(touches("/a/b", "/a/"));
        assert!(touches("/", "/a/b"));
        assert!(!touches("/a", "/a/b"), "a key holds nothing");
        assert!(!touches("/a/", "/ab"));
    }
}
