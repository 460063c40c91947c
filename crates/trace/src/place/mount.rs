//! The file system that a path or a descriptor of a traced process is on.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sys::device::Device;
use sys::mounts::Mounts;

use crate::recorder::TraceRecorder;
use crate::recording::RecordedMount;

/// The most mounts that are remembered.
const MOUNTS: usize = 65_536;

/// The most directories above a path that are tried when it does not exist.
const ABOVE: usize = 64;

/// File systems by the number that the kernel gives their mounts.
#[derive(Debug, Default)]
pub(super) struct MountTable(HashMap<u64, Option<u32>>);

impl MountTable {
    /// Returns the mount with this number, as `process` sees it.
    pub(super) fn numbered(
        &mut self,
        process: u32,
        id: u64,
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        if let Some(known) = self.0.get(&id) {
            return *known;
        }
        if self.0.len() >= MOUNTS {
            self.0.clear();
        }
        let found = std::fs::read(format!("/proc/{process}/mountinfo")).ok().and_then(|text| {
            let mounts = Mounts::parse(&text);
            mounts.numbered(id).map(|mount| recorder.mount(described(mount)))
        });
        self.0.insert(id, found);
        found
    }

    /// Returns the mount of an open descriptor.
    pub(super) fn of_descriptor(
        &mut self,
        process: u32,
        descriptor: i32,
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).ok()?;
        let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        self.numbered(process, id.trim().parse().ok()?, recorder)
    }

    /// Returns the mount of `path`, or of the nearest directory above that exists.
    pub(super) fn of_path(
        &mut self,
        process: u32,
        path: &[u8],
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path)).strip_prefix("/").ok()?;
        let root = std::path::PathBuf::from(format!("/proc/{process}/root"));
        let id = path.ancestors().take(ABOVE).find_map(|path| number_of(&root.join(path)))?;
        self.numbered(process, id, recorder)
    }
}

/// Returns the number of the mount that a path is on.
fn number_of(path: &Path) -> Option<u64> {
    let stat = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Returns the number of the mount of our own root.
pub(super) fn of_root() -> Option<u64> {
    number_of(Path::new("/"))
}

/// Describes a mount and the device that it is on.
fn described(mount: &sys::mounts::MountInfo) -> RecordedMount {
    let device = Device::under(mount);
    let options = mount.options.iter().chain(&mount.fs_options);
    let mut seen: Vec<&str> = Vec::new();
    for option in options {
        if !seen.contains(&&**option) {
            seen.push(option);
        }
    }
    RecordedMount {
        point: mount.point.as_os_str().as_bytes().to_vec(),
        kind: mount.fs_type.clone(),
        options: seen.join(","),
        source: mount.source.as_bytes().to_vec(),
        rotational: device.as_ref().and_then(|device| device.rotational),
        scheduler: device.and_then(|device| device.scheduler),
    }
}
