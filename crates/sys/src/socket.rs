//! Unix sockets whose messages keep their bounds and may carry a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, listen, recv, recvmsg, sendmsg, shutdown, socket_with,
    socketpair,
};

/// Makes two connected sockets.
///
/// # Errors
///
/// As `socketpair(2)`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    made.map_err(io::Error::from)
}

/// Waits for callers at `path`, which must not exist.
///
/// # Errors
///
/// As `bind(2)` and `listen(2)`; `InvalidInput` if the path is too long for a socket.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Takes the next caller at a socket of [`listen_at`].
///
/// # Errors
///
/// As `accept(2)`.
pub fn accept_at(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC)?)
}

/// Connects to whoever listens at `path`.
///
/// # Errors
///
/// As `connect(2)`; `InvalidInput` if the path is too long for a socket.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Waits for callers of this user alone at `path`, which must not exist: its permissions are 0600 whatever the umask is.
///
/// Up to `waiting` callers wait until they are taken; nothing is ever waited for on this end.
///
/// # Errors
///
/// As [`listen_at`].
pub fn listen_privately(path: &Path, waiting: i32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // The name in the file system gets the permissions of the socket, less the umask (unix(7) does not say so; `unix_bind_bsd` does).
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, waiting)?;
    Ok(socket)
}

/// Connects to whoever listens at `path`, if it takes callers now.
///
/// # Errors
///
/// `WouldBlock`: too many wait there already; as [`connect_to`].
pub fn connect_now(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn unconnected() -> io::Result<OwnedFd> {
    let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    made.map_err(io::Error::from)
}

/// What to do when the other end has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Wait until it has.
    Wait,
    /// Fail with `WouldBlock`.
    Fail,
}

/// Sends one message, with a descriptor if one is given.
///
/// # Errors
///
/// As `sendmsg(2)`; a closed other end is `BrokenPipe`, never a signal. With [`Full::Wait`] it waits up to 20 s while too many descriptors of
/// the user are on their way.
pub fn send(
    socket: impl AsFd,
    message: &[u8],
    passed: Option<BorrowedFd<'_>>,
    full: Full,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = passed.as_slice();
    if !rights.is_empty() && !control.push(SendAncillaryMessage::ScmRights(rights)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut flags = SendFlags::NOSIGNAL;
    if full == Full::Fail {
        flags |= SendFlags::DONTWAIT;
    }
    let parts = [io::IoSlice::new(message)];
    let mut in_flight = InFlightWait::default();
    loop {
        match sendmsg(&socket, &parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::TOOMANYREFS) if full == Full::Wait => in_flight.wait(&socket)?,
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// A wait until fewer descriptors of the user are in flight, which is what unix(7) calls those that were sent and not received.
///
/// The kernel sends none (`ETOOMANYREFS`) while more of them wait in sockets, sent by whatever program of the user, than the sender
/// may have open. That lasts until others have received theirs.
#[derive(Debug, Default)]
pub(crate) struct InFlightWait {
    waited: Duration,
}

impl InFlightWait {
    /// How long others may take to receive theirs.
    const LONGEST: Duration = Duration::from_secs(20);
    /// The first and the longest wait between two tries.
    const MOMENTS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

    /// Waits for a moment, a longer one each time; a closed other end ends it.
    ///
    /// # Errors
    ///
    /// It has lasted for too long; `BrokenPipe` if the other end is closed.
    pub(crate) fn wait(&mut self, socket: impl AsFd) -> io::Result<()> {
        if self.waited >= InFlightWait::LONGEST {
            let why = "more descriptors of this user are on their way than this program may have open (ulimit -n)";
            return Err(io::Error::other(why));
        }
        let (least, most) = InFlightWait::MOMENTS;
        let moment = (self.waited / 2).clamp(least, most);
        self.waited += moment;
        // Nothing tells when others receive theirs.
        let moment = Timespec::try_from(moment).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::empty())], Some(&moment)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Says whether something that was sent here has not been taken at the other end.
///
/// # Errors
///
/// As `ioctl_unix(7)`.
pub fn has_unread(socket: impl AsFd) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one number to where `bytes` is.
    let done = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(bytes > 0) } else { Err(io::Error::last_os_error()) }
}

/// A message that came in.
#[derive(Debug)]
pub struct Received {
    /// How many bytes of the buffer it fills; 0 without a descriptor is the end.
    pub length: usize,
    /// The descriptor that came with it.
    pub descriptor: Option<OwnedFd>,
}

/// Takes one message into `buffer`, without waiting. A peer that has ended with messages of ours unread is no error: what it
/// had sent is received, then the end.
///
/// # Errors
///
/// `WouldBlock` if there is none; `InvalidData` if it is longer than the buffer or carries more than one
/// descriptor (those are closed); `EMFILE` if it carries one for which this process has no room: the message is gone, and the
/// next one can be received; what `recvmsg(2)` reports.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = despite_a_reset(|| {
        let mut parts = [io::IoSliceMut::new(&mut *buffer)];
        recvmsg(&socket, &mut parts, &mut control, flags)
    })?;
    // Space for one descriptor has room for more, because of its alignment.
    let mut passed: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            passed.extend(descriptors);
        }
    }
    if passed.len() > 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    if result.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    if result.flags.contains(ReturnFlags::CTRUNC) {
        return match passed.is_empty() {
            // The kernel tells so of a descriptor that this process may not have.
            true => Err(Errno::MFILE.into()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors")),
        };
    }
    Ok(Received { length: result.bytes, descriptor: passed.pop() })
}

