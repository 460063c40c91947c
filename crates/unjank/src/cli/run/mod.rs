//! `unjank run`: a command that nobody feels, as if it ran plainly.

mod attach;
mod launches;
mod place;
mod report;
mod supervisor;
mod units;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jobs::controller::ControllerLimits;
use jobs::keeper::HoldPolicy;

use super::preload;

/// Run a command in the background, yielding disk and processor to all other programs.
///
/// Its reads and writes are in the idle class, including the later write-back, and it is held while other programs wait for a disk.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank run -- flatpak update -y",
    after_help = "Exits as the command does, by the same signal if one ended it; 127 if it is not found, 126 if it cannot be run."
)]
pub(crate) struct Run {
    /// The scheduling class.
    #[arg(long, value_enum, default_value = "idle", value_name = "CLASS")]
    class: Class,
    /// Hold it less and less, and never after this time: 30m, 2h.
    #[arg(long, value_name = "TIME", value_parser = ::report::duration::parse)]
    deadline: Option<Duration>,
    /// Do not preload a library; find written files from outside.
    #[arg(long)]
    no_preload: bool,
    /// Never hold the command.
    #[arg(long)]
    no_pause: bool,
    /// Write a report to FILE, as JSON if its name ends in .json; - is stderr.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Apply to a running process and its descendants, or to a unit, until it ends or Ctrl-C.
    #[arg(long, value_name = "PID|UNIT", conflicts_with_all = ["command", "report", "no_preload"])]
    attach: Option<String>,
    /// Configure systemd to run known background units of this machine in this way.
    #[arg(long, conflicts_with_all = ["command", "attach", "report"])]
    adopt_units: bool,
    /// Restore the configuration of those units.
    #[arg(long, requires = "adopt_units")]
    undo: bool,
    /// The command.
    #[arg(trailing_var_arg = true, required_unless_present_any = ["attach", "adopt_units"], value_name = "CMD")]
    command: Vec<OsString>,
}

/// Returns the folder in which jobs can be reached.
pub(super) fn jobs_folder() -> Option<PathBuf> {
    place::jobs().map(|folder| folder.path().to_owned())
}

/// Takes away what jobs have left whose supervisor and keeper were killed at once.
pub(super) fn sweep() {
    jobs::runtime::sweep_everywhere(place::jobs().as_ref());
}

/// How far a command steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    /// Idle classes of disk and processor.
    Idle,
    /// The lowest normal priority.
    Low,
}

impl Run {
    pub(crate) fn run(self) -> ExitCode {
        if self.adopt_units {
            let way =
                if self.undo { units::AdoptionAction::Undo } else { units::AdoptionAction::Adopt };
            return units::run(way).map_or_else(|error| error.report(), ExitCode::from);
        }
        let class = match self.class {
            Class::Idle => jobs::SchedulingClass::Idle,
            Class::Low => jobs::SchedulingClass::Low,
        };
        let limits = ControllerLimits { deadline: self.deadline, ..ControllerLimits::default() };
        let pauses =
            if self.no_pause { HoldPolicy::WhenAsked } else { HoldPolicy::WhileOthersWait };
        let how = supervisor::JobOptions {
            class,
            limits,
            pauses,
            preload: self.library(),
            report: report::Where::new(self.report),
        };
        match self.attach {
            None => supervisor::run(how, self.command),
            Some(target) => {
                attach::run(&how, &target).map_or_else(|error| error.report(), ExitCode::from)
            }
        }
    }

    /// Returns the library that the command loads first, if it can: the loader of another kind of program would say that it
    /// cannot load ours. Where the library is missing, that is said, and the command's files are found from outside.
    fn library(&self) -> Option<PathBuf> {
        let program = self.command.first()?;
        if self.no_preload || !place::preloads(program) {
            return None;
        }
        match preload::library(jobs::PRELOAD) {
            Ok(library) => Some(library),
            Err(error) => {
                let without = "without it fewer writes go out in the idle class; `--no-preload` does without it silently";
                error.hint(without).warn();
                None
            }
        }
    }
}
