//! A directory and what it stands on: the file system, the mount, the disk and its queue.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::device::Device;
use sys::mounts::{MountInfo, Mounts};

use report::figure::duration;

/// A directory that is measured in.
#[derive(Clone, Debug)]
pub struct MeasuredDirectory {
    /// The directory.
    pub dir: PathBuf,
    /// The mount that holds it.
    pub mount: MountInfo,
    /// The disk under it, if there is one.
    pub device: Option<Device>,
}

impl MeasuredDirectory {
    /// Looks `dir` up in `mounts`; `None` if it does not exist.
    #[must_use]
    pub fn of(dir: &Path, mounts: &Mounts) -> Option<MeasuredDirectory> {
        let mount = mounts.holding(dir)?.clone();
        let device = Device::under(&mount);
        Some(MeasuredDirectory { dir: dir.to_owned(), mount, device })
    }

    /// Returns the type of the file system: `ext4`.
    #[must_use]
    pub fn fs_type(&self) -> &str {
        &self.mount.fs_type
    }

    /// Describes it in a line: `ext4 on /, disk vda (…), rw,relatime; discard`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mount = &self.mount;
        let mut text = format!("{} on {}", mount.fs_type, mount.point.display());
        if let Some(device) = &self.device {
            text.push_str(&format!(", disk {}", queue(device)));
        }
        text.push_str(&format!(", {}", mount.options.join(",")));
        let special = mount.fs_options.iter().map(|option| &**option);
        let special: Vec<&str> = special.filter(|option| *option != "rw").collect();
        if !special.is_empty() {
            text.push_str(&format!("; {}", special.join(",")));
        }
        text
    }
}

/// Describes a disk's queue: `vda (says it rotates, scheduler mq-deadline, throttling at 75.0 ms)`.
fn queue(device: &Device) -> String {
    let under = if device.name == device.disk {
        device.disk.clone()
    } else {
        format!("{} on {}", device.name, device.disk)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_it_stands_on() {
        let mounts = Mounts::parse(b"21 1 0:9 / / rw,noatime - tmpfs tmpfs rw,size=1k\n");
        let place = MeasuredDirectory {
            dir: "/x".into(),
            mount: mounts.above(Path::new("/x")).unwrap().clone(),
            device: None,
        };
        assert_eq!(place.describe(), "tmpfs on /, rw,noatime; size=1k");
    }
}
