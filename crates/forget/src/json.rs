//! The report of forgotten documents, for programs.

use serde_json::{Value as Json, json};

use super::holders::HeldDocuments;
use super::outcome::ForgetReport;

impl ForgetReport {
    /// Returns the report as a JSON document; docs/json.md has the fields.
    #[must_use]
    pub fn json(&self) -> Json {
        let found = self.found.iter().map(|((kind, file), names)| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            json!({ "store": kind.title(), "file": file.to_string_lossy(), "documents": names })
        });
        let left = self.searched.as_ref().map(|searched| {
            let left = searched.remaining.iter().map(|left| {
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
                HeldDocuments::OwnList => "its own list",
                HeldDocuments::SharedList => "the shared list",
                HeldDocuments::Unknown => "unknown: it hangs in the kernel",
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
