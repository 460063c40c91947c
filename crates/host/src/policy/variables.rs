//! The variables that a command which is allowed by name may inherit from its caller.
//!
//! Most programs run other programs, load libraries or read files that a variable names: `GIT_EXTERNAL_DIFF`, `PAGER`,
//! `PYTHONPATH`, `GCONV_PATH`. No list of them is complete, so the few harmless ones are listed instead.

/// Variables that only change how output looks.
const HARMLESS: [&str; 23] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "LINES",
    "NO_COLOR",
    "TERM",
];
/// The longest value of such a variable.
const MOST_BYTES: usize = 128;

/// Returns whether a command that is allowed by name may inherit this variable from its caller: it only changes how
/// output looks, and its value names no file.
#[must_use]
pub fn is_harmless(name: &str, value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@:+-".contains(&byte);
    HARMLESS.contains(&name)
        && value.len() <= MOST_BYTES
        && !value.starts_with('.')
        && value.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_how_to_show_something_may_be_given() {
        for (name, value) in [
            ("TERM", "xterm-256color"),
            ("LANG", "de_DE.UTF-8@euro"),
            ("LANGUAGE", "de:en_GB"),
            ("COLUMNS", "80"),
            ("NO_COLOR", ""),
        ] {
            assert!(is_harmless(name, value), "{name}={value}");
        }
    }

    #[test]
    fn what_may_run_or_load_something_may_not() {
        for name in [
            "PATH",
            "BROWSER",
            "GCONV_PATH",
            "LOCPATH",
            "GIT_EXTERNAL_DIFF",
            "GIT_SSH_COMMAND",
            "EDITOR",
            "VISUAL",
            "PAGER",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "RUBYOPT",
            "NODE_OPTIONS",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "IFS",
            "HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_DIRS",
            "TERMINFO",
            "TERMCAP",
            "NLSPATH",
            "TZ",
            "DISPLAY",
            "DBUS_SESSION_BUS_ADDRESS",
            "GTK_MODULES",
            "QT_PLUGIN_PATH",
            "GIO_EXTRA_MODULES",
            "LESSOPEN",
            "MANPAGER",
            "http_proxy",
            "SSH_ASKPASS",
            "GNUPGHOME",
            "lang",
            "LC_ALL ",
        ] {
            assert!(!is_harmless(name, "x"), "{name}");
        }
        let long = "x".repeat(MOST_BYTES + 1);
        for value in ["/tmp/evil", "../x", "a/b", ".", "a b", "a\n", "\x1b[31m", "$(x)", "é", &long]
        {
            assert!(!is_harmless("LANG", value), "{value}");
            assert!(!is_harmless("TERM", value), "{value}");
        }
    }
}
