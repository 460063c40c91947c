//! `unjank setup` and `unjank undo`: parts are switched on, and taken back.

mod change;
mod place;
mod show;
pub(super) mod state;
mod text;

pub(super) use show::kept_path;

use std::ffi::OsString;
use std::path::PathBuf;

use ::setup::session::OtherServices;
use ::setup::{ForeignFiles, Installation, SetupError, SetupLayout, SetupPart};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use store::trust::Untrusted;

use crate::error::{Error, FailureCategory, Verdict};

/// Switch parts of unjank on for this user, or show which are on.
///
/// Without a part it shows each part, whether it is on, what the last `unjank doctor` measured of it, and the command that switches it on. Nothing needs root, except --system. Each step is recorded before it is made, and `unjank undo` takes back exactly that.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank setup settings relax")]
pub(crate) struct Setup {
    /// The parts to switch on.
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Show each file and what would change in it, and change nothing.
    #[arg(long, short = 'n', requires = "parts")]
    dry_run: bool,
    /// Print one line for each part: its name and whether it is on.
    #[arg(long, conflicts_with = "parts")]
    list: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Replace files of other programs that are in the way; undo brings them back.
    #[arg(long)]
    replace: bool,
    /// End another service that has the name now, such as dconf-service; a call that reaches it in that moment fails.
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    place: Place,
    /// The directory in which the programs were built.
    #[arg(long, value_name = "DIR", hide = true)]
    from: Option<PathBuf>,
}

/// Take back what `unjank setup` did.
///
/// Without a part it takes back everything. Files that somebody else has changed since are kept and named.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank undo settings")]
pub(crate) struct Undo {
    /// The parts to take back.
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Show what would be taken back, and change nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// For whom, and where.
#[derive(Clone, Debug, Args)]
struct Place {
    /// For every user of this machine, as root.
    #[arg(long)]
    system: bool,
    /// Use DIR in the place of /, to put a package together; DESTDIR does the same.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Install for every user below this prefix.
    #[arg(long, value_name = "DIR", hide = true)]
    prefix: Option<PathBuf>,
}

/// A part as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part(SetupPart);

impl ValueEnum for Part {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Part; 12] = [
            Part(SetupPart::Settings),
            Part(SetupPart::Gsettings),
            Part(SetupPart::Host),
            Part(SetupPart::Recents),
            Part(SetupPart::Relax),
            Part(SetupPart::Index),
            Part(SetupPart::Run),
            Part(SetupPart::Listing),
            Part(SetupPart::Hangs),
            Part(SetupPart::HangNotifications),
            Part(SetupPart::Trace),
            Part(SetupPart::Programs),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.name()).help(self.0.summary());
        Some(value.hide(self.0 == SetupPart::Programs))
    }
}

impl Setup {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        if self.parts.is_empty() {
            return show::run(&self.place, show::Form::of(self.list, self.json));
        }
        let foreign = if self.replace { ForeignFiles::Replace } else { ForeignFiles::Refuse };
        let request = change::Request {
            parts: distinct(&self.parts),
            dry_run: self.dry_run,
            as_json: self.json,
            place: self.place,
            others: if self.now { OtherServices::EndNow } else { OtherServices::GoOn },
        };
        change::switch_on(&request, foreign, self.from.as_deref())
    }
}

impl Undo {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let request = change::Request {
            parts: distinct(&self.parts),
            dry_run: self.dry_run,
            as_json: self.json,
            place: self.place,
            others: OtherServices::GoOn,
        };
        change::switch_off(&request)
    }
}

/// Returns each part once, in the order in which they were typed.
fn distinct(parts: &[Part]) -> Vec<SetupPart> {
    let mut distinct = Vec::new();
    for Part(part) in parts {
        if !distinct.contains(part) {
            distinct.push(*part);
        }
    }
    distinct
}

/// Whom the manifest must belong to: whoever asks, and root where it is for every user of this machine.
fn owner(layout: &SetupLayout) -> u32 {
    let own = rustix::process::geteuid().as_raw();
    match (layout.scope, &layout.root) {
        (::setup::SetupScope::System, None) if layout.manifest.starts_with("/var") => 0,
        _ => own,
    }
}

/// Reads what is installed, to look at it.
fn read(disk: &dyn store::disk::Disk, layout: SetupLayout) -> Result<Installation<'_>, Error> {
    let owner = owner(&layout);
    Installation::read(disk, layout, owner).map_err(|error| failed("read what was set up", error))
}

/// Says what could not be done, and what helps.
fn failed(what: &str, error: SetupError) -> Error {
    let kind = match &error {
        SetupError::Busy { .. }
        | SetupError::ChangedFile { .. }
        | SetupError::AlreadyKept { .. } => FailureCategory::Busy,
        _ => FailureCategory::Config,
    };
    let hint = error.hint();
    // The words that say who else decides.
    let error: Box<dyn std::error::Error + Send + Sync> = match error {
        SetupError::OpenToOthers {
            source:
                Untrusted::WritableByOthers { path, .. } | Untrusted::BelongsToAnother { path, .. },
        } if rustix::process::geteuid().is_root() => {
            format!("others than root may write {}", path.display()).into()
        }
        other => other.into(),
    };
    let error = Error::new(kind, what).because(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A variable of the environment that is set to something.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
