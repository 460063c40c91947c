//! `recent policy`: what is remembered and what is not, and why.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use ::report::text::{Charset, visible};
use clap::{Args, Subcommand};
use probe::report::paragraph::counted;
use serde_json::{Value as Json, json};
use session::recents::policy::{
    Keeping, Private as Mode, Rule, Rules, Setting, Verdict as Decision,
};
use session::recents::{Addition, Privacy, Recents, forget};
use store::publish::publish;

use super::volatile;
use crate::cli::catalogue;
use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

/// Show and change what is remembered.
///
/// Without a word it shows what holds.
#[derive(Debug, Args)]
#[command(after_help = "Example: unjank recent policy deny path '~/Secret'")]
pub(super) struct Policy {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whether a document would be remembered, and why not.
    Explain {
        /// A file or a URI.
        file: OsString,
        /// The program that would open it.
        #[arg(long, value_name = "NAME", default_value = "unjank")]
        app: String,
        /// Its MIME type.
        #[arg(long, value_name = "TYPE")]
        mime: Option<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Add a rule by which something is not remembered.
    Deny(Condition),
    /// Add a rule by which something is remembered in spite of an earlier one.
    Allow(Condition),
    /// Limit what is kept: `keep entries 1000`, `keep days 30`.
    Keep {
        /// Of what.
        what: Kept,
        /// How many.
        count: u32,
    },
    /// Remember nothing.
    Off,
    /// Remember again, after `off`.
    On,
    /// The same as `unjank recent volatile on`; with `--undo` as `off`.
    Volatile {
        /// Put it back.
        #[arg(long)]
        undo: bool,
    },
    /// Remove a rule, by the words that `unjank recent policy` shows.
    Remove {
        /// The rule, such as: deny path ~/Secret
        #[arg(required = true, trailing_var_arg = true)]
        rule: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kept {
    /// The most entries.
    Entries,
    /// For how many days after the last use.
    Days,
}

#[derive(Debug, Args)]
struct Condition {
    /// By what.
    what: What,
    /// A pattern, with * and ?; of paths also ** for any number of folders, and ~.
    pattern: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Its path, or a folder above it.
    Path,
    /// Where the file system is mounted that it is on.
    Mount,
    /// Whether a part of its path starts with a dot.
    Hidden,
    /// Its MIME type.
    Type,
    /// The program that opens it.
    Application,
}

impl Condition {
    /// Returns the line of the rules.
    fn line(&self, verb: &str) -> String {
        let what = match self.what {
            What::Path => "path",
            What::Mount => "mount",
            What::Hidden => "hidden",
            What::Type => "type",
            What::Application => "application",
        };
        let pattern = self.pattern.as_deref().map(|pattern| match self.what {
            // A path from where we are would mean another one elsewhere.
            What::Path if !pattern.starts_with(['/', '~', '*']) => {
                let path = super::absolute(Path::new(pattern));
                path.ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default()
            }
            _ => pattern.to_owned(),
        });
        [verb, what, pattern.as_deref().unwrap_or_default()].join(" ").trim_end().to_owned()
    }
}

impl Policy {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        let line = match self.command {
            None => return show(&mut recents, self.json, out),
            Some(Command::Explain { file, app, mime, json }) => {
                return explain(&mut recents, &file, app, mime, json || self.json, out);
            }
            Some(Command::Remove { rule }) => return remove(&recents, &rule.join(" "), out),
            Some(Command::On) => return remove(&recents, "off", out),
            Some(Command::Volatile { undo: true }) => {
                volatile::off(&mut recents)?;
                sayln!(out, "Removed: volatile")?;
                return Ok(Verdict::Yes);
            }
            Some(Command::Volatile { undo: false }) => {
                volatile::on(&mut recents)?;
                sayln!(out, "Added: volatile")?;
                return Ok(Verdict::Yes);
            }
            Some(Command::Off) => "off".to_owned(),
            Some(Command::Keep { what: Kept::Entries, count }) => format!("keep entries {count}"),
            Some(Command::Keep { what: Kept::Days, count }) => format!("keep days {count}"),
            Some(Command::Deny(condition)) => condition.line("deny"),
            Some(Command::Allow(condition)) => condition.line("allow"),
        };
        let is_new = change(&recents, |rules| {
            rules.add(&line).map_err(|error| {
                Error::new(Kind::User, format!("add the rule {line:?}")).because(error).hint(FORMS)
            })
        })?;
        let done = if is_new { "Added" } else { "Already there" };
        sayln!(out, "{done}: {}", visible(&line, Charset::Unicode))?;
        if line.starts_with("deny ") {
            tell_of_denied(&mut recents, out)?;
        }
        Ok(Verdict::Yes)
    }
}

/// Says that documents are remembered which a rule denies from now on.
fn tell_of_denied(recents: &mut Recents, out: &mut dyn Write) -> Result<(), Error> {
    let survey = forget::survey(recents);
    let denied = super::forget::denied(&survey, recents).len();
    if denied > 0 {
        let (is, them) = if denied == 1 { ("is", "it") } else { ("are", "them") };
        writeln!(out, "{} that it denies {is} in lists already.", counted(denied, "document"))?;
        writeln!(out, "hint: unjank recent forget --denied takes {them} out")?;
    }
    Ok(())
}

/// What a rule looks like, for somebody who typed another one.
const FORMS: &str = "for example: deny path '~/Secret/**', deny type 'video/*', allow application okular, deny hidden";

fn remove(recents: &Recents, line: &str, out: &mut dyn Write) -> Result<Verdict, Error> {
    let was_there = change(recents, |rules| {
        rules.remove(line).map_err(|error| {
            Error::new(Kind::User, format!("remove the rule {line:?}"))
                .because(error)
                .hint("`unjank recent policy` lists the rules")
        })
    })?;
    match was_there {
        true => sayln!(out, "Removed: {line}")?,
        false => sayln!(out, "There is no rule: {line}")?,
    }
    Ok(if was_there { Verdict::Yes } else { Verdict::No })
}

/// Changes the rules; what is not changed is not written.
pub(super) fn change(
    recents: &Recents,
    change: impl FnOnce(&mut Rules) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let (disk, path) = (recents.disk(), recents.places().rules());
    let fail = || Error::new(Kind::Config, format!("change {}", path.display()));
    let text = match disk.read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(fail().because(error)),
    };
    let mut rules = Rules::parse(&text);
    if !change(&mut rules)? {
        return Ok(false);
    }
    publish(disk, &path, &rules.to_bytes()).map_err(|error| fail().because(error))?;
    Ok(true)
}

fn show(recents: &mut Recents, as_json: bool, out: &mut dyn Write) -> Result<Verdict, Error> {
    let disk = store::disk::real();
    let private = Mode::read(&*disk, recents.places(), recents.now());
    let limits = recents.limits();
    let path = recents.places().rules();
    let (off, others) = recents.policy().settings(&*disk);
    let rules = recents.policy().rules(&*disk).clone();
    let is_off = rules.iter().any(|(_, rule)| rule == Rule::Off);
    if as_json {
        let setting = |setting: &Setting| json!({ "file": setting.path, "line": setting.text });
        let lines: Vec<Json> = rules
            .iter()
            .map(|(number, _)| json!({ "line": number, "rule": rules.line(number) }))
            .collect();
        let faults: Vec<Json> = rules.faults().map(|(number, _)| json!(number)).collect();
        let document = json!({
            "schema": "unjank.recent.policy/1",
            "remembers": private.is_none() && off.is_empty() && !is_off,
            "private": private.map(|mode| mode.to_string()),
            "off": off.iter().map(setting).collect::<Vec<_>>(),
            "settings": others.iter().map(setting).collect::<Vec<_>>(),
            "entries": limits.entries,
            "days": limits.age.map(|age| age.as_secs() / (24 * 60 * 60)),
            "links": limits.links,
            "volatile": limits.keeping == Keeping::Volatile,
            "file": path,
            "rules": lines,
            "not_understood": faults,
        });
        catalogue::print_json(out, &document)?;
        return Ok(Verdict::Yes);
    }
    match (private, off.first(), is_off) {
        (Some(mode), ..) => writeln!(out, "{}", super::private::says(mode))?,
        (None, Some(Setting { path, text }), _) => {
            sayln!(out, "Nothing is remembered: {text} in {}.", path.display())?;
        }
        (None, None, true) => writeln!(out, "Nothing is remembered: your rules say off.")?,
        (None, None, false) => writeln!(out, "Documents are remembered.")?,
    }
    writeln!(out)?;
    let age = limits.age.map_or("for ever".to_owned(), |age| {
        format!("{} days after their last use", age.as_secs() / (24 * 60 * 60))
    });
    writeln!(out, "Kept are the last {} documents, {age}.", limits.entries)?;
    let place = match limits.keeping {
        Keeping::Durable => "on the disk",
        Keeping::Volatile => "in memory, with copies on the disk (`unjank recent volatile`)",
    };
    writeln!(out, "The lists are {place}.")?;
    sayln!(out, "Temporary files below {} are left out.", recents.places().temporary.display())?;
    for Setting { path, text } in off.iter().chain(&others) {
        sayln!(out, "{} says {text}.", path.display())?;
    }
    if rules.iter().next().is_none() {
        writeln!(out, "There are no rules of your own.")?;
    } else {
        writeln!(out)?;
        sayln!(out, "Your rules, of which the last that matches decides ({}):", path.display())?;
        for (number, _) in rules.iter() {
            sayln!(out, "  {}", rules.line(number))?;
        }
    }
    for (number, fault) in rules.faults() {
        sayln!(out, "Line {number} is not understood and counts for nothing: {}", fault.line)?;
    }
    Ok(Verdict::Yes)
}

fn explain(
    recents: &mut Recents,
    file: &OsString,
    application: String,
    mime: Option<String>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Verdict, Error> {
    let addition = Addition {
        uri: super::uri(file)?,
        mime,
        groups: Vec::new(),
        privacy: Privacy::Public,
        application,
        exec: String::new(),
        at: recents.now(),
    };
    let name = super::shown(&addition.uri, &recents.places().home);
    let decision = recents.decide(&addition);
    let (verdict, why) = match &decision {
        Decision::Remember => (Verdict::Yes, None),
        Decision::Leave(reason) => (Verdict::No, Some(reason.to_string())),
    };
    if as_json {
        let document = json!({
            "schema": "unjank.recent.explain/1",
            "uri": addition.uri.as_str(),
            "application": addition.application,
            "remembered": why.is_none(),
            "why": why,
        });
        catalogue::print_json(out, &document)?;
    } else {
        match why {
            None => sayln!(out, "{name} is remembered.")?,
            Some(why) => sayln!(out, "{name} is not remembered: {why}.")?,
        }
    }
    Ok(verdict)
}
