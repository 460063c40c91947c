//! The one error type of the command, and the one table of exit codes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::process::ExitCode;

use report::paragraph::without_error_numbers;
use report::text::{Charset, visible};
use sys::thread::{PROCESS_LIMIT, is_refusal};

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
pub(crate) enum FailureCategory {
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

impl FailureCategory {
    /// The table of exit codes, with [`Verdict`]: 0 yes, 1 no, 2 error.
    fn exit_code(self) -> u8 {
        match self {
            FailureCategory::User
            | FailureCategory::Config
            | FailureCategory::Busy
            | FailureCategory::Internal => 2,
            FailureCategory::Dconf => 1,
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
    kind: FailureCategory,
    /// What could not be done, without "cannot": `read the database "/…"`.
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    hints: Vec<String>,
    /// A cause of which only the text is kept was a thread or a process that the kernel refused.
    at_process_limit: bool,
}

impl Error {
    /// An error whose text is `cannot <what>`.
    pub(crate) fn new(kind: FailureCategory, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), source: None, hints: Vec::new(), at_process_limit: false }
    }

    /// Adds the cause.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Adds the text of a cause that cannot be kept, with those below it.
    pub(crate) fn because_of(mut self, cause: &(dyn StdError + 'static)) -> Error {
        self.at_process_limit |= is_refusal(cause);
        self.source = Some(causes(cause).into());
        self
    }

    /// Adds something that the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hints.push(hint.into());
        self
    }

    /// Returns the exit code of a command that ends with it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.exit_code())
    }

    /// Returns the causes as one text.
    pub(crate) fn cause(&self) -> String {
        self.source().map(causes).unwrap_or_default()
    }

    /// Says whether the reader of our output closed it early.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let first = self.io_errors().next();
        first.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says whether the kernel refused a thread or a process.
    fn is_at_process_limit(&self) -> bool {
        self.at_process_limit || self.source().is_some_and(is_refusal)
    }

    /// Returns the errors of the operating system among the causes.
    fn io_errors(&self) -> impl Iterator<Item = &io::Error> {
        self.source().into_iter().flat_map(io_errors)
    }
}

/// Returns an error and its causes as one text.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let all = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<String> = all.map(|error| without_error_numbers(&error.to_string())).collect();
    texts.join(": ")
}

/// Returns the errors of the operating system among an error and its causes.
fn io_errors<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a io::Error> {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
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
        Error::new(FailureCategory::Config, "write the output").because(error)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn an_error_is_printed_with_its_causes_once_and_its_hints() {
        let error = Error::new(FailureCategory::Config, "open \"/x\"")
            .because(io::Error::from_raw_os_error(2))
            .hint("make it");
        assert_eq!(
            error.to_string(),
            "unjank: cannot open \"/x\": No such file or directory\nhint: make it\n"
        );
    }

    #[test]
    fn text_of_others_forges_no_line() {
        let error = Error::new(FailureCategory::User, "read /tmp/a\nunjank: all is well\x1b[2J")
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
        let refused = Error::new(FailureCategory::Busy, "run ls")
            .because(io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error()));
        assert!(refused.to_string().contains("hint: the limit on processes"), "{refused}");
        let again = io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error());
        let told = Error::new(FailureCategory::Config, "go on tracing").because_of(&again);
        assert_eq!(
            told.to_string(),
            format!(
                "unjank: cannot go on tracing: Resource temporarily unavailable\nhint: {PROCESS_LIMIT}\n"
            )
        );
    }

    #[test]
    fn each_kind_has_its_exit_code() {
        let two = [
            FailureCategory::User,
            FailureCategory::Config,
            FailureCategory::Busy,
            FailureCategory::Internal,
        ];
        assert!(two.into_iter().all(|kind| kind.exit_code() == 2));
        assert_eq!(FailureCategory::Dconf.exit_code(), 1, "as dconf");
    }
}
