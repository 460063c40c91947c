//! What each set of programs needs before it is at work: the rights, a kernel that shows its types, a ring and maps.

use std::io;

use super::assembler::AssembleError;
use super::btf::KernelTypesError;
use super::{AttachError, Map, MapKind, Ring};

/// Why a set of programs is not at work; nothing is left in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The user has not the right to it.
    #[error("cannot load programs into the kernel without CAP_BPF and CAP_PERFMON, which root has")]
    NotAllowed(#[source] io::Error),
    /// We see processes by other numbers than the kernel's programs do.
    #[error(
        "cannot use bpf inside a container with a PID namespace, where process IDs differ from those in the kernel"
    )]
    OtherNumbers,
    /// This machine has registers that the programs are not written for.
    #[error("cannot load programs into a kernel that is not of x86-64")]
    OtherMachine,
    /// The kernel's types are missing or have not what is needed.
    #[error(transparent)]
    Types(#[from] KernelTypesError),
    /// A map could not be made.
    #[error("cannot make the kernel's map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A program has a fault that we made.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// A program is not at work.
    #[error(transparent)]
    Program(AttachError),
}

impl LoadError {
    /// Returns why a map of this name could not be made or filled.
    #[must_use]
    pub fn of_map(name: &'static str, source: io::Error) -> LoadError {
        match source.kind() {
            io::ErrorKind::PermissionDenied => LoadError::NotAllowed(source),
            _ => LoadError::Map { name, source },
        }
    }
}

impl From<AttachError> for LoadError {
    fn from(error: AttachError) -> LoadError {
        match error {
            // The verifier has something to say of what it refuses.
            AttachError::Refused { log, source, .. }
                if log.is_empty() && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                LoadError::NotAllowed(source)
            }
            error => LoadError::Program(error),
        }
    }
}

/// The inode number of the PID namespace that the kernel starts with, `PROC_PID_INIT_INO`.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Returns whether processes have the same numbers for us as for the kernel's programs.
#[must_use]
pub fn is_in_first_namespace() -> bool {
    let namespace = rustix::fs::stat("/proc/self/ns/pid");
    namespace.is_ok_and(|namespace| namespace.st_ino == FIRST_NAMESPACE)
}

impl Ring {
    /// Makes the ring of a set of programs, and looks whether such programs can be used here at all.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn for_programs(name: &'static str, bytes: u32) -> Result<Ring, LoadError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(LoadError::OtherMachine);
        }
        let ring = Ring::new(name, bytes).map_err(|source| LoadError::of_map(name, source))?;
        if is_in_first_namespace() { Ok(ring) } else { Err(LoadError::OtherNumbers) }
    }
}

impl Map {
    /// As [`Map::new`], for a set of programs.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn for_programs(
        kind: MapKind,
        name: &'static str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Map, LoadError> {
        Map::new(kind, name, key_bytes, value_bytes, entries)
            .map_err(|source| LoadError::of_map(name, source))
    }
}
