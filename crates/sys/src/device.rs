//! The block device under a file system: which disk it is in the end, and how its queue is set.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::mounts::MountInfo;

/// How deep partitions, mappings and loop devices may stand on one another before we stop asking.
const DEPTH: usize = 8;

/// A disk and what stands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device that the file system is on: `dm-0`, `nvme0n1p2`, `loop3`.
    pub name: String,
    /// The disk at the bottom, whose queue does the work: `nvme0n1`.
    pub disk: String,
    /// The disk's device number, major and minor.
    pub disk_number: Option<(u32, u32)>,
    /// Whether the disk says that it turns; virtual disks often say so wrongly.
    pub rotational: Option<bool>,
    /// The I/O scheduler in effect: `none`, `mq-deadline`, `bfq`, `kyber`.
    pub scheduler: Option<String>,
    /// The schedulers that could be chosen.
    pub schedulers: Vec<String>,
    /// The target latency of write-back throttling in microseconds; 0 is off, `None` is not built in.
    pub wbt_lat_usec: Option<u64>,
    directory: PathBuf,
}

impl Device {
    /// Finds the disk under `mount`; `None` for memory, network and program-made file systems.
    #[must_use]
    pub fn under(mount: &MountInfo) -> Option<Device> {
        // Btrfs, overlayfs and others show a made-up number with major 0; the source names a node.
        let node = || {
            let node = fs::metadata(&mount.source).ok()?;
            node.file_type().is_block_device().then(|| (major(node.rdev()), minor(node.rdev())))
        };
        let number = if mount.device.0 == 0 { node()? } else { mount.device };
        Device::numbered(Path::new("/sys"), number)
    }

    /// Finds the disk under device `number` (major, minor) in the sysfs at `sys`.
    #[must_use]
    pub fn numbered(sys: &Path, number: (u32, u32)) -> Option<Device> {
        let top = sys.join(format!("dev/block/{}:{}", number.0, number.1)).canonicalize().ok()?;
        let mut bottom = top.clone();
        for _ in 0..DEPTH {
            let Some(below) = below(sys, &bottom) else { break };
            bottom = below;
        }
        let queue = bottom.join("queue");
        let (scheduler, schedulers) = word(&queue.join("scheduler")).map_or((None, vec![]), choice);
        Some(Device {
            name: name(&top)?,
            disk: name(&bottom)?,
            disk_number: word(&bottom.join("dev")).and_then(|text| {
                let (major, minor) = text.split_once(':')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            }),
            rotational: word(&queue.join("rotational")).map(|text| text == "1"),
            scheduler,
            schedulers,
            wbt_lat_usec: word(&queue.join("wbt_lat_usec")).and_then(|text| text.parse().ok()),
            directory: bottom,
        })
    }

    /// Returns how many bytes the disk has taken since it appeared, whoever wrote them.
    #[must_use]
    pub fn bytes_written(&self) -> Option<u64> {
        let stat = word(&self.directory.join("stat"))?;
        // Field 7 counts sectors, which are 512 bytes here whatever the disk's own size.
        stat.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
    }
}

/// Returns what a partition, a mapping or a loop device stands on.
fn below(sys: &Path, device: &Path) -> Option<PathBuf> {
    if device.join("partition").exists() {
        return device.parent().map(Path::to_owned);
    }
    let mut slaves: Vec<PathBuf> = fs::read_dir(device.join("slaves"))
        .map(|slaves| slaves.filter_map(|slave| Some(slave.ok()?.path())).collect())
        .unwrap_or_default();
    // Of a striped or mirrored set the first stands for all: they are set alike.
    slaves.sort();
    if let Some(slave) = slaves.first() {
        return slave.canonicalize().ok();
    }
    let file = word(&device.join("loop/backing_file"))?;
    let number = fs::metadata(file).ok()?.dev();
    sys.join(format!("dev/block/{}:{}", major(number), minor(number))).canonicalize().ok()
}

/// Reads `none [mq-deadline] bfq`.
fn choice(text: String) -> (Option<String>, Vec<String>) {
    let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let active = text.split_ascii_whitespace().find(|word| word.starts_with('[')).map(bare);
    (active, text.split_ascii_whitespace().map(bare).collect())
}

fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes a sysfs with an encrypted volume `dm-0` on partition `sda2` of the disk `sda`.
    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let at = |path: &str| sys.path().join(path);
        let file = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::io::Write::write_all(
                &mut fs::OpenOptions::new()
                    .create(true)
                    .write(true)
                    .truncate(true)
                    .open(at(path))
                    .unwrap(),
                text.as_bytes(),
            )
            .unwrap();
        };
        file("devices/sda/queue/scheduler", "none [bfq] mq-deadline\n");
        file("devices/sda/queue/rotational", "1\n");
        file("devices/sda/queue/wbt_lat_usec", "0\n");
        file("devices/sda/stat", "1 2 3 4 5 6 8 8 9 10\n");
        file("devices/sda/sda2/partition", "2\n");
        file("devices/dm-0/dm/name", "luks\n");
        file("dev/block/.keep", "");
        fs::create_dir_all(at("devices/dm-0/slaves")).unwrap();
        symlink(at("devices/sda/sda2"), at("devices/dm-0/slaves/sda2")).unwrap();
        symlink(at("devices/dm-0"), at("dev/block/253:0")).unwrap();
        sys
    }

    #[test]
    fn a_mapping_on_a_partition_leads_to_the_disk() {
        let sys = sysfs();
        let device = Device::numbered(sys.path(), (253, 0)).unwrap();
        assert_eq!((&*device.name, &*device.disk), ("dm-0", "sda"));
        assert_eq!(device.scheduler.as_deref(), Some("bfq"));
        assert_eq!(device.schedulers, ["none", "bfq", "mq-deadline"]);
        assert_eq!((device.rotational, device.wbt_lat_usec), (Some(true), Some(0)));
        assert_eq!(device.bytes_written(), Some(7 * 512 + 512));
    }

    #[test]
    fn a_device_that_stands_on_itself_ends_the_search() {
        let sys = sysfs();
        let dm = sys.path().join("devices/dm-0");
        fs::remove_file(dm.join("slaves/sda2")).unwrap();
        symlink(&dm, dm.join("slaves/dm-0")).unwrap();
        let device = Device::numbered(sys.path(), (253, 0)).unwrap();
        assert_eq!((&*device.disk, device.scheduler), ("dm-0", None));
    }

    #[test]
    fn an_unknown_number_is_no_device() {
        assert!(Device::numbered(sysfs().path(), (9, 9)).is_none());
    }
}
