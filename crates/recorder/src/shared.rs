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
    /// A session is ended when its client asked for nothing for so long: it is stopped, and every system call or every switch of the
    /// machine pays for it.
    pub quiet: Duration,
}

impl Default for ServiceOptions {
    /// polkit decides; the end after a minute, and of a session whose client is stopped after ten.
    fn default() -> ServiceOptions {
        ServiceOptions {
            access: AccessPolicy::default(),
            idle: Duration::from_secs(60),
            quiet: Duration::from_secs(600),
        }
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
