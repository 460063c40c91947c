//! The policy: which documents may be recorded, decided before anything is written.
//!
//! The strictest counts: private mode, then the switches of KDE, GTK and GNOME, then what KDE leaves out (temporary and
//! hidden files), then the user's own rules, of which the last that matches decides.

mod foreign_settings;
mod glob;
mod private;
mod rules;

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::disk::Disk;
use sys::mounts::Mounts;

use super::{RecentTime, RecentsFiles, Uri};

pub use foreign_settings::ForeignSetting;
use foreign_settings::{ProgramSwitches, Switches};
pub(super) use glob::matches_name;
pub(super) use private::ForeignList;
pub use private::Private;
pub use rules::{Condition, RetentionEffect, RetentionRule, RetentionRuleError, RetentionRules};

/// How many entries are kept when nobody says otherwise.
const MOST_ENTRIES: usize = 5000;
/// How many links KDE keeps when nobody says otherwise (KIO 5.103).
pub const MOST_LINKS: usize = 10;

/// The document and the program of a request.
#[derive(Clone, Copy, Debug)]
pub struct PolicySubject<'a> {
    /// The document.
    pub uri: &'a Uri,
    /// Its type, if it is known.
    pub mime: Option<&'a str>,
    /// The program.
    pub application: &'a str,
}

/// Whether something may be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionVerdict {
    /// It may.
    Remember,
    /// It may not.
    Leave(DenialReason),
}

/// Why something is not remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialReason {
    /// Private mode is on.
    Private(Private),
    /// The program was started to be private.
    PrivateProgram,
    /// A setting of the desktop turns recent documents off.
    Setting(ForeignSetting),
    /// It is below the directory of temporary files.
    Temporary(PathBuf),
    /// A part of its path is hidden; with the setting that says that this matters, if there is one.
    Hidden(Option<ForeignSetting>),
    /// A line of the user's rules says so.
    Rule {
        /// Its number in the file, from 1.
        number: usize,
        /// What it says.
        line: String,
    },
    /// What the user's rules in this file say is not known: it cannot be read, or is too large.
    UnreadableRules(PathBuf),
}

impl fmt::Display for DenialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenialReason::Private(Private::WithoutEnd) => f.write_str("private mode is on"),
            DenialReason::Private(Private::Until(_)) => {
                f.write_str("private mode is on for a while")
            }
            DenialReason::PrivateProgram => f.write_str("the program was started to be private"),
            DenialReason::Setting(ForeignSetting { path, text }) => {
                write!(f, "{text} in {} turns it off", path.display())
            }
            DenialReason::Temporary(dir) => {
                write!(f, "it is a temporary file below {}", dir.display())
            }
            DenialReason::Hidden(None) => f.write_str("it is hidden, which KDE leaves out"),
            DenialReason::Hidden(Some(ForeignSetting { path, text })) => {
                write!(f, "it is hidden, and {text} in {}", path.display())
            }
            DenialReason::Rule { number, line } => {
                write!(f, "line {number} of the rules says: {line}")
            }
            DenialReason::UnreadableRules(path) => {
                write!(f, "the rules in {} cannot be read", path.display())
            }
        }
    }
}

/// How much is kept, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// The most entries.
    pub entries: usize,
    /// How long an entry is kept after it was last used.
    pub age: Option<Duration>,
    /// The most links of KDE.
    pub links: usize,
    /// Where the journal is.
    pub keeping: Keeping,
}

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// On the disk.
    Durable,
    /// In memory, with a copy on the disk now and then.
    Volatile,
}

/// The rules in effect; each query first checks whether a file changed.
#[derive(Debug)]
pub struct RetentionPolicy {
    places: RecentsFiles,
    switches: Switches,
    rules: RetentionRules,
    /// The state of their file when it was last looked for; nothing if it was never read.
    stamp: Option<RulesStamp>,
}

/// Which version of the file with the rules was read; none if there is no file.
type RulesStamp = Option<((u64, u64), u64, i128)>;

impl RetentionPolicy {
    /// Returns the policy of one user; nothing is read yet.
    #[must_use]
    pub fn new(places: &RecentsFiles) -> RetentionPolicy {
        RetentionPolicy {
            places: places.clone(),
            switches: Switches::new(places),
            rules: RetentionRules::default(),
            stamp: None,
        }
    }

