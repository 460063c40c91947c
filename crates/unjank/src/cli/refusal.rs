//! The answer to a command line that cannot be run: help, or what is wrong with it.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use report::text::{Charset, visible_bytes};

use super::screen;

/// Prints help to stdout and returns 0, or what is wrong with a command line to stderr and returns 2.
pub(super) fn refuse(
    mut whole: clap::Command,
    arguments: &[OsString],
    error: clap::Error,
) -> ExitCode {
    // What was typed may be a pattern of the shell, and so a name that somebody else chose: the message quotes it.
    let shown = arguments.iter().map(|word| visible_bytes(word.as_bytes(), Charset::Unicode));
    whole.build();
    let error = whole.try_get_matches_from(shown.map(Cow::into_owned)).err().unwrap_or(error);
    let (mut out, paint, code) = match error.use_stderr() {
        true => (screen::stderr(), screen::error_paint(), 2),
        false => (screen::stdout(), screen::paint(), 0),
    };
    let text = error.render();
    // A closed pipe is no error.
    let _ = match paint.is_coloured() {
        true => write!(out, "{}", text.ansi()),
        false => write!(out, "{text}"),
    };
    ExitCode::from(code)
}
