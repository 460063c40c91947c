//! What a client needs of a bus: a trait, so that nothing here knows of D-Bus.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::settings::profile::Bus;

/// Carries calls to the service and signals from it.
///
/// All calls of one transport go over one connection to each bus, and what arrives is handed on in the order in which it
/// arrived: the service answers a change before it tells of it, and a client relies on that to know its own.
pub trait Transport: Debug + Send + Sync {
    /// Sends `Change(body)` to an object of the service and returns at once; `done` is called exactly once.
    ///
    /// `done` is called without any lock of the transport held; it may call the transport again.
    fn change(&self, object_path: &str, body: Vec<u8>, done: Done);

    /// Calls `Init` of an object and waits for the answer.
    ///
    /// # Errors
    ///
    /// The service did not answer or refused; the file may be missing.
    fn init(&self, object_path: &str) -> Result<(), TransportError>;

    /// Has signals of an object that touch `path` delivered until the result is dropped; they are when this returns.
    ///
    /// # Errors
    ///
    /// There is no such bus, or it refused; nothing will be delivered.
    fn watch(
        &self,
        bus: Bus,
        object_path: &str,
        path: &str,
        deliver: Deliver,
    ) -> Result<Watch, TransportError>;
}

/// Takes the tag of a change, or why it failed.
pub type Done = Box<dyn FnOnce(Result<String, TransportError>) + Send>;
/// Takes signals.
pub type Deliver = Arc<dyn Fn(Signal) + Send + Sync>;
/// Ends the delivery of signals when it is dropped.
pub type Watch = Box<dyn Any + Send + Sync>;

/// A signal of a database, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Values changed.
    Notify {
        /// A key, or a directory.
        prefix: String,
        /// What changed, relative to `prefix`.
        changes: Vec<String>,
        /// The tag that the answer to the change had.
        tag: String,
    },
    /// Locks and values may have changed at and below a path.
    Writability {
        /// A key, or a directory.
        path: String,
    },
}

/// Why the service did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransportError {
    /// What a person reads.
    pub text: String,
}

/// The transport of a program without a bus: reading works, changing says why it does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBus;

impl NoBus {
    fn error() -> TransportError {
        TransportError {
            text: "there is no bus on which the settings service could be reached".into(),
        }
    }
}

impl Transport for NoBus {
    fn change(&self, _object_path: &str, _body: Vec<u8>, done: Done) {
        done(Err(NoBus::error()));
    }

    fn init(&self, _object_path: &str) -> Result<(), TransportError> {
        Err(NoBus::error())
    }

    fn watch(
        &self,
        _bus: Bus,
        _object_path: &str,
        _path: &str,
        _deliver: Deliver,
    ) -> Result<Watch, TransportError> {
        Err(NoBus::error())
    }
}
