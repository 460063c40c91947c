//! The command line of `flatpak-spawn`, with the messages of the original.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What `--host` cannot do, with the names in the messages.
const NOT_ON_HOST: [(&str, &str); 14] = [
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
    ("app-path", "app-path"),
    ("usr-path", "usr-path"),
];

/// Options of `--host` that have a value.
const WITH_VALUE: [&str; 5] = ["forward-fd", "env", "unset-env", "env-fd", "directory"];

/// The help of the options that are served.
pub const HELP: &str = "Usage:
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

/// A parsed command line.
#[derive(Debug, Default)]
pub struct ParsedCommandLine<'a> {
    /// Whether the help is asked for.
    pub help: bool,
    /// Whether the command is for the host.
    pub host: bool,
    /// Whether it inherits no variables.
    pub clear: bool,
    /// Whether it ends with its client.
    pub watch: bool,
    /// The options with values, in their order: the name without dashes, and the value.
    pub values: Vec<(&'static str, &'a OsStr)>,
    /// The first option that `--host` cannot have.
    pub not_on_host: Option<&'static str>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl<'a> ParsedCommandLine<'a> {
    /// Reads the words behind the name of the program. Options end at the first word without a dash, so their values are in the same
    /// word.
    ///
    /// # Errors
    ///
    /// The message about an unknown option, or one without its value.
    pub fn read(words: &'a [OsString]) -> Result<ParsedCommandLine<'a>, String> {
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
        if let Some(letters) = name.strip_prefix('-').filter(|rest| !rest.starts_with('-')) {
            for letter in letters.chars() {
                match letter {
                    'h' => self.help = true,
                    'v' => (),
                    _ => return Err(format!("Unknown option {name}")),
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
                    let missing = || format!("Missing argument for --{name}");
                    self.values.push((known, value.ok_or_else(missing)?));
                } else if let Some((_, said)) = NOT_ON_HOST.iter().find(|(own, _)| *own == name) {
                    self.not_on_host.get_or_insert(said);
                } else {
                    return Err(format!("Unknown option --{name}"));
                }
            }
        }
        Ok(())
    }
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
        assert_eq!(read("-vx").unwrap_err(), "Unknown option -vx");
        assert_eq!(
            read("--host --sandbox-expose-path-try=/x y").unwrap(),
            r#"y [] Some("sandbox-expose-path")"#
        );
        assert_eq!(read("--host --app-path=/x y").unwrap(), r#"y [] Some("app-path")"#);
    }
}
