//! Where a measurement takes place: a model disk or a directory on a real one, and room in memory that nothing has to be waited for.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use jobs::request_trace::{self, RequestTrace};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use sys::clock::Clock;
use sys::device::Device;
use sys::mounts::Mounts;

use super::guardian::{Guardian, Resource};
use super::{LaunchError, step};
use slowdisk::{DiskProfile, ModelDisk, Queue, Traffic};
use sys::scratch::{self, TempDir};

/// The disk of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum Site {
    /// A model of a kind of disk, of so many bytes.
    Model(DiskProfile, u64),
    /// The real disk that holds this directory.
    Directory(PathBuf),
}

impl Site {
    /// Returns its name on the command line and in records.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Site::Model(profile, _) => format!("model:{}", profile.name),
            Site::Directory(path) => path.display().to_string(),
        }
    }
}

/// A disk that is ready. Dropping it takes it away, or leaves a real one as it was.
#[derive(Debug)]
pub(super) struct Ground {
    brought: Vec<PathBuf>,
    memory: PathBuf,
    model: Option<ModelDisk>,
    /// On a real disk: a directory of our own, the disk's queue as it was.
    real: Option<(TempDir, Queue)>,
    pub(super) issued: Option<RequestTrace>,
    disk: String,
    _place: TempDir,
}

