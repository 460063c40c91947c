//! Which parts are on that remove causes of hangs, and since when.

use ::hangs::remedy::{AppliedRemedies, HangRemedy};
use ::setup::SetupPart;
use ::setup::state::PartActivation;

use super::unix_ns;
use crate::cli::setup::state;

/// Returns what is on for this user.
pub(super) fn applied() -> AppliedRemedies {
    let states = state::of_session();
    let since = |remedy: HangRemedy| {
        let part = SetupPart::of_name(remedy.part()?)?;
        let since = match remedy {
            HangRemedy::SystemRun => states.on_for_all_since(part),
            // What is on for the system holds units of the system.
            HangRemedy::Run => states.on_for_user_since(part),
            _ => states.on_since(part),
        };
        (since != PartActivation::Off).then(|| (remedy, since.moment().map(unix_ns)))
    };
    AppliedRemedies::new(HangRemedy::ALL.into_iter().filter_map(since).collect())
}
