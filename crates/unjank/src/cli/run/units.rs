//! `unjank run --adopt-units`: configures known background units of systemd to start in the idle class, and to be held while other programs wait.
//!
//! systemd then runs this program again and again: the command is refused if anybody but the manager's user and root can change it.

use std::env;
use std::io::Write;
use std::path::PathBuf;

use jobs::adoption::{self, AdoptionError};
use jobs::units::Manager;
use store::trust::{self, ProgramOwner};

use crate::cli::catalogue::shown_path;
use crate::cli::screen;
use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdoptionAction {
    /// Adopt them.
    Adopt,
    /// Leave them as they were.
    Undo,
}

/// Adopts the units of this user's manager; as root those of the system's.
pub(super) fn run(way: AdoptionAction) -> Result<Verdict, Error> {
    let is_root = rustix::process::geteuid().is_root();
    let (target, sources) = if is_root {
        (PathBuf::from("/etc/systemd/system"), Manager::System.places(None))
    } else {
        let configuration = configuration()?;
        (configuration.join("systemd/user"), Manager::User.places(Some(&configuration)))
    };
    let mut out = screen::stdout();
    let done = match way {
        AdoptionAction::Adopt => match adoption::present(&sources) {
            units if units.is_empty() => Vec::new(),
            units => adoption::adopt(&target, &units, &trusted()?).map_err(failed)?,
        },
        AdoptionAction::Undo => adoption::undo(&target).map_err(failed)?,
    };
    for path in &done {
        let what = if way == AdoptionAction::Adopt { "made" } else { "removed" };
        sayln!(out, "{what} {}", shown_path(path))?;
    }
    if done.is_empty() {
        let nothing = match way {
            AdoptionAction::Adopt => {
                "No unit that is known to work in the background is left to adopt."
            }
            AdoptionAction::Undo => "No unit was adopted.",
        };
        sayln!(out, "{nothing}")?;
    } else {
        let user = if is_root { "" } else { "--user " };
        sayln!(out, "It takes effect after: systemctl {user}daemon-reload")?;
    }
    Ok(Verdict::Yes)
}

#[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
fn configuration() -> Result<PathBuf, Error> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config"))).ok_or_else(|| {
        Error::new(FailureCategory::Config, "find the user's units")
            .because("there is no home directory")
            .hint("set HOME")
    })
}

/// Returns this program, if nobody but this user and root can change it.
fn trusted() -> Result<PathBuf, Error> {
    let program = env::current_exe().map_err(|error| {
        Error::new(FailureCategory::Internal, "find this program").because(error)
    })?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let runner = ProgramOwner { user: user.as_raw(), group: group.as_raw() };
    trust::check(&program, runner).map_err(|error| {
        let what = format!("have systemd run {}", shown_path(&program));
        let hint = if user.is_root() {
            "install it for every user: packaging/install --prefix /usr/local"
        } else {
            "take the write permission from others, or move the program"
        };
        Error::new(FailureCategory::Config, what).because(error).hint(hint)
    })
}

fn failed(error: AdoptionError) -> Error {
    match error {
        AdoptionError::File { step, path, source } => {
            let what = format!("{step} {}", shown_path(&path));
            Error::new(FailureCategory::Config, what).because(source)
        }
        _ => Error::new(FailureCategory::Config, "write the path of this program into a unit")
            .hint("move it to a path without quotes, backslashes and dollar signs"),
    }
}
