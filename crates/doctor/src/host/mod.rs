//! The host probe: the service that runs commands for sandboxes, its latency, and orphaned commands.

mod ask;

use std::path::Path;
use std::time::Duration;

use bus::client::ClientError;
use bus::client::blocking::BlockingClient;
use host::client::SERVICE;
use host::log::{self, CommandOutcome as Became};

use self::ask::{HelperReply, ask};
use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use report::paragraph::counted;
use report::samples::Samples;
use setup::SetupPart;

const NAME: &str = "host";
/// A service that has not answered after this is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Times that a command is run.
const ROUNDS: usize = 10;
/// Orphans that are named.
const NAMED: usize = 3;

/// Looks at the service of host commands.
#[derive(Debug)]
pub struct HostProbe;

impl Probe for HostProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "commands that sandboxes run on the host"
    }

    fn title(&self) -> &'static str {
        "Host commands"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        vec![
            ProbeStep::new("run commands as a sandbox does", 150, move |tools| {
                service(machine, tools)
            }),
            ProbeStep::new("look for commands that nobody waits for", 5, move |_| orphans(machine)),
        ]
    }
}

fn skipped(why: impl Into<String>) -> Vec<Finding> {
    vec![Finding::new(NAME, "host commands", "", MeasurementOutcome::Skipped(why.into()))]
}

/// Finds the owner of the name, and measures it if there is one: none is started for this.
fn service(machine: &Machine, tools: &StepContext<'_>) -> Vec<Finding> {
    let Some(address) = &machine.bus_address else { return skipped("there is no session bus") };
    let owner = BlockingClient::connect(Some(address)).and_then(|mut client| {
        client.set_timeout(PATIENCE);
        let Some(owner) = client.name_owner(SERVICE)? else { return Ok(None) };
        client.pid_of(&owner).map(Some)
    });
    let process = match owner {
        Ok(Some(process)) => process,
        Ok(None) => {
            let note = "nobody owns the name now; the first call starts the service".to_owned();
            return vec![Finding::new(NAME, "service", SERVICE, MeasurementOutcome::Note(note))];
        }
        Err(ClientError::NoBus(error)) => return skipped(format!("there is no bus: {error}")),
        Err(error) => return skipped(format!("the bus does not say who serves: {error}")),
    };
    let mut findings = vec![who(process, machine)];
    let mut samples = Samples::default();
    let measured = format!("sh -c true through {SERVICE}, {ROUNDS} times");
    for _ in 0..ROUNDS {
        if tools.stopped() {
            break;
        }
        let (time, asked) =
            tools.time(|| ask(address, &["sh", "-c", "true"], None, PATIENCE, tools));
        match asked {
            HelperReply::Ended(0) => samples.push(time),
            other => {
                let wrong = MeasurementOutcome::Wrong(other.to_string());
                findings.push(Finding::new(NAME, "run a host command", measured, wrong));
                return findings;
            }
        }
    }
    if !samples.is_empty() {
        let outcome = MeasurementOutcome::Time(samples);
        findings.push(Finding::new(NAME, "run a host command", measured, outcome));
    }
    findings.extend(environment(machine, address, tools));
    findings
}

/// Says which program owns the name.
fn who(process: u32, machine: &Machine) -> Finding {
    let exe = std::fs::read_link(format!("/proc/{process}/exe"));
    let name = exe
        .map_or_else(|_| "a program of another user".to_owned(), |exe| exe.display().to_string());
    let note = format!("{name} (process {process})");
    let finding = Finding::new(NAME, "service", SERVICE, MeasurementOutcome::Note(note));
    if Path::new(&name).file_name().is_some_and(|file| file == "flatpak-session-helper") {
        return match machine.can_set_up() {
            true => finding.remedy(Remedy::SetUp(SetupPart::Host)),
            false => finding.hint("unjankd ends whole trees of commands, gives them terminals, and keeps a log of what ran (`unjank setup host`)"),
        };
    }
    finding
}

