//! Which documents are meant.

use super::{DocumentName, RecentTime, RememberedDocument};

/// Which documents are meant: those that fit all that is said; if nothing is, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Documents, and folders with all that is below them; none means any.
    pub names: Vec<DocumentName>,
    /// Programs of which one opened the document, by the names that stores use; none means any.
    pub applications: Vec<String>,
    /// Opened then or later.
    pub since: Option<RecentTime>,
    /// Opened before that.
    pub before: Option<RecentTime>,
}

impl Selection {
    /// Whether nothing is said.
    #[must_use]
    pub(crate) fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether documents are chosen by their names alone.
    #[must_use]
    pub(crate) fn is_by_name_alone(&self) -> bool {
        self.applications.is_empty() && self.since.is_none() && self.before.is_none()
    }

    /// Whether an item shows that its document is meant.
    #[must_use]
    pub fn fits(&self, item: &RememberedDocument) -> bool {
        self.fits_name(&item.name)
            && (self.applications.is_empty()
                || item.applications.iter().any(|name| self.fits_application(name)))
            && self.since.is_none_or(|since| item.at.is_some_and(|at| at >= since))
            && self.before.is_none_or(|before| item.at.is_some_and(|at| at < before))
    }

    /// Whether a document of this name can be meant.
    #[must_use]
    pub(crate) fn fits_name(&self, name: &DocumentName) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.is_at_or_below(wanted))
    }

    /// Whether a program is one that is named: `org.kde.okular` is `okular` too.
    fn fits_application(&self, name: &str) -> bool {
        let short = |name: &str| {
            let name = name.strip_suffix(".desktop").unwrap_or(name);
            name.rsplit('.').next().unwrap_or(name).to_lowercase()
        };
        self.applications.iter().any(|wanted| short(wanted) == short(name))
    }
}