/// Takes one message into `buffer` and returns its length, without waiting; 0 is the end. No descriptor that it carries is opened here: the kernel gives them back.
///
/// # Errors
///
/// `WouldBlock` if there is none; `InvalidData` if it is longer than the buffer; what `recv(2)` reports.
pub fn receive_bytes(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let (_, length) = despite_a_reset(|| recv(&socket, &mut *buffer, flags))?;
    if length > buffer.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    Ok(length)
}

/// Receives until it succeeds or fails. The error of a peer that has closed its end before it had read everything comes once,
/// before the messages that the peer had sent: these are received, and then the end.
fn despite_a_reset<R>(mut receive: impl FnMut() -> Result<R, Errno>) -> io::Result<R> {
    let mut was_reset = false;
    loop {
        match receive() {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            other => return Ok(other?),
        }
    }
}

/// Waits until `descriptor` can be read or its other end is gone; `None` waits for ever. Says whether it is so.
///
/// # Errors
///
/// As `poll(2)`; a signal is no error but may end the wait early.
pub fn wait_readable(descriptor: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the other end of a socket is gone.
///
/// # Errors
///
/// As `poll(2)`.
pub fn wait_hung_up(socket: impl AsFd) -> io::Result<()> {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Checks that `socket` is one of messages.
///
/// # Errors
///
/// `InvalidInput` if it is of another kind, `ENOTSOCK` if it is none.
pub fn check_messages(socket: impl AsFd) -> io::Result<()> {
    if socket_type(socket)? == SocketType::SEQPACKET {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a socket of another kind"))
}

/// Ends the connection in both directions at once, for every holder of either end.
///
/// # Errors
///
/// As `shutdown(2)`: it was not connected.
pub fn hang_up(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Both)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn a_wait_for_descriptors_in_flight_ends_with_the_other_end_and_after_its_time() {
        let (here, there) = pair().unwrap();
        let mut wait = InFlightWait::default();
        wait.wait(&here).unwrap();
        wait.waited = InFlightWait::LONGEST;
        assert!(wait.wait(&here).unwrap_err().to_string().contains("ulimit -n"));
        drop(there);
        let mut wait = InFlightWait::default();
        // A process that another test starts has the other end, too, until it executes its program.
        let closed = std::iter::repeat_with(|| wait.wait(&here)).find_map(Result::err).unwrap();
        assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_message_keeps_its_bounds_and_carries_a_file() {
        let (here, there) = pair().unwrap();
        let file = crate::memfd::create("passed").unwrap();
        std::io::Write::write_all(&mut &file, b"inside").unwrap();
        send(&here, b"one", None, Full::Wait).unwrap();
        send(&here, b"two", Some(file.as_fd()), Full::Wait).unwrap();
        let mut buffer = [0; 16];
        assert!(wait_readable(&there, Some(Duration::ZERO)).unwrap());
        let first = receive(&there, &mut buffer).unwrap();
        assert!(first.length == 3 && first.descriptor.is_none() && &buffer[..3] == b"one");
        let second = receive(&there, &mut buffer).unwrap();
        let mut passed = File::from(second.descriptor.unwrap());
        std::io::Seek::rewind(&mut passed).unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!((second.length, &*text), (3, "inside"));
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        hang_up(&here).unwrap();
        assert_eq!(receive(&there, &mut buffer).unwrap().length, 0);
        let broken = send(&there, b"x", None, Full::Wait).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn messages_of_a_peer_that_ended_before_it_had_read_everything_are_received() {
        let mut buffer = [0; 16];
        for is_plain in [true, false] {
            let mut received = |socket: &OwnedFd| match is_plain {
                true => receive_bytes(socket, &mut buffer),
                false => receive(socket, &mut buffer).map(|received| received.length),
            };
            let (here, there) = pair().unwrap();
            send(&there, b"nobody reads this", None, Full::Fail).unwrap();
            send(&here, b"one", None, Full::Fail).unwrap();
            send(&here, b"three", None, Full::Fail).unwrap();
            drop(here);
            // A program that another test is starting has a copy of that end until it runs.
            wait_hung_up(&there).unwrap();
            let lengths: Vec<_> = (0..4).map(|_| received(&there).unwrap()).collect();
            assert_eq!(lengths, [3, 5, 0, 0]);
        }
    }

    #[test]
    fn too_long_a_message_and_too_many_descriptors_are_errors() {
        let (here, there) = pair().unwrap();
        send(&here, &[7; 17], None, Full::Wait).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);

        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [here.as_fd(), here.as_fd(), here.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(&here, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn descriptors_that_come_uninvited_are_not_opened() {
        let (here, there) = pair().unwrap();
        let (mut kept, passed) = io::pipe().unwrap();
        send(&here, b"one", Some(passed.as_fd()), Full::Fail).unwrap();
        drop(passed);
        let mut buffer = [0; 4];
        assert_eq!(receive_bytes(&there, &mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"one");
        // It ends as soon as nobody holds the other end.
        let until = Some(Duration::from_secs(30));
        assert!(wait_readable(&kept, until).unwrap(), "the descriptor was still open after 30 s");
        assert_eq!(io::Read::read(&mut kept, &mut [0]).unwrap(), 0);
        send(&here, b"four!", None, Full::Fail).unwrap();
        let long = receive_bytes(&there, &mut buffer).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        let none = receive_bytes(&there, &mut buffer).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        drop(here);
        // A program that another test is starting has a copy until it runs.
        assert!(wait_readable(&there, until).unwrap(), "the end did not come within 30 s");
        assert_eq!(receive_bytes(&there, &mut buffer).unwrap(), 0);
    }

    #[test]
    fn a_private_socket_is_the_users_alone_and_never_waits() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = listen_privately(&path, 4).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let none = accept_at(&listener).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let _here = connect_to(&path).unwrap();
        accept_at(&listener).unwrap();
        // Where nobody takes them, callers do not wait either.
        let callers: Vec<_> = (0..20).map(|_| connect_now(&path)).collect();
        let refused = callers.iter().find_map(|caller| caller.as_ref().err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn callers_are_taken_at_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = listen_at(&path).unwrap();
        let here = connect_to(&path).unwrap();
        let there = accept_at(&listener).unwrap();
        send(&here, b"hello", None, Full::Fail).unwrap();
        assert_eq!(receive(&there, &mut [0; 8]).unwrap().length, 5);
    }
}
