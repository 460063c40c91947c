//! The storage probe: what a sync costs where programs keep their small files.

mod cause;
mod measure;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::device::Device;
use sys::mounts::{Mount, Mounts};

use self::cause::{Slow, Space};
use super::finding::{Finding, Outcome};
use super::machine::{Machine, existing};
use super::{Probe, Step, Tools};
use crate::report::figure::{Quantity, duration};
use crate::report::grade::Grade;
use crate::report::samples::Samples;

const NAME: &str = "storage";
const BUDGET: Duration = Duration::from_millis(600);
/// Below this a copy beside the measurement could fill the disk.
const ROOM_FOR_COPY: u64 = 1 << 30;
/// Dirty pages beyond this slow every sync on the machine for seconds.
const MUCH_DIRTY: u64 = 256 << 20;

/// Measures syncs on the file systems of the home, runtime and temporary directories.
#[derive(Debug)]
pub struct Storage;

impl Probe for Storage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "sync and replace a small file, per file system"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<Step<'a>> {
        let mounts = match Mounts::read() {
            Ok(mounts) => mounts,
            Err(error) => {
                return vec![Step::new("read the mounts", 1, move |_| {
                    let outcome = Outcome::Skipped(format!("cannot read the mounts: {error}"));
                    vec![Finding::new(NAME, "file systems", "/proc/self/mountinfo", outcome)]
                })];
            }
        };
        let mut steps = vec![Step::new("dirty pages", 1, |_| dirty_pages().into_iter().collect())];
        for place in places(machine, &mounts) {
            steps.extend(place.steps(machine));
        }
        steps
    }
}

/// A file system, and what the user has on it.
#[derive(Clone, Debug)]
struct Place {
    /// `home`, `runtime`, `temp`, or several of them.
    label: String,
    dir: PathBuf,
    mount: Mount,
    device: Option<Device>,
}

/// Finds the distinct file systems of the user's directories.
fn places(machine: &Machine, mounts: &Mounts) -> Vec<Place> {
    let home = machine.config_home.as_ref().or(machine.home.as_ref());
    let wanted = [
        ("home", home.map(PathBuf::as_path)),
        ("runtime", machine.runtime_dir.as_deref()),
        ("temp", Some(&*machine.temp_dir)),
    ];
    let mut places: Vec<Place> = Vec::new();
    for (label, path) in wanted {
        let Some(dir) = path.and_then(existing) else { continue };
        let Some(mount) = mounts.holding(dir) else { continue };
        match places.iter_mut().find(|place| place.mount.id == mount.id) {
            Some(place) => place.label = format!("{}, {label}", place.label),
            None => places.push(Place {
                label: label.to_owned(),
                dir: dir.to_owned(),
                mount: mount.clone(),
                device: Device::under(mount),
            }),
        }
    }
    places
}

