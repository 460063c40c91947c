//! Which application may run which commands: a file of sections with `allow` and `deny` lines, kept with its comments.

mod edit;
mod variables;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::identity::Application;
use super::program::{self, Program};

pub use edit::{Added, with_rule, without_rule};
pub use variables::is_harmless;

/// The rules of all applications; none at all allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// An application's name, or one that ends with `*`.
    name: String,
    rules: Vec<(usize, Rule)>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The command may run.
    Allow,
    /// It may not.
    Deny,
}

/// One line of a section: what it does, and the commands that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub effect: Effect,
    /// The program and the arguments that a command must begin with; `*` alone is every command.
    pub words: Vec<String>,
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot understand line {line} of the policy: {why}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A command that somebody wants to run.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The program that was asked for.
    pub program: &'a Program,
    /// The arguments behind its name.
    pub arguments: &'a [Vec<u8>],
    /// The `PATH` of the session, in which the names of rules are looked up: not that of the caller.
    pub search: &'a OsStr,
}

/// Whether a command may run, and which line says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may, as may any other: nothing limits the application.
    Unlimited,
    /// It may, because this line allows it by name.
    Allowed {
        /// The line, from 1.
        line: usize,
    },
    /// It may, because this line allows every command that no earlier one forbids.
    AllowedWithAll {
        /// The line, from 1.
        line: usize,
    },
    /// It may, because no line forbids it, and none allows anything.
    NotDenied,
    /// It may not, because this line forbids it.
    Denied {
        /// The line, from 1.
        line: usize,
    },
    /// It may not, because only what is allowed may and no line allows it.
    NotListed,
}

impl Decision {
    /// Says whether the command may run.
    #[must_use]
    pub fn allows(self) -> bool {
        !matches!(self, Decision::Denied { .. } | Decision::NotListed)
    }

    /// Says whether the command is one of a few that were named: then its caller must not turn it into another by what it
    /// passes along.
    #[must_use]
    pub fn is_by_name(self) -> bool {
        matches!(self, Decision::Allowed { .. })
    }
}

/// A decision, and what follows from it.
#[derive(Debug)]
pub struct Judgement {
    /// Whether the command may run.
    pub decision: Decision,
    /// The program that the rule names, for a command that is allowed by name. It is to be run instead of the one that was
    /// asked for: the way to that was the caller's choice, and may lead elsewhere by then.
    pub instead: Option<Program>,
}

impl From<Decision> for Judgement {
    fn from(decision: Decision) -> Judgement {
        Judgement { decision, instead: None }
    }
}

/// What can be said of a command before any file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screening {
    /// Nothing limits the application.
    Unlimited,
    /// It may not run, whatever file it is.
    Refused(Decision),
    /// It depends on the file.
    Undecided,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.effect, words_as_text(&self.words))
    }
}

/// Writes words so that [`Policy::parse`] reads the same; a lone `*` stays one.
fn words_as_text(words: &[String]) -> String {
    match words {
        [all] if all == "*" => "*".to_owned(),
        words => shell_words::join(words),
    }
}

impl Rule {
    /// Reads `allow WORDS` or `deny WORDS`, quoted as in a shell.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Rule, &'static str> {
        let (verb, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let effect = match verb {
            "allow" => Effect::Allow,
            "deny" => Effect::Deny,
            _ => {
                return Err(
                    "it is no section, no comment, and begins with neither `allow` nor `deny`",
                );
            }
        };
        let words = shell_words::split(rest).map_err(|_| "a quotation mark has no other")?;
        match words.first() {
            None => Err("it names no command"),
            Some(first) if first.is_empty() => Err("its command is empty"),
            Some(_) => Ok(Rule { effect, words }),
        }
    }

    /// Says whether this is about every command.
    fn is_about_all(&self) -> bool {
        matches!(&self.words[..], [all] if all == "*")
    }

    /// Says whether the arguments are those that the rule is about.
    fn fits(&self, arguments: &[Vec<u8>]) -> bool {
        let wanted = self.words.get(1..).unwrap_or_default();
        arguments.len() >= wanted.len()
            && wanted.iter().zip(arguments).all(|(rule, word)| rule.as_bytes() == word)
    }

