//! Which application may run which commands: a file of sections with `allow` and `deny` lines, kept with its comments.

mod edit;
mod exposure;
mod variables;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::identity::CallerKind;
use super::program::{self, FoundProgram};

pub use edit::{EditedPolicy, with_rule, without_rule};
pub use exposure::{Exposure, ExposurePlaces, exposures};
pub use variables::is_harmless;

/// The rules of all applications; none at all allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPolicy {
    sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// An application's name, or one that ends with `*`.
    name: String,
    rules: Vec<(usize, CommandRule)>,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEffect {
    /// The command may run.
    Allow,
    /// The command may not run.
    Deny,
}

/// One rule: its effect, and the beginning of the commands to which it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    /// Its effect.
    pub effect: RuleEffect,
    /// The program and the arguments that a command must begin with; `*` alone is every command.
    pub words: Vec<String>,
}

/// Why a text is not a valid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot understand line {line} of the policy: {why}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A command that is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct RequestedCommand<'a> {
    /// The requested program.
    pub program: &'a FoundProgram,
    /// Its arguments.
    pub arguments: &'a [Vec<u8>],
    /// The `PATH` of the session, not that of the caller, by which the names in rules are looked up.
    pub search: &'a OsStr,
}

/// Whether a command may run, and which line decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// Allowed: no section limits the application.
    Unlimited,
    /// Allowed by name, by this line.
    Allowed {
        /// The line, from 1.
        line: usize,
    },
    /// Allowed by this line, which allows every command that no earlier line forbids.
    AllowedWithAll {
        /// The line, from 1.
        line: usize,
    },
    /// Allowed, because no line forbids it and the section has no `allow` line.
    NotDenied,
    /// Forbidden by this line.
    Denied {
        /// The line, from 1.
        line: usize,
    },
    /// Forbidden, because the section has `allow` lines and none applies.
    NotListed,
}

impl PolicyDecision {
    /// Returns whether the command may run.
    #[must_use]
    pub fn allows(self) -> bool {
        !matches!(self, PolicyDecision::Denied { .. } | PolicyDecision::NotListed)
    }

    /// Returns whether the command is allowed by name: then its caller must not change what it does by
    /// variables or descriptors.
    #[must_use]
    pub(crate) fn is_by_name(self) -> bool {
        matches!(self, PolicyDecision::Allowed { .. })
    }
}

/// A decision, with the program to run.
#[derive(Debug)]
pub struct Judgement {
    /// Whether the command may run.
    pub decision: PolicyDecision,
    /// The program that the rule names, for a command that is allowed by name. It must be run instead of the requested one,
    /// whose path the caller chose and may redirect meanwhile.
    pub instead: Option<FoundProgram>,
}

impl From<PolicyDecision> for Judgement {
    fn from(decision: PolicyDecision) -> Judgement {
        Judgement { decision, instead: None }
    }
}

/// The decision as far as it is possible before any file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screening {
    /// No section limits the application.
    Unlimited,
    /// It may not run, whichever file it is.
    Refused(PolicyDecision),
    /// It depends on the file.
    Undecided,
}

impl fmt::Display for RuleEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleEffect::Allow => "allow",
            RuleEffect::Deny => "deny",
        })
    }
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.effect, words_as_text(&self.words))
    }
}

/// Writes words so that [`HostPolicy::parse`] reads the same; a lone `*` stays one.
fn words_as_text(words: &[String]) -> String {
    match words {
        [all] if all == "*" => "*".to_owned(),
        words => shell_words::join(words),
    }
}

impl CommandRule {
    /// Reads `allow WORDS` or `deny WORDS`, quoted as in a shell.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<CommandRule, &'static str> {
        let (verb, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let effect = match verb {
            "allow" => RuleEffect::Allow,
            "deny" => RuleEffect::Deny,
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
            Some(_) => Ok(CommandRule { effect, words }),
        }
    }

    /// Returns whether the rule applies to every command.
    fn is_about_all(&self) -> bool {
        matches!(&self.words[..], [all] if all == "*")
    }

    /// Returns whether the arguments begin with those of the rule.
    fn fits(&self, arguments: &[Vec<u8>]) -> bool {
        let wanted = self.words.get(1..).unwrap_or_default();
        arguments.len() >= wanted.len()
            && wanted.iter().zip(arguments).all(|(rule, word)| rule.as_bytes() == word)
    }

