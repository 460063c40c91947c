//! What became of the documents that were to be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use recents::Recents;
use report::error::chain;

use super::holders::{HeldDocuments, RunningProgram, holders};
use super::name::DocumentName;
use super::search::{RemainingFile, SearchReport};
use super::{StoreKind, Survey, Trouble};

/// What the stores remembered of the chosen documents, and what is left of it.
#[derive(Debug)]
pub struct ForgetReport {
    pub(crate) home: PathBuf,
    /// The documents, by kind of store and file.
    pub(crate) found: BTreeMap<(StoreKind, PathBuf), BTreeSet<DocumentName>>,
    /// Programs that have a list in memory.
    pub(crate) holders: Vec<(RunningProgram, HeldDocuments)>,
    /// Services that were ended, because they had files open: their names and processes.
    pub ended: Vec<(&'static str, u32)>,
    /// What a search found at the end; `None` for a dry run.
    pub(crate) searched: Option<SearchReport>,
    pub(crate) troubles: Vec<String>,
}

impl ForgetReport {
    /// Begins a report with what the stores remember of the chosen documents.
    #[must_use]
    pub fn new(
        recents: &Recents,
        survey: &Survey,
        chosen: &BTreeSet<DocumentName>,
        running: &[RunningProgram],
    ) -> ForgetReport {
        let mut found: BTreeMap<_, BTreeSet<DocumentName>> = BTreeMap::new();
        for item in survey.items.iter().filter(|item| chosen.contains(&item.name)) {
            found.entry((item.kind, item.file.clone())).or_default().insert(item.name.clone());
        }
        ForgetReport {
            home: recents.places().home.clone(),
            found,
            holders: holders(survey, chosen, running),
            ended: Vec::new(),
            searched: None,
            troubles: texts(&survey.troubles),
        }
    }

    /// Adds what a search has found after the documents were forgotten.
    pub fn finish(&mut self, searched: SearchReport) {
        self.troubles.extend(texts(&searched.troubles));
        self.troubles.sort();
        self.troubles.dedup();
        self.searched = Some(searched);
    }

    /// Returns whether everything could be done and nothing is left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.troubles.is_empty() && self.remaining().is_empty()
    }

    pub(crate) fn remaining(&self) -> &[RemainingFile] {
        self.searched.as_ref().map_or(&[], |searched| &searched.remaining)
    }

    pub(crate) fn documents(&self) -> BTreeSet<&DocumentName> {
        self.found.values().flatten().collect()
    }
}

fn texts(troubles: &[Trouble]) -> Vec<String> {
    troubles.iter().map(|trouble| chain(trouble)).collect()
}
