//! The commands of unjank that remove a cause, where one does.

use report::advice::Advice;
use serde::Serialize;

use crate::model::{Hang, HangCause, ObjectKind};

/// What removes the cause of a hang.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangRemedy {
    /// Syncs of lists of recent documents cost nothing.
    Relax,
    /// The settings service answers without waiting for a disk.
    Settings,
    /// Plugins and applications are found in an index.
    Index,
    /// Background units are held while programs wait for the disk.
    Run,
    /// Host commands of sandboxed programs are run by unjank.
    Host,
}

impl HangRemedy {
    /// Returns what it does, with the command that switches it on.
    #[must_use]
    pub fn advice(self) -> Advice {
        let (text, part) = match self {
            HangRemedy::Relax => {
                ("programs do not wait for syncs of their recent-document lists", "relax")
            }
            HangRemedy::Settings => ("settings are stored without the program waiting", "settings"),
            HangRemedy::Index => ("plugins and applications are found in an index", "index"),
            HangRemedy::Run => ("background work is held while programs wait for the disk", "run"),
            HangRemedy::Host => {
                ("host commands of sandboxed programs are answered by unjank", "host")
            }
        };
        Advice { text: text.to_owned(), command: Some(format!("unjank setup {part}")) }
    }
}

/// So much of ten seconds that some thread waits for a disk means that others use it, in hundredths of a percent.
const BUSY_DISK: u16 = 3000;

/// Returns what removes the cause of a hang; `None` where no part of unjank does.
#[must_use]
pub fn remedy(hang: &Hang) -> Option<HangRemedy> {
    let object = hang.object();
    let name = object.map_or("", |object| &*object.name);
    let kind = object.map(|object| object.kind);
    let waits_for_file = matches!(
        hang.cause,
        HangCause::Sync | HangCause::FileData | HangCause::FileNames | HangCause::PageFault
    );
    match (hang.cause, kind) {
        (HangCause::Sync, Some(ObjectKind::File)) if is_recent_list(name) => {
            return Some(HangRemedy::Relax);
        }
        (_, Some(ObjectKind::File)) if name.contains("/.config/dconf/") => {
            return Some(HangRemedy::Settings);
        }
        (HangCause::OtherProgram, Some(ObjectKind::Socket))
            if name.starts_with("dconf-service") =>
        {
            return Some(HangRemedy::Settings);
        }
        (HangCause::OtherProgram, Some(ObjectKind::Socket))
            if name.starts_with("flatpak-session") =>
        {
            return Some(HangRemedy::Host);
        }
        (HangCause::FileNames | HangCause::FileData, Some(ObjectKind::File))
            if is_indexed(name) =>
        {
            return Some(HangRemedy::Index);
        }
        _ => {}
    }
    let is_busy = hang.pressure.is_some_and(|[_, io, _]| io >= BUSY_DISK);
    (waits_for_file && is_busy).then_some(HangRemedy::Run)
}

/// Returns whether a file is a list of recent documents, or a temporary file that replaces one.
fn is_recent_list(path: &str) -> bool {
    path.contains("/recently-used.xbel") || path.contains("/RecentDocuments/")
}

/// Returns whether the index of plugins and applications answers what is looked up here.
fn is_indexed(path: &str) -> bool {
    let is_plugin = ["/qt5/plugins/", "/qt6/plugins/"].iter().any(|part| path.contains(part));
    is_plugin || path.contains("/share/applications/") || path.ends_with("/share/applications")
}
