//! Identifies callers: the bus and the kernel are asked once for each connection; what a caller says of itself is not used.

use report::error::chain;
use std::thread;
use std::time::Duration;

use host::identity::{CallerKind, ProcessDirectory};
use recents::RememberingProgram;
use tokio::sync::oneshot;

use crate::senders::Senders;

/// The longest time for reading a caller's files in /proc and in its sandbox.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most callers that are identified at the same time; further ones are refused.
const MOST_AT_ONCE: usize = 16;
/// The most bytes of a caller's environment that are read.
const MOST_BYTES: u64 = 4 << 20;
/// The variable that programs of `unjank recent private -- CMD` inherit.
const MARK: &[u8] = b"UNJANK_PRIVATE_PATHS=";

/// An identified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// The name of the application, or of the program outside of a sandbox.
    pub(super) name: String,
    /// Whether it runs in a sandbox: then it cannot choose its name, and may only add documents.
    pub(super) confined: Confined,
    /// Whether its documents may be recorded.
    pub(super) program: RememberingProgram,
}

/// Whether a caller is in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Confined {
    /// In a sandbox: it learns nothing about other programs' documents.
    Yes,
    /// Not in a sandbox: it may do what the user may do.
    No,
}

/// The caller, or why it could not be identified.
pub(super) type Identity = Result<Caller, String>;

/// The callers of all connections.
#[derive(Debug)]
pub(super) struct Callers {
    host: ProcessDirectory,
    known: Senders<Caller>,
    looking: usize,
}

impl Callers {
    pub(super) fn new(host: ProcessDirectory) -> Callers {
        Callers { host, known: Senders::default(), looking: 0 }
    }

    /// Returns whether `sender` is a new connection, about which the bus has to be asked.
    pub(super) fn is_new(&mut self, sender: &str) -> bool {
        self.known.is_new(sender)
    }

    /// Returns the identity of `sender`; `None` while it is being identified.
    pub(super) fn identity(&self, sender: &str) -> Option<Identity> {
        if self.known.is_forgotten(sender) {
            return Some(Err("too many others call".to_owned()));
        }
        self.known.identity(sender).cloned()
    }

    /// Starts to identify the process that the bus names. The future returns the result, after [`PATIENCE`] at the latest.
    pub(super) fn look(
        &mut self,
        pid: Result<u32, String>,
    ) -> Result<impl Future<Output = Identity> + use<>, String> {
        let pid = pid.map_err(|why| format!("the bus does not know its process: {why}"))?;
        if self.looking >= MOST_AT_ONCE {
            return Err("too many callers have files that take long to read".to_owned());
        }
        let (host, (tell, told)) = (self.host.clone(), oneshot::channel());
        let work = move || {
            // If it took too long, the receiver is gone.
            let _ = tell.send(identify(&host, pid));
        };
        thread::Builder::new().spawn(work).map_err(|error| error.to_string())?;
        self.looking += 1;
        Ok(async move {
            match tokio::time::timeout(PATIENCE, told).await {
                Ok(Ok(identity)) => identity,
                _ => Err("its files cannot be read".to_owned()),
            }
        })
    }

    /// Stores the result of an identification that was started by `look`.
    pub(super) fn found(&mut self, sender: &str, identity: Identity) {
        self.looking = self.looking.saturating_sub(1);
        self.settle(sender, identity);
    }

    /// Forgets `sender`, which could not be identified: files that took too long may be read the next time.
    pub(super) fn forget(&mut self, sender: &str) {
        self.known.forget(sender);
    }

    /// Stores an identity.
    pub(super) fn settle(&mut self, sender: &str, identity: Identity) {
        self.known.learn(sender, identity);
    }
}

fn identify(host: &ProcessDirectory, pid: u32) -> Identity {
    let ended = |error| format!("process {pid} has ended: {error}");
    let pidfd = sys::pidfd::open(pid).map_err(ended)?;
    let caller = host.identify(pid).map_err(|error| chain(&error))?;
    let (name, confined) = match &caller.application {
        CallerKind::Host => {
            let name = caller.exe.as_deref().and_then(|exe| exe.file_name());
            let name = name.map_or_else(|| "unknown".to_owned(), |n| n.to_string_lossy().into());
            (name, Confined::No)
        }
        sandboxed => (sandboxed.policy_name(), Confined::Yes),
    };
    let program = match is_marked(host, pid) {
        Ok(false) => RememberingProgram::Ordinary,
        // When in doubt, the program counts as private, so that no document is recorded against the user's will.
        Ok(true) | Err(_) => RememberingProgram::Private,
    };
    // The process still runs, so the process ID was not reused meanwhile.
    match sys::pidfd::has_ended(&pidfd) {
        Ok(false) => Ok(Caller { name, confined, program }),
        _ => Err(format!("process {pid} has ended")),
    }
}

/// Returns whether a process was started by `unjank recent private`.
fn is_marked(host: &ProcessDirectory, pid: u32) -> std::io::Result<bool> {
    let path = host.proc.join(pid.to_string()).join("environ");
    let environment = sys::process_file::read_at(&path, MOST_BYTES)?;
    Ok(environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(MARK)))
}
