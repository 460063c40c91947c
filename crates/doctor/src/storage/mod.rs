//! The storage probe: the cost of a sync on the file systems where programs keep small files.

mod cause;
mod measure;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::mounts::{MountInfo, Mounts};

use self::cause::{FreeSpace, SlowStep};
use super::finding::{Finding, MeasurementOutcome};
use super::machine::{Machine, existing};
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use lab::place::MeasuredDirectory;
use report::figure::Quantity;
use report::grade::Grade;
use report::samples::Samples;

const NAME: &str = "storage";
const BUDGET: Duration = Duration::from_millis(600);
/// Below this a copy beside the measurement could fill the disk.
const ROOM_FOR_COPY: u64 = 1 << 30;
/// What is told beside a hindrance.
const UNSAVED: &str = "nothing can be saved there";
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

    fn title(&self) -> &'static str {
        "Storage"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let mounts = match Mounts::read() {
            Ok(mounts) => mounts,
            Err(error) => {
                return vec![ProbeStep::new("read the mounts", 1, move |_| {
                    let outcome =
                        MeasurementOutcome::Skipped(format!("cannot read the mounts: {error}"));
                    vec![Finding::new(NAME, "file systems", "/proc/self/mountinfo", outcome)]
                })];
            }
        };
        let mut steps =
            vec![ProbeStep::new("dirty pages", 1, |_| dirty_pages().into_iter().collect())];
        for spot in spots(machine, &mounts) {
            steps.extend(spot.steps(machine));
        }
        steps
    }
}

/// A file system, and what the user has on it.
#[derive(Clone, Debug)]
struct MeasuredFileSystem {
    /// `home`, `runtime`, `temp`, or several of them.
    label: String,
    /// The first of the directories, in which all is measured.
    place: MeasuredDirectory,
    directories: Vec<UserDirectory>,
}

/// A directory of the user.
#[derive(Clone, Debug)]
struct UserDirectory {
    path: PathBuf,
    /// Whether programs save in this directory, or make the one that they save in; not the nearest above a home that is not there.
    is_saved_in: bool,
}

impl UserDirectory {
    /// Returns whether an error keeps programs from saving, and not only this measurement from being made.
    fn is_hindrance(&self, error: &io::Error) -> bool {
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded => true,
            // Above a home that is not there, nobody wants to save anything.
            io::ErrorKind::PermissionDenied => self.is_saved_in,
            _ => error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()),
        }
    }

    /// Returns why nothing can be saved here, if that is so.
    fn hindrance(&self) -> Option<io::Error> {
        measure::save(&self.path).err().filter(|error| self.is_hindrance(error))
    }
}

/// Finds the distinct file systems of the user's directories.
fn spots(machine: &Machine, mounts: &Mounts) -> Vec<MeasuredFileSystem> {
    let home = machine.config_home.as_ref().or(machine.home.as_ref());
    let wanted = [
        ("home", home.map(PathBuf::as_path)),
        ("runtime", machine.runtime_dir.as_deref()),
        ("temp", Some(&*machine.temp_dir)),
    ];
    let mut spots: Vec<MeasuredFileSystem> = Vec::new();
    for (label, path) in wanted {
        let Some(path) = path else { continue };
        let place = existing(path).and_then(|dir| MeasuredDirectory::of(dir, mounts));
        let Some(place) = place else { continue };
        let is_below_home = machine.home.as_ref().is_some_and(|home| place.dir.starts_with(home));
        let is_saved_in = place.dir == path || is_below_home;
        let directory = UserDirectory { path: place.dir.clone(), is_saved_in };
        match spots.iter_mut().find(|spot| spot.place.mount.id == place.mount.id) {
            Some(spot) => {
                spot.label = format!("{}, {label}", spot.label);
                spot.directories.push(directory);
            }
            None => spots.push(MeasuredFileSystem {
                label: label.to_owned(),
                place,
                directories: vec![directory],
            }),
        }
    }
    spots
}

