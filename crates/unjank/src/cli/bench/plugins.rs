//! `unjank bench plugins`: the index of plugins and applications, beside what a program would ask instead.

use std::path::PathBuf;

use bench::plugins::{APP, BenchTree, Cold, FIGURES, Lab, PluginPeer};
use bench::run::{BenchSetting, versioned};
use clap::Args;
use sys::clock::SystemClock;

use super::super::{catalogue, interrupt};
use super::{BenchOptions, beside_us, place, this_program};
use crate::error::{Error, FailureCategory, Verdict};

/// Measure the index on the plugins and applications of this machine, with temporary caches.
///
/// The peers are KService and KPluginMetaData (a small program is compiled for them), kbuildsycoca5 and gio.
/// As root, it also measures with empty kernel caches; --warm leaves them unchanged.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bench plugins --peer 'xdg-mime=xdg-mime query default {type}'"
)]
pub(super) struct Plugins {
    /// Create indexes and caches below this directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A program to compare with: its name, and its command with {type} and {id} for the query. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = PluginPeer::parse)]
    peer: Vec<PluginPeer>,
    /// The application to query, without .desktop; by default a temporary one.
    #[arg(long, value_name = "ID", default_value = APP, hide_default_value = true)]
    app: String,
    /// The MIME type to query.
    #[arg(long = "type", value_name = "TYPE", default_value = "text/html")]
    mime_type: String,
    /// Do not drop the kernel's caches.
    #[arg(long)]
    warm: bool,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

impl Plugins {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let mounts = super::mounts()?;
        let place = place(&self.dir, &mounts)?;
        let (program, index) = (this_program()?, beside_us("unjank-index")?);
        let world = BenchTree::make(&place.dir, catalogue::program_path()).map_err(|error| {
            Error::new(FailureCategory::User, format!("measure in {}", place.dir.display()))
                .because(error)
        })?;
        let is_root = rustix::process::geteuid().is_root();
        let drops = is_root && !self.warm && !place.mount.is_memory();
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let peers =
            self.peer.iter().map(|peer| format!("{} ({})", peer.name, peer.command.join(" ")));
        let setting = BenchSetting {
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
        self.how.measure(FIGURES, &self.only, |figure| (figure.run)(&lab), &lab, setting)
    }
}
