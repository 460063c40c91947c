//! Files of `environment.d(5)` that take away again what a part has set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::gsettings::{self, GSETTINGS_FILE};
use crate::layout::{SetupLayout, SetupScope};
use crate::part::SetupPart;
use crate::plan::{RELAX_FILE, RELAX_LIBRARY};

/// Where files for all users are, from the lowest priority to the highest: a file hides one of the same name before it.
const SHARED: [&str; 4] = [
    "/usr/lib/environment.d",
    "/usr/local/lib/environment.d",
    "/run/environment.d",
    "/etc/environment.d",
];

/// A file that is read after ours and sets a variable of ours to something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverridingFile {
    /// The file.
    pub path: PathBuf,
    /// The variable.
    pub variable: &'static str,
    /// Whether the variable is a list, to which each file can add.
    pub is_list: bool,
}

/// A variable that a part sets.
#[derive(Clone, Copy, Debug)]
struct PartVariable {
    name: &'static str,
    is_list: bool,
    /// What stands in a value that has ours in it.
    ours: &'static str,
}

/// Returns the file by which a part sets variables, and which they are.
fn variables_of(part: SetupPart) -> Option<(&'static str, &'static [PartVariable])> {
    const RELAX: &[PartVariable] =
        &[PartVariable { name: "LD_PRELOAD", is_list: true, ours: RELAX_LIBRARY }];
    const GSETTINGS: &[PartVariable] = &[
        PartVariable { name: "GSETTINGS_BACKEND", is_list: false, ours: "unjank" },
        PartVariable { name: "GIO_EXTRA_MODULES", is_list: true, ours: gsettings::DIRECTORY },
    ];
    match part {
        SetupPart::Relax => Some((RELAX_FILE, RELAX)),
        SetupPart::Gsettings => Some((GSETTINGS_FILE, GSETTINGS)),
        _ => None,
    }
}

/// Returns the files that are read after that of a part and set its variables to something else, in the order of reading.
#[must_use]
pub fn files_that_override(layout: &SetupLayout, part: SetupPart) -> Vec<OverridingFile> {
    let mut directories: Vec<PathBuf> = SHARED.iter().map(PathBuf::from).collect();
    if layout.scope == SetupScope::User {
        directories.push(layout.environment.clone());
    }
    overriding(&directories, part)
}

fn overriding(directories: &[PathBuf], part: SetupPart) -> Vec<OverridingFile> {
    let Some((own, variables)) = variables_of(part) else { return Vec::new() };
    let mut files: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for directory in directories {
        // Most of the directories are not there.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            files.insert(entry.file_name(), entry.path());
        }
    }
    let later = files.range::<OsString, _>(OsString::from(own)..);
    let is_read = |path: &Path| path.extension().is_some_and(|extension| extension == "conf");
    let mut found = Vec::new();
    for (_, path) in later.filter(|(_, path)| is_read(path)) {
        let Ok(text) = fs::read(path) else { continue };
        let text = String::from_utf8_lossy(&text);
        let lost = variables.iter().filter(|variable| variable.is_lost(&text));
        found.extend(lost.map(|variable| OverridingFile {
            path: path.clone(),
            variable: variable.name,
            is_list: variable.is_list,
        }));
    }
    found
}

impl PartVariable {
    /// Says whether a file sets it and keeps neither what it was nor ours.
    fn is_lost(&self, text: &str) -> bool {
        let mut values = text.lines().filter_map(|line| {
            let (name, value) = line.trim_start().split_once('=')?;
            (name.trim_end() == self.name).then_some(value)
        });
        let keeps = |value: &str| {
            let before = [format!("${}", self.name), format!("${{{}", self.name)];
            value.contains(self.ours) || before.iter().any(|part| value.contains(&**part))
        };
        // The last line that sets it counts.
        values.next_back().is_some_and(|value| !keeps(value))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

    use super::*;

    #[test]
    fn a_later_file_that_keeps_nothing_overrides_ours() {
        let root = tempfile::tempdir().unwrap();
        let [low, high] = ["low", "high"].map(|name| root.path().join(name));
        for (dir, name, text) in [
            (&low, "10-early.conf", "LD_PRELOAD=early.so\n"),
            (&low, RELAX_FILE, "LD_PRELOAD=/l/libunjank-relax.so${LD_PRELOAD:+:$LD_PRELOAD}\n"),
            (&low, "70-keeps.conf", "LD_PRELOAD=a.so:$LD_PRELOAD\n"),
            (&low, "71-keeps.conf", "A=b\nLD_PRELOAD=a.so${LD_PRELOAD:+:$LD_PRELOAD}\n"),
            (&low, "72-other.conf", "# LD_PRELOAD=a.so\nLD_PRELOAD_X=a\n"),
            (&low, "73-drops.conf", "A=b\n  LD_PRELOAD=jemalloc.so\n"),
            (&low, "74-hidden.conf", "LD_PRELOAD=hidden.so\n"),
            (&high, "74-hidden.conf", "A=b\n"),
            (&high, "75-empties.conf", "LD_PRELOAD=\n"),
            (&high, "76-no-file.txt", "LD_PRELOAD=x\n"),
        ] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join(name), text).unwrap();
        }
        let directories = [low.clone(), root.path().join("none"), high.clone()];
        let found = overriding(&directories, SetupPart::Relax);
        let paths: Vec<PathBuf> = found.into_iter().map(|file| file.path).collect();
        assert_eq!(paths, [low.join("73-drops.conf"), high.join("75-empties.conf")]);
        // One of the same name hides ours.
        fs::write(high.join(RELAX_FILE), "LD_PRELOAD=mine.so\n").unwrap();
        let found = overriding(&[low, high.clone()], SetupPart::Relax);
        assert_eq!(found[0].path, high.join(RELAX_FILE));
    }

    #[test]
    fn a_later_file_that_chooses_another_backend_or_other_modules_is_found() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            (GSETTINGS_FILE, "GSETTINGS_BACKEND=unjank\nGIO_EXTRA_MODULES=/l/unjank/gio-modules\n"),
            ("50-early.conf", "GSETTINGS_BACKEND=dconf\n"),
            ("70-keeps.conf", "GIO_EXTRA_MODULES=/m${GIO_EXTRA_MODULES:+:$GIO_EXTRA_MODULES}\n"),
            ("80-drops.conf", "GSETTINGS_BACKEND=memory\nGIO_EXTRA_MODULES=/m\n"),
            ("90-same.conf", "GSETTINGS_BACKEND=unjank\n"),
        ] {
            fs::write(root.path().join(name), text).unwrap();
        }
        let directories = [root.path().to_owned()];
        let found = overriding(&directories, SetupPart::Gsettings);
        let path = root.path().join("80-drops.conf");
        let file = |variable, is_list| OverridingFile { path: path.clone(), variable, is_list };
        assert_eq!(found, [file("GSETTINGS_BACKEND", false), file("GIO_EXTRA_MODULES", true)]);
        assert_eq!(overriding(&directories, SetupPart::Index), []);
    }
}
