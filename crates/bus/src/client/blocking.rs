//! The client for programs without a runtime: each call waits for its answer.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::{BusClient, ClientError, DconfSignal, Notification, SignalStream};

/// One connection and the runtime that drives it, on the calling thread.
///
/// Nothing happens on the connection between calls.
#[derive(Debug)]
pub struct BlockingClient {
    runtime: Runtime,
    client: BusClient,
}

impl BlockingClient {
    /// Connects to the bus at `address`, or to the session bus that the environment names.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub fn connect(address: Option<&str>) -> Result<BlockingClient, ClientError> {
        let runtime = runtime()?;
        let client = runtime.block_on(BusClient::connect(address))?;
        Ok(BlockingClient { runtime, client })
    }

    /// Connects to the system bus.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub fn system() -> Result<BlockingClient, ClientError> {
        let runtime = runtime()?;
        let client = runtime.block_on(BusClient::system())?;
        Ok(BlockingClient { runtime, client })
    }

    /// Waits at most this long for each answer from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }

    /// Returns our unique name.
    #[must_use]
    pub fn unique_name(&self) -> &str {
        self.client.unique_name()
    }

    /// As [`BusClient::change`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn change(&self, object_path: &str, blob: &[u8]) -> Result<String, ClientError> {
        self.runtime.block_on(self.client.change(object_path, blob))
    }

    /// As [`BusClient::init`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn init(&self, object_path: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.init(object_path))
    }

    /// As [`BusClient::blame`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn blame(&self) -> Result<String, ClientError> {
        self.runtime.block_on(self.client.blame())
    }

    /// As [`BusClient::ping`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn ping(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.ping())
    }

    /// As [`BusClient::name_owner`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn name_owner(&self, name: &str) -> Result<Option<String>, ClientError> {
        self.runtime.block_on(self.client.name_owner(name))
    }

    /// As [`BusClient::wait_for_owner`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_for_owner(&self, name: &str) -> Result<String, ClientError> {
        self.runtime.block_on(self.client.wait_for_owner(name))
    }

    /// As [`BusClient::pid_of`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn pid_of(&self, name: &str) -> Result<u32, ClientError> {
        self.runtime.block_on(self.client.pid_of(name))
    }

    /// As [`BusClient::reload_config`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reload_config(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.reload_config())
    }

    /// As [`BusClient::start_service`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_service(&self, name: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.start_service(name))
    }

    /// As [`BusClient::emit_writability`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn emit_writability(&self, object_path: &str, path: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.emit_writability(object_path, path))
    }

    /// As [`BusClient::subscribe`]; read it with [`BlockingClient::next_signal`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn subscribe(&self, object_path: &str, path: &str) -> Result<SignalStream, ClientError> {
        self.runtime.block_on(self.client.subscribe(object_path, path))
    }

    /// Waits for the next signal, at most `patience` if it is given; `None` when none came or none can come.
    pub fn next_signal(
        &self,
        subscription: &mut SignalStream,
        patience: Option<Duration>,
    ) -> Option<DconfSignal> {
        self.runtime.block_on(async {
            match patience {
                Some(patience) => {
                    tokio::time::timeout(patience, subscription.next()).await.ok().flatten()
                }
                None => subscription.next().await,
            }
        })
    }

    /// As [`BusClient::notify`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn notify(&self, notification: &Notification<'_>) -> Result<u32, ClientError> {
        self.runtime.block_on(self.client.notify(notification))
    }

    /// Runs several calls at once, for example from a benchmark.
    pub fn run<F: Future>(&self, calls: impl FnOnce(BusClient) -> F) -> F::Output {
        self.runtime.block_on(calls(self.client.clone()))
    }
}

fn runtime() -> Result<Runtime, ClientError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ClientError::NoBus(io::Error::new(error.kind(), error.to_string())))
}
