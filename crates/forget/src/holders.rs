//! Programs that run now and may write again what they have in memory.

use std::collections::BTreeSet;

use super::{DocumentName, StoreKind, Survey};

/// A process of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProgram {
    /// Its number.
    pub pid: u32,
    /// Its name, as far as the kernel keeps it.
    pub name: String,
    /// Whether it has GTK loaded, and so may have the shared list in memory; `None` if it hangs in the kernel, so that nobody
    /// can tell.
    pub has_gtk: Option<bool>,
}

/// What a running program has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldDocuments {
    /// A list of its own, which it writes when it likes.
    OwnList,
    /// The shared list, which it reads again when that changes.
    SharedList,
    /// It hangs in the kernel, and what it has in memory cannot be told.
    Unknown,
}

/// Returns the programs that run and keep a list in memory with one of these documents, which they may write again.
#[must_use]
pub fn holders(
    survey: &Survey,
    chosen: &BTreeSet<DocumentName>,
    running: &[RunningProgram],
) -> Vec<(RunningProgram, HeldDocuments)> {
    let items = || survey.items.iter().filter(|item| chosen.contains(&item.name));
    let is_shared_kind = |kind| matches!(kind, StoreKind::Xbel | StoreKind::Journal);
    // In these stores the name is of who opened the document, in the others of who keeps the list.
    let names_openers = |kind| {
        is_shared_kind(kind)
            || matches!(kind, StoreKind::Links | StoreKind::Activities | StoreKind::Log)
    };
    let names = |of_openers| -> BTreeSet<String> {
        let items = items().filter(|item| names_openers(item.kind) == of_openers);
        items.flat_map(|item| item.applications.iter().map(|name| last_part(name))).collect()
    };
    let (openers, owners) = (names(true), names(false));
    let is_shared = items().any(|item| is_shared_kind(item.kind));
    let held = |program: &RunningProgram| {
        let name = last_part(&program.name);
        let is_in =
            |known: &BTreeSet<String>| known.contains(&name) || known.contains(&plain(&name));
        // One of another toolkit that opened the document keeps its list somewhere; GTK's is the shared one.
        let has_gtk = program.has_gtk;
        if is_in(&owners) || (is_in(&openers) && has_gtk == Some(false)) {
            return Some(HeldDocuments::OwnList);
        }
        match has_gtk {
            Some(true) => is_shared.then_some(HeldDocuments::SharedList),
            Some(false) => None,
            None => Some(HeldDocuments::Unknown),
        }
    };
    running.iter().filter_map(|program| Some((program.clone(), held(program)?))).collect()
}

fn last_part(name: &str) -> String {
    let name = name.strip_suffix(".desktop").unwrap_or(name);
    let last = name.rsplit(['.', '/']).next().unwrap_or(name).to_lowercase();
    // The kernel keeps fifteen bytes of a program's name.
    last.chars().take(15).collect()
}

/// Returns the name of one of GNOME's programs as its identifier has it: `texteditor` of `gnome-text-edit`.
fn plain(name: &str) -> String {
    let name = if name == "gnome-text-edit" { "gnome-text-editor" } else { name };
    name.trim_start_matches("gnome-").replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::super::RememberedDocument;
    use super::*;

    #[test]
    fn a_program_is_named_that_has_a_list_in_memory() {
        let name = DocumentName::of_path(std::path::Path::new("/a"));
        let item = |kind, application: &str| RememberedDocument {
            name: name.clone(),
            uri: None,
            kind,
            file: "/x".into(),
            applications: vec![application.to_owned()],
            at: None,
        };
        let survey = Survey {
            items: vec![
                item(StoreKind::Settings, "okular"),
                item(StoreKind::Session, "org.gnome.TextEditor"),
                item(StoreKind::Xbel, "Viewer"),
            ],
            troubles: Vec::new(),
        };
        let program = |pid, name: &str, has_gtk| RunningProgram {
            pid,
            name: name.into(),
            has_gtk: Some(has_gtk),
        };
        let running = [
            program(1, "okular", false),
            program(2, "gnome-text-edit", true),
            program(3, "mousepad", true),
            program(4, "bash", false),
        ];
        let chosen = [name.clone()].into();
        let found: Vec<_> = holders(&survey, &chosen, &running)
            .into_iter()
            .map(|(p, held)| (p.pid, held))
            .collect();
        assert_eq!(
            found,
            [
                (1, HeldDocuments::OwnList),
                (2, HeldDocuments::OwnList),
                (3, HeldDocuments::SharedList)
            ]
        );
        assert_eq!(holders(&survey, &BTreeSet::new(), &running), []);
    }
}
