//! The interface between a client and a bus, so that the client does not depend on D-Bus.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::profile::ProfileBus;

/// Carries calls to the service and signals from it.
///
/// All calls of one transport use one connection to each bus, and messages are passed on in the order in which they
/// arrived: the service answers a change before it sends the signal, by which a client recognises its own changes.
pub trait Transport: Debug + Send + Sync {
    /// Sends `Change(body)` to an object of the service and returns at once; `done` is called exactly once.
    ///
    /// `done` is called without any lock of the transport held; it may call the transport again.
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion);

    /// Calls `Init` of an object and waits for the answer.
    ///
    /// # Errors
    ///
    /// The service did not answer or refused; the file may be missing.
    fn init(&self, object_path: &str) -> Result<(), TransportError>;

    /// Delivers signals of an object that concern `path` until the result is dropped, beginning before this returns.
    ///
    /// # Errors
    ///
    /// There is no such bus, it refused, or the transport delivers no signals, as unless it says otherwise; nothing will be
    /// delivered.
    fn watch(
        &self,
        bus: ProfileBus,
        object_path: &str,
        path: &str,
        deliver: Deliver,
    ) -> Result<SignalDelivery, TransportError> {
        let _ = (bus, object_path, path, deliver);
        Err(TransportError { text: "this connection delivers no signals".to_owned() })
    }
}

/// Takes the tag of a change, or why it failed.
pub type ChangeCompletion = Box<dyn FnOnce(Result<String, TransportError>) + Send>;
/// Takes signals.
pub type Deliver = Arc<dyn Fn(DatabaseSignal) + Send + Sync>;
/// Ends the delivery of signals when it is dropped.
pub type SignalDelivery = Box<dyn Any + Send + Sync>;

/// A signal of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseSignal {
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

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransportError {
    /// The message, for people.
    pub text: String,
}

/// The transport of a program without a bus: reading works, and changes fail with a reason.
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
    fn change(&self, _object_path: &str, _body: Vec<u8>, done: ChangeCompletion) {
        done(Err(NoBus::error()));
    }

    fn init(&self, _object_path: &str) -> Result<(), TransportError> {
        Err(NoBus::error())
    }

    fn watch(
        &self,
        _bus: ProfileBus,
        _object_path: &str,
        _path: &str,
        _deliver: Deliver,
    ) -> Result<SignalDelivery, TransportError> {
        Err(NoBus::error())
    }
}
