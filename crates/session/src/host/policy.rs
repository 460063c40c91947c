//! Which application may run which commands: a file of sections with `allow` and `deny` lines, kept with its comments.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::identity::Application;
use super::program;

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
    /// The file that would be run, as [`program::find`] returns it.
    pub program: &'a Path,
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
    /// It may, because this line allows it.
    Allowed {
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
        matches!(self, Decision::Unlimited | Decision::Allowed { .. } | Decision::NotDenied)
    }
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

    fn is_about(&self, wanted: &Wanted<'_>) -> bool {
        let Some((program, arguments)) = self.words.split_first() else { return false };
        if arguments.is_empty() && program == "*" {
            return true;
        }
        let begins = wanted.arguments.len() >= arguments.len()
            && arguments.iter().zip(wanted.arguments).all(|(rule, word)| rule.as_bytes() == word);
        // Looked up for each question: programs come and go while the policy stays.
        begins
            && program::find(program.as_ref(), wanted.search, Path::new("/"))
                .is_ok_and(|found| program::same(&found, wanted.program))
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
    pub fn decide(&self, application: &Application, wanted: &Wanted<'_>) -> Decision {
        let Some(section) = self.section_of(application) else { return Decision::Unlimited };
        if let Some((line, rule)) = section.rules.iter().find(|(_, rule)| rule.is_about(wanted)) {
            return match rule.effect {
                Effect::Allow if rule.words == ["*"] && section.only_allows() => {
                    Decision::Unlimited
                }
                Effect::Allow => Decision::Allowed { line: *line },
                Effect::Deny => Decision::Denied { line: *line },
            };
        }
        match section.rules.iter().any(|(_, rule)| rule.effect == Effect::Allow) {
            true => Decision::NotListed,
            false => Decision::NotDenied,
        }
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
    fn only_allows(&self) -> bool {
        self.rules.iter().all(|(_, rule)| rule.effect == Effect::Allow)
    }
}

/// Returns `text` with `rule` as the first of `section`; a rule about the same words goes.
///
/// Everything else stays as it is, comments too; the section is made if it is not there.
///
/// # Errors
///
/// The text is no policy, or the section has no legal name (line 0).
pub fn with_rule(text: &str, section: &str, rule: &Rule) -> Result<String, PolicyError> {
    let text = without_rule(text, section, &rule.words)?.0;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let header = lines.iter().position(|line| is_header(line, section));
    match header {
        Some(header) => lines.insert(header + 1, rule.to_string()),
        None => {
            if lines.last().is_some_and(|last| !last.trim().is_empty()) {
                lines.push(String::new());
            }
            lines.push(format!("[{section}]"));
            lines.push(rule.to_string());
        }
    }
    Ok(joined(&lines))
}

/// Returns `text` without the rules of `section` about exactly these words, and how many there were.
///
/// # Errors
///
/// As [`with_rule`].
pub fn without_rule(
    text: &str,
    section: &str,
    words: &[String],
) -> Result<(String, usize), PolicyError> {
    Policy::parse(text)?;
    check_name(section).map_err(|why| PolicyError { line: 0, why })?;
    let mut inside = false;
    let mut kept = Vec::new();
    let mut removed = 0;
    for content in text.lines() {
        match line(content) {
            Ok(Line::Section(name)) => inside = name == section,
            Ok(Line::Rule(rule)) if inside && rule.words == words => {
                removed += 1;
                continue;
            }
            _ => {}
        }
        kept.push(content.to_owned());
    }
    Ok((joined(&kept), removed))
}

fn is_header(content: &str, section: &str) -> bool {
    matches!(line(content), Ok(Line::Section(name)) if name == section)
}

fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
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

    fn decide(policy: &Policy, application: &Application, words: &[&str]) -> Decision {
        let search = OsStr::new("/bin:/usr/bin");
        let program = program::find(words[0].as_ref(), search, Path::new("/")).unwrap();
        let arguments: Vec<Vec<u8>> =
            words[1..].iter().map(|word| word.as_bytes().into()).collect();
        policy.decide(application, &Wanted { program: &program, arguments: &arguments, search })
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
        let wanted = Wanted { program: &program, arguments: &[], search: OsStr::new("/bin") };
        assert_eq!(policy.decide(&app("org.kde.A"), &wanted), Decision::NotListed);
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

    #[test]
    fn a_rule_is_added_and_taken_away_beside_what_people_wrote() {
        let rule = Rule::parse("allow sh -c 'echo a b'").unwrap();
        let added = with_rule(TEXT, "org.vim.Vim", &rule).unwrap();
        assert!(
            added.contains("[org.vim.Vim]\nallow sh -c 'echo a b'\nallow sh -c true"),
            "{added}"
        );
        assert!(added.starts_with("# What my editor may do.\n"));
        let (removed, count) = without_rule(&added, "org.vim.Vim", &rule.words).unwrap();
        assert_eq!((removed.as_str(), count), (TEXT, 1));

        let rule = Rule::parse("deny cat").unwrap();
        let turned = with_rule(TEXT, "org.vim.Vim", &rule).unwrap();
        assert!(!turned.contains("allow cat") && turned.contains("deny cat"));
        let new = with_rule("", "org.a.B", &Rule::parse("allow *").unwrap()).unwrap();
        assert_eq!(new, "[org.a.B]\nallow '*'\n".replace("'*'", "*"));
        assert!(with_rule("", "a b", &rule).is_err());
        assert!(with_rule("nonsense", "a", &rule).is_err());
    }
}
