//! What a D-Bus call asks of the owner of the state. No behaviour lives here.

use settings::engine::{DatabaseId, DatabaseKind};

use crate::raw::Caller;

/// Who is to be answered. Hand it back to [`crate::server::Server`] exactly once.
#[derive(Debug)]
pub struct ReplyTo(pub(crate) Caller);

impl ReplyTo {
    /// Returns the unique bus name of the sender; empty on a connection without a bus.
    #[must_use]
    pub fn sender(&self) -> &str {
        &self.0.sender
    }
}

/// The bytes of a `Change`, borrowed from the message that brought them.
#[derive(Debug)]
pub struct Blob(pub(crate) zbus::wire::serialized::Data<'static, 'static>);

impl Blob {
    /// Returns the bytes: an `a{smv}` that nobody has checked.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // The body of a message of type `ay`: the length, then the bytes.
        self.0.bytes().get(4..).unwrap_or_default()
    }
}

/// One call that the owner has to answer.
#[derive(Debug)]
pub enum BusRequest {
    /// `ca.desrt.dconf.Writer.Change`.
    Change {
        /// Receives the tag or the error.
        reply_to: ReplyTo,
        /// The database of the object that was called.
        database: DatabaseId,
        /// The changes.
        blob: Blob,
    },
    /// `ca.desrt.dconf.Writer.Init`.
    Init {
        /// Receives an empty reply or the error.
        reply_to: ReplyTo,
        /// The database of the object that was called.
        database: DatabaseId,
    },
    /// `ca.desrt.dconf.ServiceInfo.Blame`.
    Blame {
        /// Receives the text.
        reply_to: ReplyTo,
    },
    /// Introspection of the object that holds the databases of one kind.
    Names {
        /// Receives the names.
        reply_to: ReplyTo,
        /// Which databases.
        kind: DatabaseKind,
    },
}
