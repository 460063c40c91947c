//! The command under the name `flatpak-spawn`: options, messages and statuses as scripts know them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use host::client::life::HostOutcome;
use host::client::order::HostOrder;
use host::client::{EnvironmentInheritance, WithoutUs};
use host::process::CommandExit;
use report::paragraph::without_error_numbers;

use super::order::{absolute, here, variable, variables_in};
use super::{is_away, run_on_host, say};
use crate::cli::screen;
use crate::error::Error;

/// What `--host` cannot do, with the names in the messages.
const NOT_ON_HOST: [(&str, &str); 12] = [
    ("share-pids", "share-pids"),
    ("expose-pids", "expose-pids"),
    ("latest-version", "latest-version"),
    ("sandbox", "sandbox"),
    ("no-network", "no-network"),
    ("sandbox-expose", "sandbox-expose"),
    ("sandbox-expose-ro", "sandbox-expose-ro"),
    ("sandbox-flag", "sandbox-flag"),
    ("sandbox-expose-path", "sandbox-expose-path"),
    ("sandbox-expose-path-try", "sandbox-expose-path"),
    ("sandbox-expose-path-ro", "sandbox-expose-path-ro"),
    ("sandbox-expose-path-ro-try", "sandbox-expose-path-ro"),
];

/// Options of `--host` that have a value.
const WITH_VALUE: [&str; 5] = ["forward-fd", "env", "unset-env", "env-fd", "directory"];

const HELP: &str = "Usage:
  flatpak-spawn --host [OPTION…] COMMAND [ARGUMENT…]

Run a command on the host. Without --host, the sandbox's own flatpak-spawn runs it in a sandbox.

Options:
  -h, --help                 Show help options
  -v, --verbose              Enable debug output
  --forward-fd=FD            Forward file descriptor
  --clear-env                Run with clean environment
  --watch-bus                Make the spawned command exit if we do
  --env=VAR=VALUE            Set environment variable
  --unset-env=VAR            Unset environment variable
  --env-fd=FD                Read environment variables in env -0 format from FD
  --host                     Start the command on the host
  --directory=DIR            Working directory in which to run the command
";

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
    let order = match given.order() {
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

/// A command line, taken apart.
#[derive(Debug, Default)]
struct ParsedCommandLine<'a> {
    help: bool,
    host: bool,
    clear: bool,
    watch: bool,
    values: Vec<(&'static str, &'a OsStr)>,
    /// The first option that `--host` cannot have.
    not_on_host: Option<&'static str>,
    command: Vec<OsString>,
}

/// What is wrong with a value.
enum Wrong {
    /// The usage follows.
    Usage(String),
    Failed(String),
}

impl<'a> ParsedCommandLine<'a> {
    /// Options end at the first word without a dash, so their values are in the same word.
    fn read(words: &'a [OsString]) -> Result<ParsedCommandLine<'a>, String> {
        let mut given = ParsedCommandLine::default();
        let count = words.iter().take_while(|word| word.as_bytes().starts_with(b"-")).count();
        let (options, command) = words.split_at(count);
        given.command = command.to_vec();
        for (at, word) in options.iter().enumerate() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                // What has a dash behind it is the command then.
                given.command.splice(0..0, options[at + 1..].iter().cloned());
                break;
            }
            let cut = bytes.iter().position(|byte| *byte == b'=');
            let name = String::from_utf8_lossy(&bytes[..cut.unwrap_or(bytes.len())]);
            let value = cut.map(|at| OsStr::from_bytes(&bytes[at + 1..]));
            given.option(&name, value)?;
        }
        Ok(given)
    }

    fn option(&mut self, name: &str, value: Option<&'a OsStr>) -> Result<(), String> {
        let unknown = || Err(format!("Unknown option {name}"));
        if let Some(letters) = name.strip_prefix('-').filter(|rest| !rest.starts_with('-')) {
            for letter in letters.chars() {
                match letter {
                    'h' => self.help = true,
                    'v' => (),
                    _ => return unknown(),
                }
            }
            return Ok(());
        }
        let name = name.trim_start_matches('-');
        match name {
            "help" => self.help = true,
            "verbose" => (),
            "host" => self.host = true,
            "clear-env" => self.clear = true,
            "watch-bus" => self.watch = true,
            _ => {
                if let Some(known) = WITH_VALUE.iter().find(|known| **known == name) {
                    let Some(value) = value else {
                        return Err(format!("Missing argument for --{name}"));
                    };
                    self.values.push((known, value));
                } else if let Some((_, said)) = NOT_ON_HOST.iter().find(|(own, _)| *own == name) {
                    self.not_on_host.get_or_insert(said);
                } else if matches!(name, "app-path" | "usr-path") {
                    let said = if name == "app-path" { "app-path" } else { "usr-path" };
                    self.not_on_host.get_or_insert(said);
                } else {
                    return Err(format!("Unknown option --{name}"));
                }
            }
        }
        Ok(())
    }

    fn order(&self) -> Result<HostOrder, Wrong> {
        let failed = |error: Error| Wrong::Failed(error.to_string());
        let mut order = here(&self.command).map_err(failed)?;
        if self.clear {
            order.inherits = EnvironmentInheritance::Nothing;
        }
        if self.watch {
            order.without_us = WithoutUs::Ends;
        }
        let mut forwarded = Vec::new();
        for (name, value) in &self.values {
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

    fn read(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        ParsedCommandLine::read(&words).map(|given| {
            let command: Vec<_> = given.command.iter().map(|word| word.to_string_lossy()).collect();
            format!("{} {:?} {:?}", command.join(" "), given.values, given.not_on_host)
        })
    }

    #[test]
    fn options_end_at_the_first_word_without_a_dash() {
        assert_eq!(read("--host -- echo hi").unwrap(), "echo hi [] None");
        assert_eq!(read("--host echo --env=A=b").unwrap(), "echo --env=A=b [] None");
        assert_eq!(read("--env=A=b env").unwrap(), r#"env [("env", "A=b")] None"#);
        assert_eq!(read("--host --env A=b env").unwrap_err(), "Missing argument for --env");
        assert_eq!(read("--host --nonsense x").unwrap_err(), "Unknown option --nonsense");
        assert_eq!(
            read("--host --sandbox-expose-path-try=/x y").unwrap(),
            r#"y [] Some("sandbox-expose-path")"#
        );
    }

    #[test]
    fn values_are_refused_in_the_words_of_the_original() {
        let order = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            match ParsedCommandLine::read(&words).unwrap().order() {
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
