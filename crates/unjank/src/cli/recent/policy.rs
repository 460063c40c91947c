//! `recent policy`: what is remembered and what is not, and why.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use recents::policy::{
    ForeignSetting, Keeping, Private as Mode, RetentionRule, RetentionVerdict as Decision,
};
use recents::{Addition, Privacy, Recents};
use report::paragraph::counted;
use report::text::{Charset, visible};
use serde_json::{Value as Json, json};

use super::rules::change;
use super::volatile;
use crate::cli::catalogue;
use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

/// Show and change the rules of what is recorded.
///
/// Without a subcommand, it shows the rules in effect.
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
    /// Show whether a document would be recorded, and if not, why.
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
    /// Add a rule that excludes documents.
    Deny(Condition),
    /// Add a rule that allows documents in spite of an earlier rule.
    Allow(Condition),
    /// Limit the list: `keep entries 1000`, `keep days 30`.
    Keep {
        /// Of what.
        what: RetentionSetting,
        /// How many.
        count: u32,
    },
    /// Record nothing.
    Off,
    /// Record again, after `off`.
    On,
    /// Do the same as `unjank recent volatile on`, or `off` with `--undo`.
    Volatile {
        /// Put it back.
        #[arg(long)]
        undo: bool,
    },
    /// Remove a rule, in the words of `unjank recent policy`.
    Remove {
        /// The rule, such as: deny path ~/Secret
        #[arg(required = true, trailing_var_arg = true)]
        rule: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RetentionSetting {
    /// The number of entries.
    Entries,
    /// The number of days after the last use.
    Days,
}

#[derive(Debug, Args)]
struct Condition {
    /// By what.
    what: RecentPolicyCommand,
    /// A pattern with * and ?; for paths also ** for any number of folders, and ~.
    pattern: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RecentPolicyCommand {
    /// Its path, or a folder above it.
    Path,
    /// The mount point of its file system.
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
            RecentPolicyCommand::Path => "path",
            RecentPolicyCommand::Mount => "mount",
            RecentPolicyCommand::Hidden => "hidden",
            RecentPolicyCommand::Type => "type",
            RecentPolicyCommand::Application => "application",
        };
        let pattern = self.pattern.as_deref().map(|pattern| match self.what {
            // A path from where we are would mean another one elsewhere.
            RecentPolicyCommand::Path if !pattern.starts_with(['/', '~', '*']) => {
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
            Some(Command::Remove { rule }) => return remove(&mut recents, &rule.join(" "), out),
            Some(Command::On) => return remove(&mut recents, "off", out),
            Some(Command::Volatile { undo: true }) => {
                volatile::off(&mut recents)?;
                sayln!(out, "Removed: volatile")?;
                return Ok(Verdict::Yes);
            }
            Some(Command::Volatile { undo: false }) => {
                volatile::on(&mut recents, &volatile::daemon_beside()?)?;
                sayln!(out, "Added: volatile")?;
                return Ok(Verdict::Yes);
            }
            Some(Command::Off) => "off".to_owned(),
            Some(Command::Keep { what: RetentionSetting::Entries, count }) => {
                format!("keep entries {count}")
            }
            Some(Command::Keep { what: RetentionSetting::Days, count }) => {
                format!("keep days {count}")
            }
            Some(Command::Deny(condition)) => condition.line("deny"),
            Some(Command::Allow(condition)) => condition.line("allow"),
        };
        let is_new = change(&recents, |rules| {
            rules.add(&line).map_err(|error| {
                Error::new(FailureCategory::User, format!("add the rule {line:?}"))
                    .because(error)
                    .hint(FORMS)
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
        writeln!(out, "{} that it denies {is} in the lists already.", counted(denied, "document"))?;
        writeln!(out, "hint: remove {them} with: unjank recent forget --denied")?;
    }
    Ok(())
}

/// What a rule looks like, for somebody who typed another one.
const FORMS: &str = "for example: deny path '~/Secret/**', deny type 'video/*', allow application okular, deny hidden";

fn remove(recents: &mut Recents, line: &str, out: &mut dyn Write) -> Result<Verdict, Error> {
    let is_volatile = RetentionRule::parse(line) == Ok(Some(RetentionRule::Volatile))
        && recents.limits().keeping == Keeping::Volatile;
    if is_volatile {
        volatile::off(recents)?;
    }
    let was_there = is_volatile
        || change(recents, |rules| {
            rules.remove(line).map_err(|error| {
                Error::new(FailureCategory::User, format!("remove the rule {line:?}"))
                    .because(error)
                    .hint("list the rules with: unjank recent policy")
            })
        })?;
    match was_there {
        true => sayln!(out, "Removed: {line}")?,
        false => sayln!(out, "There is no rule: {line}")?,
    }
    Ok(if was_there { Verdict::Yes } else { Verdict::No })
}

fn show(recents: &mut Recents, as_json: bool, out: &mut dyn Write) -> Result<Verdict, Error> {
    let disk = store::disk::real();
    let private = Mode::read(&*disk, recents.places(), recents.now());
    let limits = recents.limits();
    let path = recents.places().rules();
    let (off, others) = recents.policy().settings(&*disk);
    let rules = recents.policy().rules(&*disk).clone();
    let is_off = rules.iter().any(|(_, rule)| rule == RetentionRule::Off);
    if as_json {
        let setting =
            |setting: &ForeignSetting| json!({ "file": setting.path, "line": setting.text });
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
        (None, Some(ForeignSetting { path, text }), _) => {
            sayln!(out, "Nothing is remembered: {text} in {}.", path.display())?;
        }
        (None, None, true) => writeln!(out, "Nothing is remembered: your rules contain off.")?,
        (None, None, false) => writeln!(out, "Documents are remembered.")?,
    }
    writeln!(out)?;
    let age = limits.age.map_or("for ever".to_owned(), |age| {
        format!("{} days after their last use", age.as_secs() / (24 * 60 * 60))
    });
    writeln!(out, "The last {} documents are kept, {age}.", limits.entries)?;
    let place = match limits.keeping {
        Keeping::Durable => "on the disk",
        Keeping::Volatile => "in memory, with copies on the disk (`unjank recent volatile`)",
    };
    writeln!(out, "The lists are {place}.")?;
    sayln!(out, "Temporary files below {} are excluded.", recents.places().temporary.display())?;
    for ForeignSetting { path, text } in off.iter().chain(&others) {
        sayln!(out, "{} says {text}.", path.display())?;
    }
    if rules.iter().next().is_none() {
        writeln!(out, "There are no rules of your own.")?;
    } else {
        writeln!(out)?;
        sayln!(out, "Your rules ({}); the last one that matches decides:", path.display())?;
        for (number, _) in rules.iter() {
            sayln!(out, "  {}", rules.line(number))?;
        }
    }
    for (number, fault) in rules.faults() {
        sayln!(out, "Line {number} cannot be parsed and is ignored: {}", fault.line)?;
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
