//! Which application opens which MIME type, and which line of which file says so.
//!
//! MIME Applications specification 1.0.1. Where it leaves a choice, the choice is GLib's, so that `unjank apps default` and `gio mime` agree:
//! for a type, the defaults of all directories count before the associations of all directories; a parent type is asked only when neither gives an application that is there;
//! what a directory removes stays removed in the directories below it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::entries;
use super::place::{ApplicationDirectories, AssociationDirectory, DirectoryContents};
use crate::unread::Unread;
use xdg::mime_types::MimeTypes;

/// Why an application counts for a type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AssociationReason {
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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AssociationClaim<'a> {
    /// The identifier of the application, as `org.kde.kate.desktop`.
    pub id: &'a str,
    /// What the line says of it.
    pub reason: AssociationReason,
    /// Which application directory says it, 0 for the one that counts most; none for a directory of configuration.
    pub level: Option<u32>,
    /// An index into the list of files.
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
}

/// A claim that is kept.
#[derive(Clone, Debug)]
struct KeptAssociation {
    id: Box<str>,
    reason: AssociationReason,
    /// The place of its directory among all directories.
    directory: usize,
    level: Option<u32>,
    file: u32,
    line: u32,
}

/// All that is said of which application opens what.
#[derive(Clone, Debug, Default)]
pub struct Associations {
    by_type: HashMap<String, Vec<KeptAssociation>>,
    files: Vec<PathBuf>,
    /// Files that are there and could not be used, with the reason.
    unusable: Vec<(PathBuf, Unread)>,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimVerdict {
    /// It decides.
    Chosen,
    /// An earlier claim decided.
    Later,
    /// Its application is not installed, or cannot be started.
    NotInstalled,
    /// A directory that counts more removed it.
    RemovedBefore,
    /// A file of the same name in a directory that counts more takes the place of its application.
    Masked,
    /// It says that another one is removed.
    Removes,
}

/// A claim with what became of it, for a person who asks why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClaimStep<'a> {
    /// The type for which it was asked, by its place in the lineage: 0 for the one wanted, its parents after it.
    pub of: usize,
    /// The claim.
    pub claim: AssociationClaim<'a>,
    /// What became of it.
    pub verdict: ClaimVerdict,
}

/// What has to be known of applications to decide.
pub trait Apps {
    /// Returns whether an application is there and can be started.
    fn is_usable(&self, id: &str) -> bool;

    /// Returns whether an application directory that counts more than `level` has a file of this identifier.
    fn is_masked(&self, id: &str, level: u32) -> bool;
}

/// Goes through all claims on the types of `lineage` in order, and returns each with what became of it; the one with [`ClaimVerdict::Chosen`] is the default.
///
/// `claims` returns the claims on one type, those of the directory that counts most first, each directory's defaults, added and removed ones together.
/// An application that a directory has is masked by a file of the same name in one that counts more: what the directory says of it does not count, but for defaults.
pub fn explain<'a, C: IntoIterator<Item = AssociationClaim<'a>>>(
    lineage: &[impl AsRef<str>],
    claims: impl Fn(&str) -> C,
    apps: &dyn Apps,
) -> Vec<ClaimStep<'a>> {
    let mut walk = Walk { apps, removed: Vec::new(), is_decided: false, steps: Vec::new() };
    for (of, mime_type) in lineage.iter().enumerate() {
        let claims: Vec<AssociationClaim<'a>> = claims(mime_type.as_ref()).into_iter().collect();
        let mut seen = Vec::new();
        let defaults = claims.iter().filter(|claim| claim.reason == AssociationReason::Default);
        defaults.for_each(|claim| walk.candidate(of, *claim, &mut seen));
        for claim in claims.iter().filter(|claim| claim.reason != AssociationReason::Default) {
            let is_masked = claim.level.is_some_and(|level| apps.is_masked(claim.id, level));
            let is_removed = walk.removed.contains(&claim.id);
            match claim.reason {
                AssociationReason::Removed
                    if is_masked || is_removed || seen.contains(&claim.id) => {}
                AssociationReason::Removed => {
                    walk.removed.push(claim.id);
                    walk.step(of, *claim, ClaimVerdict::Removes);
                }
                _ if is_masked => walk.step(of, *claim, ClaimVerdict::Masked),
                _ if is_removed => walk.step(of, *claim, ClaimVerdict::RemovedBefore),
                _ => walk.candidate(of, *claim, &mut seen),
            }
        }
    }
    walk.steps
}

