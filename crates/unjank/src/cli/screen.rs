//! What the screen can show, its width, colours and characters; how output gets there; and the progress of long work.
//!
//! Everything that a command prints goes through [`stdout`], [`stderr`], [`json`] or [`data`]:
//! nothing of it moves the cursor, sets a title or writes the clipboard, whatever text of others is in it.

#![expect(clippy::disallowed_methods, reason = "this is where output goes")]

use std::borrow::Cow;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use report::guard::{Content, Guard};
use report::paint::Paint;
use report::text::{Charset, spelled, visible};

use crate::error::Error;

/// Lines are no longer than this however wide the screen is.
const WIDEST: usize = 110;
/// The width of a screen that does not say, and of a pipe without `COLUMNS`.
const USUAL: usize = 80;
/// Nothing is written for a narrower screen than this.
const NARROWEST: usize = 20;

/// Returns the number of columns to write in on stdout.
pub(crate) fn width() -> usize {
    columns(io::stdout())
}

/// Returns the number of columns to write in on stderr.
pub(crate) fn error_width() -> usize {
    columns(io::stderr())
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn columns(stream: impl AsFd) -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    // Only a terminal has a size; what it says counts before what a shell exported once.
    let screen = rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    let known = screen.filter(|&columns| columns > 0).or_else(asked);
    known.filter(|&columns| columns > 0).map_or(USUAL, |columns| columns.clamp(NARROWEST, WIDEST))
}

/// Returns how stdout shows text: colours on a terminal without `NO_COLOR`, the characters of the locale.
pub(crate) fn paint() -> Paint {
    paint_of(&io::stdout())
}

/// Returns how stderr shows text.
pub(crate) fn error_paint() -> Paint {
    paint_of(&io::stderr())
}

/// Returns the characters that the locale has: ASCII unless it says UTF-8.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(crate) fn charset() -> Charset {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    charset_of(&locale.unwrap_or_default().to_string_lossy())
}

/// Returns the characters of a locale by its name: `de_DE.UTF-8@euro`.
fn charset_of(locale: &str) -> Charset {
    let codeset = locale.split_once('.').map_or("", |(_, codeset)| codeset);
    let codeset = codeset.split('@').next().unwrap_or_default();
    let is_utf8 = ["utf-8", "utf8"].iter().any(|name| codeset.eq_ignore_ascii_case(name));
    if is_utf8 { Charset::Unicode } else { Charset::Ascii }
}

/// Where a command writes to: stdout or stderr, held until it is dropped.
pub(crate) enum Output {
    /// Text, or JSON on a terminal: what a terminal would obey is escaped.
    Guarded(Guard<StdoutLock<'static>>),
    /// The same on stderr.
    GuardedError(Guard<StderrLock<'static>>),
    /// Data for a program: every byte as it is.
    Raw(StdoutLock<'static>),
}

/// Returns stdout for text that people read.
pub(crate) fn stdout() -> Output {
    Output::Guarded(Guard::new(io::stdout().lock(), paint(), Content::Text))
}

/// Returns stderr, which people read.
pub(crate) fn stderr() -> Output {
    Output::GuardedError(Guard::new(io::stderr().lock(), error_paint(), Content::Text))
}

/// Returns stdout for JSON. On a terminal its strings have escapes for what the terminal would obey.
pub(crate) fn json() -> Output {
    data_as(Content::Json)
}

/// Returns stdout for data that a program reads: every byte as it is on a pipe, as text on a terminal.
pub(crate) fn data() -> Output {
    data_as(Content::Text)
}

fn data_as(content: Content) -> Output {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        let paint = Paint::new(false, charset());
        Output::Guarded(Guard::new(stdout.lock(), paint, content))
    } else {
        Output::Raw(stdout.lock())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Guarded(out) => out.write(bytes),
            Output::GuardedError(out) => out.write(bytes),
            Output::Raw(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Guarded(out) => out.flush(),
            Output::GuardedError(out) => out.flush(),
            Output::Raw(out) => out.flush(),
        }
    }
}

/// Writes the text of a verdict; this stays what it is if the reader closes the output early.
pub(crate) fn tell(mut out: Output, text: &str) -> Result<(), Error> {
    verdict_stays(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::from))
}

/// Passes on what came of printing a verdict, which stays what it is if the reader closed the output early.
pub(crate) fn verdict_stays(printed: Result<(), Error>) -> Result<(), Error> {
    match printed {
        Err(error) if error.is_closed_pipe() => Ok(()),
        printed => printed,
    }
}

/// Writes a sentence that may hold text of others: it stays one line, whatever is in it.
macro_rules! sayln {
    ($out:expr, $($text:tt)*) => {
        writeln!($out, "{}", $crate::cli::screen::sentence(&format!($($text)*)))
    };
}
pub(crate) use sayln;

/// Returns a sentence on one line: what a terminal would obey is escaped.
pub(crate) fn sentence(text: &str) -> Cow<'_, str> {
    spelled(text, charset())
}

/// Returns text of others as a person may read it: what a terminal would obey is escaped.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    visible(text, charset())
}

/// Returns a name for [`data`]: as it is on a pipe, as [`shown`] on a terminal.
pub(crate) fn name(name: &str) -> Cow<'_, str> {
    if is_terminal() { shown(name) } else { Cow::Borrowed(name) }
}

/// Says whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Says whether stderr is a terminal.
pub(crate) fn is_error_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether stdout is a terminal on which any place can be written.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(crate) fn is_addressable() -> bool {
    let terminal = std::env::var_os("TERM").filter(|terminal| !terminal.is_empty());
    io::stdout().is_terminal() && terminal.is_some_and(|terminal| terminal != "dumb")
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn paint_of(stream: &impl IsTerminal) -> Paint {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Paint::new(stream.is_terminal() && !refused, charset())
}

impl Error {
    /// Prints the error with its causes and hints on stderr and returns the exit code.
    ///
    /// A reader that closed our output early is no error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        // Nobody is left to be told when stderr itself is gone.
        let _ = write!(stderr(), "{self}");
        self.exit_code()
    }

    /// Prints the error on stderr as a warning: the command goes on without what failed.
    pub(crate) fn warn(&self) {
        let text = self.to_string().replacen("unjank: ", "unjank: warning: ", 1);
        let _ = write!(stderr(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_locale_says_its_characters() {
        for locale in ["de_DE.UTF-8", "C.utf8", "en_US.utf-8@euro"] {
            assert_eq!(charset_of(locale), Charset::Unicode, "{locale}");
        }
        for locale in ["", "C", "POSIX", "de_DE", "de_DE.ISO-8859-1", "de_DE@euro"] {
            assert_eq!(charset_of(locale), Charset::Ascii, "{locale}");
        }
    }
}
