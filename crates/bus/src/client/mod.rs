//! The calling end of the contracts: asynchronous, and [`blocking`] for programs without a runtime.

pub mod blocking;
mod dconf;
mod notifications;
mod probe;
mod systemd;
mod transport;

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, MatchRule, Message, MessageStream};

pub use dconf::{DconfSignal, SignalStream};
pub use notifications::Notification;
pub use probe::{CallArgument, CallOutcome, RawMessages};
pub use systemd::{ScopeRequest, UnitLaunches, environment_of};
pub use transport::BusTransport;

/// How long the reference client waits for the answer to a change.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(25);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no bus to ask.
    #[error("cannot connect to the bus")]
    NoBus(#[source] io::Error),
    /// The service answered with an error; nothing says that it did anything.
    #[error("{message}")]
    Refused {
        /// The D-Bus name of the error.
        name: String,
        /// Its text.
        message: String,
    },
    /// There was no answer in time; the call may still take effect.
    #[error("no answer from {destination} within {} s", waited.as_secs_f32())]
    TimedOut {
        /// Who was called.
        destination: String,
        /// How long we waited.
        waited: Duration,
    },
    /// The connection broke; the call may have taken effect.
    #[error("the connection to the bus broke")]
    Broken(#[source] io::Error),
    /// The answer is not what the contract says.
    #[error("unexpected answer from {destination}")]
    Unexpected {
        /// Who was called.
        destination: String,
    },
}

/// Connects; a bus that takes the connection and says nothing is an error when its time is over.
///
/// # Errors
///
/// There is no connection; `TimedOut` if the bus did not answer.
async fn connected(builder: Builder<'_>) -> io::Result<Connection> {
    match tokio::time::timeout(TIMEOUT, builder.build()).await {
        Ok(built) => built.map_err(crate::raw::to_io),
        Err(_) => {
            let why = format!("the bus has not answered within {} s", TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// One connection that calls. Clones share it; calls may overlap.
#[derive(Clone, Debug)]
pub struct BusClient {
    connection: Connection,
    timeout: Duration,
}

impl BusClient {
    /// Connects to the bus at `address`, or to the session bus that the environment names.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn connect(address: Option<&str>) -> Result<BusClient, ClientError> {
        let builder = match address {
            Some(address) => Builder::address(address),
            None => Builder::session(),
        };
        BusClient::build(builder).await
    }

    /// Connects to the system bus.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn system() -> Result<BusClient, ClientError> {
        BusClient::build(Builder::system()).await
    }

    /// Uses a connection that exists.
    #[must_use]
    pub fn over(connection: Connection) -> BusClient {
        BusClient { connection, timeout: TIMEOUT }
    }

    /// Waits at most this long for each answer from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns our unique name; empty without a bus.
    #[must_use]
    pub fn unique_name(&self) -> &str {
        self.connection.unique_name().map_or("", |name| name.as_str())
    }

    /// Returns the unique name of the owner of `name`, if it has one.
    ///
    /// # Errors
    ///
    /// The bus did not answer.
    pub async fn name_owner(&self, name: &str) -> Result<Option<String>, ClientError> {
        match self.ask_bus("GetNameOwner", &name).await {
            Ok(reply) => read(&reply, BUS).map(Some),
            Err(ClientError::Refused { name, .. })
                if name == "org.freedesktop.DBus.Error.NameHasNoOwner" =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until `name` has an owner and returns its unique name.
    ///
    /// # Errors
    ///
    /// The name has no owner in time, or the bus did not answer.
    pub async fn wait_for_owner(&self, name: &str) -> Result<String, ClientError> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender(BUS)
            .member("NameOwnerChanged")
            .arg(0, name)
            .build()
            .map_err(refused)?;
        // Subscribed first, so that a change in between is not missed.
        let mut changes =
            MessageStream::for_match_rule(rule, &self.connection, None).await.map_err(refused)?;
        if let Some(owner) = self.name_owner(name).await? {
            return Ok(owner);
        }
        let appears = async {
            while let Some(Ok(change)) = changes.next().await {
                let (_, _, owner): (String, String, String) = read(&change, BUS)?;
                if !owner.is_empty() {
                    return Ok(owner);
                }
            }
            Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()))
        };
        tokio::time::timeout(self.timeout, appears).await.unwrap_or_else(|_| {
            Err(ClientError::TimedOut { destination: name.to_owned(), waited: self.timeout })
        })
    }

    /// Returns the process id behind a name.
    ///
    /// # Errors
    ///
    /// The bus did not answer, or the name has no owner.
    pub async fn pid_of(&self, name: &str) -> Result<u32, ClientError> {
        read(&self.ask_bus("GetConnectionUnixProcessID", &name).await?, BUS)
    }

    /// Has the bus read its configuration and the files of services again.
    ///
    /// # Errors
    ///
    /// It refused, or there is no answer in time.
    pub async fn reload_config(&self) -> Result<(), ClientError> {
        self.ask_bus("ReloadConfig", &()).await.map(drop)
    }

    /// Has the bus start the service of a name, if nobody owns it.
    ///
    /// # Errors
    ///
    /// No service file is about the name, or the service did not start in time.
    pub async fn start_service(&self, name: &str) -> Result<(), ClientError> {
        self.ask_bus("StartServiceByName", &(name, 0_u32)).await.map(drop)
    }

    /// Waits until the bus closes the connection.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    async fn build(builder: Builder<'_>) -> Result<BusClient, ClientError> {
        connected(builder).await.map(BusClient::over).map_err(ClientError::NoBus)
    }

    async fn ask_bus<B>(&self, method: &str, body: &B) -> Result<Message, ClientError>
    where
        B: serde::Serialize + DynamicType,
    {
        self.call(BUS, "/org/freedesktop/DBus", BUS, method, body).await
    }

    async fn call<B>(
        &self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<Message, ClientError>
    where
        B: serde::Serialize + DynamicType,
    {
        // Without a bus there is nobody to route by the destination.
        let destination_field = self.connection.is_bus().then_some(destination);
        let call =
            self.connection.call_method(destination_field, path, Some(interface), method, body);
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(refused(error)),
            Err(_) => Err(ClientError::TimedOut {
                destination: destination.to_owned(),
                waited: self.timeout,
            }),
        }
    }
}

const BUS: &str = "org.freedesktop.DBus";

fn read<'a, T>(reply: &Message, destination: &str) -> Result<T, ClientError>
where
    T: for<'d> zbus::wire::DynamicDeserialize<'d> + 'a,
{
    reply
        .body()
        .deserialize()
        .map_err(|_| ClientError::Unexpected { destination: destination.to_owned() })
}

fn refused(error: zbus::Error) -> ClientError {
    match error {
        zbus::Error::MethodError(name, message, _) => {
            ClientError::Refused { name: name.to_string(), message: message.unwrap_or_default() }
        }
        zbus::Error::FDO(error) => {
            use zbus::DBusError;
            match *error {
                zbus::fdo::Error::ZBus(error) => ClientError::Broken(crate::raw::to_io(error)),
                error => ClientError::Refused {
                    name: error.name().to_string(),
                    message: error.description().unwrap_or_default().to_owned(),
                },
            }
        }
        error => ClientError::Broken(crate::raw::to_io(error)),
    }
}
