//! One command through the service that a session has, with a limit of time.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bus::client::flatpak::{Command, Event, Greeting, Host, HostError, Inherits, WithoutUs};
use bus::client::socket::Deadline;

use super::super::Tools;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It ended, with this status of `waitpid(2)`.
    Ended(u32),
    /// It was not run, and why.
    Refused(String),
    /// There was no answer.
    Silent,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Ended(status) => write!(f, "the command ended with the status {status:#x}"),
            Asked::Refused(why) => write!(f, "the command was not run: {why}"),
            Asked::Silent => f.write_str("the service does not answer"),
        }
    }
}

/// Runs a command that writes to `output`, and waits for its end.
pub(super) fn ask(
    address: &str,
    words: &[&str],
    output: Option<OwnedFd>,
    patience: Duration,
    tools: &Tools<'_>,
) -> Asked {
    run(address, words, output, patience, tools)
        .unwrap_or_else(|error| Asked::Refused(error.to_string()))
}

fn run(
    address: &str,
    words: &[&str],
    output: Option<OwnedFd>,
    patience: Duration,
    tools: &Tools<'_>,
) -> Result<Asked, HostError> {
    let until = tools.clock.monotonic() + patience;
    let deadline = Deadline::after(tools.clock, patience);
    let mut host = Host::connect(address.as_bytes(), Greeting::AtOnce, &deadline)?;
    let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let descriptors: Vec<_> = output.iter().map(|output| (1, output.as_fd())).collect();
    let command = Command {
        directory: b"/",
        arguments: &arguments,
        descriptors: &descriptors,
        inherits: Inherits::All,
        environment: &[],
        without_us: WithoutUs::RunsOn,
    };
    host.start(&command, None)?;
    loop {
        while let Some(event) = host.event()? {
            match event {
                Event::Started(_) => {
                    if let Some(status) = host.ended_early() {
                        return Ok(Asked::Ended(status));
                    }
                }
                Event::Exited(status) => return Ok(Asked::Ended(status)),
                Event::Refused { text, .. } => return Ok(Asked::Refused(text)),
                Event::ServiceGone => return Ok(Asked::Silent),
                Event::NotSignalled(_) => (),
            }
        }
        let left = until.saturating_sub(tools.clock.monotonic());
        if left.is_zero() || tools.stopped() {
            return Ok(Asked::Silent);
        }
        sys::socket::wait_readable(&host, Some(left)).map_err(HostError::Lost)?;
    }
}
