//! Settings by `dconf_rs` and by our crates, in turns, in one process; run in a session of its own: see README.md.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use bus::client::BusTransport;
use gvdb::gvariant::Variant;
use settings::changeset::Changeset;
use settings::client::SettingsClient;
use settings::profile::{SettingsEnvironment, SettingsProfile};
use unjank_replace::{Row, print_ratios, print_rows};

const KEY: &str = "/org/example/font-name";

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(100), |rounds| rounds.parse())?;
    let user = std::fs::metadata("/proc/self")?.uid();
    let environment = SettingsEnvironment::from_variables(|name| std::env::var_os(name), user);
    let profile = SettingsProfile::choose(&environment, None);
    let transport = Arc::new(BusTransport::start(None, None)?);
    let client = SettingsClient::open(&profile, &environment, transport);
    let mut reader = client.reader();
    let write = |text: &str| -> Result<(), Box<dyn Error>> {
        let mut changes = Changeset::default();
        changes.change(KEY, Some(Variant::from(text)));
        client.change_and_wait(&changes)?;
        Ok(())
    };

    let mut rows = [
        Row::new("dconf_rs, read"),
        Row::new("ours, read"),
        Row::new("dconf_rs, write"),
        Row::new("ours, write"),
    ];
    for round in 0..rounds {
        let text = format!("Cantarell {round}");
        rows[2].measure(|| dconf_rs::set_string(KEY, &text))?;
        let found = rows[0].measure(|| dconf_rs::get_string(KEY))?;
        assert_eq!(found, text);
        let text = format!("Inter {round}");
        rows[3].measure(|| write(&text))?;
        let found =
            rows[1].measure(|| reader.get(KEY).and_then(|value| value.as_str().map(str::to_owned)));
        assert_eq!(found.as_deref(), Some(&text[..]));
    }
    print_rows(&rows);
    print_ratios(&rows[1], &rows[0]);
    print_ratios(&rows[3], &rows[2]);

    println!("\nwhat comes back of what was written:");
    for text in ["it's", "two\nlines", "a\\b"] {
        let said = dconf_rs::set_string(KEY, text);
        let theirs = dconf_rs::get_string(KEY);
        write(text)?;
        let ours = reader.get(KEY).and_then(|value| value.as_str().map(str::to_owned));
        println!("{text:?}: dconf_rs says {said:?} and reads {theirs:?}; ours reads {ours:?}");
        assert_eq!(ours.as_deref(), Some(text));
    }
    println!(
        "a key that does not exist: dconf_rs reads {:?}",
        dconf_rs::get_string("/org/example/none")
    );
    println!("no path of a key: dconf_rs writes with {:?}", dconf_rs::set_string("nonsense", "x"));
    let mut wrong = Changeset::default();
    wrong.change("nonsense", Some(Variant::from("x")));
    println!(
        "no path of a key: ours is {:?}",
        client.change_and_wait(&wrong).map_err(|error| error.to_string())
    );
    Ok(())
}
