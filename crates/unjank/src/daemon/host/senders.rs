//! Who the callers are, asked of the bus and of the kernel once for each.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use bus::server::flatpak::Process;
use session::host::Caller;
use session::host::identity::Host;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::hub::Event;

/// The longest that the files of a caller may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Callers whose files take long, at a time; more are refused.
const MOST_SLOW: usize = 16;

/// What is known of a caller, or why it is not served.
pub(super) type Identity = Result<Caller, String>;

/// The callers that are on the bus.
#[derive(Debug)]
pub(super) struct Senders {
    host: Host,
    events: UnboundedSender<Event>,
    known: HashMap<String, Option<Identity>>,
    /// Threads that look at files of callers.
    slow: usize,
}

impl Senders {
    pub(super) fn new(host: Host, events: UnboundedSender<Event>) -> Senders {
        Senders { host, events, known: HashMap::new(), slow: 0 }
    }

    /// Says whether the bus has to be asked about `sender`.
    pub(super) fn is_new(&mut self, sender: &str) -> bool {
        !self.known.contains_key(sender) && self.known.insert(sender.to_owned(), None).is_none()
    }

    /// Returns what is known of `sender`; `None` while it is being found out.
    pub(super) fn identity(&self, sender: &str) -> Option<&Identity> {
        self.known.get(sender)?.as_ref()
    }

    /// Takes what the bus says and looks at the process. [`Event::Identified`] follows where that may take long.
    pub(super) fn learn(&mut self, sender: &str, process: Result<Process, String>) {
        match self.look(sender, process) {
            Ok(None) => {}
            Ok(Some(caller)) => self.settle(sender, Ok(caller)),
            Err(why) => self.settle(sender, Err(why)),
        }
    }

    fn look(
        &mut self,
        sender: &str,
        process: Result<Process, String>,
    ) -> Result<Option<Caller>, String> {
        let process = process.map_err(|why| format!("the bus does not know its process: {why}"))?;
        if process.uid != rustix::process::geteuid().as_raw() {
            return Err(format!("it belongs to another user ({})", process.uid));
        }
        let pid = process.pid;
        let opened = || sys::pidfd::open(pid).map_err(|error| format!("it has ended: {error}"));
        let pidfd = process.pidfd.map_or_else(opened, Ok)?;
        if self.host.shares_our_files(pid).unwrap_or(false) {
            // No file of the caller's own is looked at.
            return identify(&self.host, pid, &pidfd).map(Some);
        }
        if self.slow >= MOST_SLOW {
            return Err("too many callers have files that take long to read".to_owned());
        }
        let (host, events, sender) = (self.host.clone(), self.events.clone(), sender.to_owned());
        let (tell, told) = oneshot::channel();
        let work = move || {
            // Nobody listens any more if it took too long.
            let _ = tell.send(identify(&host, pid, &pidfd));
        };
        thread::Builder::new().spawn(work).map_err(|error| error.to_string())?;
        self.slow += 1;
        tokio::spawn(async move {
            let identity = match tokio::time::timeout(PATIENCE, told).await {
                Ok(Ok(identity)) => identity,
                _ => Err("its files cannot be read".to_owned()),
            };
            let _ = events.send(Event::Identified { sender, identity });
        });
        Ok(None)
    }

    /// Takes what was found out by a thread.
    pub(super) fn found(&mut self, sender: &str, identity: Identity) {
        // One that still hangs is counted for as long as it does not matter: a caller is refused by then.
        self.slow -= 1;
        self.settle(sender, identity);
    }

    fn settle(&mut self, sender: &str, identity: Identity) {
        if let Some(known) = self.known.get_mut(sender) {
            *known = Some(identity);
        }
    }

    /// Forgets a caller that has left; says whether it was known.
    pub(super) fn remove(&mut self, sender: &str) -> bool {
        self.known.remove(sender).is_some()
    }
}

fn identify(host: &Host, pid: u32, pidfd: &OwnedFd) -> Identity {
    let caller = host.identify(pid).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    })?;
    // If it has not ended by now, the number was its own all the time.
    match sys::pidfd::has_ended(pidfd) {
        Ok(false) => Ok(caller),
        _ => Err(format!("process {pid} has ended")),
    }
}
