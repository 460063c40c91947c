//! `recent volatile`: the lists of recent documents are in memory, with copies on the disk.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use recents::login::{self, LoginError, LoginService, UNIT};
use recents::policy::Keeping;
use recents::volatile::{self, ListPlace};
use recents::{Recents, Watcher, writer};
use serde_json::{Value as Json, json};

use super::{rules, shown_path};
use crate::cli::catalogue;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory, Verdict};

/// The rule.
const RULE: &str = "volatile";

/// Keep all lists of recent documents in memory, with copies on the disk.
///
/// Example: unjank recent volatile on
///
/// Moves unjank's journal, recently-used.xbel and RecentDocuments to the runtime directory, and leaves symlinks in their
/// places for GTK and KDE programs. Copies on the disk are at most a quarter of an hour old. `off` moves all back. Without an argument, it shows where they are; the exit status is then 1 if they are on the disk.
#[derive(Debug, Args)]
pub(super) struct Volatile {
    /// What to do.
    #[arg(value_enum, default_value_t = State::Status)]
    state: State,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Move them to memory.
    On,
    /// Move them back to the disk.
    Off,
    /// Show where they are.
    Status,
    /// Copy them to the disk now.
    Save,
}

impl Volatile {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        match self.state {
            State::On => on(&mut recents, &daemon_beside()?)?,
            State::Off => off(&mut recents)?,
            State::Save => save(&mut recents)?,
            State::Status => {}
        }
        let verdict = status(&mut recents, self.json, out)?;
        // Whether what was asked for was done; only a question is answered with no.
        Ok(if self.state == State::Status { verdict } else { Verdict::Yes })
    }
}

/// Returns the daemon beside this program.
pub(super) fn daemon_beside() -> Result<PathBuf, Error> {
    Ok(std::env::current_exe()?.with_file_name("unjankd"))
}

/// Moves the lists to memory; `daemon` is started with every login.
pub(super) fn on(recents: &mut Recents, daemon: &Path) -> Result<(), Error> {
    let fail = || Error::new(FailureCategory::Config, "keep the lists in memory");
    let Some(runtime) = recents.places().runtime.clone() else {
        return Err(fail().because(io::Error::other("XDG_RUNTIME_DIR is not set")));
    };
    volatile::probe(recents).map_err(|error| {
        let dir = shown_path(&recents.places().data, &recents.places().home);
        fail().because(error).hint(format!(
            "the file system of {dir} cannot exchange two files (RENAME_EXCHANGE), as ext4, xfs and btrfs can"
        ))
    })?;
    blocked(recents, &fail)?;
    rules::change(recents, |kept| kept.add(RULE).map_err(|error| fail().because(error)))?;
    write(recents)?;
    for (name, place) in volatile::places_of_lists(recents) {
        if !matches!(place, ListPlace::Memory { .. } | ListPlace::Nowhere) {
            volatile::settle(recents).map_err(|error| fail().because(error))?;
            let why = format!("{} is still on the disk", name.display());
            return Err(fail().because(io::Error::other(why)));
        }
    }
    save(recents)?;
    if !is_memory(&runtime) {
        let path = shown_path(&runtime, &recents.places().home);
        writeln!(screen::stderr(), "unjank: {path} is not in memory: it is on a disk, too")?;
    }
    match login::install(recents, daemon).map_err(login_failed)? {
        LoginService::NoManager | LoginService::Started => {}
        LoginService::StartsWithLogin => writeln!(
            screen::stderr(),
            "unjank: {UNIT} starts with the next login\n\
             hint: systemctl --user daemon-reload && systemctl --user start {UNIT}"
        )?,
    }
    Ok(())
}

fn login_failed(error: LoginError) -> Error {
    match error {
        LoginError::File { step, path, source } => {
            Error::new(FailureCategory::Config, format!("{step} {}", path.display()))
                .because(source)
        }
        LoginError::DaemonPath { daemon } => {
            let what = format!("write {} into a unit", daemon.display());
            Error::new(FailureCategory::Config, what)
                .hint("move it to a path without quotes, dollar signs and backslashes")
        }
        error => Error::new(FailureCategory::Config, "configure the daemon").because(error),
    }
}

/// Moves the lists back to the disk.
pub(super) fn off(recents: &mut Recents) -> Result<(), Error> {
    let fail = || Error::new(FailureCategory::Config, "move the lists back to the disk");
    volatile::remove_probe(recents);
    // What is in memory only goes to the disk first.
    recents.snapshot().map_err(|error| fail().because(error))?;
    rules::change(recents, |kept| kept.remove(RULE).map_err(|error| fail().because(error)))?;
    write(recents)?;
    volatile::settle(recents).map_err(|error| fail().because(error))?;
    login::remove(recents).map_err(login_failed)
}

