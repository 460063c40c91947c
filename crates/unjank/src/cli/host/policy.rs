//! `unjank host policy`: which application may run which commands of the host.

use report::quoting::quoted;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use host::CallerKind;
use host::policy::{
    self, CommandRule, Exposure, ExposurePlaces, PolicyDecision, RequestedCommand, RuleEffect,
};
use host::program;
use serde::Serialize;

use super::serves::Serves;
use crate::cli::screen::sayln;
use crate::cli::{document, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// The name and version of the JSON document; docs/host.md has the fields.
const SCHEMA: &str = "unjank.host.policy/1";

/// Show and change which application may run which host commands.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank host policy allow org.vim.Vim git")]
pub(super) struct Policy {
    #[command(subcommand)]
    what: HostPolicyCommand,
}

#[derive(Debug, Subcommand)]
enum HostPolicyCommand {
    /// Show the policy.
    Show(Show),
    /// Explain whether an application may run a command. Exits with 0 if it may, 1 if not.
    Explain(About),
    /// Allow an application commands that begin with these words, and forbid it all commands that are not allowed.
    Allow(About),
    /// Forbid an application commands that begin with these words.
    Deny(About),
    /// Remove a rule.
    Remove(About),
}

#[derive(Debug, Args)]
struct Show {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct About {
    /// The application: its Flatpak ID, a prefix followed by *, snap.NAME, host or other.
    #[arg(value_name = "APP")]
    app: String,
    /// The command and its first arguments; * alone stands for every command.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    file: &'a Path,
    sections: Vec<Section<'a>>,
    service: &'a Serves,
    /// Who is bound by the policy and can write it.
    writable_by: Vec<Writer>,
}

#[derive(Debug, Serialize)]
struct Writer {
    who: String,
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Section<'a> {
    app: &'a str,
    rules: Vec<Line<'a>>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    effect: String,
    words: &'a [String],
}

impl Policy {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let file = file()?;
        let mut out = screen::stdout();
        match self.what {
            HostPolicyCommand::Show(show) => show.run(&file, &mut out),
            HostPolicyCommand::Explain(about) => about.explain(&file, &mut out),
            HostPolicyCommand::Allow(about) => about.add(&file, RuleEffect::Allow, &mut out),
            HostPolicyCommand::Deny(about) => about.add(&file, RuleEffect::Deny, &mut out),
            HostPolicyCommand::Remove(about) => about.remove(&file, &mut out),
        }
    }
}

impl Show {
    fn run(&self, file: &Path, out: &mut dyn Write) -> Result<Verdict, Error> {
        let text = read(file)?;
        let policy = parse(file, &text)?;
        if self.json {
            let rule = |rule: &'_ CommandRule| rule.effect.to_string();
            let sections = policy.sections().map(|(app, rules)| Section {
                app,
                rules: rules.map(|it| Line { effect: rule(it), words: &it.words }).collect(),
            });
            let service = &Serves::find();
            let sections = sections.collect();
            let writable_by = exposures(&policy, file)?;
            let writable_by = writable_by
                .iter()
                .map(|one| Writer { who: one.to_string(), remedy: one.remedy() })
                .collect();
            let document = Document { schema: SCHEMA, file, sections, service, writable_by };
            document::print_whole(&document)?;
            return Ok(Verdict::Yes);
        }
        if policy.sections().next().is_none() {
            writeln!(out, "Every application may run every command: there is no policy.")?;
            writeln!(out, "\nRestrict one with: unjank host policy allow APP COMMAND")?;
            return Ok(Verdict::Yes);
        }
        // As it was written, with what its author says about it.
        sayln!(out, "{}", shown(file))?;
        writeln!(out)?;
        for line in text.lines() {
            writeln!(out, "{}", visible(line))?;
        }
        let dead: Vec<_> = policy.dead_rules().collect();
        if !dead.is_empty() {
            writeln!(out)?;
        }
        for (line, by) in dead {
            writeln!(
                out,
                "Line {line} has no effect: line {by} matches the same commands and comes first."
            )?;
        }
        writeln!(out)?;
        Serves::find().tell(out)?;
        tell_exposures(&policy, file, out)?;
        Ok(Verdict::Yes)
    }
}

impl About {
    #[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
    fn explain(&self, file: &Path, out: &mut dyn Write) -> Result<Verdict, Error> {
        let policy = parse(file, &read(file)?)?;
        let search = std::env::var_os("PATH").unwrap_or(OsString::from(program::DEFAULT_SEARCH));
        let (name, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| Error::new(FailureCategory::User, "explain nothing"))?;
        let found = program::find(name.as_ref(), &search, Path::new("/")).map_err(|error| {
            Error::new(FailureCategory::User, format!("find {name}")).because(error)
        })?;
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|word| word.clone().into()).collect();
        let wanted = RequestedCommand { program: &found, arguments: &arguments, search: &search };
        let application = application(&self.app);
        let decision = policy.decide(&application, &wanted).decision;
        let section = policy.section_name(&application).unwrap_or_default();
        let why = match decision {
            PolicyDecision::Unlimited if section.is_empty() => {
                "nothing is said about it".to_owned()
            }
            PolicyDecision::Unlimited => format!("[{section}] does not limit it"),
            PolicyDecision::Allowed { line } | PolicyDecision::AllowedWithAll { line } => {
                format!("line {line} of [{section}] allows it")
            }
            PolicyDecision::NotDenied => format!("no line of [{section}] forbids it"),
            PolicyDecision::Denied { line } => format!("line {line} of [{section}] forbids it"),
            PolicyDecision::NotListed => format!("no line of [{section}] allows it"),
        };
        let may = if decision.allows() { "may" } else { "may not" };
        sayln!(out, "{} {may} run {}: {why}.", self.app, shown(&found.path))?;
        if policy.limits_anybody() {
            Serves::find().tell(out)?;
        }
        Ok(if decision.allows() { Verdict::Yes } else { Verdict::No })
    }

    fn add(&self, file: &Path, effect: RuleEffect, out: &mut dyn Write) -> Result<Verdict, Error> {
        let rule = CommandRule { effect, words: self.command.clone() };
        let text = policy::with_rule(&read(file)?, &self.app, &rule);
        let added = text.map_err(|error| cannot_read(file).because(error))?;
        write_whole(file, &added.text)?;
        writeln!(out, "[{}] {}", self.app, visible(&rule.to_string()))?;
        for exception in &added.exceptions {
            let stays = match exception.effect {
                RuleEffect::Allow => "allowed",
                RuleEffect::Deny => "forbidden",
            };
            let words = shell_words(&exception.words);
            writeln!(
                out,
                "What begins with {words} stays {stays}: [{}] {}",
                self.app,
                visible(&exception.to_string())
            )?;
            writeln!(out, "  unjank host policy remove {} {words}", self.app)?;
        }
        Serves::find().tell(out)?;
        tell_exposures(&parse(file, &added.text)?, file, out)?;
        Ok(Verdict::Yes)
    }

    fn remove(&self, file: &Path, out: &mut dyn Write) -> Result<Verdict, Error> {
        let removed = policy::without_rule(&read(file)?, &self.app, &self.command);
        let (text, count) = removed.map_err(|error| cannot_read(file).because(error))?;
        if count == 0 {
            writeln!(out, "There was no such rule.")?;
            return Ok(Verdict::No);
        }
        write_whole(file, &text)?;
        writeln!(out, "The rule was removed.")?;
        Ok(Verdict::Yes)
    }
}

