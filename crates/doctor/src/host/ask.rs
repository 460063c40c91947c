//! One command through the service that a session has, with a limit of time.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use host::client::{
    EnvironmentInheritance, Greeting, HostCommandSpec, HostConnection, HostError, HostEvent,
    WithoutUs,
};
use wire::socket::Deadline;

use super::super::StepContext;

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HelperReply {
    /// It ended, with this status of `waitpid(2)`.
    Ended(u32),
    /// It was not run, and why.
    Refused(String),
    /// There was no answer.
    Silent,
}

impl fmt::Display for HelperReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelperReply::Ended(status) => {
                write!(f, "the command ended with the status {status:#x}")
            }
            HelperReply::Refused(why) => write!(f, "the command was not run: {why}"),
            HelperReply::Silent => f.write_str("the service does not answer"),
        }
    }
}

/// Runs a command that writes to `output`, and waits for its end.
pub(super) fn ask(
    address: &str,
    words: &[&str],
    output: Option<OwnedFd>,
    patience: Duration,
    tools: &StepContext<'_>,
) -> HelperReply {
    run(address, words, output, patience, tools)
        .unwrap_or_else(|error| HelperReply::Refused(error.to_string()))
}

fn run(
    address: &str,
    words: &[&str],
    output: Option<OwnedFd>,
    patience: Duration,
    tools: &StepContext<'_>,
) -> Result<HelperReply, HostError> {
    let until = tools.clock.monotonic() + patience;
    let deadline = Deadline::after(tools.clock, patience);
    let mut host = HostConnection::connect(address.as_bytes(), Greeting::AtOnce, &deadline)?;
    let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let descriptors: Vec<_> = output.iter().map(|output| (1, output.as_fd())).collect();
    let command = HostCommandSpec {
        directory: b"/",
        arguments: &arguments,
        descriptors: &descriptors,
        inherits: EnvironmentInheritance::All,
        environment: &[],
        without_us: WithoutUs::RunsOn,
    };
    host.start(&command, None)?;
    loop {
        while let Some(event) = host.event()? {
            match event {
                HostEvent::Started(_) => {
                    if let Some(status) = host.ended_early() {
                        return Ok(HelperReply::Ended(status));
                    }
                }
                HostEvent::Exited(status) => return Ok(HelperReply::Ended(status)),
                HostEvent::Refused { text, .. } => return Ok(HelperReply::Refused(text)),
                HostEvent::ServiceGone => return Ok(HelperReply::Silent),
                HostEvent::NotSignalled(_) => (),
            }
        }
        let left = until.saturating_sub(tools.clock.monotonic());
        if left.is_zero() || tools.stopped() {
            return Ok(HelperReply::Silent);
        }
        sys::socket::wait_readable(&host, Some(left)).map_err(HostError::Lost)?;
    }
}
