//! The command under the name `flatpak-spawn`: options, messages and statuses as scripts know them.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use host::client::flatpak_spawn::{HELP, ParsedCommandLine};
use host::client::life::HostOutcome;
use host::client::order::HostOrder;
use host::client::{EnvironmentInheritance, WithoutUs};
use host::process::CommandExit;
use report::paragraph::without_error_numbers;

use super::order::{absolute, here, variable, variables_in};
use super::{is_away, run_on_host, say};
use crate::cli::screen;
use crate::error::Error;

/// Says whether we were called as `flatpak-spawn`.
pub(crate) fn is_name(argument: &OsStr) -> bool {
    Path::new(argument).file_name() == Some(OsStr::new("flatpak-spawn"))
}

/// Runs a command line of `flatpak-spawn`, the first word of which is our name.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let name = arguments.first().map_or("flatpak-spawn".into(), |name| name.to_string_lossy());
    let words = arguments.get(1..).unwrap_or_default();
    let fail = |text: &str| {
        say(text);
        ExitCode::FAILURE
    };
    let usage = |text: &str| {
        say(&format!("{name}: {text}\n"));
        fail(&format!("Try \"{name} --help\" for more information.\n"))
    };
    let given = match ParsedCommandLine::read(words) {
        Ok(given) => given,
        Err(text) => return usage(&text),
    };
    if given.help {
        let written = std::io::Write::write_all(&mut screen::stdout(), HELP.as_bytes());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if given.command.is_empty() {
        return usage("No command specified");
    }
    if !given.host {
        return others(words).unwrap_or_else(|| {
            fail("Only --host is served by this flatpak-spawn, and there is no other on the PATH\n")
        });
    }
    if let Some(option) = given.not_on_host {
        return fail(&format!("--host not compatible with --{option}\n"));
    }
    let order = match order(&given) {
        Ok(order) => order,
        Err(Wrong::Usage(text)) => return usage(&text),
        Err(Wrong::Failed(text)) => return fail(&format!("{text}\n")),
    };
    match run_on_host(&order) {
        HostOutcome::Ended(status) => match CommandExit::of(status) {
            CommandExit::Code(code) => ExitCode::from(code),
            CommandExit::Signal(number) => ExitCode::from(128 | number),
            // As the original has it: an internal software error of sysexits.h.
            CommandExit::Unknown => ExitCode::from(70),
        },
        HostOutcome::TimedOut => ExitCode::FAILURE,
        HostOutcome::Interrupted(signal) => {
            sys::disposition::die_by(signal);
            ExitCode::FAILURE
        }
        HostOutcome::Refused { name, text } => {
            say(&format!("Portal call failed: {text}\n"));
            if is_away(&name) {
                say(
                    "Hint: --host only works when the Flatpak is allowed to talk to org.freedesktop.Flatpak\n",
                );
            }
            ExitCode::FAILURE
        }
        HostOutcome::NoBus(why) => fail(&format!("Can't find bus: Could not connect: {why}\n")),
        HostOutcome::Failed(error) => {
            Error::from(error).report();
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with a value.
enum Wrong {
    /// The usage follows.
    Usage(String),
    Failed(String),
}

/// Makes the order of a command line.
fn order(given: &ParsedCommandLine<'_>) -> Result<HostOrder, Wrong> {
    let failed = |error: Error| Wrong::Failed(error.to_string());
    let mut order = here(&given.command).map_err(failed)?;
    if given.clear {
        order.inherits = EnvironmentInheritance::Nothing;
    }
    if given.watch {
        order.without_us = WithoutUs::Ends;
    }
    let mut forwarded = Vec::new();
    for (name, value) in &given.values {
        let text = value.to_string_lossy();
        match *name {
            "env" => {
                let format = |_| Wrong::Usage(format!("Invalid env format {text}"));
                let pair = value.to_str().ok_or(String::new()).and_then(variable);
                order.environment.push(pair.map_err(format)?);
            }
            "unset-env" => order.unset.push(text.into_owned()),
            "directory" => {
                order.directory = absolute(Path::new(value)).map_err(failed)?;
            }
            "env-fd" => {
                let number =
                    text.parse().map_err(|_| Wrong::Usage(format!("Invalid fd '{text}'")))?;
                let read = variables_in(number);
                order.environment.extend(read.map_err(|e| Wrong::Usage(e.cause()))?);
            }
            _ => match text.parse::<i32>() {
                Ok(number) if number >= 0 => forwarded.push(number),
                _ => return Err(Wrong::Failed(format!("Invalid fd '{text}'"))),
            },
        }
    }
    for number in forwarded {
        order.forward(number).map_err(|error| {
            Wrong::Failed(format!(
                "Can't append fd: dup: {}",
                without_error_numbers(&error.to_string())
            ))
        })?;
    }
    Ok(order)
}

/// Becomes the next `flatpak-spawn` on the PATH that is not this program; returns only if there is none.
fn others(words: &[OsString]) -> Option<ExitCode> {
    let program = super::other("flatpak-spawn".as_ref())?;
    let error = Command::new(&program).arg0("flatpak-spawn").args(words).exec();
    say(&format!("{}: {error}\n", program.display()));
    Some(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_refused_in_the_words_of_the_original() {
        let order = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            match super::order(&ParsedCommandLine::read(&words).unwrap()) {
                Ok(_) => String::new(),
                Err(Wrong::Usage(text) | Wrong::Failed(text)) => text,
            }
        };
        assert_eq!(order("--env=FOO true"), "Invalid env format FOO");
        assert_eq!(order("--env==x true"), "Invalid env format =x");
        assert_eq!(order("--forward-fd=x true"), "Invalid fd 'x'");
        assert_eq!(order("--forward-fd=-1 true"), "Invalid fd '-1'");
        assert_eq!(order("--forward-fd=777 true"), "Can't append fd: dup: Bad file descriptor");
        assert_eq!(order("--forward-fd=0 --unset-env=A true"), "");
    }
}