    /// Says whether the rule's program has the file name of `name`.
    fn is_named(&self, name: &[u8]) -> bool {
        let file =
            |path: &[u8]| Path::new(OsStr::from_bytes(path)).file_name().map(ToOwned::to_owned);
        let word = self.words.first().map(String::as_bytes).unwrap_or_default();
        file(word).is_some_and(|own| file(name) == Some(own))
    }

    /// Looks the rule's program up: for each question, as programs come and go while the policy stays.
    fn program(&self, search: &OsStr) -> Option<Program> {
        let name = self.words.first()?;
        program::find(name.as_ref(), search, Path::new("/")).ok()
    }

    /// Says whether the rule, which is not about every command, is about this one, and returns the program that it names.
    fn matches(&self, wanted: &Wanted<'_>) -> Option<Program> {
        if !self.fits(wanted.arguments) {
            return None;
        }
        let named = self.program(wanted.search)?;
        let same = match self.effect {
            Effect::Allow => named.is_same_entry(wanted.program),
            // A link of the caller's own has whatever name he likes.
            Effect::Deny => {
                named.is_same_entry(wanted.program)
                    || named.is_same_file(wanted.program) && !wanted.program.is_in(wanted.search)
            }
        };
        same.then_some(named)
    }

    /// Says whether every command that `other` is about is one that this is about, as far as the words say.
    fn covers(&self, other: &Rule) -> bool {
        self.is_about_all() || !other.is_about_all() && other.words.starts_with(&self.words)
    }
}

/// Returns where the policy is in the configuration directory of the user.
#[must_use]
pub fn file(config: &Path) -> PathBuf {
    config.join("unjank/host-policy")
}

/// What a line of the file is.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Rule(Rule),
}

fn line(text: &str) -> Result<Line<'_>, &'static str> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Line::Nothing);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let name = rest.strip_suffix(']').ok_or("the name of the section has no end")?;
        check_name(name)?;
        return Ok(Line::Section(name));
    }
    Rule::parse(text).map(Line::Rule)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let stem = name.strip_suffix('*').unwrap_or(name);
    if name.is_empty() || name.len() > 255 {
        return Err("the name of the section is empty or too long");
    }
    match stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        true => Ok(()),
        false => Err("the name of the section is no application's"),
    }
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    ///
    /// A line is none: then nothing of the text should be trusted.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        for (number, content) in (1..).zip(text.lines()) {
            let wrong = |why| PolicyError { line: number, why };
            match line(content).map_err(wrong)? {
                Line::Nothing => {}
                Line::Section(name) => {
                    let known = policy.sections.iter().any(|section| section.name == name);
                    if known {
                        return Err(wrong("the section was there before"));
                    }
                    let name = name.to_owned();
                    policy.sections.push(Section { name, rules: Vec::new() });
                }
                Line::Rule(rule) => {
                    let section = policy.sections.last_mut();
                    let section = section.ok_or(wrong("it stands before the first section"))?;
                    section.rules.push((number, rule));
                }
            }
        }
        Ok(policy)
    }

    /// Says whether `application` may run `wanted`.
    ///
    /// The section with its name counts, else the one with the longest name that ends with `*` and fits. In it the
    /// first rule that is about the command counts. Where none is, only what is allowed may run if anything is.
    #[must_use]
    pub fn decide(&self, application: &Application, wanted: &Wanted<'_>) -> Judgement {
        let Some(section) = self.section_of(application) else {
            return Decision::Unlimited.into();
        };
        if section.limits_nothing() {
            return Decision::Unlimited.into();
        }
        for (line, rule) in &section.rules {
            let line = *line;
            match rule.effect {
                Effect::Allow if rule.is_about_all() => {
                    return Decision::AllowedWithAll { line }.into();
                }
                Effect::Deny if rule.is_about_all() => return Decision::Denied { line }.into(),
                effect => match rule.matches(wanted) {
                    None => {}
                    Some(_) if effect == Effect::Deny => return Decision::Denied { line }.into(),
                    named => {
                        let decision = Decision::Allowed { line };
                        return Judgement { decision, instead: named };
                    }
                },
            }
        }
        if section.allows_something() { Decision::NotListed } else { Decision::NotDenied }.into()
    }

    /// Says what is known of a command before any file is looked at: the way to a program may be the caller's, and endless.
    #[must_use]
    pub fn screen(
        &self,
        application: &Application,
        name: &[u8],
        arguments: &[Vec<u8>],
    ) -> Screening {
        let Some(section) = self.section_of(application) else { return Screening::Unlimited };
        if section.limits_nothing() {
            return Screening::Unlimited;
        }
        let about = |rule: &Rule| rule.is_about_all() || rule.fits(arguments);
        for (line, rule) in section.rules.iter().filter(|(_, rule)| about(rule)) {
            match rule.effect {
                Effect::Allow if rule.is_about_all() || rule.is_named(name) => {
                    return Screening::Undecided;
                }
                // Nothing before it allows the command.
                Effect::Deny if rule.is_about_all() => {
                    return Screening::Refused(Decision::Denied { line: *line });
                }
                Effect::Allow | Effect::Deny => {}
            }
        }
        match section.allows_something() {
            true => Screening::Refused(Decision::NotListed),
            false => Screening::Undecided,
        }
    }

    /// Returns the rules that never count, because an earlier one of their section is about all that they are about: their
    /// lines, and the lines of those.
    pub fn dead_rules(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sections.iter().flat_map(|section| {
            section.rules.iter().enumerate().filter_map(|(at, (line, rule))| {
                let earlier = section.rules.get(..at).unwrap_or_default();
                let covering = earlier.iter().find(|(_, other)| other.covers(rule));
                covering.map(|(by, _)| (*line, *by))
            })
        })
    }

    /// Says whether anything limits any application.
    #[must_use]
    pub fn limits_anybody(&self) -> bool {
        self.sections.iter().any(|section| !section.limits_nothing())
    }

    /// Returns the name of the section that counts for `application`.
    #[must_use]
    pub fn section_name(&self, application: &Application) -> Option<&str> {
        self.section_of(application).map(|section| section.name.as_str())
    }

    /// Returns the sections and their rules, in the order of the file.
    pub fn sections(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &Rule>)> {
        self.sections
            .iter()
            .map(|section| (section.name.as_str(), section.rules.iter().map(|(_, rule)| rule)))
    }

    fn section_of(&self, application: &Application) -> Option<&Section> {
        let name = application.policy_name();
        let exact = self.sections.iter().find(|section| section.name == name);
        // `*` is about what is in a sandbox: a program of the host runs what it wants anyway.
        let host = matches!(application, Application::Host);
        let fits = |section: &&Section| {
            section.name.strip_suffix('*').is_some_and(|stem| name.starts_with(stem)) && !host
        };
        exact.or_else(|| self.sections.iter().filter(fits).max_by_key(|section| section.name.len()))
    }
}

