//! The deny list: keys whose values are too private to be stored.

use std::borrow::Cow;

/// Paths whose values are not stored by default: secrets, and what people did and where.
pub const DEFAULT_DENY: &[&str] = &[
    "pass",
    "passcode",
    "passkey",
    "passwort",
    "pwd",
    "pw",
    "pin",
    "puk",
    "psk",
    "otp",
    "totp",
    "hotp",
    "jwt",
    "auth",
    "authorization",
    "bearer",
    "oauth",
    "oauth2",
    "seed",
    "mnemonic",
    "*apikey*",
    "*privatekey*",
    "*-key-data",
    "*wep-key*",
    "*wpa-key*",
    "*encryption-key*",
    "*license-key*",
    "*access-key*",
    "*recovery*code*",
    "*session-id*",
    "*sessionid*",
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

/// A pattern in which `*` stands for any text, and nothing else is special: no path holds a zero character.
type Stars = wildmatch::WildMatchPattern<'*', '\0'>;

/// Returns whether one of the patterns matches a path; case is ignored, and `_` is the same as `-`.
///
/// A pattern with a slash or a `*`, which stands for any text, matches the whole path. Any other is a word of it: `pin`
/// matches `/app/sim-pin` and `/app/simPin`, but not `/app/spinner`.
#[must_use]
pub fn is_denied<S: AsRef<str>>(patterns: &[S], path: &str) -> bool {
    let lower = plain(path);
    let words = words(path);
    patterns.iter().any(|pattern| {
        let pattern = plain(pattern.as_ref());
        let is_word = !pattern.is_empty() && !pattern.contains(['*', '/']);
        if is_word {
            words.iter().any(|word| *word == pattern)
        } else {
            Stars::new(&pattern).matches(&lower)
        }
    })
}

/// Returns a text in lower case with `-` for `_`.
fn plain(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte == b'_' || byte.is_ascii_uppercase()) {
        text.to_ascii_lowercase().replace('_', "-").into()
    } else {
        text.into()
    }
}

/// Splits a path into words in lower case: at everything but letters and digits, and before capitals.
fn words(path: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in path.chars() {
        let begins = letter.is_uppercase() && !before.is_uppercase();
        if begins || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
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
            ("/a/B_c", "/a/b-C", true),
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/bc", false),
            ("/a/*", "/a/b/c", true),
            ("*/c", "/a/b/c", true),
            ("/a*b*c", "/a/b/b/c", true),
            ("/a*c", "/a", false),
            ("/ab*bc", "/abc", false),
            ("", "/a", false),
            ("*", "/a", true),
            ("pin", "/a/sim-pin", true),
            ("pin", "/a/simPin/x", true),
            ("pin", "/a/SIM_PIN", true),
            ("pin", "/a/spinner", false),
            ("a-b", "/a-b", false),
        ] {
            assert_eq!(is_denied(&[pattern], path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn names_of_secrets_are_known_however_they_are_spelled() {
        for path in [
            "/org/app/pass",
            "/org/app/pass/imap",
            "/org/app/smtp-pass",
            "/org/app/smtpPass",
            "/org/app/SMTP_PASS",
            "/org/app/db.pwd",
            "/org/app/user-pw",
            "/org/app/password",
            "/org/app/Passwords/0",
            "/org/app/passwd-hash",
            "/org/app/passphrase",
            "/org/app/passcode",
            "/org/app/sim-pin",
            "/org/app/unlockPin",
            "/org/app/token",
            "/org/app/accessToken",
            "/org/app/refresh_token",
            "/org/app/oauth2",
            "/org/app/auth",
            "/org/app/auth-header",
            "/org/app/bearer",
            "/org/app/client-secret",
            "/org/app/clientSecret",
            "/org/app/api-key",
            "/org/app/apiKey",
            "/org/app/API_KEY",
            "/org/app/private-key",
            "/org/app/privateKey",
            "/org/app/private_key",
            "/org/app/wep-key0",
            "/org/app/psk",
            "/org/app/totp",
            "/org/app/credentials",
            "/org/app/cookie-jar",
            "/org/app/recovery-code",
            "/org/app/session-id",
            "/org/app/seed",
        ] {
            assert!(is_denied(DEFAULT_DENY, path), "{path}");
        }
        for path in [
            "/org/gnome/desktop/interface/font-name",
            "/org/gnome/desktop/background/picture-uri",
            "/org/app/compass-visible",
            "/org/app/bypass",
            "/org/app/pinned",
            "/org/app/spin-speed",
            "/org/app/keyboard/layout",
            "/org/app/author",
        ] {
            assert!(!is_denied(DEFAULT_DENY, path), "{path}");
        }
    }
}
