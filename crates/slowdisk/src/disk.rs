//! A model disk, mounted: the file in user space, the loop device on it, a file system on that.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use sys::clock::Clock;
use sys::loop_device::LoopDevice;
use sys::mounts::{MountInfo, Mounts};

use super::fuse::{Server, Traffic};
use super::profile::DiskProfile;
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
    point: PathBuf,
    /// Where the file below is mounted, if that is to be unmounted.
    below: Option<PathBuf>,
    server: Option<Server>,
    loop_name: String,
    profile: DiskProfile,
    /// Keeps a mount namespace until this process is gone.
    anchor: Option<Child>,
}

impl ModelDisk {
    /// Makes a disk of this kind and `size` bytes, in memory, and mounts an ext4 file system on it below `directory`, which is empty.
    ///
    /// The mounts are seen by this thread, and by those and the programs that it starts from now on, alone.
    ///
    /// # Errors
    ///
    /// It needs root, `/dev/fuse`, a free loop device and mkfs.ext4.
    pub fn make(
        profile: DiskProfile,
        size: u64,
        directory: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<ModelDisk, ModelError> {
        own_mounts(MountPropagationFlags::PRIVATE)?;
        let (below, point) = (directory.join("below"), directory.join("disk"));
        for folder in [&below, &point] {
            fs::create_dir(folder).map_err(step("make a folder"))?;
        }
        let memory = memory(size)?;
        let device = mount_file(&below)?;
        let server = Server::start(device, memory, size, profile, clock);
        let mut disk = ModelDisk {
            point,
            below: Some(below.clone()),
            server: Some(server.map_err(step("start threads"))?),
            loop_name: String::new(),
            profile,
            anchor: Some(anchor()?),
        };
        let device = attach(&below)?;
        disk.finish(&device)?;
        Ok(disk)
    }

    /// Makes a disk of this kind and `size` bytes, in memory, and mounts an ext4 file system on it over the directory `point`, for all programs to see.
    ///
    /// Whoever makes it should see to it that [`unmount_left`] is called when this process is killed. `about` hears the name of the loop device before there is a mount.
    ///
    /// # Errors
    ///
    /// As [`ModelDisk::make`].
    pub fn make_public(
        profile: DiskProfile,
        size: u64,
        point: &Path,
        clock: Arc<dyn Clock>,
        about: impl FnOnce(&str),
    ) -> Result<ModelDisk, ModelError> {
        let memory = memory(size)?;
        let (device_in, device_out) = mpsc::channel();
        let (served_in, served_out) = mpsc::channel::<()>();
        // The file in user space is seen by this thread alone: it is of no use to anybody, and a mount that nobody sees needs nobody to remove it.
        let point_of_file = point.to_owned();
        let builder = thread::Builder::new().name("model disk".to_owned());
        let maker = builder
            .spawn(move || {
                own_mounts(MountPropagationFlags::DOWNSTREAM)?;
                let device = mount_file(&point_of_file)?;
                // The one who waits is there until this thread has ended.
                let _ = device_in.send(device);
                // Whoever attaches a file that nobody serves never comes back, and cannot be killed.
                let served = served_out.recv();
                served.map_err(|_| step("serve a file")(io::ErrorKind::NotConnected.into()))?;
                attach(&point_of_file)
            })
            .map_err(step("start threads"))?;
        let mut disk = ModelDisk {
            point: point.to_owned(),
            below: None,
            server: None,
            loop_name: String::new(),
            profile,
            anchor: None,
        };
        if let Ok(device) = device_out.recv() {
            // Not in that thread's view of the mounts, or it would outlive it.
            let server = Server::start(device, memory, size, profile, clock);
            disk.server = Some(server.map_err(step("start threads"))?);
            // It is gone: its end says why.
            let _ = served_in.send(());
        }
        drop(served_in);
        let panicked = || io::Error::other("a thread of ours ended");
        let attached = maker.join().map_err(|_| step("attach a loop device")(panicked()))?;
        let device = attached?;
        about(device.name());
        disk.finish(&device)?;
        Ok(disk)
    }

    /// Makes a file system on the loop device and mounts it.
    fn finish(&mut self, device: &LoopDevice) -> Result<(), ModelError> {
        device.name().clone_into(&mut self.loop_name);
        self.put_rotational()?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        said("mkfs.ext4", &["-q", "-E", lazy], &device.node())?;
        // It is for tests: nobody needs to gain privileges or to reach a device through it.
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let mounted = mount(device.node(), &self.point, "ext4", flags, None);
        mounted.map_err(|error| step("mount ext4")(error.into()))
    }

    /// Returns where its file system is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.point.clone()
    }

