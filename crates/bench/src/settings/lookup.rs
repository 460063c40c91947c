//! How long a look-up takes, warm: our API, the dconf client library and a GHashTable on the same keys.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use fastrand::Rng;
use settings::client::{NoBus, SettingsClient, SettingsReader};
use settings::profile::{SettingsEnvironment, SettingsProfile};

use super::latency::ordinary;
use super::peer_client::{self, DCONF, PATH, create, missing, succeeded};
use crate::lab::{BenchError, Lab, Measuring};
use crate::row::{FigureRow, FigureTarget};
use lab::keys;
use report::figure::Quantity;
use report::samples::Samples;
use sys::scratch;

/// The client in C.
const SOURCE: &str = include_str!("../../peers/dconf_lookup.c");
/// Look-ups of every key that the C program times before we time ours again.
const PASSES: usize = 10;

pub(super) fn warm(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let cannot = |cause: io::Error| missing(&cause);
    let scratch = scratch::within(&lab.memory.dir).map_err(cannot)?;
    let directory = |name: &str| -> io::Result<PathBuf> {
        let path = scratch.path().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    };
    let config_home = directory("config").map_err(cannot)?;
    let runtime_dir = directory("run").map_err(cannot)?;
    directory("config/dconf").map_err(cannot)?;
    create(&config_home.join("dconf/user"), &keys::image(&table)?).map_err(cannot)?;

    // Not in the order of the file, which would please the caches of all three.
    let mut names: Vec<&str> = table.iter().map(|(key, _)| key).collect();
    Rng::with_seed(keys::SEED).shuffle(&mut names);
    let key_file = scratch.path().join("keys");
    create(&key_file, (names.join("\n") + "\n").as_bytes()).map_err(cannot)?;
    let program = peer_client::compile("dconf_lookup", SOURCE, DCONF, scratch.path())?;

    let environment = SettingsEnvironment {
        profile: None,
        config_home: config_home.clone(),
        runtime_dir: runtime_dir.clone(),
        data_dirs: Vec::new(),
        sysconf_dir: scratch.path().join("etc"),
        mandatory_dir: scratch.path().join("mandatory"),
        uid: 0,
    };
    let profile = SettingsProfile::choose(&environment, None);
    let mut reader = SettingsClient::open(&profile, &environment, Arc::new(NoBus)).reader();
    look_up(&mut reader, &names);

    let mut ours = Samples::default();
    let mut first = Samples::default();
    let mut client = Samples::default();
    let mut hash_table = Samples::default();
    for _ in 0..lab.effort.of(5, 2) {
        lab.go_on()?;
        let output = Command::new(&program)
            .arg(&key_file)
            .arg(PASSES.to_string())
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", scratch.path())
            .env("XDG_CONFIG_HOME", &config_home)
            .env("XDG_RUNTIME_DIR", &runtime_dir)
            .output()
            .map_err(cannot)?;
        for line in succeeded("dconf_lookup", output)?.lines() {
            let mut fields = line.split_ascii_whitespace();
            let mut number =
                || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
            let (of_client, of_table, found) = (number(), number(), number());
            #[expect(clippy::cast_precision_loss, reason = "a few thousand keys")]
            let all = names.len() as f64;
            if found != all {
                let cause = format!("it found {found} of {all} keys");
                return Err(BenchError::Peer { program: "dconf_lookup".to_owned(), cause });
            }
            client.push(of_client);
            hash_table.push(of_table);
        }
        let mut fresh = SettingsClient::open(&profile, &environment, Arc::new(NoBus)).reader();
        fresh.refresh();
        let (time, _) = lab.time(|| look_up(&mut fresh, &names));
        #[expect(clippy::cast_precision_loss, reason = "a few thousand keys")]
        first.push(time / names.len() as f64);
        look_up(&mut reader, &names);
        for _ in 0..PASSES {
            let (time, found) = lab.time(|| look_up(&mut reader, &names));
            if found != names.len() {
                let cause = format!("it found {found} of {} keys", names.len());
                return Err(BenchError::Peer { program: "our own client".to_owned(), cause });
            }
            #[expect(clippy::cast_precision_loss, reason = "a few thousand keys")]
            ours.push(time / names.len() as f64);
        }
    }
    let note = |how: &str| {
        format!("{} keys in random order, {how}; a sample is the mean of a pass", names.len())
    };
    let warm = note("warm: our reader remembers where the values of keys are");
    let new = note("ours each for the first time by a new reader, the client warm");
    let row = |id, title: &str, ours: &Samples, peer: &Samples, target, note: &str| FigureRow {
        id,
        title: title.to_owned(),
        quantity: Quantity::Time,
        ours: ours.clone(),
        peer: peer.clone(),
        target,
        note: note.to_owned(),
    };
    let quarter = Some(FigureTarget::AtMost(1.0 / 4.0));
    Ok(vec![
        row("lookup", "look-up (peer: dconf client)", &ours, &client, quarter, &warm),
        row("lookup-hash", "look-up (peer: hash table)", &ours, &hash_table, None, &warm),
        row("lookup-first", "first look-up of a key", &first, &client, None, &new),
    ])
}

/// Looks every key up and returns how many were found.
fn look_up(reader: &mut SettingsReader, names: &[&str]) -> usize {
    names.iter().filter(|name| black_box(reader.get(black_box(name))).is_some()).count()
}
