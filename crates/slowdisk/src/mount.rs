//! A model disk that is mounted and served until it is unmounted.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use report::error::chain;
use sys::clock::SystemClock;

use super::disk::ModelDisk;
use super::profile::DiskProfile;
use super::queue::Queue;
use super::service::{self, DiskStatus};

/// What is to be served.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The kind of disk.
    pub profile: DiskProfile,
    /// Its size in bytes.
    pub size: u64,
    /// How its queue is set; `None` leaves it as the kernel made it.
    pub queue: Option<Queue>,
    /// Where it is mounted: an empty directory.
    pub point: PathBuf,
}

impl MountRequest {
    /// Makes the disk and serves it until it is unmounted or `stop` is set, with its control socket in `folder`. `ready` is called
    /// when it can be used, and returns whether it is still needed; `start_guard` starts the process that unmounts it when this one is
    /// killed.
    ///
    /// # Errors
    ///
    /// Why it could not be made, in a sentence; nothing is left.
    pub fn serve(
        &self,
        folder: &Path,
        stop: &AtomicBool,
        start_guard: &dyn Fn(&str) -> io::Result<OwnedFd>,
        ready: impl FnOnce(&DiskStatus) -> bool,
    ) -> Result<(), String> {
        let (mut listener, mut guarding) = (None, None);
        let clock = Arc::new(SystemClock::start());
        let made = ModelDisk::make_public(self.profile, self.size, &self.point, clock, |name| {
            listener = Some(service::listen(folder, name));
            guarding = start_guard(name).ok();
        });
        let disk = made.map_err(|error| chain(&error))?;
        let listener = listener.ok_or("there is no loop device")?;
        let listener =
            listener.map_err(|error| format!("listen in {}: {error}", folder.display()))?;
        if let Some(queue) = &self.queue {
            disk.set(queue).map_err(|error| format!("{error}, to {}", queue.scheduler))?;
        }
        disk.set_delays(true);
        let control_socket = service::control_socket(folder, disk.name());
        if ready(&service::status(&disk)) {
            service::serve(disk, &listener, stop, guarding, |disk| start_guard(disk.name()));
        }
        drop(listener);
        // The socket may have been removed already: the disk is unmounted all the same.
        let _ = fs::remove_file(control_socket);
        Ok(())
    }
}
