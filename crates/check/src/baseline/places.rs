//! Paths as patterns that mean the same for another user, on another machine and in the next run.

use std::ffi::OsString;

use trace::report::spelling::spell;
use xdg::pattern;

/// The places that each user has elsewhere: the variable, and where it is below the home directory if it is not set.
const PLACES: [(&str, &str); 4] = [
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// The longest pattern in characters; the rest of a longer path is `*`.
const LONGEST: usize = 1024;

/// Where a user's files are, so that a pattern can say it in the same words for everybody.
#[derive(Clone, Debug, Default)]
pub struct UserPlaces {
    /// What a pattern says, and the path, spelt as reports are; the longest path first.
    places: Vec<(String, String)>,
}

impl UserPlaces {
    /// Makes the places of the variables of a program: `HOME` and the others.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> UserPlaces {
        let home = variable("HOME").map(OsString::into_encoded_bytes);
        UserPlaces::new(home.as_deref(), variable)
    }

    /// Makes the places of a user with this home directory, of the variables that are set.
    #[must_use]
    pub fn new(home: Option<&[u8]>, variable: impl Fn(&str) -> Option<OsString>) -> UserPlaces {
        let absolute = |name: &str| {
            let value = variable(name)?.into_encoded_bytes();
            let value = value.strip_suffix(b"/").unwrap_or(&value).to_vec();
            (value.len() > 1 && value[0] == b'/').then(|| spell(&value))
        };
        let home = home.filter(|home| home.len() > 1).map(spell);
        let mut places = Vec::new();
        for (name, below) in PLACES {
            let usual = || home.as_ref().map(|home| format!("{home}/{below}"));
            places.extend(absolute(name).or_else(usual).map(|path| (format!("${name}"), path)));
        }
        let runtime = absolute("XDG_RUNTIME_DIR");
        places.extend(runtime.map(|path| ("$XDG_RUNTIME_DIR".to_owned(), path)));
        let temporary = absolute("TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
        places.push(("$TMPDIR".to_owned(), temporary));
        places.extend(home.map(|home| ("~".to_owned(), home)));
        places.sort_by_key(|(_, path)| std::cmp::Reverse(path.len()));
        UserPlaces { places }
    }

    /// Returns the pattern of a path that is spelt as reports are: places by their names, and `*` for what is another in
    /// each run or version.
    #[must_use]
    pub fn pattern_of(&self, path: &str) -> String {
        let found = self.places.iter().find_map(|(name, place)| {
            let rest = path.strip_prefix(place.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some((name.as_str(), rest))
        });
        let (begin, rest) = found.unwrap_or(("", path));
        let general: Vec<String> = rest.split('/').map(component).collect();
        // What begins like a place and is none.
        let escape = if begin.is_empty() && rest.starts_with(['~', '$']) { "\\" } else { "" };
        let mut pattern = format!("{begin}{escape}{}", general.join("/"));
        if let Some((at, _)) = pattern.char_indices().nth(LONGEST) {
            pattern.truncate(at);
            // A cut must not leave half of an escape.
            pattern.truncate(pattern.rfind('/').map_or(0, |slash| slash + 1));
            pattern.push('*');
        }
        pattern
    }

    /// Returns a name without versions, as the last component of a path would be written.
    #[must_use]
    pub fn name_of(name: &str) -> String {
        component(name)
    }

    /// Returns whether a pattern matches a path that is spelt as reports are.
    #[must_use]
    pub fn matches(&self, pattern: &str, path: &str) -> bool {
        let expanded = self.places.iter().find_map(|(name, place)| {
            let rest = pattern.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| escaped(place) + rest)
        });
        glob(expanded.as_deref().unwrap_or(pattern), path)
    }
}

/// Returns whether a shell pattern matches the whole of a text, character by character.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let [pattern, text] = [pattern, text].map(|text| text.chars().collect::<Vec<char>>());
    pattern::matches(&pattern, &text)
}

/// Returns a pattern that matches this text alone.
pub(super) fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    text.chars().for_each(|letter| push_escaped(&mut pattern, letter));
    pattern
}

