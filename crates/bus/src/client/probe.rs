//! Calls that no contract foresees: for comparing services and for trying to break them.

use futures_util::StreamExt;
use zbus::message::Flags;
use zbus::wire::StructureBuilder;
use zbus::{Message, MessageStream, Variant};

use super::{BusClient, ClientError};

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallArgument {
    /// `s`
    Text(String),
    /// `as`
    Texts(Vec<String>),
    /// `ay`
    Bytes(Vec<u8>),
    /// `i`
    Number(i32),
    /// `b`
    Truth(bool),
    /// `v` that holds an argument.
    Variant(Box<CallArgument>),
}

impl CallArgument {
    fn variant(self) -> Variant<'static> {
        match self {
            CallArgument::Text(text) => Variant::new(text),
            CallArgument::Texts(texts) => Variant::new(texts),
            CallArgument::Bytes(bytes) => Variant::new(bytes),
            CallArgument::Number(number) => Variant::new(number),
            CallArgument::Truth(truth) => Variant::new(truth),
            CallArgument::Variant(inside) => Variant::Variant(Box::new(inside.variant())),
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// A reply.
    Reply {
        /// The signature of its body.
        signature: String,
        /// The body, if it is one string.
        text: Option<String>,
    },
    /// An error.
    Error {
        /// Its D-Bus name.
        name: String,
        /// Its text.
        message: String,
    },
}

impl BusClient {
    /// Calls any method with any arguments and says how that ended.
    ///
    /// # Errors
    ///
    /// There was no answer, or the call could not be made.
    pub async fn try_call(
        &self,
        destination: &str,
        path: &str,
        interface: Option<&str>,
        method: &str,
        arguments: Vec<CallArgument>,
    ) -> Result<CallOutcome, ClientError> {
        let destination_field = self.connection.is_bus().then_some(destination);
        let call = async {
            if arguments.is_empty() {
                return self
                    .connection
                    .call_method(destination_field, path, interface, method, &())
                    .await;
            }
            let mut body = StructureBuilder::new();
            for argument in arguments {
                body.push_value(argument.variant());
            }
            let body = body.build()?;
            self.connection.call_method(destination_field, path, interface, method, &body).await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(reply)) => {
                let body = reply.body();
                Ok(CallOutcome::Reply {
                    signature: body.signature().to_string_no_parens(),
                    text: body.deserialize::<String>().ok(),
                })
            }
            Ok(Err(error)) => match super::refused(error) {
                ClientError::Refused { name, message } => Ok(CallOutcome::Error { name, message }),
                error => Err(error),
            },
            Err(_) => Err(ClientError::TimedOut {
                destination: destination.to_owned(),
                waited: self.timeout,
            }),
        }
    }

    /// Sends a `Change` that asks for no answer.
    ///
    /// # Errors
    ///
    /// It was not sent.
    pub async fn change_without_reply(
        &self,
        object_path: &str,
        blob: &[u8],
    ) -> Result<(), ClientError> {
        self.send_change(object_path, blob, Flags::NO_REPLY_EXPECTED).await
    }

    /// Sends a `Change` and leaves its answer to [`BusClient::raw_messages`].
    ///
    /// # Errors
    ///
    /// It was not sent.
    pub async fn change_without_waiting(
        &self,
        object_path: &str,
        blob: &[u8],
    ) -> Result<(), ClientError> {
        self.send_change(object_path, blob, Flags::empty()).await
    }

    /// Shows everything that arrives from now on, in the order in which it does.
    pub fn raw_messages(&self) -> RawMessages {
        RawMessages(MessageStream::from(&self.connection))
    }

    async fn send_change(
        &self,
        object_path: &str,
        blob: &[u8],
        flags: Flags,
    ) -> Result<(), ClientError> {
        let mut call = Message::method_call(object_path, "Change")
            .interface("ca.desrt.dconf.Writer")
            .with_flags(flags);
        if self.connection.is_bus() {
            call = call.destination("ca.desrt.dconf");
        }
        let call = call.build(&blob).map_err(super::refused)?;
        self.connection.send(&call).await.map_err(super::refused)
    }
}

/// Messages as they arrive.
#[derive(Debug)]
pub struct RawMessages(MessageStream);

impl RawMessages {
    /// Waits for the next message and says what it is: `Method return`, `Error …`, `Signal Notify`.
    pub async fn next(&mut self) -> Option<String> {
        let message = self.0.next().await?.ok()?;
        Some(match message.header().member() {
            Some(member) => format!("Signal {member}"),
            None => match message.header().error_name() {
                Some(name) => format!("Error {name}"),
                None => "Method return".to_owned(),
            },
        })
    }
}
