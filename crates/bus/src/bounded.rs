//! A connection to a bus that reads no further while much of what it has read waits for the service.
//!
//! zbus lets 64 messages wait, whatever their length, and a message may have 128 MiB. Here the next message is begun only
//! while fewer than [`MOST_UNREAD`] bytes wait; what comes meanwhile stays with the bus, which has limits for each sender.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use zbus::address::Address;
use zbus::address::transport::{Transport, UnixSocket};
use zbus::connection::Builder;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;
use zbus::{Connection, Message};

/// What may wait to be handled before the next message is read, in bytes.
pub(crate) const MOST_UNREAD: usize = 4 << 20;
/// Messages that one write takes.
const MOST_TOGETHER: usize = 64;
/// The part of a message that says its length has so many bytes.
const HEAD: usize = 16;

/// The bytes of messages that were read and not handled.
#[derive(Debug, Default)]
pub(crate) struct UnreadBytes {
    bytes: AtomicUsize,
    /// Whether somebody takes the messages: until then none is held back, since the answer to a question may be behind it.
    is_bounded: AtomicBool,
    freed: Notify,
}

impl UnreadBytes {
    /// Bounds them from now on: somebody takes message after message.
    pub(crate) fn bound(&self) {
        self.is_bounded.store(true, Ordering::Relaxed);
    }

    /// Takes note of a message that was handled.
    pub(crate) fn handled(&self, length: usize) {
        let less = |bytes: usize| Some(bytes.saturating_sub(length));
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.freed.notify_one();
    }

    async fn wait_for_room(&self) {
        while self.is_bounded.load(Ordering::Relaxed)
            && self.bytes.load(Ordering::Relaxed) >= MOST_UNREAD
        {
            self.freed.notified().await;
        }
    }
}

/// Connects to the bus at `address`, or to the session bus that the environment names. What was read of a bus on another
/// kind of socket than a Unix one is not counted.
pub(crate) async fn connect(
    address: Option<&str>,
) -> zbus::Result<(Connection, Option<Arc<UnreadBytes>>)> {
    let parsed = match address {
        Some(address) => address.parse::<Address>(),
        None => Address::session(),
    };
    if let Ok(address) = parsed
        && let Transport::Unix(unix) = address.transport()
        && let Some(stream) = stream_to(unix.path()).await?
    {
        let unread = Arc::new(UnreadBytes::default());
        let socket = BoundedSocket { stream, unread: Arc::clone(&unread) };
        return Ok((Builder::socket(socket).build().await?, Some(unread)));
    }
    let builder = match address {
        Some(address) => Builder::address(address),
        None => Builder::session(),
    };
    Ok((builder.build().await?, None))
}

async fn stream_to(path: &UnixSocket) -> io::Result<Option<UnixStream>> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    match path {
        UnixSocket::File(path) => UnixStream::connect(path).await.map(Some),
        UnixSocket::Abstract(name) => {
            let address =
                std::os::unix::net::SocketAddr::from_abstract_name(name.as_os_str().as_bytes())?;
            let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream).map(Some)
        }
        _ => Ok(None),
    }
}

/// A socket of a bus.
#[derive(Debug)]
struct BoundedSocket {
    stream: UnixStream,
    unread: Arc<UnreadBytes>,
}

impl Socket for BoundedSocket {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let stream = Arc::new(self.stream);
        let reader =
            Reader { stream: Arc::clone(&stream), unread: self.unread, place: Place::Greeting };
        Split::new(reader, Writer(stream))
    }
}

/// How far a reader is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The lines before the first message, which are read byte by byte: nothing behind them is read with them.
    Greeting,
    /// So much of the part of a message that says its length.
    Head([u8; HEAD], usize),
    /// So many bytes of a message are missing.
    Rest(usize),
}

/// The end that reads.
#[derive(Debug)]
struct Reader {
    stream: Arc<UnixStream>,
    unread: Arc<UnreadBytes>,
    place: Place,
}

impl Reader {
    /// Takes note of what was read, and of where messages begin.
    fn follow(&mut self, bytes: &[u8]) {
        self.unread.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        self.place = match self.place {
            Place::Greeting => Place::Greeting,
            Place::Head(mut head, filled) => {
                let end = (filled + bytes.len()).min(HEAD);
                head[filled..end].copy_from_slice(&bytes[..end - filled]);
                match end {
                    HEAD => Place::Rest(rest_of(head)),
                    _ => Place::Head(head, end),
                }
            }
            Place::Rest(left) => Place::Rest(left.saturating_sub(bytes.len())),
        };
        if matches!(self.place, Place::Rest(0)) {
            self.place = Place::Head([0; HEAD], 0);
        }
    }
}

/// Returns how many bytes a message has behind its first sixteen.
fn rest_of(head: [u8; HEAD]) -> usize {
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let number =
            if head[0] == b'B' { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        number as usize
    };
    number(12).next_multiple_of(8) + number(4)
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let is_first = matches!(self.place, Place::Greeting) && buffer.len() == HEAD;
        if is_first {
            self.place = Place::Head([0; HEAD], 0);
        }
        if matches!(self.place, Place::Head(_, 0)) {
            self.unread.wait_for_room().await;
        }
        let most = if matches!(self.place, Place::Greeting) { 1 } else { buffer.len() };
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let (length, passed) = loop {
            self.stream.readable().await?;
            let read = || sys::stream::receive_now(self.stream.as_fd(), &mut *buffer);
            match self.stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => break done?,
            }
        };
        self.follow(buffer.get(..length).unwrap_or_default());
        Ok((length, passed))
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}

/// The end that writes.
#[derive(Debug)]
struct Writer(Arc<UnixStream>);

impl Writer {
    async fn write(&self, parts: &[IoSlice<'_>], passed: &[BorrowedFd<'_>]) -> io::Result<usize> {
        loop {
            self.0.writable().await?;
            let write = || sys::stream::send_now(self.0.as_fd(), parts, passed);
            match self.0.try_io(Interest::WRITABLE, write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

#[async_trait]
impl WriteHalf for Writer {
    /// Writes many messages at once. Descriptors travel with the first byte of a write, so a message with some begins one.
    async fn send_messages(&mut self, mut messages: &[Message]) -> zbus::Result<()> {
        while let Some((first, rest)) = messages.split_first() {
            let joins = |message: &&Message| message.data().fds().is_empty();
            let together = 1 + rest.iter().take(MOST_TOGETHER - 1).take_while(joins).count();
            let (now, later) = messages.split_at(together);
            let mut parts: Vec<IoSlice<'_>> =
                now.iter().map(|message| IoSlice::new(message.data().bytes())).collect();
            let passed: Vec<BorrowedFd<'_>> = first.data().fds().iter().map(AsFd::as_fd).collect();
            let (mut parts, mut passed) = (&mut parts[..], &passed[..]);
            while !parts.is_empty() {
                let written = self.write(parts, passed).await?;
                passed = &[];
                IoSlice::advance_slices(&mut parts, written);
            }
            messages = later;
        }
        Ok(())
    }

    async fn sendmsg(&mut self, bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.write(&[IoSlice::new(bytes)], passed).await
    }

    async fn close(&mut self) -> io::Result<()> {
        sys::stream::end(self.0.as_fd())
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}
