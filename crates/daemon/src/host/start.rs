//! The part of a start that a thread does, because the caller's file systems may block it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use host::admission;
use host::command::{CommandRequest, StartError};
use host::environment::SessionEnvironment;
use host::identity::ProcessDirectory;
use host::keeper;
use host::policy::HostPolicy;
use rustix::process::Rlimit;
use sys::launch::Child;
use sys::pidfd::SignalScope;

use super::callers::KnownCaller;
use super::policy;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A command that was started.
#[derive(Debug)]
pub(super) enum Started {
    /// It runs.
    Runs(Child),
    /// Its keeper runs, and reports at this socket whether the command does.
    Kept(Child, OwnedFd),
}

/// The inputs of a start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) request: CommandRequest,
    pub(super) known: Arc<KnownCaller>,
    /// The directories by which callers are identified, and the process of the bus.
    pub(super) host: ProcessDirectory,
    pub(super) bus: Option<u32>,
    pub(super) policy: Arc<policy::LoadedPolicy>,
    pub(super) environment: Arc<SessionEnvironment>,
    pub(super) keeper: keeper::KeeperProgram,
    pub(super) open_files: Option<Rlimit>,
}

impl Start {
    /// Decides whether the command may run, and starts it.
    pub(super) fn run(mut self) -> Result<Started, StartError> {
        let caller = &self.known.caller;
        let application = &caller.application;
        let policy = self.policy.as_ref().as_ref().map_err(String::as_str);
        if policy.map_or(true, HostPolicy::limits_anybody) {
            let proof = self.known.prove(&self.host, self.bus);
            proof.map_err(|why| admission::refused(&self.request, application, why))?;
        }
        let has_terminal = self.request.terminal().is_some();
        if has_terminal {
            self.request.add_terminal_type(self.known.client().0);
        }
        let executable = admission::admit(policy, application, &self.request, &self.environment)?;
        let terms = self.request.terms(self.known.terminal_owner());
        let command = self.request.name();
        let prepared = self.request.prepare(&self.environment, executable, self.open_files)?;
        let started = if has_terminal || terms.are_any() {
            let kept = keeper::start(&self.keeper, &prepared, &terms);
            kept.map(|(child, socket)| Started::Kept(child, socket))
        } else {
            prepared.start().map(Started::Runs)
        };
        started.map_err(|source| StartError::Program { command, source })
    }
}

impl Started {
    /// Ends a command whose caller does not wait any more, and returns the process to reap.
    pub(super) fn abandon(self) -> Child {
        let (child, signal, scope) = match self {
            Started::Runs(child) => (child, SIGKILL, SignalScope::Group),
            // The keeper ends all its processes.
            Started::Kept(keeper, _) => (keeper, SIGTERM, SignalScope::Process),
        };
        // It fails if the process has ended.
        let _ = sys::pidfd::signal(child.pidfd.as_fd(), child.pid, signal, scope);
        child
    }
}
