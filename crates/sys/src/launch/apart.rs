//! Starts of programs that touch no descriptor of others.
//!
//! A child begins with a copy of all our descriptors, and closes those that it must not have when it executes its program.
//! Among them may be some that other programs passed to us, and the file system behind one of these may take for ever to
//! answer a close: then no program could be started any more. So a child shares our table, leaves it for an empty one but
//! for the lowest numbers, which are all ours ([`keep_apart`]), and receives what it is to have through a socket of these.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// Numbers below this one hold nothing of others. Kernels before 6.12 copy as many when they copy any.
const FIRST_OF_OTHERS: RawFd = 64;
/// The most descriptors that go through a socket at once, of the 253 that a kernel lets pass.
const MOST_PASSED: usize = 250;
const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;

/// Numbers that hold nothing but a place for a socket.
static PLACES: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

fn places() -> MutexGuard<'static, Vec<OwnedFd>> {
    // Nothing that panics runs under it.
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many programs may be started at once.
#[cfg(test)]
pub(super) fn free_places() -> usize {
    places().len()
}

/// Takes all low numbers that are free, so that no descriptor of another program ever gets one, and has programs start
/// without a look at those of others from now on. To be called before any of these can arrive.
///
/// # Errors
///
/// The kernel is older than 5.9, or there are no descriptors left: programs start as before.
pub fn keep_apart() -> io::Result<()> {
    // SAFETY: no descriptor has such a number; the kernel only says whether it knows the flag.
    let known =
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE) };
    if known != 0 {
        return Err(io::Error::last_os_error());
    }
    let (null, _) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut taken = Vec::new();
    loop {
        let place = super::above(null.as_fd(), 3)?;
        if place.as_raw_fd() >= FIRST_OF_OTHERS {
            break;
        }
        taken.push(place);
    }
    if null.as_raw_fd() < FIRST_OF_OTHERS {
        taken.push(null);
    }
    places().append(&mut taken);
    Ok(())
}

/// A way to a child that has no table of descriptors yet, with what it is to get.
#[derive(Debug)]
pub(super) struct Way {
    /// The child's end, which has the number of the place.
    place: Option<OwnedFd>,
    _ours: OwnedFd,
}

impl Way {
    /// Sends descriptors on a way of their own; `None` where programs start with a copy of all.
    pub(super) fn with(descriptors: &[BorrowedFd<'_>]) -> Option<Way> {
        if descriptors.len() > MOST_PASSED {
            return None;
        }
        let place = places().pop()?;
        // From here on the place is given back, whatever happens.
        let Ok((ours, theirs)) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        else {
            places().push(place);
            return None;
        };
        replace(&place, theirs.as_fd());
        let way = Way { place: Some(place), _ours: ours };
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return None;
        }
        // What is on its way counts for the user's limit of descriptors.
        sendmsg(&way._ours, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).ok()?;
        Some(way)
    }

    /// Returns what a child needs to receive the descriptors.
    pub(super) fn child_end(&self) -> ChildEnd {
        ChildEnd { socket: self.place.as_ref().map_or(-1, AsRawFd::as_raw_fd) }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // What was not received is let go of without a word to its file system.
            replace(&place, self._ours.as_fd());
            places().push(place);
        }
    }
}

/// Has the number of a place mean another descriptor. It is never free meanwhile.
fn replace(place: &OwnedFd, by: BorrowedFd<'_>) {
    // SAFETY: takes two numbers that are both open; the place is ours alone and nobody else uses its number.
    unsafe { libc::dup3(by.as_raw_fd(), place.as_raw_fd(), libc::O_CLOEXEC) };
}

/// The end of a way that a child has.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildEnd {
    socket: RawFd,
}

impl ChildEnd {
    /// Leaves the table of the parent and takes what was sent, each with a number of `least` or more, into `received`; returns how
    /// many there are. For a child that shares memory and table with its parent: allocates nothing and takes no lock.
    ///
    /// # Errors
    ///
    /// A number of the operating system: the child must end.
    pub(super) fn receive(
        self,
        least: RawFd,
        received: &mut [RawFd; MOST_PASSED],
    ) -> Result<usize, libc::c_int> {
        let first = FIRST_OF_OTHERS.unsigned_abs();
        // SAFETY: gives the child a table of its own that has the lowest numbers alone; nothing of the parent's is closed.
        let left =
            unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_UNSHARE) };
        if left != 0 {
            return Err(super::errno());
        }
        // Eight bytes each: what the kernel wants a control message to be aligned to.
        let mut control = [0_u64; 2 + MOST_PASSED / 2 + 1];
        let mut byte = 0_u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: zeros are a message without anything.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message names memory of this frame with its sizes.
        let got = unsafe { libc::recvmsg(self.socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if got != 1 || message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(if got < 0 { super::errno() } else { libc::EMFILE });
        }
        // SAFETY: reads the header of a message that the kernel filled.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        if header.is_null() {
            return Ok(0);
        }
        // SAFETY: it is not null, and lies in the buffer.
        let length = unsafe { (*header).cmsg_len } as usize;
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
        // SAFETY: computes a length.
        let empty = unsafe { libc::CMSG_LEN(0) } as usize;
        let count = (length.saturating_sub(empty) / size_of::<RawFd>()).min(MOST_PASSED);
        // SAFETY: the kernel wrote so many numbers there.
        unsafe { ptr::copy_nonoverlapping(data, received.as_mut_ptr(), count) };
        for number in &mut received[..count] {
            if *number < least {
                // SAFETY: makes another descriptor in the child's own table.
                *number = unsafe { libc::fcntl(*number, libc::F_DUPFD_CLOEXEC, least) };
                if *number < 0 {
                    return Err(super::errno());
                }
            }
        }
        Ok(count)
    }
}