/// Measures a step in a directory.
type Measure = fn(&Path, &Tools<'_>, Duration) -> io::Result<Samples>;

impl Place {
    fn steps<'a>(self, machine: &'a Machine) -> Vec<Step<'a>> {
        let expect = if self.mount.is_memory() { 50 } else { 650 };
        let at = machine.short(&self.dir);
        let mut steps = vec![Step::new(format!("look at {at}"), 1, {
            let place = self.clone();
            move |_| vec![place.describe(machine)]
        })];
        let mut measure = |name: &str, how: &str, slow: Slow, measure: Measure| {
            let name = format!("{name} ({})", self.label);
            let how = format!("{how} in {at}");
            let place = self.clone();
            steps.push(Step::new(format!("{name}: {at}"), expect, move |tools| {
                place.measure(name, how, slow, measure, tools).into_iter().collect()
            }));
        };
        measure("sync", "write 4 KiB, fsync", Slow::Alone, measure::sync);
        let how = "create, write 4 KiB, fsync, rename over the old one, fsync the directory,";
        measure("replace a file", how, Slow::Alone, measure::replace);
        let room = space(&self.dir).is_none_or(|space| space.free_bytes > ROOM_FOR_COPY);
        if self.device.is_some() && room {
            let how = "write 4 KiB, fsync, while another thread writes up to 256 MiB,";
            measure("sync beside a copy", how, Slow::BesideCopy, measure::sync_beside_copy);
        }
        steps
    }

    fn measure(
        &self,
        name: String,
        how: String,
        slow: Slow,
        measure: Measure,
        tools: &Tools<'_>,
    ) -> Option<Finding> {
        let samples = match measure(&self.dir, tools, BUDGET) {
            Ok(samples) if samples.is_empty() && tools.stopped() => return None,
            Ok(samples) if samples.is_empty() => {
                let why = "the copy was over before a sync was".to_owned();
                return Some(Finding::new(NAME, name, how, Outcome::Skipped(why)));
            }
            Ok(samples) => samples,
            Err(error) => {
                let why = refusal(&error, &self.mount);
                return Some(Finding::new(NAME, name, how, Outcome::Skipped(why)));
            }
        };
        let grade = Grade::of(&samples, tools.frame);
        let mut finding = Finding::new(NAME, name, how, Outcome::Time(samples));
        if grade != Grade::Fits {
            let (cause, advice) =
                cause::explain(slow, &self.mount, self.device.as_ref(), space(&self.dir));
            finding = finding.because(cause);
            finding.advice = advice;
        }
        Some(finding)
    }

    /// Says what the file system is, and what of it is out of the ordinary.
    fn describe(&self, machine: &Machine) -> Finding {
        let mount = &self.mount;
        let mut text = format!("{} on {}", mount.fs_type, machine.short(&mount.point));
        if let Some(device) = &self.device {
            text.push_str(&format!(", disk {}", queue(device)));
        }
        text.push_str(&format!(", {}", mount.options.join(",")));
        let special: Vec<&str> = mount
            .fs_options
            .iter()
            .map(|option| &**option)
            .filter(|option| *option != "rw")
            .collect();
        if !special.is_empty() {
            text.push_str(&format!("; {}", special.join(",")));
        }
        let free = space(&self.dir);
        if let Some(space) = free.filter(|space| space.total_bytes > 0) {
            let free = |bytes| Quantity::Size.show(bytes);
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            text.push_str(&format!(", {} free", free(space.free_bytes as f64)));
        }
        let name = format!("file system ({})", self.label);
        let how = "/proc/self/mountinfo, statvfs, /sys/dev/block";
        if mount.is_read_only() {
            return Finding::new(NAME, name, how, Outcome::Wrong(format!("read-only: {text}")))
                .because("nothing can be saved there")
                .advise_command(
                    "see why the kernel or the boot made it so",
                    "journalctl -k -g remount",
                );
        }
        if free.is_some_and(|space| space.total_bytes > 0 && space.free_bytes < 1 << 20) {
            return Finding::new(NAME, name, how, Outcome::Wrong(format!("full: {text}")))
                .because("nothing can be saved there")
                .advise_command(
                    "see what takes the space",
                    format!("du -xh --max-depth=2 {} | sort -h | tail", mount.point.display()),
                );
        }
        Finding::new(NAME, name, how, Outcome::Note(text))
    }
}

/// Describes a disk's queue: `vda (rotational, scheduler mq-deadline, throttling at 75.0 ms)`.
fn queue(device: &Device) -> String {
    let under = match device.name == device.disk {
        true => device.disk.clone(),
        false => format!("{} on {}", device.name, device.disk),
    };
    let kind = match device.rotational {
        Some(true) => "says it rotates",
        Some(false) => "does not rotate",
        None => "rotation unknown",
    };
    let scheduler = device.scheduler.as_deref().unwrap_or("none");
    let throttling = match device.wbt_lat_usec {
        Some(0) => "throttling off".to_owned(),
        Some(micros) => format!("throttling at {}", duration(Duration::from_micros(micros))),
        None => "no throttling".to_owned(),
    };
    format!("{under} ({kind}, scheduler {scheduler}, {throttling})")
}

fn refusal(error: &io::Error, mount: &Mount) -> String {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => format!("{} is read-only", mount.point.display()),
        io::ErrorKind::StorageFull => format!("{} is full", mount.point.display()),
        io::ErrorKind::QuotaExceeded => {
            format!("your quota on {} is used up", mount.point.display())
        }
        _ => error.to_string(),
    }
}

fn space(dir: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(Space {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// Notes when much is waiting to be written: the times that follow then measure that, too.
fn dirty_pages() -> Option<Finding> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let waiting = bytes("Dirty:")?.saturating_add(bytes("Writeback:").unwrap_or(0));
    (waiting > MUCH_DIRTY).then(|| {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let size = Quantity::Size.show(waiting as f64);
        let text = format!("{size} wait to be written; the times below stand beside that");
        Finding::new(
            NAME,
            "dirty pages",
            "Dirty and Writeback in /proc/meminfo",
            Outcome::Note(text),
        )
    })
}
