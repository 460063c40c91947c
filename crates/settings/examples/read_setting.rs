//! Prints a setting as `dconf read` does, in this process: what `dconf_rs` runs a program for.
//! Run as: read_setting KEY ("read_setting /org/gnome/desktop/interface/font-name").
//! Writing needs the bus: see the example `setting` of `unjank-bus`.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program prints, and reads its environment"
)]

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use unjank_settings::client::{NoBus, SettingsClient};
use unjank_settings::profile::{SettingsEnvironment, SettingsProfile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = std::env::args().nth(1).ok_or("usage: read_setting KEY")?;
    let user = std::fs::metadata("/proc/self")?.uid();
    let environment = SettingsEnvironment::from_variables(|name| std::env::var_os(name), user);
    let profile = SettingsProfile::choose(&environment, None);
    let client = SettingsClient::open(&profile, &environment, Arc::new(NoBus));
    match client.reader().get(&key) {
        Some(value) => println!("{}", value.to_variant().print()),
        None => println!("{key} is not set"),
    }
    Ok(())
}