    /// Returns its kind.
    #[must_use]
    pub fn profile(&self) -> &DiskProfile {
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

    /// Returns whether requests take their time.
    #[must_use]
    pub fn delays(&self) -> bool {
        self.server.as_ref().is_some_and(Server::delays)
    }

    /// Makes it another kind of disk: requests that are not yet begun take what `profile` says.
    ///
    /// # Errors
    ///
    /// There is no thread left; the disk is as before.
    pub(crate) fn set_profile(&mut self, profile: DiskProfile) -> Result<(), ModelError> {
        if let Some(server) = &mut self.server {
            server.set_profile(profile).map_err(step("start threads"))?;
        }
        self.profile = profile;
        self.put_rotational()
    }

    /// Returns whether it was unmounted by somebody, and its last user is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.server.as_ref().is_none_or(Server::is_over)
    }

    /// Unmounts it while nobody uses it.
    ///
    /// # Errors
    ///
    /// `EBUSY`: somebody does; it is as before.
    pub fn unmount(&self) -> io::Result<()> {
        Ok(unmount(&self.point, UnmountFlags::NOFOLLOW)?)
    }

    /// Returns how its queue is set now.
    #[must_use]
    pub fn queue(&self) -> Queue {
        Queue::of(&self.loop_name)
    }

    /// Returns what has gone through so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.server.as_ref().map(Server::traffic).unwrap_or_default()
    }

    fn put_rotational(&self) -> Result<(), ModelError> {
        let rotational = if self.profile.is_rotational() { "1" } else { "0" };
        queue::put(&self.loop_name, "rotational", rotational).map_err(step("set the queue"))
    }
}

impl Drop for ModelDisk {
    fn drop(&mut self) {
        self.set_delays(false);
        // What cannot be unmounted now is unmounted with its last user.
        match &self.below {
            // This thread's own mounts are not in the list of the process.
            Some(below) => {
                let _ = unmount(&self.point, UnmountFlags::DETACH);
                let _ = unmount(below, UnmountFlags::DETACH);
            }
            None => unmount_left(&self.point, &self.loop_name),
        }
        if let Some(server) = self.server.take() {
            server.join();
        }
        if let Some(mut anchor) = self.anchor.take() {
            drop(anchor.stdin.take());
            // It was ended by somebody.
            let _ = anchor.wait();
        }
    }
}

/// Unmounts the model disk on the loop device called `name` from `point`, also while somebody uses it, if it is mounted there.
pub fn unmount_left(point: &Path, name: &str) {
    let Ok(mounts) = Mounts::read() else { return };
    let ours = |mount: &&MountInfo| mount.point == point && Path::new(&mount.source) == node(name);
    for _ in mounts.iter().filter(ours) {
        // Somebody was quicker.
        let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Starts a program that does nothing in this thread's mount namespace until this process has ended.
///
/// The last one to leave a namespace unmounts what is in it. Were that the killed server itself, it would wait for its own answers: the kernel closes the server's device after that.
fn anchor() -> Result<Child, ModelError> {
    let mut command = Command::new("cat");
    // Whoever kills this process's group does not kill the anchor.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.current_dir("/").spawn().map_err(step("start cat"))
}

/// Returns the mounts of model disks that this process sees, with the names of their loop devices.
#[must_use]
pub fn mounted() -> Vec<(PathBuf, String)> {
    let Ok(mounts) = Mounts::read() else { return Vec::new() };
    let found = mounts.iter().filter_map(|mount| {
        let name = Path::new(&mount.source).strip_prefix("/dev").ok()?.to_str()?;
        let file = Path::new("/sys/block").join(name).join("loop/backing_file");
        let file = fs::read_to_string(file).ok()?;
        Path::new(file.trim_end())
            .ends_with(super::fuse::NAME)
            .then(|| (mount.point.clone(), name.to_owned()))
    });
    found.collect()
}

fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

/// Gives this thread mounts of its own; of those that others make or remove it sees what `propagation` says.
fn own_mounts(propagation: MountPropagationFlags) -> Result<(), ModelError> {
    sys::supervise::own_mounts().map_err(step("make a mount namespace"))?;
    mount_change("/", propagation | MountPropagationFlags::REC)
        .map_err(|error| step("keep mounts to itself")(error.into()))
}

fn memory(size: u64) -> Result<File, ModelError> {
    let memory = memfd_create("model disk", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| step("find memory")(error.into()))?;
    memory.set_len(size).map_err(step("find memory"))?;
    Ok(memory)
}

/// Mounts a file system in user space at `point` and returns the device that its requests arrive at.
fn mount_file(point: &Path) -> Result<File, ModelError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(step("open /dev/fuse"))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).map_err(|error| step("mount")(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("unjank-model", point, "fuse", flags, options.as_c_str())
        .map_err(|error| step("mount a file system in user space")(error.into()))?;
    Ok(device)
}

/// Makes a loop device over the file of the file system at `point`.
fn attach(point: &Path) -> Result<LoopDevice, ModelError> {
    let file = point.join(super::fuse::NAME);
    let file = OpenOptions::new().read(true).write(true).open(file);
    let file = file.map_err(step("open the file in user space"))?;
    LoopDevice::over(&file).map_err(step("attach a loop device"))
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
