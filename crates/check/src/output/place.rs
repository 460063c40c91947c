//! Where a finding is shown: the line of the source, else that of the baseline; and what it is known by in the next run.

use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::CheckDocument;
use crate::baseline::CheckFinding;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    /// The file: relative to the root of the sources where it is below it.
    pub(super) path: String,
    /// Whether it is below that root.
    pub(super) is_ours: bool,
    /// The line, from 1.
    pub(super) line: u64,
}

/// Returns where a finding is shown; none if there is neither a source line nor a baseline.
pub(super) fn of(finding: &CheckFinding, document: &CheckDocument<'_>) -> Option<FileLine> {
    source(finding, document).or_else(|| baseline(finding, document))
}

/// Returns where it is shown by hosts that know the files of the sources alone.
pub(super) fn of_ours(finding: &CheckFinding, document: &CheckDocument<'_>) -> Option<FileLine> {
    let source = source(finding, document).filter(|place| place.is_ours);
    source.or_else(|| baseline(finding, document).filter(|place| place.is_ours))
}

fn source(finding: &CheckFinding, document: &CheckDocument<'_>) -> Option<FileLine> {
    let place = finding.wait.as_ref()?.source.as_ref()?;
    Some(file_line(&place.file, u64::from(place.line), document.root))
}

fn baseline(finding: &CheckFinding, document: &CheckDocument<'_>) -> Option<FileLine> {
    let line = finding.line.unwrap_or(1).max(1);
    Some(file_line(document.baseline?, line as u64, document.root))
}

fn file_line(path: &str, line: u64, root: &Path) -> FileLine {
    let whole = normal(&root.join(path));
    let below = whole.strip_prefix(normal(root)).ok();
    let is_ours = below.is_some();
    let path = below.unwrap_or(&whole).to_string_lossy().into_owned();
    FileLine { path, is_ours, line }
}

/// Returns a path without `.` and `..`, by its text alone: the file need not be here.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Returns what a finding is known by from run to run, in hexadecimal: neither lines, nor counts, nor times are in it.
pub(super) fn fingerprint(finding: &CheckFinding) -> String {
    let (kind, key) = finding.identity();
    let mut hash = Sha256::new();
    for part in [kind.id(), &key.phase, &key.call, &key.path, &key.function] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
