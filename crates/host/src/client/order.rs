//! A command that a client asks for, and how it is to run.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use report::quoting::quoted;

use super::{EnvironmentInheritance, WithoutUs};
use crate::relay::RelayCondition;

/// How long the bus and the service may take to answer, unless it is said.
const USUAL_ANSWER: Duration = Duration::from_secs(30);

/// A command to run on the host.
#[derive(Debug)]
pub struct HostOrder {
    /// Its name and arguments.
    pub command: Vec<Vec<u8>>,
    /// Where it starts.
    pub directory: Vec<u8>,
    /// Which variables of the service it inherits.
    pub inherits: EnvironmentInheritance,
    /// Variables on top of what it inherits; the last of a name counts.
    pub environment: Vec<(String, String)>,
    /// Variables that it is not to find.
    pub unset: Vec<String>,
    /// Descriptors besides the first three: their numbers, and duplicates of them.
    pub forwarded: Vec<(u32, OwnedFd)>,
    /// What becomes of it without this client.
    pub without_us: WithoutUs,
    /// After which time it is ended.
    pub timeout: Option<Duration>,
    /// How long it may take until the command is known to run.
    pub answer_within: Duration,
    /// Its niceness.
    pub nice: Option<i32>,
    /// Whether it runs in the idle classes of processor and disk.
    pub idle: bool,
    /// When the command gets a terminal of its own; `None` for never.
    pub terminal: Option<RelayCondition>,
}

impl HostOrder {
    /// Makes the order for a command that starts in this directory, without anything else.
    #[must_use]
    pub fn new(command: &[OsString], directory: PathBuf) -> HostOrder {
        HostOrder {
            command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            directory: directory.into_os_string().into_encoded_bytes(),
            inherits: EnvironmentInheritance::All,
            environment: Vec::new(),
            unset: Vec::new(),
            forwarded: Vec::new(),
            without_us: WithoutUs::RunsOn,
            timeout: None,
            answer_within: USUAL_ANSWER,
            nice: None,
            idle: false,
            terminal: Some(RelayCondition::InputAndOutput),
        }
    }

    /// Returns the command's name, for a person.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.command.first().map_or("", |name| str::from_utf8(name).unwrap_or("it"));
        quoted(name)
    }

    /// Passes on a descriptor of this process under the same number. The first three are passed on in any case, and the last one of a
    /// number counts.
    ///
    /// # Errors
    ///
    /// As `dup(2)`; a negative number. Nothing was changed.
    pub fn forward(&mut self, number: i32) -> io::Result<()> {
        let target = u32::try_from(number)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it is negative"))?;
        let duplicate = sys::descriptor::inherited(number)?;
        self.forwarded.retain(|(other, _)| *other != target);
        self.forwarded.push((target, duplicate));
        Ok(())
    }

    /// Returns all descriptors of the command; `terminal` stands for those of the first three that are ours.
    pub(super) fn descriptors<'a>(
        &'a self,
        terminal: Option<(&'a OwnedFd, [bool; 3])>,
    ) -> Vec<(u32, BorrowedFd<'a>)> {
        let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut all = Vec::with_capacity(3 + self.forwarded.len());
        let stands_for = terminal.map_or([false; 3], |(_, stands_for)| stands_for);
        for (number, (descriptor, stands_for)) in (0..).zip(standard.into_iter().zip(stands_for)) {
            let is_given = self.forwarded.iter().any(|(given, _)| *given == number);
            let inner = terminal.filter(|_| stands_for);
            match inner {
                _ if is_given => (),
                Some((terminal, _)) => all.push((number, terminal.as_fd())),
                // One that we do not have, the command does not have either.
                None if rustix::io::fcntl_getfd(descriptor).is_ok() => {
                    all.push((number, descriptor));
                }
                None => (),
            }
        }
        all.extend(self.forwarded.iter().map(|(number, descriptor)| (*number, descriptor.as_fd())));
        all
    }

    /// Says whether something is wanted that a service of the first version has no option for.
    pub(super) fn has_extras(&self) -> bool {
        !self.unset.is_empty() || self.nice.is_some() || self.idle
    }

    /// Returns the command behind those that do what a service of the first version has no option for, taking variables away
    /// among it.
    #[must_use]
    pub fn wrapped(&self, unset: &[String]) -> Vec<Vec<u8>> {
        let mut words: Vec<String> = Vec::new();
        for name in unset {
            words.extend(["-u".to_owned(), name.clone()]);
        }
        if let Some(nice) = self.nice {
            words.extend(["nice", "-n"].map(str::to_owned));
            words.push(nice.to_string());
        }
        if self.idle {
            words.extend(["chrt", "--idle", "0", "ionice", "-c", "3"].map(str::to_owned));
        }
        if !words.is_empty() {
            words.insert(0, "/usr/bin/env".to_owned());
        }
        words.into_iter().map(String::into_bytes).chain(self.command.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_has_no_option_for_is_done_by_programs() {
        let mut order = HostOrder::new(&["true".into()], PathBuf::from("/"));
        let text = |order: &HostOrder| {
            let words: Vec<_> =
                order.wrapped(&order.unset).into_iter().map(String::from_utf8).collect();
            words.into_iter().map(Result::unwrap).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(&order), "true");
        order.unset = vec!["A".into(), "B".into()];
        assert_eq!(text(&order), "/usr/bin/env -u A -u B true");
        (order.nice, order.idle) = (Some(-5), true);
        let all = "/usr/bin/env -u A -u B nice -n -5 chrt --idle 0 ionice -c 3 true";
        assert_eq!(text(&order), all);
    }
}
