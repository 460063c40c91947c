//! Attacks on the service for host commands: by callers whom a policy limits, by sandboxes, and by programs that take the
//! place of others.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the tests are other programs; what cannot be set up fails"
)]

#[path = "host_attacks/crowds.rs"]
mod crowds;
mod fixture;
mod host_service;
#[path = "host_attacks/impostors.rs"]
mod impostors;
#[path = "host_attacks/many.rs"]
mod many;
#[path = "host_attacks/policy.rs"]
mod policy;

use std::path::PathBuf;

use host_service::raw::{Host, Wanted, Which};
use session::host::log::{Entry, read};

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
    fn log(&self) -> Vec<Entry> {
        let file = self.bus.dir().join("state/unjank/host/commands.journal");
        read(&*store::disk::real(), &file).unwrap()
    }

    /// Makes a script that leaves a file when it runs, as `name` in a directory; returns the directory and the file.
    fn trap(&self, name: &str) -> (PathBuf, PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let dir = self.bus.dir().join("evil");
        let sprung = self.bus.dir().join("sprung");
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join(name);
        std::fs::write(&script, format!("#!/bin/sh\necho x >>{}\n", sprung.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, sprung)
    }
}
