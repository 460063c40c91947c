//! What was found, and what became of it, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ::report::text::{Charset, visible, visible_bytes};
use probe::report::figure::Quantity;
use probe::report::paragraph::counted;
use serde_json::{Value as Json, json};
use session::recents::Recents;
use session::recents::forget::{
    self, Held, Name, NotSearched, Remnant, RunningProgram, SearchReport, StoreKind, Survey,
    Trouble, Unsearched,
};

use crate::error::Error;

/// The most lines that a person is shown of what was found.
const SHOWN: usize = 20;
/// The most lines that a person is shown of what was not searched.
const SHOWN_UNSEARCHED: usize = 8;

/// What was found, and what became of it.
pub(super) struct Report {
    home: PathBuf,
    /// By kind of store and file, which documents.
    found: BTreeMap<(StoreKind, PathBuf), BTreeSet<Name>>,
    /// Programs that have a list in memory.
    holders: Vec<(RunningProgram, Held)>,
    /// Services that had to end.
    pub(super) ended: Vec<(&'static str, u32)>,
    /// What a search found at the end; `None` if nothing was to be done.
    searched: Option<SearchReport>,
    troubles: Vec<String>,
}

impl Report {
    /// Takes down what the stores know of the chosen documents.
    pub(super) fn new(
        recents: &Recents,
        survey: &Survey,
        chosen: &BTreeSet<Name>,
        running: &[RunningProgram],
    ) -> Report {
        let mut found: BTreeMap<_, BTreeSet<Name>> = BTreeMap::new();
        for item in survey.items.iter().filter(|item| chosen.contains(&item.name)) {
            found.entry((item.kind, item.file.clone())).or_default().insert(item.name.clone());
        }
        Report {
            home: recents.places().home.clone(),
            found,
            holders: forget::holders(survey, chosen, running),
            ended: Vec::new(),
            searched: None,
            troubles: texts(&survey.troubles),
        }
    }

    /// Takes down what is left.
    pub(super) fn finish(&mut self, searched: SearchReport) {
        self.troubles.extend(texts(&searched.troubles));
        self.troubles.sort();
        self.troubles.dedup();
        self.searched = Some(searched);
    }

    /// Whether everything could be done and nothing is left.
    pub(super) fn is_done(&self) -> bool {
        self.troubles.is_empty() && self.remnants().is_empty()
    }

    fn remnants(&self) -> &[Remnant] {
        self.searched.as_ref().map_or(&[], |searched| &searched.remnants)
    }

    fn documents(&self) -> BTreeSet<&Name> {
        self.found.values().flatten().collect()
    }

    fn verdict(&self) -> String {
        let documents = counted(self.documents().len(), "document");
        let Some(searched) = &self.searched else {
            return match self.found.is_empty() {
                true => "No list on this machine has such a document.".to_owned(),
                false => format!("{documents} would be forgotten."),
            };
        };
        let extent = format!("{} ({})", count(searched.files), size(searched.bytes));
        let left = searched.remnants.len();
        match (self.found.is_empty(), left) {
            (true, 0) => format!(
                "No list on this machine has such a document; a search of {extent} finds nothing."
            ),
            (true, _) => {
                "No list on this machine has such a document, but other files do.".to_owned()
            }
            (false, 0) if self.troubles.is_empty() => {
                format!("Forgot {documents}; a search of {extent} finds nothing.")
            }
            (false, 0) => format!(
                "Forgot {documents} where that was possible; not every list could be searched."
            ),
            (false, left) => {
                format!(
                    "Forgot {documents}, but {} still named.",
                    match left {
                        1 => "in one file something is",
                        _ => "in some files something is",
                    }
                )
            }
        }
    }

    fn show(&self, path: &Path) -> String {
        let (before, rest) = match path.strip_prefix(&self.home) {
            Ok(rest) => ("~/", rest),
            Err(_) => ("", path),
        };
        format!("{before}{}", visible_bytes(rest.as_os_str().as_bytes(), Charset::Unicode))
    }

    /// Says it to a person.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "{}", self.verdict())?;
        self.print_found(out)?;
        for left in self.remnants() {
            self.print_remnant(left, out)?;
        }
        for trouble in &self.troubles {
            writeln!(out, "trouble: {}", visible(trouble, Charset::Unicode))?;
        }
        for (name, pid) in &self.ended {
            writeln!(
                out,
                "ended: {name} ({pid}), which had files open; it starts again when it is needed"
            )?;
        }
        for (program, held) in &self.holders {
            let (name, pid) = (visible(&program.name, Charset::Unicode), program.pid);
            match held {
                Held::OwnList => writeln!(
                    out,
                    "running: {name} ({pid}) may still have its list in memory; end it, and forget again"
                )?,
                Held::SharedList => writeln!(
                    out,
                    "running: {name} ({pid}) has the shared list in memory until it reads the file again"
                )?,
            }
        }
        self.print_unsearched(out)
    }

