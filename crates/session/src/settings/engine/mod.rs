//! The settings engine: takes changes, decides what they change, has them made durable in batches, and says what to
//! answer in which order. Pure: it owns no thread, no socket and no clock.

mod answer;
mod job;
mod names;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::disk::Disk;

use super::changeset::Changeset;
use super::history::{Keep, Process};
use super::pacing::Pacing;
use crate::clock::Clock;

pub use answer::{Answer, ChangeError, ErrorKind, Report};
pub use job::{Job, JobDone, Listing};
pub use names::{DatabaseId, Kind, Places};

/// What can be chosen about an [`Engine`].
#[derive(Clone, Debug)]
pub struct Options {
    /// When replies to a chatty sender are delayed; `None` never does.
    pub pacing: Option<Pacing>,
    /// What the history keeps; `None` keeps no history.
    pub history: Option<Keep>,
    /// How many good generations of a `Writer` database are kept beside the live one.
    pub snapshots: usize,
    /// How long a `journal` database is left alone before its journal is folded into a checkpoint.
    pub checkpoint_idle: Duration,
    /// The journal size in bytes below which an idle checkpoint is not worth its writes.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pacing: Some(Pacing::default()),
            history: Some(Keep::default()),
            snapshots: 4,
            checkpoint_idle: Duration::from_secs(5),
            checkpoint_bytes: 64 << 10,
        }
    }
}

/// All databases of one user. `T` is what the caller needs to answer a request.
#[derive(Debug)]
pub struct Engine<T> {
    places: Places,
    options: Options,
    tag_prefix: String,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    token: std::marker::PhantomData<T>,
}

impl<T> Engine<T> {
    /// Makes an engine that has read nothing yet; tags start with `tag_prefix`, the unique bus name.
    #[must_use]
    pub fn new(
        places: Places,
        options: Options,
        tag_prefix: String,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Engine<T> {
        Engine { places, options, tag_prefix, disk, clock, token: std::marker::PhantomData }
    }

    /// Takes a `Change` call; it is answered through [`Engine::next_answer`].
    pub fn change(&mut self, id: &DatabaseId, changeset: Changeset, sender: &str, token: T) {
        let _ = (id, changeset, sender, token, &self.options, &self.tag_prefix, &self.clock);
        todo!()
    }

    /// Takes an `Init` call: makes sure that readers of a database that is not [`Kind::User`] find a file.
    pub fn init(&mut self, id: &DatabaseId, token: T) {
        let _ = (id, token);
        todo!()
    }

    /// Learns which process a sender is, for the history; may come after the sender's changes.
    pub fn identify(&mut self, sender: &str, process: Process) {
        let _ = (sender, process);
        todo!()
    }

    /// Learns that a watched file of a database changed. Our own changes may be told too; they are recognised.
    pub fn outside_edit(&mut self, id: &DatabaseId) {
        let _ = id;
        todo!()
    }

    /// Returns work for the disk thread, at most one at a time: `None` until the last one is [`Engine::finished`].
    pub fn next_job(&mut self) -> Option<Job> {
        todo!()
    }

    /// Takes the result of a job.
    pub fn finished(&mut self, done: JobDone) {
        let _ = done;
        todo!()
    }

    /// Returns the next message to send, in the exact order in which they are to be sent.
    pub fn next_answer(&mut self) -> Option<Answer<T>> {
        todo!()
    }

    /// Returns the next thing that the log should say.
    pub fn next_report(&mut self) -> Option<Report> {
        todo!()
    }

    /// Returns the monotonic time at which [`Engine::tick`] is due, if anything waits for time to pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        todo!()
    }

    /// Lets time pass: call at the deadline, then look for jobs and answers. Calling it early does no harm.
    pub fn tick(&mut self) {
        todo!()
    }

    /// Hurries everything that waits and folds the journals; go on as usual until [`Engine::is_idle`].
    pub fn begin_shutdown(&mut self) {
        todo!()
    }

    /// Says whether no request, job or answer is pending; after [`Engine::begin_shutdown`] also that all is stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        todo!()
    }

    /// Returns the work of finding the names of a kind's databases, for introspection. It may run on any thread.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Listing {
        let _ = (kind, &self.places, &self.disk);
        todo!()
    }

    /// Returns the files whose replacement the engine should be told of by [`Engine::outside_edit`].
    #[must_use]
    pub fn watched(&self) -> Vec<(PathBuf, DatabaseId)> {
        todo!()
    }

    /// Returns a number that grows whenever [`Engine::watched`] changes.
    #[must_use]
    pub fn watched_version(&self) -> u64 {
        todo!()
    }
}
