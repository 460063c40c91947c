//! Which parts are on that remove causes of hangs, and since when.

use std::time::SystemTime;

use ::hangs::remedy::{AppliedRemedies, HangRemedy};
use ::setup::SetupPart;

use crate::cli::setup::state;

/// Returns nanoseconds since 1970.
pub(super) fn unix_ns(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Returns what is on for this user.
pub(super) fn applied() -> AppliedRemedies {
    let since = |remedy: HangRemedy| {
        let part = SetupPart::of_name(remedy.part()?)?;
        let since = match remedy {
            HangRemedy::SystemRun => state::on_for_all_since(part)?,
            // What is on for the system holds units of the system.
            HangRemedy::Run => state::on_for_user_since(part)?,
            _ => state::on_since(part)?,
        };
        Some((remedy, since.and_then(unix_ns)))
    };
    AppliedRemedies::new(HangRemedy::ALL.into_iter().filter_map(since).collect())
}
