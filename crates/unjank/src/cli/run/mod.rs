//! `unjank run`: a command that nobody feels, as if it ran plainly.

mod attach;
mod launches;
mod place;
mod report;
mod start;
mod supervisor;
mod units;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use session::jobs;
use session::jobs::controller::Limits;
use session::jobs::keeper::Pauses;

use super::preload;

/// Run a command in the background: it yields disk and processor to all others.
///
/// Its reads and writes are in the idle class, also those that the kernel would make for it later, and it is held while others wait for a disk.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank run -- flatpak update -y",
    after_help = "Exits as the command does, by the same signal if one ended it; 127 if it is not found, 126 if it cannot be run."
)]
pub(crate) struct Run {
    /// How far it steps back.
    #[arg(long, value_enum, default_value = "idle", value_name = "CLASS")]
    class: Class,
    /// Hold it less and less, and from this time on never: 30m, 2h.
    #[arg(long, value_name = "TIME", value_parser = super::moment::duration)]
    deadline: Option<Duration>,
    /// Leave the command's libraries alone; its files are found from outside.
    #[arg(long)]
    no_preload: bool,
    /// Never hold it.
    #[arg(long)]
    no_pause: bool,
    /// Write what became of it to FILE, as JSON if its name ends in .json; - is stderr.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Treat a process, with all that it has started, or a unit that runs already, until it ends or Ctrl-C.
    #[arg(long, value_name = "PID|UNIT", conflicts_with_all = ["command", "report", "no_preload"])]
    attach: Option<String>,
    /// Have systemd start the units of this machine that are known to work in the background in this way.
    #[arg(long, conflicts_with_all = ["command", "attach", "report"])]
    adopt_units: bool,
    /// Leave those units as they were.
    #[arg(long, requires = "adopt_units")]
    undo: bool,
    /// The command.
    #[arg(trailing_var_arg = true, required_unless_present_any = ["attach", "adopt_units"], value_name = "CMD")]
    command: Vec<OsString>,
}

/// Returns the folder in which jobs can be reached.
pub(super) fn jobs_folder() -> Option<PathBuf> {
    place::jobs()
}

/// Takes away what jobs have left whose supervisor and keeper were killed at once.
pub(super) fn sweep() {
    place::sweep_everywhere();
}

/// How far a command steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    /// Only what nobody else wants.
    Idle,
    /// After all others.
    Low,
}

impl Run {
    pub(crate) fn run(self) -> ExitCode {
        if self.adopt_units {
            let way = if self.undo { units::Way::Undo } else { units::Way::Adopt };
            return units::run(way).map_or_else(|error| error.report(), ExitCode::from);
        }
        let class = match self.class {
            Class::Idle => jobs::Class::Idle,
            Class::Low => jobs::Class::Low,
        };
        let limits = Limits { deadline: self.deadline, ..Limits::default() };
        let pauses = if self.no_pause { Pauses::WhenAsked } else { Pauses::WhileOthersWait };
        let how = supervisor::How {
            class,
            limits,
            pauses,
            // Without the library files are found from outside.
            preload: (!self.no_preload).then(|| preload::library(jobs::PRELOAD).ok()).flatten(),
            report: report::Where::new(self.report),
        };
        match self.attach {
            None => supervisor::run(how, self.command),
            Some(target) => {
                attach::run(&how, &target).map_or_else(|error| error.report(), ExitCode::from)
            }
        }
    }
}
