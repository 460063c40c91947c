//! Who the senders are, asked of the bus once for each.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use session::settings::history::Process;

/// Senders that are remembered. Each `gsettings set` is a new one.
const MOST: usize = 256;

/// What is known of a sender: its process id, or why it is not known.
pub(super) type Identity = Result<u32, String>;

/// The senders of the last calls.
#[derive(Debug, Default)]
pub(super) struct Senders {
    known: HashMap<String, Option<Identity>>,
    oldest_first: VecDeque<String>,
}

impl Senders {
    /// Says whether the bus has to be asked about `sender`: it has not called before, or long ago.
    pub(super) fn is_new(&mut self, sender: &str) -> bool {
        if sender.is_empty() || self.known.contains_key(sender) {
            return false;
        }
        if self.oldest_first.len() == MOST
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(sender.to_owned(), None);
        self.oldest_first.push_back(sender.to_owned());
        true
    }

    /// Learns what the bus answered.
    pub(super) fn learn(&mut self, sender: &str, identity: Identity) {
        if let Some(known) = self.known.get_mut(sender) {
            *known = Some(identity);
        }
    }

    /// Returns what is known of `sender`; `None` while the bus has not answered.
    pub(super) fn identity(&self, sender: &str) -> Option<&Identity> {
        self.known.get(sender)?.as_ref()
    }

    /// Says whether the answer about `sender` will never come.
    pub(super) fn is_forgotten(&self, sender: &str) -> bool {
        !self.known.contains_key(sender)
    }
}

/// Describes a process that is running now.
pub(super) fn process(pid: u32) -> Process {
    let exe: Option<PathBuf> = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    Process { pid, exe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_asked_for_once() {
        let mut senders = Senders::default();
        assert!(senders.is_new(":1.5"));
        assert!(!senders.is_new(":1.5"));
        assert_eq!(senders.identity(":1.5"), None);
        senders.learn(":1.5", Ok(7));
        assert_eq!(senders.identity(":1.5"), Some(&Ok(7)));
        assert!(!senders.is_new(""), "a peer without a bus has no name to ask for");
    }

    #[test]
    fn many_senders_take_bounded_memory() {
        let mut senders = Senders::default();
        for number in 0..10_000 {
            assert!(senders.is_new(&format!(":1.{number}")));
        }
        assert_eq!(senders.known.len(), MOST);
        assert!(senders.is_forgotten(":1.0"));
        assert!(!senders.is_forgotten(":1.9999"));
    }

    #[test]
    fn our_own_executable_is_found() {
        let process = process(std::process::id());
        assert_eq!(process.exe, std::env::current_exe().ok());
    }
}
