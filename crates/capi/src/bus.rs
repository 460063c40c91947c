//! Calls of the settings service over the session bus, one at a time and waited for: no runtime, no thread, no signal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use settings::client::{ChangeCompletion, Transport, TransportError};
use sys::clock::SystemClock;
use sys::stream;
use wire::body::{BodyValue, values};
use wire::socket::{
    Deadline, Descriptors, GreetError, LAST_LINE, LINES, MessageBuffer, answered, connect,
};
use wire::write::{Draft, Marshal};
use wire::{Endian, Header, MessageType};

use crate::environment;
use crate::error::CallError;

/// Who serves settings.
const SERVICE: &str = "ca.desrt.dconf";
const WRITER: &str = "ca.desrt.dconf.Writer";
/// How long an answer is waited for if nobody says otherwise: as GLib waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);
/// The longest message that a bus carries.
const LONGEST: usize = 128 << 20;

/// The service of the settings, called and waited for.
#[derive(Debug)]
pub(crate) struct SettingsService {
    clock: SystemClock,
    state: Mutex<ServiceState>,
}

#[derive(Debug, Default)]
struct ServiceState {
    connection: Option<BusConnection>,
    patience: Option<Duration>,
    /// Why the last call failed.
    failure: Option<CallError>,
}

/// A connection to the session bus that has been greeted.
#[derive(Debug)]
struct BusConnection {
    socket: OwnedFd,
    messages: MessageBuffer,
    serial: u32,
}

impl SettingsService {
    pub(crate) fn new() -> Arc<SettingsService> {
        let (clock, state) = (SystemClock::start(), Mutex::default());
        Arc::new(SettingsService { clock, state })
    }

    /// Says how long the next answers are waited for.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).patience = Some(patience);
    }

    /// Returns why the last call failed, once.
    pub(crate) fn take_failure(&self) -> Option<CallError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failure.take()
    }

    fn call(
        &self,
        object_path: &str,
        member: &str,
        argument: Option<&[u8]>,
    ) -> Result<String, CallError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = state.patience.unwrap_or(PATIENCE);
        let deadline = Deadline::after(&self.clock, limit);
        // One from before may have ended with its bus; a call that was not sent changed nothing.
        if state.connection.as_mut().is_some_and(BusConnection::is_over) {
            state.connection = None;
        }
        let mut connection = match state.connection.take() {
            Some(connection) => connection,
            None => BusConnection::open(&deadline)?,
        };
        let called = connection.call(object_path, member, argument, &deadline);
        // One that failed in the middle of a message is of no use.
        let is_usable =
            called.as_ref().map_or_else(|error| error.number() == libc::EREMOTEIO, |_| true);
        state.connection = is_usable.then_some(connection);
        called
    }
}

impl Transport for SettingsService {
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion) {
        let called = self.call(object_path, "Change", Some(&body));
        done(called.map_err(|error| {
            let text = error.text().to_owned();
            self.state.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(error);
            TransportError { text }
        }));
    }

    fn init(&self, _object_path: &str) -> Result<(), TransportError> {
        // Asked for while something is read, which uses no bus.
        Err(TransportError { text: "reading asks no service".to_owned() })
    }
}

fn not_connected(error: &io::Error) -> CallError {
    CallError::new(libc::ENOTCONN, format!("cannot connect to the session bus: {error}"))
}

/// The error of a call that may have been made.
fn broken(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => CallError::new(
            libc::ETIMEDOUT,
            "the settings service did not answer in time: the change may have been made",
        ),
        _ => CallError::new(
            libc::ECONNRESET,
            format!("the session bus ended: {error}: the change may have been made"),
        ),
    }
}

fn malformed() -> CallError {
    CallError::new(libc::ECONNRESET, "the session bus sent what is no message")
}

