//! One end of the socket between whoever asks and whoever lists.
//!
//! A message is a stream of records. A short one is sent as it is; a long one is put into sealed memory, and the
//! message that passes the descriptor is a single zero byte.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use store::stream::{Chunk, StreamBuilder};
use sys::socket::{self, Full};

use super::entry::EntryId;
use super::error::StreamFault;
use super::record::{self, FORMAT, put_u32, tag};

/// The longest message that is sent as it is.
const INLINE: usize = 16 << 10;
/// The longest memory that is passed: a worker's largest chunk is a few MiB.
const LONGEST: u64 = 256 << 20;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// A message that can be read, and be passed on to others without a copy.
#[derive(Clone, Debug)]
pub struct ListingMessage {
    chunk: Arc<Chunk>,
    /// The sealed memory, where it came in one.
    memory: Option<Arc<File>>,
}

impl ListingMessage {
    /// Makes a message of records.
    ///
    /// # Errors
    ///
    /// No memory or no descriptor is left.
    pub fn of(builder: &StreamBuilder) -> io::Result<ListingMessage> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        if builder.bytes().len() <= INLINE {
            let chunk = Chunk::own(builder.bytes().into(), FORMAT).map_err(invalid)?;
            return Ok(ListingMessage { chunk: Arc::new(chunk), memory: None });
        }
        let memory = builder.seal("listing")?;
        let chunk = Chunk::sealed(&memory, FORMAT, LONGEST).map_err(invalid)?;
        Ok(ListingMessage { chunk: Arc::new(chunk), memory: Some(Arc::new(memory)) })
    }

    /// Returns the records, for [`Entries::take`](super::Entries::take).
    #[must_use]
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }
}

impl Connection {
    /// Takes one end of a connected socket that keeps the bounds of messages (`SOCK_SEQPACKET`).
    #[must_use]
    pub fn new(socket: OwnedFd) -> Connection {
        Connection(socket)
    }

    /// Sends records; waits while the other end has no room.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the other end is gone; no memory or no descriptor is left.
    pub fn send(&self, builder: &StreamBuilder) -> io::Result<()> {
        if builder.bytes().len() <= INLINE {
            return socket::send(&self.0, builder.bytes(), None, Full::Wait);
        }
        let memory = builder.seal("listing")?;
        socket::send(&self.0, &[0], Some(memory.as_fd()), Full::Wait)
    }

    /// Sends a message on; fails instead of waiting if `full` says so.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the other end is gone, `WouldBlock` if it has no room: nothing was sent.
    pub fn pass(&self, message: &ListingMessage, full: Full) -> io::Result<()> {
        match &message.memory {
            Some(memory) => socket::send(&self.0, &[0], Some(memory.as_fd()), full),
            None => socket::send(&self.0, message.chunk.bytes(), None, full),
        }
    }

    /// Takes the next message as [`Connection::receive`] does, if it is a short one: memory is not taken from those who only ask.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other end is gone; `InvalidData` if it passes a descriptor; what the socket reports.
    pub fn receive_short(&self) -> io::Result<Option<Result<ListingMessage, StreamFault>>> {
        let mut buffer = [0; INLINE];
        let received = match socket::receive(&self.0, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        if received.descriptor.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if received.length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let chunk = Chunk::own(buffer[..received.length].into(), FORMAT);
        let message = chunk.map(|chunk| ListingMessage { chunk: Arc::new(chunk), memory: None });
        Ok(Some(message.map_err(StreamFault::from)))
    }

    /// Takes the next message if there is one; the inner error says that it cannot be trusted.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other end is gone; what the socket reports.
    pub fn receive(&self) -> io::Result<Option<Result<ListingMessage, StreamFault>>> {
        let mut buffer = [0; INLINE];
        let received = match socket::receive(&self.0, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        let message = match received.descriptor {
            Some(memory) => {
                let memory = File::from(memory);
                let chunk = Chunk::sealed(&memory, FORMAT, LONGEST);
                chunk.map(|chunk| (chunk, Some(Arc::new(memory))))
            }
            None if received.length == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => Chunk::own(buffer[..received.length].into(), FORMAT).map(|chunk| (chunk, None)),
        };
        let message =
            message.map(|(chunk, memory)| ListingMessage { chunk: Arc::new(chunk), memory });
        Ok(Some(message.map_err(StreamFault::from)))
    }

    /// Waits until there is a message or the other end is gone.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        socket::wait_readable(&self.0, timeout)
    }

    /// Asks for the attributes of these first. Does not wait: a worker that takes no message gets none.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, `BrokenPipe` if the other end is gone.
    pub fn want(&self, ids: &[EntryId]) -> io::Result<()> {
        self.send_ids(tag::WANT, ids)
    }

    /// Asks for the details of these. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::want`].
    pub fn ask_details(&self, ids: &[EntryId]) -> io::Result<()> {
        self.send_ids(tag::ASK_DETAILS, ids)
    }

    /// Asks one who follows to tell what has changed by now, and then that it did: [`StreamMark::Checked`](super::StreamMark::Checked) with the number of the question, which is greater than those before. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::want`].
    pub fn check(&self, question: u32) -> io::Result<()> {
        let mut builder = StreamBuilder::new(FORMAT);
        builder.record(tag::CHECK, |bytes| put_u32(bytes, question))?;
        socket::send(&self.0, builder.bytes(), None, Full::Fail)
    }

    fn send_ids(&self, tag: u32, ids: &[EntryId]) -> io::Result<()> {
        for ids in ids.chunks(1024) {
            let mut builder = StreamBuilder::new(FORMAT);
            builder.record(tag, |bytes| ids.iter().for_each(|id| put_u32(bytes, *id)))?;
            socket::send(&self.0, builder.bytes(), None, Full::Fail)?;
        }
        Ok(())
    }

    /// Ends the connection for both ends.
    pub fn hang_up(&self) {
        // It may have ended already.
        let _ = socket::hang_up(&self.0);
    }

    /// Returns another holder of the socket, that sees its end.
    pub(super) fn watched(&self) -> io::Result<Watched> {
        socket::check_messages(&self.0)?;
        Ok(Watched(self.0.try_clone()?))
    }

    /// Sends what is to be listed.
    pub(super) fn ask(&self, request: &super::ListingRequest) -> io::Result<()> {
        let mut builder = StreamBuilder::new(FORMAT);
        record::request(request, &mut builder)?;
        socket::send(&self.0, builder.bytes(), None, Full::Fail)
    }
}

/// The socket of a connection, to see its end.
#[derive(Debug)]
pub(super) struct Watched(OwnedFd);

impl Watched {
    /// Waits until the other end is gone.
    pub(super) fn wait(&self) -> io::Result<()> {
        socket::wait_hung_up(&self.0)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