fn push_escaped(pattern: &mut String, letter: char) {
    if matches!(letter, '*' | '?' | '[' | '\\') {
        pattern.push('\\');
    }
    pattern.push(letter);
}

/// Returns the pattern of one component of a path.
fn component(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if is_uuid(name) || name.starts_with("tmp") && is_random_word(&name[3..]) {
        return if name.starts_with("tmp") { "tmp*".to_owned() } else { "*".to_owned() };
    }
    let end = temporary_suffix(&letters).unwrap_or(letters.len());
    let mut pattern = numbers(&letters[..end]);
    if end < letters.len() && !pattern.ends_with('*') {
        pattern.push('*');
    }
    pattern
}

/// Returns where the random end of a temporary name begins: `settings.ini.kLrTqz`, `.goutputstream-A1B2C3`.
fn temporary_suffix(letters: &[char]) -> Option<usize> {
    let at = letters.iter().rposition(|letter| !letter.is_ascii_alphanumeric())? + 1;
    let is_separated = ".-_".contains(letters[at - 1]);
    let suffix = &letters[at..];
    // mkstemp, GLib and Qt draw six letters, mktemp and dbus-daemon ten; names of people have ten letters, too.
    let capitals = suffix.iter().filter(|letter| letter.is_ascii_uppercase()).count();
    let has_digit = suffix.iter().any(char::is_ascii_digit);
    let is_drawn = suffix.len() == 6 || suffix.len() == 10 && (has_digit || capitals > 2);
    (is_separated && is_drawn && is_random(suffix)).then_some(at)
}

/// Returns whether letters look drawn: capitals among small letters behind the first one, or digits among letters.
fn is_random(letters: &[char]) -> bool {
    let has = |test: fn(&char) -> bool| letters.iter().any(test);
    let small = has(char::is_ascii_lowercase);
    let capital_inside = letters[1..].iter().any(char::is_ascii_uppercase);
    let digit = has(char::is_ascii_digit);
    small && capital_inside || digit && has(char::is_ascii_alphabetic)
}

/// Returns whether a word is what Python appends to `tmp`: eight small letters, digits and `_`.
fn is_random_word(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.len() == 8 && word.bytes().all(is_part)
}

