//! The environment of the database: the profile in effect, and the service on the session bus.

use report::error::chain;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use bus::client::blocking::BlockingClient;
use settings::profile::{Description, SettingsEnvironment, SettingsProfile};

use super::NAME;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;
use lab::session::SERVICE;
use report::paragraph::counted;

/// A bus that has not answered by then is as good as none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Says which databases are asked, and which of them are missing.
pub(super) fn profile(
    profile: &SettingsProfile,
    environment: &SettingsEnvironment,
    machine: &Machine,
) -> Vec<Finding> {
    let lines: Vec<String> = profile
        .databases
        .iter()
        .map(|database| match database {
            Description::User(name) => format!("user-db:{name}"),
            Description::Service(name) => format!("service-db:{name}"),
            Description::System(name) => format!("system-db:{name}"),
            Description::File(path) => format!("file-db:{}", machine.short(path)),
        })
        .collect();
    let text = if lines.is_empty() {
        "no database at all: every program sees the defaults alone, and nothing can be set"
            .to_owned()
    } else {
        format!("{}: {}", counted(lines.len(), "database"), lines.join(", "))
    };
    let how = "DCONF_PROFILE, /etc/dconf/profile";
    let mut findings = vec![Finding::new(NAME, "profile", how, MeasurementOutcome::Note(text))];
    for warning in &profile.warnings {
        let outcome = MeasurementOutcome::Wrong(warning.clone());
        findings
            .push(Finding::new(NAME, "profile", how, outcome).because("the profile has a mistake"));
    }
    for database in &profile.databases {
        let Description::System(name) = database else { continue };
        let path = database.file(environment);
        if path.exists() {
            continue;
        }
        let text = format!("{} is missing", path.display());
        let finding = Finding::new(
            NAME,
            format!("system-db:{name}"),
            "stat",
            MeasurementOutcome::Wrong(text),
        )
        .because("every program looks for it at every read");
        let source = path.with_extension("d");
        findings.push(if source.is_dir() {
            finding.remedy(Remedy::CompileDatabases)
        } else {
            finding.hint("take the line out of the profile, or make the database's directory")
        });
    }
    findings
}

/// Says which process owns the settings on the session bus; asks no service, so that none is started.
pub(super) fn owner(machine: &Machine) -> Vec<Finding> {
    let how = format!("GetNameOwner of {SERVICE}");
    let outcome = match serving(machine) {
        Ok(Some(SettingsOwner { pid, program })) => {
            let program = program.map_or("a program".to_owned(), |path| path.display().to_string());
            MeasurementOutcome::Note(format!("{program} (process {pid})"))
        }
        Ok(None) => MeasurementOutcome::Note("not running; the first write starts it".to_owned()),
        Err(why) => MeasurementOutcome::Skipped(why),
    };
    vec![Finding::new(NAME, "service now", how, outcome)]
}

/// The process that serves the settings now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SettingsOwner {
    pub(super) pid: u32,
    /// Its program, where that may be read.
    pub(super) program: Option<PathBuf>,
}

/// Asks the bus who serves, in a thread of its own: a socket that nobody serves would keep us for ever.
pub(super) fn serving(machine: &Machine) -> Result<Option<SettingsOwner>, String> {
    let Some(address) = machine.bus_address.clone() else {
        return Err("there is no session bus".to_owned());
    };
    let (send, receive) = mpsc::channel();
    let asked = sys::thread::spawn("settings-owner", move || {
        let answer = (|| {
            let client = BlockingClient::connect(Some(&address))?;
            if client.name_owner(SERVICE)?.is_none() {
                return Ok(None);
            }
            let pid = client.pid_of(SERVICE)?;
            Ok(Some(SettingsOwner {
                pid,
                program: std::fs::read_link(format!("/proc/{pid}/exe")).ok(),
            }))
        })();
        // The other end has stopped waiting: the answer is of no use then.
        let _ = send.send(answer.map_err(|error: bus::client::ClientError| chain(&error)));
    });
    asked.map_err(|error| chain(&error))?;
    receive
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| Err("the session bus does not answer".to_owned()))
}
