//! Lists in dconf: changed by the service that has its name on the bus, which alone may write the databases.

use bus::client::blocking::BlockingClient;
use session::recents::forget::SettingsService;
use session::settings::changeset::Changeset;

/// The service of settings, called when it is needed first.
#[derive(Debug, Default)]
pub struct BusSettings {
    /// The bus, or the session bus that the environment names.
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
