//! A file system of its own on a loop device, for tests that want another kind than the machine's.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A mounted image; unmounted, and its loop device freed, when it is dropped, also after a failure.
pub struct LoopDisk {
    dir: TempDir,
    mount: PathBuf,
}

impl LoopDisk {
    /// Makes and mounts a file system of this kind, or says why it cannot be.
    pub fn make(kind: &str) -> Option<LoopDisk> {
        LoopDisk::sized(kind, 400 << 20, &[])
    }

    /// As [`LoopDisk::make`], of this many bytes and with these options for `mount`.
    pub fn sized(kind: &str, len_bytes: u64, options: &[&str]) -> Option<LoopDisk> {
        let dir = tempfile::tempdir().unwrap();
        let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
        #[expect(
            clippy::disallowed_methods,
            reason = "a disk image for a test, not a durable file"
        )]
        std::fs::File::create(&image).unwrap().set_len(len_bytes).unwrap();
        std::fs::create_dir(&mount).unwrap();
        let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            crate::fixture::skip(&format!("mkfs.{kind} does not work here"));
            return None;
        }
        let options = [&["loop"], options].concat().join(",");
        let mounted = Command::new("mount").args(["-o", &options]).args([&image, &mount]).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(LoopDisk { dir, mount });
        }
        crate::fixture::skip(&format!("{kind} on a loop device cannot be mounted here"));
        None
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Mounts it again with other options, for example `ro`.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.mount).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}
