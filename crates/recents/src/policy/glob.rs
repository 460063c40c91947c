//! Patterns of paths and names: `*` and `?` within a name, `[a-z]` and `[!a-z]`, `**` for any number of folders.

pub(crate) use xdg::pattern::matches as matches_name;

/// Tells whether a path matches: the pattern names it or a folder above it.
pub(super) fn matches_path(pattern: &[u8], path: &[u8]) -> bool {
    let patterns: Vec<&[u8]> = pattern.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    let path: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
    let (mut at, mut name) = (0, 0);
    // The last `**` that was passed takes one more name when nothing else fits.
    let mut star = None;
    loop {
        match (patterns.get(at), path.get(name)) {
            // A folder that is denied takes what is in it along.
            (None, _) => return true,
            (Some(&b"**"), _) => {
                at += 1;
                star = Some((at, name));
                continue;
            }
            (Some(pattern), Some(found)) if matches_name(pattern, found) => {
                (at, name) = (at + 1, name + 1);
                continue;
            }
            _ => {}
        }
        match star {
            Some((after, from)) if from < path.len() => {
                star = Some((after, from + 1));
                (at, name) = (after, from + 1);
            }
            _ => return false,
        }
    }
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
