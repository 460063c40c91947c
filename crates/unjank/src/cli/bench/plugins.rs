//! `unjank bench plugins`: the index of plugins and applications, beside what a program would ask instead.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use probe::bench::plugins::{self, APP, Cold, FIGURES, Lab, Peer, World};
use probe::bench::run::{Setting, versioned};
use session::clock::{Clock, SystemClock};
use session::index::Index;
use session::index::build::Look;
use session::index::input::Part;
use session::index::layout::{AppKey, PluginKey};
use session::index::opener::Openers;
use sys::mounts::Mounts;

use super::super::{catalogue, interrupt};
use super::{How, place, provenance, this_program};
use crate::error::{Error, Kind, Verdict};

/// Measure the index of plugins and applications on this machine's own, with caches in a directory that is removed again.
///
/// The peers are KService and KPluginMetaData (a small program is compiled for them), kbuildsycoca5 and gio.
/// As root, also without the kernel's caches, which are dropped for that; --warm leaves them.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bench plugins --peer 'xdg-mime=xdg-mime query default {type}'"
)]
pub(super) struct Plugins {
    /// Where indexes and caches are made; by default here.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A program to compare with: its name, and its command with {type} and {id} for what is asked. Repeat for more.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = Peer::parse)]
    peer: Vec<Peer>,
    /// The application that is asked for, without .desktop; by default one that is made for this.
    #[arg(long, value_name = "ID", default_value = APP, hide_default_value = true)]
    app: String,
    /// The MIME type that is asked for.
    #[arg(long = "type", value_name = "TYPE", default_value = "text/html")]
    mime_type: String,
    /// Leave the kernel's caches alone.
    #[arg(long)]
    warm: bool,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = figures(), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: How,
}

fn figures() -> clap::builder::PossibleValuesParser {
    FIGURES.iter().map(|figure| figure.id).collect::<Vec<_>>().into()
}

impl Plugins {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES.iter().map(|figure| (figure.id, figure.about)));
        }
        let mounts = Mounts::read()
            .map_err(|error| Error::new(Kind::Config, "read the mounts").because(error))?;
        let place = place(&self.dir, &mounts)?;
        let program = this_program()?;
        let world = World::make(&place.dir, catalogue::program_path()).map_err(|error| {
            Error::new(Kind::User, format!("measure in {}", place.dir.display())).because(error)
        })?;
        let is_root = rustix::process::geteuid().is_root();
        let drops = is_root && !self.warm && !place.mount.is_memory();
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let peers =
            self.peer.iter().map(|peer| format!("{} ({})", peer.name, peer.command.join(" ")));
        let setting = Setting {
            ours: program.display().to_string(),
            peer: ["/usr/bin/kbuildsycoca5", "/usr/bin/gio"]
                .map(|program| versioned(program.as_ref()))
                .into_iter()
                .chain(peers)
                .collect::<Vec<_>>()
                .join(", "),
            places: vec![
                format!("caches in {}", place.describe()),
                if drops { "warm, and cold as said; caches were dropped" } else { "warm" }
                    .to_owned(),
            ],
            quick: self.how.quick,
        };
        let lab = Lab {
            world,
            program,
            client: vec!["bench".to_owned(), "plugins-client".to_owned()],
            peers: self.peer,
            app: self.app,
            mime_type: self.mime_type,
            cold: if drops { Cold::Measured } else { Cold::LeftOut },
            effort: self.how.effort(),
            clock: &clock,
            stop: &stop,
        };
        let chosen = plugins::chosen(&self.only, &lab);
        self.how.show(|progress| {
            Ok(plugins::measure(&chosen, &lab, setting, provenance(&clock), progress))
        })
    }
}

/// Ask the index as a program does, and print how long each question took in nanoseconds and how many were found
#[derive(Debug, Args)]
pub(super) struct Client {
    what: Question,
    value: String,
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Question {
    /// An application by identifier
    App,
    /// All applications for a MIME type
    Mime,
    /// A plugin by identifier
    Plugin,
    /// All plugins of a namespace
    Plugins,
    /// Nothing: make the index current
    Refresh,
}

/// Questions of which a repeated one is the mean: the clock takes as long as one.
const REPEATED: u32 = 64;

impl Client {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let mut times = Vec::new();
        let start = clock.monotonic();
        let location = catalogue::location(None)?;

        let index = match self.what {
            Question::Refresh => catalogue::make_current(&location, Look::Directories)?.0,
            _ => {
                let index = location
                    .open()
                    .map_err(|error| Error::new(Kind::Config, "open the index").because(error))?;
                let changed = match self.what {
                    Question::App => index.stale(&[Part::Applications]),
                    Question::Mime => index.stale(&Part::OF_OPENERS),
                    Question::Plugin => index.stale_plugin(&self.value),
                    Question::Refresh => None,
                    Question::Plugins => index.stale_namespace(&self.value),
                };
                if let Some(path) = changed {
                    return Err(Error::new(Kind::Config, "ask the index")
                        .because(io::Error::other(format!("{} changed", path.display()))));
                }
                index
            }
        };
        let openers = Openers::new(&index, &location.sources().places.path);
        let found = self.ask(&index, &openers);
        times.push(clock.monotonic().saturating_sub(start).as_nanos());
        for _ in 1..self.rounds {
            let start = clock.monotonic();
            for _ in 0..REPEATED {
                std::hint::black_box(self.ask(&index, &openers));
            }
            let took = clock.monotonic().saturating_sub(start);
            times.push(took.as_nanos() / u128::from(REPEATED));
        }
        let mut out = io::stdout().lock();
        for time in times {
            writeln!(out, "{time} {found}")?;
        }
        Ok(Verdict::Yes)
    }

    /// Returns how many were found.
    fn ask<'a>(&self, index: &'a Index, openers: &Openers<'a>) -> usize {
        let value = std::hint::black_box(&*self.value);
        match self.what {
            Question::App => {
                index.apps_by(AppKey::Id, value).filter_map(|app| app.text("Name")).count()
            }
            Question::Mime => {
                openers.all_for(value).iter().filter_map(|app| app.text("Name")).count()
            }
            Question::Plugin => {
                index.plugin(value).into_iter().filter_map(|plugin| plugin.path()).count()
            }
            Question::Plugins => index
                .plugins_by(PluginKey::Namespace, value)
                .filter_map(|plugin| plugin.text("Id"))
                .count(),
            Question::Refresh => 1,
        }
    }
}
