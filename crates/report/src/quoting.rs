//! Words as a shell and systemd take them.

use std::path::Path;

/// Quotes `text` for a shell if it needs it.
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%~".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Returns the path of a program as `ExecStart=` of a systemd unit takes it, in quotes.
///
/// `None` if it has characters that systemd takes for quotes or variables (systemd.service(5)), or is not UTF-8.
#[must_use]
pub fn unit_program(program: &Path) -> Option<String> {
    let path = program.to_str().filter(|path| !path.contains(['"', '\\', '$', '\n']))?;
    Some(format!("\"{}\"", path.replace('%', "%%")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_systemd_would_change_is_refused() {
        assert_eq!(unit_program(Path::new("/a b/c%d")).as_deref(), Some("\"/a b/c%%d\""));
        for strange in ["/a\"b", "/a$b", "/a\\b", "/a\nb"] {
            assert_eq!(unit_program(Path::new(strange)), None, "{strange:?}");
        }
    }

    #[test]
    fn a_pasted_path_survives_the_shell() {
        assert_eq!(quoted("~/.config/dconf"), "~/.config/dconf");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
