//! What a thread of its own does for a command: everything that may take as long as a file system of the caller's.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::process::Rlimit;
use session::host::admission;
use session::host::command::{Request, StartError};
use session::host::environment::Environment;
use session::host::identity::Host;
use session::host::keeper;
use session::host::policy::Policy;
use sys::launch::Child;
use sys::pidfd::Scope;

use super::callers::Known;
use super::policy;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A command on its way.
#[derive(Debug)]
pub(super) enum Started {
    /// It runs.
    Runs(Child),
    /// Its keeper does, and tells at this socket whether the command does.
    Kept(Child, OwnedFd),
}

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) request: Request,
    pub(super) known: Arc<Known>,
    /// How callers are told apart, and the process of the bus.
    pub(super) host: Host,
    pub(super) bus: Option<u32>,
    pub(super) policy: Arc<policy::Known>,
    pub(super) environment: Arc<Environment>,
    pub(super) keeper: keeper::Program,
    pub(super) open_files: Option<Rlimit>,
}

impl Start {
    /// Decides whether the command may run, and starts it.
    pub(super) fn run(mut self) -> Result<Started, StartError> {
        let caller = &self.known.caller;
        let application = &caller.application;
        let policy = self.policy.as_ref().as_ref().map_err(String::as_str);
        if policy.map_or(true, Policy::limits_anybody) {
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
    /// Ends what was started for somebody who does not wait any more, and returns what has to be reaped.
    pub(super) fn abandon(self) -> Child {
        let (child, signal, scope) = match self {
            Started::Runs(child) => (child, SIGKILL, Scope::Group),
            // It ends everything that it keeps.
            Started::Kept(keeper, _) => (keeper, SIGTERM, Scope::Process),
        };
        // One that has ended needs no signal.
        let _ = sys::pidfd::signal(child.pidfd.as_fd(), child.pid, signal, scope);
        child
    }
}
