//! `recent volatile`: the lists of recent documents are in memory, with copies on the disk.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use session::recents::policy::Keeping;
use session::recents::volatile::{self, ListPlace};
use session::recents::{Recents, Watcher, writer};
use store::publish::publish;

use super::{policy, shown_path};
use crate::cli::catalogue;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, Kind, Verdict};

/// The rule.
const RULE: &str = "volatile";
/// What starts with every login, where systemd runs the user's services.
const UNIT: &str = "unjank-recents.service";

/// Keep all lists of recent documents in memory, with copies on the disk.
///
/// Example: unjank recent volatile on
///
/// Our journal, recently-used.xbel and RecentDocuments go to the runtime directory; in their places are symlinks, by which
/// GTK's and KDE's programs find them. A copy of each is on the disk, at most a quarter of an hour old.
/// `off` puts all back. Without a word it says where they are; the exit status is then 1 if they are on the disk.
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
    /// Say where they are.
    Status,
    /// Copy them to the disk now.
    Save,
}

impl Volatile {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        match self.state {
            State::On => on(&mut recents)?,
            State::Off => off(&mut recents)?,
            State::Save => save(&mut recents)?,
            State::Status => {}
        }
        let verdict = status(&mut recents, self.json, out)?;
        // Whether what was asked for was done; only a question is answered with no.
        Ok(if self.state == State::Status { verdict } else { Verdict::Yes })
    }
}

/// Moves the lists to memory.
pub(super) fn on(recents: &mut Recents) -> Result<(), Error> {
    let fail = || Error::new(Kind::Config, "keep the lists in memory");
    let Some(runtime) = recents.places().runtime.clone() else {
        return Err(fail().because(io::Error::other("XDG_RUNTIME_DIR is not set")));
    };
    volatile::probe(recents).map_err(|error| {
        let dir = shown_path(&recents.places().data, &recents.places().home);
        fail().because(error).hint(format!(
            "the file system of {dir} cannot give two files each other's names, as ext4, xfs and btrfs can"
        ))
    })?;
    blocked(recents, &fail)?;
    policy::change(recents, |rules| rules.add(RULE).map_err(|error| fail().because(error)))?;
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
    start_with_login(recents)
}

/// Moves the lists back to the disk.
pub(super) fn off(recents: &mut Recents) -> Result<(), Error> {
    let fail = || Error::new(Kind::Config, "put the lists back on the disk");
    volatile::remove_probe(recents);
    // What is in memory only goes to the disk first.
    recents.snapshot().map_err(|error| fail().because(error))?;
    policy::change(recents, |rules| rules.remove(RULE).map_err(|error| fail().because(error)))?;
    write(recents)?;
    volatile::settle(recents).map_err(|error| fail().because(error))?;
    start_no_more(recents)
}

fn save(recents: &mut Recents) -> Result<(), Error> {
    let fail = || Error::new(Kind::Config, "copy the lists to the disk");
    recents.snapshot().map_err(|error| fail().because(error))?;
    volatile::save_if_moved(recents).map_err(|error| fail().because(error))
}

fn write(recents: &mut Recents) -> Result<(), Error> {
    writer::write(recents).map(|_| ()).map_err(|error| {
        Error::new(Kind::Config, "write the lists that other programs read").because(error)
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
    mount.is_none_or(sys::mounts::Mount::is_memory)
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
    let is_watched = Watcher::of(recents.disk(), recents.places(), Duration::ZERO)
        .is_ok_and(|watcher| watcher.is_none());
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
            ListPlace::Nowhere => sayln!(out, "  {name}, which no program has made yet")?,
            ListPlace::Lost => {
                sayln!(out, "  {name}, whose memory is gone; `unjank recent sync` restores it")?;
            }
            ListPlace::Blocked => sayln!(out, "  {name}, which is no list and is left alone")?,
        }
    }
    if is_on && !is_watched {
        writeln!(
            out,
            "Nothing watches them: what other programs write is taken over with the next unjank command.\n\
             hint: unjankd --names session --idle-exit 0"
        )?;
    }
    Ok(if is_on { Verdict::Yes } else { Verdict::No })
}

/// Returns the unit, and the link by which it starts, if systemd runs this user's services.
fn unit(recents: &Recents) -> Option<(PathBuf, PathBuf)> {
    let runtime = recents.places().runtime.as_ref()?.ancestors().nth(2)?;
    let dir = recents.places().config.join("systemd/user");
    let link = dir.join("default.target.wants").join(UNIT);
    runtime.join("systemd").is_dir().then(|| (dir.join(UNIT), link))
}

/// Has the daemon start with every login: it restores the lists after a crash, and copies them when the session ends.
fn start_with_login(recents: &Recents) -> Result<(), Error> {
    let Some((unit, link)) = unit(recents) else { return Ok(()) };
    let fail = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(Kind::Config, format!("write {}", unit.display())).because(error)
    };
    let daemon = std::env::current_exe()?.with_file_name("unjankd");
    let disk = recents.disk();
    publish(disk, &unit, unit_text(&daemon)?.as_bytes()).map_err(|error| fail(error.into()))?;
    let wanted = link.parent().unwrap_or(Path::new("/"));
    store::publish::make_directory(disk, wanted).map_err(|error| fail(error.into()))?;
    match disk.symlink(&Path::new("..").join(UNIT), &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(fail(error.into()));
        }
        _ => {}
    }
    if !(systemctl(&["daemon-reload"]) && systemctl(&["start", "--no-block", UNIT])) {
        writeln!(
            screen::stderr(),
            "unjank: {UNIT} starts with the next login\n\
             hint: systemctl --user daemon-reload && systemctl --user start {UNIT}"
        )?;
    }
    Ok(())
}

fn start_no_more(recents: &Recents) -> Result<(), Error> {
    let Some((unit, link)) = unit(recents) else { return Ok(()) };
    if recents.disk().stat(&unit).is_err() {
        return Ok(());
    }
    systemctl(&["stop", "--no-block", UNIT]);
    for path in [&link, &unit] {
        match recents.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("remove {}", path.display());
                return Err(Error::new(Kind::Config, what).because(error));
            }
            _ => {}
        }
    }
    systemctl(&["daemon-reload"]);
    Ok(())
}

/// Returns the text of `systemd.service(5)`.
fn unit_text(daemon: &Path) -> Result<String, Error> {
    let path = daemon.to_str().filter(|path| !path.contains(['"', '\'', '\\', '\n', '$']));
    let path = path.ok_or_else(|| {
        let what = format!("write {} into a unit", daemon.display());
        Error::new(Kind::Config, what).hint("its path must have no quote, dollar or backslash")
    })?;
    let path = path.replace('%', "%%");
    Ok(format!(
        "# Written by `unjank recent volatile on`; with `off` it is removed.\n\
         [Unit]\n\
         Description=Recent documents in memory, with copies on the disk\n\n\
         [Service]\n\
         ExecStart=\"{path}\" --names session --replace --idle-exit 0\n\
         Restart=on-failure\n\
         TimeoutStopSec=20s\n\n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// Asks the user's systemd; returns whether it did it.
fn systemctl(arguments: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
