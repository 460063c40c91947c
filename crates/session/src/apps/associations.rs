//! Which application opens which MIME type, and which line of which file says so.
//!
//! MIME Applications specification 1.0.1. Where it leaves a choice, the choice is GLib's, so that `unjank apps default` and `gio mime` agree:
//! for a type, the defaults of all directories count before the associations of all directories; a parent type is asked only when neither gives an application that is there;
//! what a directory removes stays removed in the directories below it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::entries;
use super::installed::Installed;
use super::place::{Holds, Places};
use crate::mime_types::MimeTypes;

/// Why an application counts for a type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// `[Default Applications]` names it.
    Default,
    /// `[Added Associations]` names it.
    Added,
    /// Its own `MimeType` names the type, by way of `mimeinfo.cache`.
    Declared,
    /// `[Removed Associations]` names it: it does not count.
    Removed,
}

/// A line that names an application for a type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    /// The identifier of the application, as `org.kde.kate.desktop`.
    pub id: Box<str>,
    /// What the line says of it.
    pub reason: Reason,
    /// An index into [`Associations::files`].
    pub file: usize,
    /// The line, from 1.
    pub line: u32,
}

/// What one directory says of one type.
#[derive(Clone, Debug, Default)]
struct Sayings {
    defaults: Vec<Claim>,
    added: Vec<Claim>,
    removed: Vec<Claim>,
}

/// What one directory says.
#[derive(Clone, Debug)]
struct Level {
    directory: PathBuf,
    holds: Holds,
    /// Which application directory it is, as [`Installed`] counts them; none for configuration.
    applications: Option<usize>,
    by_type: HashMap<String, Sayings>,
}

/// All that is said of which application opens what.
#[derive(Clone, Debug, Default)]
pub struct Associations {
    levels: Vec<Level>,
    files: Vec<PathBuf>,
    /// Files that are there and could not be used, with the reason.
    unusable: Vec<(PathBuf, String)>,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It decides.
    Chosen,
    /// An earlier claim decided.
    Later,
    /// Its application is not installed, or hidden.
    NotInstalled,
    /// A directory that counts more removed it.
    RemovedBefore,
    /// A file of the same name in a directory that counts more takes the place of its application.
    Masked,
    /// It says that another one is removed.
    Removes,
}

/// A claim with what became of it, for a person who asks why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// The type for which it was asked: the one wanted or one of its parents.
    pub mime_type: String,
    /// The claim.
    pub claim: Claim,
    /// What became of it.
    pub verdict: Verdict,
}

impl Associations {
    /// Reads what the directories of `places` say; a file that is not there says nothing.
    #[must_use]
    pub fn read(places: &Places, types: &MimeTypes) -> Associations {
        let mut all = Associations::default();
        let mut applications = 0..;
        for directory in places.directories() {
            let holds_applications = directory.holds == Holds::Applications;
            let mut level = Level {
                directory: directory.path.clone(),
                holds: directory.holds,
                applications: holds_applications.then(|| applications.next()).flatten(),
                by_type: HashMap::new(),
            };
            for desktop in &places.desktops {
                // A name from the environment must stay in the directory.
                if !desktop.contains('/') {
                    let name = format!("{desktop}-mimeapps.list");
                    all.read_file(&mut level, &name, &[DEFAULTS], types);
                }
            }
            all.read_file(&mut level, "mimeapps.list", &[ADDED, REMOVED, DEFAULTS], types);
            if holds_applications {
                all.read_file(&mut level, "defaults.list", &[DEFAULTS], types);
                all.read_file(&mut level, "mimeinfo.cache", &[DECLARED], types);
            }
            all.levels.push(level);
        }
        all
    }

    fn read_file(
        &mut self,
        level: &mut Level,
        name: &str,
        groups: &[(&str, Reason)],
        types: &MimeTypes,
    ) {
        let path = level.directory.join(name);
        let bytes = match read_bounded(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(reason) => return self.unusable.push((path, reason)),
        };
        let Ok(text) = str::from_utf8(&bytes) else {
            return self.unusable.push((path, "not UTF-8 text".to_owned()));
        };
        let file = self.files.len();
        self.files.push(path);
        for (group, reason) in groups {
            for entry in entries::group(text, group).filter(|entry| entry.locale.is_none()) {
                let mime_type = types.canonical(entry.key).to_owned();
                let sayings = level.by_type.entry(mime_type).or_default();
                let claims = entry.list().map(|id| Claim {
                    id: id.as_ref().into(),
                    reason: *reason,
                    file,
                    line: entry.line,
                });
                sayings.take(claims);
            }
        }
    }

    /// Returns the files that were read, in the order of precedence.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the files that are there and could not be used, with the reason.
    #[must_use]
    pub fn unusable(&self) -> &[(PathBuf, String)] {
        &self.unusable
    }

