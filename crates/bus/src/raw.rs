//! The wire: messages in the order in which they came, and out in the order in which they are to go.
//!
//! zbus's object server runs each call as a task of its own and knows its objects beforehand. dconf
//! needs objects that exist for any name and a reply that is on the wire before the signal that tells
//! of the same change, so calls are taken from the stream of messages by hand.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use zbus::message::{Flags, Header, Type};
use zbus::{Connection, DynamicType, Message, MessageStream};

use crate::bounded::UnreadBytes;

/// Messages this small are kept whole until they are answered.
const KEEP_BYTES: usize = 4096;

/// What is needed to answer a call.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The unique name of the sender; empty without a bus.
    pub(crate) sender: Arc<str>,
    /// The call, or for a long one a message with the same header and no body.
    call: Message,
}

impl Caller {
    /// Remembers what an answer to `call` needs.
    pub(crate) fn of(call: &Message, header: &Header<'_>) -> Caller {
        let sender = header.sender().map_or("", |name| name.as_str()).into();
        let call = if call.data().len() <= KEEP_BYTES && header.unix_fds().unwrap_or(0) == 0 {
            call.clone()
        } else {
            // A batch may hold many calls for as long as the disk takes; their bodies are decoded by then, and whoever wants
            // their descriptors has them.
            zbus::message::Builder::from(header.clone()).build(&()).unwrap_or_else(|_| call.clone())
        };
        Caller { sender, call }
    }

    fn wants_reply(&self) -> bool {
        !self.call.primary_header().flags().contains(Flags::NO_REPLY_EXPECTED)
    }
}

/// A message that came. The descriptors that it carries are another program's: nobody waits for their close.
#[derive(Debug)]
pub(crate) struct Received(Option<Message>, Option<Arc<UnreadBytes>>);

impl std::ops::Deref for Received {
    type Target = Message;

    fn deref(&self) -> &Message {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let (Some(message), Some(unread)) = (&self.0, &self.1) {
            unread.handled(message.data().len());
        }
        let hangs = |message: &Message| {
            message.data().fds().iter().any(|fd| sys::deferred_close::may_hang(fd.as_fd()))
        };
        if let Some(message) = self.0.take().filter(hangs) {
            sys::deferred_close::drop_beside(message);
        }
    }
}

/// One connection: what came in, and what waits to go out.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    stream: MessageStream,
    outbox: Vec<Message>,
    /// What was read and not handled, if that is bounded.
    unread: Option<Arc<UnreadBytes>>,
}

impl Link {
    /// Takes over `connection`; must be called before it is first polled, or messages may be missed.
    pub(crate) fn over(connection: Connection) -> Link {
        let stream = MessageStream::from(&connection);
        Link { connection, stream, outbox: Vec::new(), unread: None }
    }

    /// Takes note in `unread` of each message that was handled.
    pub(crate) fn counting(self, unread: Option<Arc<UnreadBytes>>) -> Link {
        Link { unread, ..self }
    }

    /// Bounds what is read before it is handled. From now on messages have to be taken all the time.
    pub(crate) fn bound_unread(&self) {
        if let Some(unread) = &self.unread {
            unread.bound();
        }
    }

    /// Returns the length of what waits to go out, in bytes.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.outbox.iter().map(|message| message.data().len()).sum()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits for the next message; `None` when the connection is gone. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        self.stream.next().await?.ok().map(|message| Received(Some(message), self.unread.clone()))
    }

    /// Returns a message that has already arrived.
    pub(crate) fn next_now(&mut self) -> Option<Received> {
        let message = self.stream.next().now_or_never()??.ok()?;
        Some(Received(Some(message), self.unread.clone()))
    }

    /// Puts a message after those that wait to go out.
    pub(crate) fn push(&mut self, message: zbus::Result<Message>) {
        match message {
            Ok(message) => self.outbox.push(message),
            // Only names and paths that we chose ourselves could be illegal, or a reply be over 128 MiB.
            Err(error) => tracing::error!(%error, "cannot build a message"),
        }
    }

    /// Puts a reply to `caller` after what waits to go out, unless none is wanted.
    pub(crate) fn reply<B>(&mut self, caller: &Caller, body: &B)
    where
        B: serde::Serialize + DynamicType,
    {
        if caller.wants_reply() {
            self.push(Message::method_return(&caller.call.header()).build(body));
        }
    }

    /// Puts an error reply to `caller` after what waits to go out, unless none is wanted.
    pub(crate) fn fail(&mut self, caller: &Caller, name: &str, text: &str) {
        if caller.wants_reply() {
            self.push(Message::error(&caller.call.header(), name).build(&text));
        }
    }

    /// Puts a call to the bus itself after what waits to go out and returns its serial number.
    pub(crate) fn ask_bus<B>(&mut self, method: &str, body: &B) -> Option<u32>
    where
        B: serde::Serialize + DynamicType,
    {
        self.ask(
            "org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus",
            method,
            body,
        )
    }

    /// Puts a call to the bus itself after what waits to go out; no answer to it comes.
    pub(crate) fn tell_bus<B>(&mut self, method: &str, body: &B)
    where
        B: serde::Serialize + DynamicType,
    {
        let call = Message::method_call("/org/freedesktop/DBus", method)
            .destination("org.freedesktop.DBus")
            .interface("org.freedesktop.DBus")
            .with_flags(Flags::NO_REPLY_EXPECTED)
            .build(body);
        self.push(call);
    }

    /// Puts a call after what waits to go out and returns its serial number. Nobody is started to answer it.
    pub(crate) fn ask<B>(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Option<u32>
    where
        B: serde::Serialize + DynamicType,
    {
        let call = Message::method_call(path, method)
            .destination(destination)
            .interface(interface)
            .with_flags(Flags::NO_AUTO_START)
            .build(body);
        let serial = call.as_ref().ok().map(|call| call.primary_header().serial_num().get());
        self.push(call);
        serial
    }

    /// Writes everything that waits, in order. Must not be dropped half-way: a message would be cut.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let sent = self.connection.send_all(&self.outbox).await;
        self.outbox.clear();
        sent.map_err(to_io)
    }
}

/// Says whether the message is a call, an answer or a signal.
pub(crate) fn is_call(message: &Message) -> bool {
    message.message_type() == Type::MethodCall
}

/// Turns a zbus error into the I/O error that caused it, if one did.
pub(crate) fn to_io(error: zbus::Error) -> io::Error {
    match error {
        zbus::Error::InputOutput(error) => io::Error::new(error.kind(), error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}
