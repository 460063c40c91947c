//! Changes lists in dconf through the service on the bus, which alone may write the databases.

use bus::client::blocking::BlockingClient;
use forget::SettingsService;
use settings::changeset::Changeset;

/// The settings service; the connection is made at the first call.
#[derive(Debug, Default)]
pub struct BusSettings {
    /// The address of the bus; `None` for the session bus of the environment.
    address: Option<String>,
    client: Option<BlockingClient>,
}

impl BusSettings {
    /// Returns the service on the bus at `address`, or on the session bus that the environment names.
    #[must_use]
    pub fn new(address: Option<String>) -> BusSettings {
        BusSettings { address, client: None }
    }
}

impl SettingsService for BusSettings {
    fn change(
        &mut self,
        database: &str,
        changes: &Changeset,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(BlockingClient::connect(self.address.as_deref())?),
        };
        client.change(&format!("/ca/desrt/dconf/Writer/{database}"), &changes.encode())?;
        Ok(())
    }
}
