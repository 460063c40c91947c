//! Puts the files of parts in place, and takes them back.
//!
//! A step is in the manifest before it is made, and leaves it after it is taken back. What is at a path therefore says how
//! far a run that was killed came: what was there before, one of ours, or what somebody else has put there since.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk::{Disk, FileLock, FileStat};
use store::publish::{InPlace, NewFile, make_directory, publish_new, remove_all_stale};

use crate::dependents::{ChangedPaths, first_dependent};
use crate::error::SetupError;
use crate::layout::SetupLayout;
use crate::manifest::{Before, Manifest, RecordedFile, RecordedSwitch};
use crate::observe::{Fingerprint, Observed};
use crate::part::SetupPart;
use crate::plan::{self, PlannedContents, PlannedFile};

/// Another run that has not ended after this is reported.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many contents of a file are known as ours: one for each upgrade.
const MOST_KNOWN: usize = 8;

/// What becomes of a file of somebody else that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFiles {
    /// It stays, and nothing is done.
    Refuse,
    /// It is kept in the manifest and replaced.
    Replace,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEffect {
    /// A file that was not there.
    Make,
    /// A file of ours gets another content.
    Update,
    /// A file that no manifest records, or that somebody else has changed, is replaced, and kept in the manifest.
    Replace,
    /// It is as it should be.
    Keep,
}

impl StepEffect {
    /// Returns the word for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StepEffect::Make => "made",
            StepEffect::Update => "updated",
            StepEffect::Replace => "replaced",
            StepEffect::Keep => "unchanged",
        }
    }
}

/// A step that was made, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedStep {
    /// The file, without the root of a package.
    pub path: PathBuf,
    /// What happens to it.
    pub effect: StepEffect,
    /// The bytes that are there now, of a file.
    pub before: Option<Vec<u8>>,
    /// What it is to be.
    pub contents: PlannedContents,
}

/// What became of a step that was taken back, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Our file was removed.
    Removed,
    /// What was there before is there again.
    Restored,
    /// Nothing of ours was there: the step was never made, or somebody took it back.
    WasGone,
    /// Somebody else has changed the file since: it is left, and stays in the manifest.
    Changed,
    /// Another file that stays names it: it is left, and stays in the manifest.
    Needed,
}

impl UndoOutcome {
    /// Returns the word for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            UndoOutcome::Removed => "removed",
            UndoOutcome::Restored => "restored",
            UndoOutcome::WasGone => "was-gone",
            UndoOutcome::Changed => "changed-by-others",
            UndoOutcome::Needed => "needed",
        }
    }
}

/// A step that was taken back, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedStep {
    /// The part.
    pub part: String,
    /// The file, without the root of a package.
    pub path: PathBuf,
    /// What became of it.
    pub outcome: UndoOutcome,
    /// The file that names it, of one that is needed.
    pub needed_by: Option<PathBuf>,
}

impl ReturnedStep {
    /// Says whether the file is left, and stays in the manifest.
    #[must_use]
    pub fn is_left(&self) -> bool {
        matches!(self.outcome, UndoOutcome::Changed | UndoOutcome::Needed)
    }
}

/// What is installed in a layout.
#[derive(Debug)]
pub struct Installation<'d> {
    disk: &'d dyn Disk,
    layout: SetupLayout,
    manifest: Manifest,
    lock: Option<InstallationLock>,
    /// When the parts are switched on that are from now on, in seconds since 1970.
    now_s: Option<u64>,
}

/// The lock against other runs, and the directories that were made for it.
#[derive(Debug)]
struct InstallationLock {
    _lock: Box<dyn FileLock>,
    path: PathBuf,
    directories: Vec<PathBuf>,
}

/// What is at a path, and which file that was.
struct Look {
    observed: Observed,
    stat: Option<FileStat>,
}

