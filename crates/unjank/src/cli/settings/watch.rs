//! `watch` and `blame`: what the bus tells about settings.

use std::io::{self, Write};
use std::sync::mpsc::{self, Sender};

use bus::client::blocking::BlockingClient;
use bus::client::{ClientError, DconfSignal};
use settings::path;
use settings::profile::{Description, ProfileBus};

use super::session::{MessageStyle, Session};
use crate::cli::screen;
use crate::error::{Error, FailureCategory};

/// Prints each change at or below `path` as it happens.
///
/// # Errors
///
/// Always, in the end: the bus or the reader of our output went.
pub(super) fn watch(session: &mut Session, path: &str, out: &mut dyn Write) -> Result<(), Error> {
    let (sender, signals) = mpsc::channel();
    let objects: Vec<_> =
        session.profile.databases.iter().filter_map(Description::object).collect();
    if objects.is_empty() {
        return Err(Error::new(FailureCategory::Dconf, format!("watch {path}"))
            .because("no service reports changes of the databases in this profile"));
    }
    for (bus, object_path) in objects {
        let (ready, is_ready) = mpsc::channel();
        let (sender, watched) = (sender.clone(), path.to_owned());
        let work = move || follow(bus, &object_path, &watched, &ready, &sender);
        sys::thread::spawn("watch", work).map_err(|error| {
            Error::new(FailureCategory::Dconf, format!("watch {path}")).because(error)
        })?;
        match is_ready.recv() {
            Ok(Ok(())) => (),
            // Without a system bus we only miss that the administrator compiled something.
            Ok(Err(_)) if bus == ProfileBus::System => (),
            Ok(Err(error)) => return Err(failed(session, &format!("watch {path}"), &error)),
            Err(_) => return Err(Error::new(FailureCategory::Internal, format!("watch {path}"))),
        }
    }
    drop(sender);
    while let Ok(signal) = signals.recv() {
        let (prefix, changes) = match signal {
            DconfSignal::Notify { prefix, changes, .. } if is_sound(&prefix, &changes) => {
                (prefix, changes)
            }
            DconfSignal::WritabilityNotify { path } if path::is_path(&path) => {
                (path, vec![String::new()])
            }
            _ => continue,
        };
        for change in changes {
            show(session, &format!("{prefix}{change}"), out)?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    Err(Error::new(FailureCategory::Dconf, format!("watch {path}"))
        .because("the bus closed the connection"))
}

/// Hands on the signals of one object, on a connection of its own.
fn follow(
    bus: ProfileBus,
    object_path: &str,
    path: &str,
    ready: &Sender<Result<(), ClientError>>,
    signals: &Sender<DconfSignal>,
) {
    let subscribed = match bus {
        ProfileBus::Session => BlockingClient::connect(None),
        ProfileBus::System => BlockingClient::system(),
    }
    .and_then(|client| Ok((client.subscribe(object_path, path)?, client)));
    let (mut subscription, client) = match subscribed {
        Ok(subscribed) => subscribed,
        Err(error) => return drop(ready.send(Err(error))),
    };
    // Whoever does not wait for us any more has ended the command.
    if ready.send(Ok(())).is_err() {
        return;
    }
    while let Some(signal) = client.next_signal(&mut subscription, None) {
        if signals.send(signal).is_err() {
            return;
        }
    }
}

fn is_sound(prefix: &str, changes: &[String]) -> bool {
    if path::is_key(prefix) {
        return changes == [""];
    }
    path::is_dir(prefix)
        && !changes.is_empty()
        && changes.iter().all(|change| path::is_relative(change))
}

fn show(session: &mut Session, path: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", screen::name(path))?;
    if !path::is_key(path) {
        return Ok(());
    }
    let value = session.reader.get(path).map(|value| value.to_variant().print());
    session.warn();
    writeln!(out, "  {}", value.as_deref().unwrap_or("unset"))
}

/// Prints what the service recorded of its callers.
pub(super) fn blame(voice: &MessageStyle, out: &mut dyn Write) -> Result<(), Error> {
    let text = BlockingClient::connect(None).and_then(|client| client.blame());
    let text = text.map_err(|error| {
        Error::new(FailureCategory::Dconf, "read the record of callers from the settings service")
            .because(voice.bus_error(&error))
            .hint("the service records its callers only if DCONF_BLAME was set when it started")
    })?;
    out.write_all(text.as_bytes())?;
    Ok(())
}

fn failed(session: &Session, what: &str, error: &ClientError) -> Error {
    Error::new(FailureCategory::Dconf, what).because(session.voice.bus_error(error))
}
