//! The report of forgotten documents, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use report::figure::Quantity;
use report::paragraph::counted;
use report::text::{Charset, visible, visible_bytes};

use super::StoreKind;
use super::holders::HeldDocuments;
use super::name::DocumentName;
use super::outcome::ForgetReport;
use super::scope::{NotSearched, Unsearched};
use super::search::RemainingFile;

/// The most documents that are listed.
const SHOWN: usize = 20;
/// The most places that are listed because they were not searched.
const SHOWN_UNSEARCHED: usize = 8;

impl ForgetReport {
    /// Writes the report for people.
    ///
    /// # Errors
    ///
    /// As `out` fails.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.verdict())?;
        self.print_found(out)?;
        for left in self.remaining() {
            self.print_remaining(left, out)?;
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
                HeldDocuments::OwnList => writeln!(
                    out,
                    "running: {name} ({pid}) may still have its list in memory; end it, and forget again"
                )?,
                HeldDocuments::SharedList => writeln!(
                    out,
                    "running: {name} ({pid}) has the shared list in memory until it reads the file again"
                )?,
                HeldDocuments::Unknown => writeln!(
                    out,
                    "not checked: {name} ({pid}) hangs in the kernel; it may have a list in memory"
                )?,
            }
        }
        self.print_unsearched(out)
    }

    fn print_found(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.found.is_empty() {
            writeln!(out)?;
        }
        let mut by_kind: BTreeMap<StoreKind, (Vec<&PathBuf>, BTreeSet<&DocumentName>)> =
            BTreeMap::new();
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

    fn print_remaining(&self, left: &RemainingFile, out: &mut dyn Write) -> io::Result<()> {
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

    fn print_unsearched(&self, out: &mut dyn Write) -> io::Result<()> {
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
            writeln!(out, "hint: search every file, which takes longer, with --search-all")?;
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

    fn verdict(&self) -> String {
        let documents = counted(self.documents().len(), "document");
        let Some(searched) = &self.searched else {
            return match self.found.is_empty() {
                true => "No list on this machine has such a document.".to_owned(),
                false => format!("{documents} would be forgotten."),
            };
        };
        let extent = format!("{} ({})", count(searched.files), size(searched.bytes));
        let left = searched.remaining.len();
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
}

fn count(files: u64) -> String {
    counted(usize::try_from(files).unwrap_or(usize::MAX), "file")
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn size(bytes: u64) -> String {
    Quantity::Size.show(bytes as f64)
}
