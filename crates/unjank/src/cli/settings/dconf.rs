//! The command under the name `dconf`: arguments, output, errors and exit codes as scripts know them.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use gvdb::gvariant::Variant;
use settings::client::ValueChoice;
use settings::path::PathKind;

use super::compile::{self, SYSTEM_DATABASES};
use super::session::{MessageStyle, Session};
use super::write::Locked;
use super::{read, watch, write};
use crate::cli::screen;
use crate::error::Error;

/// Says whether we were called as `dconf`.
pub(crate) fn is_name(argument: &OsStr) -> bool {
    Path::new(argument).file_name() == Some(OsStr::new("dconf"))
}

/// Runs a command line of `dconf`, the first word of which is our name.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let mut words = words.iter().map(|word| &**word);
    let voice = MessageStyle::Dconf(words.next().unwrap_or("dconf").to_owned());
    let Some(name) = words.next() else { return wrong_usage(None, "no command specified") };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return wrong_usage(None, &format!("unknown command {name}"));
    };
    let mut out = BufWriter::new(screen::data());
    let mut call = Call { words: words.collect::<Vec<_>>().into(), voice, out: &mut out };
    let result = (command.run)(&mut call);
    let flushed = out.flush().map_err(|error| Failure::Failed(error.into()));
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => wrong_usage(Some(command), &text),
        Err(Failure::Failed(error)) => {
            if error.is_closed_pipe() {
                return ExitCode::SUCCESS;
            }
            print_error(&format!("error: {}\n", error.cause()));
            ExitCode::from(1)
        }
    }
}

struct Call<'a> {
    words: std::collections::VecDeque<&'a str>,
    voice: MessageStyle,
    out: &'a mut dyn Write,
}

enum Failure {
    /// What was typed is wrong: the usage follows.
    Usage(String),
    Failed(Error),
}

type Outcome = Result<(), Failure>;

struct Command {
    name: &'static str,
    run: fn(&mut Call<'_>) -> Outcome,
    about: &'static str,
    /// What follows the name in the usage.
    arguments: &'static str,
}

const COMMANDS: [Command; 13] = [
    Command { name: "help", run: help, about: "Print help", arguments: " COMMAND " },
    Command {
        name: "read",
        run: |call| {
            let which = if call.flag("-d") { ValueChoice::Default } else { ValueChoice::InForce };
            let key = call.path(PathKind::Key)?;
            call.end()?;
            read::read(&mut call.session(), key, which, call.out)?;
            Ok(())
        },
        about: "Read the value of a key.  -d to read default values.",
        arguments: " [-d] KEY ",
    },
    Command {
        name: "list",
        run: |call| {
            let dir = call.path(PathKind::Dir)?;
            Ok(read::lines(&read::list(&mut call.session(), dir), call.out)?)
        },
        about: "List the sub-keys and sub-dirs of a dir",
        arguments: " DIR ",
    },
    Command {
        name: "list-locks",
        run: |call| {
            let dir = call.path(PathKind::Dir)?;
            call.end()?;
            Ok(read::lines(&read::list_locks(&mut call.session(), dir), call.out)?)
        },
        about: "List the locks under a dir",
        arguments: " DIR ",
    },
    Command {
        name: "write",
        run: |call| {
            let key = call.path(PathKind::Key)?;
            let text = call.word("value")?;
            let value = Variant::parse(None, text).map_err(|error| usage(&error.to_string()))?;
            call.end()?;
            Ok(write::write(&call.session(), key, value)?)
        },
        about: "Write a new value to a key",
        arguments: " KEY VALUE ",
    },
    Command {
        name: "reset",
        run: |call| {
            let force = call.flag("-f");
            let path = call.path(PathKind::Path)?;
            if path.ends_with('/') && !force {
                return Err(usage("-f must be given to (recursively) reset entire directories"));
            }
            call.end()?;
            Ok(write::reset(&call.session(), path)?)
        },
        about: "Reset a key or dir.  -f is required for dirs.",
        arguments: " [-f] PATH ",
    },
    Command {
        name: "compile",
        run: |call| {
            let output = call.word("output file")?;
            let dir = call.word("keyfile .d directory")?;
            call.end()?;
            Ok(compile::one(Path::new(output), Path::new(dir))?)
        },
        about: "Compile a binary database from keyfiles",
        arguments: " OUTPUT KEYFILEDIR ",
    },
    Command {
        name: "update",
        run: |call| {
            let dir = call.words.pop_front().unwrap_or(SYSTEM_DATABASES);
            call.end()?;
            Ok(compile::all(&call.voice, Path::new(dir))?)
        },
        about: "Update the system dconf databases",
        arguments: " [DBDIR] ",
    },
    Command {
        name: "watch",
        run: |call| {
            let path = call.path(PathKind::Path)?;
            call.end()?;
            Ok(watch::watch(&mut call.session(), path, call.out)?)
        },
        about: "Watch a path for key changes",
        arguments: " PATH ",
    },
    Command {
        name: "dump",
        run: |call| {
            let dir = call.path(PathKind::Dir)?;
            call.end()?;
            Ok(read::dump(&mut call.session(), dir, call.out)?)
        },
        about: "Dump an entire subpath to stdout",
        arguments: " DIR ",
    },
    Command {
        name: "load",
        run: |call| {
            let locked = if call.flag("-f") { Locked::Skip } else { Locked::Refuse };
            let dir = call.path(PathKind::Dir)?;
            call.end()?;
            Ok(write::load(|| call.session(), dir, locked)?)
        },
        about: "Populate a subpath from stdin.  -f ignore locked keys.",
        arguments: " [-f] DIR ",
    },
    Command {
        name: "blame",
        run: |call| {
            call.end()?;
            Ok(watch::blame(&call.voice, call.out)?)
        },
        about: "",
        arguments: "",
    },
    Command {
        name: "_complete",
        run: |call| {
            let suffix = call.word("suffix")?;
            let path = call.word("path")?;
            call.end()?;
            let voice = call.voice.clone();
            Ok(read::complete(|| Session::open(voice), suffix, path, call.out)?)
        },
        about: "",
        arguments: " SUFFIX PATH ",
    },
];

/// What `dconf` says of the words in its usages.
const WORDS: [(&str, &[&str], &str); 8] = [
    ("COMMAND", &["COMMAND"], "The (optional) command to explain"),
    ("PATH", &["PATH"], "Either a KEY or DIR"),
    ("KEY", &["PATH", "KEY"], "A key path (starting, but not ending with '/')"),
    ("DIR", &["PATH", "DIR"], "A directory path (starting and ending with '/')"),
    ("VALUE", &["VALUE"], "The value to write (in GVariant format)"),
    ("OUTPUT", &["OUTPUT"], "The filename of the (binary) output"),
    ("KEYFILEDIR", &["KEYFILEDIR"], "The path to the .d directory containing keyfiles"),
    ("SUFFIX", &["SUFFIX"], "An empty string '' or '/'."),
];

/// The commands that the general help shows, and how.
const SHOWN: [(&str, &str); 10] = [
    ("help", "Show this information"),
    ("read", "Read the value of a key"),
    ("list", "List the contents of a dir"),
    ("write", "Change the value of a key"),
    ("reset", "Reset the value of a key or dir"),
    ("compile", "Compile a binary database from keyfiles"),
    ("update", "Update the system databases"),
    ("watch", "Watch a path for changes"),
    ("dump", "Dump an entire subpath to stdout"),
    ("load", "Populate a subpath from stdin"),
];

impl<'a> Call<'a> {
    fn flag(&mut self, flag: &str) -> bool {
        let given = self.words.front() == Some(&flag);
        if given {
            self.words.pop_front();
        }
        given
    }

