//! The background probe: which mechanisms slow down background work on this machine, which settings have no effect, and which units run in the normal class.
//!
//! It reads and changes nothing.

mod disks;
mod groups;
mod units;

use std::path::Path;

use sys::device::Device;
use sys::mounts::Mounts;

use super::finding::{Finding, MeasurementOutcome};
use super::machine::{Machine, existing};
use super::{Probe, ProbeStep};

const NAME: &str = "background";

/// Looks at what can act on background work.
#[derive(Debug)]
pub struct BackgroundProbe;

impl Probe for BackgroundProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "what can slow down background work, and settings without effect"
    }

    fn title(&self) -> &'static str {
        "Background work"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        vec![
            ProbeStep::new("look at the queues of disks", 20, move |_| {
                with_mounts(|mounts| {
                    let places = places(machine, mounts);
                    places.iter().map(disks::finding).collect()
                })
            }),
            ProbeStep::new("look at cgroups and pressure", 20, move |_| {
                with_mounts(|mounts| groups::findings(machine, mounts))
            }),
            ProbeStep::new("read the files of units", 200, move |_| {
                with_mounts(|mounts| {
                    let disk = places(machine, mounts).into_iter().find_map(|place| place.device);
                    let acts = units::EffectiveControls {
                        class: disk.as_ref().is_none_or(disks::knows_classes),
                        weight: disk.as_ref().is_some_and(disks::knows_weights),
                        delegated: groups::io_is_delegated(machine, mounts),
                        disk: disk.map(|device| device.disk),
                    };
                    units::findings(machine, mounts, &acts)
                })
            }),
        ]
    }
}

fn with_mounts(look: impl FnOnce(&Mounts) -> Vec<Finding>) -> Vec<Finding> {
    match Mounts::read() {
        Ok(mounts) => look(&mounts),
        Err(error) => {
            let why = format!("cannot read the mounts: {error}");
            vec![Finding::new(NAME, "background work", "", MeasurementOutcome::Skipped(why))]
        }
    }
}

/// A directory that background work writes to, with what is under it.
#[derive(Clone, Debug)]
struct WorkDirectory {
    /// `home`, `packages`, or both.
    label: String,
    fs_type: String,
    /// Whether the kernel writes its pages to a disk of this machine.
    is_local: bool,
    device: Option<Device>,
}

/// Finds the distinct disks of the home and of what package managers write.
fn places(machine: &Machine, mounts: &Mounts) -> Vec<WorkDirectory> {
    let home = machine.home.as_deref().and_then(existing);
    let mut places: Vec<WorkDirectory> = Vec::new();
    for (label, path) in [("home", home), ("packages", existing(Path::new("/var/lib")))] {
        let Some(mount) = path.and_then(|path| mounts.holding(path)) else { continue };
        if mount.is_memory() {
            continue;
        }
        let device = Device::under(mount);
        let same = |place: &&mut WorkDirectory| match (&place.device, &device) {
            (Some(one), Some(other)) => one.name == other.name,
            (None, None) => place.fs_type == mount.fs_type,
            _ => false,
        };
        match places.iter_mut().find(same) {
            Some(place) => place.label = format!("{}, {label}", place.label),
            None => places.push(WorkDirectory {
                label: label.to_owned(),
                fs_type: mount.fs_type.clone(),
                is_local: !mount.is_network() && !mount.is_fuse(),
                device,
            }),
        }
    }
    places
}