    /// Decides whether a program's own addition may be remembered.
    pub fn decide(
        &mut self,
        disk: &dyn Disk,
        subject: PolicySubject<'_>,
        now: RecentTime,
    ) -> RetentionVerdict {
        let said = self.switches.ask(disk, Some(subject.application));
        if let Some(reason) = self.off_by(disk, &said, now) {
            return RetentionVerdict::Leave(reason);
        }
        let path = subject.uri.to_path();
        if let Some(path) = &path
            && path.starts_with(&self.places.temporary)
        {
            return RetentionVerdict::Leave(DenialReason::Temporary(self.places.temporary.clone()));
        }
        let ruled = self.ruled(disk, subject, path.as_deref());
        if let Some((_, RetentionVerdict::Leave(_))) = ruled {
            return ruled.map_or(RetentionVerdict::Remember, |(_, verdict)| verdict);
        }
        let is_allowed = matches!(ruled, Some((RetentionEffect::Allow, _)));
        let ignored = said.ignore_hidden;
        let ignores = ignored.as_ref().is_none_or(|(ignores, _)| *ignores);
        if ignores && !is_allowed && path.as_deref().is_some_and(is_hidden) {
            return RetentionVerdict::Leave(DenialReason::Hidden(
                ignored.map(|(_, setting)| setting),
            ));
        }
        RetentionVerdict::Remember
    }

    /// Returns why nothing that this program opens is remembered now, whatever it is.
    pub fn off(
        &mut self,
        disk: &dyn Disk,
        application: Option<&str>,
        now: RecentTime,
    ) -> Option<DenialReason> {
        let said = self.switches.ask(disk, application);
        self.off_by(disk, &said, now)
    }

    fn off_by(
        &mut self,
        disk: &dyn Disk,
        said: &ProgramSwitches,
        now: RecentTime,
    ) -> Option<DenialReason> {
        if let Some(private) = Private::read(disk, &self.places, now) {
            return Some(DenialReason::Private(private));
        }
        if let Some(off) = said.off.first() {
            return Some(DenialReason::Setting(off.clone()));
        }
        self.refresh(disk);
        if self.stamp.is_none() {
            return Some(DenialReason::UnreadableRules(self.places.rules()));
        }
        let (number, _) = self.rules.iter().find(|(_, rule)| *rule == RetentionRule::Off)?;
        Some(DenialReason::Rule { number, line: self.rules.line(number).to_owned() })
    }

    /// Returns where the journal is to be.
    pub fn keeping(&mut self, disk: &dyn Disk) -> Keeping {
        self.refresh(disk);
        match self.rules.iter().any(|(_, rule)| rule == RetentionRule::Volatile) {
            true => Keeping::Volatile,
            false => Keeping::Durable,
        }
    }

    /// Decides whether what another program uses now, and writes into its own list, may be remembered: by private mode and by
    /// the user's own rules. What its desktop's settings say is that desktop's matter.
    pub fn decide_foreign(
        &mut self,
        disk: &dyn Disk,
        subject: PolicySubject<'_>,
        now: RecentTime,
    ) -> RetentionVerdict {
        match Private::read(disk, &self.places, now) {
            Some(private) => RetentionVerdict::Leave(DenialReason::Private(private)),
            None => self.decide_by_rules(disk, subject),
        }
    }

    /// Decides by the user's own rules alone.
    pub fn decide_by_rules(
        &mut self,
        disk: &dyn Disk,
        subject: PolicySubject<'_>,
    ) -> RetentionVerdict {
        let path = subject.uri.to_path();
        self.ruled(disk, subject, path.as_deref())
            .map_or(RetentionVerdict::Remember, |(_, verdict)| verdict)
    }

    /// Says whether the last of the user's rules about places that matches is one that denies, whatever other rules and private
    /// mode say. Rules that cannot be read may deny any place.
    pub fn denies_place(&mut self, disk: &dyn Disk, subject: PolicySubject<'_>) -> bool {
        if self.is_unreadable(disk) {
            return true;
        }
        let path = subject.uri.to_path();
        let last = self.rules.iter().rev().find_map(|(_, rule)| match rule {
            RetentionRule::Condition(
                effect,
                ref condition @ (Condition::Path(_) | Condition::Mount(_)),
            ) => self.holds(condition, subject, path.as_deref()).then_some(effect),
            _ => None,
        });
        last == Some(RetentionEffect::Deny)
    }

    /// Returns how much is kept.
    pub fn limits(&mut self, disk: &dyn Disk) -> RetentionLimits {
        let said = self.switches.ask(disk, None);
        self.refresh(disk);
        let mut limits = RetentionLimits {
            entries: MOST_ENTRIES,
            age: said.age.map(|(age, _)| age),
            links: said.most_links.map_or(MOST_LINKS, |(links, _)| links),
            keeping: Keeping::Durable,
        };
        for (_, rule) in self.rules.iter() {
            match rule {
                RetentionRule::Entries(entries) => limits.entries = entries,
                RetentionRule::Days(days) => {
                    limits.age = Some(Duration::from_secs(u64::from(days) * 24 * 60 * 60));
                }
                RetentionRule::Volatile => limits.keeping = Keeping::Volatile,
                RetentionRule::Off | RetentionRule::Condition(..) => {}
            }
        }
        limits
    }

