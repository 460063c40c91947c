//! What helps, and how it is done.

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it does, in a sentence without a full stop.
    pub text: String,
    /// The command that does it, ready to be pasted.
    pub command: Option<String>,
}