    /// Returns whether the rule's program has the file name of `name`.
    fn is_named(&self, name: &[u8]) -> bool {
        let file =
            |path: &[u8]| Path::new(OsStr::from_bytes(path)).file_name().map(ToOwned::to_owned);
        let word = self.words.first().map(String::as_bytes).unwrap_or_default();
        file(word).is_some_and(|own| file(name) == Some(own))
    }

    /// Looks the rule's program up, for each decision, because programs are installed and removed while the policy stays.
    fn program(&self, search: &OsStr) -> Option<FoundProgram> {
        let name = self.words.first()?;
        program::find(name.as_ref(), search, Path::new("/")).ok()
    }

    /// Returns the program of the rule, which does not apply to every command, if the rule applies to this one.
    fn matches(&self, wanted: &RequestedCommand<'_>) -> Option<FoundProgram> {
        if !self.fits(wanted.arguments) {
            return None;
        }
        let named = self.program(wanted.search)?;
        let same = match self.effect {
            RuleEffect::Allow => named.is_same_entry(wanted.program),
            // A symlink of the caller can have any name.
            RuleEffect::Deny => {
                named.is_same_entry(wanted.program)
                    || named.is_same_file(wanted.program) && !wanted.program.is_in(wanted.search)
            }
        };
        same.then_some(named)
    }

    /// Returns whether this rule applies to every command of `other`, as far as the words tell.
    fn covers(&self, other: &CommandRule) -> bool {
        self.is_about_all() || !other.is_about_all() && other.words.starts_with(&self.words)
    }
}

/// Returns the path of the policy in the configuration directory of the user.
#[must_use]
pub fn file(config: &Path) -> PathBuf {
    config.join("unjank/host-policy")
}

/// The kind of a line.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Rule(CommandRule),
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
    CommandRule::parse(text).map(Line::Rule)
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

