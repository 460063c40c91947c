//! `unjank-index`: what `unjank plugins index` does without a word, and the questions that `unjank bench plugins` times.

#![expect(clippy::disallowed_methods, reason = "a program without the command line of `unjank`")]

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use report::text::{Charset, visible, visible_bytes};
use session::clock::{Clock, SystemClock};
use session::index::Index;
use session::index::build::Look;
use session::index::input::Part;
use session::index::layout::{AppKey, PluginKey};
use session::index::opener::Openers;
use session::index::refresh::{Done, Location};

use super::places;

const HELP: &str = "\
Make the index of plugins and applications current

Usage: unjank-index

It is what unjank plugins index does, without a word; a login, a package or a
program that asks starts it and has to wait for little. Exits with 0 if the
index is current, 2 if it cannot be.
";

/// Questions of which a repeated one is the mean: the clock takes as long as one.
const REPEATED: u32 = 64;

/// Does what `arguments` say (the program's name is not among them), and returns the exit code.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments: Option<Vec<String>> =
        arguments.into_iter().map(|word| word.into_string().ok()).collect();
    let words: Vec<&str> = arguments.iter().flatten().map(String::as_str).collect();
    let done = match *words {
        [] if arguments.is_some() => location().and_then(|location| refresh(&location)),
        ["-h" | "--help"] => io::stdout().write_all(HELP.as_bytes()).map_err(Into::into),
        ["ask", "refresh"] => time_refresh(),
        ["ask", what, value, rounds] => time(what, value, rounds),
        _ => Err("it takes no arguments; see unjank-index --help".into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    let mut text = format!("unjank-index: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // Text always takes more text.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    // Nobody is left to be told when stderr is gone.
    let _ = writeln!(io::stderr(), "{}", visible(&text, Charset::Unicode));
    ExitCode::from(2)
}

fn location() -> Result<Location, Box<dyn Error>> {
    places::location(None).ok_or_else(|| {
        "cannot find the cache directory: neither XDG_CACHE_HOME nor HOME is set".into()
    })
}

fn refresh(location: &Location) -> Result<(), Box<dyn Error>> {
    let (_, done) = location.refresh(&*store::disk::real(), Look::Directories)?;
    if matches!(done, Done::Made { was_damaged: true, .. }) {
        let path = location.path();
        let path = visible_bytes(path.as_os_str().as_bytes(), Charset::Unicode);
        writeln!(io::stderr(), "unjank-index: the index {path} was damaged; a new one was made")?;
    }
    Ok(())
}

/// Makes the index current, and prints how long that took in nanoseconds and that it is one.
fn time_refresh() -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::start();
    let start = clock.monotonic();
    refresh(&location()?)?;
    writeln!(io::stdout(), "{} 1", clock.monotonic().saturating_sub(start).as_nanos())?;
    Ok(())
}

/// Asks as a program does, and prints how long each question took in nanoseconds and how many were found.
fn time(what: &str, value: &str, rounds: &str) -> Result<(), Box<dyn Error>> {
    let question = Question::named(what).ok_or("it asks for app, mime, plugin or plugins")?;
    let rounds: u32 = rounds.parse()?;
    let clock = SystemClock::start();
    let mut out = io::stdout().lock();
    let start = clock.monotonic();
    let location = location()?;
    let index = location.open()?;
    if let Some(path) = question.changed(&index, value) {
        return Err(format!("{} changed", path.display()).into());
    }
    let openers = Openers::new(&index, &location.sources().places.path);
    let found = question.ask(&index, &openers, value);
    // What an answer rests on is looked at before it is used.
    if index.is_damaged() {
        return Err("the index is damaged".into());
    }
    if let Some(path) = index.overwritten() {
        return Err(format!("{} changed", path.display()).into());
    }
    let first = clock.monotonic().saturating_sub(start).as_nanos();
    writeln!(out, "{first} {found}")?;
    for _ in 1..rounds {
        let start = clock.monotonic();
        for _ in 0..REPEATED {
            std::hint::black_box(question.ask(&index, &openers, std::hint::black_box(value)));
        }
        let took = clock.monotonic().saturating_sub(start).as_nanos() / u128::from(REPEATED);
        writeln!(out, "{took} {found}")?;
    }
    Ok(())
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
enum Question {
    /// An application by identifier.
    App,
    /// All applications for a MIME type.
    Mime,
    /// A plugin by identifier.
    Plugin,
    /// All plugins of a namespace.
    Plugins,
}

impl Question {
    fn named(name: &str) -> Option<Question> {
        match name {
            "app" => Some(Question::App),
            "mime" => Some(Question::Mime),
            "plugin" => Some(Question::Plugin),
            "plugins" => Some(Question::Plugins),
            _ => None,
        }
    }

    /// Returns what has changed that counts for the answer.
    fn changed<'a>(self, index: &'a Index, value: &str) -> Option<&'a std::path::Path> {
        match self {
            Question::App => index.stale(&[Part::Applications]),
            Question::Mime => index.stale(&Part::OF_OPENERS),
            Question::Plugin => index.stale_plugin(value),
            Question::Plugins => index.stale_namespace(value),
        }
    }

    /// Returns how many were found.
    fn ask<'a>(self, index: &'a Index, openers: &Openers<'a>, value: &str) -> usize {
        match self {
            Question::App => {
                index.apps_by(AppKey::Id, value).filter_map(|app| app.text("Name")).count()
            }
            Question::Mime => {
                openers.all_for(value).iter().filter_map(|app| app.text("Name")).count()
            }
            Question::Plugin => {
                index.plugin(value).into_iter().filter_map(|plugin| plugin.path()).count()
            }
            Question::Plugins => index
                .plugins_by(PluginKey::Namespace, value)
                .filter_map(|plugin| plugin.text("Id"))
                .count(),
        }
    }
}