impl Section {
    /// Says whether there is nothing but `allow *`.
    fn limits_nothing(&self) -> bool {
        let mut rules = self.rules.iter().map(|(_, rule)| rule);
        let only_allows = rules.clone().all(|rule| rule.effect == Effect::Allow);
        self.rules.is_empty() || only_allows && rules.any(Rule::is_about_all)
    }

    fn allows_something(&self) -> bool {
        self.rules.iter().any(|(_, rule)| rule.effect == Effect::Allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const TEXT: &str = "\
# What my editor may do.
[org.vim.Vim]
allow sh -c true   
deny  'sh'
allow cat

[org.gnome.*]
deny sh
[*]
allow sh
";

    fn app(id: &str) -> Application {
        Application::Flatpak { id: id.to_owned(), instance: None }
    }

    /// What the policy says of a command; what can be said before its file is looked at must be the same.
    fn decide(policy: &Policy, application: &Application, words: &[&str]) -> Decision {
        let search = OsStr::new("/bin:/usr/bin");
        let program = program::find(words[0].as_ref(), search, Path::new("/")).unwrap();
        let arguments: Vec<Vec<u8>> =
            words[1..].iter().map(|word| word.as_bytes().into()).collect();
        let wanted = Wanted { program: &program, arguments: &arguments, search };
        let judgement = policy.decide(application, &wanted);
        let decision = judgement.decision;
        assert_eq!(judgement.instead.is_some(), decision.is_by_name(), "{words:?}");
        match policy.screen(application, words[0].as_bytes(), &arguments) {
            Screening::Unlimited => assert_eq!(decision, Decision::Unlimited, "{words:?}"),
            Screening::Refused(early) => {
                assert!(
                    !decision.allows() && !early.allows(),
                    "{words:?}: {early:?}, {decision:?}"
                );
            }
            Screening::Undecided => assert_ne!(decision, Decision::Unlimited, "{words:?}"),
        }
        decision
    }

    #[test]
    fn the_first_rule_of_the_nearest_section_counts() {
        let policy = Policy::parse(TEXT).unwrap();
        let vim = app("org.vim.Vim");
        assert_eq!(decide(&policy, &vim, &["sh", "-c", "true"]), Decision::Allowed { line: 3 });
        assert_eq!(decide(&policy, &vim, &["sh", "-c"]), Decision::Denied { line: 4 });
        assert_eq!(decide(&policy, &vim, &["/usr/bin/cat", "x"]), Decision::Allowed { line: 5 });
        assert_eq!(decide(&policy, &vim, &["ls"]), Decision::NotListed);
        assert_eq!(decide(&policy, &app("org.gnome.A"), &["ls"]), Decision::NotDenied);
        assert_eq!(decide(&policy, &app("org.gnome.A"), &["sh"]), Decision::Denied { line: 8 });
        assert_eq!(decide(&policy, &app("org.kde.A"), &["ls"]), Decision::NotListed);
        assert_eq!(decide(&policy, &Application::Host, &["ls"]), Decision::Unlimited);
        assert_eq!(decide(&Policy::default(), &vim, &["ls"]), Decision::Unlimited);
    }

    #[test]
    fn a_program_of_the_same_name_elsewhere_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sh");
        std::fs::copy("/bin/sh", &program).unwrap();
        let policy = Policy::parse(TEXT).unwrap();
        assert_eq!(
            decide(&policy, &app("org.kde.A"), &[program.to_str().unwrap()]),
            Decision::NotListed
        );
    }

    #[test]
    fn a_link_of_the_callers_own_is_judged_by_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (link, by_name) = (dir.path().join("harmless"), dir.path().join("cat"));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        std::os::unix::fs::symlink("/bin/cat", &by_name).unwrap();
        let policy = Policy::parse(TEXT).unwrap();
        let decide = |id, path: &Path| decide(&policy, &app(id), &[path.to_str().unwrap()]);
        assert_eq!(decide("org.gnome.A", &link), Decision::Denied { line: 8 });
        // What is allowed is the program of the session, not a link that may lead elsewhere in the next moment.
        assert_eq!(decide("org.vim.Vim", &by_name), Decision::NotListed);
    }

