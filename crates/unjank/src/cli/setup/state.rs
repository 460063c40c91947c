//! Which parts are on in this session, as its environment says.

use ::setup::state::PartStates;

use super::place;
use crate::cli::service_files::service_directories;

/// Returns who says which parts are on.
pub(crate) fn of_session() -> PartStates {
    PartStates {
        directories: place::directories(),
        service_directories: service_directories(),
        are_lists_volatile: crate::cli::recent::is_volatile().unwrap_or(false),
    }
}