fn is_uuid(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Writes `*` for versions (`1.2`, `.so.6`), numbers of three digits and more, names that are numbers, and long hashes.
fn numbers(letters: &[char]) -> String {
    let mut pattern = String::new();
    let mut at = 0;
    let push_star = |pattern: &mut String| {
        if !pattern.ends_with('*') || pattern.ends_with("\\*") {
            pattern.push('*');
        }
    };
    while at < letters.len() {
        let word = run(&letters[at..], |letter| letter.is_ascii_alphanumeric());
        if word >= 12 && is_hash(&letters[at..at + word]) {
            push_star(&mut pattern);
            at += word;
            continue;
        }
        let digits = run(&letters[at..], |letter| letter.is_ascii_digit());
        if digits == 0 {
            push_escaped(&mut pattern, letters[at]);
            at += 1;
            continue;
        }
        let mut end = at + digits;
        while letters.get(end) == Some(&'.') {
            let more = run(&letters[end + 1..], |letter| letter.is_ascii_digit());
            if more == 0 {
                break;
            }
            end += 1 + more;
        }
        let is_whole = at == 0 && end == letters.len();
        let is_version = end > at + digits || pattern.ends_with(".so.");
        if is_whole || is_version || digits >= 3 {
            push_star(&mut pattern);
        } else {
            pattern.extend(&letters[at..end]);
        }
        at = end;
    }
    pattern
}

fn run(letters: &[char], is_of: impl Fn(&char) -> bool) -> usize {
    letters.iter().take_while(|letter| is_of(letter)).count()
}

fn is_hash(letters: &[char]) -> bool {
    let digits = letters.iter().filter(|letter| letter.is_ascii_digit()).count();
    letters.iter().all(|letter| letter.is_ascii_hexdigit() && !letter.is_ascii_uppercase())
        && digits >= 3
        && digits < letters.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(set: &[(&str, &str)]) -> UserPlaces {
        UserPlaces::new(Some(b"/home/ana"), |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_path_means_the_same_for_another_user_and_in_the_next_run() {
        let general =
            |path: &str| places(&[("XDG_RUNTIME_DIR", "/run/user/1000")]).pattern_of(path);
        for (path, pattern) in [
            ("/home/ana/a.txt", "~/a.txt"),
            ("/home/ana", "~"),
            ("/home/anabel/a", "/home/anabel/a"),
            ("/home/ana/.config/app/settings", "$XDG_CONFIG_HOME/app/settings"),
            ("/home/ana/.cache/app/x", "$XDG_CACHE_HOME/app/x"),
            ("/run/user/1000/dconf/user", "$XDG_RUNTIME_DIR/dconf/user"),
            ("/tmp/dbus-kLrTqz", "$TMPDIR/dbus-*"),
            ("/tmp/tmp.kLrTqzAb12/x", "$TMPDIR/tmp.*/x"),
            ("/tmp/dbus-bmLwlVEOLl", "$TMPDIR/dbus-*"),
            ("/usr/org.gnome.TextEditor", "/usr/org.gnome.TextEditor"),
            ("/tmp/tmpab12cd_9/x", "$TMPDIR/tmp*/x"),
            ("/proc/4711/maps", "/proc/*/maps"),
            ("/usr/lib/libgtk-3.so.0.2404.32", "/usr/lib/libgtk-3.so.*"),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.*"),
            ("/usr/lib/python3.11/os.py", "/usr/lib/python*/os.py"),
            ("/usr/lib/libQt5Core.so.5.15.8", "/usr/lib/libQt5Core.so.*"),
            ("/etc/settings.ini.A1B2C3", "/etc/settings.ini.*"),
            ("/etc/README", "/etc/README"),
            ("/etc/db.sqlite", "/etc/db.sqlite"),
            ("/a/3830d5c3ddfd5cd38a049b759396e72e-le64.cache-8", "/a/*-le64.cache-8"),
            ("/a/1b4e28ba-2fa1-11d2-883f-0016d3cca427", "/a/*"),
            ("/a/what?[1]*", "/a/what\\?\\[1]\\*"),
            ("socket:[12345]", "socket:\\[*]"),
        ] {
            assert_eq!(general(path), pattern, "{path}");
        }
    }

    #[test]
    fn a_variable_counts_before_what_is_usual_and_the_longest_place_before_others() {
        let moved = places(&[("XDG_CACHE_HOME", "/home/ana/.cache/deep/"), ("TMPDIR", "relative")]);
        assert_eq!(moved.pattern_of("/home/ana/.cache/deep/x"), "$XDG_CACHE_HOME/x");
        assert_eq!(moved.pattern_of("/home/ana/.cache/x"), "~/.cache/x");
        assert_eq!(moved.pattern_of("/tmp/x"), "$TMPDIR/x");
        assert!(moved.matches("$XDG_CACHE_HOME/*", "/home/ana/.cache/deep/x"));
        assert!(!moved.matches("$XDG_CACHE_HOME/*", "/home/ana/.cache/x"));
        assert!(!moved.matches("~", "/home/anabel"));
    }

    proptest! {
        #[test]
        fn a_path_is_matched_by_its_pattern(path in r"(/home/ana|/tmp|/home/ana/\.config)?(/[a-zA-Z0-9.*?\[\]\\~$_-]{0,14}){0,6}") {
            let places = places(&[]);
            let pattern = places.pattern_of(&path);
            prop_assert!(places.matches(&pattern, &path), "{pattern:?} and {path:?}");
        }

        #[test]
        fn any_pattern_is_compared_with_any_path(pattern in any::<String>(), path in any::<String>()) {
            let _ = places(&[]).matches(&pattern, &path);
            prop_assert!(places(&[]).matches(&places(&[]).pattern_of(&path), &path));
        }
    }

    #[test]
    fn a_pattern_is_no_longer_than_its_limit() {
        let long = format!("/a{}", "/component[".repeat(400));
        let pattern = places(&[]).pattern_of(&long);
        assert!(pattern.chars().count() <= LONGEST + 2 && pattern.ends_with("/*"));
        assert!(places(&[]).matches(&pattern, &long));
    }
}
