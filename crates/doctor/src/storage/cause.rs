//! The cause of a slow sync, derived from the mount, the disk and its queue.

use sys::device::Device;
use sys::mounts::MountInfo;

use crate::finding::Help;
use crate::remedy::Remedy;

/// Space that is left on a file system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FreeSpace {
    /// Bytes that this user may still write.
    pub(super) free_bytes: u64,
    /// All bytes.
    pub(super) total_bytes: u64,
}

impl FreeSpace {
    /// Returns whether under a twentieth and under 2 GiB is left.
    pub(super) fn is_short(self) -> bool {
        self.total_bytes > 0 && self.free_bytes < self.total_bytes / 20 && self.free_bytes < 2 << 30
    }
}

/// The step that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowStep {
    /// A sync with the disk otherwise idle.
    Alone,
    /// A sync while something else writes.
    BesideCopy,
}

/// Explains a slow step; the likeliest reason first.
pub(super) fn explain(
    slow: SlowStep,
    mount: &MountInfo,
    device: Option<&Device>,
    space: Option<FreeSpace>,
) -> (String, Vec<Help>) {
    let mut help = Vec::new();
    let cause = if mount.is_network() {
        help.push(hint("keep $XDG_CONFIG_HOME and caches on a local disk"));
        format!("every sync waits for another machine ({})", mount.fs_type)
    } else if mount.is_fuse() {
        help.push(hint("keep $XDG_CONFIG_HOME and caches on a file system of the kernel"));
        format!("every sync waits for the program behind {}", mount.fs_type)
    } else if mount.has("sync") || mount.has("dirsync") {
        help.push(Help::Remedy(Remedy::MountAsync(mount.point.clone())));
        "the file system is mounted with sync: every write waits for the disk".to_owned()
    } else if mount.fs_options.iter().any(|option| option == "data=journal") {
        help.push(hint("take data=journal out of the options in /etc/fstab and restart"));
        "data=journal writes every byte twice".to_owned()
    } else if space.is_some_and(FreeSpace::is_short) {
        help.push(Help::Remedy(Remedy::ShowSpace(mount.point.clone())));
        "the file system is almost full, so free blocks are far apart".to_owned()
    } else {
        match (slow, device) {
            (_, None) => "the time is spent below the file system".to_owned(),
            (SlowStep::Alone, Some(device)) => {
                help.push(hint("fewer syncs help more than a faster queue"));
                match device.rotational {
                    Some(true) => format!(
                        "{} says that it turns (virtual disks often do): each sync waits for it",
                        device.disk
                    ),
                    _ => format!("{} takes this long to flush its cache", device.disk),
                }
            }
            (SlowStep::BesideCopy, Some(device)) => beside_copy(device, &mut help),
        }
    };
    (cause, help)
}

fn beside_copy(device: &Device, help: &mut Vec<Help>) -> String {
    let disk = &device.disk;
    let scheduler = device.scheduler.as_deref().unwrap_or("none");
    if scheduler != "bfq" && device.schedulers.iter().any(|name| name == "bfq") {
        help.push(Help::Remedy(Remedy::SetScheduler(disk.clone())));
    }
    if device.wbt_lat_usec == Some(0) && scheduler != "bfq" {
        help.push(Help::Remedy(Remedy::SetThrottling(disk.clone())));
    }
    let throttling = match device.wbt_lat_usec {
        Some(0) => "write-back throttling is off",
        Some(_) => "write-back throttling does not hold the copy back enough",
        None => "there is no write-back throttling",
    };
    format!("the copy fills the queue of {disk} (scheduler {scheduler}); {throttling}")
}

fn hint(text: &str) -> Help {
    Help::Hint(text.to_owned())
}

#[cfg(test)]
mod tests {
    use sys::mounts::Mounts;

    use super::*;

    fn cause(line: &str, space: Option<FreeSpace>) -> String {
        let mounts = Mounts::parse(line.as_bytes());
        let mount = mounts.above("/x".as_ref()).unwrap();
        explain(SlowStep::Alone, mount, None, space).0
    }

    #[test]
    fn the_mount_is_blamed_before_the_disk() {
        insta::assert_snapshot!(cause("1 1 0:9 / / rw - nfs4 host:/x rw", None), @"every sync waits for another machine (nfs4)");
        insta::assert_snapshot!(cause("1 1 0:9 / / rw - fuse.x x rw", None), @"every sync waits for the program behind fuse.x");
        insta::assert_snapshot!(cause("1 1 8:9 / / rw,sync - ext4 x rw", None), @"the file system is mounted with sync: every write waits for the disk");
        insta::assert_snapshot!(cause("1 1 8:9 / / rw - ext4 x rw,data=journal", None), @"data=journal writes every byte twice");
        let full = FreeSpace { free_bytes: 1 << 20, total_bytes: 1 << 40 };
        insta::assert_snapshot!(cause("1 1 8:9 / / rw - ext4 x rw", Some(full)), @"the file system is almost full, so free blocks are far apart");
        insta::assert_snapshot!(cause("1 1 8:9 / / rw - ext4 x rw", None), @"the time is spent below the file system");
    }

    #[test]
    fn a_large_disk_with_little_left_in_proportion_is_not_full() {
        assert!(!FreeSpace { free_bytes: 100 << 30, total_bytes: 4 << 40 }.is_short());
        assert!(!FreeSpace { free_bytes: 0, total_bytes: 0 }.is_short());
    }
}