/// A walk through the claims, from the one that counts most to the one that counts least.
struct Walk<'a, 'b> {
    apps: &'b dyn Apps,
    removed: Vec<&'a str>,
    is_decided: bool,
    steps: Vec<ClaimStep<'a>>,
}

impl<'a> Walk<'a, '_> {
    /// Takes a claim that may decide, unless its application was a candidate for this type before.
    fn candidate(&mut self, of: usize, claim: AssociationClaim<'a>, seen: &mut Vec<&'a str>) {
        if seen.contains(&claim.id) {
            return;
        }
        seen.push(claim.id);
        let verdict = if !self.apps.is_usable(claim.id) {
            ClaimVerdict::NotInstalled
        } else if self.is_decided {
            ClaimVerdict::Later
        } else {
            ClaimVerdict::Chosen
        };
        self.is_decided |= verdict == ClaimVerdict::Chosen;
        self.step(of, claim, verdict);
    }

    fn step(&mut self, of: usize, claim: AssociationClaim<'a>, verdict: ClaimVerdict) {
        self.steps.push(ClaimStep { of, claim, verdict });
    }
}

impl Associations {
    /// Reads what the directories of `places` say; a file that is not there says nothing.
    #[must_use]
    pub fn read(places: &ApplicationDirectories, types: &MimeTypes) -> Associations {
        let mut all = Associations::default();
        let mut level = 0..;
        for (directory, place) in places.directories().iter().enumerate() {
            let is_for_apps = place.holds == DirectoryContents::Applications;
            let level = is_for_apps.then(|| level.next()).flatten();
            let mut reader = Reading { all: &mut all, types, directory, level };
            for (name, groups) in names(place, &places.desktops) {
                reader.file(place.path.join(name), groups);
            }
        }
        for claims in all.by_type.values_mut() {
            // Removed ones after the others of their directory; the sort keeps the order otherwise.
            claims
                .sort_by_key(|claim| (claim.directory, claim.reason == AssociationReason::Removed));
        }
        all
    }

    /// Returns the files that were read, in the order of precedence.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the files that are there and could not be used, with the reason.
    #[must_use]
    pub(crate) fn unusable(&self) -> &[(PathBuf, Unread)] {
        &self.unusable
    }

    /// Returns every type of which something is said, sorted.
    #[must_use]
    pub fn types(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.by_type.keys().map(String::as_str).collect();
        all.sort_unstable();
        all
    }

    /// Returns the claims on one type, in the order that [`explain`] wants.
    pub fn claims<'a>(
        &'a self,
        mime_type: &str,
    ) -> impl Iterator<Item = AssociationClaim<'a>> + use<'a> {
        self.by_type.get(mime_type).into_iter().flatten().map(|kept| AssociationClaim {
            id: &kept.id,
            reason: kept.reason,
            level: kept.level,
            file: kept.file,
            line: kept.line,
        })
    }
}

/// Returns the files that are read where they are there.
#[must_use]
pub(crate) fn looked_for(places: &ApplicationDirectories) -> Vec<PathBuf> {
    let directories = places.directories();
    let all = directories.iter().flat_map(|place| {
        names(place, &places.desktops).into_iter().map(|(name, _)| place.path.join(name))
    });
    all.collect()
}