impl HostPolicy {
    /// Reads a policy.
    ///
    /// # Errors
    ///
    /// A line is invalid: then no part of the text may be used.
    pub fn parse(text: &str) -> Result<HostPolicy, PolicyError> {
        let mut policy = HostPolicy::default();
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

    /// Returns whether `application` may run `wanted`.
    ///
    /// The section with its name applies, else the one with the longest matching name that ends with `*`. In it the
    /// first matching rule decides. Without one, the command may run unless the section has `allow` lines.
    #[must_use]
    pub fn decide(&self, application: &CallerKind, wanted: &RequestedCommand<'_>) -> Judgement {
        let Some(section) = self.section_of(application) else {
            return PolicyDecision::Unlimited.into();
        };
        if section.limits_nothing() {
            return PolicyDecision::Unlimited.into();
        }
        for (line, rule) in &section.rules {
            let line = *line;
            match rule.effect {
                RuleEffect::Allow if rule.is_about_all() => {
                    return PolicyDecision::AllowedWithAll { line }.into();
                }
                RuleEffect::Deny if rule.is_about_all() => {
                    return PolicyDecision::Denied { line }.into();
                }
                effect => match rule.matches(wanted) {
                    None => {}
                    Some(_) if effect == RuleEffect::Deny => {
                        return PolicyDecision::Denied { line }.into();
                    }
                    named => {
                        let decision = PolicyDecision::Allowed { line };
                        return Judgement { decision, instead: named };
                    }
                },
            }
        }
        if section.allows_something() {
            PolicyDecision::NotListed
        } else {
            PolicyDecision::NotDenied
        }
        .into()
    }

    /// Decides as far as possible before any file is opened: the path of a program may be under the caller's control, and hang.
    #[must_use]
    pub fn screen(
        &self,
        application: &CallerKind,
        name: &[u8],
        arguments: &[Vec<u8>],
    ) -> Screening {
        let Some(section) = self.section_of(application) else { return Screening::Unlimited };
        if section.limits_nothing() {
            return Screening::Unlimited;
        }
        let about = |rule: &CommandRule| rule.is_about_all() || rule.fits(arguments);
        for (line, rule) in section.rules.iter().filter(|(_, rule)| about(rule)) {
            match rule.effect {
                RuleEffect::Allow if rule.is_about_all() || rule.is_named(name) => {
                    return Screening::Undecided;
                }
                // Nothing before it allows the command.
                RuleEffect::Deny if rule.is_about_all() => {
                    return Screening::Refused(PolicyDecision::Denied { line: *line });
                }
                RuleEffect::Allow | RuleEffect::Deny => {}
            }
        }
        match section.allows_something() {
            true => Screening::Refused(PolicyDecision::NotListed),
            false => Screening::Undecided,
        }
    }

    /// Returns the rules that never apply, because an earlier one of their section covers all their commands: their
    /// lines, and the lines of those rules.
    pub fn dead_rules(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sections.iter().flat_map(|section| {
            section.rules.iter().enumerate().filter_map(|(at, (line, rule))| {
                let earlier = section.rules.get(..at).unwrap_or_default();
                let covering = earlier.iter().find(|(_, other)| other.covers(rule));
                covering.map(|(by, _)| (*line, *by))
            })
        })
    }

    /// Returns whether the policy limits any application.
    #[must_use]
    pub fn limits_anybody(&self) -> bool {
        self.sections.iter().any(|section| !section.limits_nothing())
    }

    /// Returns the name of the section that applies to `application`.
    #[must_use]
    pub fn section_name(&self, application: &CallerKind) -> Option<&str> {
        self.section_of(application).map(|section| section.name.as_str())
    }

    /// Returns the sections and their rules, in the order of the file.
    pub fn sections(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &CommandRule>)> {
        self.sections
            .iter()
            .map(|section| (section.name.as_str(), section.rules.iter().map(|(_, rule)| rule)))
    }

    fn section_of(&self, application: &CallerKind) -> Option<&Section> {
        let name = application.policy_name();
        let exact = self.sections.iter().find(|section| section.name == name);
        // `*` applies to sandboxed applications: a program of the host can run any command anyway.
        let host = matches!(application, CallerKind::Host);
        let fits = |section: &&Section| {
            section.name.strip_suffix('*').is_some_and(|stem| name.starts_with(stem)) && !host
        };
        exact.or_else(|| self.sections.iter().filter(fits).max_by_key(|section| section.name.len()))
    }
}

impl Section {
    /// Returns whether there is nothing but `allow *`.
    fn limits_nothing(&self) -> bool {
        let mut rules = self.rules.iter().map(|(_, rule)| rule);
        let only_allows = rules.clone().all(|rule| rule.effect == RuleEffect::Allow);
        self.rules.is_empty() || only_allows && rules.any(CommandRule::is_about_all)
    }

