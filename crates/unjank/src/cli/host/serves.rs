//! Who answers host commands now and next, because only our service knows of a policy.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::activation;
use host::client::{Greeting, SERVICE, service_process};
use report::text::{Charset, visible_bytes};
use serde::Serialize;
use sys::clock::SystemClock;
use wire::socket::Deadline;

use super::bus_address;
use crate::cli::screen::sayln;
use crate::cli::service_files::service_directories;

/// The program that knows of policies.
const OURS: &str = "unjankd";
/// A bus that has not answered after this is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who answers `org.freedesktop.Flatpak` on the session bus.
#[derive(Debug, Serialize)]
pub(super) struct Serves {
    /// The process that owns the name, if there is one.
    process: Option<u32>,
    /// Its program.
    program: Option<PathBuf>,
    /// The command line by which the bus starts the next one.
    starts: Option<String>,
    /// The file that says so.
    file: Option<PathBuf>,
    /// Whether the next call is judged by the policy; nothing where it cannot be known.
    applies: Option<bool>,
}

impl Serves {
    /// Asks the bus, and looks at the files by which it starts services; nothing is started.
    pub(super) fn find() -> Serves {
        let clock = SystemClock::start();
        let owner = bus_address().and_then(|address| {
            let deadline = Deadline::after(&clock, PATIENCE);
            // Any bus understands it; it costs a round trip, for which nobody waits here.
            service_process(&address, Greeting::StepByStep, &deadline).ok()
        });
        let process = owner.flatten();
        let program = process.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
        let (file, starts) = activation::find(&service_directories(), SERVICE).unzip();
        let applies = match (owner, process) {
            (None, _) => None,
            (_, Some(_)) => program.as_deref().map(activation::is_ours),
            (_, None) => Some(starts.as_deref().is_some_and(activation::starts_ours)),
        };
        Serves { process, program, starts, file, applies }
    }

    /// Says it, where a policy limits somebody.
    pub(super) fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        let starts = self.starts.as_deref().map(|line| shown(line.as_bytes()));
        let next_is_ours = self.starts.as_deref().is_some_and(activation::starts_ours);
        match (self.applies, self.process) {
            (None, _) => {
                sayln!(
                    out,
                    "It is not known whether it is applied: there is no session bus to ask which program runs host commands."
                )?;
            }
            (Some(true), Some(pid)) => {
                sayln!(out, "It is applied: {OURS} (process {pid}) runs host commands.")?;
                if !next_is_ours {
                    let next = starts.unwrap_or_else(|| "nothing".to_owned());
                    sayln!(
                        out,
                        "After this process ends it is not applied: the bus would start {next}."
                    )?;
                    sayln!(out, "  unjank setup host")?;
                }
            }
            (Some(true), None) => {
                let next = starts.unwrap_or_default();
                sayln!(out, "It is applied: the next call makes the bus start {next}.")?;
            }
            (Some(false), Some(pid)) => {
                let program = self.program.as_deref().unwrap_or(Path::new("another program"));
                let program = shown(program.as_os_str().as_encoded_bytes());
                sayln!(
                    out,
                    "It is NOT applied: {program} (process {pid}) runs host commands and does not enforce a policy."
                )?;
                sayln!(out, "  {OURS} --names flatpak --replace")?;
            }
            (Some(false), None) => match starts {
                Some(next) => {
                    sayln!(
                        out,
                        "It is NOT applied: the next call makes the bus start {next}, which does not enforce a policy."
                    )?;
                    sayln!(out, "  unjank setup host")?;
                }
                None => {
                    sayln!(out, "No program runs host commands, and the bus would start none.")?
                }
            },
        }
        Ok(())
    }
}

fn shown(bytes: &[u8]) -> String {
    visible_bytes(bytes, Charset::Unicode).into_owned()
}