    fn print_found(&self, out: &mut dyn Write) -> Result<(), Error> {
        if !self.found.is_empty() {
            writeln!(out)?;
        }
        let mut by_kind: BTreeMap<StoreKind, (Vec<&PathBuf>, BTreeSet<&Name>)> = BTreeMap::new();
        for ((kind, file), names) in &self.found {
            let (files, known) = by_kind.entry(*kind).or_default();
            files.push(file);
            known.extend(names);
        }
        for (kind, (files, names)) in &by_kind {
            let file = match files.as_slice() {
                [file] => self.show(file),
                [file, ..] => {
                    let dir = file.parent().unwrap_or(file);
                    format!("{} files, such as in {}", files.len(), self.show(dir))
                }
                [] => String::new(),
            };
            writeln!(out, "{:22}  {:>6}  {file}", kind.title(), names.len())?;
        }
        if self.searched.is_none() && !self.found.is_empty() {
            writeln!(out)?;
            let documents = self.documents();
            for name in documents.iter().take(SHOWN) {
                writeln!(
                    out,
                    "{}",
                    self.show(Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())))
                )?;
            }
            if documents.len() > SHOWN {
                writeln!(out, "… and {} more", documents.len() - SHOWN)?;
            }
        }
        Ok(())
    }

    fn print_remnant(&self, left: &Remnant, out: &mut dyn Write) -> Result<(), Error> {
        write!(out, "left: {} ({})", self.show(&left.file), left.documents)?;
        if let Some(known) = left.known {
            write!(out, ", {}", known.title)?;
        }
        writeln!(out)?;
        for place in &left.places {
            writeln!(out, "  at {}", visible(place, Charset::Unicode))?;
        }
        if let Some(hint) = left.known.and_then(|known| known.hint) {
            writeln!(out, "  hint: {hint}")?;
        }
        Ok(())
    }

    fn print_unsearched(&self, out: &mut dyn Write) -> Result<(), Error> {
        let Some(searched) = &self.searched else { return Ok(()) };
        for one in searched.unsearched.iter().take(SHOWN_UNSEARCHED) {
            writeln!(out, "not searched: {}", self.unsearched(one))?;
        }
        let rest = searched.unsearched.iter().skip(SHOWN_UNSEARCHED);
        let (places, bytes) =
            rest.fold((0usize, 0u64), |(n, bytes), one| (n + 1, bytes.saturating_add(one.bytes)));
        if places > 0 {
            writeln!(out, "not searched: {} more ({})", counted(places, "place"), size(bytes))?;
        }
        let is_chosen = |one: &Unsearched| {
            matches!(
                one.reason,
                NotSearched::TooLarge | NotSearched::BeyondTotal | NotSearched::Documents
            )
        };
        if searched.unsearched.iter().any(is_chosen) {
            writeln!(out, "hint: --search-all searches every file, which takes longer")?;
        }
        Ok(())
    }

    fn unsearched(&self, one: &Unsearched) -> String {
        let path = self.show(&one.path);
        let much = match (one.files, one.bytes) {
            (_, 0) => String::new(),
            (1, bytes) => format!(" ({})", size(bytes)),
            (files, bytes) => format!(" ({}, {})", count(files), size(bytes)),
        };
        format!("{}{much}: {}", path.trim_end_matches('/'), one.reason.reason())
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> Json {
        let found = self.found.iter().map(|((kind, file), names)| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            json!({ "store": kind.title(), "file": file.to_string_lossy(), "documents": names })
        });
        let left = self.searched.as_ref().map(|searched| {
            let left = searched.remnants.iter().map(|left| {
                json!({
                    "file": left.file.to_string_lossy(),
                    "documents": left.documents,
                    "at": left.places,
                    "what": left.known.map(|known| known.title),
                    "hint": left.known.and_then(|known| known.hint),
                })
            });
            left.collect::<Vec<_>>()
        });
        let not_searched = self.searched.as_ref().map(|searched| {
            let all = searched.unsearched.iter().map(|one| {
                json!({
                    "path": one.path.to_string_lossy(),
                    "files": one.files,
                    "bytes": one.bytes,
                    "why": one.reason.reason(),
                })
            });
            all.collect::<Vec<_>>()
        });
        let holders = self.holders.iter().map(|(program, held)| {
            let held = match held {
                Held::OwnList => "its own list",
                Held::SharedList => "the shared list",
            };
            json!({ "pid": program.pid, "name": program.name, "holds": held })
        });
        json!({
            "schema": "unjank.recent.forget/1",
            "documents": self.documents().len(),
            "found": found.collect::<Vec<_>>(),
            "left": left,
            "searched": self.searched.as_ref().map(|s| json!({ "files": s.files, "bytes": s.bytes })),
            "not_searched": not_searched,
            "troubles": self.troubles,
            "ended": self.ended.iter().map(|(_, pid)| pid).collect::<Vec<_>>(),
            "running": holders.collect::<Vec<_>>(),
        })
    }
}

fn texts(troubles: &[Trouble]) -> Vec<String> {
    let text = |trouble: &Trouble| {
        let mut text = trouble.to_string();
        let mut cause = std::error::Error::source(trouble);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    };
    troubles.iter().map(text).collect()
}

fn count(files: u64) -> String {
    counted(usize::try_from(files).unwrap_or(usize::MAX), "file")
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn size(bytes: u64) -> String {
    Quantity::Size.show(bytes as f64)
}
