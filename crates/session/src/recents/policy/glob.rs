//! Patterns of paths and names: `*` and `?` within a name, `[a-z]` and `[!a-z]`, `**` for any number of folders.

/// Tells whether a path matches: the pattern names it or a folder above it.
pub(super) fn matches_path(pattern: &[u8], path: &[u8]) -> bool {
    let patterns: Vec<&[u8]> = pattern.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    let path: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    // A folder that is denied takes what is in it along.
    let step = |pattern: &&[u8], name: &&[u8]| matches_name(pattern, name);
    walk(&patterns, &path, |pattern| *pattern == b"**", step, End::Prefix)
}

/// Tells whether a name matches as a whole.
pub(in crate::recents) fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (tokens, literal) = (tokens(pattern), |token: &Token<'_>| matches!(token, Token::Star));
    walk(&tokens, name, literal, |token, byte| token.takes(*byte), End::Whole)
}

/// Where a match may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Prefix,
}

/// Matches item by item; the last star that was passed takes one more when nothing else fits, so that the time is at
/// most the product of both lengths.
fn walk<P, T>(
    pattern: &[P],
    text: &[T],
    is_star: impl Fn(&P) -> bool,
    takes: impl Fn(&P, &T) -> bool,
    end: End,
) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    loop {
        match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (None, Some(_)) if end == End::Prefix => return true,
            (Some(item), _) if is_star(item) => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            (Some(item), Some(one)) if takes(item, one) => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            _ => {}
        }
        match star {
            Some((at, from)) if from < text.len() => {
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// A part of the pattern of a name.
enum Token<'a> {
    Byte(u8),
    Any,
    Star,
    Set { negated: bool, set: &'a [u8] },
}

impl Token<'_> {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Token::Byte(one) => *one == byte,
            Token::Any => true,
            Token::Star => false,
            Token::Set { negated, set } => {
                let mut found = false;
                let mut at = 0;
                while let Some(&first) = set.get(at) {
                    match (set.get(at + 1), set.get(at + 2)) {
                        (Some(b'-'), Some(&last)) => {
                            found |= (first..=last).contains(&byte);
                            at += 3;
                        }
                        _ => {
                            found |= first == byte;
                            at += 1;
                        }
                    }
                }
                found != *negated
            }
        }
    }
}

fn tokens(pattern: &[u8]) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        tokens.push(match byte {
            b'*' => Token::Star,
            b'?' => Token::Any,
            b'\\' if !tail.is_empty() => {
                rest = &tail[1..];
                Token::Byte(tail[0])
            }
            // The first character of a set may be the bracket that would end it.
            b'[' => {
                let negated = tail.first().is_some_and(|b| *b == b'!' || *b == b'^');
                let from = usize::from(negated);
                let end = tail.iter().skip(from + 1).position(|b| *b == b']');
                match end.map(|end| from + 1 + end) {
                    Some(end) => {
                        rest = &tail[end + 1..];
                        Token::Set { negated, set: &tail[from..end] }
                    }
                    None => Token::Byte(b'['),
                }
            }
            other => Token::Byte(other),
        });
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_what_it_names_and_what_is_below() {
        let matches = |pattern: &str, path: &str| matches_path(pattern.as_bytes(), path.as_bytes());
        assert!(matches("/home/a/Secret", "/home/a/Secret/x/y"));
        assert!(matches("/home/a/Secret/", "/home/a/Secret"));
        assert!(!matches("/home/a/Secret", "/home/a/Secrets"));
        assert!(matches("/home/*/x?.txt", "/home/b/x1.txt"));
        assert!(!matches("/home/*.txt", "/home/b/x.txt"), "a star stays in its name");
        assert!(matches("/home/**/*.key", "/home/a/b/c.key"));
        assert!(matches("/home/**/*.key", "/home/c.key"));
        assert!(matches("**/.git", "/a/b/.git/config"));
        assert!(!matches("/a/b/c", "/a/b"));
        assert!(matches("/[a-c]/[!x]", "/b/y") && !matches("/[a-c]/[!x]", "/b/x"));
        assert!(matches("/\\*", "/*") && !matches("/\\*", "/x"));
        assert!(matches_path(b"/\xff?", b"/\xff\xfe"), "names need not be UTF-8");
    }

    #[test]
    fn a_pattern_of_many_stars_ends() {
        let stars = "*a".repeat(200);
        assert!(!matches_name(stars.as_bytes(), &[b'a'; 150]));
        let folders = "**/a/".repeat(100);
        assert!(!matches_path(folders.as_bytes(), "/a/b".repeat(40).as_bytes()));
    }
}
