//! The D-Bus error names, in one table, and the texts of the errors that we answer ourselves.
//!
//! Programs print the text and some compare the name, so both follow what the GDBus-based service answers.

use std::io;

pub use host::client::{HOST_REFUSED, INVALID_ARGS, NO_REPLY, UNKNOWN_METHOD};
use host::command::StartError;
use settings::engine::{ChangeError, ErrorKind};

/// `org.freedesktop.DBus.Error.Failed`: anything that has no better name.
pub const FAILED: &str = "org.freedesktop.DBus.Error.Failed";

/// `org.freedesktop.DBus.Error.FileNotFound`: there is no such program, or not its interpreter.
pub(crate) const FILE_NOT_FOUND: &str = "org.freedesktop.DBus.Error.FileNotFound";
/// `org.freedesktop.DBus.Error.AccessDenied`: the kernel, or whoever serves, does not let the caller.
pub(crate) const ACCESS_DENIED: &str = "org.freedesktop.DBus.Error.AccessDenied";
/// `org.freedesktop.DBus.Error.UnixProcessIdUnknown`: the caller has no such command.
pub(crate) const NO_SUCH_PID: &str = "org.freedesktop.DBus.Error.UnixProcessIdUnknown";
/// `org.freedesktop.DBus.Error.LimitsExceeded`: the caller has too much that runs or waits.
pub const LIMITS_EXCEEDED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";

/// Returns the D-Bus name of a host command that was not started.
#[must_use]
pub(crate) fn of_start(error: &StartError) -> &'static str {
    match error {
        StartError::NoCommand | StartError::Invalid(_) => INVALID_ARGS,
        StartError::Refused { .. } => HOST_REFUSED,
        StartError::TooMany { .. } => LIMITS_EXCEEDED,
        // Nobody may take this for a refusal and run it once more.
        StartError::MayHaveBegun { .. } => NO_REPLY,
        StartError::Program { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => FILE_NOT_FOUND,
            io::ErrorKind::PermissionDenied => ACCESS_DENIED,
            _ => FAILED,
        },
        _ => FAILED,
    }
}

/// Returns the D-Bus name of a signal that was not sent.
#[must_use]
pub(crate) fn of_signal(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => NO_SUCH_PID,
        io::ErrorKind::PermissionDenied => ACCESS_DENIED,
        io::ErrorKind::InvalidInput => INVALID_ARGS,
        // ESRCH has no kind of its own.
        _ if error.raw_os_error() == Some(3) => NO_SUCH_PID,
        _ => FAILED,
    }
}

/// Returns the D-Bus name of a failed change.
///
/// The names are those of GLib's file errors as GDBus puts them on the wire, because that is what
/// programs have been getting for a failed change.
#[must_use]
pub(crate) fn of_change(error: &ChangeError) -> &'static str {
    macro_rules! file_error {
        ($code:literal) => {
            concat!(
                "org.gtk.GDBus.UnmappedGError.Quark._g_2dfile_2derror_2dquark.Code",
                stringify!($code)
            )
        };
    }
    match error.kind {
        ErrorKind::Access => file_error!(2),
        ErrorKind::ReadOnly => file_error!(8),
        ErrorKind::NoSpace => file_error!(12),
        ErrorKind::Invalid => file_error!(17),
        ErrorKind::Io | ErrorKind::NotDurable => file_error!(21),
        // EDQUOT has no code of its own in GLib.
        _ => file_error!(24),
    }
}

/// A call that is answered with an error before anything looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no object at the path.
    #[error("Object does not exist at path \u{201c}{0}\u{201d}")]
    NoObject(String),
    /// The object has no such interface.
    #[error("No such interface \u{201c}{interface}\u{201d} on object at path {path}")]
    NoInterface {
        /// The interface that was asked for.
        interface: String,
        /// The object.
        path: String,
    },
    /// The interface is known and has no such method.
    #[error("No such method \u{201c}{0}\u{201d}")]
    NoMethod(String),
    /// Nothing takes this method with these arguments.
    #[error(
        "Method \u{201c}{method}\u{201d} on interface \u{201c}{interface}\u{201d} with signature \u{201c}{signature}\u{201d} does not exist"
    )]
    NoSuchCall {
        /// The method.
        method: String,
        /// Its interface.
        interface: String,
        /// The signature of the arguments.
        signature: String,
    },
    /// The arguments are of another type than the method's.
    #[error(
        "Type of message, \u{201c}({found})\u{201d}, does not match expected type \u{201c}({expected})\u{201d}"
    )]
    WrongType {
        /// The signature of the arguments.
        found: String,
        /// The signature of the method.
        expected: &'static str,
    },
    /// A `Properties` call named an interface that has no properties here.
    #[error("No such interface \u{201c}{0}\u{201d}")]
    NoProperties(String),
    /// A `Properties` call named a property that does not exist.
    #[error("No such property \u{201c}{0}\u{201d}")]
    NoProperty(String),
    /// A property is not to be changed.
    #[error("Property \u{201c}{0}\u{201d} is not writable")]
    ReadOnlyProperty(String),
    /// A number of flags has some that mean nothing.
    #[error("Unexpected argument")]
    UnknownFlags,
    /// An argument makes no sense.
    #[error("cannot use {0}")]
    Invalid(String),
    /// This machine has no identity that could be told.
    #[error("cannot read the machine id")]
    NoMachineId,
}

impl Refusal {
    /// Returns the D-Bus name of the error.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Refusal::NoObject(_)
            | Refusal::NoInterface { .. }
            | Refusal::NoMethod(_)
            | Refusal::NoSuchCall { .. } => UNKNOWN_METHOD,
            Refusal::WrongType { .. }
            | Refusal::NoProperties(_)
            | Refusal::NoProperty(_)
            | Refusal::ReadOnlyProperty(_)
            | Refusal::UnknownFlags
            | Refusal::Invalid(_) => INVALID_ARGS,
            Refusal::NoMachineId => FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_the_name_that_programs_know() {
        let error = ChangeError { kind: ErrorKind::NoSpace, text: String::new() };
        assert_eq!(
            of_change(&error),
            "org.gtk.GDBus.UnmappedGError.Quark._g_2dfile_2derror_2dquark.Code12"
        );
    }

    #[test]
    fn every_kind_of_error_has_a_legal_name() {
        for kind in [
            ErrorKind::Access,
            ErrorKind::ReadOnly,
            ErrorKind::NoSpace,
            ErrorKind::Quota,
            ErrorKind::Io,
            ErrorKind::NotDurable,
            ErrorKind::Invalid,
            ErrorKind::Failed,
        ] {
            let name = of_change(&ChangeError { kind, text: String::new() });
            assert!(zbus::names::ErrorName::try_from(name).is_ok(), "{name}");
        }
    }
}
