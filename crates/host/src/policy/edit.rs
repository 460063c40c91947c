//! Changes of a policy's text: people's comments and order stay.

use super::{CommandRule, HostPolicy, Line, PolicyError, check_name, line};

/// A changed text of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedPolicy {
    /// The text.
    pub text: String,
    /// More specific rules about some of the same commands, which have precedence and say
    /// the opposite.
    pub exceptions: Vec<CommandRule>,
}

/// Returns `text` with `rule` in `section`; a rule about the same words is replaced.
///
/// It applies to all its commands except those of a rule with more words: `allow git` stands
/// behind `deny git push`. Everything else stays, comments too; a missing section is added.
///
/// # Errors
///
/// The text is no policy, or the section has no legal name (line 0).
pub fn with_rule(
    text: &str,
    section: &str,
    rule: &CommandRule,
) -> Result<EditedPolicy, PolicyError> {
    let text = without_rule(text, section, &rule.words)?.0;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(header) = lines.iter().position(|line| is_header(line, section)) else {
        if lines.last().is_some_and(|last| !last.trim().is_empty()) {
            lines.push(String::new());
        }
        lines.push(format!("[{section}]"));
        lines.push(rule.to_string());
        return Ok(EditedPolicy { text: joined(&lines), exceptions: Vec::new() });
    };
    let mut place = header + 1;
    let mut exceptions = Vec::new();
    for (at, content) in lines.iter().enumerate().skip(header + 1) {
        match line(content) {
            Ok(Line::Section(_)) => break,
            // Behind this rule the new one would never apply.
            Ok(Line::Rule(other)) if other.covers(rule) => break,
            Ok(Line::Rule(other)) if rule.covers(&other) => {
                place = at + 1;
                if other.effect != rule.effect {
                    exceptions.push(other);
                }
            }
            _ => {}
        }
    }
    lines.insert(place, rule.to_string());
    Ok(EditedPolicy { text: joined(&lines), exceptions })
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
    HostPolicy::parse(text)?;
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
    use super::super::RuleEffect;
    use super::super::tests::TEXT;
    use super::*;

    fn added(text: &str, section: &str, rule: &str) -> EditedPolicy {
        with_rule(text, section, &CommandRule::parse(rule).unwrap()).unwrap()
    }

    #[test]
    fn a_rule_is_added_and_taken_away_beside_what_people_wrote() {
        let rule = CommandRule::parse("allow sh -c 'echo a b'").unwrap();
        let text = added(TEXT, "org.vim.Vim", "allow sh -c 'echo a b'").text;
        assert!(text.contains("[org.vim.Vim]\nallow sh -c 'echo a b'\nallow sh -c true"), "{text}");
        assert!(text.starts_with("# What my editor may do.\n"));
        let (removed, count) = without_rule(&text, "org.vim.Vim", &rule.words).unwrap();
        assert_eq!((removed.as_str(), count), (TEXT, 1));

        let turned = added(TEXT, "org.vim.Vim", "deny cat").text;
        assert!(!turned.contains("allow cat") && turned.contains("deny cat"));
        assert_eq!(added("", "org.a.B", "allow *").text, "[org.a.B]\nallow *\n");
        assert!(with_rule("", "a b", &rule).is_err());
        assert!(with_rule("nonsense", "a", &rule).is_err());
    }

    #[test]
    fn a_rule_with_fewer_words_stands_behind_those_that_it_would_hide_and_says_so() {
        let push = CommandRule::parse("deny git push").unwrap();
        let forbidden = added("[a]\nallow ls\n", "a", "deny git push").text;
        let both = added(&forbidden, "a", "allow git");
        assert_eq!(both.text, "[a]\ndeny git push\nallow git\nallow ls\n");
        assert_eq!(both.exceptions, std::slice::from_ref(&push));
        // The other order, and rules for all commands.
        let turned = added("[a]\nallow git\n", "a", "deny git push");
        assert_eq!(turned.text, "[a]\ndeny git push\nallow git\n");
        assert_eq!(turned.exceptions, []);
        let all = added(&both.text, "a", "deny *");
        assert_eq!(all.text, "[a]\ndeny git push\nallow git\nallow ls\ndeny *\n");
        assert_eq!(all.exceptions.len(), 2);
        let before_all = added(&all.text, "a", "allow cat");
        assert!(before_all.text.find("allow cat") < before_all.text.find("deny *"));
        // A rule that was hidden before stays hidden, and does not hide the new one.
        let hidden = added("[a]\ndeny *\ndeny git push\n", "a", "allow git");
        assert_eq!(hidden.text, "[a]\nallow git\ndeny *\ndeny git push\n");
        assert_eq!(push.effect, RuleEffect::Deny);
    }

    #[test]
    fn rules_that_never_count_are_found() {
        let text = "[a]\nallow git\ndeny git push\nallow git-lfs\nallow *\ndeny ls\n[b]\ndeny ls\n";
        let dead: Vec<_> = HostPolicy::parse(text).unwrap().dead_rules().collect();
        assert_eq!(dead, [(3, 2), (6, 5)]);
    }
}
