//! What `unjank ls` takes from the environment.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

use super::charset::Charset;

/// Variables and the terminal, as they were at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    /// Whether stdout is a terminal, and its columns if it says them.
    pub(super) terminal: Option<Terminal>,
    /// `COLUMNS`.
    pub(super) columns: Option<String>,
    /// `TABSIZE`.
    pub(super) tab_size: Option<String>,
    /// `QUOTING_STYLE`.
    pub(super) quoting_style: Option<String>,
    /// `TIME_STYLE`.
    pub(super) time_style: Option<String>,
    /// `LS_BLOCK_SIZE`, or `BLOCK_SIZE`.
    pub(super) block_size: Option<String>,
    /// `BLOCKSIZE`, for sizes on the disk alone.
    pub(super) disk_block_size: Option<String>,
    /// `POSIXLY_CORRECT`.
    pub(super) posix: bool,
    /// `LS_COLORS`.
    pub(super) colors: Option<OsString>,
    /// Whether `NO_COLOR` is set to something.
    pub(super) no_color: bool,
    /// `TERM`.
    pub(super) term: String,
    /// Whether `COLORTERM` is set to something.
    pub(super) color_term: bool,
    /// The locale of characters, by `LC_ALL`, `LC_CTYPE` and `LANG`.
    pub(super) characters: String,
    /// The locale of names' order.
    pub(super) collation: String,
    /// The locale of times.
    pub(super) times: String,
    /// `TZ`.
    pub(super) time_zone: Option<OsString>,
}

/// A terminal on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terminal {
    /// Its width, if it says one.
    pub(super) columns: Option<u16>,
}

impl Environment {
    /// Reads the variables and asks the terminal.
    #[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
    pub(super) fn read() -> Environment {
        let raw = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| raw(name).and_then(|value| value.into_string().ok());
        let locale = |category: &str| {
            text("LC_ALL").or_else(|| text(category)).or_else(|| text("LANG")).unwrap_or_default()
        };
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal().then(|| Terminal {
            columns: rustix::termios::tcgetwinsize(&stdout)
                .ok()
                .map(|size| size.ws_col)
                .filter(|columns| *columns > 0),
        });
        Environment {
            terminal,
            columns: text("COLUMNS"),
            tab_size: text("TABSIZE"),
            quoting_style: text("QUOTING_STYLE"),
            time_style: text("TIME_STYLE"),
            block_size: text("LS_BLOCK_SIZE").or_else(|| text("BLOCK_SIZE")),
            disk_block_size: text("BLOCKSIZE"),
            posix: std::env::var_os("POSIXLY_CORRECT").is_some(),
            colors: raw("LS_COLORS"),
            no_color: raw("NO_COLOR").is_some(),
            term: text("TERM").unwrap_or_default(),
            color_term: raw("COLORTERM").is_some(),
            characters: locale("LC_CTYPE"),
            collation: locale("LC_COLLATE"),
            times: locale("LC_TIME"),
            time_zone: std::env::var_os("TZ"),
        }
    }

    /// Returns the character set of the locale, by its name: `en_US.UTF-8`.
    pub(super) fn charset(&self) -> Charset {
        let codeset = self.characters.split_once('.').map_or("", |(_, codeset)| codeset);
        let codeset = codeset.split('@').next().unwrap_or_default();
        let is_utf8 = ["UTF-8", "utf8", "UTF8", "utf-8"].contains(&codeset);
        if is_utf8 { Charset::Utf8 } else { Charset::Ascii }
    }

    /// Returns the text of `LS_COLORS`.
    pub(super) fn colors(&self) -> Option<&[u8]> {
        self.colors.as_deref().map(OsStrExt::as_bytes)
    }
}

/// Says whether a locale is that of C: bytes in their order, no language.
pub(super) fn is_posix(locale: &str) -> bool {
    let language = locale.split('.').next().unwrap_or_default();
    matches!(language, "" | "C" | "POSIX")
}
