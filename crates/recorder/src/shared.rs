//! What all connections of the service share.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::SystemClock;

use crate::access::AccessPolicy;
use crate::quota::Quota;

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Who may use it.
    pub access: AccessPolicy,
    /// It ends when nobody was connected for so long.
    pub idle: Duration,
}

impl Default for ServiceOptions {
    /// polkit decides; the end after a minute.
    fn default() -> ServiceOptions {
        ServiceOptions { access: AccessPolicy::default(), idle: Duration::from_secs(60) }
    }
}

/// Writes a line to the log.
pub type LogLine<'a> = &'a (dyn Fn(&str) + Sync);

/// What all connections share.
pub(crate) struct Shared<'a> {
    pub(crate) options: &'a ServiceOptions,
    pub(crate) quota: Arc<Quota>,
    pub(crate) clock: SystemClock,
    pub(crate) log: LogLine<'a>,
}
