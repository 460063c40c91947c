//! Commands that change settings: `write`, `reset`, `load`.

use std::io::{self, Read, Write};

use gvdb::gvariant::Variant;
use settings::changeset::Changeset;
use settings::compile;
use xdg::keyfile::KeyFile;

use super::environment;
use super::session::{MessageStyle, Session};
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory};

/// What `load` does with keys that are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// Nothing is loaded.
    Refuse,
    /// They are left out.
    Skip,
}

/// Sets a key.
pub(super) fn write(session: &Session, key: &str, value: Variant) -> Result<(), Error> {
    let mut changes = Changeset::default();
    changes.change(key, Some(value));
    session.change(&format!("write {key}"), &changes)
}

/// Resets a key or a directory.
pub(super) fn reset(session: &Session, path: &str) -> Result<(), Error> {
    let mut changes = Changeset::default();
    changes.change(path, None);
    session.change(&format!("reset {path}"), &changes)
}

/// Sets everything that a key file on stdin says below a directory, all of it or nothing.
///
/// The session is opened once the file is known to be good.
pub(super) fn load(open: impl FnOnce() -> Session, dir: &str, locked: Locked) -> Result<(), Error> {
    let what = format!("load {dir}");
    let cannot = || Error::new(FailureCategory::Dconf, what.clone());
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text).map_err(|error| cannot().because(error))?;
    let file = KeyFile::parse_text(&text).map_err(|error| cannot().because(error))?;
    let mut session = open();
    let mut changes = Changeset::default();
    for setting in compile::settings(&file, dir, &environment::languages()) {
        let (path, value) = setting.map_err(|error| cannot().because(error))?;
        if locked == Locked::Skip && !session.reader.is_writable(&path) {
            session.warn();
            ignored(&session.voice, &path);
        } else {
            changes.change(&path, Some(value));
        }
    }
    session.change(&what, &changes)
}

fn ignored(voice: &MessageStyle, path: &str) {
    let text = format!("ignored non-writable key '{path}'");
    match voice {
        MessageStyle::Unjank => voice.warn("", "", &text),
        // This one is dconf's own print, not GLib's.
        MessageStyle::Dconf(_) => drop(sayln!(screen::stderr(), "warning: {text}")),
    }
}
