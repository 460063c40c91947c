//! One run of the command, timed from its start to its end.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sys::clock::Clock;
use sys::seccomp::deciding::{FilterAction, SeccompDecider, asking_before_exec, before_exec};

use super::AbError;
use super::answer::{InterceptedCall, RunVariant, serve};
use super::change::CallDifference;
use super::copy::CommandEnvironment;
use sys::process::MeasuredProcess;

/// How often a wait checks for an interrupt.
const LOOK: Duration = Duration::from_millis(100);
/// How long a program may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(3);

/// The destination of the command's output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Output {
    /// The user sees it.
    Shown,
    /// It is dropped.
    Dropped,
}

/// How a run went.
#[derive(Clone, Debug)]
pub(super) struct RunResult {
    /// From just before the process was made until its end.
    pub(super) wall: Duration,
    /// What it asked for, where it was asked.
    pub(super) asked: InterceptedCall,
    /// How the call ended.
    pub(super) status: ExitStatus,
}

/// How the calls of a run are decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CallPolicy {
    /// By the kernel alone: nothing is counted, nothing is slowed down.
    Filter,
    /// By us: each matching call is looked at and counted.
    Ask,
}

/// Runs the command once.
///
/// # Errors
///
/// It could not be started, or the user wants to end; nothing of it runs then.
pub(super) fn run(
    way: &CommandEnvironment,
    change: &CallDifference,
    (arm, how): (RunVariant, CallPolicy),
    output: Output,
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> Result<RunResult, AbError> {
    let Some((program, arguments)) = way.command.split_first() else {
        return Err(AbError::NoCommand);
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&way.directory).stdin(Stdio::null());
    command.env_clear().envs(way.environment.iter().map(|(name, value)| (name, value)));
    if arm == RunVariant::With {
        command.envs(change.environment().iter().map(|(name, value)| (name, value)));
    }
    if output == Output::Dropped {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let asked = decide(&mut command, change, arm, how).map_err(AbError::Filter)?;
    let start = clock.monotonic();
    let child = command.spawn();
    // It holds the other end of the way on which the listener comes.
    drop(command);
    let mut child = child.map_err(|source| AbError::Start { program: program.clone(), source })?;
    let status = wait(&mut child, stop);
    let wall = clock.monotonic().saturating_sub(start);
    let status = status.map_err(AbError::Wait)?.ok_or(AbError::Interrupted)?;
    let asked = asked.map(|tally| tally.read()).unwrap_or_default();
    Ok(RunResult { wall, asked, status })
}

/// Puts the filter of an arm into a command; both arms get one, so that its price cancels out.
fn decide(
    command: &mut Command,
    change: &CallDifference,
    arm: RunVariant,
    how: CallPolicy,
) -> io::Result<Option<super::answer::CallTally>> {
    if change.kinds().next().is_none() {
        return Ok(None);
    }
    let rules = |decision| change.kinds().map(|kind| (kind.number, decision)).collect::<Vec<_>>();
    match how {
        CallPolicy::Filter => {
            let rules = match arm {
                RunVariant::With => rules(FilterAction::Succeed),
                RunVariant::Without => Vec::new(),
            };
            before_exec(command, SeccompDecider::new(&rules)?);
            Ok(None)
        }
        CallPolicy::Ask => {
            let filter = SeccompDecider::new(&rules(FilterAction::Ask))?;
            let handover = asking_before_exec(command, &filter)?;
            serve(handover, change.clone(), arm).map(Some)
        }
    }
}

/// Waits for the end of the child; none if the user wanted to end before, and the child has been ended then.
fn wait(child: &mut Child, stop: &AtomicBool) -> io::Result<Option<ExitStatus>> {
    let process = MeasuredProcess::open(child.id())?;
    while !process.wait(LOOK)? {
        if stop.load(Ordering::Relaxed) {
            // Errors say that it has ended, which is what is wanted.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            if !process.wait(PATIENCE)? {
                let _ = child.kill();
            }
            child.wait()?;
            return Ok(None);
        }
    }
    let status = child.wait()?;
    // Ctrl-C reaches the program as it reaches us; a run that it ended is none.
    Ok(Some(status).filter(|_| !stop.load(Ordering::Relaxed)))
}
