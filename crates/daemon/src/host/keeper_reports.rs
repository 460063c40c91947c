//! What follows from a report of a keeper: its command runs, could not start, or has ended.

use std::io;
use std::time::Duration;

use host::command::StartError;
use host::keeper::KeeperReport;
use host::log::EndedBy;
use sys::launch::Child;
use sys::pidfd::ProcessEnd;

use super::owner::ServiceOwner;

impl ServiceOwner {
    /// Handles a report; `None` when the connection to the keeper is closed.
    pub(super) fn kept(&mut self, number: u64, report: Option<KeeperReport>) {
        let Some((starting, keeper)) = self.keepers.reported(number) else { return };
        match (starting, report) {
            (Some(starting), Some(KeeperReport::Began { pid, pidfd })) => {
                let gone = starting.caller_gone;
                self.began(starting, Child { pid, pidfd }, Some(number));
                if gone {
                    self.keepers.end(number);
                }
            }
            (Some(starting), report) => {
                let command = starting.entry.command.first().cloned().unwrap_or_default();
                let error = match report {
                    Some(KeeperReport::NotStarted(source)) => {
                        StartError::Program { command, source }
                    }
                    _ => {
                        let source = io::Error::other("its keeper has ended");
                        StartError::MayHaveBegun { command, source }
                    }
                };
                self.not_started(starting, error);
            }
            (None, Some(KeeperReport::Ended(ended, by))) => {
                if let Some(pid) = self.kept_by(number) {
                    self.ended(pid, &ended, by);
                }
            }
            // It took too long and was given up already.
            (None, Some(KeeperReport::Began { .. })) => keeper.abandon(),
            (None, Some(_)) => tracing::error!("a keeper tells what it cannot know"),
            (None, None) => {
                if let Some(pid) = self.kept_by(number) {
                    // The keeper was killed, so the exit status of the command cannot be known.
                    tracing::warn!(pid, "the keeper of a command is gone");
                    self.ended(pid, &UNKNOWN, EndedBy::Itself);
                }
            }
        }
    }

    fn kept_by(&self, keeper: u64) -> Option<u32> {
        let mut running = self.running.iter();
        running.find(|(_, running)| running.keeper == Some(keeper)).map(|(pid, _)| *pid)
    }
}

/// The end of a command whose keeper was killed: as if a signal had ended it, because it must not look like success.
const UNKNOWN: ProcessEnd =
    ProcessEnd { wait_status: 9, user: Duration::ZERO, system: Duration::ZERO, memory_bytes: 0 };
