//! What the service gives up at its start, whoever starts it: all rights but the two that it needs.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What loading programs and attaching them takes.
const NEEDED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Why the service does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// It has less than it needs.
    #[error("cannot load programs into the kernel: CAP_BPF and CAP_PERFMON are needed")]
    Missing,
    /// The kernel did not take the rest away; nobody was served.
    #[error("cannot give up the capabilities that are not needed")]
    NotGivenUp(#[source] std::io::Error),
}

/// Gives up every capability but `CAP_BPF` and `CAP_PERFMON`, for the calling thread and those that it starts, and for good.
///
/// A program calls it before it starts threads.
///
/// # Errors
///
/// [`ConfineError`]: nobody may be served.
pub fn confine() -> Result<(), ConfineError> {
    let not_given_up = |error: rustix::io::Errno| ConfineError::NotGivenUp(error.into());
    set_no_new_privs(true).map_err(not_given_up)?;
    let has = capabilities(None).map_err(not_given_up)?;
    if !has.permitted.contains(NEEDED) {
        return Err(ConfineError::Missing);
    }
    let _ = clear_ambient_capability_set();
    if has.permitted == NEEDED {
        // The unit's filter of system calls has taken the rest of this away, too.
        return Ok(());
    }
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if !NEEDED.contains(one) {
            // It needs a capability itself, and with `no_new_privs` no program brings one back.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let kept = CapabilitySets {
        effective: NEEDED,
        permitted: NEEDED,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept).map_err(not_given_up)
}
