//! Why a file or a directory was not read: what it is, what this user may not see, or what the machine could not give just now.

use std::io;

use rustix::io::Errno;

/// Why something was not read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Unread {
    /// For people.
    pub(crate) reason: String,
    /// What the system said; nothing if it was read, and its contents cannot be used.
    pub(crate) error: Option<Errno>,
}

/// How long what keeps something from being read lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnreadCause {
    /// It is what it is: it can be read when it is another one.
    Itself,
    /// This user may not: another one may, or the same user in another session.
    Denied,
    /// The next try may succeed although nothing was changed.
    Passing,
}

impl Unread {
    /// Says why the contents cannot be used.
    pub(crate) fn contents(reason: impl ToString) -> Unread {
        Unread { reason: reason.to_string(), error: None }
    }

    /// Returns how long that lasts.
    pub(crate) fn cause(&self) -> UnreadCause {
        match self.error {
            Some(Errno::ACCESS | Errno::PERM) => UnreadCause::Denied,
            None
            | Some(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::NXIO
                | Errno::NODEV
                | Errno::INVAL
                | Errno::OVERFLOW,
            ) => UnreadCause::Itself,
            Some(_) => UnreadCause::Passing,
        }
    }

    /// Returns whether the process or the machine had nothing left to read with: then nothing that was made meanwhile can be believed.
    pub(crate) fn is_exhaustion(&self) -> bool {
        matches!(self.error, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
    }

    /// Returns whether the fault is neither the file's nor its permissions', but the machine's, a disk's or a server's: what others made before is better than what is made now.
    pub(crate) fn is_failure(&self) -> bool {
        self.cause() == UnreadCause::Passing
    }
}

impl From<Errno> for Unread {
    fn from(error: Errno) -> Unread {
        Unread { reason: io::Error::from(error).to_string(), error: Some(error) }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread { reason: error.to_string(), error: Errno::from_io_error(&error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_and_what_passes_is_told_from_what_stays() {
        let cause = |error: Errno| Unread::from(error).cause();
        assert_eq!(Unread::contents("x").cause(), UnreadCause::Itself);
        assert_eq!(cause(Errno::NOENT), UnreadCause::Itself);
        for denied in [Errno::ACCESS, Errno::PERM] {
            assert_eq!(cause(denied), UnreadCause::Denied);
            assert!(!Unread::from(denied).is_failure());
        }
        for error in
            [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::STALE, Errno::NOTCONN]
        {
            assert_eq!(cause(error), UnreadCause::Passing, "{error}");
            assert!(Unread::from(error).is_failure(), "{error}");
        }
        assert!(Unread::from(Errno::MFILE).is_exhaustion());
        assert!(!Unread::from(Errno::IO).is_exhaustion());
    }
}
