//! Who calls: asked of the bus and of the kernel once for each; nobody is believed what he says of himself.

use std::collections::HashMap;
use std::io::Read;
use std::thread;
use std::time::Duration;

use session::host::identity::{Application, Host};
use session::recents::Program;
use tokio::sync::oneshot;

/// How long the files of a caller may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Callers that are remembered; each `gdbus call` is a new one.
const MOST: usize = 256;
/// Callers whose files are being looked at; more are refused.
const MOST_AT_ONCE: usize = 16;
/// The longest environment that is searched.
const MOST_BYTES: u64 = 4 << 20;
/// What programs of `unjank recent private -- CMD` inherit.
const MARK: &[u8] = b"UNJANK_PRIVATE_PATHS=";

/// What is known of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// What it is called.
    pub(super) name: String,
    /// Whether the name is one that it cannot choose, and it may only tell of its own documents.
    pub(super) confined: Confined,
    /// Whether its documents may be remembered.
    pub(super) program: Program,
}

/// Whether a caller is in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Confined {
    /// It is: it learns nothing of others' documents.
    Yes,
    /// It may do what the user may.
    No,
}

/// What is known, or why nothing is.
pub(super) type Identity = Result<Caller, String>;

/// The callers.
#[derive(Debug)]
pub(super) struct Callers {
    host: Host,
    known: HashMap<String, Option<Identity>>,
    looking: usize,
}

impl Callers {
    pub(super) fn new(host: Host) -> Callers {
        Callers { host, known: HashMap::new(), looking: 0 }
    }

    /// Says whether the bus has to be asked about `sender`.
    pub(super) fn is_new(&mut self, sender: &str) -> bool {
        if self.known.contains_key(sender) {
            return false;
        }
        if self.known.len() >= MOST {
            // Those that are being looked at stay.
            self.known.retain(|_, identity| identity.is_none());
        }
        self.known.insert(sender.to_owned(), None).is_none()
    }

    /// Returns what is known of `sender`; `None` while it is being found out.
    pub(super) fn identity(&self, sender: &str) -> Option<&Identity> {
        self.known.get(sender)?.as_ref()
    }

    /// Looks at the process that the bus names. The future says what was found, after a while at most.
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
            // Nobody listens any more if it took too long.
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

    /// Remembers what was found after a look.
    pub(super) fn found(&mut self, sender: &str, identity: Identity) {
        self.looking = self.looking.saturating_sub(1);
        self.settle(sender, identity);
    }

    /// Remembers what is known of a caller.
    pub(super) fn settle(&mut self, sender: &str, identity: Identity) {
        if let Some(known) = self.known.get_mut(sender) {
            *known = Some(identity);
        }
    }
}

fn identify(host: &Host, pid: u32) -> Identity {
    let ended = |error| format!("process {pid} has ended: {error}");
    let pidfd = sys::pidfd::open(pid).map_err(ended)?;
    let caller = host.identify(pid).map_err(|error| super::work::text(&error))?;
    let (name, confined) = match &caller.application {
        Application::Host => {
            let name = caller.exe.as_deref().and_then(|exe| exe.file_name());
            let name = name.map_or_else(|| "unknown".to_owned(), |n| n.to_string_lossy().into());
            (name, Confined::No)
        }
        sandboxed => (sandboxed.policy_name(), Confined::Yes),
    };
    let program = match is_marked(host, pid) {
        Ok(false) => Program::Ordinary,
        // Rather too little is remembered than too much.
        Ok(true) | Err(_) => Program::Private,
    };
    // If it has not ended by now, the number was its own all the time.
    match sys::pidfd::has_ended(&pidfd) {
        Ok(false) => Ok(Caller { name, confined, program }),
        _ => Err(format!("process {pid} has ended")),
    }
}

/// Tells whether a process was started to be private.
fn is_marked(host: &Host, pid: u32) -> std::io::Result<bool> {
    let file = std::fs::File::open(host.proc.join(pid.to_string()).join("environ"))?;
    let mut environment = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut environment)?;
    Ok(environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(MARK)))
}
