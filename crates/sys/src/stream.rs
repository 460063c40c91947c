//! Unix sockets of bytes, in which descriptors may travel with the bytes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect,
    recvmsg, sendmsg, shutdown, socket_with,
};

use crate::socket::InFlightWait;

/// The kernel passes no more descriptors at once.
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// Where somebody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAddress<'a> {
    /// At a path.
    Path(&'a Path),
    /// At a name that is in no directory.
    Abstract(&'a [u8]),
}

/// Connects to whoever listens at `address`.
///
/// Neither that nor a later [`send`] waits longer than `limit` for the other end to have room.
///
/// # Errors
///
/// As `connect(2)`; `TimedOut` if the queue of the other end stays full; `InvalidInput` if the address is too long for a socket.
pub fn connect_to(address: SocketAddress<'_>, limit: Duration) -> io::Result<OwnedFd> {
    let address = match address {
        SocketAddress::Path(path) => SocketAddrUnix::new(path)?,
        SocketAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // One of no length would be none at all.
    set_socket_timeout(&socket, Timeout::Send, Some(limit.max(Duration::from_millis(1))))?;
    match connect(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of `bytes`, and `descriptors` with the first of them; waits while the other end has no room, and up to 20 s while too
/// many descriptors of the user are on their way.
///
/// # Errors
///
/// As `sendmsg(2)`; `TimedOut` if there was no room for as long as [`connect_to`] was told; `InvalidInput` for too many descriptors. A closed other end is `BrokenPipe`, never a signal.
pub fn send(socket: impl AsFd, mut bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut in_flight = InFlightWait::default();
    while !bytes.is_empty() {
        match sendmsg(&socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                bytes = bytes.get(sent..).unwrap_or_default();
                control.clear();
            }
            Err(Errno::INTR) => (),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::TOOMANYREFS) => in_flight.wait(&socket)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends as much of `parts` as there is room for now, and `descriptors` with the first byte; returns how much.
///
/// # Errors
///
/// As `sendmsg(2)`: `WouldBlock` if there is no room; `InvalidInput` for too many descriptors.
pub fn send_now(
    socket: impl AsFd,
    parts: &[io::IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(&socket, parts, &mut control, flags))
        .map_err(io::Error::from)
}

/// Takes what has come by now into `buffer`, with the descriptors that came with it; returns how much, 0 is the end.
///
/// # Errors
///
/// As `recvmsg(2)`: `WouldBlock` if nothing has come.
pub fn receive_now(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let received = rustix::io::retry_on_intr(|| recvmsg(&socket, &mut parts, &mut control, flags))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((received.bytes, descriptors))
}

/// Ends both directions of a connection.
///
/// # Errors
///
/// As `shutdown(2)`.
pub fn end(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Both)?)
}

/// What to do when nothing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// Wait.
    Wait,
    /// Fail with `WouldBlock`.
    Fail,
}

/// Takes what has come into `buffer` and returns how much; 0 is the end. Descriptors that came with it are closed.
///
/// # Errors
///
/// As `recvmsg(2)`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], empty: Empty) -> io::Result<usize> {
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if empty == Empty::Fail {
        flags |= RecvFlags::DONTWAIT;
    }
    loop {
        // Without room for them the kernel closes descriptors itself.
        let mut control = RecvAncillaryBuffer::default();
        match recvmsg(&socket, &mut [io::IoSliceMut::new(&mut *buffer)], &mut control, flags) {
            Ok(result) => return Ok(result.bytes),
            Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn bytes_and_descriptors_arrive_and_unwanted_descriptors_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let here = connect_to(SocketAddress::Path(&path), Duration::from_secs(10)).unwrap();
        let (there, _) = listener.accept().unwrap();
        let (kept, passed) = UnixStream::pair().unwrap();
        send(&here, b"hello", &[passed.as_fd(), passed.as_fd()]).unwrap();
        drop(passed);
        let mut buffer = [0; 16];
        assert_eq!(receive(&there, &mut buffer, Empty::Wait).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        // The last holder of the other end is gone.
        assert_eq!(receive(&kept, &mut buffer, Empty::Wait).unwrap(), 0);
        let nothing = receive(&there, &mut buffer, Empty::Fail).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let many = vec![here.as_fd(); MOST_DESCRIPTORS + 1];
        assert_eq!(send(&here, b"x", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(there);
        // A program that another test is starting has a copy until it runs.
        let until = Some(Duration::from_secs(30));
        assert!(crate::socket::wait_readable(&here, until).unwrap(), "no end within 30 s");
        let gone = send(&here, b"x", &[]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
