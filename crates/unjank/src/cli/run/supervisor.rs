//! `unjank run -- CMD`: starts the command under a supervisor and a keeper, and ends as the command does.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use jobs::controller::ControllerLimits;
use jobs::held_command::HeldCommand;
use jobs::keeper::HoldPolicy;
use jobs::outcome::JobOutcome;
use jobs::supervisor::{KeeperProcess, SupervisedJob, Supervisor, forwarded_signals};
use jobs::{MAILBOX, SchedulingClass, runtime};
use sys::clock::{Clock, SystemClock};
use sys::mounts::Mounts;
use sys::sched::{ExecScheduling, Orphaned, before_exec};
use sys::signals::{Mask, Signals};
use sys::supervise;

use super::report::Where;
use super::{launches, place};
use crate::cli::screen;

/// What is done for the command.
pub(super) struct JobOptions {
    pub(super) class: SchedulingClass,
    pub(super) limits: ControllerLimits,
    pub(super) pauses: HoldPolicy,
    pub(super) preload: Option<PathBuf>,
    pub(super) report: Where,
}

/// Runs `command` and ends as it does.
pub(super) fn run(how: JobOptions, command: Vec<OsString>) -> ExitCode {
    let clock = SystemClock::start();
    let start = clock.monotonic();
    let mounts = Mounts::read().unwrap_or_else(|_| Mounts::parse(b""));
    #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
    let home = env::var_os("HOME").map(PathBuf::from);
    let disks = place::disks(&mounts, home.as_deref());
    let folder = place::jobs();
    runtime::sweep(&mounts, folder.as_ref());
    let texts: Vec<String> =
        command.iter().map(|word| word.to_string_lossy().into_owned()).collect();

    // Files are looked for from the first one on where the command works.
    let outside = how.preload.is_none().then(|| env::current_dir().ok()).flatten();
    // Orphans of the command stay below us, so that a hold and its end reach them.
    let _ = supervise::adopt_orphans();
    let mailbox = folder.as_ref().map(|folder| folder.mailbox(std::process::id()));
    let job = SupervisedJob {
        command: &texts,
        limits: how.limits,
        pauses: how.pauses,
        outside,
        disks: &disks,
        folder: folder.as_ref(),
        launches: &launches::watch,
    };
    let keeper = match KeeperProcess::start(&job, &clock) {
        Ok(started) => started,
        Err(error) => return failed(&texts[0], &error),
    };
    let mut signals = match Signals::collect(&forwarded_signals()) {
        Ok(signals) => signals,
        Err(error) => return failed(&texts[0], &error),
    };
    let waiting = prepare(&how, &command, mailbox, signals.before()).and_then(HeldCommand::new);
    let waiting = match waiting {
        Ok(waiting) => waiting,
        Err(error) => return failed(&texts[0], &error),
    };
    let found = place::find(&mounts, waiting.process(), keeper.process(), &texts[0]);
    let (cgroup, _claim) = found.map_or((None, None), |(cgroup, claim)| (Some(cgroup), claim));
    let mut supervisor = match Supervisor::start(waiting, keeper, cgroup, folder) {
        Ok(supervisor) => supervisor,
        Err(error) => return failed(&texts[0], &error),
    };
    let opened = how.report.open();
    // A pipe that the command closes is closed, and a terminal that it leaves is free.
    let _ = supervise::let_go_of_standard_streams();
    let end = supervisor.wait(&mut signals);
    let watched = supervisor.summary();
    signals.before().set();
    let outcome = JobOutcome {
        command: texts,
        class: how.class,
        end,
        took: clock.monotonic().saturating_sub(start),
        used: sys::usage::of_ended_children(),
        preload: how.preload.is_some(),
        cgroup: supervisor.has_cgroup(),
        pauses: how.pauses,
        disks,
        watched,
    };
    opened.write(&outcome);
    if let Some(signal) = end.signal() {
        supervise::die_by(signal);
    }
    let status = end.exit_status().unwrap_or_else(|| 128 + end.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
}

/// Says why the command could not be run, and returns what a shell would.
fn failed(command: &str, error: &io::Error) -> ExitCode {
    let told =
        crate::error::Error::new(crate::error::FailureCategory::User, format!("run {command:?}"));
    // Its own exit code is of our table; a shell's stands for a command that is not there.
    let _ = write!(
        screen::stderr(),
        "{}",
        told.because(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(2)))
    );
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Prepares the command in its class and with its preload.
fn prepare(
    how: &JobOptions,
    words: &[OsString],
    mailbox: Option<PathBuf>,
    mask: Mask,
) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments);
    // That of a job around this one is not for it.
    command.env_remove(MAILBOX);
    if let Some(preload) = &how.preload {
        #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
        let before = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
        let mut libraries = preload.clone().into_os_string();
        if let Some(before) = before {
            libraries.push(":");
            libraries.push(before);
        }
        command.env("LD_PRELOAD", libraries);
        if let Some(mailbox) = mailbox {
            command.env(MAILBOX, mailbox);
        }
    }
    let manners = ExecScheduling {
        io: how.class.io(),
        cpu: how.class.cpu(),
        // It is put there from outside.
        cgroup: None,
        mask: Some(mask),
        orphaned: Orphaned::Killed,
    };
    before_exec(&mut command, manners);
    Ok(command)
}