impl BusConnection {
    fn open(deadline: &Deadline<'_>) -> Result<BusConnection, CallError> {
        let address = environment::session_bus().ok_or_else(|| {
            CallError::new(libc::ENOTCONN, "the environment names no session bus")
        })?;
        let socket = connect(&address, deadline.limit()).map_err(|error| not_connected(&error))?;
        stream::send(&socket, LINES, &[]).map_err(|error| not_connected(&error))?;
        let begun = answered(&socket, Descriptors::Welcome, Some(deadline));
        let begun = begun.map_err(|error| match error {
            GreetError::Lost(error) => not_connected(&error),
            GreetError::Rejected(_) => CallError::new(libc::ENOTCONN, error.to_string()),
        })?;
        let messages = MessageBuffer::new(begun, LONGEST);
        let mut connection = BusConnection { socket, messages, serial: 1 };
        let hello = [LAST_LINE, &Draft::to_bus(1, "Hello").bytes()].concat();
        stream::send(&connection.socket, &hello, &[]).map_err(|error| not_connected(&error))?;
        match connection.answer(1, deadline) {
            Ok(_) => Ok(connection),
            Err(error) => Err(CallError::new(libc::ENOTCONN, error.text())),
        }
    }

    /// Whether the bus has ended, or sends what nobody asked for.
    fn is_over(&mut self) -> bool {
        loop {
            match stream::receive(&self.socket, self.messages.room(4096), stream::Empty::Fail) {
                Ok(0) => return true,
                Ok(count) => self.messages.fill(count),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
            // Signals to this name alone, such as that it got one.
            while let Ok(Some(_)) = self.messages.take() {}
            if self.messages.whole().is_err() {
                return true;
            }
        }
    }

    fn call(
        &mut self,
        object_path: &str,
        member: &str,
        argument: Option<&[u8]>,
        deadline: &Deadline<'_>,
    ) -> Result<String, CallError> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let mut body = Marshal::new(Endian::Little);
        if let Some(argument) = argument {
            body.array(1, |out| out.raw(argument));
        }
        let body = body.bytes();
        if body.len() > LONGEST / 2 {
            return Err(CallError::new(
                libc::EMSGSIZE,
                "the changes are larger than a message may be",
            ));
        }
        let draft = Draft {
            destination: SERVICE,
            path: object_path,
            interface: WRITER,
            member,
            signature: if argument.is_some() { "ay" } else { "" },
            body: &body,
            ..Draft::new(MessageType::Call, self.serial)
        };
        stream::send(&self.socket, &draft.bytes(), &[]).map_err(|error| broken(&error))?;
        self.answer(self.serial, deadline)
    }

    /// Waits for the answer to a call and returns the text in it, if there is one.
    fn answer(&mut self, serial: u32, deadline: &Deadline<'_>) -> Result<String, CallError> {
        loop {
            while let Some(bytes) = self.messages.take().map_err(|_| malformed())? {
                let message = wire::message(bytes).map_err(|_| malformed())?;
                if message.reply_serial.is_none_or(|to| to.get() != serial) {
                    continue;
                }
                let text = text_of(&message);
                if message.kind != MessageType::Error {
                    return Ok(text);
                }
                let name = message.error_name.unwrap_or_default();
                return Err(refused(name, &text));
            }
            let left = deadline.remaining().map_err(|error| broken(&error))?;
            let is_readable = sys::socket::wait_readable(&self.socket, Some(left));
            if !is_readable.map_err(|error| broken(&error))? {
                continue;
            }
            match stream::receive(&self.socket, self.messages.room(4096), stream::Empty::Fail) {
                Ok(0) => return Err(broken(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.messages.fill(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(&error)),
            }
        }
    }
}

/// The error of an answer.
fn refused(name: &str, text: &str) -> CallError {
    let short = name.strip_prefix("org.freedesktop.DBus.Error.").unwrap_or_default();
    // The bus says so itself: nobody got the call.
    let is_missing =
        ["ServiceUnknown", "NameHasNoOwner"].contains(&short) || short.starts_with("Spawn");
    let text = if text.is_empty() { name } else { text };
    match short {
        "NoReply" | "Timeout" => {
            CallError::new(libc::ETIMEDOUT, format!("{text}: the change may have been made"))
        }
        _ if is_missing => {
            CallError::new(libc::ENOTCONN, format!("there is no settings service: {text}"))
        }
        _ => CallError::new(libc::EREMOTEIO, format!("the settings service refused: {text}")),
    }
}

fn text_of(message: &Header<'_>) -> String {
    match values(message).next() {
        Some(Ok(BodyValue::Text(text))) => text.to_owned(),
        _ => String::new(),
    }
}
