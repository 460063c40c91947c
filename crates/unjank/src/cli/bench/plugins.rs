//! `unjank bench plugins`: the index of plugins and applications, beside what a program would ask instead.

use std::path::PathBuf;

use clap::Args;
use probe::bench::plugins::{self, APP, Cold, FIGURES, Lab, Peer, World};
use probe::bench::run::{Setting, versioned};
use session::clock::SystemClock;
use sys::mounts::Mounts;

use super::super::{catalogue, interrupt};
use super::{How, beside_us, place, provenance, this_program};
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
        let (program, index) = (this_program()?, beside_us("unjank-index")?);
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
            ours: index.display().to_string(),
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
            index,
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
