//! The one error type of the command, and the one table of exit codes.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use probe::report::paragraph::without_error_numbers;
use report::text::{Charset, visible};
use rustix::io::Errno;
use sys::thread::CannotStart;

use crate::cli::screen;

/// What is told where the kernel refused a thread or a process.
const PROCESS_LIMIT: &str =
    "the limit on processes and threads may be reached; `ulimit -u` shows this user's";

/// The answer of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done; or: yes, all is well.
    Yes,
    /// Done, and the answer is no: something misses its frame, a file is damaged.
    No,
}

/// Who has to do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was typed cannot be done.
    User,
    /// The machine is not set up for it: no bus, no permission, a broken file.
    Config,
    /// Something else is using what is needed, or changed it meanwhile.
    Busy,
    /// Our fault.
    Internal,
    /// A command that `dconf` has too could not do its work; scripts expect `dconf`'s exit code.
    Dconf,
}

impl Kind {
    /// The table of exit codes, with [`Verdict`]: 0 yes, 1 no, 2 error.
    fn exit_code(self) -> u8 {
        match self {
            Kind::User | Kind::Config | Kind::Busy | Kind::Internal => 2,
            Kind::Dconf => 1,
        }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> ExitCode {
        match verdict {
            Verdict::Yes => ExitCode::SUCCESS,
            Verdict::No => ExitCode::from(1),
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Error {
    kind: Kind,
    /// What could not be done, without "cannot": `read the database "/…"`.
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    hints: Vec<String>,
}

impl Error {
    /// An error whose text is `cannot <what>`.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), source: None, hints: Vec::new() }
    }

    /// Adds the cause.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Adds something that the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hints.push(hint.into());
        self
    }

    /// Prints the error with its causes and hints on stderr and returns the exit code.
    ///
    /// A reader that closed our output early is no error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        // Nobody is left to be told when stderr itself is gone.
        let _ = write!(screen::stderr(), "{self}");
        ExitCode::from(self.kind.exit_code())
    }

    /// Returns the causes as one text.
    pub(crate) fn cause(&self) -> String {
        let mut texts = Vec::new();
        let mut cause = self.source.as_deref().map(|source| source as &dyn StdError);
        while let Some(error) = cause {
            texts.push(without_error_numbers(&error.to_string()));
            cause = error.source();
        }
        texts.join(": ")
    }

    /// Says whether the reader of our output closed it early.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let first = self.io_errors().next();
        first.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says whether the kernel refused a thread or a process.
    fn is_at_process_limit(&self) -> bool {
        self.io_errors().any(|error| {
            let is_thread = error.get_ref().is_some_and(|inner| inner.is::<CannotStart>());
            is_thread || error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
        })
    }

    /// Returns the errors of the operating system among the causes.
    fn io_errors(&self) -> impl Iterator<Item = &io::Error> {
        let first = self.source.as_deref().map(|source| source as &(dyn StdError + 'static));
        std::iter::successors(first, |&error| error.source())
            .filter_map(|error| error.downcast_ref::<io::Error>())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause();
        let colon = if cause.is_empty() { "" } else { ": " };
        // A path or a message of another program may hold anything: each part stays on its line.
        let shown = |text: &str| visible(text, Charset::Unicode).into_owned();
        writeln!(f, "unjank: cannot {}{colon}{}", shown(&self.what), shown(&cause))?;
        for hint in &self.hints {
            writeln!(f, "hint: {}", shown(hint))?;
        }
        if self.is_at_process_limit() {
            writeln!(f, "hint: {PROCESS_LIMIT}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Writing to the terminal or the pipe failed.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::new(Kind::Config, "write the output").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_printed_with_its_causes_once_and_its_hints() {
        let error = Error::new(Kind::Config, "open \"/x\"")
            .because(io::Error::from_raw_os_error(2))
            .hint("make it");
        assert_eq!(
            error.to_string(),
            "unjank: cannot open \"/x\": No such file or directory\nhint: make it\n"
        );
    }

    #[test]
    fn text_of_others_forges_no_line() {
        let error = Error::new(Kind::User, "read /tmp/a\nunjank: all is well\x1b[2J")
            .because("it says\r\u{202e}no")
            .hint("mv /tmp/a\nb c");
        assert_eq!(
            error.to_string(),
            "unjank: cannot read /tmp/a\\nunjank: all is well\\x1b[2J: it says\\r\\u{202e}no\nhint: mv /tmp/a\\nb c\n"
        );
    }

    #[test]
    fn a_pipe_that_was_closed_early_is_no_error() {
        let closed = Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(closed.is_closed_pipe());
        assert!(!Error::from(io::Error::from(io::ErrorKind::StorageFull)).is_closed_pipe());
    }

    #[test]
    fn a_refused_process_is_explained() {
        let refused = Error::new(Kind::Busy, "run ls")
            .because(io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error()));
        assert!(refused.to_string().contains("hint: the limit on processes"), "{refused}");
    }

    #[test]
    fn each_kind_has_its_exit_code() {
        let two = [Kind::User, Kind::Config, Kind::Busy, Kind::Internal];
        assert!(two.into_iter().all(|kind| kind.exit_code() == 2));
        assert_eq!(Kind::Dconf.exit_code(), 1, "as dconf");
    }
}