    /// Returns every type of which something is said.
    #[must_use]
    pub fn types(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.levels.iter().flat_map(|l| l.by_type.keys()).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Goes through all claims on the types of `lineage` in order, and returns each with what became of it; the first [`Verdict::Chosen`] is the default.
    ///
    /// `installed` says whether an application can be used.
    #[must_use]
    pub fn explain(&self, lineage: &[String], installed: &Installed) -> Vec<Step> {
        let mut walk =
            Walk { installed, removed: Vec::new(), is_decided: false, steps: Vec::new() };
        for mime_type in lineage {
            let levels = || {
                self.levels.iter().filter_map(|l| Some((l.applications, l.by_type.get(mime_type)?)))
            };
            let mut seen = Vec::new();
            for claim in levels().flat_map(|(_, said)| &said.defaults) {
                walk.candidate(mime_type, claim, &mut seen);
            }
            for (level, said) in levels() {
                let masked = |claim: &Claim| {
                    level.is_some_and(|level| installed.is_masked(&claim.id, level))
                };
                for claim in &said.added {
                    if masked(claim) {
                        walk.step(mime_type, claim, Verdict::Masked);
                    } else if walk.removed.contains(&&*claim.id) {
                        walk.step(mime_type, claim, Verdict::RemovedBefore);
                    } else {
                        walk.candidate(mime_type, claim, &mut seen);
                    }
                }
                for claim in said.removed.iter().filter(|claim| !masked(claim)) {
                    if !walk.removed.contains(&&*claim.id) && !seen.contains(&&*claim.id) {
                        walk.removed.push(&claim.id);
                        walk.step(mime_type, claim, Verdict::Removes);
                    }
                }
            }
        }
        walk.steps
    }

    /// Returns the default application of a type with the claim that decided.
    #[must_use]
    pub fn default_for(&self, lineage: &[String], installed: &Installed) -> Option<Step> {
        self.explain(lineage, installed).into_iter().find(|step| step.verdict == Verdict::Chosen)
    }

    /// Returns the directories that were looked at, in the order of precedence, with what they may hold.
    pub fn directories(&self) -> impl Iterator<Item = (&Path, Holds)> {
        self.levels.iter().map(|level| (&*level.directory, level.holds))
    }
}

/// A walk through the claims, from the one that counts most to the one that counts least.
struct Walk<'a> {
    installed: &'a Installed,
    removed: Vec<&'a str>,
    is_decided: bool,
    steps: Vec<Step>,
}

impl<'a> Walk<'a> {
    /// Takes a claim that may decide, unless its application was a candidate for this type before.
    fn candidate(&mut self, mime_type: &str, claim: &'a Claim, seen: &mut Vec<&'a str>) {
        if seen.contains(&&*claim.id) {
            return;
        }
        seen.push(&claim.id);
        let verdict = if self.installed.usable(&claim.id).is_none() {
            Verdict::NotInstalled
        } else if self.is_decided {
            Verdict::Later
        } else {
            Verdict::Chosen
        };
        self.is_decided |= verdict == Verdict::Chosen;
        self.step(mime_type, claim, verdict);
    }

    fn step(&mut self, mime_type: &str, claim: &Claim, verdict: Verdict) {
        self.steps.push(Step { mime_type: mime_type.to_owned(), claim: claim.clone(), verdict });
    }
}

const ADDED: (&str, Reason) = ("Added Associations", Reason::Added);
const REMOVED: (&str, Reason) = ("Removed Associations", Reason::Removed);
const DEFAULTS: (&str, Reason) = ("Default Applications", Reason::Default);
const DECLARED: (&str, Reason) = ("MIME Cache", Reason::Declared);

impl Sayings {
    /// Takes what a line says. What an earlier line of the directory said of an application stands.
    fn take(&mut self, claims: impl Iterator<Item = Claim>) {
        for claim in claims {
            let (list, opposite) = match claim.reason {
                Reason::Default => (&mut self.defaults, None),
                Reason::Added | Reason::Declared => (&mut self.added, Some(&self.removed)),
                Reason::Removed => (&mut self.removed, Some(&self.added)),
            };
            let known = |all: &[Claim]| all.iter().any(|other| other.id == claim.id);
            if !known(list) && !opposite.is_some_and(|all| known(all)) {
                list.push(claim);
            }
        }
    }
}

/// Reads a file; none if it is not there, a reason if it cannot be used.
pub(super) fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // A pipe of that name must not make us wait.
    let options = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(options).open(path) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(entries::FILE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > entries::FILE_MAX {
        return Err(format!("larger than {} MiB", entries::FILE_MAX >> 20));
    }
    Ok(Some(bytes))
}
