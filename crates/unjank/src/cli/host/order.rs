//! What is to be run, and how.

use report::quoting::quoted;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use host::client::{EnvironmentInheritance, WithoutUs};

use super::Tty;
use crate::error::{Error, FailureCategory};

/// Variables take no more room than this: the kernel would not take them either.
const MOST_VARIABLES: u64 = 64 << 20;

/// How long the bus and the service may take to answer, unless it is said.
const USUAL_ANSWER: Duration = Duration::from_secs(30);

/// A command to run on the host.
#[derive(Debug)]
pub(super) struct Order {
    /// Its name and arguments.
    pub(super) command: Vec<Vec<u8>>,
    /// Where it starts.
    pub(super) directory: Vec<u8>,
    pub(super) inherits: EnvironmentInheritance,
    /// Variables on top of what it inherits; the last of a name counts.
    pub(super) environment: Vec<(String, String)>,
    /// Variables that it is not to find.
    pub(super) unset: Vec<String>,
    /// Descriptors besides the first three: their numbers, and duplicates of them.
    pub(super) forwarded: Vec<(u32, OwnedFd)>,
    pub(super) without_us: WithoutUs,
    pub(super) timeout: Option<Duration>,
    /// How long it may take until the command is known to run.
    pub(super) answer_within: Duration,
    pub(super) nice: Option<i32>,
    pub(super) idle: bool,
    pub(super) tty: Tty,
}

impl Order {
    /// Makes the order for a command that starts here, without anything else.
    pub(super) fn of(command: &[OsString]) -> Result<Order, Error> {
        let here = std::env::current_dir().map_err(|error| {
            Error::new(FailureCategory::User, "find this directory").because(error)
        })?;
        Ok(Order {
            command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            directory: here.into_os_string().into_encoded_bytes(),
            inherits: EnvironmentInheritance::All,
            environment: Vec::new(),
            unset: Vec::new(),
            forwarded: Vec::new(),
            without_us: WithoutUs::RunsOn,
            timeout: None,
            answer_within: USUAL_ANSWER,
            nice: None,
            idle: false,
            tty: Tty::Auto,
        })
    }

    /// Returns the command's name, for a person.
    pub(super) fn name(&self) -> String {
        let name = self.command.first().map_or("", |name| str::from_utf8(name).unwrap_or("it"));
        quoted(name)
    }

    /// Gives the command descriptors of ours.
    pub(super) fn forward(&mut self, numbers: &[i32]) -> Result<(), Error> {
        for number in numbers {
            let cannot =
                || Error::new(FailureCategory::User, format!("pass on descriptor {number}"));
            let target = u32::try_from(*number).map_err(|_| cannot().because("it is negative"))?;
            // The first three go anyway, and the last of a number counts.
            self.forwarded.retain(|(other, _)| *other != target);
            let duplicate = sys::descriptor::inherited(*number);
            self.forwarded.push((target, duplicate.map_err(|error| cannot().because(error))?));
        }
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
    pub(super) fn wrapped(&self, unset: &[String]) -> Vec<Vec<u8>> {
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

/// Reads `NAME=VALUE`.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("say NAME=VALUE".to_owned()),
    }
}

/// Reads a time as `timeout` does: `1.5s`, `10m`, `2h`, `1d`; without a unit, seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    match seconds
        .map_or_else(|| ::report::duration::parse(text).map_err(|error| error.to_string()), Ok)?
    {
        Duration::ZERO => Err("the time must be longer than nothing".to_owned()),
        time => Ok(time),
    }
}

/// Reads the variables behind a descriptor, each ended by a zero byte.
pub(super) fn variables_in(number: i32) -> Result<Vec<(String, String)>, Error> {
    let cannot =
        || Error::new(FailureCategory::User, format!("read variables from descriptor {number}"));
    let descriptor = sys::descriptor::inherited(number).map_err(|error| cannot().because(error))?;
    let mut bytes = Vec::new();
    let read = std::fs::File::from(descriptor).take(MOST_VARIABLES).read_to_end(&mut bytes);
    read.map_err(|error| cannot().because(error))?;
    let ended = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let one = |bytes: &[u8]| {
        let text = str::from_utf8(bytes).map_err(|error| cannot().because(error))?;
        variable(text).map_err(|_| cannot().because(format!("{text:?} is not NAME=VALUE")))
    };
    ended.split(|byte| *byte == 0).map(one).collect()
}

/// Returns a path that means the same in another process.
pub(super) fn absolute(path: &Path) -> Result<Vec<u8>, Error> {
    let absolute = std::path::absolute(path).map_err(|error: io::Error| {
        Error::new(FailureCategory::User, format!("find {}", path.display())).because(error)
    })?;
    Ok(AsRef::<OsStr>::as_ref(&absolute).as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_units_of_timeout() {
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("1d"), Ok(Duration::from_secs(86400)));
        for wrong in ["", "0", "-1s", "5 moons", "NaN", "inf", "1e400h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_variable_has_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("=b").is_err() && variable("A").is_err());
    }

    #[test]
    fn what_the_service_has_no_option_for_is_done_by_programs() {
        let mut order = Order::of(&["true".into()]).unwrap();
        let text = |order: &Order| {
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
