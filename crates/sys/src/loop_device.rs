//! A file as a block device, gone with its last user: loop(4) with `LO_FLAGS_AUTOCLEAR` from the first moment, so that no end of its maker leaves one behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// `LOOP_CTL_GET_FREE` and `LOOP_CONFIGURE` of `linux/loop.h`.
const GET_FREE: libc::Ioctl = 0x4c82;
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// The device frees itself when nobody has it open or mounted any more.
const AUTOCLEAR: u32 = 4;
/// Requests go to the file past the page cache, with the class that they have.
const DIRECT_IO: u32 = 16;
/// How often another free device is asked for when somebody was quicker.
const TRIES: usize = 64;

/// `struct loop_config` of `linux/loop.h`, with `struct loop_info64` written out.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// A loop device that is open; it lives until this, all mounts of it and all who have it open are gone.
#[derive(Debug)]
pub struct LoopDevice {
    /// Open, so that the kernel does not free the device before it is mounted.
    _device: File,
    name: String,
}

impl LoopDevice {
    /// Makes a device of `file`, which is open for reading and writing, with direct reads and writes to it.
    ///
    /// # Errors
    ///
    /// `EACCES`: it needs root; `ENOENT`: there are no loop devices; `EBUSY`: others took each free one. There is no device.
    pub fn over(file: &File) -> io::Result<LoopDevice> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let number = u32::try_from(file.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let config = Config {
            file: number,
            block_size: 0,
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encryption: 0,
            key_size: 0,
            flags: AUTOCLEAR | DIRECT_IO,
            file_name: [0; 64],
            encryption_name: [0; 64],
            key: [0; 32],
            init: [0; 2],
            reserved: [0; 8],
        };
        for _ in 0..TRIES {
            // SAFETY: the call takes no argument.
            let free = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
            if free < 0 {
                return Err(io::Error::last_os_error());
            }
            let name = format!("loop{free}");
            let opened = OpenOptions::new().read(true).write(true).open(node(&name));
            let device = opened?;
            // SAFETY: the kernel reads a structure of the layout that it expects, which lives until the call has returned.
            let done = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) };
            if done == 0 {
                return Ok(LoopDevice { _device: device, name });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Returns its name in sysfs: `loop3`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its node.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        node(&self.name)
    }
}

fn node(name: &str) -> PathBuf {
    PathBuf::from("/dev").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_size_that_the_kernel_reads() {
        assert_eq!(size_of::<Config>(), 304);
    }
}
