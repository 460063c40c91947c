//! Match rules: the receivers of a broadcast signal, as far as the recording contains the rules.
//!
//! D-Bus Specification, "Match Rules".

use super::peers::PeerId;

/// The most arguments that a rule can ask for.
const ARGUMENTS: u8 = 64;

/// A match rule; fields that it does not name match anything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MatchRule {
    /// Only this kind of message: `signal`.
    pub kind: Option<String>,
    /// The sender has this name.
    pub sender: Option<String>,
    /// Only of this interface.
    pub interface: Option<String>,
    /// Only with this name.
    pub member: Option<String>,
    /// Only of this object.
    pub path: Option<String>,
    /// Only of this object and those below it.
    pub path_namespace: Option<String>,
    /// The receiver has this name.
    pub destination: Option<String>,
    /// Only with these arguments.
    pub arguments: Vec<(u8, ArgumentMatch)>,
    /// Messages to other receivers, too: the rule of an old monitor.
    pub eavesdrops: bool,
}

/// The condition for an argument.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ArgumentMatch {
    /// This text.
    Text(String),
    /// This path, or one that is below the other.
    Path(String),
    /// This name, or one that begins with it and a dot.
    Namespace(String),
}

/// The fields of a signal that rules match.
#[derive(Clone, Copy)]
pub struct SignalFields<'a> {
    /// Whether a rule's `sender` is the sender.
    pub is_from: &'a dyn Fn(&str) -> bool,
    /// The interface.
    pub interface: &'a str,
    /// The name.
    pub member: &'a str,
    /// The object.
    pub path: &'a str,
    /// The leading arguments that are texts; `None` for others.
    pub arguments: &'a [Option<&'a str>],
}

impl MatchRule {
    /// Parses a rule; `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<MatchRule> {
        let mut rule = MatchRule::default();
        let mut rest = text.trim_matches([' ', ',']);
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=')?;
            let (value, after) = value(after);
            let value = Some(value);
            match key.trim() {
                "type" => rule.kind = value,
                "sender" => rule.sender = value,
                "interface" => rule.interface = value,
                "member" => rule.member = value,
                "path" => rule.path = value,
                "path_namespace" => rule.path_namespace = value,
                "destination" => rule.destination = value,
                "eavesdrop" => rule.eavesdrops = value.as_deref() == Some("true"),
                "arg0namespace" => rule.arguments.push((0, ArgumentMatch::Namespace(value?))),
                key => {
                    let number = key.strip_prefix("arg")?;
                    let (number, argument) = match number.strip_suffix("path") {
                        Some(number) => (number, ArgumentMatch::Path(value?)),
                        None => (number, ArgumentMatch::Text(value?)),
                    };
                    let number: u8 = number.parse().ok().filter(|number| *number < ARGUMENTS)?;
                    rule.arguments.push((number, argument));
                }
            }
            rest = after.trim_start_matches([' ', ',']);
        }
        Some(rule)
    }

    /// Returns whether the rule matches the signal.
    #[must_use]
    pub fn hears(&self, signal: &SignalFields<'_>) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|w| w == value);
        is(&self.kind, "signal")
            && self.destination.is_none()
            && is(&self.interface, signal.interface)
            && is(&self.member, signal.member)
            && is(&self.path, signal.path)
            && self.path_namespace.as_deref().is_none_or(|above| is_below(signal.path, above))
            && self.sender.as_deref().is_none_or(signal.is_from)
            && self.arguments.iter().all(|(at, wanted)| {
                let argument = signal.arguments.get(usize::from(*at)).copied().flatten();
                argument.is_some_and(|argument| wanted.fits(argument))
            })
    }
}

impl ArgumentMatch {
    fn fits(&self, argument: &str) -> bool {
        match self {
            ArgumentMatch::Text(text) => text == argument,
            ArgumentMatch::Path(path) => {
                path == argument
                    || path.ends_with('/') && argument.starts_with(&**path)
                    || argument.ends_with('/') && path.starts_with(argument)
            }
            ArgumentMatch::Namespace(name) => {
                let rest = argument.strip_prefix(&**name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
        }
    }
}

fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    above == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Takes a value off the front: apostrophes quote, and outside of them `\'` is one.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut is_quoted = false;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ',' if !is_quoted => return (value, &text[at..]),
            '\\' if !is_quoted && letters.peek().is_some_and(|(_, next)| *next == '\'') => {
                letters.next();
                value.push('\'');
            }
            letter => value.push(letter),
        }
    }
    (value, "")
}