/// Measures a step in a directory.
type Measure = fn(&Path, &StepContext<'_>, Duration) -> io::Result<Samples>;

impl MeasuredFileSystem {
    fn steps<'a>(self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let expect = if self.place.mount.is_memory() { 50 } else { 650 };
        let at = machine.short(&self.place.dir);
        let mut steps = vec![ProbeStep::new(format!("look at {at}"), 1, {
            let spot = self.clone();
            move |_| vec![spot.describe()]
        })];
        let mut measure = |name: &str, how: &str, slow: SlowStep, measure: Measure| {
            let name = format!("{name} ({})", self.label);
            let how = format!("{how} in {at}");
            let spot = self.clone();
            steps.push(ProbeStep::new(format!("{name}: {at}"), expect, move |tools| {
                spot.measure(name, how, slow, measure, tools).into_iter().collect()
            }));
        };
        measure("sync", "write 4 KiB, fsync", SlowStep::Alone, measure::sync);
        let how = "create, write 4 KiB, fsync, rename over the old one, fsync the directory,";
        measure("replace a file", how, SlowStep::Alone, measure::replace);
        let room = space(&self.place.dir).is_none_or(|space| space.free_bytes > ROOM_FOR_COPY);
        if self.place.device.is_some() && room {
            let how = "write 4 KiB, fsync, while another thread writes up to 256 MiB,";
            measure("sync beside a copy", how, SlowStep::BesideCopy, measure::sync_beside_copy);
        }
        steps
    }

    fn measure(
        &self,
        name: String,
        how: String,
        slow: SlowStep,
        measure: Measure,
        tools: &StepContext<'_>,
    ) -> Option<Finding> {
        let samples = match measure(&self.place.dir, tools, BUDGET) {
            Ok(samples) if samples.is_empty() && tools.stopped() => return None,
            Ok(samples) if samples.is_empty() => {
                let why = "the copy was over before a sync was".to_owned();
                return Some(Finding::new(NAME, name, how, MeasurementOutcome::Skipped(why)));
            }
            Ok(samples) => samples,
            Err(error) => {
                let why = refusal(&error, &self.place.mount);
                // Where nothing can be saved the description says so, once.
                let is_told = matches!(self.describe().outcome, MeasurementOutcome::Wrong(_));
                let is_hindrance = self.directories.iter().any(|directory| {
                    directory.path == self.place.dir && directory.is_hindrance(&error)
                });
                if is_hindrance && !is_told {
                    let wrong = MeasurementOutcome::Wrong(why);
                    return Some(Finding::new(NAME, name, how, wrong).because(UNSAVED));
                }
                return Some(Finding::new(NAME, name, how, MeasurementOutcome::Skipped(why)));
            }
        };
        let grade = Grade::of(&samples, tools.frame);
        let mut finding = Finding::new(NAME, name, how, MeasurementOutcome::Time(samples));
        if grade != Grade::Fits {
            let (cause, help) = cause::explain(
                slow,
                &self.place.mount,
                self.place.device.as_ref(),
                space(&self.place.dir),
            );
            finding = finding.because(cause);
            finding.help = help;
        }
        Some(finding)
    }

    /// Says what the file system is, and what of it is out of the ordinary.
    fn describe(&self) -> Finding {
        let mount = &self.place.mount;
        let mut text = self.place.describe();
        let free = space(&self.place.dir);
        if let Some(space) = free.filter(|space| space.total_bytes > 0) {
            let free = |bytes| Quantity::Size.show(bytes);
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            text.push_str(&format!(", {} free", free(space.free_bytes as f64)));
        }
        let name = format!("file system ({})", self.label);
        let how = "/proc/self/mountinfo, statvfs, /sys/dev/block";
        if mount.is_read_only() {
            return Finding::new(
                NAME,
                name,
                how,
                MeasurementOutcome::Wrong(format!("read-only: {text}")),
            )
            .because(UNSAVED)
            .remedy(Remedy::ShowRemounts);
        }
        if free.is_some_and(|space| space.total_bytes > 0 && space.free_bytes < 1 << 20) {
            return Finding::new(
                NAME,
                name,
                how,
                MeasurementOutcome::Wrong(format!("full: {text}")),
            )
            .because(UNSAVED)
            .remedy(Remedy::ShowSpace(mount.point.clone()));
        }
        let hindrance = self
            .directories
            .iter()
            .find_map(|directory| Some((&directory.path, directory.hindrance()?)));
        if let Some((path, error)) = hindrance {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => format!("{error} in {}: {text}", path.display()),
                _ => format!("{}: {text}", refusal(&error, mount)),
            };
            let how = "create a file, write 4 KiB";
            let wrong = Finding::new(NAME, name, how, MeasurementOutcome::Wrong(why));
            let wrong = wrong.because(UNSAVED);
            return match error.kind() {
                io::ErrorKind::PermissionDenied => wrong.hint(format!(
                    "have {} belong to you, or choose another directory",
                    path.display()
                )),
                io::ErrorKind::QuotaExceeded => {
                    wrong.hint("delete files, or ask for more: quota -s shows how much you have")
                }
                // There is room for bytes.
                io::ErrorKind::StorageFull => wrong.hint(format!(
                    "delete what has many small files: df -i {} shows how many there may be",
                    mount.point.display()
                )),
                _ => wrong,
            };
        }
        Finding::new(NAME, name, how, MeasurementOutcome::Note(text))
    }
}

fn refusal(error: &io::Error, mount: &MountInfo) -> String {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => format!("{} is read-only", mount.point.display()),
        io::ErrorKind::StorageFull if free_files(&mount.point) == Some(0) => {
            format!("{} holds no more files", mount.point.display())
        }
        io::ErrorKind::StorageFull => format!("{} is full", mount.point.display()),
        io::ErrorKind::QuotaExceeded => {
            format!("your quota on {} is used up", mount.point.display())
        }
        _ => error.to_string(),
    }
}

/// Returns how many files this user may still make; `None` where there is no limit, or it is not known.
fn free_files(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    (stat.f_files > 0).then_some(stat.f_favail)
}

fn space(dir: &Path) -> Option<FreeSpace> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(FreeSpace {
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
            MeasurementOutcome::Note(text),
        )
    })
}