    fn allows_something(&self) -> bool {
        self.rules.iter().any(|(_, rule)| rule.effect == RuleEffect::Allow)
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

    fn app(id: &str) -> CallerKind {
        CallerKind::Flatpak { id: id.to_owned(), instance: None }
    }

    /// Returns the decision, and checks that the decision without files does not contradict.
    fn decide(policy: &HostPolicy, application: &CallerKind, words: &[&str]) -> PolicyDecision {
        let search = OsStr::new("/bin:/usr/bin");
        let program = program::find(words[0].as_ref(), search, Path::new("/")).unwrap();
        let arguments: Vec<Vec<u8>> =
            words[1..].iter().map(|word| word.as_bytes().into()).collect();
        let wanted = RequestedCommand { program: &program, arguments: &arguments, search };
        let judgement = policy.decide(application, &wanted);
        let decision = judgement.decision;
        assert_eq!(judgement.instead.is_some(), decision.is_by_name(), "{words:?}");
        match policy.screen(application, words[0].as_bytes(), &arguments) {
            Screening::Unlimited => assert_eq!(decision, PolicyDecision::Unlimited, "{words:?}"),
            Screening::Refused(early) => {
                assert!(
                    !decision.allows() && !early.allows(),
                    "{words:?}: {early:?}, {decision:?}"
                );
            }
            Screening::Undecided => assert_ne!(decision, PolicyDecision::Unlimited, "{words:?}"),
        }
        decision
    }

    #[test]
    fn the_first_rule_of_the_nearest_section_counts() {
        let policy = HostPolicy::parse(TEXT).unwrap();
        let vim = app("org.vim.Vim");
        assert_eq!(
            decide(&policy, &vim, &["sh", "-c", "true"]),
            PolicyDecision::Allowed { line: 3 }
        );
        assert_eq!(decide(&policy, &vim, &["sh", "-c"]), PolicyDecision::Denied { line: 4 });
        assert_eq!(
            decide(&policy, &vim, &["/usr/bin/cat", "x"]),
            PolicyDecision::Allowed { line: 5 }
        );
        assert_eq!(decide(&policy, &vim, &["ls"]), PolicyDecision::NotListed);
        assert_eq!(decide(&policy, &app("org.gnome.A"), &["ls"]), PolicyDecision::NotDenied);
        assert_eq!(
            decide(&policy, &app("org.gnome.A"), &["sh"]),
            PolicyDecision::Denied { line: 8 }
        );
        assert_eq!(decide(&policy, &app("org.kde.A"), &["ls"]), PolicyDecision::NotListed);
        assert_eq!(decide(&policy, &CallerKind::Host, &["ls"]), PolicyDecision::Unlimited);
        assert_eq!(decide(&HostPolicy::default(), &vim, &["ls"]), PolicyDecision::Unlimited);
    }

    #[test]
    fn a_program_of_the_same_name_elsewhere_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sh");
        std::fs::copy("/bin/sh", &program).unwrap();
        let policy = HostPolicy::parse(TEXT).unwrap();
        assert_eq!(
            decide(&policy, &app("org.kde.A"), &[program.to_str().unwrap()]),
            PolicyDecision::NotListed
        );
    }

    #[test]
    fn a_link_of_the_callers_own_is_judged_by_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (link, by_name) = (dir.path().join("harmless"), dir.path().join("cat"));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        std::os::unix::fs::symlink("/bin/cat", &by_name).unwrap();
        let policy = HostPolicy::parse(TEXT).unwrap();
        let decide = |id, path: &Path| decide(&policy, &app(id), &[path.to_str().unwrap()]);
        assert_eq!(decide("org.gnome.A", &link), PolicyDecision::Denied { line: 8 });
        // The allowed program is that of the session, not a symlink that may be redirected at any time.
        assert_eq!(decide("org.vim.Vim", &by_name), PolicyDecision::NotListed);
    }

    #[test]
    fn what_is_allowed_by_name_is_the_program_of_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("bin");
        std::os::unix::fs::symlink("/bin", &link).unwrap();
        let policy = HostPolicy::parse(TEXT).unwrap();
        let search = OsStr::new("/bin:/usr/bin");
        let asked = program::find("./bin/cat".as_ref(), search, dir.path()).unwrap();
        let wanted = RequestedCommand { program: &asked, arguments: &[], search };
        let judgement = policy.decide(&app("org.vim.Vim"), &wanted);
        assert_eq!(judgement.instead.unwrap().path, Path::new("/bin/cat"));
    }

    #[test]
    fn what_no_file_could_make_allowed_is_refused_without_looking() {
        let policy = HostPolicy::parse(TEXT).unwrap();
        let screen = |id: &str, words: &[&str]| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            policy.screen(&app(id), &words[0], &words[1..])
        };
        let refused = Screening::Refused(PolicyDecision::NotListed);
        assert_eq!(screen("org.vim.Vim", &["/proc/7/root/fuse/ls"]), refused);
        assert_eq!(screen("org.vim.Vim", &["sh", "-c", "false"]), refused);
        assert_eq!(screen("org.vim.Vim", &["/anywhere/cat", "x"]), Screening::Undecided);
        assert_eq!(screen("org.gnome.A", &["anything"]), Screening::Undecided);
        assert_eq!(screen("org.kde.A", &["ls"]), refused);
        let nothing = HostPolicy::parse("[*]\ndeny *\n").unwrap();
        let early = nothing.screen(&app("org.x.Y"), b"/a", &[]);
        assert_eq!(early, Screening::Refused(PolicyDecision::Denied { line: 2 }));
        assert!(
            nothing.limits_anybody()
                && !HostPolicy::parse("[*]\nallow *\n").unwrap().limits_anybody()
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
            assert_eq!(HostPolicy::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
