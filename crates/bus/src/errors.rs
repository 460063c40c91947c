//! The D-Bus error names, in one table, and the texts of the errors that we answer ourselves.
//!
//! Programs print the text and some compare the name, so both follow what the GDBus-based service answers.

use session::settings::engine::{ChangeError, ErrorKind};

/// `org.freedesktop.DBus.Error.UnknownMethod`: no such object, interface or method.
pub const UNKNOWN_METHOD: &str = "org.freedesktop.DBus.Error.UnknownMethod";
/// `org.freedesktop.DBus.Error.InvalidArgs`: the method exists, the arguments are not its own.
pub const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
/// `org.freedesktop.DBus.Error.Failed`: anything that has no better name.
pub const FAILED: &str = "org.freedesktop.DBus.Error.Failed";

/// Returns the D-Bus name of a failed change.
///
/// The names are those of GLib's file errors as GDBus puts them on the wire, because that is what
/// programs have been getting for a failed change.
#[must_use]
pub fn of_change(error: &ChangeError) -> &'static str {
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
            Refusal::WrongType { .. } | Refusal::NoProperties(_) | Refusal::NoProperty(_) => {
                INVALID_ARGS
            }
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
