//! Caches that package managers keep: `mimeinfo.cache` of applications, `giomodule.cache` of GIO's modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use catalogue::apps::associations::AssociationReason;
use catalogue::index::Index;
use catalogue::index::app;
use catalogue::index::build::{CheckDepth, build};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::NAME;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;

/// So many names are told.
const TOLD: usize = 3;

/// Compares what applications say that they open with what the caches beside them say.
pub(super) fn openers(machine: &Machine) -> Vec<Finding> {
    let index = build(&machine.catalogue, None, CheckDepth::Files).ok();
    let Some(index) = index.and_then(|built| Index::from_bytes(built.image).ok()) else {
        return Vec::new();
    };
    let directories = machine.catalogue.places.application_directories();
    let mut findings = Vec::new();
    for (place, level) in directories.zip(0_u32..) {
        let declared = declared(&index, level);
        let cached = cached(&index, level);
        let missing: BTreeSet<&str> = declared.difference(&cached).map(|(_, id)| *id).collect();
        let gone: BTreeSet<&str> = cached.difference(&declared).map(|(_, id)| *id).collect();
        let path = place.path.join("mimeinfo.cache");
        if declared.is_empty() && cached.is_empty() {
            continue;
        }
        let measured =
            format!("what the desktop files in {} say was held against it", place.path.display());
        let finding = |outcome| Finding::new(NAME, machine.short(&path), measured.clone(), outcome);
        if missing.is_empty() && gone.is_empty() {
            let note = format!("current: {} pairs of types and applications", cached.len());
            findings.push(finding(MeasurementOutcome::Note(note)));
            continue;
        }
        let mut wrong = Vec::new();
        if !missing.is_empty() {
            wrong.push(format!("lacks types that {} declares", some(&missing)));
        }
        if !gone.is_empty() {
            wrong.push(format!("lists {}, which no longer declares this type", some(&gone)));
        }
        let stale = finding(MeasurementOutcome::Wrong(wrong.join("; ")));
        let (directory, is_ours) = (place.path.clone(), may_write(&place.path));
        findings.push(
            stale
                .remedy(Remedy::UpdateApplications { directory, is_ours })
                .hint("`update-desktop-database` is in the package desktop-file-utils"),
        );
    }
    findings
}

/// A MIME type and an application.
type Pairs<'a> = BTreeSet<(String, &'a str)>;

/// What the desktop files of a directory say.
fn declared(index: &Index, level: u32) -> Pairs<'_> {
    let apps = index.apps().filter(|app| {
        // update-desktop-database leaves out what is deleted.
        app.whole(app::LEVEL) == Some(level.into()) && !app.is_true("Hidden")
    });
    let pairs = apps.flat_map(|app| {
        let id = app.text(app::ID).unwrap_or_default();
        app.list("MimeType").map(move |mime_type| (mime_type.to_owned(), id))
    });
    // An alias stands for its type, in the claims as here.
    pairs.map(|(mime_type, id)| (canonical(index, mime_type), id)).collect()
}

fn canonical(index: &Index, mime_type: String) -> String {
    index.lineage(&mime_type).first().map_or_else(|| mime_type.clone(), |&name| name.to_owned())
}

/// What the cache of a directory says.
fn cached(index: &Index, level: u32) -> Pairs<'_> {
    let mut pairs = Pairs::new();
    for (mime_type, claims) in index.open_types() {
        for claim in claims {
            if claim.reason == AssociationReason::Declared && claim.level == Some(level) {
                pairs.insert((mime_type.to_owned(), claim.id));
            }
        }
    }
    pairs
}

fn some(names: &BTreeSet<&str>) -> String {
    let mut text = names.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    if names.len() > TOLD {
        text.push_str(&format!(" and {} more", names.len() - TOLD));
    }
    text
}

