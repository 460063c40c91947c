//! A model disk, mounted: the file in user space, the loop device on it, a file system on that.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use session::clock::Clock;

use super::fuse::{Server, Traffic};
use super::profile::Profile;
use super::queue::{self, Queue};

/// Why there is no model disk. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A step failed for this reason.
    #[error("cannot {step} for a model disk")]
    Step {
        /// What was to be done.
        step: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// A program did not do its work.
    #[error("cannot run {program} for a model disk: {said}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        said: String,
    },
}

fn step(step: &'static str) -> impl FnOnce(io::Error) -> ModelError {
    move |source| ModelError::Step { step, source }
}

/// A mounted model disk. Dropping it takes all of it away.
#[derive(Debug)]
pub struct ModelDisk {
    directory: PathBuf,
    server: Option<Server>,
    loop_name: String,
    profile: Profile,
}

impl ModelDisk {
    /// Makes a disk of this kind and `size` bytes, in memory, and mounts an ext4 file system on it below `directory`, which is empty.
    ///
    /// The mounts are seen by this thread, and by those and the programs that it starts from now on, alone.
    ///
    /// # Errors
    ///
    /// It needs root, `/dev/fuse`, a free loop device, mkfs.ext4 and losetup.
    pub fn make(
        profile: Profile,
        size: u64,
        directory: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<ModelDisk, ModelError> {
        sys::supervise::own_mounts().map_err(step("make a mount namespace"))?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|error| step("keep mounts to itself")(error.into()))?;
        let (below, top) = (directory.join("below"), directory.join("disk"));
        for folder in [&below, &top] {
            fs::create_dir(folder).map_err(step("make a folder"))?;
        }
        let memory = memfd_create("model disk", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|error| step("find memory")(error.into()))?;
        memory.set_len(size).map_err(step("find memory"))?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(step("open /dev/fuse"))?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).map_err(|error| step("mount")(error.into()))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("unjank-model", &below, "fuse", flags, options.as_c_str())
            .map_err(|error| step("mount a file system in user space")(error.into()))?;
        let server = Server::start(device, memory, size, profile, clock);
        let mut disk = ModelDisk {
            directory: directory.to_owned(),
            server: Some(server.map_err(step("start threads"))?),
            loop_name: String::new(),
            profile,
        };
        let file = below.join("disk");
        let made = said("losetup", &["--find", "--show", "--direct-io=on"], &file)?;
        let node = PathBuf::from(made.trim());
        disk.loop_name =
            node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let rotational = if profile.is_rotational() { "1" } else { "0" };
        queue::put(&disk.loop_name, "rotational", rotational).map_err(step("set the queue"))?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        said("mkfs.ext4", &["-q", "-E", lazy], &node)?;
        let mounted = mount(&node, &top, "ext4", MountFlags::empty(), None);
        mounted.map_err(|error| step("mount ext4")(error.into()))?;
        // From now on it goes with its last user, which is the mount.
        said("losetup", &["--detach"], &node)?;
        Ok(disk)
    }

    /// Returns where its file system is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join("disk")
    }

    /// Returns its kind.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the loop device's name in sysfs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.loop_name
    }

    /// Sets the scheduler and the throttling, and returns what is in effect.
    ///
    /// # Errors
    ///
    /// The kernel has not that scheduler.
    pub fn set(&self, queue: &Queue) -> Result<Queue, ModelError> {
        queue.set(&self.loop_name).map_err(step("set the queue"))
    }

    /// Has requests take their time from now on, or not.
    pub fn set_delays(&self, delays: bool) {
        if let Some(server) = &self.server {
            server.set_delays(delays);
        }
    }

    /// Returns what has gone through so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.server.as_ref().map(Server::traffic).unwrap_or_default()
    }
}

impl Drop for ModelDisk {
    fn drop(&mut self) {
        self.set_delays(false);
        // What cannot be unmounted now is unmounted with its last user.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
        let _ = unmount(self.directory.join("below"), UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            server.join();
        }
    }
}

/// Runs a program on `path` and returns what it wrote.
fn said(program: &'static str, options: &[&str], path: &Path) -> Result<String, ModelError> {
    let output = Command::new(program)
        .args(options)
        .arg(path)
        .output()
        .map_err(|error| ModelError::Program { program, said: error.to_string() })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ModelError::Program { program, said })
}
