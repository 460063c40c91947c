//! Work for the disk thread.

/// One piece of blocking work.
#[derive(Debug)]
pub struct Job(());

/// The result of a [`Job`].
#[derive(Debug)]
pub struct JobDone(());

impl Job {
    /// Does the work. Blocks on the disk.
    #[must_use]
    pub fn run(self) -> JobDone {
        todo!()
    }
}

/// The work of finding the names of the databases of one kind.
#[derive(Debug)]
pub struct Listing(());

impl Listing {
    /// Returns the names, sorted. Blocks on the disk.
    #[must_use]
    pub fn run(self) -> Vec<String> {
        todo!()
    }
}