    /// Returns the settings of others that hold now: those that turn everything off, then the others.
    pub fn settings(&mut self, disk: &dyn Disk) -> (Vec<ForeignSetting>, Vec<ForeignSetting>) {
        let ProgramSwitches { off, ignore_hidden, most_links, age } = self.switches.ask(disk, None);
        let others = [
            ignore_hidden.map(|(_, setting)| setting),
            most_links.map(|(_, setting)| setting),
            age.map(|(_, setting)| setting),
        ];
        (off, others.into_iter().flatten().collect())
    }

    /// Says whether the user's own rules are not known: their file cannot be read, and was not before.
    pub fn is_unreadable(&mut self, disk: &dyn Disk) -> bool {
        self.refresh(disk);
        self.stamp.is_none()
    }

    /// Returns the user's own rules.
    pub fn rules(&mut self, disk: &dyn Disk) -> &RetentionRules {
        self.refresh(disk);
        &self.rules
    }

    /// Returns the last of the user's rules that matches, with its effect.
    fn ruled(
        &mut self,
        disk: &dyn Disk,
        subject: PolicySubject<'_>,
        path: Option<&Path>,
    ) -> Option<(RetentionEffect, RetentionVerdict)> {
        self.refresh(disk);
        if self.stamp.is_none() {
            let reason = DenialReason::UnreadableRules(self.places.rules());
            return Some((RetentionEffect::Deny, RetentionVerdict::Leave(reason)));
        }
        let leave = |number: usize| {
            let line = self.rules.line(number).to_owned();
            (RetentionEffect::Deny, RetentionVerdict::Leave(DenialReason::Rule { number, line }))
        };
        if let Some((number, _)) = self.rules.iter().find(|(_, rule)| *rule == RetentionRule::Off) {
            return Some(leave(number));
        }
        self.rules.iter().rev().find_map(|(number, rule)| {
            let RetentionRule::Condition(effect, condition) = rule else { return None };
            if !self.holds(&condition, subject, path) {
                return None;
            }
            Some(match effect {
                RetentionEffect::Deny => leave(number),
                RetentionEffect::Allow => (RetentionEffect::Allow, RetentionVerdict::Remember),
            })
        })
    }

    fn holds(
        &self,
        condition: &Condition,
        subject: PolicySubject<'_>,
        path: Option<&Path>,
    ) -> bool {
        let home = &self.places.home;
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let name = |pattern: &str, text: &str| {
            glob::matches_name(
                pattern.to_ascii_lowercase().as_bytes(),
                text.to_ascii_lowercase().as_bytes(),
            )
        };
        match condition {
            Condition::Path(pattern) => path.is_some_and(|path| {
                glob::matches_path(&rules::expanded(pattern, home), &bytes(path))
            }),
            Condition::Mount(pattern) => path.is_some_and(|path| {
                // Without /proc nothing is known of mounts, and a path says enough of most of them.
                let point = Mounts::read().ok().and_then(|m| Some(m.above(path)?.point.clone()));
                let place = point.unwrap_or_else(|| path.to_owned());
                glob::matches_path(&rules::expanded(pattern, home), &bytes(&place))
            }),
            Condition::Hidden => path.is_some_and(is_hidden),
            Condition::Type(pattern) => subject.mime.is_some_and(|mime| name(pattern, mime)),
            Condition::Application(pattern) => {
                let last = subject.application.rsplit('.').next().unwrap_or_default();
                name(pattern, subject.application) || name(pattern, last)
            }
        }
    }

    /// Reads the rules again if their file is another one. Where it cannot be read, as with too many open files, or is too large,
    /// the rules of before hold.
    fn refresh(&mut self, disk: &dyn Disk) {
        let path = self.places.rules();
        let stamp: RulesStamp = match disk.stat(&path) {
            Ok(stat) if stat.len <= rules::MAX_BYTES => {
                Some((stat.identity, stat.len, stat.mtime_ns))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => return,
        };
        if self.stamp == Some(stamp) {
            return;
        }
        let rules = match stamp.map(|_| disk.read(&path)) {
            None => RetentionRules::default(),
            Some(Ok(text)) => RetentionRules::parse(&text),
            Some(Err(_)) => return,
        };
        (self.rules, self.stamp) = (rules, Some(stamp));
    }
}

/// Returns whether a part of the path starts with a dot.
fn is_hidden(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().as_bytes().starts_with(b"."))
}