/// Compares what a command finds in its environment with what this session has.
fn environment(machine: &Machine, address: &str, tools: &StepContext<'_>) -> Vec<Finding> {
    let measured = "what env prints through the service, beside this session's environment";
    let finding = |outcome| Finding::new(NAME, "environment of host commands", measured, outcome);
    let Ok((mut reader, writer)) = std::io::pipe() else { return Vec::new() };
    let asked = ask(address, &["/usr/bin/env", "-0"], Some(writer.into()), PATIENCE, tools);
    if !matches!(asked, HelperReply::Ended(0)) {
        return vec![finding(MeasurementOutcome::Skipped(asked.to_string()))];
    }
    let mut text = Vec::new();
    // The command has ended and our end of the writer is gone: there is an end.
    if std::io::Read::read_to_end(&mut reader, &mut text).is_err() {
        return Vec::new();
    }
    let stale = differences(&machine.session_variables, &text);
    if stale.is_empty() {
        let note = "is that of this session, as far as displays and sockets go".to_owned();
        return vec![finding(MeasurementOutcome::Note(note))];
    }
    let wrong = format!("is another session's: {} differ", stale.join(", "));
    vec![
        finding(MeasurementOutcome::Wrong(wrong))
            .because(
                "the service was started before this session, and keeps the environment of then",
            )
            .remedy(Remedy::TellSession(stale)),
    ]
}

/// Returns the names of variables that a command finds with another value than the session has.
fn differences(session: &[(String, String)], found: &[u8]) -> Vec<String> {
    let value_of = |name: &str| {
        found.split(|byte| *byte == 0).find_map(|pair| {
            pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
        })
    };
    let differs = |(name, value): &&(String, String)| {
        value_of(name).is_none_or(|found| found != value.as_bytes())
    };
    session.iter().filter(differs).map(|(name, _)| name.clone()).collect()
}

/// Finds commands that run although their callers are gone, in the log of our service.
fn orphans(machine: &Machine) -> Vec<Finding> {
    let Some(state) = &machine.state_home else { return Vec::new() };
    let file = log::file(state);
    let measured = "the log of host commands".to_owned();
    let finding = |outcome| Finding::new(NAME, "orphaned host commands", measured, outcome);
    let entries = match log::read(&*store::disk::real(), &file) {
        Ok(recorded) => recorded.entries,
        Err(error) => return vec![finding(MeasurementOutcome::Skipped(error.to_string()))],
    };
    let mut left: Vec<(u32, String)> = Vec::new();
    for entry in entries {
        let Became::Began(process) = entry.outcome else { continue };
        let caller_lives = Path::new(&format!("/proc/{}", entry.caller)).exists();
        if process.is_alive() && entry.caller != 0 && !caller_lives {
            left.push((process.pid, entry.command.first().cloned().unwrap_or_default()));
        }
    }
    if left.is_empty() {
        return Vec::new();
    }
    let named: Vec<String> =
        left.iter().take(NAMED).map(|(pid, name)| format!("{name} ({pid})")).collect();
    let more = if left.len() > NAMED { " and more" } else { "" };
    let many = counted(left.len(), "command");
    let wrong = format!("{many} whose caller is gone: {}{more}", named.join(", "));
    let pids = left.iter().map(|(pid, _)| *pid).collect();
    let (name, effect) = ("them".to_owned(), ", if they are of no use any more");
    vec![
        finding(MeasurementOutcome::Wrong(wrong))
            .because("nobody asked for their end with --watch-bus")
            .remedy(Remedy::EndProcess { name, pids, effect }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_another_session_is_noticed() {
        let session =
            [("DISPLAY".to_owned(), ":1".to_owned()), ("SSH_AUTH_SOCK".into(), "/a".into())];
        assert_eq!(differences(&session, b"DISPLAY=:1\0SSH_AUTH_SOCK=/a\0"), Vec::<String>::new());
        assert_eq!(differences(&session, b"DISPLAY=:0\0SSH_AUTH_SOCK=/a\0"), ["DISPLAY"]);
        assert_eq!(differences(&session, b"DISPLAY=:1\0"), ["SSH_AUTH_SOCK"]);
        assert_eq!(differences(&[], b"X=1\0"), Vec::<String>::new());
    }
}