    #[test]
    fn what_is_allowed_by_name_is_the_program_of_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("bin");
        std::os::unix::fs::symlink("/bin", &link).unwrap();
        let policy = Policy::parse(TEXT).unwrap();
        let search = OsStr::new("/bin:/usr/bin");
        let asked = program::find("./bin/cat".as_ref(), search, dir.path()).unwrap();
        let wanted = Wanted { program: &asked, arguments: &[], search };
        let judgement = policy.decide(&app("org.vim.Vim"), &wanted);
        assert_eq!(judgement.instead.unwrap().path, Path::new("/bin/cat"));
    }

    #[test]
    fn what_no_file_could_make_allowed_is_refused_without_looking() {
        let policy = Policy::parse(TEXT).unwrap();
        let screen = |id: &str, words: &[&str]| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            policy.screen(&app(id), &words[0], &words[1..])
        };
        let refused = Screening::Refused(Decision::NotListed);
        assert_eq!(screen("org.vim.Vim", &["/proc/7/root/fuse/ls"]), refused);
        assert_eq!(screen("org.vim.Vim", &["sh", "-c", "false"]), refused);
        assert_eq!(screen("org.vim.Vim", &["/anywhere/cat", "x"]), Screening::Undecided);
        assert_eq!(screen("org.gnome.A", &["anything"]), Screening::Undecided);
        assert_eq!(screen("org.kde.A", &["ls"]), refused);
        let nothing = Policy::parse("[*]\ndeny *\n").unwrap();
        let early = nothing.screen(&app("org.x.Y"), b"/a", &[]);
        assert_eq!(early, Screening::Refused(Decision::Denied { line: 2 }));
        assert!(
            nothing.limits_anybody() && !Policy::parse("[*]\nallow *\n").unwrap().limits_anybody()
        );
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (text, line) in [
            ("allow git", 1),
            ("[a]\nallow", 2),
            ("[a]\n\n# x\nalow git", 4),
            ("[a\nallow git", 1),
            ("[a/b]", 1),
            ("[]", 1),
            ("[a]\n[a]", 2),
            ("[a]\nallow 'git", 2),
            ("[a]\nallow ''", 2),
        ] {
            assert_eq!(Policy::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
