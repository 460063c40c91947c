//! Which application opens what, asked of an index.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::layout::AppKey;
use super::record::IndexRecord;
use super::{Index, app};
use crate::apps::associations::{Apps, AssociationClaim, ClaimStep, ClaimVerdict, explain};
use crate::apps::installed::{Start, Usable};

/// Answers from an index, and remembers which programs are there.
#[derive(Debug)]
pub struct Openers<'a> {
    index: &'a Index,
    program_path: &'a [PathBuf],
    // A type has a handful of applications, and a hash would have to be seeded first.
    known: RefCell<BTreeMap<Box<str>, OpenerRecord<'a>>>,
}

/// What is known of an identifier.
#[derive(Clone, Copy, Debug)]
struct OpenerRecord<'a> {
    /// The desktop file that is used.
    used: Option<IndexRecord<'a>>,
    /// The directory of the first file of this identifier.
    level: Option<i64>,
}

impl<'a> Openers<'a> {
    /// Answers from `index`; programs are looked for in `program_path`.
    #[must_use]
    pub fn new(index: &'a Index, program_path: &'a [PathBuf]) -> Openers<'a> {
        Openers { index, program_path, known: RefCell::default() }
    }

    /// Returns whether the application of a record can be started.
    #[must_use]
    pub fn state(&self, record: IndexRecord<'a>) -> Usable {
        let start = Start {
            kind: record.text("Type"),
            hidden: record.is_true("Hidden"),
            directory: record.text("Path"),
            try_exec: record.text("TryExec"),
            command: record.text("Exec"),
        };
        start.usable(self.program_path)
    }

    /// Returns whether a menu of these desktops shows the application of a record.
    ///
    /// Of several files of one identifier the first alone counts; it must not be deleted, hidden from menus or meant for other desktops, and its program must be there.
    /// As GLib does it (`g_app_info_should_show`): the first desktop that either list names decides.
    #[must_use]
    pub fn is_in_menu(&self, record: IndexRecord<'a>, desktops: &[String]) -> bool {
        let first = record.text(app::ID).and_then(|id| self.index.apps_by(AppKey::Id, id).next());
        first.is_some_and(|first| first.path() == record.path())
            && !record.is_true("NoDisplay")
            && is_meant_for(record, desktops)
            && self.state(record) == Usable::Yes
    }

    /// Returns the desktop file that is used for an identifier: the first that can be started, unless one before it says that the application is deleted. Looked at once.
    #[must_use]
    pub fn app(&self, id: &str) -> Option<IndexRecord<'a>> {
        self.known(id).used
    }

    fn known(&self, id: &str) -> OpenerRecord<'a> {
        if let Some(known) = self.known.borrow().get(id) {
            return *known;
        }
        let all = || self.index.apps_by(AppKey::Id, id);
        let states = all().map(|record| (record, self.state(record)));
        let mut left = states.take_while(|(_, state)| *state != Usable::Hidden);
        let used = left.find(|(_, state)| *state == Usable::Yes);
        let known = OpenerRecord {
            used: used.map(|(record, _)| record),
            level: all().filter_map(|record| record.whole(app::LEVEL)).min(),
        };
        self.known.borrow_mut().insert(id.into(), known);
        known
    }

    /// Returns every claim on a type and its parents with what became of it.
    #[must_use]
    pub fn explain(&self, lineage: &[&str]) -> Vec<ClaimStep<'a>> {
        explain(lineage, |mime_type| self.claims_of(mime_type), self)
    }

    /// Returns the default application of a type, and the claim that decided.
    #[must_use]
    pub fn default_for(&self, mime_type: &str) -> Option<(IndexRecord<'a>, AssociationClaim<'a>)> {
        let lineage = self.index.lineage(mime_type);
        let steps = self.explain(&lineage);
        let decided = steps.into_iter().find(|step| step.verdict == ClaimVerdict::Chosen)?;
        Some((self.app(decided.claim.id)?, decided.claim))
    }

    /// Returns all applications that open a type, the default first.
    #[must_use]
    pub fn all_for(&self, mime_type: &str) -> Vec<IndexRecord<'a>> {
        let lineage = self.index.lineage(mime_type);
        let steps = self.explain(&lineage);
        let mut ids: Vec<&str> = Vec::new();
        for step in steps {
            let counts = matches!(step.verdict, ClaimVerdict::Chosen | ClaimVerdict::Later);
            if counts && !ids.contains(&step.claim.id) {
                ids.push(step.claim.id);
            }
        }
        ids.into_iter().filter_map(|id| self.app(id)).collect()
    }

    fn claims_of(&self, mime_type: &str) -> impl Iterator<Item = AssociationClaim<'a>> + use<'a> {
        self.index.claims(mime_type)
    }
}

/// Returns whether `OnlyShowIn` and `NotShowIn` let an application be shown on these desktops.
fn is_meant_for(record: IndexRecord<'_>, desktops: &[String]) -> bool {
    let names = |list: &str, desktop: &str| record.list(list).any(|name| name == desktop);
    let decided = desktops.iter().find_map(|desktop| {
        let is_meant = names("OnlyShowIn", desktop);
        (is_meant || names("NotShowIn", desktop)).then_some(is_meant)
    });
    decided.unwrap_or_else(|| record.get("OnlyShowIn").is_none())
}

impl Apps for Openers<'_> {
    fn is_usable(&self, id: &str) -> bool {
        self.app(id).is_some()
    }

    fn is_masked(&self, id: &str, level: u32) -> bool {
        self.known(id).level.is_some_and(|known| known < i64::from(level))
    }
}
