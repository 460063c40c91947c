//! Which keys are too private for their values to be stored.

/// Paths whose values are never stored unless somebody says otherwise: secrets, and what people did and where.
pub const DEFAULT_DENY: &[&str] = &[
    "*password*",
    "*passwd*",
    "*passphrase*",
    "*secret*",
    "*token*",
    "*credential*",
    "*private-key*",
    "*api-key*",
    "*cookie*",
    "*history*",
    "*recent*",
    "*last-*",
    "*/session",
    "*opened*",
    "*open-files*",
    "*documents*",
    "*search*",
    "*location*",
];

/// Says whether one of the patterns matches the whole path. `*` stands for any text; case is ignored.
#[must_use]
pub fn is_denied<S: AsRef<str>>(patterns: &[S], path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    patterns.iter().any(|pattern| matches(&pattern.as_ref().to_ascii_lowercase(), &path))
}

/// Matches piece by piece: the first at the start, the last at the end, those between wherever they come first.
fn matches(pattern: &str, path: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        assert!(is_denied(DEFAULT_DENY, "/org/app/Proxy-Password"));
        assert!(is_denied(DEFAULT_DENY, "/org/app/recent-files/list"));
        assert!(!is_denied(DEFAULT_DENY, "/org/app/font-size"));
        for (pattern, path, expected) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/bc", false),
            ("/a/*", "/a/b/c", true),
            ("*/c", "/a/b/c", true),
            ("/a*b*c", "/a/b/b/c", true),
            ("/a*c", "/a", false),
            ("/ab*bc", "/abc", false),
            ("", "/a", false),
            ("*", "/a", true),
        ] {
            assert_eq!(is_denied(&[pattern], path), expected, "{pattern} {path}");
        }
    }
}
