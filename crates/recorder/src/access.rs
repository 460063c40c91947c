//! Who may use the service.

use trace::backend::bpf::served::protocol::AuthorizationPrompt;

use crate::caller::Caller;
use crate::polkit::{self, PolkitAnswer, PolkitError};

/// The system bus where it is not said otherwise.
pub const SYSTEM_BUS: &str = "unix:path=/run/dbus/system_bus_socket";

/// Who decides.
#[derive(Clone, Debug)]
pub struct AccessPolicy {
    /// The address of the system bus, where polkit is asked.
    pub bus: String,
    /// The group whose members are served where there is no polkit.
    pub group: Option<u32>,
}

impl Default for AccessPolicy {
    /// polkit on the system bus, and no group.
    fn default() -> AccessPolicy {
        AccessPolicy { bus: SYSTEM_BUS.to_owned(), group: None }
    }
}

impl AccessPolicy {
    /// Asks polkit; where it is not there, root and the members of the group may.
    ///
    /// # Errors
    ///
    /// The reason for the caller, without a full stop.
    pub(crate) fn check(&self, caller: &Caller, prompt: AuthorizationPrompt) -> Result<(), String> {
        let answer = polkit::ask(&self.bus, caller, prompt == AuthorizationPrompt::Allowed);
        match answer {
            Ok(PolkitAnswer::Yes) => Ok(()),
            Ok(PolkitAnswer::WithPassword) => Err(format!(
                "polkit wants a password for {}; unjank trace --backend bpf asks for it",
                polkit::ACTION
            )),
            Ok(PolkitAnswer::No) => Err(format!("polkit does not allow {}", polkit::ACTION)),
            Err(PolkitError::Absent(_)) if caller.user == 0 => Ok(()),
            Err(PolkitError::Absent(_)) if self.group.is_some_and(|group| caller.is_in(group)) => {
                Ok(())
            }
            Err(error @ PolkitError::Absent(_)) => match self.group {
                Some(group) => Err(format!("{error}, and the caller is not in the group {group}")),
                None => Err(format!("{error}, and no group is allowed instead")),
            },
            Err(error) => Err(report::error::chain(&error)),
        }
    }
}
