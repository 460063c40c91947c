//! Entries of sandboxed programs. They are told by their command line, which is ours to choose, so that the shared file,
//! other programs and a damaged journal keep them apart from the user's.

use super::{OpeningApplication, RecentEntry};

/// What the names of snaps begin with, as callers of host commands are named.
const SNAP: &str = "snap.";
/// What a program in a container of its own is called.
const OTHER: &str = "other";
/// How the command lines of sandboxes begin.
const RUN_FLATPAK: &str = "flatpak run --file-forwarding ";
const RUN_SNAP: &str = "snap run ";
const OPEN: &str = "xdg-open %u";

/// Returns the command line of every entry of the sandbox `name`. It opens the document in the sandbox again, whatever a
/// program in it asks for.
#[must_use]
pub fn command_line(name: &str) -> String {
    match name.strip_prefix(SNAP) {
        Some(snap) => format!("{RUN_SNAP}{snap} %u"),
        None if name == OTHER => OPEN.to_owned(),
        None => format!("{RUN_FLATPAK}{name} @@u %u @@"),
    }
}

/// Returns whether a program with this name and command line is a sandboxed one.
pub(super) fn is_sandboxed(name: &str, exec: &str) -> bool {
    let is_ours = [RUN_FLATPAK, RUN_SNAP, OPEN].iter().any(|start| exec.starts_with(start));
    is_ours && exec == command_line(name)
}

impl OpeningApplication {
    /// Returns whether it is sandboxed.
    #[must_use]
    pub(crate) fn is_sandboxed(&self) -> bool {
        is_sandboxed(&self.name, &self.exec)
    }
}

impl RecentEntry {
    /// Returns the name of the sandbox that the entry belongs to: the first, if no other program opened the document.
    #[must_use]
    pub fn sandbox(&self) -> Option<&str> {
        let first = self.applications.first()?;
        self.applications.iter().all(OpeningApplication::is_sandboxed).then_some(&*first.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Addition, JournalRecord, Privacy, RecentList, RecentTime, Uri};

    fn added(list: &mut RecentList, uri: &str, by: &str, exec: &str, at: i64) {
        list.apply(JournalRecord::Add(Addition {
            uri: Uri::exact(uri).unwrap(),
            mime: Some(format!("type/of-{by}")),
            groups: vec![format!("group of {by}")],
            privacy: Privacy::Private,
            application: by.into(),
            exec: exec.into(),
            at: RecentTime(at),
        }));
    }

    fn by_sandbox(list: &mut RecentList, uri: &str, name: &str, at: i64) {
        added(list, uri, name, &command_line(name), at);
    }

    #[test]
    fn sandboxes_are_told_by_the_command_line_that_is_theirs() {
        for name in ["org.kde.okular", "snap.firefox", "other"] {
            assert!(is_sandboxed(name, &command_line(name)), "{name}");
            assert!(!is_sandboxed("org.a.Other", &command_line(name)), "{name}");
        }
        assert!(!is_sandboxed("org.kde.okular", "okular %U"));
        assert!(!is_sandboxed("unjank", "xdg-open %u"));
    }

    #[test]
    fn what_a_sandbox_says_of_a_document_of_others_changes_nothing_of_theirs() {
        let mut list = RecentList::default();
        added(&mut list, "file:///a", "org.kde.okular", "okular %U", 1);
        let before = list.iter().next().unwrap().clone();
        by_sandbox(&mut list, "file:///a", "org.evil.App", 2);
        // A sandbox that is called as a program of the host is.
        by_sandbox(&mut list, "file:///a", "org.kde.okular", 3);
        let entry = list.iter().next().unwrap();
        assert_eq!((&entry.mime, &entry.groups), (&before.mime, &before.groups));
        assert_eq!(entry.applications[0], before.applications[0]);
        assert_eq!(entry.applications[1].exec, command_line("org.evil.App"));
        assert_eq!((entry.applications.len(), entry.sandbox()), (2, None));
        // Nor of another sandbox's.
        by_sandbox(&mut list, "file:///b", "org.a.App", 1);
        by_sandbox(&mut list, "file:///b", "org.evil.App", 2);
        let entry = list.iter().last().unwrap();
        assert_eq!(entry.groups, ["group of org.a.App"]);
        assert_eq!(entry.sandbox(), Some("org.a.App"));
        // The user's own opening makes it the user's.
        added(&mut list, "file:///b", "org.kde.okular", "okular %U", 3);
        assert_eq!(list.iter().last().unwrap().sandbox(), None);
        assert_eq!(list.iter().last().unwrap().mime.as_deref(), Some("type/of-org.kde.okular"));
    }

    #[test]
    fn a_sandbox_evicts_its_own_entries_only() {
        let mut list = RecentList::default();
        for number in 0..5000 {
            added(&mut list, &format!("file:///user/{number}"), "kate", "kate %U", number);
        }
        for number in 0..5200 {
            let uri = format!("file:///evil/{number}");
            by_sandbox(&mut list, &uri, "org.evil.App", 10_000 + number);
            by_sandbox(&mut list, &format!("{uri}/{}", "'".repeat(10_000)), "org.long.App", number);
        }
        list.limit(5000, None);
        let count = |sandbox| list.iter().filter(|entry| entry.sandbox() == sandbox).count();
        assert_eq!(count(None), 5000);
        assert_eq!(count(Some("org.evil.App")), super::super::MOST_OF_A_SANDBOX);
        assert!((1..10).contains(&count(Some("org.long.App"))), "they are long");
        // What was dropped does not come back from the shared file.
        let floors = list.floors(5000, None);
        let mut gone = RecentList::default();
        by_sandbox(&mut gone, "file:///evil/1", "org.evil.App", 10_001);
        by_sandbox(&mut gone, "file:///long/1", "org.long.App", 1);
        assert!(gone.iter().all(|entry| floors.exclude(entry)));
        // Nobody's time counts for the others.
        let mut fresh = RecentList::default();
        by_sandbox(&mut fresh, "file:///x", "org.third.App", 1);
        assert!(!floors.exclude(fresh.iter().next().unwrap()));
    }
}