fn save(recents: &mut Recents) -> Result<(), Error> {
    let fail = || Error::new(FailureCategory::Config, "copy the lists to the disk");
    recents.snapshot().map_err(|error| fail().because(error))?;
    volatile::save_if_moved(recents).map_err(|error| fail().because(error))
}

fn write(recents: &mut Recents) -> Result<(), Error> {
    writer::write_for_user(recents).map(|_| ()).map_err(|error| {
        Error::new(FailureCategory::Config, "write the lists that other programs read")
            .because(error)
    })
}

/// Refuses where something else than a list has a list's name.
fn blocked(recents: &Recents, fail: &dyn Fn() -> Error) -> Result<(), Error> {
    for (name, place) in volatile::places_of_lists(recents) {
        if place == ListPlace::Blocked {
            let why = format!("{} is a link or a device of somebody else's", name.display());
            return Err(fail().because(io::Error::other(why)));
        }
    }
    Ok(())
}

fn is_memory(path: &Path) -> bool {
    let mounts = sys::mounts::Mounts::read().ok();
    let mount = mounts.as_ref().and_then(|mounts| mounts.above(path));
    // Without /proc nothing is known, and nothing is said.
    mount.is_none_or(sys::mounts::MountInfo::is_memory)
}

/// Says where each list is.
fn status(recents: &mut Recents, as_json: bool, out: &mut dyn Write) -> Result<Verdict, Error> {
    let is_on = recents.limits().keeping == Keeping::Volatile;
    let lists = volatile::places_of_lists(recents);
    let home = recents.places().home.clone();
    let journal = recents.journal_path();
    let age = |copy: &Path| {
        let stat = recents.disk().stat(copy).ok()?;
        let now = i128::from(recents.now().0) * 1000;
        u64::try_from((now - stat.mtime_ns) / 1_000_000_000).ok()
    };
    let is_watched = Watcher::is_there(recents.disk(), recents.places());
    if as_json {
        let lists: Vec<Json> = lists
            .iter()
            .map(|(name, place)| {
                let (place, memory, copy) = match place {
                    ListPlace::Memory { memory, copy } => ("memory", Some(memory), copy.as_ref()),
                    ListPlace::Disk => ("disk", None, None),
                    ListPlace::Lost => ("lost", None, None),
                    ListPlace::Nowhere => ("nowhere", None, None),
                    ListPlace::Blocked => ("blocked", None, None),
                };
                json!({
                    "name": name, "place": place, "memory": memory, "copy": copy,
                    "copy_age_seconds": copy.and_then(|copy| age(copy)),
                })
            })
            .collect();
        let document = json!({
            "schema": "unjank.recent.volatile/1",
            "on": is_on,
            "watched": is_watched,
            "journal": journal,
            "lists": lists,
        });
        catalogue::print_json(out, &document)?;
        return Ok(if is_on { Verdict::Yes } else { Verdict::No });
    }
    match is_on {
        true => writeln!(out, "The lists of recent documents are in memory.")?,
        false => writeln!(out, "The lists of recent documents are on the disk.")?,
    }
    sayln!(out, "  {}", shown_path(&journal, &home))?;
    for (name, place) in &lists {
        let name = shown_path(name, &home);
        match place {
            ListPlace::Memory { memory, copy } => {
                let memory = shown_path(memory, &home);
                let copied = match copy.as_ref().and_then(|copy| age(copy)) {
                    Some(seconds) if seconds < 60 => "copied to the disk just now".to_owned(),
                    Some(seconds) => format!("copied to the disk {} min ago", seconds / 60),
                    None => "not copied to the disk yet".to_owned(),
                };
                sayln!(out, "  {name} -> {memory}, {copied}")?;
            }
            ListPlace::Disk => sayln!(out, "  {name}")?,
            ListPlace::Nowhere => sayln!(out, "  {name}, which does not exist yet")?,
            ListPlace::Lost => {
                sayln!(
                    out,
                    "  {name}, whose file in memory is gone; `unjank recent sync` restores it"
                )?;
            }
            ListPlace::Blocked => sayln!(out, "  {name}, which is not a list and was not changed")?,
        }
    }
    if is_on && !is_watched {
        writeln!(
            out,
            "No process watches them: changes by other programs are merged by the next unjank command.\n\
             hint: unjankd --names session --idle-exit 0"
        )?;
    }
    Ok(if is_on { Verdict::Yes } else { Verdict::No })
}
