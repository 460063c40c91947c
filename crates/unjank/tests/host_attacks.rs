//! Attacks on the service for host commands: by callers whom a policy limits, by sandboxes, and by programs that take the
//! place of others.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the tests are other programs; what cannot be set up fails"
)]

#[path = "host_attacks/crowds.rs"]
mod crowds;
#[path = "host_attacks/impostors.rs"]
mod impostors;
#[path = "host_attacks/many.rs"]
mod many;
#[path = "host_attacks/policy.rs"]
mod policy;
#[path = "host_attacks/stopped.rs"]
mod stopped;

use crate::fixture;
use crate::host_service;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use host::log::{CommandOutcome, LogEntry, read};
use host_service::raw::{Host, Wanted, Which, until};

/// The name of the error for whoever may not.
const REFUSED: &str = "org.unjank.Host1.Error.Refused";

impl Host {
    /// Starts our service with this policy.
    fn under(policy: &str) -> Option<Host> {
        let host = Host::start(Which::Ours)?;
        host.set_policy(policy);
        Some(host)
    }

    fn set_policy(&self, text: &str) {
        let file = self.bus.dir().join("config/unjank/host-policy");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }

    /// What is in the log.
    fn log(&self) -> Vec<LogEntry> {
        let file = self.bus.dir().join("state/unjank/host/commands.journal");
        read(&*store::disk::real(), &file).unwrap().entries
    }

    /// Starts a command that runs for as long as its client does.
    fn long(&self) -> Long {
        const SCRIPT: &str = "exec sleep 1000";
        let words = ["--watch-bus", "sh", "-c", SCRIPT];
        let client = self.spawn(&words).stdin(Stdio::null()).spawn().unwrap();
        let mut long = Long { client, command: 0 };
        let begun = || {
            self.log().into_iter().find_map(|entry| match entry.outcome {
                // Not an earlier one, whose end the log may not have yet.
                CommandOutcome::Began(process) if entry.command.iter().any(|it| it == SCRIPT) => {
                    Some(process.pid)
                }
                _ => None,
            })
        };
        assert!(until(|| begun().is_some()), "a command did not begin");
        long.command = begun().unwrap();
        long
    }

    /// Makes a script that leaves a file when it runs, as `name` in a directory; returns the directory and the file.
    fn trap(&self, name: &str) -> (PathBuf, PathBuf) {
        let dir = self.bus.dir().join("evil");
        let sprung = self.bus.dir().join("sprung");
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join(name);
        fixture::script(&script, &format!("#!/bin/sh\necho x >>{}\n", sprung.display()));
        (dir, sprung)
    }
}

/// A command that runs until this is dropped, and its client.
struct Long {
    client: Child,
    /// The number of the command's process.
    command: u32,
}

impl Long {
    /// Says whether both run.
    fn runs(&mut self) -> bool {
        self.client.try_wait().unwrap().is_none() && has_process(self.command)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
        let has_ended = until(|| self.command == 0 || !has_process(self.command));
        assert!(has_ended || std::thread::panicking(), "a command outlived its client");
    }
}

fn has_process(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
