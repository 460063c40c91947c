//! Who is at the other end of a Unix socket.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The option that gives a descriptor of the peer's process; Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;
/// The option that gives the peer's groups; Linux 4.13.
const SO_PEERGROUPS: libc::c_int = 59;

/// Whether a peer sees the same files as this process, as this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerView {
    /// It does.
    Same,
    /// It belongs to another user.
    OtherUser,
    /// It lives in another mount namespace: the same path may be another file for it.
    OtherMounts,
}

/// Who made the other end of a socket, as the kernel saw it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
    /// The number of its process, which may have ended since; 0 where it is in a PID namespace that is not seen from here.
    pub process: u32,
}

/// Returns who made the other end of `socket`: whoever called `connect(2)`, or `listen(2)` for one that connected.
///
/// # Errors
///
/// As `getsockopt(2)`: it is no socket of this machine.
pub fn credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    // The number may be 0, which rustix's type for it cannot be.
    let mut made = MaybeUninit::<libc::ucred>::uninit();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(12);
    // SAFETY: `made` is writable memory of `length` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            made.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let found = unsafe { made.assume_init() };
    let process = u32::try_from(found.pid).unwrap_or(0);
    Ok(PeerCredentials { user: found.uid, group: found.gid, process })
}

/// Returns the groups of who made the other end of `socket`, beside the effective one.
///
/// # Errors
///
/// As `getsockopt(2)`: it is no socket of this machine, or the kernel is older than 4.13.
pub fn groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    /// The kernel's limit of groups.
    const MOST: usize = 65_536;
    let mut groups = vec![0_u32; MOST];
    let mut length = libc::socklen_t::try_from(MOST * 4).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: `groups` is writable memory of `length` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(usize::try_from(length / 4).unwrap_or(0));
    Ok(groups)
}

/// Returns a descriptor of the process that made the other end of `socket`, and its number, which belongs to it until the descriptor can be read.
///
/// Before Linux 6.5 the descriptor is made from the number, which could be another process's only if the peer has ended before.
///
/// # Errors
///
/// The peer has ended, or it is in a PID namespace that is not seen from here.
pub fn process(socket: impl AsFd) -> io::Result<(OwnedFd, u32)> {
    let socket = socket.as_fd();
    let pid = i32::try_from(credentials(socket)?.process).ok().and_then(Pid::from_raw);
    let process = descriptor(socket, pid.ok_or(io::ErrorKind::NotFound)?)?;
    let number = number(&process)?;
    Ok((process, number))
}

/// Finds out who connected `socket`.
///
/// The process is held by a descriptor while its namespace is looked at, so that no other process can be taken for it. Before Linux 6.5 the
/// descriptor is made from its number, which could be another process's only if the peer has ended before.
///
/// # Errors
///
/// The peer has ended, or `/proc` is not there or hides it.
pub fn of(socket: impl AsFd) -> io::Result<PeerView> {
    let socket = socket.as_fd();
    let credentials = credentials(socket)?;
    if credentials.user != rustix::process::geteuid().as_raw() {
        return Ok(PeerView::OtherUser);
    }
    let pid = i32::try_from(credentials.process).ok().and_then(Pid::from_raw);
    let process = descriptor(socket, pid.ok_or(io::ErrorKind::NotFound)?)?;
    let pid = number(&process)?;
    let theirs = namespace(&format!("/proc/{pid}/ns/mnt"))?;
    // If it has not ended by now, the number was its own all the time.
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if !polled[0].revents().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let same = theirs == namespace("/proc/self/ns/mnt")?;
    Ok(if same { PeerView::Same } else { PeerView::OtherMounts })
}

fn namespace(path: &str) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}

/// A descriptor of the peer's process.
fn descriptor(socket: impl AsFd, pid: Pid) -> io::Result<OwnedFd> {
    let mut made = MaybeUninit::<libc::c_int>::uninit();
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: `made` is writable memory of `length` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            made.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Ok(pidfd_open(pid, PidfdFlags::empty())?)
            }
            error => Err(error),
        };
    }
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let number = unsafe { made.assume_init() };
    // SAFETY: the kernel made this descriptor for us just now; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The number of a process that has not ended.
fn number(process: &OwnedFd) -> io::Result<u32> {
    let mut text = String::new();
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    File::open(path)?.take(4096).read_to_string(&mut text)?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    pid.filter(|pid| *pid != 0).ok_or(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_kernel_says_who_is_at_the_other_end() {
        let (here, _there) = crate::socket::pair().unwrap();
        let own = PeerCredentials {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            process: std::process::id(),
        };
        assert_eq!(credentials(&here).unwrap(), own);
        assert!(credentials(tempfile::tempfile().unwrap()).is_err());
        let (_held, process) = process(&here).unwrap();
        assert_eq!(process, std::process::id());
        let own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        let mut groups = groups(&here).unwrap();
        groups.sort_unstable();
        assert!(own.iter().all(|group| groups.contains(group)), "{groups:?} of {own:?}");
    }

    #[test]
    fn oneself_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let here = crate::socket::pair().unwrap();
        assert_eq!(of(&here.0).unwrap(), PeerView::Same);
        let _caller = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(of(listener.accept().unwrap().0).unwrap(), PeerView::Same);
    }
}
