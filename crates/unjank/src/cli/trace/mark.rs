//! `unjank trace mark`: a moment that a program names itself.

use clap::Args;

use crate::error::{Error, FailureCategory, Verdict};

/// Say that a phase of the traced program begins.
///
/// Looks up /unjank-mark/NAME, which does not exist; programs do so themselves, in any language.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace mark first-frame")]
pub(super) struct Mark {
    /// The phase: up to 64 letters, digits, '.', '_' and '-'.
    #[arg(value_name = "NAME")]
    name: String,
}

impl Mark {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot = || Error::new(FailureCategory::User, format!("set the mark {:?}", self.name));
        trace::mark::set(&self.name).map_err(|error| cannot().because(error))?;
        Ok(Verdict::Yes)
    }
}
