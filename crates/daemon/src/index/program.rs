//! `unjank-index`: does what `unjank plugins index` does, silently, and answers the queries that `unjank bench plugins` times.

#![expect(clippy::disallowed_methods, reason = "a program without the command line of `unjank`")]

use report::error::chain;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use catalogue::index::Index;
use catalogue::index::build::CheckDepth;
use catalogue::index::input::IndexPart;
use catalogue::index::layout::{AppKey, PluginKey};
use catalogue::index::opener::Openers;
use catalogue::index::refresh::{Location, RefreshOutcome};
use report::text::{Charset, visible, visible_bytes};
use sys::clock::{Clock, SystemClock};

use super::places;

const HELP: &str = "\
Make the index of plugins and applications current

Usage: unjank-index

It is what unjank plugins index does, without a word; a login, a package or a
program that asks starts it and has to wait for little. Exits with 0 if the
index is current, 2 if it cannot be.
";

/// How many repetitions are averaged for one figure, because reading the clock takes as long as one query.
const REPEATED: u32 = 64;

/// Runs the program with `arguments` (without the program's name), and returns the exit code.
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
    let text = format!("unjank-index: {}", chain(&*error));
    // If stderr is closed, the message cannot be delivered.
    let _ = writeln!(io::stderr(), "{}", visible(&text, Charset::Unicode));
    ExitCode::from(2)
}

fn location() -> Result<Location, Box<dyn Error>> {
    places::location(None).ok_or_else(|| {
        "cannot find the cache directory: neither XDG_CACHE_HOME nor HOME is set".into()
    })
}

fn refresh(location: &Location) -> Result<(), Box<dyn Error>> {
    let (_, done) = location.refresh(&*store::disk::real(), CheckDepth::Directories)?;
    if matches!(done, RefreshOutcome::Made { was_damaged: true, .. }) {
        let path = location.path();
        let path = visible_bytes(path.as_os_str().as_bytes(), Charset::Unicode);
        writeln!(io::stderr(), "unjank-index: the index {path} was damaged; a new one was made")?;
    }
    Ok(())
}

/// Updates the index, and prints how long that took in nanoseconds and the count 1.
fn time_refresh() -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::start();
    let start = clock.monotonic();
    refresh(&location()?)?;
    writeln!(io::stdout(), "{} 1", clock.monotonic().saturating_sub(start).as_nanos())?;
    Ok(())
}

/// Queries as a program does, and prints for each query its time in nanoseconds and the number of results.
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
    // As in a program, the sources of an answer are checked before it is used.
    if let Some(path) = index.overwritten() {
        return Err(format!("{} changed", path.display()).into());
    }
    if index.is_damaged() {
        return Err("the index is damaged".into());
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

/// A query.
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

    /// Returns the changes that matter for the answer.
    fn changed<'a>(self, index: &'a Index, value: &str) -> Option<&'a std::path::Path> {
        match self {
            Question::App => index.stale(&[IndexPart::Applications]),
            Question::Mime => index.stale(&IndexPart::OF_OPENERS),
            Question::Plugin => index.stale_plugin(value),
            Question::Plugins => index.stale_namespace(value),
        }
    }

    /// Returns the number of results.
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