impl Ground {
    /// Makes it; `temporary` is where directories to mount on are made.
    ///
    /// Its mounts are this thread's own, and those of what it starts from now on.
    pub(super) fn make(
        site: &Site,
        temporary: &Path,
        tracefs: &Path,
        clock: Arc<dyn Clock>,
        guardian: &mut Guardian,
    ) -> Result<Ground, LaunchError> {
        let place = scratch::within(temporary).map_err(step("make a directory"))?;
        let (memory, top) = (place.path().join("memory"), place.path().join("model"));
        let told = [place.path().to_owned(), memory.clone(), top.clone()];
        let inner = [top.join("below"), top.join("disk")];
        for path in told.into_iter().chain(inner) {
            guardian.tell(&Resource::Directory(path)).map_err(step("talk to the guardian"))?;
        }
        for path in [&memory, &top] {
            fs::create_dir(path).map_err(step("make a directory"))?;
        }
        sys::supervise::own_mounts().map_err(step("make a mount namespace"))?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|error| step("keep mounts to itself")(error.into()))?;
        let options = CString::new("size=8g").unwrap_or_default();
        mount("unjank-bench", &memory, "tmpfs", MountFlags::empty(), options.as_c_str())
            .map_err(|error| step("mount memory")(error.into()))?;
        let mut ground = Ground {
            brought: Vec::new(),
            memory,
            model: None,
            real: None,
            issued: None,
            disk: String::new(),
            _place: place,
        };
        match site {
            Site::Model(profile, size) => {
                let model = ModelDisk::make(*profile, *size, &top, clock)?;
                ground.disk = model.name().to_owned();
                ground.model = Some(model);
            }
            Site::Directory(path) => {
                let mounts = Mounts::read().map_err(step("read the mounts"))?;
                let device = mounts.holding(path).and_then(Device::under);
                let device = device
                    .ok_or(std::io::ErrorKind::Unsupported.into())
                    .map_err(step(format!("find the disk of {}", path.display())))?;
                let before = Queue::of(&device.disk);
                let thing = Resource::Queue {
                    disk: device.disk.clone(),
                    scheduler: before.scheduler.clone(),
                    wbt_lat_usec: before.wbt_lat_usec,
                };
                guardian.tell(&thing).map_err(step("talk to the guardian"))?;
                let scratch = scratch::within(path)
                    .map_err(step(format!("measure in {}", path.display())))?;
                let thing = Resource::Tree(scratch.path().to_owned());
                guardian.tell(&thing).map_err(step("talk to the guardian"))?;
                ground.disk = device.disk;
                ground.real = Some((scratch, before));
            }
        }
        let name = format!("unjank-bench-{}", std::process::id());
        let thing = Resource::Trace(request_trace::instance(tracefs, &name));
        guardian.tell(&thing).map_err(step("talk to the guardian"))?;
        // Without the kernel's traces the share of classes is not known, which the samples say.
        ground.issued =
            ground.number().and_then(|number| RequestTrace::start(tracefs, &name, number).ok());
        Ok(ground)
    }

    /// Returns the directory on the disk.
    pub(super) fn path(&self) -> PathBuf {
        match (&self.model, &self.real) {
            (Some(model), _) => model.path(),
            (None, Some((scratch, _))) => scratch.path().to_owned(),
            (None, None) => self.memory.clone(),
        }
    }

    /// Returns the directory in memory.
    pub(super) fn memory(&self) -> &Path {
        &self.memory
    }

    /// Returns in which order a model takes requests.
    pub(super) fn order(&self) -> Option<&'static str> {
        self.model.as_ref().map(|model| model.profile().order.name())
    }

    /// Sets the queue, and returns what is in effect. The scheduler `kept` is the one that was there.
    pub(super) fn set(
        &self,
        scheduler: &str,
        wbt_lat_usec: Option<u64>,
    ) -> Result<Queue, LaunchError> {
        let before = self.real.as_ref().map(|(_, before)| before);
        if scheduler == "kept" && wbt_lat_usec.is_none() {
            if let Some(before) = before {
                before.set(&self.disk).map_err(step("set the queue"))?;
            }
            return Ok(Queue::of(&self.disk));
        }
        let scheduler = match (scheduler, before) {
            ("kept", Some(before)) => before.scheduler.clone(),
            ("kept", None) => Queue::of(&self.disk).scheduler,
            (named, _) => named.to_owned(),
        };
        let set = Queue { scheduler: scheduler.clone(), wbt_lat_usec }.set(&self.disk);
        set.map_err(step(format!("give {} the scheduler {scheduler}", self.disk)))
    }

    /// Has a model take its time from now on, or not.
    pub(super) fn set_delays(&self, delays: bool) {
        if let Some(model) = &self.model {
            model.set_delays(delays);
        }
    }

    /// Waits until all that was written is on the disk.
    pub(super) fn settle(&self) -> Result<(), LaunchError> {
        let synced = File::open(self.path()).and_then(|file| Ok(rustix::fs::syncfs(file)?));
        synced.map_err(step("write what is left"))
    }

    /// Returns what the disk has moved so far.
    pub(super) fn traffic(&self) -> Traffic {
        if let Some(model) = &self.model {
            return model.traffic();
        }
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.disk));
        let stat = stat.unwrap_or_default();
        let fields: Vec<u64> =
            stat.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
        // Sectors of 512 bytes; the last but one field counts flushes (Documentation/block/stat.rst).
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        Traffic {
            read_bytes: field(2).saturating_mul(512),
            written_bytes: field(6).saturating_mul(512),
            flushes: field(15),
            ..Traffic::default()
        }
    }

    /// Copies `path` to the disk and mounts the copy in its place, for this thread and what it starts. `left_out` are names directly in it that are not copied.
    pub(super) fn bring(&mut self, path: &Path, left_out: &[&str]) -> Result<(), LaunchError> {
        let cannot = |what: &str| step(format!("{what} {}", path.display()));
        let path = path.canonicalize().map_err(cannot("bring"))?;
        let copies = self.path().join("brought");
        fs::create_dir_all(&copies).map_err(cannot("bring"))?;
        let copy = copies.join(self.brought.len().to_string());
        let mut program = Command::new("cp");
        program.args(["-a", "--reflink=never", "--"]);
        if path.is_dir() {
            fs::create_dir(&copy).map_err(cannot("bring"))?;
            let entries = fs::read_dir(&path).map_err(cannot("bring"))?.filter_map(Result::ok);
            let kept =
                entries.filter(|entry| !left_out.iter().any(|name| entry.file_name() == **name));
            program.args(kept.map(|entry| entry.path()));
        } else {
            program.arg(&path);
        }
        said(program.arg(&copy))?;
        mount_bind(&copy, &path).map_err(|error| cannot("mount a copy on")(error.into()))?;
        self.brought.push(path);
        Ok(())
    }

    /// Returns the disk's device number.
    fn number(&self) -> Option<(u32, u32)> {
        let text = fs::read_to_string(format!("/sys/block/{}/dev", self.disk)).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.set_delays(false);
        // What cannot be unmounted now goes with its last user.
        for path in self.brought.iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
        let _ = unmount(&self.memory, UnmountFlags::DETACH);
        if let Some((_, before)) = &self.real {
            // The guardian tries it again.
            let _ = before.set(&self.disk);
        }
    }
}

/// Runs a program to its end and returns what it wrote.
pub(super) fn said(command: &mut Command) -> Result<String, LaunchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| LaunchError::Program {
        program: program.clone(),
        said: error.to_string(),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let said = last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned());
    Err(LaunchError::Program { program, said })
}