fn may_write(directory: &Path) -> bool {
    accessat(CWD, directory, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Finds the program that makes the cache of a directory `lib/gio/modules`; it is in no directory of programs as a rule.
fn querier(directory: &Path) -> Option<PathBuf> {
    let beside = directory.ancestors().nth(2)?.join("glib-2.0/gio-querymodules");
    let usual = ["/usr/bin/gio-querymodules-64", "/usr/bin/gio-querymodules"].map(PathBuf::from);
    [beside].into_iter().chain(usual).find(|program| program.exists())
}

/// Looks for modules of GIO that are newer than the cache: every program that uses GIO loads those to ask them.
pub(super) fn modules(directories: &[PathBuf]) -> Vec<Finding> {
    directories.iter().filter_map(|directory| of_modules(directory)).collect()
}

fn of_modules(directory: &Path) -> Option<Finding> {
    let entries = std::fs::read_dir(directory).ok()?;
    let modules: BTreeMap<String, Metadata> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
        .filter(|(name, _)| name.starts_with("lib") && name.ends_with(".so"))
        .collect();
    if modules.is_empty() {
        return None;
    }
    let path = directory.join("giomodule.cache");
    let measured = "the times of the modules beside it were held against its own";
    let cache = std::fs::metadata(&path).ok();
    let newer: BTreeSet<&str> = modules
        .iter()
        .filter(|(_, module)| cache.as_ref().is_none_or(|cache| module.ctime() > cache.mtime()))
        .map(|(name, _)| &**name)
        .collect();
    let name = path.display().to_string();
    if newer.is_empty() {
        let note = format!("current: {} modules", modules.len());
        return Some(Finding::new(NAME, name, measured, MeasurementOutcome::Note(note)));
    }
    let wrong =
        format!("does not know {}: programs load what they need not, to ask it", some(&newer));
    let finding = Finding::new(NAME, name, measured, MeasurementOutcome::Wrong(wrong));
    let directory = directory.to_owned();
    let made = querier(&directory).map(|program| Remedy::UpdateModules { program, directory });
    Some(made.into_iter().fold(finding, Finding::remedy))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use catalogue::apps::place::ApplicationDirectories;
    use catalogue::index::sources::IndexSources;

    use super::*;

    fn write(path: &Path, text: &str) {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn machine(root: &Path) -> Machine {
        let applications = root.join("applications");
        std::fs::create_dir_all(&applications).unwrap();
        let entry =
            "[Desktop Entry]\nType=Application\nName=a\nExec=sh\nMimeType=text/plain;image/png;\n";
        write(&applications.join("a.desktop"), entry);
        let places = ApplicationDirectories {
            data_dirs: vec![root.to_owned()],
            ..ApplicationDirectories::default()
        };
        let catalogue = IndexSources { places, ..IndexSources::default() };
        Machine { catalogue, ..Machine::default() }
    }

    #[test]
    fn a_cache_that_does_not_know_an_application_is_wrong() {
        let root = tempfile::tempdir().unwrap();
        let machine = machine(root.path());
        let outcome = || openers(&machine)[0].outcome.clone();
        assert!(matches!(outcome(), MeasurementOutcome::Wrong(_)), "there is none");
        let cache = root.path().join("applications/mimeinfo.cache");
        write(&cache, "[MIME Cache]\ntext/plain=a.desktop;\nimage/png=a.desktop;\n");
        assert!(matches!(outcome(), MeasurementOutcome::Note(_)), "{:?}", outcome());
        write(&cache, "[MIME Cache]\ntext/plain=a.desktop;\n");
        assert!(matches!(outcome(), MeasurementOutcome::Wrong(_)), "one type is missing");
        write(&cache, "[MIME Cache]\ntext/plain=a.desktop;b.desktop;\nimage/png=a.desktop;\n");
        let MeasurementOutcome::Wrong(wrong) = outcome() else { panic!("one is gone") };
        assert_eq!(wrong, "lists b.desktop, which no longer declares this type");
    }

    #[test]
    fn a_module_that_is_newer_than_the_cache_is_told() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(modules(&[root.path().to_owned()]), []);
        write(&root.path().join("libone.so"), "");
        let found = modules(&[root.path().to_owned()]);
        assert!(
            matches!(&found[0].outcome, MeasurementOutcome::Wrong(text) if text.contains("libone.so"))
        );
        let cache = root.path().join("giomodule.cache");
        write(&cache, "libone.so: gio-vfs\n");
        let found = modules(&[root.path().to_owned()]);
        assert!(matches!(found[0].outcome, MeasurementOutcome::Note(_)));
        let old = std::time::SystemTime::UNIX_EPOCH;
        OpenOptions::new().write(true).open(&cache).unwrap().set_modified(old).unwrap();
        let found = modules(&[root.path().to_owned()]);
        assert!(matches!(found[0].outcome, MeasurementOutcome::Wrong(_)));
    }
}
