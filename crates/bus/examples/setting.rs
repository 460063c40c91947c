//! Sets a setting and reads it back, in place of `dconf_rs`, which runs `dconf` and ignores whether it failed.
//! Run as: setting KEY VALUE ("setting /org/gnome/desktop/interface/font-name \"'Inter 11'\"").
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program prints, and reads its environment"
)]

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use gvdb::gvariant::Variant;
use settings::changeset::Changeset;
use settings::client::SettingsClient;
use settings::profile::{SettingsEnvironment, SettingsProfile};
use unjank_bus::client::BusTransport;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [key, value] = &words[..] else { return Err("usage: setting KEY VALUE".into()) };
    let user = std::fs::metadata("/proc/self")?.uid();
    let environment = SettingsEnvironment::from_variables(|name| std::env::var_os(name), user);
    let profile = SettingsProfile::choose(&environment, None);
    let transport = Arc::new(BusTransport::start(None, None)?);
    let client = SettingsClient::open(&profile, &environment, transport);
    let mut changes = Changeset::default();
    changes.change(key, Some(Variant::parse(None, value)?));
    // Returns when the service has it on the disk; a refusal, a locked key, or no service is an error.
    client.change_and_wait(&changes)?;
    let found = client.reader().get(key).map(|value| value.to_variant().print());
    println!("{}", found.ok_or("it is not set")?);
    Ok(())
}
