//! Commands that only read: `read`, `list`, `list-locks`, `dump`, `complete`.

use std::collections::BTreeSet;
use std::io::Write;

use settings::client::{Key, ValueChoice};
use xdg::keyfile::KeyFile;

use super::session::{MessageStyle, Session};
use crate::cli::screen;
use crate::error::Error;

/// Prints the value of a key; nothing if it has none.
pub(super) fn read(
    session: &mut Session,
    key: &str,
    which: ValueChoice,
    out: &mut dyn Write,
) -> Result<bool, Error> {
    let value = session.reader.read(&Key::new(key), which).map(|value| value.to_variant());
    session.warn();
    if let Some(value) = &value {
        writeln!(out, "{}", value.print())?;
    }
    Ok(value.is_some())
}

/// Returns the names in a directory.
pub(super) fn list(session: &mut Session, dir: &str) -> BTreeSet<String> {
    let names = session.reader.list(dir);
    session.warn();
    names
}

/// Returns the locked keys below a directory.
pub(super) fn list_locks(session: &mut Session, dir: &str) -> BTreeSet<String> {
    let locks = session.reader.list_locks(dir);
    session.warn();
    locks
}

/// Prints names, one a line.
pub(super) fn lines(names: &BTreeSet<String>, out: &mut dyn Write) -> Result<(), Error> {
    names.iter().try_for_each(|name| writeln!(out, "{}", screen::name(name)))?;
    Ok(())
}

/// Prints everything below a directory as a key file: of each directory its keys, then what is below it.
pub(super) fn dump(session: &mut Session, dir: &str, out: &mut dyn Write) -> Result<(), Error> {
    let mut file = KeyFile::new();
    // The last one is next, so children go in backwards.
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        let group = match at[dir.len()..].strip_suffix('/') {
            None | Some("") => "/",
            Some(group) => group,
        };
        let (dirs, keys): (Vec<_>, Vec<_>) =
            list(session, &at).into_iter().partition(|name| name.ends_with('/'));
        for key in keys {
            let path = format!("{at}{key}");
            let Some(value) = session.reader.get(&path).map(|value| value.to_variant()) else {
                continue;
            };
            if file.set(group, &key, &value.print()).is_err() {
                left_out(&session.voice, &path);
            }
        }
        left.extend(dirs.iter().rev().map(|name| format!("{at}{name}")));
    }
    session.warn();
    out.write_all(&file.to_bytes())?;
    Ok(())
}

fn left_out(voice: &MessageStyle, path: &str) {
    match voice {
        MessageStyle::Unjank => {
            voice.warn("", "", &format!("left out {path}: its name cannot be in a key file"));
        }
        MessageStyle::Dconf(_) => voice.warn(
            "GLib",
            "CRITICAL",
            "g_key_file_set_value: assertion 'key != NULL && g_key_file_is_key_name (key, strlen (key))' failed",
        ),
    }
}

/// Prints what can follow the beginning of a path, for a shell: only names that end in `suffix`.
pub(super) fn complete(
    open: impl FnOnce() -> Session,
    suffix: &str,
    path: &str,
    out: &mut dyn Write,
) -> Result<(), Error> {
    if path.is_empty() {
        writeln!(out, "/")?;
        return Ok(());
    }
    if !path.starts_with('/') {
        return Ok(());
    }
    let dir = &path[..=path.rfind('/').unwrap_or(0)];
    for name in list(&mut open(), dir) {
        let full = format!("{dir}{name}");
        if full.starts_with(path) && name.ends_with(suffix) {
            // A directory goes on; behind a key the next word begins.
            writeln!(out, "{}{}", screen::name(&full), if full.ends_with('/') { "" } else { " " })?;
        }
    }
    Ok(())
}
