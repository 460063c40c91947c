//! What helps, and how it is done.

use serde::{Deserialize, Serialize};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What it does, in a sentence without a full stop.
    pub text: String,
    /// The command that does it, ready to be pasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}
