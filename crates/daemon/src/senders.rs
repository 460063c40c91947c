//! The processes of senders; the bus is asked once for each.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use settings::history::HistoryProcess;

/// The most senders that are kept. Each `gsettings set` is a new one.
const MOST: usize = 256;

/// The senders of the last calls, each with its description, or why there is none.
#[derive(Debug)]
pub(super) struct Senders<T> {
    known: HashMap<String, Option<Result<T, String>>>,
    oldest_first: VecDeque<String>,
}

impl<T> Default for Senders<T> {
    fn default() -> Senders<T> {
        Senders { known: HashMap::new(), oldest_first: VecDeque::new() }
    }
}

impl<T> Senders<T> {
    /// Returns whether the bus has to be asked about `sender`: it has not called before, or long ago.
    pub(super) fn is_new(&mut self, sender: &str) -> bool {
        if sender.is_empty() || self.known.contains_key(sender) {
            return false;
        }
        if self.oldest_first.len() == MOST {
            // Senders about which the bus has not answered yet are kept as long as there are others to drop.
            let is_known = |sender: &String| self.known.get(sender).is_some_and(Option::is_some);
            let at = self.oldest_first.iter().position(is_known).unwrap_or(0);
            if let Some(forgotten) = self.oldest_first.remove(at) {
                self.known.remove(&forgotten);
            }
        }
        self.known.insert(sender.to_owned(), None);
        self.oldest_first.push_back(sender.to_owned());
        true
    }

    /// Stores the answer of the bus.
    pub(super) fn learn(&mut self, sender: &str, identity: Result<T, String>) {
        if let Some(known) = self.known.get_mut(sender) {
            *known = Some(identity);
        }
    }

    /// Forgets `sender`: the bus is asked again when it calls again.
    pub(super) fn forget(&mut self, sender: &str) {
        if self.known.remove(sender).is_some() {
            self.oldest_first.retain(|known| known != sender);
        }
    }

    /// Returns the description of `sender`; `None` while the bus has not answered.
    pub(super) fn identity(&self, sender: &str) -> Option<&Result<T, String>> {
        self.known.get(sender)?.as_ref()
    }

    /// Returns whether the answer about `sender` will never come.
    pub(super) fn is_forgotten(&self, sender: &str) -> bool {
        !self.known.contains_key(sender)
    }
}

/// Describes a process that is running now.
pub(super) fn process(pid: u32) -> HistoryProcess {
    let exe: Option<PathBuf> = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    HistoryProcess { pid, exe }
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
    fn a_sender_without_an_answer_is_asked_for_again() {
        let mut senders = Senders::<u32>::default();
        for number in 0..2 * MOST {
            assert!(senders.is_new(":1.5"), "{number}");
            senders.learn(":1.5", Err("its files cannot be read".to_owned()));
            assert!(senders.identity(":1.5").is_some_and(Result::is_err));
            senders.forget(":1.5");
        }
        assert!(senders.is_forgotten(":1.5") && senders.oldest_first.is_empty());
        assert!(senders.is_new(":1.5"));
        senders.learn(":1.5", Ok(7));
        assert_eq!(senders.identity(":1.5"), Some(&Ok(7)));
    }

    #[test]
    fn many_senders_take_bounded_memory() {
        let mut senders = Senders::<u32>::default();
        for number in 0..10_000 {
            assert!(senders.is_new(&format!(":1.{number}")));
        }
        assert_eq!(senders.known.len(), MOST);
        assert!(senders.is_forgotten(":1.0"));
        assert!(!senders.is_forgotten(":1.9999"));
        // The oldest answered ones are dropped first.
        senders.learn(":1.9990", Ok(7));
        assert!(senders.is_new(":1.10000"));
        assert!(senders.is_forgotten(":1.9990") && !senders.is_forgotten(":1.9744"));
    }

    #[test]
    fn our_own_executable_is_found() {
        let process = process(std::process::id());
        assert_eq!(process.exe, std::env::current_exe().ok());
    }
}