/// Says who is bound by the policy and can write it, and what ends that.
fn tell_exposures(
    policy: &policy::HostPolicy,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), Error> {
    for exposure in exposures(policy, file)? {
        sayln!(out, "It does not hold: {}.", visible(&exposure.to_string()))?;
        if let Some(remedy) = exposure.remedy() {
            sayln!(out, "  {}", visible(&remedy))?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn exposures(policy: &policy::HostPolicy, file: &Path) -> Result<Vec<Exposure>, Error> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = config()?;
    let home = absolute("HOME").unwrap_or_else(|| config.clone());
    let data = absolute("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
    let places = ExposurePlaces::usual(&home, &config, &data);
    Ok(policy::exposures(policy, file, &places))
}

/// Returns what somebody wrote as a terminal may show it.
fn visible(text: &str) -> std::borrow::Cow<'_, str> {
    report::text::visible(text, report::text::Charset::Unicode)
}

fn shown(path: &Path) -> String {
    report::text::visible_bytes(path.as_os_str().as_encoded_bytes(), report::text::Charset::Unicode)
        .into_owned()
}

/// Returns words as they are typed in a shell.
fn shell_words(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    visible(&quoted.join(" ")).into_owned()
}

fn application(name: &str) -> CallerKind {
    match name {
        "host" => CallerKind::Host,
        "other" => CallerKind::Other,
        _ => match name.strip_prefix("snap.") {
            Some(id) => CallerKind::Snap { id: id.to_owned() },
            None => CallerKind::Flatpak { id: name.to_owned(), instance: None },
        },
    }
}

fn file() -> Result<PathBuf, Error> {
    Ok(policy::file(&config()?))
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn config() -> Result<PathBuf, Error> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    config.ok_or_else(|| {
        Error::new(FailureCategory::Config, "find the configuration directory")
            .because("HOME is not set")
    })
}

/// Returns the text of the policy; none at all is an empty one.
fn read(file: &Path) -> Result<String, Error> {
    match sys::regular_file::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(cannot_read(file).because(error)),
    }
}

fn parse(file: &Path, text: &str) -> Result<policy::HostPolicy, Error> {
    policy::HostPolicy::parse(text).map_err(|error| {
        cannot_read(file).because(error).hint("until it is corrected, the service runs no command")
    })
}

fn cannot_read(file: &Path) -> Error {
    Error::new(FailureCategory::Config, format!("read the policy {}", file.display()))
}

fn write_whole(file: &Path, text: &str) -> Result<(), Error> {
    store::publish::publish(&*store::disk::real(), file, text.as_bytes())
        .map(drop)
        .map_err(|error| Error::new(FailureCategory::Config, "write the policy").because(error))
}