/// A file in a directory, and what its groups mean.
type AssociationFile = (String, &'static [(&'static str, AssociationReason)]);

/// Returns the files of a directory, the one that counts most first.
fn names(place: &AssociationDirectory, desktops: &[String]) -> Vec<AssociationFile> {
    // A name from the environment must stay in the directory.
    let desktops = desktops.iter().filter(|desktop| !desktop.contains('/'));
    let mut names: Vec<AssociationFile> = desktops
        .map(|desktop| (format!("{}-mimeapps.list", desktop.to_ascii_lowercase()), &[DEFAULTS][..]))
        .collect();
    names.push(("mimeapps.list".to_owned(), &[ADDED, REMOVED, DEFAULTS]));
    if place.holds == DirectoryContents::Applications {
        names.push(("defaults.list".to_owned(), &[DEFAULTS]));
        names.push(("mimeinfo.cache".to_owned(), &[DECLARED]));
    }
    names
}

/// The reading of one directory.
struct Reading<'a> {
    all: &'a mut Associations,
    types: &'a MimeTypes,
    directory: usize,
    level: Option<u32>,
}

impl Reading<'_> {
    fn file(&mut self, path: PathBuf, groups: &[(&str, AssociationReason)]) {
        let bytes = match read_bounded(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(unread) => return self.all.unusable.push((path, unread)),
        };
        let read = groups.iter().map(|(group, _)| entries::last_of_each(&bytes, group));
        let read: Vec<_> = match read.collect::<Result<_, _>>() {
            Ok(read) => read,
            Err(stray) => return self.all.unusable.push((path, Unread::contents(stray))),
        };
        let file = u32::try_from(self.all.files.len()).unwrap_or(u32::MAX);
        self.all.files.push(path);
        for ((_, reason), entries) in groups.iter().zip(read) {
            for entry in entries {
                let mime_type = self.types.canonical(entry.key);
                let claims = self.all.by_type.entry(mime_type.to_owned()).or_default();
                for id in entry.list() {
                    let kept = KeptAssociation {
                        id: id.as_ref().into(),
                        reason: *reason,
                        directory: self.directory,
                        level: self.level,
                        file,
                        line: entry.line,
                    };
                    if !claims.iter().any(|known| known.settles(&kept)) {
                        claims.push(kept);
                    }
                }
            }
        }
    }
}

impl KeptAssociation {
    /// Returns whether this claim leaves nothing to a later one of its directory: what a directory says first of an application stands.
    fn settles(&self, later: &KeptAssociation) -> bool {
        let same = self.directory == later.directory && self.id == later.id;
        same && (self.reason == AssociationReason::Default)
            == (later.reason == AssociationReason::Default)
    }
}

const ADDED: (&str, AssociationReason) = ("Added Associations", AssociationReason::Added);
const REMOVED: (&str, AssociationReason) = ("Removed Associations", AssociationReason::Removed);
const DEFAULTS: (&str, AssociationReason) = ("Default Applications", AssociationReason::Default);
const DECLARED: (&str, AssociationReason) = ("MIME Cache", AssociationReason::Declared);

/// Reads a file; none if it is not there, a reason if it cannot be used.
pub(crate) fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, Unread> {
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
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Unread::contents("not a regular file"));
    }
    read_whole(file, found.len()).map(Some)
}

/// Reads a regular file that had `len_bytes` a moment ago, unless it is too large.
pub(crate) fn read_whole(file: std::fs::File, len_bytes: u64) -> Result<Vec<u8>, Unread> {
    use std::io::Read;
    // Room for all of it and the byte that is not there: one read, and one that says that it was all.
    let expected = usize::try_from(len_bytes.min(entries::FILE_MAX)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(expected + 1);
    file.take(entries::FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > entries::FILE_MAX {
        return Err(Unread::contents(format!("larger than {} MiB", entries::FILE_MAX >> 20)));
    }
    Ok(bytes)
}
