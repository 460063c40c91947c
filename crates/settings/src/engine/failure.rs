//! What a failed write leaves, as a person reads it.

use std::io;
use std::path::Path;

use store::generation;
use store::publish::PublishError;

use super::answer::{ChangeError, EngineNotice, ErrorKind};

/// The database is as it was.
pub(super) const UNCHANGED: &str = "nothing was changed";
const MAYBE: &str =
    "it cannot be said whether it was replaced; it is read again before the next change";
const NOT_DURABLE: &str = "the change is in place but may not survive a power cut";

/// Returns the error of a publish that failed, with what it leaves.
pub(super) fn failure(path: &Path, error: &PublishError) -> ChangeError {
    let (what, now) = match error {
        PublishError::NotReplaced { step, .. } => {
            (format!("cannot {step} {}", path.display()), UNCHANGED)
        }
        PublishError::NotDurable { .. } => {
            (format!("cannot sync the directory of {}", path.display()), NOT_DURABLE)
        }
        _ => (format!("cannot replace {}", path.display()), MAYBE),
    };
    let mut change_error = ChangeError::new(&what, error.cause(), now);
    if matches!(error, PublishError::NotDurable { .. }) {
        change_error.kind = ErrorKind::NotDurable;
    }
    change_error
}

/// Raises the flag that tells readers of a `Writer` database to map it anew; a failure is a notice.
pub(super) fn raise(flag: &Path, reports: &mut Vec<EngineNotice>) {
    if let Err(error) = generation::raise(flag) {
        reports.push(aside("cannot tell readers that the database changed", flag, &error));
    }
}

/// Returns a notice of a failure that no caller waits for.
pub(super) fn aside(what: &str, path: &Path, error: &io::Error) -> EngineNotice {
    EngineNotice::Aside { text: format!("{what} ({}): {error}", path.display()) }
}