    fn word(&mut self, name: &str) -> Result<&'a str, Failure> {
        self.words.pop_front().ok_or_else(|| usage(&format!("{name} not specified")))
    }

    fn path(&mut self, shape: PathKind) -> Result<&'a str, Failure> {
        let text = self.word(&shape.to_string())?;
        shape.check(text).map_err(|error| usage(&error.to_string()))?;
        Ok(text)
    }

    fn end(&self) -> Outcome {
        if self.words.is_empty() { Ok(()) } else { Err(usage("too many arguments")) }
    }

    fn session(&self) -> Session {
        Session::open(self.voice.clone())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Failed(error.into())
    }
}

fn usage(text: &str) -> Failure {
    Failure::Usage(text.to_owned())
}

fn help(call: &mut Call<'_>) -> Outcome {
    let asked = call.words.front();
    let command = asked.and_then(|name| COMMANDS.iter().find(|command| command.name == *name));
    call.out.write_all(help_text(command).as_bytes())?;
    Ok(())
}

fn help_text(command: Option<&Command>) -> String {
    let Some(command) = command else {
        let mut text = "Usage:\n  dconf COMMAND [ARGS...]\n\nCommands:\n".to_owned();
        for (name, about) in SHOWN {
            text += &format!("  {name:<18}{about}\n");
        }
        return text + "\nUse 'dconf help COMMAND' to get detailed help.\n\n";
    };
    let mut text = format!("Usage:\n  dconf {}{}\n\n", command.name, command.arguments);
    if !command.about.is_empty() {
        text += &format!("{}\n\n", command.about);
    }
    if command.arguments.is_empty() {
        return text;
    }
    text += "Arguments:\n";
    let has = |word: &str| command.arguments.split(' ').any(|argument| argument == word);
    // The order is that of dconf: the output and the directory of `compile` after everything else but `SUFFIX`.
    for (name, with, about) in WORDS {
        if with.iter().any(|word| has(word)) {
            text += &format!("  {name:<12}{about}\n");
        }
    }
    if has("[DBDIR]") {
        text += &format!("  {:<12}The databases directory. Default: {SYSTEM_DATABASES}\n", "DBDIR");
    }
    text + "\n"
}

fn wrong_usage(command: Option<&Command>, text: &str) -> ExitCode {
    print_error(&format!("error: {text}\n\n{}", help_text(command)));
    ExitCode::from(2)
}

fn print_error(text: &str) {
    // Nobody is left to be told when stderr is gone.
    drop(screen::stderr().write_all(text.as_bytes()));
}