/// The rules of all connections of a bus.
#[derive(Debug, Default)]
pub struct MatchRules {
    all: Vec<(PeerId, MatchRule)>,
}

impl MatchRules {
    /// Adds one; the same one twice has to be removed twice.
    pub fn add(&mut self, peer: PeerId, rule: MatchRule) {
        self.all.push((peer, rule));
    }

    /// Removes one that is the same.
    pub fn remove(&mut self, peer: PeerId, rule: &MatchRule) {
        let same = |(who, other): &(PeerId, MatchRule)| *who == peer && other == rule;
        if let Some(at) = self.all.iter().position(same) {
            self.all.swap_remove(at);
        }
    }

    /// Removes those of a connection that has left.
    pub fn forget(&mut self, peer: PeerId) {
        self.all.retain(|(who, _)| *who != peer);
    }

    /// Returns whose rules ask for what is sent to others.
    pub fn eavesdroppers(&self) -> impl Iterator<Item = PeerId> {
        self.all.iter().filter(|(_, rule)| rule.eavesdrops).map(|(peer, _)| *peer)
    }

    /// Returns whether any rule for this member looks at arguments.
    #[must_use]
    pub(crate) fn look_at_arguments(&self, interface: &str, member: &str) -> bool {
        self.all.iter().any(|(_, rule)| {
            !rule.arguments.is_empty()
                && rule.interface.as_deref().is_none_or(|wanted| wanted == interface)
                && rule.member.as_deref().is_none_or(|wanted| wanted == member)
        })
    }

    /// Returns the receivers of a signal, each once, in order.
    #[must_use]
    pub(crate) fn hearers(&self, signal: &SignalFields<'_>) -> Vec<PeerId> {
        let heard = self.all.iter().filter(|(_, rule)| rule.hears(signal));
        let mut hearers: Vec<PeerId> = heard.map(|(peer, _)| *peer).collect();
        hearers.sort_unstable();
        hearers.dedup();
        hearers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hears(rule: &str, arguments: &[Option<&str>]) -> bool {
        let is_from = |name: &str| name == ":1.5" || name == "org.example.A";
        let rule = MatchRule::parse(rule).unwrap();
        rule.hears(&SignalFields {
            is_from: &is_from,
            interface: "org.example.I",
            member: "Changed",
            path: "/a/b",
            arguments,
        })
    }

    #[test]
    fn a_rule_hears_what_it_names() {
        for rule in [
            "",
            "type='signal'",
            "type=signal,interface=org.example.I, member='Changed'",
            "sender='org.example.A',path='/a/b'",
            "path_namespace='/a'",
            "path_namespace='/'",
            "arg0='x',arg2path='/p/'",
            "arg0namespace='x'",
            "eavesdrop=true",
        ] {
            assert!(hears(rule, &[Some("x"), None, Some("/p/q")]), "{rule}");
        }
        for rule in [
            "type='method_call'",
            "interface='org.example.J'",
            "sender=':1.6'",
            "path='/a'",
            "path_namespace='/a/bc'",
            "arg0='y'",
            "arg1='x'",
            "arg5='x'",
            "arg0namespace='x.y'",
            "destination=':1.1'",
        ] {
            assert!(!hears(rule, &[Some("x"), None, Some("/p/q")]), "{rule}");
        }
    }

    #[test]
    fn quotes_are_as_in_the_specification() {
        let rule = MatchRule::parse(r"arg0='a,b',arg1=don\'t,arg2='\'").unwrap();
        let texts: Vec<&ArgumentMatch> =
            rule.arguments.iter().map(|(_, argument)| argument).collect();
        let text = |text: &str| ArgumentMatch::Text(text.to_owned());
        assert_eq!(texts, [&text("a,b"), &text("don't"), &text("\\")]);
        for wrong in ["type", "arg64='x'", "argx=1", "sort='x'"] {
            assert_eq!(MatchRule::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_rule_is_removed_once() {
        let mut rules = MatchRules::default();
        let rule = MatchRule::parse("member='Changed'").unwrap();
        let (one, two) = (PeerId::at(1), PeerId::at(2));
        for peer in [two, one, one] {
            rules.add(peer, rule.clone());
        }
        let is_from = |_: &str| true;
        let signal = SignalFields {
            is_from: &is_from,
            interface: "a.b",
            member: "Changed",
            path: "/",
            arguments: &[],
        };
        assert_eq!(rules.hearers(&signal), [one, two]);
        rules.remove(one, &rule);
        assert_eq!(rules.hearers(&signal), [one, two]);
        rules.remove(one, &rule);
        rules.forget(two);
        assert_eq!(rules.hearers(&signal), []);
    }
}