impl<'d> Installation<'d> {
    /// Reads what is installed, to look at it. `owner` is the user who must own the manifest.
    ///
    /// # Errors
    ///
    /// The manifest cannot be used, or is another user's.
    pub fn read(
        disk: &'d dyn Disk,
        layout: SetupLayout,
        owner: u32,
    ) -> Result<Installation<'d>, SetupError> {
        let manifest = Manifest::read(disk, &layout.at(&layout.manifest), owner)?;
        Ok(Installation { disk, layout, manifest, lock: None, now_s: None })
    }

    /// Reads what is installed, to change it: no other run changes it before this value is dropped.
    ///
    /// # Errors
    ///
    /// As [`Installation::read`]; [`SetupError::Busy`].
    pub fn open(
        disk: &'d dyn Disk,
        layout: SetupLayout,
        owner: u32,
    ) -> Result<Installation<'d>, SetupError> {
        layout.check(disk)?;
        if let Some(root) = &layout.root {
            let path = root.clone();
            make_directory(disk, root).map_err(|source| SetupError::NotMade { path, source })?;
        }
        let mut installation =
            Installation { disk, layout, manifest: Manifest::default(), lock: None, now_s: None };
        let manifest = installation.layout.manifest.clone();
        let directories = installation.missing_above(&[&manifest])?;
        installation.make_directories(&directories)?;
        let path = installation.layout.at(&installation.lock_path());
        let failed = |source| SetupError::NotExamined { path: path.clone(), source };
        let lock = disk.own(&path, PATIENCE).map_err(failed)?;
        let lock = lock.ok_or_else(|| SetupError::Busy { path: path.clone() })?;
        installation.lock = Some(InstallationLock { _lock: lock, path, directories });
        installation.manifest = Manifest::read(disk, &installation.layout.at(&manifest), owner)?;
        installation.sweep();
        Ok(installation)
    }

    /// Has the manifest say of the parts that are switched on from here on that it was at this moment.
    #[must_use]
    pub fn dated(mut self, now: SystemTime) -> Installation<'d> {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).ok();
        self.now_s = since.map(|since| since.as_secs());
        self
    }

    /// Returns when a part was switched on; `None` if it is not on, or was switched on by a version that did not record it.
    #[must_use]
    pub fn since(&self, part: SetupPart) -> Option<SystemTime> {
        let seconds = *self.manifest.since.get(part.name()).filter(|_| self.is_on(part))?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }

    /// Returns whether the manifest has a step of this part.
    #[must_use]
    pub fn is_on(&self, part: SetupPart) -> bool {
        self.manifest.has_part(part.name())
    }

    /// Has a manifest say since when the parts are on of which this one has no step and a file is changed now. A part whose
    /// files were all in place was on before, nobody knows since when.
    fn date_new_parts(&self, next: &mut Manifest, changed: &BTreeSet<SetupPart>) {
        let Some(now_s) = self.now_s else { return };
        let parts = SetupPart::ALL.into_iter().filter(|part| changed.contains(part));
        for part in parts.map(SetupPart::name) {
            if next.has_part(part) && !self.manifest.has_part(part) {
                next.since.insert(part.to_owned(), now_s);
            }
        }
    }

    /// Returns the parts of which the manifest has a step.
    #[must_use]
    pub fn parts(&self) -> Vec<SetupPart> {
        let all = SetupPart::ALL.into_iter().chain([SetupPart::Programs]);
        all.filter(|part| self.is_on(*part)).collect()
    }

    /// Returns the paths that a part has in the manifest.
    #[must_use]
    pub fn paths(&self, part: SetupPart) -> Vec<PathBuf> {
        let files = self.manifest.files.iter().filter(|file| file.is_of(part));
        files.map(|file| file.path.clone()).collect()
    }

    /// Returns whether a run that was killed has left its lock.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.disk.stat(&self.layout.at(&self.lock_path())).is_ok()
    }

    /// Returns where the lock is, without the root of a package.
    fn lock_path(&self) -> PathBuf {
        self.layout.manifest.with_file_name("setup.lock")
    }

    /// Returns the version of the program that wrote the manifest; empty if there is none.
    #[must_use]
    pub fn written_by(&self) -> &str {
        &self.manifest.program
    }

    /// Returns what putting these files in place would do; nothing is changed.
    ///
    /// # Errors
    ///
    /// Something is in the way.
    pub fn preview(
        &self,
        files: &[PlannedFile],
        foreign: ForeignFiles,
    ) -> Result<Vec<AppliedStep>, SetupError> {
        files.iter().map(|file| self.judge(file, foreign).map(|(step, _)| step)).collect()
    }

    /// Records these files, then puts them in place.
    ///
    /// # Errors
    ///
    /// The variant says whether anything was changed. What was made is in the manifest, and is made again or taken back by
    /// the next run.
    pub fn switch_on(
        &mut self,
        files: &[PlannedFile],
        foreign: ForeignFiles,
    ) -> Result<Vec<AppliedStep>, SetupError> {
        let judged: Result<Vec<_>, SetupError> =
            files.iter().map(|file| self.judge(file, foreign)).collect();
        let judged = judged?;
        let paths: Vec<&Path> = files.iter().map(|file| &*file.path).collect();
        let directories = self.missing_above(&paths)?;
        let mut next = self.manifest.clone();
        next.program = env!("CARGO_PKG_VERSION").to_owned();
        next.directories.extend(directories.iter().cloned());
        next.directories.extend(self.lock.iter().flat_map(|lock| lock.directories.iter().cloned()));
        for (file, (step, look)) in files.iter().zip(&judged) {
            self.record(&mut next, file, step.effect, &look.observed)?;
        }
        let changed =
            judged.iter().zip(files).filter(|((step, _), _)| step.effect != StepEffect::Keep);
        self.date_new_parts(&mut next, &changed.map(|(_, file)| file.part).collect());
        // Where everything was in place before, nothing has to be taken back.
        if next != self.manifest && !next.is_empty() {
            next.write(self.disk, &self.layout.at(&self.layout.manifest), self.layout.scope)?;
            self.manifest = next;
        }
        self.make_directories(&directories)?;
        for (file, (step, look)) in files.iter().zip(&judged) {
            if step.effect != StepEffect::Keep {
                self.put(file, look).map_err(|source| {
                    let path = self.layout.at(&file.path);
                    SetupError::NotMade { path, source }
                })?;
            }
        }
        Ok(judged.into_iter().map(|(step, _)| step).collect())
    }

    /// Records that a part is about to switch something that was `before`; what is recorded already stays. If it was off, the part
    /// is on from now.
    ///
    /// # Errors
    ///
    /// [`SetupError::NotRecorded`]: do not switch it.
    pub fn record_switch(
        &mut self,
        part: SetupPart,
        name: &str,
        before: bool,
    ) -> Result<(), SetupError> {
        let is_same = |switch: &&RecordedSwitch| switch.part == part.name() && switch.name == name;
        let mut next = self.manifest.clone();
        if let Some(now_s) = self.now_s.filter(|_| !before) {
            next.since.insert(part.name().to_owned(), now_s);
        }
        if !self.manifest.switches.iter().any(|switch| is_same(&switch)) {
            let (part, name) = (part.name().to_owned(), name.to_owned());
            next.switches.push(RecordedSwitch { part, name, before });
        }
        if next == self.manifest {
            return Ok(());
        }
        next.directories.extend(self.lock.iter().flat_map(|lock| lock.directories.iter().cloned()));
        next.program = env!("CARGO_PKG_VERSION").to_owned();
        next.write(self.disk, &self.layout.at(&self.layout.manifest), self.layout.scope)?;
        self.manifest = next;
        Ok(())
    }

    /// Returns what a part has switched.
    #[must_use]
    pub fn switches(&self, part: SetupPart) -> Vec<RecordedSwitch> {
        let all = self.manifest.switches.iter().filter(|switch| switch.part == part.name());
        all.cloned().collect()
    }

    /// Forgets what a part has switched, after it was switched back.
    ///
    /// # Errors
    ///
    /// [`SetupError::NotRecorded`]: it is still in the manifest.
    pub fn forget_switches(&mut self, part: SetupPart) -> Result<(), SetupError> {
        let mut next = self.manifest.clone();
        next.switches.retain(|switch| switch.part != part.name());
        self.settle(next)
    }

    /// Returns what taking these parts back would do; nothing is changed.
    ///
    /// # Errors
    ///
    /// A file cannot be looked at.
    pub fn preview_off(&self, parts: &[SetupPart]) -> Result<Vec<ReturnedStep>, SetupError> {
        let mut changed = ChangedPaths::new();
        let mut steps = Vec::new();
        for file in self.of_parts(&self.with_programs(parts)) {
            let mut outcome = self.outcome(file)?.0;
            let mut needed_by = None;
            if outcome == UndoOutcome::Removed {
                needed_by = first_dependent(self.disk, &self.layout, file, &changed)?;
            }
            if needed_by.is_some() {
                outcome = UndoOutcome::Needed;
            }
            let after = match (outcome, file.before.observed()) {
                (UndoOutcome::Removed, _) => Some(None),
                (UndoOutcome::Restored, Some(Observed::File { bytes, .. })) => Some(Some(bytes)),
                (UndoOutcome::Restored, Some(Observed::Link(target))) => {
                    let target = file.path.with_file_name(target);
                    Some(self.disk.read(&self.layout.at(&target)).ok())
                }
                _ => None,
            };
            changed.extend(after.map(|after| (file.path.clone(), after)));
            let (part, path) = (file.part.clone(), file.path.clone());
            steps.push(ReturnedStep { part, path, outcome, needed_by });
        }
        Ok(steps)
    }

    /// Takes these parts back; with the last of them the programs that were copied for them, unless a file that stays names
    /// them.
    ///
    /// # Errors
    ///
    /// The variant names the first file that could not be taken back. What was not taken back is still in the manifest.
    pub fn switch_off(&mut self, parts: &[SetupPart]) -> Result<Vec<ReturnedStep>, SetupError> {
        let mut steps = self.preview_off(parts)?;
        for step in steps.iter_mut().filter(|step| step.outcome != UndoOutcome::Needed) {
            let recorded = self.manifest.files.iter().find(|file| file.path == step.path);
            let Some(file) = recorded else { continue };
            let (outcome, look) = self.outcome(file)?;
            let path = self.layout.at(&file.path);
            self.take_back(file, outcome, &look)
                .map_err(|source| SetupError::NotTakenBack { path, source })?;
            step.outcome = outcome;
        }
        let is_kept = |file: &RecordedFile| {
            let step = steps.iter().find(|step| step.path == file.path);
            step.is_none_or(ReturnedStep::is_left)
        };
        let mut next = self.manifest.clone();
        next.files.retain(is_kept);
        self.settle(next)?;
        Ok(steps)
    }

    /// Adds the programs, if no other part needs them. They are the last: what names a program goes before it.
    fn with_programs(&self, parts: &[SetupPart]) -> Vec<SetupPart> {
        let mut all = parts.to_vec();
        all.retain(|part| *part != SetupPart::Programs);
        let is_needed =
            SetupPart::ALL.iter().any(|part| !parts.contains(part) && self.is_on(*part));
        if !is_needed || parts.contains(&SetupPart::Programs) {
            all.push(SetupPart::Programs);
        }
        all
    }

    fn of_parts(&self, parts: &[SetupPart]) -> Vec<&RecordedFile> {
        let of = |part: SetupPart| {
            // The last that was made is the first that goes.
            self.manifest.files.iter().rev().filter(move |file| file.is_of(part))
        };
        parts.iter().flat_map(|part| of(*part)).collect()
    }

    /// Looks at a path of the installation.
    fn look(&self, path: &Path) -> Result<Look, SetupError> {
        let at = self.layout.at(path);
        let stat = self.disk.stat(&at).ok();
        let observed = Observed::at(self.disk, &at)
            .map_err(|source| SetupError::NotExamined { path: at, source })?;
        Ok(Look { observed, stat })
    }

    /// Decides what a file needs.
    fn judge(
        &self,
        file: &PlannedFile,
        foreign: ForeignFiles,
    ) -> Result<(AppliedStep, Look), SetupError> {
        let look = self.look(&file.path)?;
        let wanted = Fingerprint::planned(self.disk, &file.contents)
            .map_err(|source| SetupError::NotExamined { path: file.path.clone(), source })?;
        let recorded = self.manifest.files.iter().find(|known| known.path == file.path);
        let is_before =
            recorded.is_some_and(|known| known.before.observed().as_ref() == Some(&look.observed));
        let is_wanted = look.observed.fingerprint().as_ref() == Some(&wanted);
        let is_ours = match (&look.observed, recorded) {
            (observed, Some(known)) => known.was_ours(observed),
            (Observed::File { bytes, .. }, None) => is_wanted || plan::is_ours(&file.path, bytes),
            (_, None) => is_wanted,
        };
        let effect = match &look.observed {
            Observed::Absent => StepEffect::Make,
            _ if is_ours && is_wanted => StepEffect::Keep,
            _ if is_ours && recorded.is_some() => StepEffect::Update,
            // A run that was killed has recorded it, and not replaced it; or a file like ours that no manifest records.
            _ if is_before || is_ours => StepEffect::Replace,
            _ if foreign == ForeignFiles::Replace => StepEffect::Replace,
            _ => {
                let path = self.layout.at(&file.path);
                return Err(match recorded {
                    Some(_) => SetupError::ChangedFile { path },
                    None => SetupError::ForeignFile { path },
                });
            }
        };
        let before = match &look.observed {
            Observed::File { bytes, .. } => Some(bytes.clone()),
            _ => None,
        };
        let (path, contents) = (file.path.clone(), file.contents.clone());
        Ok((AppliedStep { path, effect, before, contents }, look))
    }

    /// Writes into a manifest what is about to be done to a file.
    fn record(
        &self,
        manifest: &mut Manifest,
        file: &PlannedFile,
        effect: StepEffect,
        observed: &Observed,
    ) -> Result<(), SetupError> {
        let path = || self.layout.at(&file.path);
        let print = Fingerprint::planned(self.disk, &file.contents)
            .map_err(|source| SetupError::NotExamined { path: path(), source })?;
        let keep = || Before::of(observed).ok_or_else(|| SetupError::Unkeepable { path: path() });
        let Some(known) = manifest.files.iter_mut().find(|known| known.path == file.path) else {
            // What was in place before stays after `undo`, even if its contents are those of ours.
            if effect == StepEffect::Keep && !plan::is_of_setup_alone(&self.layout, file) {
                return Ok(());
            }
            let before = if effect == StepEffect::Replace { keep()? } else { Before::Absent };
            let part = file.part.name().to_owned();
            let path = file.path.clone();
            manifest.files.push(RecordedFile { part, path, before, ours: vec![print] });
            return Ok(());
        };
        if effect == StepEffect::Replace && known.before.observed().as_ref() != Some(observed) {
            // There is one content that comes back: a later one does not take its place.
            if known.before != Before::Absent {
                return Err(SetupError::AlreadyKept { path: path() });
            }
            known.before = keep()?;
        }
        if known.ours.last() != Some(&print) {
            known.ours.retain(|other| *other != print);
            known.ours.push(print);
            let surplus = known.ours.len().saturating_sub(MOST_KNOWN);
            known.ours.drain(..surplus);
        }
        Ok(())
    }

    /// Puts one file in place.
    fn put(&self, file: &PlannedFile, look: &Look) -> io::Result<()> {
        let path = self.layout.at(&file.path);
        let is_link = matches!(file.contents, PlannedContents::Link(_));
        let mut expected = look.stat;
        if matches!(look.observed, Observed::Link(_))
            || is_link && look.observed != Observed::Absent
        {
            self.disk.remove(&path)?;
            expected = None;
        }
        let contents = match &file.contents {
            PlannedContents::Text(text) => NewFile::Image(text),
            PlannedContents::CopyOf(from) => NewFile::CopyOf(from),
            PlannedContents::Link(target) => {
                self.disk.symlink(target, &path)?;
                return self.disk.sync_dir(path.parent().unwrap_or(&path));
            }
        };
        publish_new(self.disk, &path, contents, file.mode, InPlace::Still(expected))
            .map_err(io::Error::other)?;
        Ok(())
    }

    /// Decides what taking a file back means.
    fn outcome(&self, file: &RecordedFile) -> Result<(UndoOutcome, Look), SetupError> {
        let look = self.look(&file.path)?;
        let is_ours = file.was_ours(&look.observed);
        let before = file.before.observed();
        let outcome = if before.as_ref() == Some(&look.observed) {
            UndoOutcome::WasGone
        } else if is_ours && file.before == Before::Absent {
            UndoOutcome::Removed
        } else if is_ours || look.observed == Observed::Absent {
            UndoOutcome::Restored
        } else {
            UndoOutcome::Changed
        };
        Ok((outcome, look))
    }

    fn take_back(&self, file: &RecordedFile, outcome: UndoOutcome, look: &Look) -> io::Result<()> {
        let path = self.layout.at(&file.path);
        let directory = path.parent().unwrap_or(&path);
        match outcome {
            // A removal of an earlier run may not be durable yet, and is forgotten after this.
            UndoOutcome::WasGone => return self.sync(directory),
            UndoOutcome::Changed | UndoOutcome::Needed => return Ok(()),
            UndoOutcome::Removed => self.disk.remove(&path)?,
            UndoOutcome::Restored => match file.before.observed() {
                Some(Observed::File { bytes, mode }) => {
                    if matches!(look.observed, Observed::Link(_)) {
                        self.disk.remove(&path)?;
                    }
                    publish_new(self.disk, &path, NewFile::Image(&bytes), mode, InPlace::Anything)
                        .map_err(io::Error::other)?;
                }
                Some(Observed::Link(target)) => {
                    if look.observed != Observed::Absent {
                        self.disk.remove(&path)?;
                    }
                    self.disk.symlink(&target, &path)?;
                }
                _ => {}
            },
        }
        self.sync(directory)
    }

    /// Makes the names in a directory durable, if it is there.
    fn sync(&self, directory: &Path) -> io::Result<()> {
        match self.disk.sync_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            other => other,
        }
    }

    /// Writes a manifest from which something was taken; the last step takes the directories and the manifest along.
    fn settle(&mut self, mut next: Manifest) -> Result<(), SetupError> {
        let on = next.since.keys().filter(|part| next.has_part(part)).cloned();
        let on: BTreeSet<String> = on.collect();
        next.since.retain(|part, _| on.contains(part));
        let manifest = self.layout.at(&self.layout.manifest);
        for directory in next.directories.clone().iter().rev() {
            let holds_manifest = self.layout.manifest.starts_with(directory);
            let at = self.layout.at(directory);
            if !holds_manifest && self.remove_directory(&at) {
                next.directories.remove(directory);
            }
        }
        if !next.is_empty() {
            if next != self.manifest {
                next.write(self.disk, &manifest, self.layout.scope)?;
            }
            self.manifest = next;
            return Ok(());
        }
        let failed = |source| SetupError::NotTakenBack { path: manifest.clone(), source };
        match self.disk.remove(&manifest) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        self.sync(manifest.parent().unwrap_or(&manifest)).map_err(failed)?;
        // The lock is in the directory; it goes when this value is dropped.
        if let Some(lock) = &mut self.lock {
            let above = next.directories.iter();
            lock.directories
                .extend(above.filter(|path| self.layout.manifest.starts_with(path)).cloned());
        }
        self.manifest = Manifest::default();
        Ok(())
    }

    /// Removes an empty directory; returns whether it is gone.
    fn remove_directory(&self, directory: &Path) -> bool {
        match self.disk.remove_dir(directory) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Returns the directories above these paths that do not exist, the highest first, without the root of a package.
    fn missing_above(&self, paths: &[&Path]) -> Result<Vec<PathBuf>, SetupError> {
        let mut missing = Vec::new();
        for path in paths {
            for directory in path.ancestors().skip(1) {
                let at = self.layout.at(directory);
                match self.disk.stat(&at) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        missing.push(directory.to_owned());
                    }
                    Err(source) => return Err(SetupError::NotExamined { path: at, source }),
                    Ok(_) => break,
                }
            }
        }
        missing.sort();
        missing.dedup();
        Ok(missing)
    }

    fn make_directories(&self, directories: &[PathBuf]) -> Result<(), SetupError> {
        for directory in directories {
            let at = self.layout.at(directory);
            let failed = |source| SetupError::NotMade { path: at.clone(), source };
            match self.disk.create_dir(&at, self.layout.directory_mode()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
            self.sync(at.parent().unwrap_or(&at)).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the temporary files of runs that were killed.
    fn sweep(&self) {
        let manifest = [&self.layout.manifest].into_iter();
        let files = self.manifest.files.iter().map(|file| &file.path);
        let directories = manifest.chain(files).filter_map(|path| path.parent());
        for directory in directories.collect::<BTreeSet<_>>() {
            // Whoever writes one now has it locked. What stays is removed by the next run.
            let _ = remove_all_stale(self.disk, &self.layout.at(directory), i128::MAX);
        }
    }
}

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        let _ = self.disk.remove(&lock.path);
        if self.manifest.is_empty() {
            // The one of our name, which a run that was killed may have made, goes too if nothing is in it.
            let mut directories = lock.directories;
            directories.extend(self.layout.manifest.parent().map(Path::to_owned));
            directories.sort();
            for directory in directories.iter().rev() {
                self.remove_directory(&self.layout.at(directory));
            }
        }
    }
}
